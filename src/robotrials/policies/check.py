"""A dry run: one observation and one action as the policy sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from robotrials.policies.served import ServedPolicy
from robotrials.run import Host, Policy, Setup
from robotrials.run.seam import ClosablePolicy

SHOWN_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class SeenValue:
    """One value on the way: which side, its key, its shape and type, and what is in it."""

    side: str
    key: str
    shape: str
    content: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What went to the policy and came back, and how long it took."""

    values: tuple[SeenValue, ...]
    answer_s: float
    inference_s: float | None
    facts: tuple[tuple[str, str], ...]


def dry_run(host: Host, policy: Policy, *, task: str, instruction: str = '', seed: int = 0) -> DryRun:
    """Reset the host, ask the policy once, and say what each side saw. The policy is fitted already."""
    setup = Setup(task=task, seed=seed, instruction=instruction)
    host.prepare(setup)
    observation = host.reset(task, seed=seed)
    if not instruction:
        instruction = host.instruction()
        setup = Setup(task=task, seed=seed, instruction=instruction)
    session = policy.start(setup, seed=seed)
    began_s = time.perf_counter()
    chunk = session.act(observation)
    answer_s = time.perf_counter() - began_s
    closing: object = session
    if isinstance(closing, ClosablePolicy):
        closing.close()
    values = [*_described('host shows', {'state': observation.state, **observation.images})]
    facts: tuple[tuple[str, str], ...] = ()
    if isinstance(policy, ServedPolicy):
        values += _described('policy sees', policy.question(observation, instruction))
        facts = tuple((key, _content(value)) for key, value in policy.facts.items())
    values += _described('host gets', {'actions': np.asarray(chunk.actions)})
    return DryRun(tuple(values), answer_s, chunk.inference_s, facts)


def _described(side: str, values: dict[str, Any]) -> Iterator[SeenValue]:
    for key, value in values.items():
        shape = f'{value.shape} {value.dtype}' if isinstance(value, np.ndarray) else type(value).__name__
        yield SeenValue(side, key, shape, _content(value))


def _content(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)[:200]
    if value.ndim >= 3:
        return f'from {value.min():g} to {value.max():g}, mean {value.mean():.4g}'
    numbers = ' '.join(f'{number:.4g}' for number in value.ravel()[:SHOWN_NUMBERS])
    return numbers + (' ...' if value.size > SHOWN_NUMBERS else '')
