"""Shortcut plans for hosts by name: what a diagnosis needs on a first evening, without a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.run.component import HOSTS
from robotrials.run.plan import HostEntry, TaskEntry
from robotrials.study.evaluate import EvaluationOptions
from robotrials.study.shortcut_plan import ExpertOptions, ShortcutPlan

HOST_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    'tabletop': {'cameras': ['front', 'side', 'wrist'], 'image_size': [96, 96], 'shadows': False},
    'libero': {'cameras': ['agentview', 'wrist'], 'image_size': [128, 128]},  # as its demonstrations are drawn
}
EXPERTS: Mapping[str, ExpertOptions] = {
    'tabletop': ExpertOptions(  # gentle near things, with open fingers: a quick one is not learnt from pictures
        use='scripted',
        options={
            'temper': 'reference',
            'changes': {'margin_m': 0.02, 'speed_m_s': 0.6, 'near_speed_m_s': 0.24, 'near_acceleration_m_s2': 1.8},
        },
        host={'state': 'privileged'}, episodes_per_task=200, time_cap_s=15.0,
        noise=(0.005, 0.005, 0.005, 0.012, 0.012, 0.012),
    ),
}  # fmt: skip
PROBES: Mapping[str, Mapping[str, Any]] = {  # for what that expert shows to those cameras
    'tabletop': {
        'execute': 8,
        'task_noise': 0.15,
        'crops': {'front': [0.25, 0.8, 0.05, 0.95], 'side': [0.15, 0.7, 0.2, 0.8], 'wrist': [0.1, 1.0, 0.1, 0.9]},
    },
}


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
        probe={**({} if demonstrations else PROBES.get(host, {})), **(probe or {})},
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
    from robotrials.worlds.cell.task import TASKS

    if task not in TASKS:
        raise UnknownName('task of the tabletop cell', task, TASKS)
    return TASKS[task].scene
