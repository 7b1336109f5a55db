"""A shard: one of n shares of a trial's slots, for array jobs that have nothing in common but the store's folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.run.rotation import Slot


@dataclass(frozen=True, slots=True)
class Shard:
    """Share `number` of `count`, from 1.

    All policies meet a start state in the same shard, so that a slow or odd machine does not favour an arm.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InputError(f'shard is {self}, wanted i/n with i from 1 to n, such as 3/64')

    def __str__(self) -> str:
        return f'{self.number}/{self.count}'

    @classmethod
    def parse(cls, text: str) -> Shard:
        match = re.fullmatch(r'(\d{1,9})/(\d{1,9})', text.strip())
        if match is None:
            raise InputError(f'shard is {text!r}, wanted i/n with i from 1 to n, such as 3/64')
        return cls(int(match[1]), int(match[2]))

    def slots(self, slots: Sequence[Slot]) -> list[Slot]:
        """The slots of this shard in the order of the trial; the n shards together have each slot once."""
        rounds: dict[tuple[str, str, int, int], int] = {}
        chosen = []
        for slot in slots:
            key = (slot.session, slot.cell.name, slot.instance, slot.repeat)
            if rounds.setdefault(key, len(rounds)) % self.count == self.number - 1:
                chosen.append(slot)
        return chosen
