from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from robotrials.errors import NotEstimable, UnknownName
from robotrials.measure.geometry import ObjectModel, PlacementTrial, RgbdView
from robotrials.record import Episode
from robotrials.record.episode import recorded_severity
from robotrials.run.conditions import condition_parameters, draw_condition, parts_of
from robotrials.show.robustness import compound_table
from robotrials.show.table import render
from robotrials.stats import wilson
from robotrials.testing.showcase import radar_episodes
from robotrials.verdict.robustness import (
    CompoundVerdict,
    ConditionTrial,
    Dose,
    Habit,
    StartTrial,
    SwapTrial,
    SwapVerdict,
    compound_effects,
    condition_rows,
    condition_trials,
    dose_responses,
    falling_rates,
    half_severity,
    iou_drop,
    recorded_parts,
    salient_object,
    spatial_sensitivities,
    start_trial,
    swap_tests,
    swap_trial,
    trend_test,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def trials(
    condition: str, outcomes: list[bool], *, policy='p', severity=1.0, scenes=None, iou=0.5, parts=(), split='split'
):
    return [
        ConditionTrial(
            policy, condition, 0.0 if condition == 'nominal' else severity,
            PlacementTrial(split, good, iou if good else 0.1, 0.01, str(i if scenes is None else scenes[i])),
            parts=tuple((part, severity) for part in parts),
        )
        for i, good in enumerate(outcomes)
    ]  # fmt: skip


def test_the_papers_table_3_comes_out_of_a_store_of_its_counts() -> None:
    """Table 3: totals 17, 4, 12, 5, 0, 4, 2, 2 of 32, and the printed expectations."""
    printed = {
        'nominal': (17, 0.2605), 'light': (4, 0.0928), 'robot_state': (12, 0.2239), 'instruction': (5, 0.0821),
        'background': (0, 0.0), 'sensor_noise': (4, 0.0677), 'exposure+': (2, 0.0448), 'exposure-': (2, 0.0459),
    }  # fmt: skip
    rows = condition_rows(condition_trials(radar_episodes()), n_resamples=50, rng=rng())
    assert {r.condition: r.summary.successes for r in rows} == {c: k for c, (k, _) in printed.items()}
    for row in rows:
        found = row.summary.expected_iou_over_splits
        assert found is not None
        assert found.value == pytest.approx(printed[row.condition][1], abs=1e-4)


def test_invalid_and_reference_episodes_are_left_out() -> None:
    plain = Episode(policy='p', task='t', outcome='failure', duration_s=1.0)
    broken = Episode(policy='p', task='t', outcome='invalid', duration_s=1.0, seed=1)
    human = Episode(policy='h', task='t', outcome='success', duration_s=1.0, is_reference=True)
    assert len(condition_trials([plain, broken, human])) == 1


def test_severity_is_read_from_the_record() -> None:
    def episode(condition: str, **parameters: float) -> Episode:
        return Episode(
            policy='p', task='t', outcome='success', duration_s=1.0, condition=condition,
            condition_parameters={k.replace('__', '.'): v for k, v in parameters.items()},
        )  # fmt: skip

    assert recorded_severity(episode('nominal')) == 0.0
    assert recorded_severity(episode('light', severity=0.5)) == 0.5
    assert recorded_severity(episode('chaos', light__severity=0.5, latency__severity=0.7)) == 0.7
    assert recorded_severity(episode('odd')) is None


def test_the_trend_test_is_the_chi_square_of_a_line() -> None:
    """Cochran and Armitage's z squared is n times the squared correlation of dose and outcome."""
    doses, good, n = [0, 0.25, 0.5, 1], [18, 15, 9, 4], [20, 22, 18, 20]
    x = np.repeat(doses, n)
    y = np.concatenate([np.r_[np.ones(k), np.zeros(m - k)] for k, m in zip(good, n, strict=True)])
    z, p = trend_test(doses, good, n)
    assert z**2 == pytest.approx(len(x) * np.corrcoef(x, y)[0, 1] ** 2)
    assert z < 0
    assert p == pytest.approx(2 * scipy_stats.norm.sf(abs(z)))
    assert trend_test([0, 1], [5, 5], [5, 5]) == (0.0, 1.0)


def test_a_dose_response_finds_where_half_is_lost() -> None:
    rows = trials('nominal', [True] * 10)
    for severity, good in ((0.5, 8), (1.0, 2)):
        rows += trials('light', [True] * good + [False] * (10 - good), severity=severity)
    found = dose_responses(rows)
    assert [d.severity for d in found[0].doses] == [0.0, 0.5, 1.0]
    assert found[0].half_severity == pytest.approx(0.75)
    assert found[0].p_value < 0.001
    assert dose_responses([*trials('nominal', [True]), *trials('light', [True])]) == []


def mixed(condition: str, n_easy: int, n_hard: int, **options: object) -> list[ConditionTrial]:
    """An easy task with nine of ten, a hard one with one of ten, whatever the condition."""
    return [
        *trials(condition, [k % 10 > 0 for k in range(n_easy)], split='easy', **options),
        *trials(condition, [k % 10 == 0 for k in range(n_hard)], split='hard', **options),
    ]


def test_another_mix_of_tasks_is_no_effect_of_a_dose() -> None:
    rows = [*mixed('nominal', 60, 20), *mixed('light', 40, 40, severity=0.5), *mixed('light', 20, 60, severity=1.0)]
    (found,) = dose_responses(rows)
    assert [d.rate for d in found.doses] == pytest.approx([0.5] * 3)
    assert found.trend_z == pytest.approx(0.0, abs=1e-9)
    assert found.half_severity is None
    fallen = [*rows, *trials('light', [False] * 20, split='easy', severity=1.0)]
    assert dose_responses(fallen)[0].p_value < 0.001


def test_a_task_that_was_not_run_at_every_dose_is_left_out() -> None:
    rows = [*mixed('nominal', 20, 20), *mixed('light', 20, 20, severity=0.5), *mixed('light', 0, 20, severity=1.0)]
    (found,) = dose_responses(rows)
    assert [d.n for d in found.doses] == [20, 20, 20]
    apart = [*mixed('nominal', 20, 0), *mixed('light', 20, 0, severity=0.5), *mixed('light', 0, 20, severity=1.0)]
    assert dose_responses(apart) == []


def test_another_mix_of_tasks_is_no_interaction() -> None:
    rows = [*mixed('nominal', 80, 40), *mixed('light', 80, 40), *mixed('dim', 80, 40)]
    effect = compound_effects([*rows, *mixed('chaos', 30, 90, parts=('light', 'dim'))])[0]
    assert effect.excess_drop == pytest.approx(0.0, abs=1e-9)
    assert effect.verdict is CompoundVerdict.UNRESOLVED
    lone = compound_effects(
        [*mixed('nominal', 40, 0), *mixed('light', 40, 0), *mixed('chaos', 0, 40, parts=('light',))]
    )
    assert 'no task was run under' in lone[0].reason


def test_rates_are_pooled_until_they_fall() -> None:
    doses = [Dose(s, k, 10, k / 10, wilson(k, 10)) for s, k in ((0, 6), (0.5, 8), (1, 1))]
    assert falling_rates(doses) == [0.7, 0.7, 0.1]
    assert half_severity([Dose(0, 0, 10, 0.0, wilson(0, 10)), Dose(1, 0, 10, 0.0, wilson(0, 10))]) is None


@pytest.mark.parametrize(
    ('single', 'joint', 'verdict'),
    [(0.9, 0.2, CompoundVerdict.WORSE), (0.6, 0.55, CompoundVerdict.BETTER), (0.8, 0.6, CompoundVerdict.UNRESOLVED),
     (0.3, 0.0, CompoundVerdict.FLOOR)],
)  # fmt: skip
def test_chaos_is_compared_with_the_sum_of_its_parts(single: float, joint: float, verdict: CompoundVerdict) -> None:
    def at(rate: float) -> list[bool]:
        return [True] * round(100 * rate) + [False] * round(100 * (1 - rate))

    parts = ('light', 'exposure+')
    rows = [*trials('nominal', at(1.0)), *trials('light', at(single)), *trials('exposure+', at(single)),
            *trials('chaos', at(joint), parts=parts)]  # fmt: skip
    effect = compound_effects(rows)[0]
    assert effect.verdict is verdict
    assert effect.singles == parts
    assert effect.excess_drop == pytest.approx((1 - joint) - 2 * (1 - single))
    assert effect.multiplicative_rate == pytest.approx(single**2)


def compound_rows(*, parts: tuple[str, ...] = ('light', 'latency'), n: int = 24, **missing: object):
    """A baseline, light, latency and chaos of both, at severity 0.3."""
    cells = {name: trials(name, [i % 4 > 0 for i in range(n)], severity=0.3) for name in ('light', 'latency')}
    cells['nominal'] = trials('nominal', [True] * n)
    cells['chaos'] = trials('chaos', [i % 2 > 0 for i in range(n)], severity=0.3, parts=parts)
    return [t for rows in {**cells, **missing}.values() for t in rows]


@pytest.mark.parametrize(
    ('rows', 'reason'),
    [
        (compound_rows(latency=[]), 'not run alone: latency at 0.3'),
        (compound_rows(light=trials('light', [True] * 24, severity=1.0)), r'not run alone: light at 0.3 \(only at 1\)'),
        (compound_rows(light=trials('light', [True] * 12, severity=0.3)), '20 start states .*: light has 12'),
        (compound_rows(nominal=trials('nominal', [True] * 40, scenes=[i // 4 for i in range(40)])), 'baseline has 10'),
        (compound_rows(parts=()), 'does not say what chaos is made of'),
    ],
)
def test_a_compound_without_its_parts_alone_has_no_verdict(rows: list[ConditionTrial], reason: str) -> None:
    effect = compound_effects(rows)[0]
    assert effect.verdict is CompoundVerdict.CANNOT_SAY
    assert re.search(reason, effect.reason)
    assert effect.excess_drop is None
    assert effect.p_value is None
    assert 'cannot say' in render(compound_table([effect]))


def test_a_part_that_half_of_the_compound_had_counts_half() -> None:
    chaos = [
        replace(t, parts=(('light', 1.0), ('exposure+' if i % 2 else 'exposure-', 1.0)))
        for i, t in enumerate(trials('chaos', [i % 5 > 2 for i in range(40)]))
    ]
    rows = [*trials('nominal', [True] * 40), *trials('light', [i % 5 > 0 for i in range(40)]),
            *trials('exposure+', [i % 10 > 0 for i in range(40)]),
            *trials('exposure-', [i % 10 > 2 for i in range(40)]), *chaos]  # fmt: skip
    effect = compound_effects(rows)[0]
    assert effect.additive_rate == pytest.approx(1 - 0.2 - 0.5 * 0.1 - 0.5 * 0.3)
    assert effect.excess_drop == pytest.approx(0.6 - 0.4)


def test_the_rungs_of_a_compound_are_judged_apart_and_corrected_together() -> None:
    rows = [*compound_rows(), *trials('chaos', [False] * 24, severity=1.0, parts=('light', 'latency'))]
    mild, hard = compound_effects(rows)
    assert (mild.severity, hard.severity) == (0.3, 1.0)
    assert hard.verdict is CompoundVerdict.CANNOT_SAY
    assert mild.p_value == mild.p_value_holm
    twice = compound_effects([*compound_rows(), *(replace(t, policy='q') for t in compound_rows())])
    assert twice[0].p_value_holm == pytest.approx(min(1.0, 2 * mild.p_value))


def test_the_record_says_what_a_compound_is_made_of() -> None:
    drawn = draw_condition('chaos', 0.3, seed=3, instruction='put the red block on the white square')
    episode = Episode(
        policy='p', task='t', outcome='success', duration_s=1.0, condition='chaos',
        condition_parameters=condition_parameters(drawn),
    )  # fmt: skip
    assert dict(recorded_parts(episode)) == {part.kind: 0.3 for part in parts_of(drawn)}
    assert recorded_parts(episode.replace(condition='light', condition_parameters={'severity': 1.0})) == ()


def test_scenes_that_all_cells_share_are_drawn_at_once() -> None:
    """Hard scenes fail under every condition: 60 scenes of a hardness h fail light and fog at h > 0.7, chaos at > 0.3.

    Then light and fog fail together, and the variance of the excess is 4 var(light) + var(chaos) - 4 cov = 0.69 / 60.
    """
    draw, inside, widths = rng(6), 0, []
    truth = (1.0 - 0.3) - 2 * (1.0 - 0.7)
    for _ in range(60):
        hard = draw.random(60)
        at = {name: (hard < rate).tolist() for name, rate in (('light', 0.7), ('fog', 0.7), ('chaos', 0.3))}
        rows = [t for name, good in {'nominal': [True] * 60, **at}.items() for t in trials(name, good)]
        found = compound_effects(rows, singles=('light', 'fog'))[0]
        assert found.interval is not None
        inside += found.interval.contains(truth)
        widths.append(found.interval.width)
    assert inside >= 52
    assert np.mean(widths) == pytest.approx(2 * 1.96 * (0.69 / 60) ** 0.5, rel=0.08)


def test_the_iou_drop_of_repeated_scenes_is_paired_too() -> None:
    draw = rng(7)
    scenes = [i // 2 for i in range(40)]
    level = [0.2 + 0.6 * draw.random() for _ in range(20)]

    def arm(condition: str, loss: float) -> list[ConditionTrial]:
        return [
            ConditionTrial('p', condition, 0.0, PlacementTrial('split', True, level[s] - loss, 0.01, str(s)))
            for s in scenes
        ]

    drop, interval = iou_drop(arm('nominal', 0.0), arm('light', 0.05), n_resamples=300, rng=rng(), level=0.95)
    assert drop == pytest.approx(0.05)
    assert interval is not None
    assert interval.width < 1e-9  # every scene lost exactly as much


def test_the_most_salient_object_fills_most_of_the_pictures() -> None:
    image = np.zeros((10, 10, 3), dtype=np.uint8)
    image[:6], image[6:9] = (200, 30, 30), (30, 60, 200)
    view = RgbdView('a', image, np.ones((10, 10)), np.eye(3), np.eye(4))
    red, blue, green = (
        ObjectModel(n, c) for n, c in (('r', (200, 30, 30)), ('b', (30, 60, 200)), ('g', (30, 160, 40)))
    )
    assert salient_object([view], [blue, red, green]) == 'r'
    assert salient_object([view], [green]) is None
    assert salient_object([view], []) is None


def test_a_compound_that_is_not_there_is_named() -> None:
    with pytest.raises(UnknownName, match='chaos'):
        compound_effects([*trials('nominal', [True]), *trials('light', [True])])


OBJECTS = ('red', 'blue', 'green')


def swap(policy: str, choose, n_scenes: int = 15) -> list[SwapTrial]:
    found = []
    for scene in range(n_scenes):
        salient, nearest = OBJECTS[scene % 3], OBJECTS[(scene // 3) % 3]
        found += [
            SwapTrial(policy, str(scene), asked, choose(asked, salient, nearest), OBJECTS, salient, nearest)
            for asked in OBJECTS[:2]
        ]
    return found


def test_the_swap_test_names_what_a_policy_goes_for() -> None:
    rows = [
        *swap('listens', lambda asked, salient, nearest: asked),
        *swap('dazzled', lambda asked, salient, nearest: salient),
        *swap('lazy', lambda asked, salient, nearest: nearest),
    ]
    found = {r.policy: r for r in swap_tests(rows, n_resamples=500, rng=rng())}
    assert found['listens'].verdict is SwapVerdict.FOLLOWS
    assert found['listens'].named == ()
    assert found['dazzled'].verdict is SwapVerdict.IGNORES
    assert found['dazzled'].named == (Habit.MOST_SALIENT,)
    assert found['lazy'].named == (Habit.NEAREST,)
    assert found['lazy'].changed == 0


def test_a_random_policy_is_neither() -> None:
    draw = rng(1)
    result = swap_tests(swap('dice', lambda *_: str(draw.choice(OBJECTS))), n_resamples=300, rng=rng())[0]
    assert result.verdict is SwapVerdict.UNRESOLVED
    assert result.named == ()


def test_the_swap_test_keeps_its_level() -> None:
    draw, wrong = rng(2), 0
    for _ in range(150):
        rows = swap('dice', lambda *_: str(draw.choice(OBJECTS)), n_scenes=8)
        wrong += swap_tests(rows, n_resamples=99, rng=draw)[0].verdict is SwapVerdict.FOLLOWS
    assert wrong <= 15


def test_a_swap_test_needs_two_instructions_in_a_scene() -> None:
    with pytest.raises(NotEstimable, match='two instructions'):
        swap_tests([SwapTrial('p', 's', 'red', 'red', OBJECTS)], n_resamples=10, rng=rng())


def test_swap_and_start_trials_are_read_from_labels_or_from_what_moved() -> None:
    from robotrials.record import Scene, Trajectory

    labels = {'asked_object': 'red', 'chosen_object': '', 'candidate_objects': 'red,blue', 'start_x_m': '0.1',
              'start_y_m': '-0.2'}  # fmt: skip
    told = Episode(policy='p', task='t', outcome='failure', duration_s=1.0, seed=3, labels=labels)
    trial = swap_trial(told)
    assert trial is not None
    assert (trial.chosen, trial.candidates, trial.scene) == (None, ('red', 'blue'), 't/3')
    assert start_trial(told) == StartTrial('p', 0.1, -0.2, False, told.episode_id)

    pose = np.zeros((2, 2, 7))
    pose[..., 3] = 1
    pose[:, 1, 0] = (0.3, 0.4)
    scene = Scene(body_roles={'red': 'target', 'blue': 'bystander'}, target_object='red')
    hand = np.tile([0.25, 0, 0, 1, 0, 0, 0.0], (2, 1))
    moved = Trajectory(time_s=np.arange(2.0), bodies=('red', 'blue'), body_pose=pose, ee_pose=hand, scene=scene)
    plain = Episode(policy='p', task='t', outcome='success', duration_s=2.0, seed=4)
    seen = swap_trial(plain, moved)
    assert seen is not None
    assert (seen.asked, seen.chosen, seen.nearest) == ('red', 'blue', 'blue')
    assert start_trial(plain, moved) == StartTrial('p', 0.0, 0.0, True, plain.episode_id)
    assert swap_trial(plain) is None
    assert start_trial(plain) is None
    for words in ({'start_x_m': 'left', 'start_y_m': '0.1'}, {'start_x_m': 'nan', 'start_y_m': '0.1'}):
        assert start_trial(replace(plain, labels=words)) is None  # free text is no start


def test_success_that_depends_on_the_place_is_found_and_luck_is_not() -> None:
    draw = rng(5)
    places = draw.uniform(-0.2, 0.2, (80, 2))
    tied = [StartTrial('tied', x, y, bool(np.hypot(x, y) < 0.12)) for x, y in places]
    free = [StartTrial('free', x, y, bool(draw.random() < 0.5)) for x, y in places]
    found = {s.policy: s for s in spatial_sensitivities([*tied, *free], n_resamples=300, rng=rng())}
    assert found['tied'].p_value < 0.02
    assert found['tied'].distance_interval.low > 0.3
    assert found['free'].p_value > 0.05
    with pytest.raises(NotEstimable, match='different starts'):
        spatial_sensitivities(tied[:5], n_resamples=10, rng=rng())


def test_the_seed_decides_the_numbers() -> None:
    rows = condition_trials(radar_episodes())
    before, light = ([r for r in rows if r.condition == c] for c in ('nominal', 'light'))
    first, again, other = (iou_drop(before, light, n_resamples=50, rng=rng(s), level=0.95)[1] for s in (1, 1, 2))
    assert first == again != other


def test_radar_episodes_are_one_a_cell() -> None:
    ids = [e.episode_id for e in radar_episodes()]
    assert len(ids) == len(set(ids)) == 8 * 32
    assert not any(a == b for a, b in itertools.pairwise(ids))
