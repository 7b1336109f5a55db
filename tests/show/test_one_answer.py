"""Every door gives the same digits: whatever is hidden, whichever way round two policies are named."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials, words

from robotrials.record import Episode, Outcome, Store
from robotrials.show.catalog import ShowRequest, find_table
from robotrials.show.curve import improvements, posteriors, profiles
from robotrials.show.phrase import pair_sentence, pair_words, short_verdict
from robotrials.show.planning import requested_powers, requested_study, watched_pairs
from robotrials.show.table import Table
from robotrials.testing.scene import PAPER_LIKE, paper_like_cohort
from robotrials.verdict.analysis import Analysis, analyse, present
from robotrials.verdict.analysis.endpoint_pairs import Standing
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

SMALL = [replace(p, episodes_per_cell=(12, 14), items=3) for p in PAPER_LIKE]


@pytest.fixture(scope='module')
def episodes() -> list[Episode]:
    return paper_like_cohort(np.random.default_rng(3), profiles=SMALL, objects=['cup', 'towel'])


@pytest.fixture(scope='module')
def analysis(episodes: list[Episode]) -> Analysis:
    return analyse(episodes, resamples=60)


def rows_of(shown: list[Table], *policies: str) -> list[dict[str, Any]]:
    rows = []
    for table in shown:
        owner = table.title.partition(' (')[0] if table.columns[0].name == 'scalar' else ''
        names = [c.name for c in table.columns]
        rows += [dict(zip(names, row, strict=True)) | ({'policy': owner} if owner else {}) for row in table.rows]
    return [r for r in rows if {r[k] for k in ('policy', 'a', 'b') if k in r} <= set(policies)]


@pytest.mark.parametrize(
    'name',
    ['headline', 'success', 'scalars', 'relative', 'logrank', 'stratum-differences', 'failures', 'needed-n',
     'detection', 'sequential', 'labels'],
)  # fmt: skip
def test_hiding_policies_changes_no_digit(name: str, analysis: Analysis, episodes: list[Episode]) -> None:
    shown = ('act', 'groot', 'openpi')
    fresh = analyse(episodes[::-1], resamples=60)  # rows in another order, and asked for the first time
    build, label = find_table(name), 'camera_side' if name == 'labels' else None
    every = build(ShowRequest(subject=analysis, label=label))
    some = build(ShowRequest(subject=fresh, policies=shown, label=label))
    kept = rows_of(list(every), *shown)
    assert kept
    assert rows_of(list(some), *shown) == kept


def test_the_values_of_figures_do_not_change_when_others_are_hidden(
    analysis: Analysis, episodes: list[Episode]
) -> None:
    every, some = ShowRequest(subject=analysis), ShowRequest(
        subject=analyse(episodes, resamples=60), policies=('act', 'openpi')
    )  # fmt: skip
    assert requested_powers(some)['act', 'openpi'].needed == requested_powers(every)['act', 'openpi'].needed
    whole = [r for r in requested_study(every).rows if (r.policy_a, r.policy_b) == ('act', 'openpi')]
    assert list(requested_study(some).rows) == whole
    assert profiles(some)['act'].low.tolist() == profiles(every)['act'].low.tolist()
    (pair,) = improvements(some)
    assert pair.interval in [i.interval for i in improvements(every) if {i.policy_a, i.policy_b} == {'act', 'openpi'}]
    assert [p.policy for p in posteriors(some)] == [p.policy for p in posteriors(every) if p.policy in some.policies]
    assert [(p.a, p.b) for p in watched_pairs(some)[1]] == [('act', 'openpi')]


def test_letters_of_the_posterior_are_those_of_the_tables(analysis: Analysis) -> None:
    found = present(analysis.pairs).endpoints[EndpointName.SUCCESS]
    letters = {p.policy: p.letters for p in posteriors(ShowRequest(subject=analysis))}
    assert letters == {'human': '', **found.letters}  # type: ignore[union-attr]


def test_both_orders_give_the_same_digits_with_signs_turned(analysis: Analysis) -> None:
    pairs = find_table('pairs')
    one, other = (pairs(ShowRequest(subject=analysis, policies=p)) for p in (('act', 'groot'), ('groot', 'act')))
    for first, second in zip(one, other, strict=True):
        names = [c.name for c in first.columns]
        low, high = names.index('low'), names.index('high')
        for row, turned in zip(first.rows, second.rows, strict=True):
            expected = list(row)
            k = low - 1
            expected[k] = None if row[k] is None else pytest.approx(-row[k])  # type: ignore[operator]
            expected[low] = None if row[high] is None else pytest.approx(-row[high])  # type: ignore[operator]
            expected[high] = None if row[low] is None else pytest.approx(-row[low])  # type: ignore[operator]
            if 'a first (%)' in names:
                k = names.index('a first (%)')
                for to, source in ((k, k), (k + 1, k + 2), (k + 2, k + 1)):
                    expected[to] = None if row[source] is None else pytest.approx(100 - row[source])  # type: ignore[operator]
            for i, name in enumerate(names):
                if name in ('a', 'b', 'n a', 'n b'):
                    swap = {'a': 'b', 'b': 'a', 'n a': 'n b', 'n b': 'n a'}[name]
                    expected[i] = row[names.index(swap)]
            assert list(turned) == expected


def test_one_pair_is_shown_out_of_all_pairs(analysis: Analysis) -> None:
    """Its corrected p-value is the one over all pairs."""
    found = present(analysis.pairs).endpoints
    detail, *_ = find_table('pairs')(ShowRequest(subject=analysis, policies=('smolvla', 'act')))
    names = [c.name for c in detail.columns]
    shown = {row[0]: row[names.index('p (corrected)')] for row in detail.rows}
    time, success, lost = (
        found[e].pair('smolvla', 'act')  # type: ignore[union-attr]
        for e in (EndpointName.TIME, EndpointName.SUCCESS, EndpointName.LOST)
    )
    assert shown == {
        'time to success': time.p_corrected, 'episode success': success.p_corrected, 'items lost': lost.p_corrected,
    }  # fmt: skip
    assert time.p_corrected >= time.p_value  # type: ignore[operator]


# --- data without times


@pytest.fixture(scope='module')
def untimed() -> list[Episode]:
    rng = np.random.default_rng(0)
    rates = {'new': 0.9, 'old': 0.3}
    return [
        Episode(policy=p, task=t, seed=k, duration_s=None, outcome=Outcome.SUCCESS if ok else Outcome.FAILURE)
        for p, rate in rates.items() for t in ('cup', 'towel') for k in range(20)
        for ok in [bool(rng.random() < rate)]
    ]  # fmt: skip


def test_success_leads_where_there_are_no_times(untimed: list[Episode], tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append(untimed)
    scored = words('score', tmp_path / 's')
    assert 'Episode success' in scored
    assert 'No time to success: 80 of 80 valid episodes have no duration; record durations.' in scored
    told = words('compare', tmp_path / 's', 'new', 'old')
    assert 'new is better than old: it succeeds more often.' in told
    assert 'new succeeds more often than old on average over these 2 strata (difference ' in told
    assert 'Paired by start state (40 matched start states); McNemar mid-p' in told
    everything = words('compare', tmp_path / 's')
    assert 'All pairs: episode success' in everything
    assert 'primary endpoint success' in everything
    for name in ('needed-n', 'pairs', 'success', 'recorded', 'task-success', 'counts'):
        robotrials('tables', name, tmp_path / 's')
    assert 'have no duration' in robotrials('tables', 'failures', tmp_path / 's', code=2)
    assert 'have no duration' in robotrials('plot', 'cdf', tmp_path / 's', '-o', tmp_path / 'f.png', code=2)
    for name in ('posterior', 'profile', 'improvement', 'ranks', 'sequential'):
        robotrials('plot', name, tmp_path / 's', '-o', tmp_path / 'f.png', '--resamples', 20)


def test_who_asks_for_times_is_told_how_to_list_the_episodes_without(untimed: list[Episode], tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([e.replace(duration_s=None if number < 2 else 9.0) for number, e in enumerate(untimed)])
    for verb in (('plot', 'cdf', store.path, '-o', tmp_path / 'f.png'), ('power', 'detect', store.path)):
        refused = robotrials(*verb, code=2)
        command = refused.splitlines()[-1].removeprefix('Try: robotrials ')
        assert command == f'store ls {store.path} --where duration_s='
    listed = robotrials(*shlex.split(command))
    assert all(e.episode_id in listed for e in untimed[:2])
    assert not any(e.episode_id in listed for e in untimed[2:])
    assert 'Try:' not in robotrials('score', store.path)


def test_the_statement_is_in_every_form(untimed: list[Episode], tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append(untimed)
    said = 'Analysis: none was declared'
    for form in ('csv', 'markdown', 'latex', 'json'):
        target = tmp_path / f'out.{form}'
        robotrials('tables', 'headline', tmp_path / 's', '-f', form, '-o', target)
        assert said in target.read_text(encoding='utf-8')
    rows = list(csv.DictReader(io.StringIO((tmp_path / 'out.csv').read_text(encoding='utf-8'))))
    assert all(row['analysis'].startswith(said) for row in rows)
    assert json.loads((tmp_path / 'out.json').read_text())[0]['analysis'].startswith(said)


# --- repeats of start states


def test_repeats_of_a_start_state_are_watched_once() -> None:
    made = [
        Episode(policy=p, task='t', seed=k, repeat=r, duration_s=3.0, outcome=Outcome.SUCCESS)
        for p in 'ab' for k in range(6) for r in range(5)
    ]  # fmt: skip
    found = analyse(made).planning.watched()
    assert found.n_repeats == 2 * 6 * 4
    assert found.n_episodes == {'a': 30, 'b': 30}
    assert all(look.n_a <= 6 for pair in found.arms.pairs for look in pair.comparison.looks)
    (table,) = find_table('sequential')(ShowRequest(subject=analyse(made)))
    assert '48 repeats of start states were left out' in table.note


# --- sentences


def arm(policy: str, times: dict[str, list[float]], cap_s: float = 100.0) -> list[Episode]:
    return [
        Episode(
            policy=policy, task='t', stratum=s, episode_id=f'{policy}-{s}-{k}', duration_s=min(x, cap_s),
            time_cap_s=cap_s, outcome=Outcome.SUCCESS if x <= cap_s else Outcome.TIMEOUT,
        )
        for s, values in times.items() for k, x in enumerate(values)
    ]  # fmt: skip


def sentence(made: list[Episode], **plan: Any) -> tuple[str, Standing]:
    found = analyse(made, plan=AnalysisPlan(resamples=200, **plan))
    compared = present(found.pairs)
    endpoint = present(compared.endpoints[EndpointName.TIME])
    (pair,) = endpoint.pairs
    n_strata = len(present(found.frame).strata)
    return pair_sentence(pair, endpoint, n_strata=n_strata), pair.standing


def draws(mean: float, *, n: int = 40, seed: int = 0) -> list[float]:
    return (mean + np.random.default_rng(seed).uniform(-5, 5, n)).tolist()


def test_a_claim_is_told_with_the_chance_to_be_first_and_the_seconds() -> None:
    strata = [f's{k}' for k in range(4)]
    a = arm('a', {s: draws(20, seed=k) for k, s in enumerate(strata)})
    b = arm('b', {s: draws(45, seed=9 + k) for k, s in enumerate(strata)})
    told, standing = sentence([*a, *b])
    assert standing is Standing.AHEAD
    assert told.startswith('a is faster than b on average over these 4 strata (done first in 100 % [')
    assert '] of comparable tries; ' in told
    assert ' s less on average, restricted to 120 s' in told or ' less on average, restricted to ' in told
    assert 'reversed' not in told


def test_a_shown_reversal_depends_on_the_stratum_and_names_it() -> None:
    a = arm('a', {'x': draws(10), 'y': draws(70, seed=2), 'z': draws(10, seed=6)})
    b = arm('b', {'x': draws(50, seed=3), 'y': draws(40, seed=4), 'z': draws(50, seed=7)})
    told, standing = sentence([*a, *b])
    assert standing is Standing.DEPENDS
    assert told.startswith('Which of a and b is faster depends on the stratum (done first in ')
    assert 'reversal p ' in told
    assert 'in y the order is reversed (first in 0 %)' in told


def test_the_same_within_a_margin_names_the_margin() -> None:
    told, standing = sentence(
        [*arm('a', {'x': draws(40, n=400)}), *arm('b', {'x': draws(40, n=400, seed=5)})], tau_s=60.0,
        margins={EndpointName.TIME: 5.0},
    )  # fmt: skip
    assert standing is Standing.SAME
    assert told.startswith('a and b are the same in time to success within 5 s (done first in ')


def test_what_is_not_resolved_says_what_would_resolve_it() -> None:
    told, standing = sentence([*arm('a', {'x': draws(40, n=8)}), *arm('b', {'x': draws(42, n=8, seed=5)})])
    assert standing is Standing.UNRESOLVED
    assert told.startswith('a and b are not significantly different in time to success at this N (done first in ')
    assert 'per cell for 80 % power' in told
    assert told.endswith('.')


def test_what_is_withheld_says_why_with_the_policys_name() -> None:
    found = analyse([*arm('a', {'x': [5.0]}), *arm('b', {'x': [6.0]})], resamples=20)
    endpoint = present(present(found.pairs).endpoints[EndpointName.TIME])
    (pair,) = endpoint.pairs
    assert short_verdict(pair) == 'withheld'
    told = pair_sentence(pair, endpoint, n_strata=1)
    assert told.startswith('a and b cannot be compared in time to success: ')
    assert 'policy a' not in told


def test_every_number_of_a_sentence_keeps_its_exact_value(analysis: Analysis) -> None:
    endpoint = present(present(analysis.pairs).endpoints[EndpointName.TIME])
    pair = endpoint.pair('smolvla', 'act')
    told = pair_words(pair, endpoint, n_strata=2)
    values = [w.value for w in told if w.value is not None]
    assert values[0] == 100 * pair.contrast.estimate
    assert pair.difference in values
    assert pair.p_value in values
