"""Foreign bytes are parsed in a process of their own, which may die, hang or grow without taking us along.

Parsers of binary formats are native code: one flipped bit can end the process that runs them, which Python cannot
catch. `parse` runs a function in a child and gives what it yields: Arrow tables (as IPC streams), bytes and plain JSON
values, in frames of bounded length, never a pickle. The child is forked from a helper that has the libraries loaded
and none of our data, so that it costs milliseconds; it is inside walls (`sandbox`), and its death is an InputError.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from robotrials import errors
from robotrials.errors import InputError, RobotrialsError, SetupError
from robotrials.value import dataclass

FRAME = struct.Struct('=cQ')
MOST_FRAME_BYTES = 2 << 30
MOST_REQUEST_BYTES = 128 << 10
READ_BYTES = 1 << 20
SILENT_ENV = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore'}
HELPER = 'from robotrials.record.foreign import _serve; _serve()'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a parser may take."""

    memory_bytes: int = 4 << 30  # beside the libraries
    cpu_s: int = 3600
    silence_s: float = 300.0  # of waiting for the next piece
    file_bytes: int = 16 << 30  # of any one file in its scratch folder


IMPORT = Bounds()
UPLOAD = Bounds(memory_bytes=2 << 30, cpu_s=30, silence_s=60.0, file_bytes=0)


def parse(
    task: str, /, *, what: str, bounds: Bounds = IMPORT, data: bytes | None = None, scratch: Path | None = None,
    **request: Any,
) -> Iterator[Any]:  # fmt: skip
    """What the function named `task` (module:function, a generator) yields for `request`, run in a child.

    `what` names the source in errors. `data` is handed over as a file that the function gets as `source`. The function
    can write below `scratch` only. Errors of ours come through as they are; any other end is an InputError. If its
    module has a function `preload`, the helper runs it first, for all that follow.
    """
    message = json.dumps(
        {
            'task': task, 'request': request, 'bounds': asdict(bounds), 'scratch': str(scratch) if scratch else None,
            'cwd': os.getcwd(), 'has_data': data is not None,
        }
    ).encode()  # fmt: skip
    if len(message) > MOST_REQUEST_BYTES:
        raise InputError(f'{what}: options of {len(message)} bytes, wanted at most {MOST_REQUEST_BYTES}')
    with contextlib.ExitStack() as stack:
        frames, frames_out = _pipe(stack)
        status, status_out = _pipe(stack)
        handed = [frames_out, status_out]
        if data is not None:
            handed.append(_as_file(stack, data))
        try:
            _send(message, handed)
        finally:
            os.close(frames_out)
            os.close(status_out)
        yield from _received(frames, status, what, bounds)


def _pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    """Both ends of a pipe; the reading one is closed with the stack, which ends a child that is still writing."""
    ends = os.pipe()
    stack.callback(os.close, ends[0])
    with contextlib.suppress(OSError, AttributeError):  # Linux lets one be larger than 64 KiB, and bounds their sum
        fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, READ_BYTES)
    return ends


def _as_file(stack: contextlib.ExitStack, data: bytes) -> int:
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(data)
    file.flush()
    file.seek(0)
    return file.fileno()


def _received(frames: int, status: int, what: str, bounds: Bounds) -> Iterator[Any]:
    while (frame := _read_frame(frames, what, bounds)) is not None:
        kind, payload = frame
        if kind == b'E':
            raise _error(payload, what)
        if kind == b'Z':
            return
        yield _value(kind, payload, what)
    raise InputError(f'{what}: cannot be read: {_death(status, bounds)}; the file is damaged, or made to do that')


def _read_frame(frames: int, what: str, bounds: Bounds) -> tuple[bytes, memoryview] | None:
    head = _read(frames, FRAME.size, what, bounds)
    if len(head) < FRAME.size:
        return None
    kind, length = FRAME.unpack(head)
    if length > MOST_FRAME_BYTES:
        raise InputError(f'{what}: cannot be read: a piece of {length} bytes, wanted at most {MOST_FRAME_BYTES}')
    payload = _read(frames, length, what, bounds)
    return (kind, payload) if len(payload) == length else None


