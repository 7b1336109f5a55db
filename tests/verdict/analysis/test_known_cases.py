"""Cases that verbs once got wrong, each asked of the verbs on a table that `import` took in."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials, words
from tests.verdict.analysis.door import RESAMPLES, if_ends, printed

Row = dict[str, object]


def store_of(folder: Path, rows: Iterable[Row]) -> Path:
    listed = list(rows)
    with (folder / 'table.csv').open('w', encoding='utf-8', newline='') as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in listed for name in row)))
        writer.writeheader()
        writer.writerows(listed)
    robotrials('import', folder / 'table.csv', '--to', folder / 'store')
    return folder / 'store'


def run(policy: str, seed: int | str, lasts_s: float, *, done: bool = True, **more: object) -> Row:
    row: Row = {'policy': policy, 'task': 'pick', 'seed': seed, 'time_cap_s': 60.0} | more
    outcome = 'success' if done else 'timeout'
    return row | {'outcome': outcome, 'duration_s': round(lasts_s, 3) if done else row['time_cap_s']}


def decision(store: Path, a: str, b: str) -> str:
    (row,) = printed('compare', store, *RESAMPLES)[0]['rows']
    assert {row['a'], row['b']} == {a, b}
    return str(row['verdict'])


def endpoint(store: Path, title: str) -> Mapping[str, Any]:
    (row,) = next(d for d in printed('compare', store, *RESAMPLES) if d['title'] == f'All pairs: {title}')['rows']
    return row  # type: ignore[no-any-return]


def test_the_gate_sees_a_candidate_that_is_slower_on_the_long_task(tmp_path: Path) -> None:
    """57 % slower where the cap is 240 s, the same where it is 20 s: one tau for all cells hid it."""
    rng = random.Random(0)
    rows = []
    for k in range(40):
        short_s, long_s = rng.uniform(8, 12), rng.uniform(90, 110)
        for policy, factor in (('old', 1.0), ('new', 1.57)):
            rows.append(run(policy, k, short_s, task='short', time_cap_s=20.0))
            rows.append(run(policy, k, long_s * factor, task='long', time_cap_s=240.0))
    store = store_of(tmp_path, rows)
    asked = ('gate', store, '-b', store, '--policy', 'new', '--baseline-policy', 'old')
    found = printed(*asked, code=1)
    speed = next(e for e in found['endpoints'] if e['name'] == 'speed')
    assert (found['verdict'], speed['finding']) == ('FAIL', 'worse')
    assert speed['contrast']['taus_s'] == {'long': 240.0, 'short': 20.0}
    watched = printed('watch', store, '--once', '--score', 'promptness')[0]['rows'][0]
    assert watched['a - b'] < 0 if watched['a'] == 'new' else watched['a - b'] > 0


def test_one_policy_under_two_caps_has_no_winner_in_success(tmp_path: Path) -> None:
    rng = random.Random(1)
    times = {policy: [rng.expovariate(1 / 60) for _ in range(60)] for policy in ('brief', 'patient')}
    caps = {'brief': 60.0, 'patient': 120.0}
    rows = [
        run(policy, '', t, done=t < caps[policy], time_cap_s=caps[policy]) for policy in times for t in times[policy]
    ]
    store = store_of(tmp_path, rows)
    row = endpoint(store, 'episode success')
    within = {p: sum(t < 60 for t in own) / 60 for p, own in times.items()}
    assert abs(row['a ahead by (points)']) == pytest.approx(100 * abs(within['brief'] - within['patient']))
    assert row['verdict'] == 'not significantly different'
    assert 'different time caps' in words('compare', store, *RESAMPLES)
    (watched,) = printed('watch', store, '--once')[0]['rows']
    assert abs(watched['all episodes: a - b (points)']) == pytest.approx(abs(row['a ahead by (points)']))
    assert watched['decision'] == 'continue'


@pytest.mark.parametrize(('n_lost', 'lost_at_s', 'seed', 'said'), [
    (3, 20.0, True, 'the claim holds whatever became of them'),
    (4, 3.0, False, 'the claim holds whatever became of them'),
    (16, 3.0, False, 'taken to say nothing about how they would have ended'),
])  # fmt: skip
def test_a_claim_says_what_it_assumes_of_lost_runs(
    n_lost: int, lost_at_s: float, seed: bool, said: str, tmp_path: Path
) -> None:
    """Runs that ended as time-outs long before their cap: nobody knows what would have become of them."""
    rng = random.Random(8)
    rows = [run('a', k if seed else '', rng.uniform(5, 9)) for k in range(40)]
    rows += [run('b', k if seed else '', rng.uniform(25, 35)) for k in range(40 - n_lost)]
    lost = {'outcome': 'timeout', 'duration_s': lost_at_s}
    rows += [run('b', k if seed else '', 1.0) | lost for k in range(40 - n_lost, 40)]
    store = store_of(tmp_path, rows)
    card = words('compare', store, *RESAMPLES)
    assert f'0 and {n_lost} runs were lost before the end of the follow-up' in card
    assert said in card
    robotrials('report', store, '-o', tmp_path / 'r.md', *RESAMPLES)
    assert said in ' '.join((tmp_path / 'r.md').read_text(encoding='utf-8').split())


def test_invalid_episodes_that_would_turn_a_verdict_are_in_the_lead_of_the_card(tmp_path: Path) -> None:
    """a succeeds in 30 of its 30 valid runs and had 20 that came to nothing, b in 44 of 50."""
    rows = [run('a', '', 10.0 + k % 7, outcome='success') for k in range(30)]
    rows += [run('a', '', 10.0) | {'outcome': 'invalid'} for _ in range(20)]
    rows += [run('b', '', 10.0 + k % 7, done=k < 44) for k in range(50)]
    store = store_of(tmp_path, rows)
    for arguments in ((), ('a', 'b')):
        card = words('compare', store, *arguments, *RESAMPLES)
        assert 'Invalid episodes are left out: a (20). Counted as failures, they put b, a in that order' in card
        assert 'a and b are then: a trade-off (here: unresolved)' in card


def test_two_labels_are_crossed_however_they_are_given(tmp_path: Path) -> None:
    """PhAIL's Table 7; of two options the last was taken."""
    rows = [
        run(p, '', 10.0 + k, done=k % 4 > 0, camera=c, tote=t)
        for p in 'ab' for c in ('left', 'right') for t in ('near', 'far') for k in range(6)
    ]  # fmt: skip
    store = store_of(tmp_path, rows)
    twice, once = (
        printed('tables', 'labels', store, *options, *RESAMPLES)[0]
        for options in (('--label', 'camera', '--label', 'tote'), ('--set', 'label=camera*tote'))
    )
    assert twice['rows'] == once['rows']
    assert {row['value'] for row in twice['rows']} == {f'{c} x {t}' for c in ('left', 'right') for t in ('near', 'far')}


