"""The combinations of values that occur: by codes, as by looking at every row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from robotrials.record.rows import distinct_values


@pytest.mark.parametrize('n', [0, 1, 500])
def test_combinations_are_those_of_the_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    names = pa.array(['a', 'b', None, 'd']).take(pa.array(rng.integers(0, 4, n)))
    coded = names.dictionary_encode()
    other = pa.array(['d', 'a']).dictionary_encode().take(pa.array(rng.integers(0, 2, n)))
    table = pa.table({
        'text': pa.chunked_array([names, names]),
        'code': pa.chunked_array([coded, other.cast(coded.type)]),  # chunks with dictionaries of their own
        'number': pa.array(np.tile(rng.integers(0, 3, n), 2)),
        'flag': pa.array(np.tile(rng.random(n) < 0.5, 2)),
    })  # fmt: skip
    for columns in (['text'], ['text', 'code'], ['number', 'flag', 'code', 'text']):
        kept = table.select(columns)
        assert distinct_values(kept) == {tuple(row.values()) for row in kept.to_pylist()}


def test_more_combinations_than_a_number_holds_are_found_too() -> None:
    table = pa.table({f'c{k}': pa.array(np.arange(100) * (k + 1)) for k in range(11)})
    assert distinct_values(table) == {tuple(i * (k + 1) for k in range(11)) for i in range(100)}


def test_no_column_has_one_combination_of_nothing() -> None:
    assert distinct_values(pa.table({})) == {()}
