"""The engine: runs a plan into a store, with as many workers as wanted, and resumes what an earlier run left.

A trial's store: opened for its plan and no other, held by one runner, and which of its slots are meant.

Stopping early, by the rule that the plan declared: every comparison decided, at the promised error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError, RobotrialsError, StoreError, UnknownName, WriteError
from robotrials.record import Episode, EventKind, Outcome, Store, collect_provenance, read_store
from robotrials.record.folder import Folder, held_lock, store_root
from robotrials.record.maintain import compact_store
from robotrials.record.part import EntryKind
from robotrials.run.blinding import Arms, Blinding, blinded_plan, read_arms
from robotrials.run.crew import AnyWorker, Crew, Errand, ProcessCrew
from robotrials.run.mark import AlarmBoard, await_old_workers, log_interrupted, mark_begun, mark_ended
from robotrials.run.plan import Scenes, StoppingRule, StoppingScore, TrialPlan
from robotrials.run.schedule import (
    Attempted,
    Report,
    RunTally,
    Schedule,
    Slot,
    SlotAttempt,
    Spool,
    TrialProgress,
    look_edges,
    private_folder,
    spool_of,
)
from robotrials.run.station import Context, TrialStation

if TYPE_CHECKING:
    from robotrials.run.ray_crew import RayOptions


LOCK_WAIT_S = 10.0


def check_open(context: Context, store: Store) -> None:
    """Refuse a trial that was closed."""
    if context.plan.hash in store.unblindings().by_trial:
        raise StoreError(f'{store.path}: this trial is closed; nothing can be added to it')


def with_provenance(context: Context, store: Store) -> Context:
    """The context of episodes that are made on this machine now."""
    plan = context.plan
    provenance = dataclasses.replace(
        collect_provenance(), command='', config=f'plan {plan.hash}', seeds=f'plan seed {plan.seed}'
    )
    return dataclasses.replace(context, provenance_id=store.write_provenance(provenance))


def open_trial_store(context: Context, path: Path | str) -> Store:
    """The store of a trial, made if it is new; a store of another plan is refused, naming what differs."""
    root, plan = store_root(path), context.plan
    if plan.blinding.enabled and Blinding({}, b'', context.blinding.codes).scrub(str(root)) != str(root):
        raise InputError(f'the path of the store ({root}) holds the name of a policy; give another')
    public_plan = blinded_plan(plan, context.blinding)
    if (root / 'trial.json').exists():
        store = read_store(root)
        if store.trial.plan_hash != plan.hash:
            is_empty = next(iter(store.episodes()), None) is None
            raise StoreError(
                f'{root}: holds a trial under another plan ({_differences(store.trial.plan, public_plan)}); '
                + ('no episode was run under it: remove it, or ' if is_empty else '')
                + 'name another store'
            )
    title = context.blinding.hide(plan.title)
    return Store.create(root, trial_id=plan.hash, title=title, plan_hash=plan.hash, plan=public_plan)


def _differences(stored: str, ours: str) -> str:
    """Which keys of two plans differ; what is hidden in a stored plan can only be told by the hash."""
    try:
        theirs, mine = json.loads(stored), json.loads(ours)
    except json.JSONDecodeError:
        return 'which this version cannot read'
    changed = sorted(k for k in {*theirs, *mine} if theirs.get(k) != mine.get(k) and k != 'policies')
    if changed:
        return f'changed: {", ".join(changed)}'
    return 'changed: policies, reference or blinding'


def chosen_slots(slots: Sequence[Slot], *, fixture: str | None, session: str | None) -> list[Slot]:
    """The slots of one fixture and one session, where they are given."""
    for kind, wanted, known in (
        ('fixture', fixture, {s.fixture for s in slots}),
        ('session', session, {s.session for s in slots}),
    ):
        if wanted is not None and wanted not in known:
            raise UnknownName(f'{kind} of this plan', wanted, known - {''})
    return [s for s in slots if fixture in (None, s.fixture) and session in (None, s.session)]


@contextlib.contextmanager
def sole_runner(root: Path, share: str | None, *, division: str = 'fixtures') -> Iterator[None]:
    """Hold the right to run or to close: alone, or alone on one share of a division (a fixture, a shard of n).

    Two divisions of one trial, such as shards of 8 and of 16, have slots in common and exclude each other.
    """
    busy = 'another run of this trial is under way; wait for it to end'
    with contextlib.ExitStack() as stack:

        def hold(name: str, *, shared: bool = False) -> None:
            stack.enter_context(held_lock(root, name, shared=shared, wait_s=LOCK_WAIT_S, busy=busy))

        hold('.run.lock', shared=share is not None)
        if share is not None:
            own = f'.run.by-{division}.lock'
            hold(own, shared=True)
            for name in Folder(root).names(''):
                if name.startswith('.run.by-') and name != own:
                    other = name.removeprefix('.run.by-').removesuffix('.lock')
                    advice = f'a run by {other} is under way; wait for it to end, or run by {other} too'
                    with held_lock(root, name, wait_s=LOCK_WAIT_S, busy=advice):
                        pass
            part = hashlib.sha256(share.encode()).hexdigest()[:12]  # its name may hold any character
            hold(f'.run.{part}.lock')
        yield


def has_runner(root: Path) -> bool:
    """Whether somebody on this machine runs a trial into a store, alone or on a share; nothing is written to ask."""
    try:
        handle = os.open(root / '.run.lock', os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held; or the file system cannot tell, and then somebody may be
        return True
    finally:
        os.close(handle)
    return False


RoundKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a trial ended before its last episode; policies are not named."""

    after_slots: int
    reason: str