def test_caps_that_both_had_in_other_shares_are_no_difference(tmp_path: Path) -> None:
    """One policy under two names: a had 30 s in 36 of 40 runs and 60 s in the rest, b the other way round."""
    rng = random.Random(3)
    rows = []
    for policy, n_short in (('a', 36), ('b', 4)):
        for k in range(40):
            cap_s, lasts_s = 30.0 if k < n_short else 60.0, rng.uniform(5, 55)
            rows.append(run(policy, '', lasts_s, done=lasts_s < cap_s, time_cap_s=cap_s))
    store = store_of(tmp_path, rows)
    assert decision(store, 'a', 'b') == 'unresolved'
    assert abs(endpoint(store, 'episode success')['a ahead by (points)']) < 25
    found = printed('gate', store, '-b', store, '--policy', 'a', '--baseline-policy', 'b', code=3)
    assert 'success within 30 s, which both had' in found['endpoints'][0]['contrast']['note']
    (row,) = printed('watch', store, '--once')[0]['rows']
    assert row['a - b'] == pytest.approx(row['all episodes: a - b (points)'] / 100)


def test_starts_that_were_repeated_are_not_a_claim_by_three(tmp_path: Path) -> None:
    """Five runs of each of three starts, all of them a's: by the toss of a coin that is one trial in four."""
    rows = [run(p, k, 10.0, done=p == 'a', repeat=r) for p in 'ab' for k in range(3) for r in range(5)]
    assert decision(store_of(tmp_path, rows), 'a', 'b') == 'unresolved'


