"""Packed values are those that were put in, however many."""

from __future__ import annotations

import tracemalloc

import pytest

from robotrials.record import rows as packed
from robotrials.record.rows import Packed
from robotrials.verdict.robustness import StartTrial


def trials(n: int) -> list[StartTrial]:
    return [StartTrial(f'p{k % 3}', k / 7, float('nan') if k == 5 else k / 3, k % 2 == 0, f'id {k}') for k in range(n)]


@pytest.mark.parametrize('n', [0, 1, 9, 10, 11, 20, 47])
def test_what_was_put_in_comes_out_in_order(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, 'BATCH', 10)
    wanted = trials(n)
    found = Packed(wanted)
    assert len(found) == n
    assert repr(list(found)) == repr(list(found)) == repr(wanted)
    assert repr([found[k] for k in range(-n, n)]) == repr([wanted[k] for k in range(-n, n)])
    assert repr(list(found[3:30:4])) == repr(wanted[3:30:4])
    with pytest.raises(IndexError):
        found[n]


def test_many_values_take_a_fraction_of_their_memory() -> None:
    taken = []
    for keep in (list, Packed):
        tracemalloc.start()
        kept = keep(StartTrial('p', k / 7, k / 3, True, f'id {k}') for k in range(3 * packed.BATCH))
        taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert len(kept) == 3 * packed.BATCH
    assert taken[1] < 0.5 * taken[0], 'one batch of three is still objects'
