"""What is still to be run, in which order: the rotation, less what the store has, plus reruns of INVALID episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from robotrials.record import Outcome
from robotrials.run.rotation import Slot


@dataclass(frozen=True, slots=True)
class Attempted:
    """What the store has of one slot."""

    n_attempts: int  # the number of the next one
    is_valid: bool
    n_faults: int = 0  # attempts that a fault ended; what an edit took back is not one of them


@dataclass(frozen=True, slots=True)
class Task:
    slot: Slot
    attempt: int


class Schedule:
    """Hands out slots in the order of the rotation.

    A slot that came out INVALID is tried again at the end of its block, up to `attempts` times, so that balance
    is restored before the next block begins. At a look, nothing after it is handed out until all before it is settled,
    so that what a stopping rule sees does not depend on how many workers there are.
    """

    def __init__(
        self, slots: Sequence[Slot], done: Mapping[int, Attempted], *, attempts: int, looks: Sequence[int] = ()
    ) -> None:
        self._attempts = attempts
        self._looks = sorted(looks)
        self._under_way: dict[int, Task] = {}
        self._faults = {number: d.n_faults for number, d in done.items()}
        self.n_total = len(slots)
        self.n_valid = sum(1 for d in done.values() if d.is_valid)
        self._given_up = {n for n, d in done.items() if not d.is_valid and d.n_faults >= attempts}
        self._waiting = deque(
            Task(slot, done[slot.number].n_attempts if slot.number in done else 0)
            for slot in slots
            if slot.number not in self._given_up and not (slot.number in done and done[slot.number].is_valid)
        )

    @property
    def n_given_up(self) -> int:
        return len(self._given_up)

    @property
    def n_left(self) -> int:
        """Tasks that wait to be handed out."""
        return len(self._waiting)

    @property
    def is_finished(self) -> bool:
        return not self._waiting and not self._under_way

    @property
    def under_way(self) -> Sequence[Task]:
        return tuple(self._under_way.values())

    @property
    def upcoming(self) -> Slot | None:
        """The slot that would be handed out next, whether or not it is held."""
        return self._waiting[0].slot if self._waiting else None

    def has_left(self, is_meant: Callable[[Slot], bool]) -> bool:
        """Whether some slot of a kind waits or is under way."""
        return any(is_meant(task.slot) for task in (*self._waiting, *self._under_way.values()))

    def next(self) -> Task | None:
        """The next task, or None if there is none now (others may still be under way, or a look is due)."""
        if not self._waiting or self._is_held(self._waiting[0]):
            return None
        task = self._waiting.popleft()
        self._under_way[task.slot.number] = task
        return task

    def settle(self, number: int, outcome: Outcome) -> None:
        """Take a finished slot off, and put it back at the end of its block if it has to be run again."""
        task = self._under_way.pop(number)
        if outcome is not Outcome.INVALID:
            self.n_valid += 1
        else:
            self._faults[number] = self._faults.get(number, 0) + 1
            if self._faults[number] >= self._attempts:
                self._given_up.add(number)
                return
            again = Task(task.slot, task.attempt + 1)
            later = (i for i, other in enumerate(self._waiting) if _is_later_block(other.slot, task.slot))
            self._waiting.insert(next(later, len(self._waiting)), again)

    def take_look(self, decide: Callable[[int], bool]) -> bool:
        """If a look is due, ask `decide(slots before it)` whether to stop; True ends the trial."""
        while self._looks and self._is_settled_before(self._looks[0]):
            edge = self._looks.pop(0)
            if decide(edge):
                self._waiting.clear()
                return True
        return False

    def _is_settled_before(self, edge: int) -> bool:
        numbers = [task.slot.number for task in self._waiting] + list(self._under_way)
        return all(number >= edge for number in numbers)

    def _is_held(self, task: Task) -> bool:
        return bool(self._looks) and task.slot.number >= self._looks[0]


def _is_later_block(slot: Slot, than: Slot) -> bool:
    return slot.number > than.number and (slot.session, slot.block) != (than.session, than.block)


def look_edges(slots: Sequence[Slot], *, n_policies: int, every_rounds: int) -> list[int]:
    """The slot numbers before which a stopping rule looks: ends of blocks, at least so many rounds apart."""
    edges = []
    rounds_since = size = 0
    for number, slot in enumerate(slots):
        size += 1
        is_end = number + 1 == len(slots) or slots[number + 1].block != slot.block
        if is_end:
            rounds_since += size // n_policies
            size = 0
            if rounds_since >= every_rounds:
                edges.append(slot.number + 1)
                rounds_since = 0
    return edges
