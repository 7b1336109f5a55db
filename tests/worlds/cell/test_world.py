"""Conditions in the cell's own world: each changes what it names and nothing else, by its seed alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.run.conditions import (
    CameraShift,
    Condition,
    Distractor,
    Disturbance,
    Layout,
    RobotState,
    Support,
    condition_parameters,
    draw_condition,
)
from robotrials.run.conditions.layout import HIGHEST_SUPPORT_M
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.seam import Observation, Setup
from robotrials.worlds.cell import TASKS, TabletopHost, panda
from robotrials.worlds.cell.control import KINDS, LIMITS, STATED, World, kinematics
from robotrials.worlds.cell.item import overlap
from robotrials.worlds.cell.referee import ROBOT_BODIES
from robotrials.worlds.cell.reset import (
    add_distractors,
    distractors_for,
    goal_rectangle,
    item_rectangle,
    reset_cell,
    spread_layout,
)
from robotrials.worlds.cell.scene import compile_scene, key_direction
from robotrials.worlds.cell.scripted import ScriptedPolicy
from robotrials.worlds.cell.task import draw_layout


@pytest.fixture(scope='module')
def cell() -> Iterator[TabletopHost]:
    host = TabletopHost(
        state='privileged', cameras=('front', 'side'), image_size=(96, 128), camera_rate_hz=1.0, shadows=False
    )
    yield host
    host.close()


def setup(task: str, seed: int, condition: Condition | None) -> Setup:
    if condition is None:
        return Setup(task=task, seed=seed)
    return Setup(task=task, seed=seed, condition=condition.kind, condition_parameters=condition_parameters(condition))


def started(host: TabletopHost, condition: Condition | None, *, task: str = 'two_block', seed: int = 3) -> Observation:
    host.prepare(setup(task, seed, condition))
    return host.reset(task, seed=seed)


def drawn(name: str, severity: float = 1.0, seed: int = 3) -> Condition:
    return draw_condition(name, severity, seed=seed)


def poses(host: TabletopHost) -> Mapping[str, np.ndarray]:
    found: Mapping[str, np.ndarray] = host.signals()['body_pose']
    return found


def script(host: TabletopHost, condition: Condition | None, *, task: str = 'two_block', seed: int = 3) -> Rollout:
    return run_episode(
        host,
        ScriptedPolicy(temper='reference'),
        setup(task, seed, condition),
        order=Order(time_cap_s=12.0, policy_seed=1),
    )


def test_the_cell_declares_what_it_can_bring_about() -> None:
    assert set(TabletopHost(cameras=('front',)).spec.conditions) == {*KINDS, *STATED}
    assert set(TabletopHost().spec.conditions) == {'layout', 'distractor', 'robot_state', 'disturbance', *STATED}
    assert TabletopHost(cameras=('front',), conditions=('layout',)).spec.conditions == ('layout',)
    with pytest.raises(UnknownName, match="did you mean 'layout'"):
        TabletopHost(conditions=('layuot',))


def test_what_the_cell_can_not_bring_about_is_refused() -> None:
    blind = TabletopHost()
    with pytest.raises(UnknownName, match='condition of the tabletop cell'):
        blind.prepare(setup('two_block', 1, drawn('light')))
    with pytest.raises(UnknownName, match='condition of the tabletop cell'):
        blind.prepare(setup('two_block', 1, drawn('layout+latency')))
    with pytest.raises(InputError, match='wants its drawn numbers'):
        blind.prepare(Setup(task='two_block', seed=1, condition='layout'))
    with pytest.raises(UnknownName, match='parameter of robot_state'):
        blind.prepare(Setup(task='two_block', seed=1, condition='robot_state', condition_parameters={'sigma': 0.1}))


def test_a_disturbed_episode_leaves_the_next_nominal_one_as_it_was(cell: TabletopHost) -> None:
    plain = started(cell, None)
    chaos = draw_condition('chaos', 1.0, seed=3, kinds=KINDS)
    disturbed = started(cell, chaos)
    again = started(cell, None)
    assert (plain.state == again.state).all()
    for camera in ('front', 'side'):
        assert (plain.images[camera] == again.images[camera]).all()
        assert (plain.images[camera] != disturbed.images[camera]).any()
    bare = TabletopHost(state='privileged')
    assert (started(bare, None).state == plain.state).all()


def test_the_same_seed_is_the_same_world_and_another_seed_is_another(cell: TabletopHost) -> None:
    for name in ('layout', 'distractor', 'light', 'background', 'robot_state', 'camera_moved'):
        a, b, c = (started(cell, drawn(name, seed=s)) for s in (5, 5, 6))
        assert (a.state == b.state).all()
        assert (a.images['front'] == b.images['front']).all()
        assert (a.images['front'] != c.images['front']).any(), name


# --- layout


@pytest.mark.parametrize('task', sorted(TASKS))
def test_a_spread_layout_is_inside_the_workspace_and_free_of_collisions(task: str) -> None:
    moved = 0
    for seed in range(4):
        nominal = draw_layout(task, seed=seed, instance=seed)
        layout = spread_layout(nominal, Layout.draw(1.0, seed=seed))
        covered = [item_rectangle(layout, n, clearance_m=0.0) for n in layout.poses]
        if not layout.is_order:
            covered_goals = [goal_rectangle(g) for g in layout.goals if g.item not in layout.fixed]
            assert all(layout.region.holds(r) for r in covered_goals)
        free = [r for n, r in zip(layout.poses, covered, strict=True) if n not in layout.fixed]
        assert all(layout.region.holds(r) for r in free)
        assert not any(overlap(a, b) for a, b in itertools.combinations(covered, 2))
        assert layout.instruction == nominal.instruction
        assert {n: nominal.poses[n][2] for n in nominal.poses} == {n: p[2] for n, p in layout.poses.items()}
        moved += sum(math.dist(p[:2], nominal.poses[n][:2]) > 0.01 for n, p in layout.poses.items())
    assert moved >= (0 if task in ('scale', 'belt_slow', 'belt_fast') else 4)  # there the square alone is moved


def test_a_spread_keeps_what_the_words_say() -> None:
    """Left stays left as seen from the base; on top stays on top; the square's block ends on the square."""
    for seed in range(6):
        left = spread_layout(draw_layout('two_block', seed=seed, instance=0), Layout.draw(1.0, seed=seed))
        goal, anchor = left.goals[0].pose, left.poses['green_block']
        np.testing.assert_allclose(goal[:2] - anchor[:2], [0.0, 0.085], atol=1e-9)
        top = spread_layout(draw_layout('two_block', seed=seed, instance=4), Layout.draw(1.0, seed=seed))
        np.testing.assert_allclose(top.goals[0].pose[:2], top.poses['green_block'][:2], atol=1e-9)
        single = spread_layout(draw_layout('single_block', seed=seed), Layout.draw(1.0, seed=seed))
        np.testing.assert_allclose(single.goals[0].pose[:2], single.scene.fixtures[0].pose[:2], atol=1e-9)
        slot = spread_layout(draw_layout('insertion', seed=seed), Layout.draw(1.0, seed=seed))
        before = draw_layout('insertion', seed=seed)
        tilts = [_tilt(v.goals[0].pose) for v in (before, slot)]
        assert tilts[0] == pytest.approx(tilts[1])


