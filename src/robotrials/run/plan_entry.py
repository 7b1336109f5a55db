"""What a plan names: its host, policies, tasks, strata and conditions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.record.episode import ParameterValue
from robotrials.record.provenance import PolicyCard

HUMAN = 'human'  # the `use` of an arm that is a person, who acts under the same protocol


@dataclass(frozen=True, slots=True)
class HostEntry:
    """A host by catalogue name, entry point or ``module:attribute``, and the arguments to make it with."""

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy, its arguments, and how many actions of each chunk are executed (all of them unless given).

    `card` is what is known of its making, under the names of `PolicyCard`'s fields; it stays sealed with the plan.
    """

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)
    execute: int | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)  # file or folder -> its SHA-256, checked while running

    def __post_init__(self) -> None:
        for path, digest in self.checkpoints.items():
            if not re.fullmatch('[0-9a-f]{64}', digest):
                raise InputError(f'checkpoints: {path} has {digest!r}, wanted a SHA-256 of 64 hex digits')
        if self.execute is not None and self.execute < 1:
            raise InputError(f'execute is {self.execute}, wanted >= 1')
        known = [f.name for f in dataclasses.fields(PolicyCard) if f.name != 'policy']
        for name in self.card:
            if name not in known:
                raise UnknownName('field of a policy card', name, known)
            _check_card_field(name, self.card[name])

    @property
    def is_human(self) -> bool:
        return self.use == HUMAN


def _check_card_field(name: str, value: object) -> None:
    """Refuse a value that a card's field can't hold."""
    if name == 'image_resolution_px':
        sides = value if isinstance(value, list | tuple) else ()
        if len(sides) != 2 or not all(_is_count(side) and side for side in sides):
            raise InputError(f'card: image_resolution_px is {value!r}, wanted width and height, such as [224, 224]')
    elif name in ('training_steps', 'chunk_length'):
        if not _is_count(value):
            raise InputError(f'card: {name} is {value!r}, wanted a whole number from 0 on')
    elif not isinstance(value, str):
        raise InputError(f'card: {name} is {value!r}, wanted text')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task of the host. Tasks that name the same `scene` share their start states, as a swap test needs."""

    name: str
    instruction: str = ''
    items: int | None = None
    scene: str = ''


@dataclass(frozen=True, slots=True)
class StratumEntry:
    name: str
    items: int | None = None


@dataclass(frozen=True, slots=True)
class ConditionEntry:
    """A condition by name, drawn anew for every start state at its severity, or at each of a rising ladder of them.

    With `parameters` instead, those numbers go to the host as they are. `kinds` are the parts of chaos.
    """

    name: str
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    severity: float | tuple[float, ...] | None = None
    kinds: tuple[str, ...] = ()
    paraphraser: str = ''  # who rewords an instruction: rules (the default), or endpoint,url=...,model=...,cache=...

    def __post_init__(self) -> None:
        if self.paraphraser and not {'instruction', 'chaos'} & set(self.name.split('+')):
            raise InputError(f'condition {self.name}: a paraphraser goes with instruction or chaos')
        if self.severity is not None and self.parameters:
            raise InputError(f'condition {self.name}: wanted either a severity or parameters, found both')
        rungs = self.severity if isinstance(self.severity, tuple) else (self.severity,)
        if not rungs or any(s is not None and not 0 < s <= 1 for s in rungs):
            raise InputError(f'condition {self.name}: severity is {self.severity}, wanted above 0 and at most 1')
        if list(rungs) != sorted(set(rungs), key=lambda s: s or 0.0):
            raise InputError(f'condition {self.name}: severities must rise, found {list(rungs)}')
        if self.kinds and self.name != 'chaos':
            raise InputError(f'condition {self.name}: kinds are the parts of chaos; join others as in light+latency')

    @property
    def is_late(self) -> bool:
        """Whether it delays answers."""
        if self.name == 'chaos':
            return not self.kinds or 'latency' in self.kinds
        return 'latency' in self.name.split('+')

    def rungs(self) -> tuple[ConditionEntry, ...]:
        """The entry once for each severity of its ladder."""
        if not isinstance(self.severity, tuple):
            return (self,)
        return tuple(dataclasses.replace(self, severity=s) for s in self.severity)
