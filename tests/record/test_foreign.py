"""A parser of foreign bytes may die, hang, grow, write or lie: none of it reaches the process that asked."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE_S

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.record import foreign
from robotrials.record.foreign import Bounds, held_walls, parse

HERE = 'tests.record.test_foreign'


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the helper find this module, and have it forget afterwards."""
    foreign._end()
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    yield
    foreign._end()


def ask(task: str, **options: Any) -> list[Any]:
    return list(parse(f'{HERE}:{task}', what='x.bin', **options))


def values(*, count: int) -> Iterator[Any]:
    for number in range(count):
        yield {'number': number}
    yield b'\x00\xff'
    yield pa.table({'a': [1.5, None], 'b': ['x', 'y']})


def test_tables_bytes_and_plain_values_come_back() -> None:
    *plain, raw, table = ask('values', count=3)
    assert plain == [{'number': 0}, {'number': 1}, {'number': 2}]
    assert raw == b'\x00\xff'
    assert table.equals(pa.table({'a': [1.5, None], 'b': ['x', 'y']}))


def echo(*, source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(1 << 20):
        yield piece


def test_bytes_are_handed_over_as_a_file() -> None:
    data = os.urandom(3 << 20)
    assert b''.join(ask('echo', data=data)) == data


def end(*, how: str) -> Iterator[Any]:
    yield 1
    if how == 'abort':
        os.abort()
    if how == 'crash':
        ctypes.string_at(0)
    if how == 'exit':
        os._exit(3)
    if how == 'hang':
        time.sleep(60)
    if how == 'spin':
        while True:
            pass
    if how == 'grow':
        yield len(bytearray(1 << 34))


@pytest.mark.parametrize(
    ('how', 'told'),
    [
        ('abort', 'its parser died (SIGABRT)'), ('crash', 'its parser died (SIGSEGV)'), ('exit', 'exit code 3'),
        ('hang', 'nothing came of it in 1 s'), ('spin', 'computed for 2 s'), ('grow', 'needs more than 4096 MiB'),
    ],
)  # fmt: skip
def test_every_end_of_a_parser_is_an_error_in_words(how: str, told: str) -> None:
    bounds = Bounds(silence_s=1.0 if how == 'hang' else 30.0, cpu_s=2)
    with pytest.raises(InputError) as caught:
        ask('end', how=how, bounds=bounds)
    assert told in str(caught.value)
    assert ask('values', count=0)  # and the next one is served


def fail(*, name: str) -> Iterator[Any]:
    yield 1
    if name == 'record':
        raise RecordError('seed is x, wanted a number')
    if name == 'unknown':
        raise UnknownName('sheet', 'a', ['b'])
    raise ZeroDivisionError('of theirs')


def test_errors_of_ours_come_through_and_others_are_named() -> None:
    with pytest.raises(RecordError, match='seed is x, wanted a number'):
        ask('fail', name='record')
    with pytest.raises(UnknownName, match='sheet'):
        ask('fail', name='unknown')
    with pytest.raises(InputError, match=r'x\.bin: cannot be read \(ZeroDivisionError: of theirs\)'):
        ask('fail', name='other')


def attack(*, outside: str, scratch: Path) -> Iterator[Any]:
    (scratch / 'mine').write_bytes(b'x')
    tries = {
        'write': lambda: (Path(outside) / 'planted').write_bytes(b'x'),
        'overwrite': lambda: Path(outside, 'theirs').write_bytes(b''),
        'remove': lambda: Path(outside, 'theirs').unlink(),
        'move': lambda: Path(outside, 'theirs').rename(scratch / 'stolen'),
        'link': lambda: os.link(Path(outside, 'theirs'), scratch / 'linked'),
        'folder': lambda: Path(outside, 'new').mkdir(),
        'dial': lambda: socket.create_connection(('127.0.0.1', 9), timeout=1),
        'datagram': lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        'program': lambda: os.posix_spawn('/bin/true', ['true'], {}),
        'signal': lambda: os.kill(os.getppid(), signal.SIGTERM),
    }
    got_through = []
    for name, attempt in tries.items():
        try:
            attempt()
            got_through.append(name)
        except OSError as error:
            if isinstance(error, ConnectionRefusedError):
                got_through.append(name)
    yield got_through


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='Landlock and seccomp are of Linux')
def test_a_parser_that_was_taken_over_writes_dials_and_starts_nothing(tmp_path: Path) -> None:
    outside, scratch = tmp_path / 'outside', tmp_path / 'scratch'
    outside.mkdir()
    scratch.mkdir()
    (outside / 'theirs').write_bytes(b'kept')
    (got_through,) = ask('attack', outside=str(outside), scratch=scratch)
    assert got_through == []
    assert [p.name for p in outside.iterdir()] == ['theirs']
    assert (outside / 'theirs').read_bytes() == b'kept'
    assert [p.name for p in scratch.iterdir()] == ['mine']


def test_the_walls_that_hold_are_found_by_trying() -> None:
    assert held_walls() == {'memory': True, 'writing': True, 'network': True, 'programs': True}


def lie(*, how: str) -> Iterator[Any]:
    handle = max(
        int(name) for name in os.listdir('/proc/self/fd') if os.readlink(f'/proc/self/fd/{name}')[:4] == 'pipe'
    )
    texts = {
        'length': b'A\xff\xff\xff\xff\xff\xff\xff\x7f',
        'table': b'A\x08\0\0\0\0\0\0\0ARROW1\0\0',
        'json': b'J\x01\0\0\0\0\0\0\0{',
    }
    os.write(handle, texts[how])
    os._exit(0)
    yield


@pytest.mark.parametrize('how', ['length', 'table', 'json'])
def test_nonsense_from_a_parser_is_refused(how: str) -> None:
    with pytest.raises(InputError, match='cannot be read'):
        ask('lie', how=how)


def endless() -> Iterator[Any]:
    while True:
        yield b'x' * (1 << 20)


def test_a_parser_that_nobody_listens_to_is_ended() -> None:
    stream = parse(f'{HERE}:endless', what='x.bin')
    next(stream)
    helper = foreign._helpers[0].process.pid
    assert _children(helper)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + PATIENCE_S
    while _children(helper) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _children(helper)


def _children(pid: int) -> str:
    return Path(f'/proc/{pid}/task/{pid}/children').read_text()


def test_many_threads_ask_at_once() -> None:
    answers: list[int] = []

    def work(count: int) -> None:
        answers.append(len(ask('values', count=count)))

    threads = [threading.Thread(target=work, args=(count,)) for count in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [count + 2 for count in range(8)]


def test_a_helper_that_was_killed_is_started_again() -> None:
    ask('values', count=1)
    os.kill(foreign._helpers[0].process.pid, signal.SIGKILL)
    foreign._helpers[0].process.wait()
    assert len(ask('values', count=1)) == 3
