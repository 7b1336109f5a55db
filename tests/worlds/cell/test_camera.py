"""RGB-D cameras: calibration that maps pixels to the world, both drawing back ends, a clear word when none works."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, RigError, SetupError
from robotrials.record import trajectories_equal
from robotrials.record.trajectory import Camera
from robotrials.run import Chunk, Session
from robotrials.run.environment import gl
from robotrials.run.loop import Order, run_episode
from robotrials.run.seam import Observation, Setup
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell import camera as module
from robotrials.worlds.cell.camera import intrinsics
from robotrials.worlds.cell.scripted import ScriptedPolicy


def test_depth_and_calibration_put_a_block_where_it_is() -> None:
    host = TabletopHost(state='privileged', cameras=['front', 'side', 'wrist'], image_size=(240, 320))
    host.prepare(Setup(task='single_block', seed=2, instance=0))
    observation = host.reset('single_block', seed=2)
    truth = host.signals()['body_pose']['red_block']
    found = []
    for name in ('front', 'side'):
        rgb, depth, view = observation.images[name], observation.depth_m[name], observation.cameras[name]
        assert rgb.shape == (240, 320, 3)
        assert depth.shape == (240, 320)
        red = (rgb[..., 0] > 90) & (rgb[..., 1] < 70) & (rgb[..., 2] < 70)
        v, u = np.nonzero(red)
        assert len(u) > 20
        rays = np.linalg.solve(view.intrinsics_px, np.stack([u, v, np.ones(len(u))]))
        points = view.world_from_camera[:3, :3] @ (rays * depth[v, u]) + view.world_from_camera[:3, 3:]
        assert np.all(np.abs(points - truth[:3, None]) < 0.035)
        found.append(points)
    joined = np.concatenate(found, axis=1)
    middle = (joined.max(axis=1) + joined.min(axis=1)) / 2
    np.testing.assert_allclose(middle[:2], truth[:2], atol=0.006)
    views = [observation.cameras[n].world_from_camera[:3, 2] for n in ('front', 'side')]
    assert abs(float(views[0] @ views[1])) < 0.5  # near-orthogonal
    assert host.scene().cameras[0].name == 'front'
    before = observation.cameras['wrist'].world_from_camera.copy()
    after = host.step(np.array([0.0, 0.0, 0.03, 0, 0, 0, 1.0])).cameras['wrist'].world_from_camera
    assert not np.array_equal(before, after)
    host.close()


def _drawing_host() -> TabletopHost:
    host = TabletopHost(cameras=['front'], image_size=(48, 64))
    host.reset('single_block', seed=2)
    return host


def test_a_host_that_nobody_closed_changes_no_picture_of_another() -> None:
    """OpenGL frees by number, in the context that is current: another host's buffers would go."""
    forgotten, host = _drawing_host(), _drawing_host()
    before = host.pictures()['front']
    del forgotten
    gc.collect()
    for _ in range(2):
        after = host.pictures()['front']
        assert np.array_equal(before.rgb, after.rgb)
        assert np.array_equal(before.depth_m, after.depth_m)
        forgotten = _drawing_host()
        host._pictures._make_current()
        del forgotten
        gc.collect()
    host.close()


def test_a_picture_that_opengl_did_not_give_is_a_broken_rig(monkeypatch: pytest.MonkeyPatch) -> None:
    host = _drawing_host()
    monkeypatch.setattr(module.load_mujoco(), 'mjr_readPixels', lambda *_: None)
    with pytest.raises(RigError, match="camera 'front': OpenGL gave no picture"):
        host.pictures()
    host.close()


@pytest.mark.parametrize('size', [(480, 640), (121, 160)])
def test_depth_is_that_of_a_ray_through_the_centre_of_the_pixel(size: tuple[int, int]) -> None:
    """The physics engine's own ray casting is the truth: half a pixel would be a millimetre on the table."""
    host = TabletopHost(cameras=['front', 'side'], image_size=size)
    host.reset('three_block', seed=3)
    rng = np.random.default_rng(0)
    for picture in host.pictures().values():
        v, u = (rng.integers(0, n, 800) for n in size)
        cast = cast_depth_m(host, picture.calibration, u, v)
        off = np.abs(picture.depth_m[v, u] - cast)[np.isfinite(cast) & np.isfinite(picture.depth_m[v, u])]
        assert len(off) > 500
        assert np.median(off) < 2e-6
        assert np.mean(off < 1e-3) > 0.98  # the rest straddles edges
    host.close()


