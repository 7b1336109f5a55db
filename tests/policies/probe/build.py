"""Small demonstrations: an arm of two joints that goes to where a bright spot is, or to a place its task names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robotrials.policies.probe import Demonstrations, DemonstrationWriter, EpisodeFacts
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Target

CONVENTION = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.WORLD
)  # fmt: skip
TASKS = ('go left', 'go right')
GREEN = (0, 255, 0)


def make_demonstrations(
    folder: Path, *, episodes: int = 8, seed: int = 0, side_px: int = 24, shows_task: bool = False
) -> Demonstrations:
    """Task 0 moves to -x, task 1 to +x, by 1 cm a step; the spot's row is the move along y.

    If the picture `shows_task`, the spot is green in task 1.
    """
    rng = np.random.default_rng(seed)
    with DemonstrationWriter(folder, action=CONVENTION, control_rate_hz=10.0, source={'kind': 'made'}) as writer:
        for number in range(episodes):
            task, length, row = TASKS[number % 2], 6 + number % 3, int(rng.integers(2, side_px - 2))
            images = np.zeros((length, side_px, side_px, 3), np.uint8)
            images[:, row - 1 : row + 2, 4:7] = GREEN if shows_task and task == TASKS[1] else 255
            action = np.zeros((length, 3))
            action[:, 0] = 0.01 if task == TASKS[1] else -0.01
            action[:, 1] = 0.01 * (row / side_px - 0.5)
            state = np.concatenate([np.zeros((1, 3)), np.cumsum(action, axis=0)[:-1]])
            facts = EpisodeFacts(task=task, instruction=f'please {task}', success=True, seed=number)
            writer.append(facts, images={'top': images}, state=state, action=action, start_state=[row])
        return writer.finish()
