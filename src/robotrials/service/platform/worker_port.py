"""The worker's own port: clients come in here with their tokens, and operators can stop the cell with one call.

ws   /eval      one client, one episode
POST /stop      the emergency stop (Authorization: Bearer with the operator's secret)
POST /resume    back into service
GET  /healthz   state of the worker
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.record.folder import move_durably, write_durably
from robotrials.service.platform.client import ApiError, command_id
from robotrials.service.platform.job import LeaseClaim, TokenRefused
from robotrials.service.platform.link import CLIENT_LIMITS, VERSION, ClientLink, ErrorCode, MessageType, Stopped
from robotrials.wire.link import Deadline, Link
from robotrials.wire.websocket import AcceptedWebSocket
from robotrials.worlds.wrapper import Interrupts

MOST_HEAD_BYTES = 16 << 10
MOST_CONNECTIONS = 32  # that have not been let in or refused yet
MOST_OF_ADDRESS = 8  # of them: one that says nothing must not keep a rival from its cell
HELLO_S = 10.0
BACKLOG = 64
KEEP_ALIVE = {'TCP_KEEPIDLE': 4, 'TCP_KEEPINTVL': 2, 'TCP_KEEPCNT': 3, 'TCP_USER_TIMEOUT': 10_000}
REASONS = {200: 'OK', 400: 'Bad Request', 401: 'Unauthorized', 404: 'Not Found', 405: 'Method Not Allowed',
           503: 'Service Unavailable'}  # fmt: skip


class PortWorker(Protocol):
    """What the port asks of the worker behind it."""

    def admit(self, token: str) -> LeaseClaim:
        """The claim of a good token; TokenRefused says what is wrong with it."""

    def take(self, claim: LeaseClaim, link: ClientLink) -> tuple[ErrorCode, str] | None:
        """Take a client in, who then belongs to the worker; or why not."""

    def state(self) -> Mapping[str, object]: ...

    def stop(self, why: str) -> None: ...

    def resume(self) -> None: ...


class WorkerPort:
    """Listens until closed: a thread to accept, and one for as long as a newcomer has not been let in or refused."""

    def __init__(
        self,
        desk: PortWorker,
        *,
        interrupts: Interrupts,
        host: str,
        port: int,
        stop_secret: str = '',
        hello_s: float = HELLO_S,
    ) -> None:
        self._desk, self._interrupts, self._hello_s = desk, interrupts, hello_s
        self._stop_secret = stop_secret
        self._places: Counter[str] = Counter()  # newcomers by address
        self._places_lock = threading.Lock()
        try:
            self._listener = socket.create_server((host, port), backlog=BACKLOG)
        except OSError as error:
            raise InputError(
                f'{host}:{port} cannot be listened on ({error.strerror}); give another --listen'
            ) from error
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True, name='worker port').start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return  # closed
            if not self._has_place(address[0]):
                connection.close()
                continue
            where = f'{address[0]}:{address[1]}'
            threading.Thread(target=self._serve, args=(connection, address[0], where), daemon=True, name=where).start()

    def _has_place(self, address: str) -> bool:
        with self._places_lock:
            is_full = self._places.total() >= MOST_CONNECTIONS or self._places[address] >= MOST_OF_ADDRESS
            if not is_full:
                self._places[address] += 1
            return not is_full

    def _serve(self, connection: socket.socket, address: str, where: str) -> None:
        is_taken = False
        try:
            _keep_alive(connection)
            is_taken = self._answer(Link(connection), where)
        except (OSError, InputError, RigError):
            pass  # whoever it was is gone, or spoke nonsense; nothing was begun
        finally:
            with self._places_lock:
                self._places[address] -= 1
                if not self._places[address]:
                    del self._places[address]
            if not is_taken:
                connection.close()

    def _answer(self, link: Link, where: str) -> bool:
        """Answer a request; whether the connection now belongs to the worker."""
        deadline = Deadline.after(self._hello_s)
        head = _read_head(link, deadline)
        method, path, headers = _parse_head(head)
        if (method, path) == ('GET', '/eval'):
            socket_ = AcceptedWebSocket(where, link, head, deadline=deadline, limits=CLIENT_LIMITS)
            return self._let_in(ClientLink(socket_, self._interrupts))
        status, body = self._plain(method, path, headers)
        content = json.dumps(body).encode() + b'\n'
        lines = f'HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n'
        lines += f'Content-Length: {len(content)}\r\nConnection: close\r\n\r\n'
        link.send(lines.encode() + content, deadline=deadline)
        return False

    def _plain(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, object]]:
        if path == '/healthz' and method == 'GET':
            return 200, self._desk.state()
        actions: dict[str, Callable[[], None]] = {
            '/stop': lambda: self._desk.stop('emergency stop'), '/resume': self._desk.resume,
        }  # fmt: skip
        if path not in actions:
            return 404, _error('not_found', 'wanted /eval, /stop, /resume or /healthz')
        if method != 'POST':
            return 405, _error('method', f'wanted POST {path}')
        if not self._may(path.removeprefix('/'), headers.get('authorization', '').removeprefix('Bearer ')):
            return 401, _error('unauthorized', "wanted Authorization: Bearer with this worker's stop secret")
        actions[path]()
        return 200, self._desk.state()

    def _may(self, word: str, given: str) -> bool:
        """Whether a bearer may stop the cell: by the operator's secret, or by a token that the server signed for it."""
        if self._stop_secret and hmac.compare_digest(given.encode(), self._stop_secret.encode()):
            return True
        try:
            return self._desk.admit(given).lease_id == command_id(word)
        except InputError:
            return False

    def _let_in(self, link: ClientLink) -> bool:
        try:
            fields = link.receive(MessageType.BEGIN_EVAL, timeout_s=self._hello_s)
            if fields.get('version') != VERSION:
                version = str(fields.get('version'))[:20]
                link.refuse(ErrorCode.VERSION, f'version {version}, this worker speaks {VERSION}; upgrade one side')
                return False
            claim = self._desk.admit(str(fields.get('token')))
        except TokenRefused as error:
            link.refuse(ErrorCode.of_token(error.fault), str(error))
            return False
        except AnswerError as error:
            link.refuse(ErrorCode.MALFORMED, str(error))
            return False
        except NoAnswer:
            link.refuse(ErrorCode.TIMEOUT, f'no begin_eval within {self._hello_s:g} s')
            return False
        except (RemoteError, RigError, Stopped):
            link.refuse(ErrorCode.OUT_OF_SERVICE, 'this cell is stopped')
            return False
        refused = self._desk.take(claim, link)
        if refused is not None:
            link.refuse(*refused)
        return refused is None


