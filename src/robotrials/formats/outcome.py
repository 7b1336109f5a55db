"""The outcome of a row that does not name one: from its success, its items, its drops, its score and its caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import RecordError
from robotrials.record.episode import Outcome

FEWEST_AT_A_CAP = 3
SLACK_S = 1e-9


@dataclass(slots=True)
class Caps:
    """Where failures end, to notice a cap that nobody declared."""

    seconds: Counter[float] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0  # of any episode
    longest_steps: int = 0
    at_once: int = 0  # successes after no step or no time

    def see(self, values: Mapping[str, Any], *, is_failure: bool, is_success: bool = False) -> None:
        lasted, steps = values.get('duration_s'), values.get('steps')
        self.at_once += is_success and 0 in (lasted, steps)
        if lasted is not None:
            self.longest_s = max(self.longest_s, lasted)
        if steps is not None:
            self.longest_steps = max(self.longest_steps, steps)
        if is_failure and lasted is not None and lasted >= self.longest_s:
            self.seconds[lasted] += 1
        if is_failure and steps is not None and steps >= self.longest_steps:
            self.steps[steps] += 1

    def see_many(self, lasted: Any, steps: Any, *, is_failure: Any, is_success: Any) -> None:
        """The same for whole columns: arrays with NaN for what is missing, or None."""
        import numpy as np

        zero = [values == 0 for values in (lasted, steps) if values is not None]
        if zero:
            self.at_once += int(np.sum(is_success & np.logical_or.reduce(zero)))
        if lasted is not None:
            self.longest_s = max(self.longest_s, float(np.nanmax(lasted, initial=0.0)))
            self.seconds[self.longest_s] += int(np.sum(is_failure & (lasted == self.longest_s)))
        if steps is not None:
            self.longest_steps = max(self.longest_steps, int(np.nanmax(steps, initial=0)))
            self.steps[self.longest_steps] += int(np.sum(is_failure & (steps == self.longest_steps)))

    def hints(self) -> Iterator[str]:
        """A line where successes take no time, and where several failures end at exactly the longest time of all."""
        if self.at_once:
            yield (
                f'{self.at_once} successes take no time at all: was success already true at the reset? Such episodes '
                'say nothing of the policy'
            )
        at_steps, at_s = self.steps[self.longest_steps], self.seconds[self.longest_s]
        if at_steps >= FEWEST_AT_A_CAP:
            yield (
                f'{at_steps} failures end at exactly {self.longest_steps} steps: a cap? '
                f'--set step_cap={self.longest_steps} makes them time-outs'
            )
        elif at_s >= FEWEST_AT_A_CAP:
            yield (
                f'{at_s} failures end at exactly {self.longest_s:g} s: a time cap? '
                f'--set time_cap_s={self.longest_s:g} makes them time-outs'
            )


def derive_outcome(values: dict[str, Any], caps: Caps) -> Outcome:
    """The outcome of a row; RecordError where nothing tells it."""
    told = values.get('outcome')
    if told is not None:
        is_failure = told == 'failure' and not _at_cap(values, known_only=True)
        caps.see(values, is_failure=is_failure, is_success=told == 'success')
        return Outcome(told)
    succeeded = _succeeded(values)
    if succeeded is None:
        raise RecordError('neither outcome nor success is given')
    if succeeded:
        caps.see(values, is_failure=False, is_success=True)
        return Outcome.SUCCESS
    if _at_cap(values):
        caps.see(values, is_failure=False)
        return Outcome.TIMEOUT
    caps.see(values, is_failure='step_cap' not in values and 'time_cap_s' not in values)
    return Outcome.FAILURE


def _succeeded(values: Mapping[str, Any]) -> bool | None:
    if 'success' in values:
        return bool(values['success'])
    items = values.get('items')
    placed = values.get('items_placed')
    if placed is None and any(e.kind == 'placement' for e in values.get('events', ())):
        placed = sum(e.count for e in values['events'] if e.kind == 'placement')
    if items is not None and (placed is not None or values.get('events')):
        return int(placed or 0) >= int(items)
    if 'score' in values and 'max_score' in values:
        return bool(values['score'] >= values['max_score'] - 1e-9)
    return None


def _at_cap(values: Mapping[str, Any], *, known_only: bool = False) -> bool:
    cap_s, lasted = values.get('time_cap_s'), values.get('duration_s')
    cap, steps = values.get('step_cap'), values.get('steps')
    if known_only:
        return cap_s is not None or cap is not None
    in_time = cap_s is not None and lasted is not None and lasted >= cap_s - SLACK_S
    return in_time or (cap is not None and steps is not None and steps >= cap)
