from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, UnknownName
from robotrials.record import Episode
from robotrials.run.conditions import (
    CHAOS,
    Background,
    CameraFrame,
    CameraShift,
    Compound,
    Distractor,
    Footprint,
    Layout,
    Light,
    PlanarPose,
    RobotState,
    Workspace,
    compose,
    condition_parameters,
    draw_condition,
    read_condition,
    severity_ladder,
    share_out,
)
from robotrials.run.conditions.background import Texture, table_background
from robotrials.run.conditions.camera import Exposure, SensorNoise, expose, sensor_light, sensor_value, temperature_gain
from robotrials.run.conditions.condition import Effect, FrameCondition, Latency
from robotrials.run.conditions.draw import KINDS
from robotrials.run.conditions.instruction import Instruction
from robotrials.run.conditions.layout import overlap
from robotrials.testing.scene import look_at, pinhole

SAY = 'Pick up the red block and put it in the target place.'
FRAMED = ('background', 'exposure+', 'exposure-', 'light', 'sensor_noise')


def frame(camera: str = 'front') -> CameraFrame:
    rng = np.random.default_rng(0)
    rgb = rng.integers(60, 120, (40, 60, 3), dtype=np.uint8)
    rgb[10:20, 10:30] = (200, 40, 35)
    pose = look_at((0.5, 0, 0.5), (0, 0, 0))
    return CameraFrame(camera, rgb, np.full((40, 60), 0.7), pinhole(60, 40), pose)


def change(name: str, severity: float, seed: int = 1) -> float:
    """How much the picture changes, in grey levels."""
    drawn = draw_condition(name, severity, seed=seed)
    assert isinstance(drawn, FrameCondition)
    before = frame()
    return float(np.abs(drawn.disturb(before, step=0).rgb.astype(float) - before.rgb).mean())


@pytest.mark.parametrize('name', [*KINDS, CHAOS, 'light+latency', 'light+exposure++sensor_noise'])
def test_a_condition_survives_its_record(name: str) -> None:
    drawn = draw_condition(name, 0.7, seed=5, instruction=SAY)
    episode = Episode(
        policy='p', task='t', outcome='success', duration_s=1.0, condition=name,
        condition_parameters=condition_parameters(drawn),
    )  # fmt: skip
    read = read_condition(episode.condition, episode.condition_parameters)
    assert read == drawn


def test_the_nominal_condition_is_none() -> None:
    assert read_condition('nominal', {}) is None


