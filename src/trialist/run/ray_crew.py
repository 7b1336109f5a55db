"""Workers on a Ray cluster: one actor for each, with a host process that stays warm, given one episode at a time.

An actor watches its worker process as `trialist.run.crew` does on one machine, so whose fault a fault is, and what is
recorded of it, does not depend on the engine. The worker puts its episode into the store itself: what comes back is one
line, and a node that dies takes only its episodes under way with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trialist.episodes.bucket import CachedPath, store_root
from trialist.errors import InputError, SetupError, StoreError, TrialistError
from trialist.run.component import POLICIES
from trialist.run.crew import START_TRIES, Crew
from trialist.run.fault import Fault, FaultKind
from trialist.run.plan import PolicyEntry, WatchdogOptions, plan_from_json
from trialist.run.rotation import trial_slots
from trialist.run.schedule import Task
from trialist.run.station import Finished
from trialist.run.worker import Errand

POLL_S = 0.05
POLICY_HOST = 'trialist.policies.shared:PolicyHost'
ROOM_WAIT_S = 600.0  # for a first node with room; an autoscaler takes minutes


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


@contextlib.contextmanager
def ray_cluster(options: RayOptions) -> Iterator[Any]:
    """Ray, connected; left again, or ended, if it was connected to or started here."""
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    try:
        import ray
    except ImportError as error:
        raise SetupError("--engine ray needs Ray; install it with: pip install 'trialist[scale]'") from error
    if ray.is_initialized():
        yield ray
        return
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
    """Policies as actors of their own: some servers of each, which workers share evenly."""

    def __init__(self, ray: Any, entries: Mapping[str, PolicyEntry], options: RayOptions) -> None:
        import secrets

        from ray.exceptions import RayTaskError

        host = ray.remote(POLICIES.load(POLICY_HOST)).options(
            num_cpus=options.cpus if options.policy_servers else 0, num_gpus=options.server_gpus, max_restarts=0,
            max_concurrency=2,
        )  # fmt: skip
        self._ray = ray
        self._actors = [
            {name: host.remote(entry, secrets.token_hex(32)) for name, entry in entries.items()}
            for _ in range(options.policy_servers)
        ]
        everyone = [(row, name, actor) for row, actors in enumerate(self._actors) for name, actor in actors.items()]
        asked = [actor.entry.remote() for *_, actor in everyone]
        waiting = ray.wait(asked, num_returns=len(asked), timeout=options.room_wait_s)[1] if asked else []
        if waiting:
            raise SetupError(f'{len(waiting)} of {len(asked)} policy servers found no room or did not open in time')
        self.served: list[dict[str, PolicyEntry]] = [{} for _ in self._actors] or [{}]
        try:
            for (row, name, _), reference in zip(everyone, asked, strict=True):
                self.served[row][name] = ray.get(reference)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, TrialistError) else SetupError(str(error)) from None
        except ray.exceptions.RayError as error:
            raise SetupError(f'a policy server did not start ({type(error).__name__})') from None
        self._lives = [actor.live.remote() for *_, actor in everyone]

    def check(self) -> None:
        """Raise if a server is gone: its workers could only fail from now on."""
        if self._lives and self._ray.wait(self._lives, timeout=0)[0]:
            raise SetupError('a policy server was lost with its node; run the same command again to resume')

    def close(self) -> None:
        for actors in self._actors:
            for actor in actors.values():
                self._ray.kill(actor)


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
        self._slots = trial_slots(plan_from_json(errand.plan))
        self._crew: Crew | None = None

    def start(self) -> None:
        """Open host and policies, and check that they fit together."""
        from trialist.episodes import Store

        try:
            Store.open(self._errand.store)
        except StoreError as error:
            raise InputError(
                f'a node of the cluster does not see the store ({error}); give a folder that all nodes share, or an '
                'address of object storage'
            ) from error
        self._crew = Crew(self._errand, size=1, limits=self._limits, log=None)
        while not self._crew.idle():
            self._crew.listen()
            self._replace_lost(self._crew)

    def run(self, number: int, attempt: int) -> Finished | Lost:
        """Run one slot; the episode is in the store when this returns Finished."""
        crew = self._crew
        if crew is None:
            raise RuntimeError('run before start')
        while not crew.idle():  # what came after a fault is still starting
            crew.listen()
            self._replace_lost(crew)
        crew.idle()[0].give(Task(self._slots[number], attempt))
        while True:
            for worker, finished in crew.listen():
                worker.task = None
                if finished.is_poisoned:
                    crew.dismiss(worker)
                    crew.hire()
                return finished
            if (lost := self._replace_lost(crew)) is not None:
                return lost

    def _replace_lost(self, crew: Crew) -> Lost | None:
        for worker, fault in crew.losses():
            had_task = worker.task is not None
            episode_s = crew.dismiss(worker)
            crew.hire()
            if had_task:
                return Lost(fault, episode_s)
        return None


class RayWorker:
    """The driver's end of one actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.task: Task | None = None
        self.is_ready = False
        self.is_gone = False
        self.fault: Fault | None = None
        self.episode_s = 0.0
        self.answer: Any = actor.start.remote()

    def give(self, task: Task) -> None:
        self.task = task
        self.answer = self.actor.run.remote(task.slot.number, task.attempt)


