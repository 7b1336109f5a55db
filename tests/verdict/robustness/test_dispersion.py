"""What a change of start states amounts to: distances that are known, and the words beside a drop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, Scene, Store, Trajectory
from robotrials.verdict.robustness import StartPlace, start_place, start_spreads, told_spread

CONDITIONS = {'nominal': 0.0, 'fresh_start': 0.0, 'layout': 0.03}


def moved(target_m: float, *, arm_m: float = 0.4) -> Trajectory:
    """The target stands `target_m` along x, and is carried off afterwards; something else lies elsewhere."""
    pose = np.zeros((2, 2, 7))
    pose[..., 3] = 1
    pose[:, 0, 0] = (target_m, 9.0)
    pose[:, 1, 1] = 0.2 + target_m
    hand = np.tile([arm_m, 0, 0, 1, 0, 0, 0.0], (2, 1))
    scene = Scene(body_roles={'red': 'target', 'blue': 'bystander'}, target_object='red')
    return Trajectory(time_s=np.arange(2.0), bodies=('red', 'blue'), body_pose=pose, ee_pose=hand, scene=scene)


def test_distances_are_from_the_middle_of_the_baselines_starts() -> None:
    def at(condition: str, x: float, arm: float) -> StartPlace:
        return StartPlace('t', condition, (x, 0.0, 0.0), (0.0, arm, 0.0))

    places = [at('nominal', -0.01, 0.0), at('nominal', 0.01, 0.0), at('layout', 0.03, 0.0), at('layout', -0.04, 0.002)]
    (found,) = start_spreads(places, baseline='nominal')
    assert (found.task, found.condition, found.n, found.target_stays) == ('t', 'layout', 2, False)
    assert found.target_mm == pytest.approx(np.sqrt((30**2 + 40**2) / 2))
    assert (found.baseline_target_mm, found.baseline_arm_mm) == (pytest.approx(10.0), 0.0)
    assert found.arm_mm == pytest.approx(np.sqrt(2.0))
    assert start_spreads(places[2:], baseline='nominal') == [], 'without a baseline there is nothing to be far from'
    assert told_spread([found], 'other') == ''


def test_a_place_is_that_of_the_first_step_and_what_is_not_recorded_is_unknown() -> None:
    episode = Episode(policy='p', task='t', outcome='success', duration_s=2.0, seed=1)
    assert start_place(episode, moved(0.1), condition='c') == StartPlace('t', 'c', (0.1, 0.0, 0.0), (0.4, 0.0, 0.0))
    assert start_place(episode, None, condition='c') is None
    assert start_place(episode, Trajectory(time_s=np.arange(2.0)), condition='c') is None


def test_a_drop_of_zero_under_a_change_that_moved_nothing_says_so(tmp_path: Path) -> None:
    """As on LIBERO-Object: fresh starts place what is around the target, and the target stays."""
    store = Store.create(tmp_path / 'store')
    for condition, shift_m in CONDITIONS.items():
        for seed in range(6):
            episode = Episode(
                policy='p', task='t', outcome='failure' if seed == 0 else 'success', duration_s=2.0, seed=seed,
                condition=condition,
            )  # fmt: skip
            store.append([episode], trajectories={episode.key: moved(shift_m, arm_m=0.4 + shift_m / 3)})
    told = ' '.join(robotrials('robustness', store.path, '--show', 'drops', '--show', 'starts').split())
    assert 'fresh_start: from the middle of the baseline starts the target 0.0 mm and the arm 0.0 mm away' in told
    assert 'in 1 of 1 tasks the target stays where it was, and no drop there says nothing' in told
    assert 'layout: from the middle of the baseline starts the target 30.0 mm and the arm 10.0 mm away' in told
    assert told.count('stays where it was') == 1