def _tilt(pose: np.ndarray) -> float:
    _, x, y, _ = pose[3:]
    return float(1 - 2 * (x * x + y * y))


def test_a_spread_grows_with_its_severity_and_is_nothing_at_zero() -> None:
    def distance(severity: float) -> float:
        total = 0.0
        for seed in range(8):
            nominal = draw_layout('single_block', seed=seed)
            moved = spread_layout(nominal, Layout.draw(severity, seed=seed))
            total += sum(math.dist(p[:2], nominal.poses[n][:2]) for n, p in moved.poses.items())
        return total

    assert distance(0.0) == 0.0
    assert 0 < distance(0.2) < distance(1.0)


def test_a_spread_scene_comes_to_rest_as_it_was_drawn_and_can_be_solved(cell: TabletopHost) -> None:
    for seed in (3, 4):
        world = World(layout=Layout.draw(1.0, seed=seed))
        start = reset_cell('two_block', seed=seed, world=world)
        for name, pose in start.layout.poses.items():
            address = start.scene.item_qpos[name]
            assert math.dist(start.data.qpos[address : address + 2], pose[:2]) < 0.005
        assert script(cell, drawn('layout', seed=seed), seed=seed).report.success


# --- distractors


def test_distractors_share_colour_or_shape_with_the_target_and_fit_no_word_of_the_task() -> None:
    for task, instance in (('two_block', 0), ('two_block', 7), ('spatial', 1), ('single_block', 2)):
        layout = draw_layout(task, seed=1, instance=instance)
        target = layout.scene.item_types[layout.goals[0].item]
        rgb = tuple(round(255 * float(v)) for v in target.rgba.split()[:3])
        others = {tuple(round(255 * float(v)) for v in t.rgba.split()[:3]) for t in layout.scene.item_types.values()}
        objects = distractors_for(layout, Distractor.draw(1.0, seed=4))
        assert len(objects) == 4
        for thing in objects:
            assert (thing.color_rgb == rgb) != (thing.shape == 'block')
            if thing.color_rgb != rgb:
                assert thing.color_rgb not in others
            if task == 'spatial':
                assert thing.shape == 'block'  # `the cylinder` must stay the only one


