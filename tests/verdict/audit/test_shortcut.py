"""The shortcut diagnosis from outcomes alone: what it claims, and what it must not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import wilson
from robotrials.verdict.audit import InstanceOutcome, Protocol
from robotrials.verdict.audit.outcome import outcome_contrast
from robotrials.verdict.audit.reported import ProbeStanding, ReportedScore, ScoreKind
from robotrials.verdict.audit.run_score import RunOutcomes
from robotrials.verdict.audit.shortcut import (
    BEST,
    FOUNDATION,
    InputNeed,
    Shortcut,
    ShortcutVerdict,
    read_shortcut,
    shortcut,
)


def run(name: str, rates: dict[str, float], *, n: int = 50, step: int | None = None, max_score: int = 1) -> RunOutcomes:
    """Outcomes with exactly these rates; the first starts of each task succeed, so that runs are as alike as can be."""
    outcomes = [
        InstanceOutcome(task, f'instance={i}', max_score * int(i < round(rate * n)), start=f'{task} instance={i}')
        for task, rate in rates.items()
        for i in range(n)
    ]
    return RunOutcomes(name, tuple(outcomes), step)


def reported(policy: str, score: str, kind: ScoreKind = ScoreKind.OTHER, unit: str = 'percent') -> ReportedScore:
    return ReportedScore(policy=policy, score=score, unit=unit, kind=kind)


def scored(*checkpoints: RunOutcomes, **options: object) -> Shortcut:
    return shortcut(checkpoints, rng=np.random.default_rng(0), n_resamples=50, **options)  # type: ignore[arg-type]


LIBERO = {f'task_{i}': 0.98 if i % 2 else 1.0 for i in range(10)}
ROWS = (
    reported('OpenVLA', '84.7', ScoreKind.FOUNDATION),
    reported('MoLA', '99.5'),
    reported('with rewards', '100.0', ScoreKind.RL_FINETUNED),
)


def test_a_probe_near_the_best_reported_score_reaches_it() -> None:
    found = scored(run('step 1', LIBERO, step=1), reported=ROWS, official=Protocol(10, 50))
    gap, foundation = found.gap(BEST, 'step 1'), found.gap(FOUNDATION, 'step 1')
    assert gap is not None
    assert foundation is not None
    assert (gap.reported.policy, round(gap.difference, 4)) == ('MoLA', 0.005)
    assert gap.standing is ProbeStanding.NOT_PROVABLE
    assert (round(foundation.difference, 4), foundation.standing) == (-0.143, ProbeStanding.ABOVE)
    assert found.verdict is ShortcutVerdict.NEAR_BEST


def test_within_the_margin_may_still_be_provably_below() -> None:
    """98.0 beside 99.5 % of 500: every paired table rejects, and the gap is below five points all the same."""
    found = scored(run('a', dict.fromkeys(LIBERO, 0.98)), reported=ROWS, official=Protocol(10, 50))
    gap = found.gap(BEST, 'a')
    assert gap is not None
    assert gap.standing is ProbeStanding.BELOW
    assert found.verdict is ShortcutVerdict.NEAR_BEST


def test_few_episodes_reach_nothing() -> None:
    """Ten of ten beside 99.5 %: no difference is provable, and no shortcut is either."""
    found = scored(run('step 1', {'task_0': 1.0}, n=10, step=1), reported=ROWS, official=Protocol(10, 50))
    gap = found.gap(BEST, 'step 1')
    assert gap is not None
    assert gap.standing is ProbeStanding.NOT_PROVABLE
    assert gap.classification is None  # other tasks and samples: the sharp bounds do not apply
    assert found.verdict is ShortcutVerdict.UNRESOLVED


def test_a_poor_probe_is_provably_below() -> None:
    rates = dict.fromkeys(LIBERO, 0.2)
    assert scored(run('a', rates), reported=ROWS, official=Protocol(10, 50)).verdict is ShortcutVerdict.BELOW


def test_between_foundation_and_best_is_said_so() -> None:
    rates = dict.fromkeys(LIBERO, 0.9)
    found = scored(run('a', rates), reported=ROWS, official=Protocol(10, 50))
    assert found.verdict is ShortcutVerdict.NEAR_FOUNDATION


def test_unknown_sample_sizes_prove_nothing() -> None:
    found = scored(run('a', LIBERO), reported=ROWS)
    assert {g.standing for g in found.gaps} == {ProbeStanding.UNKNOWN}
    assert found.verdict is ShortcutVerdict.UNRESOLVED
    assert scored(run('a', LIBERO)).verdict is ShortcutVerdict.NOTHING_REPORTED


def test_best_and_final_are_told_apart_as_in_table_2() -> None:
    early, late = run('step 1', dict.fromkeys(LIBERO, 0.98), step=1), run('step 2', dict.fromkeys(LIBERO, 0.94), step=2)
    found = scored(early, late, reported=ROWS, official=Protocol(10, 50))
    assert (found.best, found.final_checkpoint.name) == ('step 1', 'step 2')
    assert found.optimism is not None
    assert found.optimism.over_final == pytest.approx(0.04)
    assert {(g.role, g.checkpoint) for g in found.gaps} == {
        (r, c) for r in (BEST, FOUNDATION) for c in ('step 1', 'step 2')
    }


def test_intervals_are_wilson_and_over_tasks_wider() -> None:
    found = scored(run('a', {'easy': 1.0, 'hard': 0.2}))
    score = found.final_checkpoint
    assert score.interval == wilson(60, 100)
    assert score.task_interval is not None
    assert score.task_interval.width > score.interval.width
    assert scored(run('a', {'easy': 1.0})).final_checkpoint.task_interval is None


def test_a_checkpoint_that_lacks_episodes_is_never_the_best() -> None:
    whole = run('step 1', {'a': 0.5}, step=1)
    torn = dataclasses.replace(run('step 2', {'a': 1.0}, step=2), outcomes=run('step 2', {'a': 1.0}).outcomes[:40])
    found = scored(whole, torn, reported=ROWS, official=Protocol(10, 50))
    assert found.best == 'step 1'
    assert found.final_checkpoint.missing == 10
    assert found.optimism is None
    assert {g.checkpoint for g in found.gaps} == {'step 1'}
    with pytest.raises(NotEstimable, match='in a new folder'):
        scored(torn, variants=[run('blind', {'a': 0.1})])


def test_which_input_the_score_needs() -> None:
    full = run('step 9', {'choose': 0.9, 'single': 0.9}, n=50, step=9)
    found = scored(
        full,
        variants=[
            run('blind', {'choose': 0.1, 'single': 0.1}, n=50),
            run('shuffled', {'choose': 0.2, 'single': 0.9}, n=50),
            run('no_task', {'choose': 0.85, 'single': 0.7}, n=50),
        ],
    )
    blind, shuffled, _ = found.variants
    assert (blind.removes, blind.need) == ('images', InputNeed.NEEDED)
    assert shuffled.need is InputNeed.NEEDED
    assert {t.task: t.need for t in shuffled.tasks} == {'choose': InputNeed.NEEDED, 'single': InputNeed.UNRESOLVED}


def test_an_input_is_called_unneeded_only_by_enough_episodes_off_the_floor() -> None:
    many, few = 200, 10
    ignored = scored(run('a', {'t': 0.9}, n=many), variants=[run('shuffled', {'t': 0.9}, n=many)])
    assert ignored.variants[0].need is InputNeed.NOT_NEEDED
    unsure = scored(run('a', {'t': 0.9}, n=few), variants=[run('shuffled', {'t': 0.9}, n=few)])
    assert unsure.variants[0].need is InputNeed.UNRESOLVED
    floored = scored(run('a', {'t': 0.0}, n=many), variants=[run('shuffled', {'t': 0.0}, n=many)])
    assert floored.variants[0].need is InputNeed.UNRESOLVED


def test_a_drop_is_the_contrast_of_the_two_runs_and_its_margin_a_further_p() -> None:
    """61 and 62 of 80 with 17 discordant starts: the embedded cell's `single_block` told another colour."""
    scores = [[1] * 61 + [0] * 19, [1] * 53 + [0] * 8 + [1] * 9 + [0] * 10]
    full, shuffled = (
        RunOutcomes(name, tuple(InstanceOutcome('single', f'{k}', x) for k, x in enumerate(own)), step)
        for name, own, step in zip(('step 9', 'shuffled'), scores, (9, None), strict=True)
    )
    drop = scored(full, variants=[shuffled], margin=0.15).variants[0]
    same = outcome_contrast(full.outcomes, shuffled.outcomes)
    assert drop.drop.interval is not None
    assert same.interval is not None
    assert (drop.drop.difference, *drop.drop.interval, drop.drop.p_value) == pytest.approx(
        (same.estimate, *same.interval, same.p_value), abs=1e-12
    )
    assert drop.drop.test == 'McNemar mid-p'
    assert drop.drop.p_margin == pytest.approx(0.00747, abs=1e-5)
    assert drop.need is InputNeed.NOT_NEEDED
    assert scored(full, variants=[shuffled], margin=0.05).variants[0].need is InputNeed.UNRESOLVED