def stopping_score(plan: TrialPlan, episode: Episode) -> float:
    """What the rule compares: 1 for a success, or the episode's promptness.

    An episode that timed out was watched to its cap, and tau is at most that; any other end is final.
    """
    if plan.stopping.score is StoppingScore.SUCCESS:
        return float(episode.outcome is Outcome.SUCCESS)
    from robotrials.verdict.planning import promptness

    items = episode.items or 1
    placed = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
    if not placed and items == 1 and episode.outcome is Outcome.SUCCESS:
        placed = [episode.known_duration_s]
    return promptness(placed[:items], tau_s=_tau_s(plan, episode), items=items)


def _tau_s(plan: TrialPlan, episode: Episode) -> float:
    """The declared tau, or the episode's own time cap, which is that of its cell."""
    if plan.stopping.tau_s is not None:
        return plan.stopping.tau_s
    return episode.time_cap_s or min(cell.time_cap_s for cell in plan.cells())


def decide_stop(plan: TrialPlan, slots: Sequence[Slot], scores: Mapping[int, float]) -> Stop | None:
    """Whether the rule ends the trial, from the valid episodes' scores (by slot number), in the slots' order.

    Each policy is compared with the reference (all pairs, if there is none), by an anytime-valid test at alpha divided
    by the number of comparisons; cells are strata of equal weight. The trial ends when every comparison is decided.
    """
    from robotrials.verdict.planning import Decision

    pairs = _pairs(plan)
    alpha = plan.stopping.alpha / len(pairs)
    decisions = [_decision(plan, slots, scores, pair=pair, alpha=alpha) for pair in pairs]
    if any(decision is None or decision == Decision.CONTINUE for decision in decisions):
        return None
    futile = 'going on would hardly show the smallest difference'
    kinds = sorted({futile if d == Decision.FUTILE else 'a difference' for d in decisions if d})
    return Stop(len(slots), f'every comparison is decided after {len(slots)} slots: {", ".join(kinds)}')


def _pairs(plan: TrialPlan) -> list[tuple[str, str]]:
    names = sorted(plan.policies)
    if plan.reference:
        return [(name, plan.reference) for name in names if name != plan.reference]
    return list(itertools.combinations(names, 2))


def _decision(
    plan: TrialPlan, slots: Sequence[Slot], scores: Mapping[int, float], *, pair: tuple[str, str], alpha: float
) -> str | None:
    from robotrials.verdict.planning import sequential_comparison

    arms = {name: _outcomes(slots, scores, name) for name in pair}
    a, b = arms[pair[0]], arms[pair[1]]
    paired = plan.scenes is Scenes.MATCHED
    if paired:
        shared = [key for key in a if key in b]
        a, b = {key: a[key] for key in shared}, {key: b[key] for key in shared}
    if not a or not b:
        return None
    cells = len(plan.cells())
    strata: object = None
    if cells > 1:
        strata = [key[0] for key in a] if paired else ([key[0] for key in a], [key[0] for key in b])
    smallest = plan.stopping.smallest_difference
    horizon = plan.episodes_in_a_cell() * plan.repeats if cells == 1 and smallest is not None else None
    comparison = sequential_comparison(
        list(a.values()),
        list(b.values()),
        paired=paired,
        strata=strata,  # type: ignore[arg-type]  # labels, or a pair of them
        tasks=[cell.name for cell in plan.cells()] if cells > 1 else None,
        alpha=alpha,
        horizon=horizon,
        smallest_difference=smallest,
    )
    return comparison.looks[-1].decision if comparison.looks else None


