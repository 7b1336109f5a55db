"""Pictures across tasks, with and without instrumentation, and when rendering is broken."""

from __future__ import annotations

import json
import sys

import numpy as np

from robotrials.errors import RigError
from robotrials.run.seam import Setup
from robotrials.worlds.arm.signal import REST
from robotrials.worlds.libero.host import LiberoHost

ASSETS = sys.argv[1]

DOWN = np.array([0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0])


def frames(host, task, condition='nominal', **parameters):
    host.prepare(Setup(task=task, seed=1, condition=condition, condition_parameters=parameters))
    shown = [host.reset(task, seed=1), *(host.step(DOWN) for _ in range(2))]
    return {name: [s.images[name].copy() for s in shown] for name in ('agentview', 'wrist')}


def late_frames(host, task):
    """Frames that were left out and drawn afterwards, and one drawn in time after many that were not."""
    host.prepare(Setup(task=task, seed=1))
    shown = [host.reset(task, seed=1)]
    for _ in range(2):
        host.expect_look(False)
        assert not host.step(DOWN).images
        shown.append(host.look())
    return {name: [s.images[name].copy() for s in shown] for name in ('agentview', 'wrist')}


def same(a, b):
    return all(np.array_equal(x, y) for name in a for x, y in zip(a[name], b[name], strict=True))


def opened(**more):
    return LiberoHost(
        suite='libero-object', cameras=['agentview', 'wrist'], image_size=[96, 128], assets=ASSETS, **more
    )


host = opened()
first, other, again = frames(host, 'task_0'), frames(host, 'task_3'), frames(host, 'task_0')
report = {
    'shape': first['wrist'][0].shape,
    'late': same(first, late_frames(host, 'task_0')),
    'again_after_late': same(first, frames(host, 'task_0')),
    'again': same(first, again),
    'other': not same(first, other),
    'moves': all(not np.array_equal(f[0], f[2]) for f in first.values()),
    'dull': min(float(f[0].std()) for f in first.values()),
    'camera': not same(first, frames(host, 'task_0', 'camera_pose', shift_m=0.05)),
    'wrist_kept': np.array_equal(first['wrist'][0], frames(host, 'task_0', 'camera_pose', shift_m=0.05)['wrist'][0]),
}
host.close()


def native_frames(number):
    """The same in LIBERO's own words: everything compiled, computed and drawn anew at every step."""
    from libero.libero import benchmark
    from libero.libero.envs.env_wrapper import ControlEnv

    suite = benchmark.get_benchmark('libero_object')()
    env = ControlEnv(
        bddl_file_name=suite.get_task_bddl_file_path(number), camera_names=['agentview', 'robot0_eye_in_hand'],
        camera_heights=96, camera_widths=128,
    )  # fmt: skip
    env.seed(0)
    env.reset()
    env.set_init_state(suite.get_task_init_states(number)[0])
    for action in [REST] * 9:
        env.step(action)
    shown = [env.step(action)[0] for action in (REST, DOWN, DOWN)]
    env.close()
    return {
        name: [s[f'{camera}_image'] for s in shown]
        for name, camera in (('agentview', 'agentview'), ('wrist', 'robot0_eye_in_hand'))
    }


report['native'] = same(first, native_frames(0))
bare = opened(instrumented=False)
report['uninstrumented'] = same(first, frames(bare, 'task_0'))
context = bare._env.sim._render_context_offscreen
context.render = lambda *given, **named: None
try:
    for _ in range(10):
        bare.step(DOWN)
    report['stale'] = 'not seen'
except RigError as error:
    report['stale'] = str(error)
import mujoco  # noqa: E402 - LIBERO is set up first

mujoco.mjr_render = lambda *given, **named: None
try:
    bare.reset('task_0', seed=1)
    report['stale_at_reset'] = 'not seen'
except RigError as error:
    report['stale_at_reset'] = str(error)
print('RESULT' + json.dumps({k: bool(v) if isinstance(v, np.bool_) else v for k, v in report.items()}))
