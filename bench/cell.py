"""The embedded cell: what host and recorder add to bare MuJoCo, with cameras or not; what a second worker gives."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, Seconds, against
from robotrials.run import read_plan, run_trial
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import FilmOptions, RecordingOptions
from robotrials.run.recording import Recorder
from robotrials.run.seam import HostSpec, Setup, StepPart
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import Pictures
from robotrials.worlds.cell.scene import SUBSTEPS, load_mujoco
from robotrials.worlds.cell.scripted import ScriptedPolicy

STEPS = 240
ROUNDS = 5
FRAMES = 12
FILM_S = 12.0
SETUP = Setup(task='bin_to_bin', seed=0, stratum='spoon')


def run() -> list[Result]:
    return [stepping(), late_stepping(), rendering(), filming(), workers()]


def _started(**options: Any) -> tuple[TabletopHost, Any, Any]:
    host = TabletopHost(state='privileged', **options)
    host.prepare(SETUP)
    host.reset(SETUP.task, seed=SETUP.seed)
    start = host._start
    assert start is not None
    return host, start.scene.model, start.data


def _inputs() -> tuple[list[np.ndarray], np.ndarray]:
    """The actions of a scripted episode, and the actuator inputs they led to."""
    host, _, _ = _started()
    observation = host.reset(SETUP.task, seed=SETUP.seed)
    session = ScriptedPolicy(temper='careful').start(SETUP, seed=1)
    actions: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    refer = host._controller.references

    def watched(finger_m: float, *_: object) -> np.ndarray:
        inputs.append(refer(finger_m))
        return inputs[-1]

    host._controller.references = watched  # type: ignore[method-assign]
    for _ in range(STEPS):
        actions.append(session.act(observation).actions[0])
        observation = host.step(actions[-1])
    return actions, np.array(inputs)


def stepping() -> Result:
    """The same inputs for the same substeps of the same scene, bare and through host and recorder, taking turns."""
    mujoco = load_mujoco()
    actions, inputs = _inputs()
    ours: list[float] = []
    bare: list[float] = []
    host, _, _ = _started()
    for _ in range(ROUNDS):
        observation = host.reset(SETUP.task, seed=SETUP.seed)
        recorder = _recorder(host.spec)
        started = time.process_time()
        for number, action in enumerate(actions):
            observation = host.step(action)
            recorder.record(number * 0.05, observation, raw=action, sent=action, delay=None, signals=host.signals())
        ours.append(time.process_time() - started)
        host.reset(SETUP.task, seed=SETUP.seed)
        model, data = host._start.scene.model, host._start.data  # type: ignore[union-attr]
        started = time.process_time()
        for rows in inputs:
            for row in rows:
                data.ctrl[:9] = row
                mujoco.mj_step(model, data)
        bare.append(time.process_time() - started)
    work = f'{STEPS} control steps of {SUBSTEPS} substeps, 4 spoons, no cameras, recorder on; CPU time'
    return against(
        'cell/step', ours_s=Seconds.of(ours), peer='bare mj_step', peer_s=Seconds.of(bare), target=0.7, work=work
    )


def late_stepping() -> Result:
    """The same actions, each taking over from the one before at substep 8, as answers that are late by 40 ms do."""
    mujoco = load_mujoco()
    actions, inputs = _inputs()
    ours: list[float] = []
    bare: list[float] = []
    host, _, _ = _started()
    for _ in range(ROUNDS):
        observation = host.reset(SETUP.task, seed=SETUP.seed)
        recorder = _recorder(host.spec)
        last = host.hold()
        started = time.process_time()
        for number, action in enumerate(actions):
            observation = host.step_through([StepPart(0, last, 8), StepPart(8, action, SUBSTEPS + 8)])
            recorder.record(number * 0.05, observation, raw=action, sent=action, delay=None, signals=host.signals())
            last = action
        ours.append(time.process_time() - started)
        host.reset(SETUP.task, seed=SETUP.seed)
        model, data = host._start.scene.model, host._start.data  # type: ignore[union-attr]
        started = time.process_time()
        for rows in inputs:
            for row in rows:
                data.ctrl[:9] = row
                mujoco.mj_step(model, data)
        bare.append(time.process_time() - started)
    work = f'{STEPS} control steps in two parts of 8 and 12 substeps, 4 spoons, no cameras, recorder on; CPU time'
    return against(
        'cell/late step', ours_s=Seconds.of(ours), peer='bare mj_step', peer_s=Seconds.of(bare), target=0.6, work=work
    )


def _recorder(spec: HostSpec) -> Recorder:
    return Recorder(spec, RecordingOptions(), most_steps=STEPS, with_latency=False, scene=None)


def rendering() -> Result:
    """Three RGB-D views: the host's observation against mjr_render and mjr_readPixels of the same views."""
    mujoco = load_mujoco()
    host, model, data = _started(cameras=('wrist', 'front', 'side'), image_size=(480, 640))
    pictures = host._pictures
    ours: list[float] = []
    bare: list[float] = []
    host.pictures()
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(FRAMES):
            host._observe()
        ours.append(time.process_time() - started)
        started = time.process_time()
        for _ in range(FRAMES):
            for name in pictures.cameras:
                rgb, depth = np.empty((480, 640, 3), np.uint8), np.empty((480, 640), np.float32)
                pictures._view.fixedcamid = int(model.camera(name).id)
                everything = mujoco.mjtCatBit.mjCAT_ALL.value
                mujoco.mjv_updateScene(model, data, pictures._option, None, pictures._view, everything, pictures._scene)
                mujoco.mjr_render(pictures._rect, pictures._scene, pictures._context)
                mujoco.mjr_readPixels(rgb, depth, pictures._rect, pictures._context)
        bare.append(time.process_time() - started)
    host.close()
    work = f'{FRAMES} observations of 3 RGB-D views at 640 x 480; CPU time'
    return against(
        'cell/render', ours_s=Seconds.of(ours), peer='bare mjr_render', peer_s=Seconds.of(bare), target=0.85, work=work
    )


