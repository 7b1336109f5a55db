"""A higher severity disturbs more, for every kind and seed; the same seed gives the same in every process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.run.conditions import (
    CHAOS,
    CameraFrame,
    CameraShift,
    Condition,
    Distractor,
    Disturbance,
    Light,
    RobotState,
    condition_parameters,
    draw_condition,
    parts_of,
)
from robotrials.run.conditions.camera import SensorNoise, temperature_gain
from robotrials.run.conditions.condition import FrameCondition, Latency
from robotrials.run.conditions.draw import KINDS
from robotrials.run.conditions.instruction import Instruction
from robotrials.testing.scene import look_at, pinhole

LADDER = (0.0, 0.2, 0.45, 0.7, 1.0)
SAY = 'put the red block to the left of the blue block'
SEEDS = st.integers(0, 2**31)


def frame() -> CameraFrame:
    rng = np.random.default_rng(0)
    rgb = rng.integers(40, 200, (40, 60, 3), dtype=np.uint8)
    depth = np.full((40, 60), 1.1)
    depth[12:24, 20:40] = 1.0
    mask = np.ones((40, 60), dtype=np.bool_)
    mask[12:24, 20:40] = False
    return CameraFrame('front', rgb, depth, pinhole(60, 40), look_at((0.5, 0, 0.5), (0, 0, 0)), mask)


def sizes(condition: Condition) -> list[float]:
    """What each kind disturbs, in its own units: every number of the list must grow."""
    if isinstance(condition, Light):
        gain = temperature_gain(condition.temperature_k)
        return [abs(condition.stops), float(np.abs(gain - 1).max()), condition.slope, condition.shadow]
    if isinstance(condition, CameraShift):
        moved = condition.displacement('front')
        return [float(np.linalg.norm(moved[:3, 3])), float(np.linalg.norm(moved[:3, :3] - np.eye(3)))]
    if isinstance(condition, Distractor):
        return [len(condition.objects((200, 40, 35), 'block'))]
    if isinstance(condition, RobotState):
        start = condition.initial_joints(np.zeros(7), lower_rad=-np.ones(7), upper_rad=np.ones(7))
        return [float(np.linalg.norm(start))]
    if isinstance(condition, Disturbance):
        return [abs(np.log(condition.friction_scale)), condition.drag_n_s_m, condition.pull_n]
    if isinstance(condition, Latency):
        return [condition.delay(step).total_s for step in range(5)]
    if isinstance(condition, Instruction):
        return [float(condition.text != SAY)]
    if isinstance(condition, FrameCondition):
        before, after = frame(), condition.disturb(frame(), step=0)
        assert before.depth_m is not None
        assert after.depth_m is not None
        changed = [float(np.abs(after.rgb.astype(float) - before.rgb).mean())]
        if isinstance(condition, SensorNoise):
            changed += [float(np.isnan(after.depth_m).mean()), condition.turn_rad, condition.disparity_bias_px]
        return changed
    return [condition.severity]  # layout: where things end is for the host


@given(SEEDS)
@settings(max_examples=25)
@pytest.mark.parametrize('kind', KINDS)
def test_a_higher_severity_disturbs_more(kind: str, seed: int) -> None:
    ladder = [sizes(draw_condition(kind, s, seed=seed, instruction=SAY)) for s in LADDER]
    assert all(value == pytest.approx(0.0, abs=1e-12) for value in ladder[0])
    for low, high in pairwise(ladder):
        assert all(a <= b * (1 + 1e-9) for a, b in zip(low, high, strict=True)), ladder
    assert max(ladder[-1]) > 0


def test_severity_turns_the_robots_start_about_nothing() -> None:
    """One seed keeps its direction: starts at rising severities lie on a ray from home."""
    for seed in range(20):
        starts = [
            RobotState.draw(s, seed=seed).initial_joints(
                np.zeros(7), lower_rad=-np.ones(7), upper_rad=np.ones(7), is_safe=lambda q: bool(q[0] > -0.1)
            )
            for s in (0.3, 0.6, 1.0)
        ]
        rays = [s / np.linalg.norm(s) for s in starts]
        np.testing.assert_allclose(rays[0], rays[2], atol=1e-12)
        np.testing.assert_allclose(rays[1], rays[2], atol=1e-12)


def test_chaos_has_its_own_default_and_every_part_its_dose() -> None:
    chaos = draw_condition(CHAOS, seed=3, instruction=SAY)
    assert {part.severity for part in parts_of(chaos)} == {0.25}
    assert draw_condition('light', seed=3).severity == 1.0
    assert draw_condition(CHAOS, 0.8, seed=3).severity == 0.8


def digest() -> str:
    """Everything that is drawn and laid over a frame, in one number."""
    told = hashlib.sha256()
    for kind in (*KINDS, CHAOS):
        for seed in (1, 2):
            condition = draw_condition(kind, 0.6, seed=seed, instruction=SAY)
            told.update(repr(sorted(condition_parameters(condition).items())).encode())
            for part in parts_of(condition):
                if isinstance(part, FrameCondition):
                    shown = part.disturb(frame(), step=4)
                    told.update(shown.rgb.tobytes())
                    told.update(b'' if shown.depth_m is None else shown.depth_m.tobytes())
    return told.hexdigest()


def test_another_process_draws_the_same_bits() -> None:
    code = 'from tests.run.conditions.test_severity import digest; print(digest())'
    told = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.strip() == digest()
