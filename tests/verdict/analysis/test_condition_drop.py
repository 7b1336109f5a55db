"""What a condition costs: the contrast of one policy with itself, task by task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from tests.cli.command import robotrials, words
from tests.verdict.analysis.door import RESAMPLES, printed

from robotrials.errors import NotEstimable, UnknownName
from robotrials.record import Episode, Outcome, Store
from robotrials.testing.showcase import radar_episodes
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.planning.analysis_plan import AnalysisPlan
from robotrials.verdict.robustness import ConditionDrop

PLAN = AnalysisPlan(resamples=20)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def episodes(
    condition: str, outcomes: list[bool], *, scenes: list[int] | None = None, severity: float = 1.0, **more: Any
) -> list[Episode]:
    fields: dict[str, Any] = {'policy': 'p', 'task': 't'} | more
    return [
        Episode(
            outcome=Outcome.SUCCESS if good else Outcome.FAILURE, seed=k if scenes is None else scenes[k], repeat=k,
            condition=condition, condition_parameters={} if condition == 'nominal' else {'severity': severity},
            **fields,
        )
        for k, good in enumerate(outcomes)
    ]  # fmt: skip


def drops(*groups: list[Episode]) -> list[ConditionDrop]:
    return condition_drops([e for group in groups for e in group], PLAN, rng=rng())


def test_drops_of_table_3_with_holm() -> None:
    """Of the seven drops of the paper's baseline, robot state alone is not resolved at N = 32."""
    found = {d.condition: d for d in condition_drops(radar_episodes(), PLAN, rng=rng())}
    assert {c for c, d in found.items() if not d.is_resolved()} >= {'robot_state'}
    assert found['background'].is_resolved()
    assert (found['light'].baseline_successes, found['light'].successes) == (17, 4)  # RADAR's own pooled counts
    splits = [e.task for e in radar_episodes() if e.condition == 'nominal']
    rates = [
        np.mean([e.is_success for e in radar_episodes() if e.condition == 'nominal' and e.task == s])
        for s in set(splits)
    ]
    assert found['background'].success_drop == pytest.approx(np.mean(rates))  # each split counts as much
    assert found['sensor_noise'].iou_drop == pytest.approx(0.2605 - 0.0677, abs=2e-4)


def test_another_mix_of_tasks_is_no_drop() -> None:
    """Hard and easy tasks in other proportions, each as before: pooled it would be a drop of 0.3."""
    draw = rng(1)
    groups = []
    for condition, sizes in (('nominal', (10, 40)), ('light', (40, 10))):
        for task, n, rate in zip(('hard', 'easy'), sizes, (0.3, 0.8), strict=True):
            groups.append(episodes(condition, (draw.random(n) < rate).tolist(), task=task))
    found = drops(*groups)[0]
    pooled = found.baseline_successes / found.baseline_n - found.successes / found.n
    assert pooled > 0.2
    assert abs(found.success_drop) < 0.15
    assert not found.is_resolved()


def test_the_same_scenes_are_paired() -> None:
    before, after = [True] * 8 + [False] * 2, [True] * 3 + [False] * 6 + [True]
    found = drops(episodes('nominal', before), episodes('light', after))[0]
    assert found.method == 'McNemar mid-p'
    assert found.p_value == pytest.approx(binomtest(1, 6).pvalue - binom.pmf(1, 6, 0.5))
    assert found.success_drop == pytest.approx(0.4)


def test_repeats_of_a_scene_are_one_unit() -> None:
    scenes = [k // 3 for k in range(30)]
    found = drops(
        episodes('nominal', [s < 8 for s in scenes], scenes=scenes),
        episodes('light', [s < 2 for s in scenes], scenes=scenes),
    )[0]
    assert found.method == 'R on paired differences'
    assert found.success_drop == pytest.approx(0.6)
    assert found.p_value is not None
    assert found.p_value > 0.005  # ten scenes, not thirty episodes


def test_the_rungs_of_a_ladder_are_not_pooled() -> None:
    found = drops(
        episodes('nominal', [True] * 6), episodes('light', [True] * 6, severity=0.5), episodes('light', [False] * 6),
        episodes('fog', [True] * 6),
    )  # fmt: skip
    assert {d.condition: d.success_drop for d in found} == {'light at 0.5': 0.0, 'light at 1': 1.0, 'fog': 0.0}


def test_a_condition_that_was_run_on_other_tasks_has_no_drop(tmp_path: Path) -> None:
    """Pooled, the hard task alone would be a loss of 100 points."""
    store = Store.create(tmp_path / 's')
    store.append(
        [*episodes('nominal', [True] * 8, task='easy'), *episodes('light', [True] * 8, task='easy'),
         *episodes('fog', [False] * 8, task='hard')]
    )  # fmt: skip
    (document,) = printed('robustness', store.path, '--show', 'drops', *RESAMPLES)
    assert [(row['condition'], row['drop']) for row in document['rows']] == [('light', 0.0)]
    assert 'under fog: not compared' in words('robustness', store.path, *RESAMPLES)
    robotrials('report', store.path, '-o', tmp_path / 'r.html', *RESAMPLES)
    assert 'under fog' in (tmp_path / 'r.html').read_text(encoding='utf-8')


def test_counts_that_are_pooled_are_told_from_the_mean_over_tasks(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append(radar_episodes())
    said = words('robustness', store.path, *RESAMPLES)
    assert '+59 points [34, 84], mean over tasks 17/32 to 0/32' in said
    rows = printed('robustness', store.path, *RESAMPLES)[1]['rows']
    none = next(r for r in rows if (r['condition'], r['quantity']) == ('background', 'E(IoU) over splits'))
    assert (none['value'], none['low'], none['high']) == (0.0, None, None), 'resamples of nothing show no spread'


def test_drop_intervals_cover_the_truth() -> None:
    draw, inside = rng(3), 0
    for _ in range(200):
        before, after = (draw.random(30) < 0.8).tolist(), (draw.random(30) < 0.5).tolist()
        found = drops(episodes('nominal', before), episodes('light', after))[0]
        assert found.success_interval is not None
        inside += found.success_interval.contains(0.3)
    assert inside / 200 >= 0.91


def test_no_effect_is_rarely_resolved_over_many_conditions() -> None:
    draw, wrong = rng(4), 0
    for _ in range(100):
        rows = [episodes('nominal', (draw.random(20) < 0.6).tolist())]
        rows += [episodes(f'c{k}', (draw.random(20) < 0.6).tolist()) for k in range(6)]
        wrong += any(d.is_resolved() for d in drops(*rows))
    assert wrong <= 10


def test_a_missing_baseline_is_named() -> None:
    with pytest.raises(UnknownName, match='baseline'):
        drops(episodes('light', [True]))
    with pytest.raises(NotEstimable):
        drops([])
    with pytest.raises(NotEstimable, match='nothing to compare'):
        drops(episodes('nominal', [True]))