class RayCrew:
    """Several actors on one errand, with the manners of a `Crew`.

    An actor has at most one episode under way, so nothing piles up on the cluster. Actors that find no room yet wait,
    and show an autoscaler what is wanted.
    """

    def __init__(
        self, ray: Any, errand: Errand, *, size: int, limits: WatchdogOptions, options: RayOptions,
        policies: Mapping[str, PolicyEntry],
    ) -> None:  # fmt: skip
        self._ray, self._options = ray, options
        self._shared = SharedPolicies(ray, policies, options)
        self._n_hired = 0
        address = errand.store.address if isinstance(errand.store, CachedPath) else str(errand.store)
        self._errand, self._address, self._limits = errand, address, limits
        self._station = ray.remote(RayStation).options(
            num_cpus=options.cpus, num_gpus=options.gpus, resources=dict(options.resources), max_restarts=0,
            max_task_retries=0,
        )  # fmt: skip
        self._spare: list[RayWorker] = []
        self._failed_starts = 0
        self._without_room_since = time.monotonic()
        self.workers: list[RayWorker] = []
        for _ in range(size):
            self.hire()

    def hire(self) -> None:
        """One more worker: an actor that is warm already, or a new one."""
        if self._spare:
            self.workers.append(self._spare.pop())
            return
        served = self._shared.served[self._n_hired % len(self._shared.served)]
        self._n_hired += 1
        errand = dataclasses.replace(self._errand, served=served)
        self.workers.append(RayWorker(self._station.remote(errand, self._address, self._limits)))

    def idle(self) -> list[RayWorker]:
        return [w for w in self.workers if w.is_ready and w.task is None and not w.is_gone]

    def listen(self) -> list[tuple[RayWorker, Finished]]:
        """What actors have to say now, after a short wait; one that cannot start ends the run."""
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
            elif isinstance(message, Lost):
                worker.fault, worker.episode_s = message.fault, message.episode_s
            elif not worker.is_gone:
                worker.is_ready = True
                self._failed_starts = 0
        self._check_room()
        self._shared.check()
        return said

    def _get(self, worker: RayWorker, reference: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, TrialistError):
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
        """Workers whose episode a fault ended, with the fault to record."""
        return [(w, w.fault) for w in self.workers if w.fault is not None]

    def dismiss(self, worker: RayWorker) -> float:
        """Let a worker go; how far its episode had come. An actor that lives is kept for the next."""
        self.workers.remove(worker)
        episode_s, worker.episode_s, worker.fault, worker.task = worker.episode_s, 0.0, None, None
        if not worker.is_gone:
            self._spare.append(worker)
            return episode_s
        self._ray.kill(worker.actor)  # it may be only out of reach, and must not go on
        if not worker.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= START_TRIES:
                raise SetupError(
                    f'actors ended {START_TRIES} times in a row before host and policies were open; is trialist '
                    'installed on all nodes, in the same version? The logs of Ray on the node say more'
                )
        return episode_s

    def __enter__(self) -> RayCrew:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in [*self.workers, *self._spare]:
            self._ray.kill(worker.actor)
        self.workers, self._spare = [], []
        self._shared.close()
