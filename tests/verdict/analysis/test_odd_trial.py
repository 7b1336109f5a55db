"""What a report says of stores that are empty, lopsided, tied, unfinished or cut: every sentence has to stay true."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.show.parsed import table_blocks
from tests.verdict.analysis.stores import changed_store, rollout, safety_store, timed_store

from robotrials.errors import StoreError
from robotrials.record import Episode, Outcome, Provenance, Store
from robotrials.record.blinding import Unblinding, write_unblinding
from robotrials.show.document import render_json
from robotrials.show.gate import render_latex, render_markdown
from robotrials.show.page import render_html
from robotrials.show.report import trial_document
from robotrials.show.report_quality import methods_text
from robotrials.verdict.analysis import Absent, Analysis, analyse, present

FEW = {'resamples': 60}


def report_of(path: Path, episodes: Sequence[Episode], **changes: Any) -> Analysis:
    store = Store.create(path / 's')
    store.append(episodes)
    return analyse(store, **FEW | changes)


def lead_of(report: Analysis) -> list[str]:
    return [p.text for p in trial_document(report).lead]


def ended(policy: str, seed: int, outcome: str, duration_s: float, **more: object) -> Episode:
    fields: dict[str, object] = {'task': 'pick'} | more
    return Episode(
        policy=policy, seed=seed, outcome=Outcome(outcome), duration_s=duration_s, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def quality_text(report: Analysis) -> str:
    return next(s for s in render_markdown(trial_document(report)).split('\n## ') if s.startswith('Data quality'))


def test_failures_that_took_no_time_make_a_report(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended(p, i, 'failure', 0.0) for p in 'ab' for i in range(4)])
    assert present(report.ranking).tau_s == 1.0
    assert (
        lead_of(report)[0]
        == 'Of 2 policies in 8 valid episodes, no policy succeeded once: there is nothing to rank by.'
    )


def test_one_episode_is_told_in_the_singular(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('a', 0, 'success', 10.0)])
    document = trial_document(report)
    for text in (render_markdown(document), render_html(document), render_latex(document), render_json(document)):
        for slip in ('1 valid episodes', 'The 1 episodes', '1 cells', '1 start states', '1 pairs'):
            assert slip not in text


def traded(policy: str, seconds: float, failures: int, n: int = 60) -> list[Episode]:
    """A policy that always takes about `seconds`, and fails in so many of its first starts."""
    return [ended(policy, i, 'failure' if i < failures else 'success', seconds + i / 100) for i in range(n)]


def test_pairs_without_a_winner_are_not_called_resolved(tmp_path: Path) -> None:
    report = report_of(tmp_path, [*traded('hasty', 5.0, 20), *traded('steady', 20.0, 0)])
    assert lead_of(report)[0] == 'A trade-off: hasty is faster, steady succeeds more often.'
    assert lead_of(report)[-1] == 'The only pair is a trade-off.'


def test_several_pairs_are_told_by_what_became_of_them(tmp_path: Path) -> None:
    worst = traded('worst', 40.0, 45)
    report = report_of(tmp_path, [*traded('hasty', 5.0, 20), *traded('steady', 20.0, 0), *worst])
    assert lead_of(report)[-1] == 'Of 3 pairs, 2 have a winner and 1 is a trade-off.'


def test_what_looks_worse_is_told_by_how_much_and_without_a_minus(tmp_path: Path) -> None:
    report = report_of(tmp_path, [*traded('hasty', 5.0, 3), *traded('steady', 20.0, 0)])
    assert re.match(
        r'A trade-off: hasty is faster than steady, but looks worse in episode success \(by 5 points \[-\d',
        lead_of(report)[0],
    )


def test_a_single_pair_and_a_single_invalid_episode_are_told_in_the_singular(tmp_path: Path) -> None:
    slow = [ended('b', i, 'success', 50.0 + i / 10) for i in range(8)]
    quick = [ended('a', i, 'success', 5.0 + i / 10) for i in range(8)]
    report = report_of(tmp_path, [*quick, *slow, ended('b', 9, 'invalid', 0.0)])
    text = render_markdown(trial_document(report))
    assert 'The only pair is resolved: one policy is better.' in text
    assert '1 pair tested, corrected by Holm over 2 tests at alpha = 0.05' in text
    assert '1 further episode was invalid' in methods_text(report)
    assert 'was compared in 1 pair: ' in methods_text(report)


def test_equal_policies_share_the_first_place(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended(p, i, 'success', 10.0) for p in 'ab' for i in range(6)])
    first, second = lead_of(report)[:2]
    assert 'a and b have the same, highest episode success, 100.0 %' in first
    assert 'a and b have the same, shortest restricted mean time to success, 10.0 s' in second
    rmst = present(report.ranking).scores['a'].macro['rmst_s']
    assert rmst.interval is None or rmst.interval.width > 0
    assert '[10.0, 10.0]' not in render_markdown(trial_document(report))


def test_policies_without_a_common_stratum_are_not_ranked(tmp_path: Path) -> None:
    episodes = [ended(p, i, 'success', 5.0 + i, stratum=f'only {p}') for p in 'ab' for i in range(5)]
    report = report_of(tmp_path, episodes)
    assert isinstance(report.pairs, Absent)
    first = lead_of(report)[0]
    assert first.startswith('The 2 policies in 10 valid episodes are not ranked: fewer than two policies can be ranked')
    assert 'it shares no stratum with every other policy' in first
    assert 'Not ranked' in render_markdown(trial_document(report))


def test_one_policy_elsewhere_is_not_compared_with_the_others(tmp_path: Path) -> None:
    both = [ended(p, i, 'success', 5.0 + i, stratum='desk') for p in 'ab' for i in range(5)]
    away = [ended('c', i, 'success', 1.0, stratum='floor') for i in range(5)]
    (tmp_path / 's').mkdir()
    report = report_of(tmp_path / 's', [*both, *away], strata=('desk',))
    frame = present(report.frame)
    assert frame.policies == ('a', 'b')
    assert frame.apart == {'c': 'not run on 1 of 1 strata (desk)'}
    assert 'c' not in present(report.ranking).order  # its times are of other work, however short
    document = trial_document(report)
    assert any('c is not ranked' in text for text in document.cautions)
    assert 'Not ranked' in render_markdown(document)


def test_pooled_conditions_are_said_beside_the_verdict(tmp_path: Path) -> None:
    episodes = [
        ended(p, i, 'success', 5.0 + i, condition=c) for p in 'ab' for c in ('dark', 'bright') for i in range(5)
    ]
    document = trial_document(report_of(tmp_path, episodes))
    assert '2 conditions are pooled, because none of them is the baseline (nominal).' in document.cautions
    for render in (render_html, render_markdown, render_latex, render_json):
        assert '2 conditions are pooled' in render(document)


def test_the_reference_alone_is_not_a_tested_policy(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('human', i, 'success', 5.0, is_reference=True) for i in range(3)])
    assert isinstance(report.pairs, Absent)
    assert report.pairs.reason == 'only the reference was tested'
    assert 'human succeeded in 3 of 3 valid episodes' in lead_of(report)[0]


def test_a_reference_that_was_run_elsewhere_leaves_the_ranking_whole(tmp_path: Path) -> None:
    tested = [ended(p, i, 'success', 5.0 + i, stratum='desk') for p in 'ab' for i in range(5)]
    human = [ended('human', i, 'success', 2.0, stratum='floor', is_reference=True) for i in range(5)]
    report = report_of(tmp_path, [*tested, *human])
    document = trial_document(report)
    assert present(report.ranking).order == ('a', 'b')
    for render in (render_html, render_markdown, render_latex, render_json):
        assert 'human' in render(document)
    by_task = table_blocks(document)['by-task-table'].table
    assert [c.name for c in by_task.columns] == ['task', 'human %', 'human n', 'a %', 'a n', 'b %', 'b n']
    assert [tuple(row) for row in by_task.rows] == [
        ('pick', None, None, 100.0, '5/5', 100.0, '5/5'), ('mean over strata', None, None, 100.0, '5/5', 100.0, '5/5')
    ]  # fmt: skip


def test_mixed_time_caps_compare_at_the_cap_that_all_had(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    long = [rollout('a', i, rng) for i in range(6)]
    short = [ended('b', i, 'timeout', 20.0, time_cap_s=20.0, stratum='block') for i in range(6)]
    times = present(report_of(tmp_path, [*long, *short]).times)
    assert (times.tau_s, times.reason) == (20.0, "each stratum's smallest time cap")


def test_every_stratum_has_its_own_tau_and_the_report_says_which(tmp_path: Path) -> None:
    episodes = [
        ended(p, i, 'success', c / 4 + i / 10, stratum=s, time_cap_s=c)
        for p in 'ab' for s, c in (('short', 30.0), ('long', 120.0)) for i in range(6)
    ]  # fmt: skip
    document = trial_document(report_of(tmp_path, episodes))
    shown = table_blocks(document)['tau-table'].table
    assert [row[:2] for row in shown.rows] == [('long', 120.0), ('short', 30.0)]
    assert 'tau 30 s to 120 s by stratum' in document.statement
    drawn = re.findall(r'class="curve" d="([^"]+)"', render_html(document))
    assert drawn
    assert not [path for path in drawn if 'h-' in path]  # time does not run backwards, from one tau to a smaller one


@pytest.mark.parametrize(('every_s', 'has_order'), [(0, False), (60, True)])
def test_starts_at_one_time_have_no_order(tmp_path: Path, every_s: int, has_order: bool) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    episodes = [
        ended(p, i, 'success', 5.0, started_at=at + dt.timedelta(seconds=every_s * i)) for p in 'ab' for i in range(8)
    ]
    quality = report_of(tmp_path, episodes).quality
    assert (quality.order_p_value is not None) is has_order
    if has_order:
        assert quality.order_p_value == pytest.approx(1.0)
        assert {arm.mean_position for arm in quality.arms} == {0.5}


def test_tied_starts_agree_with_scipy(tmp_path: Path) -> None:
    from scipy.stats import kruskal

    rng = np.random.default_rng(3)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    days = {p: rng.integers(0, 4, 12).tolist() for p in 'abc'}
    episodes = [
        ended(p, i, 'success', 5.0, started_at=at + dt.timedelta(days=day))
        for p in 'abc'
        for i, day in enumerate(days[p])
    ]
    quality = report_of(tmp_path, episodes).quality
    assert quality.order_p_value == pytest.approx(kruskal(*days.values()).pvalue, rel=1e-9)


def test_a_part_of_a_store_counts_its_own_attempts_and_edits_and_says_so(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=6)
    report = analyse(store, where={'policy': ['slow']}, **FEW)
    assert (report.quality.n_superseded, report.quality.n_dropped, len(report.quality.edits)) == (
        0, 0, sum(e.policy == 'slow' for e in store.episodes() if e.operator)
    )  # fmt: skip
    document = trial_document(report)
    assert document.subtitle.endswith('only policy slow')
    assert 'only those with policy slow' in methods_text(report)
    assert '--where policy=slow --limit 0' in render_markdown(document)
    assert '--where policy=slow' in render_html(document)


@pytest.mark.parametrize('is_blinded', [True, False])
def test_blinding_is_claimed_where_there_was_any(tmp_path: Path, is_blinded: bool) -> None:
    store = Store.create(
        tmp_path / 's',
        trial_id='abc',
        plan_hash='abc',
        plan=f'{{"blinding": {{"enabled": {str(is_blinded).lower()}}}}}',
    )
    names = {'arm-1': 'a', 'arm-2': 'b'} if is_blinded else {'a': 'a', 'b': 'b'}
    store.append([ended(code, i, 'success', 5.0 + i, trial_id='abc') for code in names for i in range(4)])
    before = analyse(store, **FEW)
    assert 'not closed' in lead_of(before)[0]
    assert ('under codes' in lead_of(before)[0]) is is_blinded
    assert 'in a trial that was not yet closed' in methods_text(before)
    write_unblinding(store.path, Unblinding(trial_id='abc', by='ann', at='2026-01-01', policies=names))
    after = analyse(store, **FEW)
    assert 'not closed' not in lead_of(after)[0]
    assert ('blinded until the trial was closed' in methods_text(after)) is is_blinded


def test_only_invalid_episodes_are_not_called_balanced(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('a', i, 'invalid', 0.0) for i in range(3)])
    assert 'No policy has a valid episode.' in quality_text(report)


def test_an_uneven_level_is_not_rounded(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('a', i, 'success', 5.0 + i) for i in range(4)], alpha=0.025)
    assert 'with 97.5 % intervals by the jackknife' in methods_text(report)


@pytest.mark.parametrize('text', ['{oops', '[]', '{"policy_cards": [1]}'])
def test_a_damaged_provenance_file_is_named(tmp_path: Path, text: str) -> None:
    store = Store.create(tmp_path / 's')
    name = store.write_provenance(Provenance())
    store.append([ended('a', 0, 'success', 5.0, provenance_id=name)])
    (found,) = (store.path / 'provenance').glob('*.json')
    found.write_text(text)
    with pytest.raises(StoreError, match=found.name):
        trial_document(analyse(store, **FEW))


@pytest.mark.parametrize(
    'policies', ['[1]', '{"a": {"use": "seek", "card": {"color": "red", "checkpoint": "step 1"}}}']
)
def test_a_plan_of_another_version_does_not_stop_a_report(tmp_path: Path, policies: str) -> None:
    store = Store.create(tmp_path / 's', trial_id='t')
    store.append([ended('arm-1', 0, 'success', 5.0, trial_id='t')])
    write_unblinding(
        store.path,
        Unblinding(
            trial_id='t', by='ann', at='2026-01-01', policies={'arm-1': 'a'}, plan=f'{{"policies": {policies}}}'
        ),
    )
    known = analyse(store, **FEW).known_policies
    assert [k.card.checkpoint for k in known.values()] == (['step 1'] if 'step 1' in policies else [])


def test_another_level_is_said_wherever_it_is_used(tmp_path: Path) -> None:
    safety = analyse(safety_store(tmp_path / 'safety'), alpha=0.2, resamples=50)
    changed = analyse(changed_store(tmp_path / 'changed'), alpha=0.2, resamples=50)
    for report in (safety, changed):
        text = render_markdown(trial_document(report)).split('## Definitions')[0]
        assert 'pointwise 80 % bands' in text
        assert '95 %' not in text
    assert '80 % of Safety' in render_markdown(trial_document(safety))
    assert 'resolved at 0.2' in render_markdown(trial_document(changed))
