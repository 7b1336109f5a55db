"""The release detector on telemetry drawn by hand: every rule once, and what noise must not change."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.annotate.telemetries import BETWEEN, SOURCE, TARGET, ZONES, Grip, telemetry_of

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.annotate import DetectorOptions, ReleaseKind, ReleaseVerdict, Telemetry, detect_releases, judge
from robotrials.measure.annotate.detector import read_telemetry
from robotrials.record import Trajectory


def verdicts(*grips: Grip, noise: float = 0.0) -> list[tuple[str, str]]:
    judged = judge(detect_releases(telemetry_of(*grips, noise=noise), ZONES))
    return [(j.verdict.value, j.why) for j in judged]


@pytest.mark.parametrize(
    ('grip', 'expected', 'why'),
    [
        (Grip(2, 4), ReleaseVerdict.SUCCESS, 'let go over the target'),
        (Grip(2, 4, width=0.0), ReleaseVerdict.NEUTRAL, 'nothing was held'),
        (Grip(2, 2.2), ReleaseVerdict.NEUTRAL, 'nothing was held'),
        (Grip(2, 4, release=SOURCE), ReleaseVerdict.NEUTRAL, 'put back'),
        (Grip(2, 4, release=BETWEEN), ReleaseVerdict.FAILURE, 'let go outside both zones'),
        (Grip(2, 4, release=(0.5, -0.055)), ReleaseVerdict.UNKNOWN, 'let go at the edge of a zone (target)'),
        (Grip(2, 4, grasp=TARGET, release=BETWEEN), ReleaseVerdict.FAILURE, 'let go outside both zones'),
        (Grip(2, 4, grasp=TARGET, release=SOURCE), ReleaseVerdict.FAILURE, 'taken out of the target'),
        (Grip(2, 4, grasp=TARGET, release=(0.55, -0.15)), ReleaseVerdict.NEUTRAL, 'moved within the target'),
        (Grip(2, 4, release=BETWEEN, slip_s=3.7), ReleaseVerdict.FAILURE, 'slipped out between the zones'),
        (Grip(2, 4, slip_s=2.6), ReleaseVerdict.NEUTRAL, 'slipped out over the source'),
        (Grip(2, 4, slip_s=3.7), ReleaseVerdict.UNKNOWN, 'slipped out over the target'),
    ],
)
@pytest.mark.parametrize('noise', [0.0, 0.005])
def test_each_rule(grip: Grip, expected: ReleaseVerdict, why: str, noise: float) -> None:
    assert verdicts(grip, noise=noise) == [(expected.value, why)]


def test_the_moment_is_that_of_the_opening_command_or_of_the_slump() -> None:
    (release,) = detect_releases(telemetry_of(Grip(2, 4)), ZONES)
    assert release.kind is ReleaseKind.RELEASE
    assert release.t_s == pytest.approx(4.0, abs=0.051)
    assert release.hold_s == pytest.approx(2.0, abs=0.051)
    assert release.displacement_m == pytest.approx(0.36, abs=0.02)
    (slump,) = detect_releases(telemetry_of(Grip(2, 6, slip_s=3.0)), ZONES)
    assert slump.kind is ReleaseKind.SLUMP
    assert slump.t_s == pytest.approx(3.0, abs=0.101)


def test_a_ledger_runs_over_the_target() -> None:
    grips = (Grip(1, 2.5), Grip(4, 5.5), Grip(7, 8.5, grasp=TARGET, release=SOURCE), Grip(10, 11.5))
    assert [c.ledger for c in detect_releases(telemetry_of(*grips), ZONES)] == [0, 1, 2, 1]


def test_a_grip_that_lasts_to_the_end_released_nothing() -> None:
    assert detect_releases(telemetry_of(Grip(15, 99)), ZONES) == []


def test_a_flicker_of_the_command_is_no_release() -> None:
    steady = telemetry_of(Grip(2, 6))
    command = steady.command.copy()
    command[np.searchsorted(steady.time_s, 4.0)] = 1.0
    flickering = dataclasses.replace(steady, command=command)
    assert len(detect_releases(flickering, ZONES)) == 1


@given(
    st.lists(st.sampled_from(['place', 'empty', 'back', 'lose']), min_size=0, max_size=6),
    st.floats(0, 0.01),
    st.integers(0, 10_000),
)
def test_counts_are_right_whatever_the_order(what: list[str], noise: float, seed: int) -> None:
    kinds = {
        'place': {}, 'empty': {'width': 0.0}, 'back': {'release': SOURCE}, 'lose': {'release': BETWEEN},
    }  # fmt: skip
    grips = [Grip(1 + 3 * n, 2.5 + 3 * n, **kinds[kind]) for n, kind in enumerate(what)]
    judged = judge(detect_releases(telemetry_of(*grips, noise=noise, seed=seed), ZONES))
    told = [j.verdict for j in judged]
    assert told.count(ReleaseVerdict.SUCCESS) == what.count('place')
    assert told.count(ReleaseVerdict.FAILURE) == what.count('lose')
    assert ReleaseVerdict.UNKNOWN not in told


def test_missing_readings_keep_the_last_value_and_missing_signals_are_named() -> None:
    whole = telemetry_of(Grip(2, 4))
    pose = np.concatenate([whole.tool_m, np.tile([1.0, 0, 0, 0], (len(whole.time_s), 1))], axis=1)
    opening = whole.opening.copy()
    opening[::7] = np.nan
    trajectory = Trajectory(time_s=whole.time_s, ee_pose=pose, gripper_command=whole.command, gripper_position=opening)
    assert len(detect_releases(read_telemetry(trajectory), ZONES)) == 1
    with pytest.raises(NotEstimable, match='gripper_position was not recorded'):
        read_telemetry(dataclasses.replace(trajectory, gripper_position=None))
    with pytest.raises(NotEstimable, match='runs from -1 to 1, wanted an opening from 0'):
        read_telemetry(dataclasses.replace(trajectory, gripper_command=1 - 2 * whole.command))
    with pytest.raises(NotEstimable, match='most readings of gripper_command are missing'):
        read_telemetry(dataclasses.replace(trajectory, gripper_command=np.full(len(whole.time_s), np.nan)))


def test_bad_options_and_times_are_refused() -> None:
    with pytest.raises(InputError, match='closed_band is 2'):
        DetectorOptions(closed_band=2.0)
    with pytest.raises(InputError, match='finite and rising'):
        Telemetry(np.array([1.0, 1.0]), np.zeros(2), np.zeros(2), np.zeros((2, 3)))