def _read(handle: int, length: int, what: str, bounds: Bounds) -> memoryview:
    """Up to `length` bytes, fewer at the end; memory is taken as they come, not as they are announced."""
    content = _room(length)
    n_read = 0
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while n_read < length:
        if not poll.poll(bounds.silence_s * 1000):
            raise InputError(f'{what}: cannot be read: nothing came of it in {bounds.silence_s:g} s; it was given up')
        n_more = os.readv(handle, [content[n_read:]])
        if not n_more:
            break
        n_read += n_more
    return content[:n_read]


def _room(length: int) -> memoryview:
    """Of many bytes, in Arrow's memory: no page is touched before it is written to, and the next piece reuses it."""
    if length <= READ_BYTES:
        return memoryview(bytearray(length))
    import pyarrow as pa

    return memoryview(pa.allocate_buffer(length))


def _value(kind: bytes, payload: memoryview, what: str) -> Any:
    if kind == b'B':
        return bytes(payload)
    try:
        if kind == b'J':
            return json.loads(bytes(payload))
        import pyarrow as pa

        with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        return table
    except Exception as error:  # whatever a parser that was taken over makes of our own reader
        raise InputError(f'{what}: cannot be read: its parser answered nonsense ({error})') from error


def _error(payload: memoryview, what: str) -> Exception:
    """An error as the child raised it, if it is one of ours."""
    try:
        name, text = json.loads(bytes(payload))
        kind = _known_errors().get(name)
    except ValueError:
        name, text, kind = 'nonsense', '', None
    if kind is None:
        return InputError(f'{what}: cannot be read ({name}: {text})')
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


def _known_errors() -> dict[str, type[RobotrialsError]]:
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, RobotrialsError)}
    waiting = list(classes.values())
    while waiting:
        below = waiting.pop().__subclasses__()
        classes.update({c.__name__: c for c in below})
        waiting += below
    return classes


def _death(status: int, bounds: Bounds) -> str:
    code = os.read(status, 4)
    number = struct.unpack('=i', code)[0] if len(code) == 4 else 0
    if number == -signal.SIGXCPU:
        return f'its parser computed for {bounds.cpu_s} s'
    name = signal.Signals(-number).name if -number in set(signal.Signals) else f'exit code {number}'
    return f'its parser died ({name})'


# --- the helper, as we see it


class _Helper:
    """The process that children are forked from: it has the libraries loaded, and nothing of ours."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._path = _module_path()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [sys.executable, '-c', HELPER],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **SILENT_ENV, 'PYTHONPATH': self._path},
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f'no process can be started to read foreign files ({error.strerror})') from error
        finally:
            theirs.close()

    def send(self, message: bytes, handles: list[int]) -> None:
        socket.send_fds(self._socket, [message], handles)

    @property
    def is_ours(self) -> bool:
        return self.owner == os.getpid()

    @property
    def is_fit(self) -> bool:
        return self.is_ours and self.process.poll() is None and self._path == _module_path()

    def end(self) -> None:
        """Ask nothing more of it; it ends by itself. Of a process that was forked, the helper is its parent's."""
        self._socket.close()
        if self.is_ours:
            self.process.wait(timeout=10)
        else:
            self.process.returncode = 0


def _module_path() -> str:
    """Where the helper finds modules, formats of others among them: where this process does."""
    return os.pathsep.join(place or os.getcwd() for place in sys.path)


_guard = threading.Lock()
_helpers: list[_Helper] = []  # one, once it is needed


def _send(message: bytes, handles: list[int]) -> None:
    """Hand a request to the helper, which is started when first needed, in a forked process, and when it has gone."""
    with _guard:
        for _ in range(2):
            if _helpers and not _helpers[0].is_fit:
                _helpers.pop().end()
            if not _helpers:
                _helpers.append(_Helper())
            try:
                _helpers[0].send(message, handles)
                return
            except OSError:
                _helpers.pop().end()
    raise SetupError('no process can be started to read foreign files; try again')


@atexit.register
def _end() -> None:
    with _guard:
        for helper in _helpers:
            helper.end()
        _helpers.clear()


# --- the helper itself, and its children


