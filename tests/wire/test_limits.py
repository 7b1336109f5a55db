"""Limits of the wire: nothing is built, buffered or waited for on a stranger's word."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patience import PATIENCE_S

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError
from robotrials.wire import WireLimits, pack, read_frame, unpack
from robotrials.wire.array import check_msgpack, unpack_groot, unpack_json, unpack_vla_eval
from robotrials.wire.chat import ChatClient, ChatFault, ChatMessage, ChatSettings
from robotrials.wire.link import Deadline, Link, keep_trying, shown_waiting, split_url
from robotrials.wire.request import HttpLink
from robotrials.wire.websocket import WebSocketLink

READERS = [unpack, unpack_vla_eval, unpack_groot, unpack_json]
BOMBS = {
    'a scalar that would allocate 2.9 GB': msgpack.packb(
        {b'__npgeneric__': True, b'data': 2_900_000_000, b'dtype': '|S1'}
    ),
    'a text scalar of another type': msgpack.packb({b'__npgeneric__': True, b'data': [1], b'dtype': '<U9'}),
    'a list that announces 4 billion': b'\xdd\xff\xff\xff\xff' + bytes(100_000),
    'a map that announces 4 billion': b'\xdf\xff\xff\xff\xff' + bytes(100_000),
    'a million empty maps': b'\xdd' + struct.pack('>I', 1_000_000) + b'\x80' * 1_000_000,
    'a million levels': b'\x91' * 1_000_000,
    'two thousand levels': b'\x91' * 2_000 + b'\xc0',
    'a hundred levels': b'\x91' * 100 + b'\xc0',
    'an array of many dimensions': msgpack.packb(
        {b'__ndarray__': True, b'data': b'', b'dtype': '<f8', b'shape': [0] * 40}
    ),
    'an array of no bytes and a huge side': msgpack.packb(
        {b'__ndarray__': True, b'data': b'', b'dtype': '<f8', b'shape': [0, 1 << 62]}
    ),
    'items of a gigabyte': msgpack.packb({b'__ndarray__': True, b'data': b'', b'dtype': '|S1000000000', b'shape': [0]}),
    'an extension': msgpack.packb(msgpack.ExtType(5, b'x')),
    'a long extension': msgpack.packb([msgpack.ExtType(5, b'x' * 70_000)]),
    'a pickle': msgpack.packb({b'nd': True, b'type': '|O', b'kind': b'O', b'shape': [1], b'data': b'\x80\x04N.'}),
    'objects': msgpack.packb({b'__ndarray__': True, b'data': b'\0' * 8, b'dtype': '|O', b'shape': [1]}),
    'dates': msgpack.packb({b'__ndarray__': True, b'data': b'\0' * 8, b'dtype': '<M8[s]', b'shape': [1]}),
    'a text of two megabytes': msgpack.packb('x' * (2 << 20)),
    'half a value': msgpack.packb({'a': list(range(20_000))})[:-3],
    'more than a value': msgpack.packb([0] * 70_000) + b'\xc0',
}


@pytest.mark.parametrize('name', BOMBS)
def test_a_bomb_is_refused_within_little_memory(name: str) -> None:
    reader = unpack_groot if name == 'a pickle' else unpack
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            reader(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=400), st.sampled_from(READERS))
@settings(max_examples=300)
def test_any_bytes_give_a_value_or_an_input_error_from_every_reader(data: bytes, reader: Any) -> None:
    with contextlib.suppress(InputError):
        reader(data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=40,
)


@given(VALUES)
def test_what_msgpack_writes_passes_the_walk_and_a_cut_does_not(value: Any) -> None:
    data = msgpack.packb(value)
    check_msgpack(data)
    with pytest.raises(InputError):
        check_msgpack(data[:-1])
    with pytest.raises(InputError):
        check_msgpack(data + b'\xc0')


@given(VALUES, st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=300)
def test_a_flipped_byte_gives_a_value_or_an_input_error(value: Any, place: int, byte: int) -> None:
    data = bytearray(pack({'a': np.arange(4.0), 'b': value}))
    data[place % len(data)] = byte
    for reader in READERS[:3]:
        with contextlib.suppress(InputError):
            reader(bytes(data))


def test_a_frame_is_not_allocated_before_it_comes() -> None:
    header = struct.pack('>4sBI', b'TRLW', 1, 60 << 20)
    tracemalloc.start()
    with pytest.raises(InputError, match='inside a message'):
        read_frame(io.BytesIO(header + b'x' * 100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


# --- deadlines


@pytest.fixture(params=['local', 'tcp'])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Link, socket.socket]]:
    if request.param == 'local':
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(('127.0.0.1', 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
    link = Link(ours)
    yield link, theirs
    link.close()
    theirs.close()


def test_sending_to_one_who_does_not_read_ends(pair: tuple[Link, socket.socket]) -> None:
    link, _ = pair
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        link.send(bytes(64 << 20), deadline=Deadline.after(0.3))
    assert time.monotonic() - began_s < PATIENCE_S


def test_sending_to_one_who_reads_a_little_now_and_then_ends_too(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    stop = threading.Event()

    def sip() -> None:
        while not stop.wait(0.02):
            with contextlib.suppress(OSError):
                theirs.recv(4096)

    sipping = threading.Thread(target=sip, daemon=True)
    sipping.start()
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        link.send(bytes(64 << 20), deadline=Deadline.after(0.5))
    assert time.monotonic() - began_s < PATIENCE_S
    stop.set()
    sipping.join(PATIENCE_S)


def test_receiving_from_a_silent_one_ends_and_an_end_is_the_end(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    with pytest.raises(TimeoutError):
        link.receive(deadline=Deadline.after(0.1))
    theirs.close()
    assert link.receive(deadline=Deadline.after(PATIENCE_S)) == b''
    with pytest.raises(TimeoutError):
        Deadline.after(-1.0).left_s()


def test_closing_is_prompt_even_if_the_other_side_does_not_listen() -> None:
    from tests.servers import FaultyWebSocket

    with FaultyWebSocket(lambda q: None) as serving:
        link = WebSocketLink(serving.url, deadline=Deadline.after(PATIENCE_S))
        began_s = time.monotonic()
        link.close()
        assert time.monotonic() - began_s < PATIENCE_S


def test_a_ping_flood_without_an_answer_ends_at_the_deadline() -> None:
    from tests.servers import FaultyWebSocket

    class Pinging(FaultyWebSocket):
        def reply(self, connection: socket.socket, whole: bytes, *, huge: bytes, rubbish: bytes) -> None:
            ends_s = time.monotonic() + 3.0
            while time.monotonic() < ends_s:
                connection.sendall(b'\x89\x00' * 500)

    with Pinging(lambda q: b'x') as serving:
        link = WebSocketLink(serving.url, deadline=Deadline.after(PATIENCE_S))
        link.send(b'question', timeout_s=PATIENCE_S)
        with pytest.raises((NoAnswer, RigError)):
            link.receive(timeout_s=0.5)
        link.close()


def test_too_many_fragments_are_refused() -> None:
    from tests.servers import FaultyWebSocket

    class Fragmenting(FaultyWebSocket):
        def reply(self, connection: socket.socket, whole: bytes, *, huge: bytes, rubbish: bytes) -> None:
            connection.sendall(b'\x02\x01x' + b'\x00\x01x' * 20_000)

    with Fragmenting(lambda q: b'x') as serving:
        link = WebSocketLink(serving.url, deadline=Deadline.after(PATIENCE_S))
        link.send(b'question', timeout_s=PATIENCE_S)
        with pytest.raises(AnswerError, match='pieces'):
            link.receive(timeout_s=PATIENCE_S)
        link.close()


def redirecting(status: str) -> Any:
    from tests.servers import FaultyServer

    class Redirecting(FaultyServer):
        def converse(self, connection: socket.socket) -> None:
            connection.recv(65536)
            self.n_questions += 1
            connection.sendall(
                f'HTTP/1.1 {status}\r\nLocation: http://127.0.0.1:{self.port}/v2\r\nContent-Length: 0\r\n\r\n'.encode()
            )

    return Redirecting(fault='none')


@pytest.mark.parametrize('status', ['301 Moved', '302 Found', '307 Temporary', '308 Permanent'])
def test_redirects_are_refused_by_every_client(status: str) -> None:
    with redirecting(status) as serving:
        with pytest.raises(RigError, match='redirect'):
            WebSocketLink(f'ws://127.0.0.1:{serving.port}', deadline=Deadline.after(PATIENCE_S))
        link = HttpLink(f'http://127.0.0.1:{serving.port}')
        with pytest.raises(RigError, match='redirect'):
            link.post('/act', b'{}', timeout_s=PATIENCE_S)
        link.close()
        chat = ChatClient(ChatSettings(url=f'http://127.0.0.1:{serving.port}/v1', model='m', retries=0))
        with pytest.raises(ChatFault):
            chat.ask([ChatMessage('user', ('hi',))])
        assert serving.n_questions == 3, 'nobody followed'


def test_waiting_for_a_server_is_told_and_ends_with_the_rigs_fault() -> None:
    told: list[tuple[str, float, float]] = []

    def attempt(deadline: Deadline) -> None:
        raise ConnectionRefusedError('nobody there')

    with shown_waiting(lambda *what: told.append(what)), pytest.raises(RigError, match=r'did not answer within 0\.3 s'):
        keep_trying(attempt, what='the server', timeout_s=0.3)
    assert told
    assert told[0][0] == 'the server'
    tries = iter([False, False, True])

    def third(deadline: Deadline) -> str:
        if not next(tries):
            raise ConnectionRefusedError
        return 'there'

    assert keep_trying(third, what='x', timeout_s=PATIENCE_S) == 'there'


@pytest.mark.parametrize('url', ['gpu:8000', 'http://x', 'ws://', 'ws://x:99999', 'ws://u:p@x', 'file:///etc/passwd'])
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(InputError, match='url'):
        split_url(url, ('ws', 'wss'))


def test_limits_themselves_are_checked() -> None:
    for name in ('max_bytes', 'max_values', 'max_depth', 'max_text_bytes', 'max_pixels'):
        with pytest.raises(InputError, match=name):
            WireLimits(**{name: 0})
    assert json.loads('1') == 1


def test_a_deadline_just_short_of_a_whole_second_is_one_that_the_kernel_takes() -> None:
    """A million microseconds are refused as out of domain; a call right after its deadline was set asked for them."""
    ours, theirs = socket.socketpair()
    link = Link(ours)
    with mock.patch.object(Deadline, 'left_s', return_value=2.9999996):
        link.send(b'x', deadline=Deadline.after(3.0))
        theirs.sendall(b'y')
        assert link.receive(deadline=Deadline.after(3.0)) == b'y'
    link.close()
    theirs.close()
