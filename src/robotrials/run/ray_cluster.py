"""A Ray cluster: what a worker takes of it, how it is reached, and policies on it that workers share."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import InputError, RobotrialsError, SetupError, install_hint
from robotrials.run.component import POLICIES
from robotrials.run.crew import START_TRIES
from robotrials.run.plan import PolicyEntry

POLL_S = 0.05
REACH_S = 10.0
POLICY_HOST = 'robotrials.policies.shared:PolicyHost'
ROOM_WAIT_S = 600.0  # for a first node with room, or a policy server; an autoscaler takes minutes
Server = tuple[int, str]  # its row and its policy


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where the cluster is, and what one worker takes of it."""

    address: str | None = None  # None: the cluster this process is connected to, or else one on this machine
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)  # such as robot_cell = 1
    policy_servers: int = 0  # of each policy, shared by all workers; 0: every worker opens its own
    server_gpus: float = 0.0
    room_wait_s: float = ROOM_WAIT_S

    def __post_init__(self) -> None:
        for name, amount in {'cpus': self.cpus, 'gpus': self.gpus, **self.resources}.items():
            if not 0 <= amount < 1e6:
                raise InputError(f'{name} is {amount:g}, wanted how much of it one worker takes')

    def fits(self, cluster: Mapping[str, float]) -> int:
        """How many workers a cluster of these resources has room for."""
        wanted = {'CPU': self.cpus, 'GPU': self.gpus, **self.resources}
        return int(min((cluster.get(name, 0.0) / n for name, n in wanted.items() if n > 0), default=1))


def check_reached(address: str | None) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    match = re.fullmatch(r'(?:ray://)?([^:/]+):(\d{1,5})', address or '')
    if match is None:  # this machine, auto, or something that Ray knows better
        return
    try:
        socket.create_connection((match[1], min(int(match[2]), 65535)), timeout=REACH_S).close()
    except OSError as error:
        raise SetupError(
            f'no Ray cluster at {address} ({error.strerror or error}); `ray status` on its head says the address'
        ) from error


@contextlib.contextmanager
def ray_cluster(options: RayOptions) -> Iterator[Any]:
    """Ray, connected; left again, or ended, if it was connected to or started here."""
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    try:
        import ray
    except ImportError as error:
        raise SetupError(f'--engine ray needs Ray; install it with: {install_hint("scale")}') from error
    if ray.is_initialized():
        yield ray
        return
    check_reached(options.address)
    common: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'error'}
    if options.address is None:
        path = os.pathsep.join(dict.fromkeys(p or os.getcwd() for p in sys.path))
        environment = {'env_vars': {'PYTHONPATH': path}}
        common |= {'include_dashboard': False, '_node_ip_address': '127.0.0.1', 'runtime_env': environment}
    try:
        ray.init(address=options.address or 'local', **common)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SetupError(
            f'no Ray cluster at {options.address or "this machine"} ({error}); see `ray status`'
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


class SharedPolicies:
    """Policies as actors of their own: some servers of each, which workers share evenly.

    A server that is lost is started again, on any node with room, and its workers wait for it.
    """

    def __init__(self, ray: Any, entries: Mapping[str, PolicyEntry], options: RayOptions) -> None:
        self._ray, self._entries, self._options = ray, entries, options
        self._host = ray.remote(POLICIES.load(POLICY_HOST)).options(
            num_cpus=options.cpus if options.policy_servers else 0, num_gpus=options.server_gpus, max_restarts=0,
            max_concurrency=2,
        )  # fmt: skip
        self._actors: dict[Server, Any] = {}
        self._lives: dict[Any, Server] = {}  # what returns when a server ends -> the server
        self._opening: dict[Any, tuple[Server, float]] = {}  # how it is reached, to come -> the server, since when
        self._failed_starts: Counter[Server] = Counter()
        self.served: list[dict[str, PolicyEntry]] = [{} for _ in range(options.policy_servers)] or [{}]
        for row in range(options.policy_servers):
            for name in entries:
                self._start((row, name))
        while self._opening:
            self._ray.wait(list(self._opening), num_returns=1, timeout=POLL_S)
            self._hear_opened()

    def _start(self, server: Server) -> None:
        actor = self._host.remote(self._entries[server[1]], secrets.token_hex(32))
        self._actors[server] = actor
        self._opening[actor.entry.remote()] = server, time.monotonic()

    def _hear_opened(self) -> None:
        from ray.exceptions import RayError, RayTaskError

        ready = self._ray.wait(list(self._opening), num_returns=len(self._opening), timeout=0)[0]
        for reference in ready:
            server, _ = self._opening.pop(reference)
            try:
                self.served[server[0]] = {**self.served[server[0]], server[1]: self._ray.get(reference)}
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, RobotrialsError) else SetupError(str(error)) from None
            except RayError as error:
                self._failed_starts[server] += 1
                if self._failed_starts[server] >= START_TRIES:
                    raise SetupError(
                        f'a policy server did not start, {START_TRIES} times in a row ({type(error).__name__}); '
                        'run the same command again to resume'
                    ) from None
                self._start(server)
                continue
            self._failed_starts[server] = 0
            self._lives[self._actors[server].live.remote()] = server
        waited_s = max((time.monotonic() - since for _, since in self._opening.values()), default=0.0)
        if waited_s > self._options.room_wait_s:
            raise SetupError(
                f'{len(self._opening)} of {len(self._actors)} policy servers found no room or did not open within '
                f'{self._options.room_wait_s:g} s; run the same command again to resume'
            )

    def check(self) -> list[Server]:
        """Start servers that are gone again, and take in those that are back; the servers that were lost just now."""
        ended = self._ray.wait(list(self._lives), num_returns=len(self._lives), timeout=0)[0] if self._lives else []
        lost = [self._lives.pop(reference) for reference in ended]
        for server in lost:
            self._ray.kill(self._actors[server])  # it may be only out of reach
            self._start(server)
        if self._opening:
            self._hear_opened()
        return lost

    def is_whole(self, row: int) -> bool:
        """Whether every policy can be reached by the workers of a row."""
        return all(server[0] != row for server, _ in self._opening.values())

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