def _serve() -> None:
    """Fork a child for every request, tell how it ended, and end when nobody can ask any more."""
    asked = socket.socket(fileno=0)
    wake, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}  # process -> where its end is told
    while True:
        poll = select.poll()
        for handle in (asked.fileno(), wake):
            poll.register(handle, select.POLLIN)
        for handle in running.values():
            poll.register(handle, 0)  # whoever asked has gone
        ready = dict(poll.poll())
        if wake in ready:
            os.read(wake, 4096)
            _reap(running)
        for pid, handle in running.items():
            if handle in ready:
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        if asked.fileno() in ready and not _take(asked, running, wake, wake_out):
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        handle = running.pop(pid)
        with contextlib.suppress(OSError):
            os.write(handle, struct.pack('=i', os.waitstatus_to_exitcode(status)))
        os.close(handle)


def _take(asked: socket.socket, running: dict[int, int], *ours: int) -> bool:
    """Fork a child for the next request; False when there will be none."""
    message, handles, _, _ = socket.recv_fds(asked, MOST_REQUEST_BYTES, 3)
    if not message:
        return False
    request = json.loads(message)
    frames, status, *source = handles
    with contextlib.suppress(Exception):  # the child tells
        importlib.import_module('pyarrow.parquet')
        module = importlib.import_module(request['task'].partition(':')[0])
        if hasattr(module, 'preload'):
            module.preload(**request['request'])
    gc.freeze()  # what is shared with children stays shared
    pid = os.fork()
    if not pid:
        try:
            for handle in (*ours, asked.detach(), status, *running.values()):
                os.close(handle)
            _run(request, frames, source)
        finally:
            os._exit(1)
    for handle in (frames, *source):
        os.close(handle)
    running[pid] = status
    return True