def filming() -> Result:
    """A filmed episode against the same one unfilmed and mjr_render of the same frames, taking turns; CPU time."""
    mujoco = load_mujoco()
    host = TabletopHost(state='privileged')
    policy = ScriptedPolicy(temper='careful')
    orders = {
        film: Order(time_cap_s=FILM_S, policy_seed=1, recording=RecordingOptions(film=film)) for film in (True, False)
    }
    pictures = Pictures((), height_px=120, width_px=160, has_shadows=False)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS + 1):  # the first makes both buffers
        started = time.process_time()
        filmed = run_episode(host, policy, SETUP, order=orders[True])
        ours.append(time.process_time() - started)
        footage = host.film(FilmOptions())
        scene = host._start.scene  # type: ignore[union-attr]
        data, rgb = mujoco.MjData(scene.model), np.empty((120, 160, 3), np.uint8)
        started = time.process_time()
        run_episode(host, policy, SETUP, order=orders[False])
        pictures._prepare(scene.model)
        for shot in footage.shots:
            pictures._view.fixedcamid = int(scene.model.camera(shot.camera.name).id)
            for state in footage.states.states:
                data.qpos[:] = state
                mujoco.mj_kinematics(scene.model, data)
                mujoco.mj_camlight(scene.model, data)
                everything = mujoco.mjtCatBit.mjCAT_ALL.value
                mujoco.mjv_updateScene(
                    scene.model, data, pictures._option, None, pictures._view, everything, pictures._scene
                )
                mujoco.mjr_render(pictures._rect, pictures._scene, pictures._context)
                mujoco.mjr_readPixels(rgb, None, pictures._rect, pictures._context)
        bare.append(time.process_time() - started)
    assert not filmed.film_note, filmed.film_note
    host.close()
    pictures.close()
    work = f'an episode of {FILM_S:g} s, 2 cameras of 160 x 120 at 5 frames per second, encoded as H.264; CPU time'
    peer = 'the unfilmed run and bare mjr_render'
    return against(
        'cell/film', ours_s=Seconds.of(ours[1:]), peer=peer, peer_s=Seconds.of(bare[1:]), target=0.85, work=work
    )


PLAN = """
seed = 3
episodes_per_cell = 20
time_cap_s = 30
tasks = [{name = "bin_to_bin", items = 2}]
strata = [{name = "spoon"}]
host = {use = "tabletop", options = {state = "privileged"}}
recording = {film = "off"}
[policies.a]
use = "scripted"
options = {temper = "careful"}
[policies.b]
use = "scripted"
options = {temper = "drifting"}
"""


def workers() -> Result:
    """A whole trial with one worker process and with two, cameras off."""
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / 'trial.toml'
        trial.write_text(PLAN, encoding='utf-8')
        for count in (1, 2):
            started = time.perf_counter()
            run_trial(read_plan(trial), Path(folder) / f'store{count}', workers=count)
            took[count] = time.perf_counter() - started
    work = '40 episodes of 2 spoons, start of the workers included'
    return against(
        'cell/two workers', ours_s=took[2], peer='one worker (our own)', peer_s=took[1], target=1.7, work=work
    )