def test_distractors_lie_apart_from_everything() -> None:
    for seed in range(5):
        layout = draw_layout('two_block', seed=seed, instance=seed)
        full = add_distractors(layout, Distractor.draw(1.0, seed=seed))
        added = [item_rectangle(full, n, clearance_m=0.0) for n in full.distractors]
        taken = [item_rectangle(full, n, clearance_m=0.02) for n in layout.poses]
        taken += [goal_rectangle(g) for g in layout.goals]
        assert len(added) == 4
        assert not any(overlap(a, b) for a in added for b in taken)
        assert not any(overlap(a, b) for a, b in itertools.combinations(added, 2))
        for name, pose in layout.poses.items():
            assert (full.poses[name] == pose).all()


def test_distractors_are_seen_and_recorded_and_never_counted(cell: TabletopHost) -> None:
    plain = started(cell, None)
    cluttered = started(cell, drawn('distractor'))
    assert (plain.images['front'] != cluttered.images['front']).sum() > 100
    assert (plain.state == cluttered.state).mean() > 0.6  # the same slots for the task's own items, no others
    roles = cell.scene().body_roles
    assert [n for n, r in roles.items() if r == 'distractor'] == [f'distractor_{i}' for i in range(4)]
    assert 'distractor_0' in poses(cell)
    done = script(cell, drawn('distractor'))
    assert done.report.success
    assert (done.report.items, done.report.items_placed) == (1, 1)
    start = cell._start
    assert start is not None
    address = start.scene.item_qpos['distractor_0']
    start.data.qpos[address : address + 3] = (0.5, 0.7, 0.2)  # off the table
    for _ in range(20):
        cell.step(cell.hold())
    assert cell.report().items_lost == 0


# --- light and background


def test_light_changes_pictures_and_nothing_else(cell: TabletopHost) -> None:
    plain, changed = started(cell, None), started(cell, drawn('light'))
    assert (plain.state == changed.state).all()
    for camera in ('front', 'side'):
        assert (plain.images[camera] != changed.images[camera]).any()
        np.testing.assert_array_equal(plain.depth_m[camera], changed.depth_m[camera])


@pytest.mark.parametrize('task', ['two_block', 'bin_to_bin', 'insertion', 'occlusion', 'stacking'])
def test_a_cloth_and_posters_leave_physics_bit_equal(task: str) -> None:
    """The whole state of the simulator, after a scripted half of an episode, and every contact on the way."""

    def moved(name: str | None) -> list[bytes]:
        host = TabletopHost(state='privileged', cameras=('front',), image_size=(16, 16), camera_rate_hz=1.0)
        observation = started(host, None if name is None else drawn(name), task=task)
        session = ScriptedPolicy(temper='hasty').start(setup(task, 3, None), seed=1)
        kept = []
        for _ in range(50):
            observation = host.step(session.act(observation).actions[0])
            kept += [host.signals()['simulator_state'].tobytes(), repr(host.signals()['contacts']).encode()]
        host.close()
        return kept

    assert moved(None) == moved('background')


def test_a_cloth_lies_where_the_table_is_and_posters_stand_behind(cell: TabletopHost) -> None:
    plain, changed = started(cell, None), started(cell, drawn('background'))
    for camera in ('front', 'side'):
        before, after = plain.depth_m[camera], changed.depth_m[camera]
        assert (after <= before + 1e-6).all()  # what was added stands in front of the floor, nothing went away
        same = before == after
        changed_here = (plain.images[camera] != changed.images[camera]).any(axis=2)
        assert (changed_here & same).mean() > 0.1  # the cloth: other colours at the same depth
        assert 0.02 < (~same).mean() < 0.6  # posters, and the cloth over the table's edges
    start = cell._start
    assert start is not None
    for item in start.layout.poses:  # the items keep their colours
        index = int(start.scene.model.body(item).geomadr[0])
        assert start.scene.model.geom_matid[index] == -1


def test_a_background_grows_with_its_severity(cell: TabletopHost) -> None:
    plain = started(cell, None).images
    for seed in (3, 5):
        sizes = [
            np.mean([np.abs(started(cell, drawn('background', s, seed)).images[c].astype(int) - plain[c]).mean()
                     for c in ('front', 'side')])
            for s in (0.25, 0.5, 0.75, 1.0)
        ]  # fmt: skip
        assert sizes == sorted(sizes)


