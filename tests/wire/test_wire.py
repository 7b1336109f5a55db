"""The wire: what is packed comes back, and what is malformed is refused by name."""

from __future__ import annotations

import contextlib
import io
import socket
import time
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robotrials.errors import InputError
from robotrials.wire import WireLimits, pack, read_frame, unpack, write_frame
from robotrials.wire.link import Deadline, Link

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=10
)
ARRAYS = hnp.arrays(
    dtype=st.sampled_from(['f4', 'f8', 'u1', 'i8', '?', '>f4', 'U3']), shape=hnp.array_shapes(min_dims=0, min_side=0)
)


@given(VALUES)
def test_plain_values_come_back(value: Any) -> None:
    assert unpack(pack(value)) == value


@given(ARRAYS)
def test_arrays_come_back_with_shape_and_type(array: np.ndarray) -> None:
    found = unpack(pack({'x': array}))['x']
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.tobytes() == array.tobytes()


def test_numpy_scalars_come_back() -> None:
    found = unpack(pack(np.float32(1.5)))
    assert isinstance(found, np.float32)
    assert found == 1.5


@pytest.mark.parametrize('array', [np.array([object()]), np.array([1j]), np.zeros(2, dtype=[('a', 'f4')])])
def test_arrays_of_anything_but_plain_values_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InputError, match='cannot be sent'):
        pack(array)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({b'shape': [3]}, r'shape \(3,\) and float64 with 16 bytes'),
        ({b'shape': [-1, -2]}, 'whole numbers >= 0'),
        ({b'shape': 'x'}, 'whole numbers >= 0'),
        ({b'dtype': 'O'}, 'not accepted'),
        ({b'dtype': 'nonsense'}, 'without a known dtype'),
        ({b'data': 'text'}, 'with str bytes'),
    ],
)
def test_an_array_that_lies_about_itself_is_refused(changes: dict[bytes, Any], message: str) -> None:
    honest = {b'__ndarray__': True, b'data': b'\0' * 16, b'dtype': '<f8', b'shape': [2]}
    with pytest.raises(InputError, match=message):
        unpack(msgpack.packb({**honest, **changes}))


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_an_input_error(data: bytes) -> None:
    with contextlib.suppress(InputError):
        unpack(data)


def test_frames_come_back_in_order_and_the_end_is_the_end() -> None:
    stream = io.BytesIO()
    for value in ({'a': 1}, [2.5, None]):
        write_frame(stream, value)
    stream.seek(0)
    assert read_frame(stream) == {'a': 1}
    assert read_frame(stream) == [2.5, None]
    with pytest.raises(EOFError):
        read_frame(stream)


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda b: b[:5], 'inside a header'),
        (lambda b: b[:-1], 'inside a message'),
        (lambda b: b'HTTP' + b[4:], 'speaks something else'),
        (lambda b: b[:4] + b'\x09' + b[5:], 'wire version 9'),
        (lambda b: b[:5] + b'\xff\xff\xff\xff' + b[9:], 'announces 4294967295 bytes'),
    ],
)
def test_a_damaged_frame_is_named(damage: Any, message: str) -> None:
    stream = io.BytesIO()
    write_frame(stream, {'a': np.arange(3)})
    with pytest.raises(InputError, match=message):
        read_frame(io.BytesIO(damage(stream.getvalue())))


def test_a_message_over_the_limit_is_refused() -> None:
    with pytest.raises(InputError, match='more than the 8 allowed'):
        unpack(pack('x' * 100), limits=WireLimits(max_bytes=8))


def test_a_deadline_just_under_a_whole_second_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses 1,000,000 microseconds: with 9.9999995 s left, rounding up must not reach them."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(time, 'monotonic', lambda: 0.0)
    with theirs:
        link = Link(ours)
        for left_s in (9.999_999_5, 0.999_999_9, 1.0, 1e-7):
            link.send(b'x', deadline=Deadline.after(left_s))
        link.close()
        assert theirs.recv(10) == b'xxxx'
