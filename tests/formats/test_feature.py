from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.formats.feature import read_example, read_varints, write_example

floats = st.lists(st.floats(width=32, allow_nan=False), max_size=6).map(lambda v: np.array(v, dtype=np.float32))
integers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6).map(lambda v: np.array(v, dtype=np.int64))
values = st.one_of(floats, integers, st.lists(st.binary(max_size=20), max_size=4))


@given(st.dictionaries(st.text(max_size=12), values, max_size=5))
def test_features_are_read_as_written(features: dict[str, object]) -> None:
    back = read_example(write_example(features), where='x')  # type: ignore[arg-type]
    assert back.keys() == features.keys()
    for name, value in features.items():
        if isinstance(value, list):
            assert back[name] == value
        else:
            np.testing.assert_array_equal(np.asarray(back[name]), value)


def test_hand_made_bytes_of_the_wire_format_are_read() -> None:
    """Example{features{feature{key:"a" value{float_list{value:[1.0]}}}}} with packed and with unpacked floats."""
    one = struct.pack('<f', 1.0)
    for value in (b'\x0a\x04' + one, b'\x0d' + one):
        feature = b'\x12' + bytes([len(value)]) + value
        entry = b'\x0a\x01a' + b'\x12' + bytes([len(feature)]) + feature
        features = b'\x0a' + bytes([len(entry)]) + entry
        example = b'\x0a' + bytes([len(features)]) + features
        assert read_example(example, where='x')['a'].tolist() == [1.0]  # type: ignore[union-attr]


def test_unpacked_integers_are_read() -> None:
    value = b'\x08\x05\x08\x96\x01'
    feature = b'\x1a' + bytes([len(value)]) + value
    entry = b'\x0a\x01n' + b'\x12' + bytes([len(feature)]) + feature
    features = b'\x0a' + bytes([len(entry)]) + entry
    assert read_example(b'\x0a' + bytes([len(features)]) + features, where='x')['n'].tolist() == [5, 150]  # type: ignore[union-attr]


def test_varints_of_known_bytes() -> None:
    """150 is 0x96 0x01 and -1 is ten bytes of ones in the protobuf encoding guide."""
    assert read_varints(b'\x96\x01\x01').tolist() == [150, 1]
    assert read_varints(b'\xff' * 9 + b'\x01').tolist() == [-1]


@pytest.mark.parametrize('data', [b'\x0a\x7f', b'\xff' * 12, b'\x0f\x01', b'\x0a\x03\x0a\x01\xff'])
def test_broken_bytes_are_named(data: bytes) -> None:
    with pytest.raises(InputError, match='shard: not a readable'):
        read_example(data, where='shard')