# --- cameras


def test_a_moved_camera_reports_its_new_pose_and_a_bumped_one_its_old_one(cell: TabletopHost) -> None:
    """The table's own points tell: back-projected with the fresh calibration they lie on it, with the stale one not."""
    plain = started(cell, None)
    for name, is_true in (('camera_moved', True), ('camera_bumped', False)):
        shown = started(cell, drawn(name, 0.5))
        assert (shown.state == plain.state).all()
        for camera in ('front', 'side'):
            pose = shown.cameras[camera].world_from_camera
            usual = plain.cameras[camera].world_from_camera
            assert pose is not None
            assert usual is not None
            assert (shown.images[camera] != plain.images[camera]).mean() > 0.2
            assert np.allclose(pose, usual, atol=1e-9) != is_true
            k = shown.cameras[camera].intrinsics_px
            assert k is not None
            v, u = np.indices(shown.depth_m[camera].shape)
            ray = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(u.shape)], axis=-1)
            height = ((ray * shown.depth_m[camera][..., None]) @ pose[:3, :3].T + pose[:3, 3])[..., 2]
            on_table = np.abs(height) < 0.002
            assert (on_table.mean() > 0.1) == is_true, (name, camera, on_table.mean())
    recorded = cell.scene().cameras
    assert np.allclose(recorded[0].world_from_camera, plain.cameras['front'].world_from_camera)


def test_a_camera_is_bumped_or_moved_and_not_both() -> None:
    both = draw_condition('camera_bumped+camera_moved', 0.5, seed=1)
    with pytest.raises(InputError, match='not both'):
        TabletopHost(cameras=('front',)).prepare(setup('two_block', 1, both))


def test_the_stated_size_of_a_shift_is_that_of_the_camera(cell: TabletopHost) -> None:
    usual = started(cell, None).cameras
    for severity in (0.3, 0.6, 1.0):
        shift = CameraShift.draw(severity, seed=9, is_stale=False)
        for name, camera in started(cell, shift).cameras.items():
            assert camera.world_from_camera is not None
            home = usual[name].world_from_camera
            assert home is not None
            between = np.linalg.inv(home) @ camera.world_from_camera
            assert math.acos((np.trace(between[:3, :3]) - 1) / 2) == pytest.approx(shift.turn_rad, abs=1e-6)
            assert np.linalg.norm(between[:3, 3]) == pytest.approx(shift.shift_m, abs=1e-6)


def test_a_stop_of_light_is_a_stop_in_the_world_too(cell: TabletopHost) -> None:
    """Halved light: pixel values times 2^(-1/2.2) where nothing was clipped."""
    from robotrials.run.conditions import Light

    plain = started(cell, None).images['side'].astype(float)
    dim = Light(severity=0.0, seed=1, stops=-1.0, temperature_k=6500.0, azimuth_rad=0.0, slope=0.0, shadow=0.0)
    dimmed = started(cell, dim).images['side'].astype(float)
    is_open = (plain > 40) & (plain < 235)
    assert np.median(dimmed[is_open] / plain[is_open]) == pytest.approx(2 ** (-1 / 2.2), abs=0.02)


def test_the_key_light_turns_with_the_azimuth() -> None:
    from robotrials.run.conditions import Light

    light = Light(severity=1.0, seed=1, stops=0, temperature_k=6500.0, azimuth_rad=-0.5, slope=0.2, shadow=0.5)
    x, y, z = key_direction(light)
    assert math.atan2(-y, -x) == pytest.approx(-0.5)
    assert -0.9 < z < 0


def test_shadows_can_be_left_out() -> None:
    hosts = [TabletopHost(cameras=('side',), image_size=(96, 128), shadows=s) for s in (True, False)]
    lit, flat = (h.reset('two_block', seed=3).images['side'].astype(int) for h in hosts)
    assert (lit < flat - 20).sum() > 200
    for host in hosts:
        host.close()


def test_cameras_take_pictures_at_their_own_rate() -> None:
    host = TabletopHost(cameras=('front',), image_size=(48, 64), camera_rate_hz=5.0, shadows=False)
    shown = [host.reset('two_block', seed=3).images['front']]
    shown += [host.step(np.array([0, 0, -0.02, 0, 0, 0, 1.0])).images['front'] for _ in range(8)]
    assert [a is b for a, b in itertools.pairwise(shown)] == [True] * 3 + [False] + [True] * 3 + [False]
    assert (shown[0] != shown[-1]).any()
    host.close()
    with pytest.raises(InputError, match='over a whole number'):
        TabletopHost(camera_rate_hz=7.0)