def _run(request: dict[str, Any], frames: int, source: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stream = os.fdopen(frames, 'wb')
    try:
        os.chdir(request['cwd'])
        scratch = Path(request['scratch']) if request['scratch'] else None
        tempfile.tempdir = request['scratch']
        bounds = Bounds(**request['bounds'])

        close_in(
            memory_bytes=bounds.memory_bytes, cpu_s=bounds.cpu_s, file_bytes=bounds.file_bytes, scratch=scratch
        )  # fmt: skip
        given = dict(request['request'])
        if scratch is not None:
            given['scratch'] = scratch
        if request['has_data']:
            given['source'] = os.fdopen(source[0], 'rb')
        module, _, name = request['task'].partition(':')
        for value in getattr(importlib.import_module(module), name)(**given):
            _put_value(stream, value)
        _put(stream, b'Z', b'')
    except MemoryError:
        text = f'needs more than {request["bounds"]["memory_bytes"] >> 20} MiB of memory'
        _put(stream, b'E', json.dumps(['InputError', text]).encode())
    except Exception as error:
        _put(stream, b'E', json.dumps([type(error).__name__, str(error)]).encode())
    os._exit(0)


def _put_value(stream: IO[bytes], value: Any) -> None:
    import pyarrow as pa

    if isinstance(value, bytes):
        _put(stream, b'B', value)
    elif isinstance(value, pa.Table):
        size = pa.MockOutputStream()  # counts what is written, so that columns go out from where they are
        _write_ipc(size, value)
        stream.write(FRAME.pack(b'A', size.size()))
        _write_ipc(stream, value)
        stream.flush()
    else:
        _put(stream, b'J', json.dumps(value).encode())


def _write_ipc(sink: Any, table: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _put(stream: IO[bytes], kind: bytes, payload: bytes) -> None:
    stream.write(FRAME.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


# --- what holds


def held_walls() -> dict[str, bool]:
    """Which walls hold on this machine, found out by trying each from inside."""
    with tempfile.TemporaryDirectory() as outside, tempfile.TemporaryDirectory() as scratch:
        (held,) = parse(
            'robotrials.record.foreign:_try_walls', what='the walls around parsers', bounds=UPLOAD,
            scratch=Path(scratch), outside=outside,
        )  # fmt: skip
    return dict(held)


def _try_walls(*, outside: str, scratch: Path) -> Iterator[dict[str, bool]]:
    def is_refused(attempt: Any) -> bool:
        try:
            attempt()
        except (OSError, MemoryError):
            return True
        return False

    def connect() -> None:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()

    yield {
        'memory': is_refused(lambda: bytearray(UPLOAD.memory_bytes + (1 << 30))),
        'writing': is_refused(lambda: (Path(outside) / 'x').write_bytes(b'')),
        'network': is_refused(connect),
        'programs': is_refused(lambda: os.execv('/bin/true', ['true'])),
    }


# The walls around a process that parses foreign bytes: limits of memory, time and files; no network, no writing out.
# Limits hold on every POSIX system. Landlock (writing, signals) and seccomp (network, other programs) hold where the
# kernel has them; `foreign.held_walls` tries each and says what does.

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
# LANDLOCK_ACCESS_FS_*: write a file, remove and make everything; then, by version: move between folders, truncate.
WRITING = (1 << 1) | sum(1 << bit for bit in range(4, 13))
WRITING_SINCE = {2: 1 << 13, 3: 1 << 14}
TCP = 0b11  # bind, connect; since version 4
SCOPES = 0b11  # abstract sockets, signals to others; since version 6
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_FILTER = 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM
# By machine: its audit number, and the calls that a parser has no use for: sockets, other programs, other processes.
CALLS = {
    'x86_64': (0xC000003E, (41, 42, 43, 44, 46, 49, 50, 53, 59, 62, 101, 288, 310, 311, 321, 322, 424, 425, 438)),
    'aarch64': (0xC00000B7, (117, 129, 198, 199, 200, 201, 202, 203, 206, 211, 221, 242, 270, 271, 280, 281, 424, 425,
                             438)),
}  # fmt: skip
X32 = 0x40000000  # calls of another table on the same machine


def close_in(*, memory_bytes: int, cpu_s: int, file_bytes: int, scratch: Path | None) -> None:
    """Put the walls up around this process, for good; only what lies in `scratch` can be written to."""
    _limit(resource.RLIMIT_AS, _own_bytes() + memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s, grace=5)  # first a signal that tells what it was
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    if not sys.platform.startswith('linux'):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        with contextlib.suppress(OSError):
            _landlock(libc, scratch)
        _seccomp(libc)


def _limit(what: int, value: int, *, grace: int = 0) -> None:
    _, hard = resource.getrlimit(what)
    most = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (min(value, most), most))


def _own_bytes() -> int:
    """The address space that this process has already, libraries included."""
    try:
        return int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 30


def _landlock(libc: ctypes.CDLL, scratch: Path | None) -> None:
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return
    writing = WRITING | sum(bit for since, bit in WRITING_SINCE.items() if version >= since)
    rules = struct.pack('=Q', writing)
    rules += struct.pack('=Q', TCP) if version >= 4 else b''
    rules += struct.pack('=Q', SCOPES) if version >= 6 else b''
    handle = libc.syscall(CREATE_RULESET, rules, len(rules), 0)
    if handle < 0:
        return
    try:
        if scratch is not None:
            place = os.open(scratch, os.O_PATH | os.O_CLOEXEC)
            libc.syscall(ADD_RULE, handle, 1, struct.pack('=Qi', writing, place), 0)
            os.close(place)
        libc.syscall(RESTRICT_SELF, handle, 0)
    finally:
        os.close(handle)


class _Program(ctypes.Structure):
    _fields_ = (('length', ctypes.c_ushort), ('steps', ctypes.c_char_p))


def _seccomp(libc: ctypes.CDLL) -> None:
    if platform.machine() not in CALLS:
        return
    audit, calls = CALLS[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06  # of classic BPF
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, REFUSE), (load, 0, 0, 0)]
    # A test that holds jumps over those after it, and over ALLOW.
    steps += [(at_least, len(calls) + 1, 0, X32)]
    steps += [(equal, len(calls) - n, 0, call) for n, call in enumerate(calls)]
    steps += [(answer, 0, 0, ALLOW), (answer, 0, 0, REFUSE)]
    program = _Program(len(steps), b''.join(struct.pack('=HBBI', *step) for step in steps))
    libc.prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(program), 0, 0)