def _error(code: str, message: str) -> dict[str, object]:
    return {'error': {'code': code, 'message': message}}


def _keep_alive(connection: socket.socket) -> None:
    """Notice within about ten seconds that the other machine is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == 'linux':
        for name, value in KEEP_ALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _read_head(link: Link, deadline: Deadline) -> bytes:
    head = b''
    while b'\r\n\r\n' not in head:
        part = link.receive(deadline=deadline, most=4096)
        head += part
        if not part or len(head) > MOST_HEAD_BYTES:
            raise InputError('not a request')
    return head


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    lines = head.partition(b'\r\n\r\n')[0].decode('latin-1').split('\r\n')
    words = lines[0].split(' ')
    if len(words) != 3 or not words[2].startswith('HTTP/1.'):
        raise InputError('not a request')
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(':') for line in lines[1:])}
    return words[0], words[1].partition('?')[0], headers


# The spool: finished attempts on the worker's disk until the server has them. It outlives the worker.

WAITING, LATE, REFUSED = 'waiting', 'late', 'refused'
LEASE_NAME = re.compile('[A-Za-z0-9_-]{1,64}')
Upload = Callable[[str, bytes], None]  # lease id and bundle; ApiError, RigError or NoAnswer if it is not taken


@dataclass(frozen=True, slots=True)
class Flushed:
    """What came of trying to send what waits."""

    sent: tuple[str, ...] = ()  # lease ids
    late: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    trouble: str = ''


class BundleSpool:
    """A folder of bundles by lease. A bundle is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in (WAITING, LATE, REFUSED):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def put(self, lease_id: str, bundle: bytes) -> None:
        """Keep a bundle durably; WriteError if the disk does not take it."""
        write_durably(self._path(WAITING, lease_id), bundle)

    def leases(self) -> tuple[str, ...]:
        """The leases whose bundles wait, oldest first. Another thread may send and remove one while we look."""
        lease_ids = []
        for file in (self._folder / WAITING).glob('*.bundle'):
            with contextlib.suppress(FileNotFoundError):
                lease_ids.append((file.stat().st_mtime_ns, file.stem))
        return tuple(stem for _, stem in sorted(lease_ids))

    def flush(self, upload: Upload) -> Flushed:
        """Try to send everything once. What the server will never take is kept aside with its reason."""
        outcome: dict[str, list[str]] = {'sent': [], 'late': [], 'refused': [], 'waiting': []}
        trouble = ''
        for lease_id in self.leases():
            try:
                upload(lease_id, self._path(WAITING, lease_id).read_bytes())
                self._path(WAITING, lease_id).unlink()
                outcome['sent'].append(lease_id)
            except ApiError as error:
                trouble = str(error)
                if error.is_passing or error.status == 401:  # a token that was renewed too late is no reason to lose it
                    outcome['waiting'].append(lease_id)
                else:
                    kind = LATE if error.status == 410 else REFUSED
                    self._set_aside(kind, lease_id, str(error))
                    outcome[kind].append(lease_id)
            except (RigError, NoAnswer) as error:
                trouble = str(error)
                outcome['waiting'].append(lease_id)
        return Flushed(**{name: tuple(ids) for name, ids in outcome.items()}, trouble=trouble)

    def _set_aside(self, kind: str, lease_id: str, reason: str) -> None:
        note = json.dumps({'lease': lease_id, 'reason': reason})
        write_durably(self._path(kind, lease_id).with_suffix('.json'), note)
        move_durably(self._path(WAITING, lease_id), self._path(kind, lease_id))

    def _path(self, kind: str, lease_id: str) -> Path:
        if not LEASE_NAME.fullmatch(lease_id):
            raise RigError(f'a lease id of {lease_id[:40]!r}, wanted letters, digits, - and _')
        return self._folder / kind / f'{lease_id}.bundle'
