"""Actions of the hasty scripted policy on the first start state of tasks of a suite, without pictures."""

from __future__ import annotations

import sys

import numpy as np

from robotrials.run.seam import Setup
from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy

ASSETS, SUITE, CAP, OUT, *NUMBERS = sys.argv[1:]

host = LiberoHost(suite=SUITE, assets=ASSETS, state='privileged', step_cap=int(CAP), instrumented=False)
rows = {}
for task in [f'task_{number}' for number in NUMBERS]:
    setup = Setup(task=task, seed=0, instance=0)
    host.prepare(setup)
    seen, session = host.reset(task, seed=0), ScriptedLiberoPolicy(manner='hasty').start(setup, seed=0)
    actions = rows[host.instruction()] = []
    while host.outcome() is None:
        actions.append(session.act(seen).actions[0].astype(np.float32))
        seen = host.step(actions[-1])
host.close()
np.savez(OUT, **{words: np.stack(actions) for words, actions in rows.items()})
print('RESULT{}')