@pytest.mark.parametrize('name', KINDS)
def test_the_seed_changes_the_draw_and_the_same_seed_does_not(name: str) -> None:
    first, again, other = (draw_condition(name, 1.0, seed=s, instruction=SAY) for s in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize('name', FRAMED)
def test_severity_zero_leaves_frames_as_they_are(name: str) -> None:
    assert change(name, 0.0) == 0.0


@pytest.mark.parametrize('name', FRAMED)
def test_a_ladder_grows(name: str) -> None:
    sizes = [change(name, s) for s in (0.25, 0.5, 0.75, 1.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0.2


@pytest.mark.parametrize('name', [*FRAMED, CHAOS])
def test_frames_keep_their_shape_and_the_original_is_untouched(name: str) -> None:
    before = frame()
    copy = before.rgb.copy()
    drawn = draw_condition(name, 1.0, seed=3)
    assert isinstance(drawn, FrameCondition)
    after = drawn.disturb(before, step=2)
    assert after.rgb.dtype == np.uint8
    assert after.rgb.shape == before.rgb.shape
    assert (before.rgb == copy).all()


def test_noise_differs_between_steps_and_cameras_and_repeats() -> None:
    noise = SensorNoise.draw(1.0, seed=1)
    a, again, later, other = (noise.disturb(frame(c), step=s).rgb for c, s in (('a', 0), ('a', 0), ('a', 1), ('b', 0)))
    assert (a == again).all()
    assert (a != later).any()
    assert (a != other).any()


def test_sensor_noise_has_the_drawn_size() -> None:
    noise = dataclasses.replace(SensorNoise.draw(1.0, seed=1), rgb_sigma=5.0, holes=0.25)
    grey = dataclasses.replace(frame(), rgb=np.full((200, 300, 3), 128, np.uint8), depth_m=np.full((200, 300), 1.0))
    after = noise.disturb(grey, step=0)
    assert after.depth_m is not None
    assert np.isnan(after.depth_m).mean() == pytest.approx(0.25, abs=0.01)
    assert after.rgb.std() == pytest.approx(5.0, rel=0.03)
    again, later, other = (noise.disturb(dataclasses.replace(grey, camera=c), step=s).depth_m
                           for c, s in (('front', 0), ('front', 1), ('side', 0)))  # fmt: skip
    np.testing.assert_array_equal(after.depth_m, again)
    assert not np.array_equal(again, later, equal_nan=True)
    bias = [float(np.nanmean(depth)) - 1.0 for depth in (again, later, other) if depth is not None]
    assert abs(bias[0] - bias[1]) < 0.2 * abs(bias[0] - bias[2])  # a unit keeps its bias; another has its own


OLD_NOISE = {'severity': 0.5, 'seed': 1, 'depth_sigma_m': 0.01, 'rgb_sigma': 5.0, 'dropout': 0.25, 'turn_rad': 0.0,
             'drift_rad_per_step': 0.0}  # fmt: skip
OLD_BACKGROUND = {'severity': 1.0, 'seed': 4, 'texture': 'blobs', 'hue': 0.4, 'saturation': 0.8, 'period': 0.2,
                  'strength': 0.9}  # fmt: skip


def test_records_from_before_the_stereo_camera_have_white_noise() -> None:
    noise = read_condition('sensor_noise', OLD_NOISE)
    assert isinstance(noise, SensorNoise)
    grey = dataclasses.replace(frame(), rgb=np.full((200, 300, 3), 128, np.uint8), depth_m=np.full((200, 300), 1.0))
    depth = noise.disturb(grey, step=0).depth_m
    assert depth is not None
    assert np.isnan(depth).mean() == pytest.approx(0.25, abs=0.01)
    assert np.nanstd(depth) == pytest.approx(0.01, rel=0.03)


def test_records_from_before_the_posters_have_none() -> None:
    background = read_condition('background', OLD_BACKGROUND)
    assert isinstance(background, Background)
    assert background.posters == 0
    assert background.tile(64).shape == (64, 64, 3)
    with pytest.raises(InputError, match='missing'):
        read_condition('background', {k: v for k, v in OLD_BACKGROUND.items() if k != 'hue'})


@pytest.mark.parametrize('texture', list(Texture))
def test_a_cloth_repeats_without_a_seam_and_changes_with_its_seed(texture: Texture) -> None:
    cloths = [dataclasses.replace(Background.draw(1.0, seed=s), texture=texture.value, hue=0.1) for s in (1, 1, 2)]
    first, again, other = (c.tile(128) for c in cloths)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    inside = np.abs(np.diff(first, axis=0)).mean(axis=(1, 2))
    seam = np.abs(first[0] - first[-1]).mean()
    assert seam <= inside.max() + 1e-9
    assert first.std() > 0.05


def test_posters_differ_and_are_mostly_paper() -> None:
    sheets = [Background.draw(1.0, seed=1).poster(i, height_px=120, width_px=80) for i in range(4)]
    assert len({s.tobytes() for s in sheets}) == 4
    assert all(s.shape == (120, 80, 3) and 0.2 < (s > 235).all(axis=2).mean() < 0.7 for s in sheets)


def test_cameras_are_turned_and_shifted_by_the_stated_sizes() -> None:
    for severity in (0.25, 1.0):
        for kind in CameraShift.KINDS:
            shift = draw_condition(kind, severity, seed=3)
            assert isinstance(shift, CameraShift)
            assert shift.kind == kind
            moved = shift.displacement('front')
            angle = math.acos((np.trace(moved[:3, :3]) - 1) / 2)
            assert angle == pytest.approx(shift.turn_rad)
            degrees, metres = (4, 0.03) if kind == 'camera_bumped' else (12, 0.10)
            assert 0.8 * degrees * severity <= math.degrees(shift.turn_rad) <= degrees * severity
            assert np.linalg.norm(moved[:3, 3]) == pytest.approx(shift.shift_m)
            assert 0.8 * metres * severity <= shift.shift_m <= metres * severity
            assert not np.allclose(moved, shift.displacement('side'))


def test_calibration_turns_by_the_drawn_angle_and_drifts() -> None:
    noise = SensorNoise.draw(1.0, seed=4)
    for step in (0, 100):
        before = frame()
        after = noise.disturb(before, step=step)
        assert before.world_from_camera is not None
        assert after.world_from_camera is not None
        between = before.world_from_camera[:3, :3].T @ after.world_from_camera[:3, :3]
        angle = math.acos((np.trace(between) - 1) / 2)
        assert angle == pytest.approx(noise.turn_rad + step * noise.drift_rad_per_step, abs=1e-6)
        assert (before.world_from_camera[:3, 3] == after.world_from_camera[:3, 3]).all()


def test_exposure_multiplies_light() -> None:
    over = dataclasses.replace(Exposure.draw(1.0, seed=1, over=True), stops=1.0)
    grey = dataclasses.replace(frame(), rgb=np.full((4, 4, 3), 100, np.uint8), depth_m=None)
    linear = 2 * ((100 / 255 + 0.055) / 1.055) ** 2.4  # IEC 61966-2-1, far below the shoulder
    assert over.disturb(grey, step=0).rgb[0, 0, 0] == round(255 * (1.055 * linear ** (1 / 2.4) - 0.055))
    assert Exposure.draw(0.5, seed=1, over=False).kind == 'exposure-'
    assert Exposure.draw(0.0, seed=1, over=False).kind == 'exposure-'


@given(st.floats(-4, 4), st.floats(-4, 4))
def test_a_response_rises_saturates_and_is_undone(first: float, second: float) -> None:
    values = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, axis=2)
    low, high = (expose(values, stops=s).astype(int) for s in sorted((first, second)))
    assert (np.diff(high[:, 0, 0]) >= 0).all()
    assert (low <= high).all()
    np.testing.assert_array_equal(expose(values, stops=0.0), values)
    light = np.linspace(0, 3, 500)
    seen = sensor_value(light)
    assert (np.diff(seen) > 0).all()
    assert seen[-1] <= 1
    is_below_white = seen < 1 - 1 / 255
    np.testing.assert_allclose(sensor_light(seen)[is_below_white], light[is_below_white], atol=1e-9)


def test_over_exposure_washes_colours_out_to_white() -> None:
    red = np.full((2, 2, 3), (204, 60, 55), dtype=np.uint8)
    spread = [int(np.ptp(expose(red, stops=s)[0, 0])) for s in (1, 2, 3)]
    assert spread == sorted(spread, reverse=True)
    assert expose(red, stops=5.0).min() > 240


def test_warm_light_is_red_and_cold_light_is_blue() -> None:
    warm, day, cold = (temperature_gain(k) for k in (2700, 6500, 10000))
    assert warm[0] > warm[2]
    assert np.allclose(day, 1.0)
    assert cold[2] > cold[0]


def test_background_spares_what_is_not_background() -> None:
    before = frame()
    mask = np.ones((40, 60), dtype=bool)
    mask[10:20, 10:30] = False
    after = Background.draw(1.0, seed=1).disturb(dataclasses.replace(before, background=mask), step=0)
    assert (after.rgb[~mask] == before.rgb[~mask]).all()
    assert (after.rgb[mask] != before.rgb[mask]).mean() > 0.9


def test_without_a_mask_the_rims_colours_are_the_background() -> None:
    after = Background.draw(1.0, seed=1).disturb(frame(), step=0)
    assert (after.rgb[12:18, 12:28] == (200, 40, 35)).all()


def test_a_table_mask_needs_depth() -> None:
    with pytest.raises(InputError, match='depth'):
        table_background(dataclasses.replace(frame(), depth_m=None), table_z_m=0.0)
    assert table_background(frame(), table_z_m=1.0).all()


@given(st.integers(0, 10_000))
def test_distractors_share_the_colour_or_the_shape_and_not_both(seed: int) -> None:
    found = Distractor.draw(1.0, seed=seed).objects((200, 40, 35), 'block')
    assert len(found) == 4
    for item in found:
        assert (item.color_rgb == (200, 40, 35)) != (item.shape == 'block')


WORK = Workspace((-0.2, -0.2), (0.2, 0.2))
OBJECTS = [
    Footprint('a', (0.05, 0.08), PlanarPose(0, 0, 0)),
    Footprint('b', (0.06, 0.06), PlanarPose(0.1, 0.1, 0)),
    Footprint('c', (0.1, 0.03), PlanarPose(-0.1, 0.1, 0)),
    Footprint('fixed', (0.05, 0.05), PlanarPose(-0.1, -0.1, 0.3), is_fixed=True),
]


@given(st.integers(0, 2**31), st.floats(0.1, 1.0))
def test_layouts_are_inside_and_free_of_collisions(seed: int, severity: float) -> None:
    poses = Layout.draw(severity, seed=seed).place(OBJECTS, WORK)
    assert poses['fixed'] == OBJECTS[3].nominal
    corners = {}
    for item in OBJECTS:
        pose = poses[item.name]
        c, s = math.cos(pose.yaw_rad), math.sin(pose.yaw_rad)
        grid = np.array([[i, j] for i in (-0.5, 0.5) for j in (-0.5, 0.5)]) * item.size_m
        corners[item.name] = grid[[0, 1, 3, 2]] @ np.array([[c, s], [-s, c]]) + (pose.x_m, pose.y_m)
        assert (np.abs(corners[item.name]) <= 0.2 + 1e-9).all()
    names = list(corners)
    assert not any(overlap(corners[p], corners[q]) for i, p in enumerate(names) for q in names[i + 1 :])


def test_a_mild_layout_stays_near_home_and_a_wild_one_uses_the_workspace() -> None:
    def spread(severity: float) -> float:
        found = [Layout.draw(severity, seed=s).place(OBJECTS[:1], WORK)['a'] for s in range(200)]
        return float(np.std([p.x_m for p in found]))

    assert spread(0.1) < 0.03 < 0.07 < spread(1.0)


def test_a_workspace_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match='no collision-free place for'):
        Layout.draw(1.0, seed=0).place(OBJECTS, Workspace((-0.06, -0.06), (0.06, 0.06)))
    with pytest.raises(InputError, match='low < high'):
        Workspace((0, 0), (0, 1))


def test_robot_starts_are_safe_and_spread_as_asked() -> None:
    home, low, high = np.zeros(7), -np.ones(7), np.ones(7)
    starts = np.array(
        [
            RobotState.draw(0.5, seed=s).initial_joints(
                home, lower_rad=low, upper_rad=high, is_safe=lambda q: q[0] > -0.1
            )
            for s in range(300)
        ]
    )
    assert (starts[:, 0] > -0.1).all()
    assert starts[:, 1:].std() == pytest.approx(0.125, rel=0.1)
    with pytest.raises(InputError, match='no safe start'):
        RobotState.draw(0.5, seed=0).initial_joints(home, lower_rad=low, upper_rad=high, is_safe=lambda _: False)
    with pytest.raises(InputError, match='joint limits'):
        RobotState.draw(0.5, seed=0).initial_joints(home + 2, lower_rad=low, upper_rad=high)


def test_latency_has_its_mean_and_varies() -> None:
    latency = Latency.draw(1.0, seed=1)
    delays = [latency.delay(step) for step in range(4000)]
    assert np.mean([d.network_s for d in delays]) == pytest.approx(latency.network_s, rel=0.05)
    assert np.std([d.total_s for d in delays]) > 0
    assert delays[3] == latency.delay(3)
    assert Latency.draw(0.0, seed=1).delay(0).total_s == 0


def test_chaos_holds_every_kind_once_and_declares_all_their_effects() -> None:
    chaos = draw_condition(CHAOS, 1.0, seed=1, instruction=SAY)
    assert isinstance(chaos, Compound)
    kinds = [p.kind for p in chaos.parts]
    assert len(set(kinds)) == len(kinds) == len(KINDS) - 2  # one of the exposures, one of the cameras
    assert chaos.effects == frozenset(Effect)


def test_compose_takes_compounds_apart_and_refuses_a_kind_twice() -> None:
    light, noise = Light.draw(1, seed=1), SensorNoise.draw(1, seed=1)
    both = compose(compose(light, noise), Latency.draw(1, seed=1))
    assert both.kind == 'light+sensor_noise+latency'
    assert compose(light) is light
    with pytest.raises(InputError, match='each kind once'):
        compose(light, light)


def test_conditions_are_shared_out_to_who_can_apply_them() -> None:
    chaos = draw_condition(CHAOS, 1.0, seed=1, instruction=SAY)
    host = ('layout', 'distractor', 'robot_state', 'disturbance', 'light', 'camera_moved')
    shared = share_out(chaos, host, has_frames=True, charges_latency=True)
    assert {c.kind for c in shared.by_host} == set(host)
    assert {c.kind for c in shared.by_frames} == {'background', 'exposure+', 'sensor_noise'}
    assert shared.by_clock is not None
    assert shared.instruction(SAY) != SAY
    assert shared.disturb([frame('a'), frame('b')], step=0).keys() == {'a', 'b'}
    with pytest.raises(InputError, match='paraphrase is of'):
        shared.instruction('Open the drawer.')


def test_what_nobody_can_apply_is_refused_before_the_trial() -> None:
    with pytest.raises(InputError, match='nobody can bring about layout, latency'):
        share_out(draw_condition('layout+latency', 1, seed=1), has_frames=True, charges_latency=False)
    with pytest.raises(InputError, match='no camera frames'):
        share_out(draw_condition('light', 1, seed=1), has_frames=False, charges_latency=False)
    assert share_out(None, has_frames=False, charges_latency=False).by_host == ()


def test_bad_names_severities_and_records_are_refused() -> None:
    with pytest.raises(UnknownName, match='did you mean'):
        draw_condition('ligth', 1, seed=1)
    for severity in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match='severity'):
            draw_condition('light', severity, seed=1)
    with pytest.raises(InputError, match='missing'):
        read_condition('light', {'severity': 1.0, 'seed': 1})
    with pytest.raises(InputError, match='canonical instruction'):
        draw_condition('instruction', 1, seed=1)
    with pytest.raises(InputError, match='must rise'):
        severity_ladder('light', (1.0, 0.5), seed=1)
    with pytest.raises(InputError, match='uint8'):
        CameraFrame('a', np.zeros((2, 2, 3)))


def test_instruction_conditions_record_both_wordings() -> None:
    drawn = draw_condition('instruction', 1.0, seed=2, instruction=SAY)
    assert isinstance(drawn, Instruction)
    recorded = condition_parameters(drawn)
    assert recorded['canonical'] == SAY
    assert recorded['text'] == drawn.text != SAY
