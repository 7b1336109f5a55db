"""LeRobot's own `lerobot-eval`, listened to: ASSETS OVERLAY KEPT.npz, then its own options as on its command line.

Nothing of it is replaced. What its rollouts were shown, did and were rewarded with is kept beside its own
``eval_info.json``, which has rewards and successes only. Of an episode the rows up to its end are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

ASSETS, OVERLAY, KEPT, *OPTIONS = sys.argv[1:]
sys.path.append(OVERLAY)

import numpy as np  # noqa: E402

if '--env.type=libero' in OPTIONS:
    from robotrials.worlds.arm.signal import mend_rendering
    from robotrials.worlds.libero.host import open_benchmark

    open_benchmark('libero_object', Path(ASSETS))  # where its files are, which it would ask for on the terminal
    mend_rendering()
from lerobot.scripts import lerobot_eval  # noqa: E402

EPISODES: list[dict[str, np.ndarray]] = []
rollout = lerobot_eval.rollout


def kept_rollout(**given):
    states, prepare = [], given['preprocessor']

    def seen(observation):
        states.append(observation['observation.state'][0].numpy())
        return prepare(observation)

    ran = rollout(**{**given, 'preprocessor': seen})
    n = int(ran['done'][0].int().argmax()) + 1
    columns = {name: ran[name][0, :n].numpy() for name in ('action', 'reward', 'success')}
    EPISODES.append({'state': np.array(states[:n]), **columns})
    return ran


lerobot_eval.rollout = kept_rollout
sys.argv = ['lerobot-eval', *OPTIONS]
lerobot_eval.main()
np.savez(KEPT, **{f'{i}/{name}': rows for i, episode in enumerate(EPISODES) for name, rows in episode.items()})
print('RESULT{}')
