"""Many values that are made once and read a few times in order: kept as bytes, and built again as they are read."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

Value = TypeVar('Value')
BATCH = 1024
FAST = 1  # zlib: more effort saves a tenth at most


class Packed(Sequence[Value], Generic[Value]):
    """A sequence of immutable values that grows at its end; of more than a thousand most are compressed batches.

    Two readings give equal values, not the same ones. Pickles never leave the process that made them.
    """

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._batches: list[bytes] = []
        self._last: list[Value] = []
        for value in values:
            self.append(value)

    def append(self, value: Value) -> None:
        if len(self._last) == BATCH:
            self._batches.append(zlib.compress(pickle.dumps(self._last, protocol=5), FAST))
            self._last = []
        self._last.append(value)

    def __len__(self) -> int:
        return BATCH * len(self._batches) + len(self._last)

    def __iter__(self) -> Iterator[Value]:
        for number in range(len(self._batches)):
            yield from self._batch(number)
        yield from self._last

    @overload
    def __getitem__(self, place: int) -> Value: ...
    @overload
    def __getitem__(self, place: slice) -> Packed[Value]: ...
    def __getitem__(self, place: int | slice) -> Value | Packed[Value]:
        if isinstance(place, slice):
            return Packed(self[k] for k in range(*place.indices(len(self))))
        number, rest = divmod(range(len(self))[place], BATCH)
        return (self._last if number == len(self._batches) else self._batch(number))[rest]

    def _batch(self, number: int) -> list[Value]:
        values: list[Value] = pickle.loads(zlib.decompress(self._batches[number]))
        return values
