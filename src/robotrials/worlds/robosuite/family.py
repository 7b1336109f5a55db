"""Families of tasks that stand on robosuite: what a benchmark has of its own, kept as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from robotrials.declaration import read_table
from robotrials.errors import InputError, UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry:
    """One task: its words where the simulation does not say them, and what it is about."""

    instruction: str = ''
    targets: tuple[str, ...] = ()  # names of objects, * for any end; the family's where there are none
    destination: str = ''
    step_cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A benchmark on robosuite: its tasks, robot, cameras and rules. `imports` register its tasks with robosuite."""

    control_rate_hz: float
    step_cap: int
    robot: str
    tasks: Mapping[str, TaskEntry]
    settling_steps: int = 0
    imports: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    cameras: Mapping[str, str] = field(default_factory=dict)  # ours -> the simulation's
    assets: str = ''  # a folder of a package, whose files come by a download of their own

    def task(self, name: str) -> TaskEntry:
        if name not in self.tasks:
            raise UnknownName('task', name, self.tasks)
        return self.tasks[name]


def family_names() -> tuple[str, ...]:
    folder = files('robotrials.worlds.robosuite')
    return tuple(sorted(e.name.removesuffix('.toml') for e in folder.iterdir() if e.name.endswith('.toml')))


def read_family(name: str) -> Family:
    """A family by name, or from a file of your own (``.toml``)."""
    if name.endswith('.toml'):
        try:
            text = Path(name).read_text(encoding='utf-8')
        except OSError as error:
            raise InputError(f'{name}: cannot be read ({error.strerror})') from error
    elif name in family_names():
        text = files('robotrials.worlds.robosuite').joinpath(f'{name}.toml').read_text(encoding='utf-8')
    else:
        raise UnknownName('benchmark on robosuite', name, family_names())
    try:
        return read_table(Family, tomllib.loads(text), where=name)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{name}: not TOML ({error})') from error
