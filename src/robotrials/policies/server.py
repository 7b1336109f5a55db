"""Serving a robotrials policy on other people's wires: openpi's and vla-eval's clients can use it as it is.

A thread per connection, bounded in number; frames are bounded before they are read, a client that neither speaks nor
listens is let go, and `/healthz` and `/health` answer on the same port.
"""

from __future__ import annotations

import contextlib
import http
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from robotrials.errors import InputError, SetupError, install_hint
from robotrials.policies.shared import OfferedPolicy
from robotrials.policies.vla_eval import PROTOCOL_VERSION, read_message
from robotrials.run import ActionConvention, ControlMode, Gripper, Rotation, Session, Target
from robotrials.wire import LIMITS, WireLimits, pack, unpack
from robotrials.wire.array import pack_vla_eval

HEALTH_PATHS = ('/healthz', '/health')
SEND_S = 30
HANG_UP = 'Internal server error. Traceback included in previous frame.'


class Conversation(Protocol):
    """What one wire says on one connection."""

    def open(self, send: Any) -> None:
        """Whatever the server says first."""

    def hear(self, frame: bytes | str, send: Any) -> bool:
        """Answer one frame; whether the connection goes on."""

    def close(self) -> None: ...


class ConversationServer:
    """Holds conversations on one port, in threads, until closed; `converse` makes one for the nth connection."""

    def __init__(
        self,
        converse: Callable[[int], Conversation],
        *,
        host: str = '127.0.0.1',
        port: int = 0,
        idle_s: float = 600.0,
        most_connections: int = 64,
        limits: WireLimits = LIMITS,
    ) -> None:
        try:
            from websockets.sync.server import serve
        except ModuleNotFoundError as error:
            raise SetupError(f'websockets is not installed; {install_hint("wire")}') from error
        self._converse, self._idle_s = converse, idle_s
        self._places = threading.BoundedSemaphore(most_connections)
        self._count = 0
        try:
            self._server = serve(
                self._handle,
                host,
                port,
                compression=None,
                max_size=limits.max_bytes,
                max_queue=2,
                ping_interval=None,
                open_timeout=10,
                close_timeout=1,
                process_request=_answer_health,
            )
        except OSError as error:
            raise InputError(f'{host}:{port} cannot be listened on ({error.strerror}); give another port') from error
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name='policy server')
        self._thread.start()

    def wait(self) -> None:
        """Serve until the process is told to stop."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def _handle(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        if not self._places.acquire(blocking=False):
            connection.close(code=1013, reason='too many connections')
            return
        # The wire's own sends have no deadline; the kernel's has.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', SEND_S, 0))
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        conversation = self._converse(self._count)
        try:
            conversation.open(connection.send)
            while conversation.hear(connection.recv(timeout=self._idle_s), connection.send):
                pass
            connection.close(code=1011, reason=HANG_UP)
        except TimeoutError:
            connection.close(code=1001, reason='silent for too long')
        except (ConnectionClosed, OSError):
            pass  # the client left, or does not read
        finally:
            self._places.release()
            with contextlib.suppress(Exception):  # the client is gone; what a session leaves behind is its own
                conversation.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PolicyServer(ConversationServer):
    """Serves an OfferedPolicy on `wire` (openpi or vla-eval)."""

    def __init__(self, offered: OfferedPolicy, *, wire: str, limits: WireLimits = LIMITS, **options: Any) -> None:
        if wire not in CONVERSATIONS:
            raise InputError(f'wire is {wire!r}, wanted one of: {", ".join(CONVERSATIONS)}')
        self._offered = offered
        super().__init__(lambda n: CONVERSATIONS[wire](offered, seed=n, limits=limits), limits=limits, **options)

    def close(self) -> None:
        super().close()
        self._offered.close()


class OpenPiConversation:
    """Metadata first, then question and answer. A changed prompt begins a new session: the wire has no other sign."""

    def __init__(self, offered: OfferedPolicy, *, seed: int, limits: WireLimits) -> None:
        self._offered, self._seed, self._limits = offered, seed, limits
        self._session: Session | None = None
        self._instruction = ''
        self._last_total_ms: float | None = None

    def open(self, send: Any) -> None:
        spec = self._offered.policy.spec
        send(
            pack(
                {
                    'policy': spec.name,
                    'served_by': 'robotrials',
                    'action_horizon': spec.chunk_length,
                    'action_dim': spec.action.width,
                    'control_rate_hz': spec.control_rate_hz,
                }
            )
        )

    def hear(self, frame: bytes | str, send: Any) -> bool:
        began_s = time.perf_counter()
        try:
            answer = self._answer(frame)
        except Exception:
            send(traceback.format_exc())
            return False
        if self._last_total_ms is not None:
            answer['server_timing']['prev_total_ms'] = self._last_total_ms
        send(pack(answer))
        self._last_total_ms = (time.perf_counter() - began_s) * 1000
        return True

    def _answer(self, frame: bytes | str) -> dict[str, Any]:
        if isinstance(frame, str):
            raise InputError('a text frame, wanted a msgpack map')
        question = unpack(frame, limits=self._limits)
        if not isinstance(question, Mapping):
            raise InputError(f'the question is a {type(question).__name__}, wanted a map')
        instruction = self._offered.names.instruction(question)
        if self._session is None or instruction != self._instruction:
            self._offered.end(self._session)
            self._session = self._offered.start(instruction, seed=self._seed)
            self._instruction = instruction
        began_s = time.perf_counter()
        chunk = self._offered.act(self._session, question)
        return {'actions': chunk.actions, 'server_timing': {'infer_ms': (time.perf_counter() - began_s) * 1000}}

    def close(self) -> None:
        self._offered.end(self._session)


class VlaEvalConversation:
    """Hello, then episodes; chunks are kept here, and every observation is answered with one action."""

    def __init__(self, offered: OfferedPolicy, *, seed: int, limits: WireLimits) -> None:
        self._offered, self._seed, self._limits = offered, seed, limits
        self._session: Session | None = None
        self._rest: list[Any] = []

    def open(self, send: Any) -> None:
        """The client speaks first."""

    def hear(self, frame: bytes | str, send: Any) -> bool:
        if isinstance(frame, str):
            return False
        try:
            message = read_message('client', frame, limits=self._limits)
        except Exception:
            return False  # as its own servers do: what cannot be read ends the connection
        try:
            answer = self._answer(message.type, message.payload)
        except Exception as error:
            text = f'{message.type}_failed: {type(error).__name__}: {error}'
            answer = ('error', {'error': text[:2000]})
        if answer is not None:
            kind, payload = answer
            reply = {'type': kind, 'payload': payload, 'seq': message.seq, 'timestamp': time.time()}
            send(pack_vla_eval(reply))
        return True

    def _answer(self, kind: str, payload: Mapping[Any, Any]) -> tuple[str, dict[str, Any]] | None:
        if kind == 'hello':
            return 'hello', self._hello()
        if kind in ('episode_start', 'episode_end'):
            self._finish()
            return None
        if kind == 'observation':
            return 'action', {'actions': self._action(dict(_flat(payload)))}
        return None

    def _action(self, question: Mapping[str, Any]) -> Any:
        if self._session is None:
            self._session = self._offered.start(self._offered.names.instruction(question), seed=self._seed)
        if not self._rest:
            spec = self._offered.policy.spec
            chunk = self._offered.act(self._session, question)
            self._rest = list(chunk.actions[: spec.execute or spec.chunk_length])
        return self._rest.pop(0)

    def _hello(self) -> dict[str, Any]:
        from robotrials import __version__

        spec = self._offered.policy.spec
        return {
            'harness_version': f'robotrials {__version__}',
            'protocol_version': PROTOCOL_VERSION,
            'model_server': spec.name,
            'capabilities': {},
            'action_spec': action_spec(spec.action),
        }

    def _finish(self) -> None:
        session, self._session, self._rest = self._session, None, []
        self._offered.end(session)

    def close(self) -> None:
        self._finish()


CONVERSATIONS: dict[str, Any] = {'openpi': OpenPiConversation, 'vla-eval': VlaEvalConversation}

_ROTATION_FORMATS = {
    Rotation.EULER_XYZ: ('euler_xyz', 3),
    Rotation.AXIS_ANGLE: ('axis_angle', 3),
    Rotation.QUATERNION_XYZW: ('quaternion_xyzw', 4),
}
_GRIPPER_FORMATS = {
    Gripper.CLOSED_IS_PLUS_ONE: 'binary_close_positive',
    Gripper.OPEN_IS_PLUS_ONE: 'binary_close_negative',
    Gripper.CLOSED_IS_ONE: 'binary_close_01',
    Gripper.OPEN_IS_ONE: 'continuous_01',
}


def action_spec(convention: ActionConvention) -> dict[str, dict[str, Any]]:
    """A convention as vla-eval states it."""
    if convention.control_mode is not ControlMode.SE3:
        parts = {'joints': {'name': 'joints', 'dims': convention.n_joints, 'format': 'joint_positions'}}
        if convention.control_mode is ControlMode.JOINT_VELOCITY:
            parts['joints']['format'] = 'raw'
    else:
        place = 'delta_xyz' if convention.target is Target.DELTA else 'absolute_xyz'
        parts = {'position': {'name': 'position', 'dims': 3, 'format': place}}
        if convention.rotation is not Rotation.NONE:
            form, dims = _ROTATION_FORMATS.get(convention.rotation, ('raw', convention.motion_width - 3))
            parts['rotation'] = {'name': 'rotation', 'dims': dims, 'format': form}
    if convention.gripper is not Gripper.NONE:
        parts['gripper'] = {'name': 'gripper', 'dims': 1, 'format': _GRIPPER_FORMATS[convention.gripper]}
    return parts


def _flat(payload: Mapping[Any, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    for key, value in payload.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value


def _answer_health(connection: Any, request: Any) -> Any:
    if request.path.partition('?')[0] in HEALTH_PATHS:
        text = 'OK\n' if request.path.startswith('/healthz') else '{"status": "ok"}\n'
        return connection.respond(http.HTTPStatus.OK, text)
    return None
