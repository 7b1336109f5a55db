"""Three RGB-D cameras over rosbridge: their views are kept and scored, and what is wrong with them is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.worlds.bridge import CellBridge, depth_options, png
from tests.worlds.controllers import StatePolicy

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError
from robotrials.formats.ros_signal import depth_m, image, read_lens
from robotrials.measure.geometry.camera_score import score_episode
from robotrials.measure.geometry.projection import read_projections
from robotrials.record import Outcome, read_store
from robotrials.run import Chunk, Observation, PolicySpec, Session, Setup
from robotrials.run.fault import FaultKind
from robotrials.run.loop import Order, run_episode
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, Target
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.scene import load_mujoco
from robotrials.worlds.depth import DepthEntry
from robotrials.worlds.rosbridge import RosbridgeHost

TASK = 'single_block'
POSE = tuple(np.eye(4).ravel().tolist())


@pytest.fixture
def bridge() -> Iterator[CellBridge]:
    opened = CellBridge(has_depth=True)
    yield opened
    opened.close()


def _shifted(name: str, x_m: float, z_m: float = 0.0) -> Callable[[TabletopHost], None]:
    def disturb(cell: TabletopHost) -> None:
        start = cell._begun()
        at = start.scene.item_qpos[name]
        start.data.qpos[at : at + 3] += (x_m, 0.0, z_m)
        load_mujoco().mj_forward(start.scene.model, start.data)

    return disturb


def test_views_come_as_the_cell_has_them_and_are_scored_as_its_own(bridge: CellBridge, tmp_path: Path) -> None:
    host = RosbridgeHost(**depth_options(bridge, tmp_path))
    host.reset(TASK, seed=3)
    assert host.has_views
    start, end, known = host.views(), host.views(is_over=True), host.known_scene()
    assert set(start) == {'front', 'side', 'gallery'}
    cell = TabletopHost(cameras=[], watchers=('front', 'side', 'gallery'), watcher_noise='default')
    cell.reset(TASK, seed=3)
    truth = cell.views(is_over=True)
    for name, view in end.items():
        inner = np.s_[30:-30, 40:-40]
        off = np.abs(view.depth_m[inner] - truth[name].depth_m[inner])
        assert np.nanmedian(off) < 0.002, name  # the lens is taken out, and depth is in steps of a millimetre
        assert view.t_s >= 0
    score = score_episode(start, end, known)
    assert score.success is False, score  # nobody has moved the block
    assert score.iou is not None
    host.close()
    cell.close()


@pytest.mark.parametrize(
    ('fault', 'error', 'match'),
    [
        ('skewed', RigError, 'colour and depth are -0.200 s apart, wanted at most 0.034'),
        ('unstamped', RigError, 'has no stamp'),
        ('apart', RigError, 'cameras are 1.000 s apart'),
        ('half', AnswerError, r'depth \(120, 160\).*aligned to colour'),
        ('unknown_lens', AnswerError, "a lens of model 'fisheye'"),
    ],
)
def test_images_that_do_not_belong_together_are_refused(
    bridge: CellBridge, tmp_path: Path, fault: str, error: type[Exception], match: str
) -> None:
    bridge.depth_fault = fault
    host = RosbridgeHost(**depth_options(bridge, tmp_path, camera_age_s=4.0))
    with pytest.raises(error, match=match):
        host.reset(TASK, seed=3)
    host.close()


def test_cameras_that_fall_silent_leave_the_episode_unscored_and_not_failed(bridge: CellBridge, tmp_path: Path) -> None:
    host = RosbridgeHost(**depth_options(bridge, tmp_path, camera_age_s=3.0))
    host.reset(TASK, seed=3)
    bridge.depth_fault = 'frozen'
    with pytest.raises(NoAnswer, match='silence'):
        host.views(is_over=True)
    host.close()


@pytest.mark.parametrize(
    ('x_m', 'z_m', 'match'),
    [(0.004, 0.0, ''), (0.03, 0.0, 'moved by'), (0.0, -0.5, 'missing')],
)
def test_a_reset_that_is_not_as_planned_is_invalid(
    bridge: CellBridge, tmp_path: Path, x_m: float, z_m: float, match: str
) -> None:
    cell = TabletopHost(cameras=[])
    cell.reset(TASK, seed=3)
    name = next(iter(cell._begun().scene.item_qpos))
    bridge.disturb = _shifted(name, x_m, z_m)
    host = RosbridgeHost(**depth_options(bridge, tmp_path))
    home = TabletopHost(control='joint').reset(TASK, seed=3).state
    policy = StatePolicy(host.spec, lambda state: np.array(home))
    rollout = run_episode(host, policy, Setup(task=TASK, seed=3), order=Order(time_cap_s=0.2, policy_seed=0))
    if match:
        assert rollout.fault is not None
        assert rollout.fault.kind is FaultKind.HOST_CRASH, rollout.fault
        assert match in str(rollout.fault), rollout.fault
    else:
        assert rollout.fault is None, rollout.fault
    host.close()


class Still:
    """A policy that holds the arm where it is."""

    def __init__(self) -> None:
        action = ActionConvention(
            control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT, n_joints=7,
            gripper=Gripper.OPEN_IS_ONE,
        )  # fmt: skip
        self.spec = PolicySpec(name='still', action=action)

    def start(self, setup: Setup, *, seed: int) -> Session:
        return self

    def act(self, observation: Observation) -> Chunk:
        return Chunk(np.asarray(observation.state, dtype=float)[None])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return '{' + ', '.join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + '}'
    return json.dumps(value)


@pytest.mark.platform
def test_a_trial_over_rosbridge_keeps_views_that_anyone_scores(bridge: CellBridge, tmp_path: Path) -> None:
    """As a user runs it; the second reset leaves the block elsewhere, and is no failure of the policy."""
    from tests.cli.command import robotrials

    resets = iter(range(100))
    shift = _shifted('red_block', 0.05)
    bridge.disturb = lambda cell: shift(cell) if next(resets) == 1 else None
    options = _toml(depth_options(bridge, tmp_path))
    (tmp_path / 'trial.toml').write_text(f"""