def cast_depth_m(host: TabletopHost, view: Camera, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    import mujoco

    start = host._start
    assert start is not None
    rays = np.linalg.solve(view.intrinsics_px, np.stack([u, v, np.ones(len(u))])).T @ view.world_from_camera[:3, :3].T
    found, length = np.empty(len(u)), np.linalg.norm(rays, axis=1)
    for i, ray in enumerate(rays / length[:, None]):
        hit = np.zeros(1, dtype=np.int32)
        far = mujoco.mj_ray(start.scene.model, start.data, view.world_from_camera[:3, 3], ray, None, 1, -1, hit)
        found[i] = far / length[i] if far >= 0 else np.inf
    return found


def test_intrinsics_centre_the_image() -> None:
    matrix = intrinsics(90.0, height_px=100, width_px=200)
    assert matrix[0, 0] == pytest.approx(50)
    assert matrix[:2, 2].tolist() == [99.5, 49.5]


DRAW = """
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import working_backend
host = TabletopHost(cameras=['front'], image_size=(48, 64))
image = host.reset('single_block', seed=0).images['front']
host.close()
print(working_backend(), int(image.std() > 10))
"""


@pytest.mark.parametrize('backend', ['egl', 'osmesa'])
def test_both_back_ends_draw(backend: str) -> None:
    environment = {**os.environ, 'MUJOCO_GL': backend}
    environment.pop('PYOPENGL_PLATFORM', None)
    ran = subprocess.run([sys.executable, '-c', DRAW], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.split() == [backend, '1']


def test_no_back_end_is_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    module._probed.cache_clear()
    monkeypatch.delenv('MUJOCO_GL', raising=False)
    monkeypatch.setattr(gl, '_PROBE', 'raise OSError("no {backend} here")')
    with pytest.raises(SetupError, match=r'neither works here.*no egl here.*no osmesa here.*robotrials env doctor'):
        module.working_backend()
    monkeypatch.setenv('MUJOCO_GL', 'vulkan')
    with pytest.raises(SetupError, match="MUJOCO_GL is 'vulkan'"):
        module.working_backend()
    module._probed.cache_clear()


def test_image_size_out_of_bounds_is_refused() -> None:
    with pytest.raises(InputError, match='image_size is 4 x 4'):
        TabletopHost(cameras=['front'], image_size=(4, 4))


class Lavish(TabletopHost):
    """Draws every step, whoever looks."""

    def expect_look(self, is_looked_at: bool) -> None:
        super().expect_look(True)


class Noting:
    """A session that notes the frames it is shown."""

    def __init__(self, session: Session, seen: list[bytes]) -> None:
        self._session, self._seen = session, seen

    def act(self, observation: Observation) -> Chunk:
        self._seen.append(observation.images['front'].tobytes() + observation.depth_m['front'].tobytes())
        return self._session.act(observation)


class NotingPolicy(ScriptedPolicy):
    def __init__(self) -> None:
        super().__init__(temper='careful', chunk_length=5)
        self.seen: list[bytes] = []

    def start(self, setup: Setup, *, seed: int) -> Any:
        return Noting(super().start(setup, seed=seed), self.seen)


def test_a_chunked_policy_sees_the_frames_of_every_step_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the frames that are looked at are drawn; states, frames and outcome stay what they were."""
    drawn: list[str] = []
    pictures = TabletopHost.pictures

    def counted(host: TabletopHost) -> Any:
        drawn.append(type(host).__name__)
        return pictures(host)

    monkeypatch.setattr(TabletopHost, 'pictures', counted)
    rollouts, policies = [], []
    for make in (TabletopHost, Lavish):
        host, policy = make(state='privileged', cameras=['front'], image_size=(48, 64)), NotingPolicy()
        setup = Setup(task='single_block', seed=2, instance=0)
        rollouts.append(run_episode(host, policy, setup, order=Order(time_cap_s=2.0, policy_seed=1)))
        policies.append(policy)
        host.close()
    assert policies[0].seen == policies[1].seen
    assert drawn.count('TabletopHost') == len(policies[0].seen)
    assert drawn.count('Lavish') == rollouts[1].n_steps + 1
    first, second = (rollout.trajectory for rollout in rollouts)
    assert first is not None
    assert second is not None
    assert trajectories_equal(first, second)
