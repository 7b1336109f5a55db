"""One policy for many workers of a trial: each with its own episode and seed, in batches where the policy can.

For processes of one trial that trust each other, as those of a Ray cluster do: objects go as they are over an
authenticated connection. For others' clients there is `robotrials.policies.server`.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from robotrials.errors import InputError, RigError
from robotrials.policies.batch import Batcher
from robotrials.policies.offered import BatchedPolicy
from robotrials.run import Chunk, HostSpec, Observation, Policy, PolicySpec, Session, Setup
from robotrials.run.component import open_policy
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import ClosablePolicy, FittedPolicy

MOST_AT_ONCE = 32
BATCH_WAIT_S = 0.003
ANSWER_S = 600.0  # the worker's own watchdog is stricter


class SharedPolicyServer:
    """Answers workers, a connection and a thread for each; what the policy can't do side by side waits its turn."""

    def __init__(self, policy: Policy, *, host: str, key: bytes) -> None:
        self.policy = policy
        self._turn = threading.Lock()
        self._fitted: HostSpec | None = None
        self.batcher: Batcher[tuple[Session, Observation], Chunk] | None = None
        if isinstance(policy, BatchedPolicy) and policy.is_batched:
            self.batcher = Batcher(self._act_many, most=MOST_AT_ONCE, wait_s=BATCH_WAIT_S)
        self._listener = Listener((host, 0), backlog=128, authkey=key)
        self.port = int(self._listener.address[1])
        self._host, self._is_closed = host, False
        self._thread = threading.Thread(target=self._accept, daemon=True, name='shared policy')
        self._thread.start()

    def _accept(self) -> None:
        from multiprocessing import AuthenticationError

        while not self._is_closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # not one of ours, or gone again
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name='shared policy client').start()

    def _serve(self, connection: Connection) -> None:
        session: Session | None = None
        with contextlib.suppress(EOFError, OSError):
            while True:
                verb, *given = connection.recv()
                try:
                    answer: Any = None
                    if verb == 'act' and session is not None:
                        answer = self._act(session, given[0])
                    elif verb == 'start':
                        with self._turn:
                            session = self.policy.start(given[0], seed=given[1])
                    else:
                        answer = self._fit(given[0]) if verb == 'fit' else self.policy.spec
                    connection.send((True, answer))
                except Exception as error:
                    connection.send((False, _sendable(error)))

    def _act(self, session: Session, observation: Observation) -> Chunk:
        if self.batcher is not None:
            return self.batcher.ask((session, observation), timeout_s=ANSWER_S)
        with self._turn:
            return session.act(observation)

    def _act_many(self, asked: Sequence[tuple[Session, Observation]]) -> Sequence[Chunk]:
        policy: Any = self.policy
        with self._turn:
            answers: Sequence[Chunk] = policy.act_many([s for s, _ in asked], [o for _, o in asked])
            return answers

    def _fit(self, host: HostSpec) -> PolicySpec:
        with self._turn:
            if isinstance(self.policy, FittedPolicy):
                if self._fitted is None:
                    self.policy.fit(host)
                    self._fitted = host
                elif self._fitted != host:
                    raise InputError(
                        f'a shared policy is fitted to host {self._fitted.name}; all workers need the same'
                    )
            return self.policy.spec

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):  # a thread that waits for a connection does not notice otherwise
            socket.create_connection((self._host, self.port), timeout=1.0).close()
        self._thread.join(5.0)
        self._listener.close()
        if self.batcher is not None:
            self.batcher.close()
        closing: object = self.policy
        if isinstance(closing, ClosablePolicy):
            closing.close()


def _sendable(error: Exception) -> Exception:
    """The error itself, so that it is judged as in the worker's own process; in words if it can't travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f'{type(error).__name__}: {error}')
    return error


class SharedPolicy:
    """A worker's end: a policy like any other, whose thinking is done elsewhere. A lost server is the rig's fault."""

    def __init__(self, *, host: str, port: int, key: str) -> None:
        try:
            self._connection = Client((host, port), authkey=bytes.fromhex(key))
        except (OSError, EOFError) as error:
            raise RigError(f'the policy server of this trial does not answer ({error})') from error
        self._spec: PolicySpec = self._ask('spec')

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def fit(self, host: HostSpec) -> None:
        self._spec = self._ask('fit', host)

    def start(self, setup: Setup, *, seed: int) -> Session:
        self._ask('start', setup, seed)
        return _SharedSession(self)

    def _ask(self, *question: Any) -> Any:
        try:
            self._connection.send(question)
            is_answer, answer = self._connection.recv()
        except (OSError, EOFError) as error:
            raise RigError(f'the policy server of this trial was lost ({type(error).__name__})') from error
        if not is_answer:
            raise answer
        return answer

    def close(self) -> None:
        self._connection.close()


class _SharedSession:
    def __init__(self, policy: SharedPolicy) -> None:
        self._policy = policy

    def act(self, observation: Observation) -> Chunk:
        chunk: Chunk = self._policy._ask('act', observation)
        return chunk


class PolicyHost:
    """The Ray actor around a shared policy."""

    def __init__(self, entry: PolicyEntry, key: str) -> None:
        import ray

        self._key = key
        self._host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self._server = SharedPolicyServer(open_policy(entry), host=self._host, key=bytes.fromhex(key))

    def entry(self) -> PolicyEntry:
        """How a worker opens it."""
        options = {'host': self._host, 'port': self._server.port, 'key': self._key}
        return PolicyEntry(use='robotrials.policies.shared:SharedPolicy', options=options)

    def live(self) -> None:
        """Return never, so that its end is noticed."""
        threading.Event().wait()
