"""Shortcut plans for hosts by name: what a diagnosis needs on a first evening, without a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trialist.diagnose.evaluate import EvaluationOptions
from trialist.diagnose.shortcut_plan import ExpertOptions, ShortcutPlan
from trialist.errors import InputError, UnknownName
from trialist.run.component import HOSTS
from trialist.run.plan import HostEntry, TaskEntry

HOST_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    'tabletop': {'cameras': ['front', 'wrist'], 'image_size': [64, 64], 'shadows': False},
    'libero': {'cameras': ['agentview', 'wrist'], 'image_size': [128, 128]},  # as its demonstrations are drawn
}
EXPERTS: Mapping[str, ExpertOptions] = {
    'tabletop': ExpertOptions(
        use='scripted', options={'temper': 'reference'}, host={'state': 'privileged'}, episodes_per_task=120,
        noise=(0.004, 0.004, 0.004, 0.01, 0.01, 0.01),
    ),
}  # fmt: skip


def host_plan(
    host: str,
    *,
    tasks: Sequence[str] = (),
    demonstrations: Sequence[str] = (),
    expert: str = '',
    episodes_per_task: int | None = None,
    time_cap_s: float | None = None,
    suite: str = '',
    probe: Mapping[str, Any] | None = None,
) -> ShortcutPlan:
    """The plan of a host by name; its own expert demonstrates unless demonstrations or another expert are given."""
    if ':' not in host and host not in HOSTS.names():
        raise UnknownName('host, nor a TOML file,', host, HOSTS.names())
    chosen = None if demonstrations else ExpertOptions(use=expert) if expert else EXPERTS.get(host)
    if chosen is None and not demonstrations:
        raise InputError(f'host {host} has no expert of its own; give --demonstrations PATH or --expert NAME')
    options = {**HOST_OPTIONS.get(host, {}), **({'suite': suite} if suite else {})}
    return ShortcutPlan(
        host=HostEntry(host, options),
        expert=chosen,
        demonstrations=tuple(demonstrations),
        probe=probe or {},
        evaluation=EvaluationOptions(
            tasks=tuple(TaskEntry(name, scene=_scene(host, name)) for name in tasks),
            episodes_per_task=episodes_per_task,
            time_cap_s=time_cap_s,
        ),
    )


def _scene(host: str, task: str) -> str:
    """The scene that a task of the cell shares with others, so that they meet the same start states."""
    if host != 'tabletop':
        return ''
    from trialist.cell.task import TASKS

    if task not in TASKS:
        raise UnknownName('task of the tabletop cell', task, TASKS)
    return TASKS[task].scene