seed = 5
episodes_per_cell = 2
time_cap_s = 0.3
[host]
use = "rosbridge"
options = {options}
[[tasks]]
name = "{TASK}"
[policies.still]
use = "tests.worlds.test_depth:Still"
[analysis]
success = "both"
[faults]
attempts = 1
[blinding]
enabled = false
[loop]
clock = "wall"
""")
    store = tmp_path / 'store'
    robotrials('run', tmp_path / 'trial.toml', '--store', store)
    outcomes = {e.outcome: e for e in read_store(store).episodes()}
    assert set(outcomes) == {Outcome.TIMEOUT, Outcome.INVALID}
    assert 'reset: red_block moved by' in outcomes[Outcome.INVALID].reason
    robotrials('geometry', 'score', store, '--write', '--by', 'test')
    opened = read_store(store)
    (score,) = read_projections(opened).values()
    assert score.success is False, score
    assert {c.camera for c in score.cameras} == {'front', 'side', 'gallery'}
    told = robotrials('geometry', 'place', store, '--cameras', '3')
    assert 'as it is: front' in told
    assert 'placed' in told


# --- messages, one by one


def test_every_encoding_is_read() -> None:
    rng = np.random.default_rng(1)
    rgb = rng.integers(0, 255, (4, 6, 3), dtype=np.uint8)
    depth = rng.integers(0, 5000, (4, 6)).astype(np.uint16)

    def raw(pixels: np.ndarray[Any, Any], encoding: str, *, pad: int = 0, big: bool = False) -> dict[str, Any]:
        rows = np.ascontiguousarray(pixels).view(np.uint8).reshape(4, -1)
        rows = np.pad(rows, [(0, 0), (0, pad)])
        return {'height': 4, 'width': 6, 'step': rows.shape[1], 'encoding': encoding, 'is_bigendian': int(big),
                'data': base64.b64encode(rows.tobytes()).decode()}  # fmt: skip

    assert (image(raw(rgb, 'rgb8', pad=5)) == rgb).all()
    assert (image(raw(rgb[..., ::-1], 'bgr8')) == rgb).all()
    alpha = np.concatenate([rgb[..., ::-1], np.zeros((4, 6, 1), np.uint8)], axis=2)
    assert (image(raw(alpha, 'bgra8')) == rgb).all()
    assert (image(raw(depth, '16UC1', pad=4)) == depth).all()
    assert (image(raw(depth.astype('>u2'), '16UC1', big=True)) == depth).all()
    assert (image(raw(depth.astype('<f4'), '32FC1')) == depth).all()
    assert (image({'format': 'rgb8; png compressed', 'data': png(rgb)}) == rgb).all()
    packed = base64.b64encode(bytes(12) + base64.b64decode(png(depth))).decode()  # type: ignore[arg-type]
    assert (image({'format': '16UC1; compressedDepth png', 'data': packed}) == depth).all()
    metres = depth_m(image(raw(depth, '16UC1')))
    assert np.isnan(metres[depth == 0]).all()
    assert metres[depth > 0] == pytest.approx(0.001 * depth[depth > 0])


@pytest.mark.parametrize(
    ('changes', 'match'),
    [
        ({'encoding': 'yuv422'}, 'encoding'), ({'step': 3}, 'steps of 3'), ({'height': 9999}, '9999'),
        ({'data': '***'}, 'cannot be read'), ({'data': 'AAAA'}, '3 bytes'), ({'width': None}, 'without height'),
        ({'format': 'jpeg', 'data': 'AAAA'}, 'cannot be read'),
    ],
)  # fmt: skip
def test_an_image_that_is_none_is_refused(changes: dict[str, Any], match: str) -> None:
    message = {'height': 2, 'width': 2, 'step': 6, 'encoding': 'rgb8', 'data': base64.b64encode(bytes(12)).decode()}
    with pytest.raises(InputError, match=match):
        image({**message, **changes})


def test_a_calibration_that_is_none_is_refused() -> None:
    info = {'height': 2, 'width': 3, 'k': [100, 0, 1, 0, 100, 1, 0, 0, 1], 'd': [0.1, 0, 0, 0, 0]}
    lens = read_lens({**info, 'distortion_model': 'plumb_bob'})
    assert (lens.intrinsics_px[0, 0], lens.distortion[0], lens.shape) == (100, 0.1, (2, 3))
    for changes, match in (
        ({'k': [0] * 9}, 'not calibrated'),
        ({'k': [1, 2]}, 'cannot be read'),
        ({'distortion_model': 'equidistant'}, 'lens'),
    ):
        with pytest.raises(InputError, match=match):
            read_lens({**info, **changes})


def test_options_that_do_not_belong_together_are_refused() -> None:
    for told in ({'world_from_camera': POSE[:9]}, {'world_from_camera': POSE, 'depth_kind': 'film'}):
        with pytest.raises(InputError):
            DepthEntry(color='/c', depth='/d', info='/i', **told)  # type: ignore[arg-type]
    with pytest.raises(InputError, match='belong together'):
        RosbridgeHost(
            url='ws://127.0.0.1:1',
            joints=['a'],
            command={'topic': '/c', 'kind': 'twist'},
            known='x.json',
            connect_s=0.1,
        )
