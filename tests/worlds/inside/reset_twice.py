"""Reset every task of a suite twice, with steps in between, and compare bit by bit."""

from __future__ import annotations

import json
import sys

import numpy as np

from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.suite import find_suite

ASSETS, SUITE = sys.argv[1:]

host = LiberoHost(suite=SUITE, assets=ASSETS)
found = {}
for task in find_suite(SUITE).tasks:
    states = []
    for _ in range(2):
        shown = host.reset(task, seed=7)
        fixtures = host._env.env.sim.model._model.body_pos.tobytes()
        states.append((host.signals()['simulator_state'].tobytes(), shown.state.tobytes(), fixtures))
        for _ in range(2):  # leaves something to be cleared
            host.step(np.array([0.3, -0.2, 0.1, 0, 0, 0.2, 1.0]))
    roles = host.cast.roles
    found[task] = {
        'is_equal': states[0] == states[1],
        'targets': list(host.cast.targets),
        'roles': sorted(set(roles.values())),
        'instruction': host.instruction(),
    }
print('RESULT' + json.dumps(found))