def _outcomes(slots: Sequence[Slot], scores: Mapping[int, float], policy: str) -> dict[RoundKey, float]:
    return {
        (slot.cell.name, slot.instance, slot.repeat): scores[slot.number]
        for slot in slots
        if slot.policy == policy and slot.number in scores
    }


# A shard: one of n shares of a trial's slots, for array jobs that have nothing in common but the store's folder.


@dataclass(frozen=True, slots=True)
class Shard:
    """Share `number` of `count`, from 1.

    All policies meet a start state in the same shard, so that a slow or odd machine does not favour an arm.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InputError(f'shard is {self}, wanted i/n with i from 1 to n, such as 3/64')

    def __str__(self) -> str:
        return f'{self.number}/{self.count}'

    @classmethod
    def parse(cls, text: str) -> Shard:
        match = re.fullmatch(r'(\d{1,9})/(\d{1,9})', text.strip())
        if match is None:
            raise InputError(f'shard is {text!r}, wanted i/n with i from 1 to n, such as 3/64')
        return cls(int(match[1]), int(match[2]))

    def slots(self, slots: Sequence[Slot]) -> list[Slot]:
        """The slots of this shard in the order of the trial; the n shards together have each slot once."""
        rounds: dict[tuple[str, str, int, int], int] = {}
        chosen = []
        for slot in slots:
            key = (slot.session, slot.cell.name, slot.instance, slot.repeat)
            if rounds.setdefault(key, len(rounds)) % self.count == self.number - 1:
                chosen.append(slot)
        return chosen


MANY_PARTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun:
    """What one call of `run_trial` came to."""

    store: Path
    n_run: int  # episodes that this call ran, INVALID ones included
    n_valid: int
    n_total: int
    n_given_up: int  # slots whose every attempt was INVALID
    stop: Stop | None
    n_interrupted: int = 0  # attempts of earlier runs that were begun and never finished
    head_before: str = ''  # of the commit log, when this call began and when it ended: to be noted
    head: str = ''

    @property
    def is_complete(self) -> bool:
        """Nothing is left to run: every slot has its episode or was given up, or the rule ended the trial."""
        return self.stop is not None or self.n_valid + self.n_given_up == self.n_total


def run_trial(
    plan: TrialPlan,
    store: Path | str,
    *,
    workers: int = 1,
    ray: RayOptions | None = None,
    operator: str = '',
    fixture: str | None = None,
    session: str | None = None,
    shard: Shard | None = None,
    stop_after: int | None = None,
    report: Report | None = None,
    worker_log: Path | None = None,
    tell: Callable[[str], None] | None = None,
    arms: Path | None = None,
) -> TrialRun:
    """Run what is left of a trial into its store; results do not depend on `workers`.

    workers: processes, each with its own host and policies, watched and replaced when they hang or die; 0 runs inside
    this process, unwatched. fixture, session, shard: only these slots; shards may run side by side. stop_after: the
    maximum number of episodes in this call.
    worker_log: where what workers print goes; it may name policies, so it is thrown away unless asked for. tell: called
    with the head of the commit log before the first episode, for somebody to note. arms: for an operator's plan, the
    file that says how to reach its codes. ray: the workers are on a Ray cluster; 0 are as many as it has room for.
    """
    if workers < 0:
        raise InputError(f'workers is {workers}, wanted >= 0')
    if plan.stopping.rule is not StoppingRule.NONE and (fixture, session, shard) != (None, None, None):
        raise InputError('a stopping rule looks at all slots in their order; run without fixture, session and shard')
    if fixture is not None and shard is not None:
        raise InputError('fixture and shard both share out a trial; give one of the two')
    behind = read_arms(plan, arms) if arms is not None else None
    context = Context.of(plan, operator=operator, arms=behind)
    slots = chosen_slots(context.slots(), fixture=fixture, session=session)
    if shard is not None:
        slots = shard.slots(slots)
    share = fixture if shard is None else f'shard {shard}'
    opened = open_trial_store(context, store)
    with sole_runner(opened.path, share, division='fixtures' if shard is None else f'shards-of-{shard.count}'):
        if share is None:
            await_old_workers(opened.path)
        check_open(context, opened)
        if shard is None and len(opened.parts()) > MANY_PARTS:  # of many shards, only one could
            compact_store(opened.path)
        context = with_provenance(context, opened)
        concealed = context.blinding.is_concealed and ray is None  # the nodes of a cluster share no private folder
        spool = spool_of(opened, is_concealed=concealed, whole='' if shard is None else share or '')
        if spool is not None:
            spool.tidy()
        run = _Run(context, opened, slots, limit=stop_after, report=report, spool=spool)
        run.release_whole()
        head_before = opened.head()
        if tell is not None:
            tell(head_before)
        n_interrupted = run.log_interrupted(by=operator)
        if not run.is_over:
            _logged_run(run, opened, workers=workers, log=worker_log, by=operator, arms=arms, ray=ray)
        result = run.result()
        return dataclasses.replace(result, n_interrupted=n_interrupted, head_before=head_before, head=opened.head())


def _logged_run(
    run: _Run, store: Store, *, workers: int, log: Path | None, by: str, arms: Path | None, ray: RayOptions | None
) -> None:  # fmt: skip
    """Run what is left; that it began and how it ended is on record."""
    engine = {'engine': 'ray'} if ray is not None else {}
    store.log(EntryKind.RUN, by=by, body={'event': 'begin', 'workers': workers, **engine})
    try:
        if ray is not None:
            run.on_ray(workers, arms=arms, options=ray)
        elif workers == 0:
            run.alone()
        else:
            run.with_workers(workers, log=log, arms=arms)
    finally:
        with contextlib.suppress(WriteError):  # whatever went wrong before says more
            store.log(EntryKind.RUN, by=by, body={'event': 'end', 'episodes': run.result().n_run})


def trial_state(plan: TrialPlan, store: Store, *, rotation: bytes = b'') -> TrialRun:
    """How far a trial has come, without running anything; `rotation` is the key of a concealed trial's order."""
    context = Context.of(plan, arms=Arms({}, rotation))
    return _Run(context, store, context.slots(), limit=0, report=None).result()