def test_policies_without_a_common_task_do_not_stop_the_watch_of_the_others(tmp_path: Path) -> None:
    rows = [run(p, k, 10.0, task=t, done=p != 'b') for p, t in (('a', 'pick'), ('b', 'pick'), ('c', 'pour'))
            for k in range(30)]  # fmt: skip
    (row,) = printed('watch', store_of(tmp_path, rows), '--once')[0]['rows']
    assert (row['a'], row['b'], row['decision']) == ('a', 'b', 'a better')


def test_twenty_of_twenty_matched_starts_that_are_faster_are_faster(tmp_path: Path) -> None:
    rng = random.Random(2)
    starts = [rng.uniform(5, 50) for _ in range(20)]
    rows = [run(p, k, s + late) for k, s in enumerate(starts) for p, late in (('a', 0.0), ('b', 0.5))]
    store = store_of(tmp_path, rows)
    assert decision(store, 'a', 'b') == 'a better'
    row = endpoint(store, 'time to success')
    assert row['a first (%)'] == 100.0
    assert row['p'] == pytest.approx(2 * 0.5**20)


def test_another_mix_of_tasks_is_no_drop(tmp_path: Path) -> None:
    """90 % on the easy task and 30 % on the hard one under both conditions, but run in other shares."""
    rows = []
    for condition, shares in (('nominal', {'easy': 40, 'hard': 10}), ('dim', {'easy': 10, 'hard': 40})):
        for task, n in shares.items():
            ease = {'easy': 9, 'hard': 3}[task]
            rows += [run('p', '', 5.0, done=k % 10 < ease, task=task, condition=condition) for k in range(n)]
    store = store_of(tmp_path, rows)
    (row,) = printed('robustness', store, '--show', 'drops', *RESAMPLES)[0]['rows']
    assert row['drop'] == pytest.approx(0.0, abs=1e-12)
    assert row['resolved'] is False


@pytest.mark.parametrize('n_done', [11, 20])
def test_hasty_and_careful_are_a_trade_off(n_done: int, tmp_path: Path) -> None:
    """careful succeeds in 24 of 24; hasty is far faster where it succeeds. "hasty is better", said the front page."""
    rng = random.Random(3)
    rows = [run('careful', k, rng.uniform(40, 50)) for k in range(24)]
    rows += [run('hasty', k, rng.uniform(3, 5), done=k < n_done) for k in range(24)]
    store = store_of(tmp_path, rows)
    assert decision(store, 'careful', 'hasty') == 'a trade-off'
    said = words('compare', store, *RESAMPLES) + robotrials('report', store, '-o', tmp_path / 'r.md', *RESAMPLES)
    assert 'A trade-off' in said
    assert 'hasty is better' not in said
    assert 'careful is better' not in said


@pytest.mark.parametrize('n', [3, 5, 10])
def test_hrt_of_few_episodes_has_an_interval_that_says_something(n: int, tmp_path: Path) -> None:
    """It read 19 % [4, 88867]."""
    rng = random.Random(n)
    rows = [
        run(policy, '', mean_s * rng.uniform(0.7, 1.3), task=task, time_cap_s=240.0, is_reference=policy == 'human')
        for policy, mean_s in (('human', 10.0), ('robot', 50.0))
        for task in ('pick', 'pour')
        for _ in range(n)
    ]
    row = next(r for d in printed('score', store_of(tmp_path, rows), *RESAMPLES) if d['title'] == 'Time to success'
               for r in d['rows'] if r['policy'] == 'robot')  # fmt: skip
    assert row['HRT low'] < row['HRT (%)'] < row['HRT high']
    assert row['HRT high'] / row['HRT low'] < {3: 150, 5: 60, 10: 25}[n]
    assert row['HRT low'] > 0
    assert math.isfinite(row['HRT high'])


@pytest.mark.parametrize('n', [10, 12])
def test_complete_separation_in_one_stratum_is_resolved(n: int, tmp_path: Path) -> None:
    rng = random.Random(n)
    rows = [run('quick', '', rng.uniform(10, 12)) for _ in range(n)]
    rows += [run('slow', '', rng.uniform(13, 15)) for _ in range(n)]
    store = store_of(tmp_path, rows)
    assert decision(store, 'quick', 'slow') == 'quick better'
    assert endpoint(store, 'time to success')['p (Holm)'] <= 0.05
    assert endpoint(store, 'episode success')['verdict'] == 'not significantly different'


def test_hrt_is_told_in_its_three_readings(tmp_path: Path) -> None:
    """The mean of ratios, the ratio of macro means, and with the reference taken as fixed, which is narrower."""
    rng = random.Random(4)
    rows = [
        run(policy, '', mean_s * rng.uniform(0.7, 1.3), task=task, time_cap_s=240.0, is_reference=policy == 'human')
        for policy, mean_s in (('human', 10.0), ('robot', 50.0))
        for task in ('pick', 'pour')
        for _ in range(6)
    ]
    table = printed('tables', 'relative', store_of(tmp_path, rows), *RESAMPLES)[0]
    told = {row['stratum']: row for row in table['rows']}
    assert list(told) == ['macro', 'ratio of macro means', 'reference taken as fixed', 'pick', 'pour']
    macro, fixed = told['macro'], told['reference taken as fixed']
    assert macro['value'] == fixed['value'] == pytest.approx((told['pick']['value'] + told['pour']['value']) / 2)
    assert macro['low'] < fixed['low'] < fixed['high'] < macro['high']


def test_a_third_policy_with_a_short_cap_does_not_cut_the_others_while_a_trial_is_watched(tmp_path: Path) -> None:
    """Each pair is followed as long as both of it were: b takes 40 s of its 60, and c had 30."""
    rows = [run(policy, k, lasts_s + k / 10) for policy, lasts_s in (('a', 10.0), ('b', 40.0)) for k in range(40)]
    rows += [run('c', k, 20.0, time_cap_s=30.0) for k in range(40)]
    store = store_of(tmp_path, rows)
    told = {(row['a'], row['b']): row for row in printed('watch', store, '--once')[0]['rows']}
    assert told['a', 'b']['a - b'] == told['a', 'b']['all episodes: a - b (points)'] == 0
    assert told['b', 'c']['a - b'] == -1
    assert told['b', 'c']['all episodes: a - b (points)'] == pytest.approx(-100)
    assert told['b', 'c']['decision'] == 'c better'


def test_the_gate_judges_under_the_condition_that_is_asked_for(tmp_path: Path) -> None:
    """By default the baseline, as `compare`; `--where condition=` another, as `--set baseline=` of `compare`."""
    rng = random.Random(5)
    rows = [
        run(policy, k, rng.uniform(5, 20), done=rng.random() < chance, condition=condition)
        for policy in ('new', 'old')
        for condition, chance in (('nominal', 0.9), ('dim', 0.4))
        for k in range(15)
    ]
    store = store_of(tmp_path, rows)
    asked = ('gate', store, '-b', store, '--policy', 'new', '--baseline-policy', 'old')
    for options, baseline in (((), 'nominal'), (('--where', 'condition=dim'), 'dim')):
        gate = next(found for code in (0, 1, 3) if (found := if_ends(code, *asked, *options)) is not None)
        documents = printed('compare', store, '--set', f'baseline={baseline}', *RESAMPLES)
        (row,) = next(d for d in documents if d['title'] == 'All pairs: episode success')['rows']
        found = gate['endpoints'][0]['contrast']
        assert abs(100 * found['estimate']) == pytest.approx(abs(row['a ahead by (points)']))
        assert found['p_value'] == pytest.approx(row['p'])
        assert {out['n'] for out in found['left_out']} == (set() if options else {15})


def test_pooled_rmst_is_that_of_the_tau_beside_it(tmp_path: Path) -> None:
    rng = random.Random(6)
    rows = [
        run(policy, '', t, done=t < cap_s, task=task, time_cap_s=cap_s)
        for policy in ('a', 'b')
        for task, cap_s in (('short', 20.0), ('long', 60.0))
        for t in (rng.expovariate(1 / 25) for _ in range(12))
    ]
    document = next(
        d for d in printed('score', store_of(tmp_path, rows), *RESAMPLES) if d['title'] == 'Time to success'
    )
    assert 'Pooled over strata it is up to 20 s' in document['note']
    for shown in document['rows']:
        times = [min(float(str(r['duration_s'])), 20.0) for r in rows if r['policy'] == shown['policy']]
        assert shown['pooled RMST (s)'] == pytest.approx(sum(times) / len(times))