# --- physics and start


def test_a_disturbance_scales_friction_and_loads_the_hand() -> None:
    rough = Disturbance(severity=1, seed=1, friction_scale=2.0, drag_n_s_m=40, pull_n=40, pull_azimuth_rad=math.pi / 2)
    start = reset_cell('two_block', seed=3, world=World(disturbance=rough))
    plain = compile_scene(draw_layout('two_block', seed=3).scene).model
    np.testing.assert_allclose(start.scene.model.geom_friction[:, 0], 2 * plain.geom_friction[:, 0])
    host = TabletopHost(state='privileged')
    started(host, None)
    home = host.signals()['ee_pose'][:3].copy()
    started(host, rough)
    for _ in range(30):
        host.step(host.hold())
    shift = host.signals()['ee_pose'][:3] - home
    assert 0.003 < shift[1] < 0.05
    assert abs(shift[0]) < shift[1]


def test_drag_grows_with_speed() -> None:
    host = TabletopHost(state='privileged')
    lags = []
    for drag in (0.0, 80.0):
        load = Disturbance(severity=1, seed=1, friction_scale=1.0, drag_n_s_m=drag, pull_n=0, pull_azimuth_rad=0)
        started(host, load)
        lag = 0.0
        for _ in range(12):
            host.step(np.array([0, 0.03, 0, 0, 0, 0, 1.0]))
            lag = max(lag, float(host._controller.tool[1] - host.signals()['ee_pose'][1]))
        lags.append(lag)
    assert lags[1] > lags[0] + 0.003


def test_robot_starts_are_safe_and_different() -> None:
    home = np.array(panda.HOME_RAD)
    found = []
    for seed in range(40):
        angles = World(robot_state=RobotState.draw(1.0, seed=seed)).start_angles(home)
        tool = kinematics().tool(angles)
        assert (tool[:3] >= LIMITS.low_m).all()
        assert (tool[:3] <= LIMITS.high_m).all()
        assert tool[2] >= 0.12
        assert (angles > panda.JOINT_LOW_RAD).all()
        assert (angles < panda.JOINT_HIGH_RAD).all()
        found.append(tool[:3])
    assert np.std(found, axis=0).min() > 0.02


def test_no_disturbed_robot_start_touches_anything() -> None:
    """By MuJoCo's own contacts, over the settled scenes with the highest things: bins, and a block on a support."""
    mujoco = pytest.importorskip('mujoco')
    for task, world in (('bin_to_bin', World()), ('two_block', World(support=Support.of(HIGHEST_SUPPORT_M)))):
        start = reset_cell(task, seed=1, world=world)
        model, data, settled = start.scene.model, start.data, start.data.qpos.copy()
        robot = {model.body(name).id for name in ROBOT_BODIES}
        for seed in range(60):
            data.qpos[:] = settled
            moved = World(robot_state=RobotState.draw(1.0, seed=seed)).start_angles(start.angles_rad)
            data.qpos[start.scene.joint_qpos] = moved
            mujoco.mj_fwdPosition(model, data)
            assert not any(robot & set(model.geom_bodyid[c.geom].tolist()) for c in data.contact if c.dist < 0)


def test_disturbed_robot_starts_pass_the_reset_check(cell: TabletopHost) -> None:
    for seed in range(6):
        start = reset_cell('two_block', seed=seed, world=World(robot_state=RobotState.draw(1.0, seed=seed)))
        assert start.draws <= 2


def test_a_joint_draw_brings_all_of_it_about(cell: TabletopHost) -> None:
    chaos = draw_condition('chaos', 1.0, seed=3, kinds=KINDS)
    started(cell, chaos)
    start = cell._start
    assert start is not None
    spec = start.layout.scene
    assert spec.look.light is not None
    assert spec.look.background is not None
    assert spec.friction_scale != 1.0
    assert len(start.layout.distractors) == 4
    assert np.abs(start.angles_rad - np.array(panda.HOME_RAD)).max() > 0.05
    assert cell._load is not None


def test_tasks_of_one_scene_differ_only_in_what_is_asked() -> None:
    layouts = [draw_layout(f'choose_{c}', seed=5, instance=2) for c in ('red', 'green', 'blue')]
    for name in layouts[0].poses:
        assert all((v.poses[name] == layouts[0].poses[name]).all() for v in layouts)
    assert [v.goals[0].item for v in layouts] == ['red_block', 'green_block', 'blue_block']
    assert len({v.instruction for v in layouts}) == 3
