"""Runs inside robosuite's environment: what the host says, against MuJoCo asked by hand. Prints one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import mujoco
import numpy as np

from robotrials.worlds.robosuite.host import RobosuiteHost

PUSH = np.array([0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0])
STEPS = 25


def by_hand(host: RobosuiteHost) -> list[dict[str, Any]]:
    """Push the hand onto the table; after every substep read contacts and torques as MuJoCo's manual has it."""
    env = host._env
    sim, robot = env.sim, env.robots[0]
    model, data = sim.model._model, sim.data._data
    joints = np.array(robot._ref_joint_vel_indexes)
    substeps: list[tuple[dict[tuple[str, str], float], list[float]]] = []
    hooked = sim.step2

    def step2() -> None:
        hooked()
        totals: dict[tuple[str, str], float] = {}
        for i in range(data.ncon):
            force = np.zeros(6)
            mujoco.mj_contactForce(model, data, i, force)
            bodies = [model.body(model.geom_bodyid[g]).name for g in (data.contact[i].geom1, data.contact[i].geom2)]
            first, second = sorted('cube' if name.startswith('cube') else name for name in bodies)
            totals[first, second] = totals.get((first, second), 0.0) + float(np.linalg.norm(force[:3]))
        substeps.append((totals, data.qfrc_actuator[joints].tolist()))

    sim.step2 = step2
    compared = []
    for _ in range(STEPS):
        substeps.clear()
        host.step(PUSH)
        peaks: dict[tuple[str, str], float] = {}
        for totals, _ in substeps:
            for pair, force_n in totals.items():
                peaks[pair] = max(peaks.get(pair, 0.0), force_n)
        torques = np.array([t for _, t in substeps])
        largest = torques[np.abs(torques).argmax(axis=0), np.arange(torques.shape[1])]
        signals = host.signals()
        told = {tuple(sorted((a, b))): force for a, b, force in signals['contacts']}
        compared.append(
            {
                'n_substeps': len(substeps),
                'by_hand': sorted([*pair, force] for pair, force in peaks.items() if force > 1e-3),
                'told': sorted([*pair, force] for pair, force in told.items()),
                'torque_by_hand': largest.tolist(),
                'torque_told': np.asarray(signals['joint_torque_nm']).tolist(),
                'at_the_end': sorted([*pair, force] for pair, force in substeps[-1][0].items() if force > 1e-3),
            }
        )
    return compared


def kitchen(host: RobosuiteHost) -> dict[str, Any]:
    """robosuite's own scene with what RoboCasa's kitchens have besides: words, a map of objects, fixtures."""
    from robotrials.worlds.robosuite.host import read_cast

    host.reset('Stack', seed=1)
    env = host._env
    env.set_ep_meta({'lang': 'put the red cube onto the green one'})
    known = {thing.name: thing for thing in env.model.mujoco_objects}
    env.objects = {'obj': known['cubeA'], 'distr_counter': known['cubeB']}
    env.model.mujoco_objects.clear()
    cast = read_cast(env, ['obj', 'obj_*'])
    return {'instruction': host.instruction(), 'roles': dict(cast.roles), 'targets': cast.targets}


def states(host: RobosuiteHost) -> str:
    import hashlib

    total = hashlib.sha256(host.reset('Lift', seed=3).state.tobytes())
    for _ in range(5):
        seen = host.step(PUSH)
        total.update(seen.state.tobytes() + host.signals()['simulator_state'].tobytes())
    return total.hexdigest()


def main() -> None:
    measured = RobosuiteHost()
    first = states(measured)
    measured.reset('Lift', seed=3)
    found = {'compared': by_hand(measured), 'limits': np.asarray(measured.signals()['joint_torque_limit_nm']).tolist()}
    found['kitchen'] = kitchen(measured)
    measured.close()
    plain = RobosuiteHost(instrumented=False)
    found['bit_equal'] = states(plain) == first
    found['plain_signals'] = sorted(plain.signals())
    plain.close()
    json.dump(found, sys.stdout)


if __name__ == '__main__':
    main()
