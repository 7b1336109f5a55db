"""A scripted episode, played again in LIBERO's own words with MuJoCo read by hand after every substep."""

from __future__ import annotations

import json
import sys

import mujoco
import numpy as np

from robotrials.run.seam import Setup
from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy

ASSETS = sys.argv[1]

host = LiberoHost(suite='libero-object', assets=ASSETS, state='privileged')
setup = Setup(task='task_0', seed=5, instance=3)
host.prepare(setup)
shown = host.reset('task_0', seed=5)
session = ScriptedLiberoPolicy(manner='hasty').start(setup, seed=0)
rows = []
while host.outcome() is None:
    action = session.act(shown).actions[0]
    shown = host.step(action)
    known = host.signals()
    own = (known['simulator_state'], shown.state[:8], known['contacts'], known['joint_torque_nm'])
    rows.append((action, *own, host.outcome()))
limit = known['joint_torque_limit_nm']

# The same protocol in LIBERO's own words, without any of ours, and MuJoCo read by hand after every substep.
from libero.libero import benchmark  # noqa: E402 - the host has set LIBERO up
from libero.libero.envs.env_wrapper import ControlEnv  # noqa: E402

suite = benchmark.get_benchmark('libero_object')()
env = ControlEnv(bddl_file_name=suite.get_task_bddl_file_path(0), use_camera_obs=False, has_offscreen_renderer=False)
env.seed(0)
env.reset()
observed = env.set_init_state(suite.get_task_init_states(0)[3])
for _ in range(10):
    env.step([0, 0, 0, 0, 0, 0, -1])
model, data = env.sim.model._model, env.sim.data._data


def thing(geom):
    name = model.body(model.geom_bodyid[geom]).name
    return name[:-5] if name.endswith('_main') else name


native, seen = env.sim.step, []


def step():
    native()
    total = {}
    for i in range(data.ncon):
        force = np.zeros(6)
        mujoco.mj_contactForce(model, data, i, force)
        pair = frozenset((thing(data.contact[i].geom1), thing(data.contact[i].geom2)))
        total[pair] = total.get(pair, 0.0) + float(np.linalg.norm(force[:3]))
    joints = [model.joint(f'robot0_joint{j + 1}').dofadr[0] for j in range(7)]
    seen.append((total, [data.qfrc_actuator[j] for j in joints]))


env.sim.step = step
report = {
    'steps': len(rows),
    'outcome': rows[-1][5].value,
    'same_state': True,
    'same_seen': True,
    'same_success': True,
    'force_error': 0.0,
    'torque_error': 0.0,
    'largest_n': 0.0,
    'missed_n': 0.0,
    'substeps': set(),
    'pairs': True,
}
for action, state, own, contacts, torque, outcome in rows:
    seen.clear()
    observed, _, done, _ = env.step(action)
    report['same_state'] &= np.array_equal(env.get_sim_state(), state)
    hand, fingers = observed['robot0_eef_pos'], observed['robot0_gripper_qpos']
    report['same_seen'] &= np.array_equal(hand, own[:3]) and np.array_equal(fingers, own[6:8])
    is_success = outcome is not None and outcome.value == 'success'
    report['same_success'] &= bool(done) == is_success == bool(env.check_success())
    peaks = {}
    for total, _ in seen:
        for pair, force in total.items():
            peaks[pair] = max(peaks.get(pair, 0.0), force)
    peaks = {pair: force for pair, force in peaks.items() if force > 1e-3}
    ours = {frozenset((a, b)): force for a, b, force in contacts}
    report['pairs'] &= ours.keys() == peaks.keys()
    for pair, force in peaks.items():
        report['force_error'] = max(report['force_error'], abs(force - ours.get(pair, 0.0)) / max(force, 1.0))
        report['largest_n'] = max(report['largest_n'], force)
        report['missed_n'] = max(report['missed_n'], force - seen[-1][0].get(pair, 0.0))
    by_hand = np.array([t for _, t in seen])
    by_hand = by_hand[np.abs(by_hand).argmax(axis=0), np.arange(7)]
    report['torque_error'] = max(report['torque_error'], float(np.abs(by_hand - torque).max()))
    report['substeps'].add(len(seen))
report['substeps'] = sorted(report['substeps'])
report['limit_nm'] = list(limit)
report['actuator_nm'] = [float(model.actuator_ctrlrange[i, 1]) for i in range(7)]
print('RESULT' + json.dumps({k: bool(v) if isinstance(v, np.bool_) else v for k, v in report.items()}))