def test_a_bounded_score_is_compared_as_a_share_of_the_full_one() -> None:
    full, blind = run('a', {'t': 0.8}, n=30, max_score=5), run('blind', {'t': 0.2}, n=30, max_score=5)
    drop = scored(full, variants=[blind], max_score=5).variants[0]
    assert drop.drop.difference == pytest.approx(3.0)
    assert drop.need is InputNeed.NEEDED


def test_repeats_of_a_start_state_are_one_unit() -> None:
    full, other = (run(n, {'t': r}, n=12) for n, r in (('a', 1.0), ('blind', 0.0)))
    thrice = [
        dataclasses.replace(
            r,
            outcomes=tuple(
                dataclasses.replace(o, sample=f'{o.sample} repeat={k}') for o in r.outcomes for k in range(3)
            ),
        )
        for r in (full, other)
    ]  # fmt: skip
    plain, repeated = scored(full, variants=[other]), scored(thrice[0], variants=[thrice[1]])
    a, b = plain.variants[0].drop, repeated.variants[0].drop
    assert a.interval is not None
    assert b.interval is not None
    assert b.interval.low <= a.interval.low + 0.2
    assert b.interval.low < 1.0


def test_bounded_scores_are_compared_too() -> None:
    """CALVIN counts to 5."""
    full = run('a', {'chain': 0.6}, n=1000, max_score=5)
    rows = (reported('DeeR-VLA', '2.83', ScoreKind.FOUNDATION, 'score'), reported('MDT-V', '4.52', unit='score'))
    found = scored(full, max_score=5, reported=rows, official=Protocol(1, 1000, 5))
    gap = found.gap(BEST, 'a')
    assert gap is not None
    assert gap.difference == pytest.approx(1.52)
    assert gap.standing is ProbeStanding.BELOW
    with pytest.raises(InputError, match='more than 1'):
        scored(full)


