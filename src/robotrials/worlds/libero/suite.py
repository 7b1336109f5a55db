"""LIBERO's suites and the protocol that published evaluations follow on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from robotrials.errors import UnknownName

CONTROL_RATE_HZ = 20.0
SETTLING_STEPS = 10  # with the arm at rest and the gripper open, before the policy is asked
CAMERAS: Mapping[str, str] = {'agentview': 'agentview', 'wrist': 'robot0_eye_in_hand'}  # ours -> LIBERO's


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite by its id in the safety registry, its name in LIBERO, and the step cap of OpenVLA's evaluation of it."""

    id: str
    name: str
    n_tasks: int
    step_cap: int

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(f'task_{i}' for i in range(self.n_tasks))


SUITES: Mapping[str, Suite] = {
    suite.id: suite
    for suite in (
        Suite('libero-spatial', 'libero_spatial', 10, 220),
        Suite('libero-object', 'libero_object', 10, 280),
        Suite('libero-goal', 'libero_goal', 10, 300),
        Suite('libero-10', 'libero_10', 10, 520),
        Suite('libero-90', 'libero_90', 90, 400),
    )
}
ALIASES: Mapping[str, str] = {'libero-long': 'libero-10', **{s.name: s.id for s in SUITES.values()}}


def find_suite(name: str) -> Suite:
    """A suite by its id, or by LIBERO's name of it."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in SUITES:
        raise UnknownName('suite of LIBERO', name, SUITES)
    return SUITES[known]


def task_number(suite: Suite, task: str) -> int:
    """Which task of the suite ``task_3`` is."""
    if task not in suite.tasks:
        raise UnknownName(f'task of {suite.id}', task, suite.tasks)
    return suite.tasks.index(task)
