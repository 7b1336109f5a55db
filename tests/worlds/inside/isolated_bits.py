"""States of a few actions in one process with the simulator, every frame drawn; and the kernels they were made with."""

from __future__ import annotations

import json
import sys

import numpy as np

from robotrials.run.seam import Setup
from robotrials.worlds.libero.host import LiberoHost

ASSETS, SEED = sys.argv[1], int(sys.argv[2])

host = LiberoHost(suite='libero-object', assets=ASSETS, cameras=['agentview'], image_size=[32, 32])
host.prepare(Setup(task='task_0', seed=0, instance=2))
host.reset('task_0', seed=0)
states = [host.signals()['simulator_state']]
for action in np.random.default_rng(SEED).uniform(-1.0, 1.0, (20, 7)):
    host.step(action)
    states.append(host.signals()['simulator_state'])
kernels = host.protocol().packages.get('openblas kernels', '')
print('RESULT' + json.dumps({'states': [[float(v).hex() for v in row] for row in states], 'kernels': kernels}))