def test_a_diagnosis_comes_back_from_its_file(tmp_path: Path) -> None:
    found = scored(
        run('step 1', LIBERO, step=1), run('step 2', LIBERO, step=2), reported=ROWS, official=Protocol(10, 50),
        variants=[run('blind', dict.fromkeys(LIBERO, 0.1))], not_run=['shuffled: one task'],
        deviations=['fewer trials'],
    )  # fmt: skip
    path = tmp_path / 'shortcut.json'
    path.write_text(found.as_json(), encoding='utf-8')
    assert read_shortcut(path) == found


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        ({'verdict': 'unresolved'}, 'its verdict is'),
        ({'format': 'other'}, 'wanted the shortcut.json'),
        ({'best': 'step 7'}, 'none of its checkpoints'),
        ({'margin': 'wide'}, 'margin is'),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    document = json.loads(scored(run('step 1', LIBERO, step=1), reported=ROWS, official=Protocol(10, 50)).as_json())
    path = tmp_path / 'shortcut.json'
    path.write_text(json.dumps({**document, **change}), encoding='utf-8')
    with pytest.raises(InputError, match='wanted the shortcut.json' if 'format' in change else 'was changed'):
        read_shortcut(path)
    del document['sha256']  # as results were before they had one
    path.write_text(json.dumps({**document, **change}), encoding='utf-8')
    with pytest.raises(InputError, match=said):
        read_shortcut(path)


@pytest.mark.parametrize('change', [{'n': 0}, {'total': 501}, {'total': -1}, {'missing': -1}, {'max_score': 0}])
def test_counts_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, int]) -> None:
    document = json.loads(scored(run('step 1', LIBERO, step=1)).as_json())
    del document['sha256']
    document['checkpoints'][0] |= change
    path = tmp_path / 'shortcut.json'
    path.write_text(json.dumps(document), encoding='utf-8')
    with pytest.raises(InputError, match='cannot be'):
        read_shortcut(path)


def test_an_instance_that_no_run_has_is_missing_from_all() -> None:
    """Start states on which the rig broke for everybody would otherwise leave the score without a trace."""
    planned = {o.key for o in run('a', {'t': 0.5}).outcomes} | {('t', 'instance=99')}
    with pytest.raises(NotEstimable, match='in a new folder'):
        scored(run('a', {'t': 0.5}, step=1), planned=planned)


def test_names_and_order_are_checked() -> None:
    a, b = run('a', {'t': 0.5}, step=2), run('b', {'t': 0.5}, step=1)
    with pytest.raises(InputError, match='training order'):
        scored(a, b)
    with pytest.raises(InputError, match='two runs are called'):
        scored(a, a)
    with pytest.raises(InputError, match='no variant is called'):
        scored(a, variants=[b])
    with pytest.raises(NotEstimable, match='no checkpoint'):
        scored()
