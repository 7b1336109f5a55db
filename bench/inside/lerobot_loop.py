"""LeRobot's own evaluator (its `rollout` over its LIBERO environments) with a policy that plays actions back.

ASSETS, OVERLAY (LIBERO's packages for LeRobot's Python), FILE of actions for each instruction, SUITE, CAP, SIDE in
pixels, and the tasks' numbers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

ASSETS, OVERLAY, FILE, SUITE, CAP, SIDE, *NUMBERS = sys.argv[1:]
sys.path.append(OVERLAY)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from robotrials.worlds.arm.signal import mend_rendering  # noqa: E402
from robotrials.worlds.libero.host import open_benchmark  # noqa: E402
from robotrials.worlds.libero.suite import find_suite  # noqa: E402

open_benchmark(find_suite(SUITE).name, Path(ASSETS))
mend_rendering()
from lerobot.envs.configs import LiberoEnv  # noqa: E402
from lerobot.scripts.lerobot_eval import rollout  # noqa: E402

ACTIONS = dict(np.load(FILE))


class Playback(torch.nn.Module):
    def reset(self):
        self.step = 0

    def select_action(self, observed):
        assert observed['observation.images.image'].shape[-1] == int(SIDE)
        played = ACTIONS[observed['task'][0]]
        action = played[min(self.step, len(played) - 1)]
        self.step += 1
        return torch.from_numpy(action)[None]


config = LiberoEnv(
    task=find_suite(SUITE).name, task_ids=[int(n) for n in NUMBERS] or None, episode_length=int(CAP),
    observation_height=int(SIDE), observation_width=int(SIDE),
)  # fmt: skip
before, after = config.get_env_processors()
began_s, began_cpu_s = time.perf_counter(), time.process_time()
episodes = []
for env in config.create_envs(n_envs=1)[find_suite(SUITE).name].values():
    words = env.envs[0].unwrapped.task_description
    ran = rollout(env, Playback(), before, after, lambda seen: seen, lambda action: action, seeds=[0])
    steps = int(ran['done'][0].int().argmax()) + 1
    success = bool(ran['success'][0, :steps].any())
    episodes.append({'suite': SUITE, 'task': words, 'success': success, 'steps': steps})
    env.close()
took = {'wall_s': time.perf_counter() - began_s, 'cpu_s': time.process_time() - began_cpu_s}
print('RESULT' + json.dumps({'episodes': episodes, **took}))
