"""A job: one slot of a benchmark for one submission, as the server tells it to the worker that holds the lease.

Server and worker derive the planned episode from the same words, so that an upload can be held to what was planned.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.old_name import PLATFORM_POLICY_SEED
from robotrials.record import Episode
from robotrials.run.blinding import Blinding, derived_seed
from robotrials.run.plan import MOST_PLAN_BYTES, PolicyEntry, TrialPlan, plan_from_json
from robotrials.run.rotation import Slot, trial_slots
from robotrials.run.station import Context

ARM = 'the-policy-under-test'  # the one policy of a benchmark's plan; nothing that is shown may hold its name
THINKING_S = 1800.0  # for all answers of one episode together, unless the plan says otherwise
# Why a worker gives a job back with no attempt used.
NOT_BEGUN = 'not begun'  # it asked for work to dial, and could not take it up
TURNED_AWAY = 'turned away'  # a client came for it, and the cell was busy, draining or out of service
IMPOSSIBLE = 'impossible'  # the plan names what this cell does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs to run one attempt. `code` is what the record calls the submission while blinded."""

    job_id: str
    plan: str  # of the benchmark, as JSON
    slot: int
    attempt: int
    code: str
    blinded: bool = True
    dial: PolicyEntry | None = None  # how the platform reaches the policy, if the client does not come by itself

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def read_plan(self) -> TrialPlan:
        return _plan(self.plan)

    def read_slot(self) -> Slot:
        slots = benchmark_slots(self.plan)
        if not 0 <= self.slot < len(slots):
            raise InputError(f'job {self.job_id}: slot {self.slot} of a benchmark that has {len(slots)}')
        return slots[self.slot]

    def context(self, *, operator: str = '') -> Context:
        """The run's own view of a job: it turns slots into episodes and rollouts into records."""
        plan = self.read_plan()
        blinding = Blinding({ARM: self.code}, PLATFORM_POLICY_SEED, {})
        return Context(plan, blinding, plan.hash, operator=operator)

    def planned(self, *, operator: str = '') -> Episode:
        """The episode as it was planned: its id is what an upload is held to."""
        return self.context(operator=operator).planned(self.read_slot(), self.attempt)

    @property
    def thinking_s(self) -> float:
        """The policy's budget for all answers of the episode together."""
        return self.read_plan().watchdog.thinking_s or THINKING_S

    @property
    def loop_seed(self) -> int:
        """For what the loop draws, such as latencies: the same for every submission, and told to nobody."""
        return derived_seed(PLATFORM_POLICY_SEED, self.read_plan().seed, self.slot)

    @property
    def policy_seed(self) -> int:
        """For the policy's own randomness, and told to it: the same for every attempt, and keyed with the plan's
        secret, so that nothing follows from it about the scene or between submissions.
        """
        return derived_seed(PLATFORM_POLICY_SEED + self.read_plan().blinding.secret.encode(), self.code, self.slot)


def job_from_json(values: Mapping[str, Any]) -> Job:
    """The inverse of `Job.as_json`."""
    given = {k: v for k, v in values.items() if v is not None}
    if isinstance(dial := given.get('dial'), Mapping):
        given['dial'] = {k: v for k, v in dial.items() if v is not None}
    return read_table(Job, given, where='job')


def read_benchmark(text: str, *, where: str = 'benchmark') -> TrialPlan:
    """A benchmark's plan from TOML: a trial's plan without [policies], [stopping] and `reference`."""
    if len(text.encode()) > MOST_PLAN_BYTES:
        raise InputError(f'{where}: wanted a plan of at most {MOST_PLAN_BYTES} bytes')
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'{where}: not TOML ({error})') from error
    for key in ('policies', 'stopping', 'reference'):
        if key in values:
            raise InputError(f'{where}: {key} is not for a benchmark: policies come as submissions')
    return read_table(TrialPlan, {**values, 'policies': {ARM: {'use': 'platform'}}}, where=where)


def benchmark_slots(plan_json: str) -> tuple[Slot, ...]:
    """Every slot of a benchmark, in its order; each submission meets all of them."""
    return _slots(plan_json)


@lru_cache(maxsize=16)
def _plan(text: str) -> TrialPlan:
    return plan_from_json(text)


@lru_cache(maxsize=16)
def _slots(text: str) -> tuple[Slot, ...]:
    return trial_slots(_plan(text))