def open_tasks(context: Context, store: Store, slots: Sequence[Slot]) -> tuple[TrialRun, list[SlotAttempt]]:
    """How far these slots have come, and what may be run of them now, in order."""
    run = _Run(context, store, slots, limit=None, report=None)
    return run.result(), run.open_tasks()


class _Run:
    """One call of run_trial."""

    def __init__(
        self, context: Context, store: Store, slots: Sequence[Slot], *, limit: int | None, report: Report | None,
        spool: Spool | None = None,
    ) -> None:  # fmt: skip
        self._context, self._store, self._slots = context, store, slots
        self._limit, self._report, self._spool = limit, report, spool
        self._marks = store.path if spool is None else private_folder(store.path)
        self._ids = {context.planned(slot).episode_id: slot for slot in slots}
        self._successes: dict[int, bool] = {}
        done = self._read_done()
        plan = context.plan
        looks: list[int] = []
        if plan.stopping.rule is not StoppingRule.NONE:
            every = plan.stopping.look_every_rounds
            looks = look_edges(slots, n_policies=len(plan.policies), every_rounds=every)
        self._schedule = Schedule(slots, done, attempts=plan.faults.attempts, looks=looks)
        self._codes = context.blinding.codes
        valid = Counter(self._codes[s.policy] for s in slots if s.number in done and done[s.number].is_valid)
        # How many each arm has tells, as it grows, which arm was the last.
        arms = () if context.blinding.is_concealed else self._codes.values()
        self._tally = RunTally({code: valid[code] for code in arms})
        # Blocks with an episode that is not in the store yet, of this call or of one that was stopped.
        spooled = () if spool is None else {e.episode_id for e in spool.episodes()}
        self._open = {spool.group(self._ids[i]) for i in spooled if i in self._ids} if spool is not None else set()
        self._n_run = self._n_given = 0
        self._stop: Stop | None = None
        self._look()

    def _read_done(self) -> dict[int, Attempted]:
        """What the store has of each slot. A dropped or invalidated attempt is taken, and is no fault of the rig."""
        done: dict[int, Attempted] = {}
        edits = self._store.edits()
        where = {'trial_id': self._context.trial_id}
        stored = self._store.episodes(attempts='all', dropped=True, events=False, where=where)
        for episode in itertools.chain(stored, () if self._spool is None else self._spool.episodes()):
            slot = self._ids.get(episode.episode_id)
            if slot is None:
                continue
            before = done.get(slot.number, Attempted(0, False))
            taken_back = edits.is_dropped(*episode.key) or edits.sets(*episode.key, 'outcome')
            is_valid = episode.is_valid and not edits.is_dropped(*episode.key)
            done[slot.number] = Attempted(
                max(before.n_attempts, episode.attempt + 1),
                before.is_valid or is_valid,
                before.n_faults + (not episode.is_valid and not taken_back),
            )
            if is_valid and slot.number not in self._successes:
                self._successes[slot.number] = episode.outcome is Outcome.SUCCESS
        return done

    @property
    def is_over(self) -> bool:
        return self._stop is not None or self._schedule.is_finished

    def result(self) -> TrialRun:
        schedule = self._schedule
        return TrialRun(
            store=self._store.path,
            n_run=self._n_run,
            n_valid=schedule.n_valid,
            n_total=schedule.n_total,
            n_given_up=schedule.n_given_up,
            stop=self._stop,
        )

    def alone(self) -> None:
        """Run everything in this process, watched by its alarm clock."""
        with AlarmBoard(self._context.plan.watchdog) as board:
            self._alone(TrialStation(self._context, self._store, board=board, spool=self._spool))

    def _alone(self, station: TrialStation) -> None:
        with _muted(self._context.plan.blinding.enabled):
            try:
                station.check()
            except RobotrialsError as error:
                reason = self._context.blinding.scrub(str(error))
                if reason == str(error):
                    raise
                raise InputError(reason) from None
        try:
            while (task := self._next_task()) is not None:
                with _muted(self._context.plan.blinding.enabled):
                    finished = station.run(task.slot, task.attempt)
                self._take(task, finished.outcome)
        finally:
            station.close()

    def with_workers(self, workers: int, *, log: Path | None, arms: Path | None) -> None:
        """Run everything in worker processes."""
        with ProcessCrew(self._errand(arms), size=workers, limits=self._context.plan.watchdog, log=log) as crew:
            self._with(crew)

    def on_ray(self, workers: int, *, arms: Path | None, options: RayOptions) -> None:
        """Run everything on a Ray cluster."""
        from robotrials.run.ray_crew import RayCrew, ray_cluster

        with ray_cluster(options) as ray:
            size = workers or max(1, options.fits(ray.cluster_resources()))
            size = min(size, max(1, self._schedule.n_left))
            limits = self._context.plan.watchdog
            policies = {name: self._context.entry(name) for name in self._codes}
            errand = self._errand(arms)
            with RayCrew(ray, errand, size=size, limits=limits, options=options, policies=policies) as crew:
                self._with(crew)

    def _errand(self, arms: Path | None) -> Errand:
        return Errand(
            plan=self._context.plan.as_json(),
            store=store_root(self._store.path.resolve()),
            provenance_id=self._context.provenance_id,
            operator=self._context.operator,
            import_path=tuple(p or os.getcwd() for p in sys.path),
            arms=arms.resolve() if arms is not None else None,
            is_spooled=self._spool is not None,
            spooled_as='' if self._spool is None else self._spool.whole,
        )

    def _with(self, crew: Crew[AnyWorker]) -> None:
        while not self._is_spent:
            for worker in crew.idle():
                if (task := self._next_task()) is not None:
                    worker.give(task)
            for worker, finished in crew.listen():
                task = worker.task
                if task is None or task.slot.number != finished.slot:
                    raise RuntimeError(f'a worker finished slot {finished.slot}, which it was not given')
                self._take(task, finished.outcome)
                worker.task = None
                if finished.is_poisoned:
                    crew.replace(worker)
            self._bury(crew)

    @property
    def _is_spent(self) -> bool:
        """Nothing under way and nothing more to hand out in this call."""
        return not self._schedule.under_way and (self.is_over or self._is_at_limit)

    @property
    def _is_at_limit(self) -> bool:
        """Nothing more is to be handed out. A block of a concealed trial that was begun is run to its end."""
        if self._limit is None or self._n_given < self._limit:
            return False
        slot = self._schedule.upcoming
        return self._spool is None or slot is None or self._spool.group(slot) not in self._open

    def _bury(self, crew: Crew[AnyWorker]) -> None:
        """Record what dead and hanging workers were at, unless they had stored it, and replace them."""
        for worker, fault in crew.losses():
            task = worker.task
            episode_s = crew.replace(worker)
            if task is None:
                continue
            planned = self._context.planned(task.slot, task.attempt)
            target = self._store if self._spool is None else self._spool.store_of(task.slot)
            kept = target.episodes(attempts='all', dropped=True, where={'episode_id': planned.episode_id})
            stored = [e for e in kept if e.attempt == task.attempt]
            if stored:
                self._take(task, stored[0].outcome)
                continue
            episode = self._context.faulty(task.slot, task.attempt, fault, duration_s=episode_s)
            self._context.commit(target, episode, fault=fault)
            self._take(task, episode.outcome)

    def _next_task(self) -> SlotAttempt | None:
        if self._stop is not None or self._is_at_limit:
            return None
        task = self._schedule.next()
        if task is not None:
            self._n_given += 1
            mark_begun(self._marks, self._key(task))
            if self._spool is not None:
                self._open.add(self._spool.group(task.slot))
        return task

    def open_tasks(self) -> list[SlotAttempt]:
        """What may be handed out now; what has to be run again comes at the end of its block."""
        tasks = []
        while self._stop is None and (task := self._schedule.next()) is not None:
            tasks.append(task)
        first: dict[tuple[str, str], int] = {}
        for slot in self._slots:
            first.setdefault((slot.session, slot.block), slot.number)
        return sorted(tasks, key=lambda t: (first[t.slot.session, t.slot.block], t.attempt > 0, t.slot.number))

    def _key(self, task: SlotAttempt) -> tuple[str, int]:
        return self._context.planned(task.slot, task.attempt).key

    def log_interrupted(self, *, by: str) -> int:
        """Log what earlier runs began of these slots and never finished; how many there are."""
        name = self._context.blinding.name
        arms = {episode_id: name(slot.policy, slot.place) for episode_id, slot in self._ids.items()}
        spooled = {e.key for e in self._spool.episodes()} if self._spool is not None else ()
        return log_interrupted(self._store, arms, by=by, marks=self._marks, spooled=spooled)

    def _take(self, task: SlotAttempt, outcome: Outcome) -> None:
        self._n_run += 1
        mark_ended(self._marks, self._key(task))
        self._schedule.settle(task.slot.number, outcome)
        if outcome is not Outcome.INVALID:
            self._successes[task.slot.number] = outcome is Outcome.SUCCESS
        self._tally.add('' if self._context.blinding.is_concealed else self._codes[task.slot.policy], outcome)
        is_whole = self._release(task.slot)
        self._look()
        if self._report is not None and is_whole:
            self._report(self.progress())

    def release_whole(self) -> None:
        """Put blocks into the store that became whole just before an earlier run was stopped."""
        for slot in {self._spool.group(s): s for s in self._slots}.values() if self._spool is not None else ():
            if self._spool is not None and self._spool.group(slot) in self._open:
                self._release(slot)

    def _release(self, slot: Slot) -> bool:
        """Put a block into the store that is whole now; of a concealed trial, nothing is said before that."""
        if self._spool is None:
            return True
        group = self._spool.group
        if self._schedule.has_left(lambda other: group(other) == group(slot)):
            return False
        self._spool.release(slot, by=self._context.operator)
        self._open.discard(group(slot))
        return True

    def progress(self) -> TrialProgress:
        schedule = self._schedule
        return self._tally.progress(n_valid=schedule.n_valid, n_total=schedule.n_total, n_given_up=schedule.n_given_up)

    def _scores(self) -> Mapping[int, float]:
        """Slot number -> what the stopping rule compares; times are read from the record."""
        if self._context.plan.stopping.score is StoppingScore.SUCCESS:
            return self._successes
        episodes = self._store.episodes(where={'trial_id': self._context.trial_id})
        slots = ((self._ids.get(e.episode_id), e) for e in episodes if e.is_valid)
        return {slot.number: stopping_score(self._context.plan, e) for slot, e in slots if slot is not None}

    def _look(self) -> None:
        def decide(edge: int) -> bool:
            seen = [slot for slot in self._slots if slot.number < edge]
            self._stop = decide_stop(self._context.plan, seen, self._scores())
            return self._stop is not None

        if self._stop is None:
            self._schedule.take_look(decide)


@contextlib.contextmanager
def _muted(wanted: bool) -> Iterator[None]:
    """Keep what hosts and policies print off the console, where it could name an arm."""
    if not wanted:
        yield
        return
    with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield
