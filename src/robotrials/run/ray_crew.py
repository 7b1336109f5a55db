"""Workers on a Ray cluster: one actor for each, with a host process that stays warm, given one episode at a time.

An actor watches its worker process as `robotrials.run.crew` does on one machine, so whose fault a fault is, and what is
recorded of it, does not depend on the engine. The worker puts its episode into the store itself: what comes back is one
line, and a node that dies takes only its episodes under way with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
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

from robotrials.errors import InputError, RobotrialsError, SetupError, StoreError, install_hint
from robotrials.record import Outcome
from robotrials.record.bucket import CachedPath
from robotrials.record.folder import store_root
from robotrials.run.blinding import read_arms
from robotrials.run.component import POLICIES
from robotrials.run.crew import START_TRIES, Crew, Errand, ProcessCrew, Worker
from robotrials.run.fault import Fault, FaultKind
from robotrials.run.plan import PolicyEntry, WatchdogOptions, plan_from_json
from robotrials.run.schedule import SlotAttempt, trial_slots
from robotrials.run.station import Finished

# A Ray cluster: what a worker takes of it, how it is reached, and policies on it that workers share.

POLL_S = 0.05
REACH_S = 10.0
POLICY_HOST = 'robotrials.policies.server:PolicyHost'
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
                        f'a policy server failed to start {START_TRIES} times in a row ({type(error).__name__}); '
                        'run the same command again to resume'
                    ) from None
                self._start(server)
                continue
            self._failed_starts[server] = 0
            self._lives[self._actors[server].live.remote()] = server
        waited_s = max((time.monotonic() - since for _, since in self._opening.values()), default=0.0)
        if waited_s > self._options.room_wait_s:
            raise SetupError(
                f'{len(self._opening)} of {len(self._actors)} policy servers found no room or were not ready within '
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


LOST_WORD_S = 10.0  # in which a worker whose server was lost says so itself
REST_S = 2.0  # after an INVALID episode, in which Ray says whether a policy server was lost


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker process that died or hung on its node; its actor has started another."""

    fault: Fault
    episode_s: float


class RayStation:
    """The actor: one worker process on its node, kept warm from episode to episode."""

    def __init__(self, errand: Errand, address: str, limits: WatchdogOptions) -> None:
        here = [p for p in errand.import_path if p not in sys.path and os.path.isdir(p)]
        errand = dataclasses.replace(errand, import_path=(*sys.path, *here), store=store_root(address))
        self._errand, self._limits = errand, limits
        plan = plan_from_json(errand.plan)
        arms = read_arms(plan, errand.arms) if errand.arms is not None else None
        self._slots = trial_slots(plan, rotation=b'' if arms is None else arms.rotation)
        self._crew: ProcessCrew | None = None

    def start(self) -> None:
        """Open host and policies, and check that they fit together."""
        from robotrials.record import Store

        try:
            Store.open(self._errand.store)
        except StoreError as error:
            raise InputError(
                f'a node of the cluster does not see the store ({error}); give a folder that all nodes share, or an '
                'address of object storage'
            ) from error
        self._crew = ProcessCrew(self._errand, size=1, limits=self._limits, log=None)
        while not self._crew.idle():
            self._crew.listen()
            self._replace_lost(self._crew)

    def run(self, number: int, attempt: int, served: Mapping[str, PolicyEntry]) -> Finished | Lost:
        """Run one slot; the episode is in the store when this returns Finished."""
        crew = self._crew
        if crew is None:
            raise RuntimeError('run before start')
        if served != self._errand.served:  # a policy server was replaced
            self._errand = dataclasses.replace(self._errand, served=served, is_replacement=True)
            crew.reassign(self._errand)
        while not crew.idle():  # what came after a fault is still starting
            crew.listen()
            self._replace_lost(crew)
        crew.idle()[0].give(SlotAttempt(self._slots[number], attempt))
        while True:
            for worker, finished in crew.listen():
                worker.task = None
                if finished.is_poisoned:
                    crew.replace(worker)
                return finished
            if (lost := self._replace_lost(crew)) is not None:
                return lost

    def _replace_lost(self, crew: ProcessCrew) -> Lost | None:
        for worker, fault in crew.losses():
            had_task = worker.task is not None
            episode_s = crew.replace(worker)
            if had_task:
                return Lost(fault, episode_s)
        return None


class RayWorker(Worker):
    """The driver's end of one actor."""

    def __init__(self, actor: Any, shared: SharedPolicies, row: int) -> None:
        super().__init__()
        self.actor, self.row, self._shared = actor, row, shared
        self.unserved_since: float | None = None  # the server that its episode asks was lost then
        self.rests_until = 0.0
        self.fault: Fault | None = None
        self.episode_s = 0.0
        self.answer: Any = actor.start.remote()

    def give(self, task: SlotAttempt) -> None:
        self.task, self.unserved_since = task, None
        self.answer = self.actor.run.remote(task.slot.number, task.attempt, self._shared.served[self.row])


class RayCrew(Crew[RayWorker]):
    """Several actors on one errand.

    An actor has at most one episode under way, so nothing piles up on the cluster. Actors that find no room yet wait,
    and show an autoscaler what is wanted.
    """

    start_hint = 'is robotrials installed on all nodes, in the same version? The logs of Ray on the node say more'

    def __init__(
        self, ray: Any, errand: Errand, *, size: int, limits: WatchdogOptions, options: RayOptions,
        policies: Mapping[str, PolicyEntry],
    ) -> None:  # fmt: skip
        self._ray, self._options = ray, options
        self._shared = SharedPolicies(ray, policies, options)
        self._n_hired = self._n_owed = 0
        address = errand.store.address if isinstance(errand.store, CachedPath) else str(errand.store)
        self._address, self._limits = address, limits
        self._station = ray.remote(RayStation).options(
            num_cpus=options.cpus, num_gpus=options.gpus, resources=dict(options.resources), max_restarts=0,
            max_task_retries=0,
        )  # fmt: skip
        self._spare: list[RayWorker] = []
        self._without_room_since = time.monotonic()
        super().__init__(errand, size=size)

    def hire(self) -> None:
        """One more worker: an actor that is warm already, or a new one."""
        if self._spare:
            self.workers.append(self._spare.pop())
            return
        rows = [row for row in range(len(self._shared.served)) if self._shared.is_whole(row)]
        if not rows:  # until a policy server is back
            self._n_owed += 1
            return
        row = rows[self._n_hired % len(rows)]
        self._n_hired += 1
        errand = dataclasses.replace(self._errand, served=self._shared.served[row])
        actor = self._station.remote(errand, self._address, self._limits)
        self.workers.append(RayWorker(actor, self._shared, row))

    def idle(self) -> list[RayWorker]:
        return [w for w in super().idle() if self._shared.is_whole(w.row) and time.monotonic() >= w.rests_until]

    def listen(self) -> list[tuple[RayWorker, Finished]]:
        self._mind_servers()
        waiting = {w.answer: w for w in self.workers if w.answer is not None}
        if not waiting:
            time.sleep(POLL_S)
            return []
        answered, _ = self._ray.wait(list(waiting), num_returns=1, timeout=POLL_S)
        more, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0) if answered else ([], None)
        said: list[tuple[RayWorker, Finished]] = []
        for reference in dict.fromkeys([*answered, *more]):
            worker = waiting[reference]
            worker.answer = None
            message = self._get(worker, reference)
            if isinstance(message, Finished):
                said.append((worker, message))
                if self._options.policy_servers and message.outcome is Outcome.INVALID:
                    worker.rests_until = time.monotonic() + REST_S
            elif isinstance(message, Lost):
                worker.fault, worker.episode_s = message.fault, message.episode_s
            elif not worker.is_gone:
                self._is_ready(worker)
        self._check_room()
        return said

    def _mind_servers(self) -> None:
        """Replace lost policy servers; an episode that asks one is lost with it, unless its worker says so first."""
        now, lost = time.monotonic(), self._shared.check()
        for worker in self.workers:
            if worker.task is not None and (worker.row, worker.task.slot.policy) in lost:
                worker.unserved_since = now
            elif not worker.is_ready and worker.row in {row for row, _ in lost}:
                worker.unserved_since = now - LOST_WORD_S  # it would open what is gone
            if worker.answer is None:
                worker.unserved_since = None
            elif worker.unserved_since is not None and now - worker.unserved_since >= LOST_WORD_S:
                worker.fault = Fault(FaultKind.POLICY_ENDPOINT, 'its policy server was lost')
                worker.answer, worker.is_gone = None, True
        owed, self._n_owed = self._n_owed, 0
        for _ in range(owed):
            self.hire()

    def _get(self, worker: RayWorker, reference: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, RobotrialsError):
                raise error.cause from None
            worker.fault = Fault(FaultKind.WORKER_DEATH, 'the actor of a worker failed', text=str(error))
        except RayError as error:
            worker.fault = Fault(FaultKind.WORKER_DEATH, 'its node or actor was lost', text=type(error).__name__)
        worker.is_gone = True
        return None

    def _check_room(self) -> None:
        """Give up when no node had room for even one worker for long."""
        if any(w.is_ready for w in self.workers):
            self._without_room_since = time.monotonic()
        elif time.monotonic() - self._without_room_since > self._options.room_wait_s:
            o = self._options
            asked = {'CPU': o.cpus, 'GPU': o.gpus, **o.resources}
            raise SetupError(
                f'no node had room for a worker within {o.room_wait_s:g} s; one takes '
                f'{", ".join(f"{name} {n:g}" for name, n in asked.items() if n)}; the cluster has '
                f'{", ".join(f"{k} {v:g}" for k, v in sorted(self._ray.cluster_resources().items()) if ":" not in k)}'
            )

    def losses(self) -> list[tuple[RayWorker, Fault]]:
        return [(w, w.fault) for w in self.workers if w.fault is not None]

    def dismiss(self, worker: RayWorker) -> float:
        """As for any crew; an actor that lives is kept for the next."""
        self.workers.remove(worker)
        episode_s, worker.episode_s, worker.fault, worker.task = worker.episode_s, 0.0, None, None
        if not worker.is_gone:
            self._spare.append(worker)
            return episode_s
        self._ray.kill(worker.actor)  # it may be only out of reach, and must not go on
        self._has_ended(worker)
        return episode_s

    def __exit__(self, *exception: object) -> None:
        for worker in [*self.workers, *self._spare]:
            self._ray.kill(worker.actor)
        self.workers, self._spare = [], []
        self._shared.close()
