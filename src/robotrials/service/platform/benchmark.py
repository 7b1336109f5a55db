"""Benchmarks: declared by an admin, each with a store of its own.

An open benchmark takes submissions at any time; each is blinded until it is finished. A trial takes a closed set of
arms, runs them in one blinded balanced rotation, and shows nothing until it is closed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import logging
import math
import secrets
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from robotrials.errors import InputError, RobotrialsError, StoreError, UnknownName, WriteError
from robotrials.record import Episode, Store, Unblinding, collect_provenance
from robotrials.record.blinding import write_unblinding
from robotrials.run.blinding import blinded_plan
from robotrials.run.component import HOSTS
from robotrials.run.plan import FaultOutcome, PolicyEntry, Scenes, TrialPlan, plan_from_json
from robotrials.run.schedule import Slot, trial_slots
from robotrials.run.station import Context, media_folder
from robotrials.service.platform.access import Refusal, check_name, new_id, not_found
from robotrials.service.platform.bundle import MOST_FILES, pack_bundle
from robotrials.service.platform.cells import check_runnable
from robotrials.service.platform.config import PlatformConfig, Strategy
from robotrials.service.platform.database import Database
from robotrials.service.platform.job import THINKING_S, benchmark_slots, read_benchmark
from robotrials.service.platform.table import UNSETTLED, BenchmarkRow, JobRow, Lease, Submission, note

if TYPE_CHECKING:
    from robotrials.service.platform.schema import BenchmarkIn

ATTEMPTS = 2  # a job that the rig broke is requeued once
POLICY_FAULTS = ('policy_crash', 'policy_hang', 'policy_late', 'policy_answer')
MOST_JOBS = 20_000  # of one submission
MOST_MOMENTS = MOST_FILES - 100  # of RGB-D in an episode, beside its other files


def declare(session: Session, body: BenchmarkIn, config: PlatformConfig, *, now: float) -> BenchmarkRow:
    """A new benchmark; its store is made when the first submission comes."""
    name, mode, arms, strategy = body.name, body.mode, body.arms, body.strategy or config.strategy
    check_name(name, 'name of a benchmark')
    plan = platform_plan(
        body.plan, name=name, is_trial=mode == 'trial', longest_episode_s=config.longest_episode_s
    )  # fmt: skip
    if not body.unchecked:
        check_runnable(session, plan)
    if session.scalar(select(BenchmarkRow).where(BenchmarkRow.name == name)) is not None:
        raise Refusal(409, 'exists', f'there is a benchmark named {name!r} already')
    if mode != 'trial' and (arms is not None or strategy is Strategy.BLINDED_ROTATION):
        raise Refusal(422, 'bad_benchmark', 'arms and blinded_rotation are for a trial; this benchmark is open')
    if mode == 'trial':
        strategy = Strategy.BLINDED_ROTATION
        if arms is not None and arms < 2:
            raise Refusal(422, 'bad_benchmark', f'arms is {arms}, wanted 2 or more, or none')
    benchmark = BenchmarkRow(
        id=new_id('ben'), name=name, mode=mode, state='collecting' if mode == 'trial' else 'open', host=plan.host.use,
        strategy=strategy.value, plan=plan.as_json(), arms=arms, created_at=now, closed_at=None,
        reference=body.reference,
    )  # fmt: skip
    session.add(benchmark)
    note(session, 'benchmark.declare', benchmark.id, name=name, mode=mode, strategy=strategy.value, plan=plan.hash)
    return benchmark


def platform_plan(toml: str, *, name: str, is_trial: bool, longest_episode_s: float = math.inf) -> TrialPlan:
    """A declared plan as the platform runs it: matched scenes, two attempts, a thinking budget, and whatever a policy
    does is its failure: only a broken rig is tried again.
    """
    try:
        plan = read_benchmark(toml, where='plan')
        if plan.scenes is not Scenes.MATCHED:
            raise InputError('plan: scenes are independent; on a platform every submission meets the same start states')
        if plan.host.use not in HOSTS.names():
            raise InputError(f'plan: host {plan.host.use!r} is not of the catalogue: {", ".join(HOSTS.names())}')
        given = tomllib.loads(toml).get('faults', {})
        excused = [k for k in POLICY_FAULTS if given.get(k, 'failure') != 'failure']
        if excused:
            raise InputError(
                f'plan: faults.{excused[0]} is {given[excused[0]]!r}; on a platform what a policy does is its failure, '
                'since a submitter could otherwise choose which episodes count; leave it out'
            )
        watchdog = dataclasses.replace(plan.watchdog, thinking_s=plan.watchdog.thinking_s or THINKING_S)
        plan = dataclasses.replace(
            plan,
            benchmark=plan.benchmark or name,
            watchdog=watchdog,
            faults=dataclasses.replace(
                plan.faults, attempts=ATTEMPTS, **dict.fromkeys(POLICY_FAULTS, FaultOutcome.FAILURE)
            ),
            blinding=dataclasses.replace(plan.blinding, enabled=is_trial, secret=secrets.token_hex(16)),
        )
        _check_length(plan, longest_episode_s)
        if isinstance(rate := plan.recording.rgbd, float):
            moments = math.ceil(rate * max(cell.time_cap_s for cell in plan.cells()))
            if moments > MOST_MOMENTS:
                raise InputError(
                    f'plan: recording.rgbd of {rate:g} per second is up to {moments} moments per episode, more than '
                    f'the {MOST_MOMENTS} that are uploaded; ask for fewer per second'
                )
        if plan.episodes_in_a_cell() * plan.repeats * len(plan.cells()) > MOST_JOBS:
            raise InputError(f'plan: more than {MOST_JOBS} episodes for each submission')
    except InputError as error:
        raise Refusal(422, 'bad_plan', str(error)) from error
    return plan


def _check_length(plan: TrialPlan, longest_episode_s: float) -> None:
    """Refuse a plan whose honest episodes could outlast a lease: that would count as their policies' failure."""
    cap_s = max(cell.time_cap_s for cell in plan.cells())
    needed_s = cap_s + (plan.watchdog.thinking_s or 0.0) + plan.watchdog.policy_s
    if needed_s > longest_episode_s:
        raise InputError(
            f'plan: an episode may take {needed_s:g} s (a cap of {cap_s:g} s, {plan.watchdog.thinking_s:g} s of '
            f'thinking, one answer more), and a lease ends after {longest_episode_s:g} s; give a shorter '
            'watchdog.thinking_s, or a longer longest_episode_s in platform.toml'
        )


def find_benchmark(session: Session, name: str, *, lock: bool = False, near: bool = False) -> BenchmarkRow:
    """The benchmark of a name; with `near` the refusal tells the names there are, for who may list them."""
    query = select(BenchmarkRow).where(BenchmarkRow.name == name)
    benchmark = session.scalar(query.with_for_update() if lock else query)
    if benchmark is None and near:
        known = session.scalars(select(BenchmarkRow.name).order_by(BenchmarkRow.name))
        raise Refusal(404, 'not_found', str(UnknownName('benchmark', name, known)))
    if benchmark is None:
        raise not_found('benchmark')
    return benchmark


def is_open(benchmark: BenchmarkRow) -> bool:
    """Whether names may be shown: of an open benchmark those of finished submissions, of a trial once it is closed."""
    return benchmark.mode == 'open' or benchmark.state == 'closed'


def store_path(folder: Path, benchmark: BenchmarkRow) -> Path:
    return folder / 'stores' / benchmark.name


def open_store(folder: Path, benchmark: BenchmarkRow) -> Store:
    """The benchmark's store, made if it is new. Its shown plan has no secret in it."""
    plan = plan_from_json(benchmark.plan)
    path = store_path(folder, benchmark)
    if (path / 'trial.json').exists():
        return Store.open(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = json.loads(blinded_plan(plan, Context.of(plan).blinding))
    values['policies'] = {}
    values['blinding'] = {'enabled': plan.blinding.enabled}
    facts = json.dumps(values, sort_keys=True, indent=1)
    store = Store.create(path, trial_id=plan.hash, title=plan.title, plan_hash=plan.hash, plan=facts)
    provenance = dataclasses.replace(collect_provenance(), command='', config=f'benchmark {benchmark.name}')
    store.write_provenance(provenance)
    return store


def submission_plan(benchmark: BenchmarkRow) -> str:
    """The plan of one submission: of a trial the trial's; else with a secret, and so a trial id, of its own.

    Its own id lets the record open one submission while others are still blinded, and its own secret puts the slots
    into an order of its own: the place of an episode does not tell its start state.
    """
    if benchmark.mode == 'trial':
        return benchmark.plan
    plan = plan_from_json(benchmark.plan)
    blinding = dataclasses.replace(plan.blinding, enabled=True, secret=secrets.token_hex(16))
    return dataclasses.replace(plan, blinding=blinding).as_json()


def start_trial(session: Session, benchmark: BenchmarkRow, *, now: float) -> None:
    """Close the set of arms, and put all their jobs into one balanced rotation."""
    if benchmark.state != 'collecting':
        raise Refusal(409, 'not_collecting', f'this benchmark is {benchmark.state}; only a collecting trial starts')
    arms = list(
        session.scalars(
            select(Submission).where(Submission.benchmark_id == benchmark.id, Submission.state == 'waiting')
        )
    )
    if len(arms) < 2:
        raise Refusal(409, 'too_few_arms', f'{len(arms)} arms are submitted; a trial compares two or more')
    places = rotation_places(benchmark.plan, [arm.code for arm in arms])
    for arm in arms:
        arm.state = 'queued'
        add_jobs(session, arm, now=now, places=places[arm.code])
    benchmark.state = 'running'
    note(session, 'benchmark.start', benchmark.id, arms=len(arms), jobs=sum(len(p) for p in places.values()))


def rotation_places(plan_json: str, codes: list[str]) -> dict[str, dict[int, tuple[int, int]]]:
    """Code -> slot -> (position, block) in the balanced rotation of a trial with these arms."""
    plan = plan_from_json(plan_json)
    numbers = {_start(slot): slot.number for slot in benchmark_slots(plan_json)}
    arms = {code: PolicyEntry('platform') for code in sorted(codes)}
    whole = dataclasses.replace(plan, policies=arms, blinding=dataclasses.replace(plan.blinding, enabled=False))
    blocks: dict[str, int] = {}
    places: dict[str, dict[int, tuple[int, int]]] = {code: {} for code in codes}
    for position, slot in enumerate(trial_slots(whole)):
        block = blocks.setdefault(slot.block, len(blocks))
        places[slot.policy][numbers[_start(slot)]] = position, block
    return places


def _start(slot: Slot) -> tuple[str, int, int]:
    return slot.cell.name, slot.instance, slot.repeat


def add_jobs(
    session: Session, submission: Submission, *, now: float, places: dict[int, tuple[int, int]] | None = None
) -> int:
    """A job for every slot of the submission's plan."""
    from robotrials.service.platform.job import Job as JobOrder

    slots = benchmark_slots(submission.plan)
    order = JobOrder(job_id='', plan=submission.plan, slot=0, attempt=0, code=submission.code)
    context = order.context()
    for slot in slots:
        position, block = (slot.number, 0) if places is None else places[slot.number]
        session.add(
            JobRow(
                id=new_id('job'),
                submission_id=submission.id,
                benchmark_id=submission.benchmark_id,
                slot=slot.number,
                position=position,
                block=block,
                state='queued',
                attempt=0,
                updated_at=now,
                failed_on=None,
                episode_id=context.planned(slot).episode_id,
            )
        )
    return len(slots)


def close_benchmark(session: Session, benchmark: BenchmarkRow, *, by: str, why: str, now: float) -> None:
    """Close a benchmark: a trial is unblinded, once; one that is not finished wants a reason. No more submissions."""
    if benchmark.state == 'closed':
        raise Refusal(409, 'closed', 'this benchmark is closed already')
    live = select(func.count()).select_from(Lease).join(JobRow, JobRow.id == Lease.job_id)
    if session.scalar(live.where(JobRow.benchmark_id == benchmark.id, Lease.state.in_(UNSETTLED))):
        raise Refusal(409, 'under_way', 'episodes are under way; drain the cells first, or wait for them to end')
    left = session.scalar(
        select(func.count()).select_from(JobRow).where(JobRow.benchmark_id == benchmark.id, JobRow.state == 'queued')
    )
    if left and not why:
        raise Refusal(409, 'unfinished', f'{left} episodes are still to be run; wait for them, or say why (why)')
    for submission in session.scalars(select(Submission).where(Submission.benchmark_id == benchmark.id)):
        if submission.state in ('waiting', 'queued'):
            cancel_jobs(session, submission, reason='the benchmark was closed', now=now)
            submission.state, submission.finished_at = 'cancelled', now
    benchmark.state, benchmark.closed_at = 'closed', now
    note(session, 'benchmark.close', benchmark.id, by=by, why=why, left=left or 0)


def cancel_jobs(session: Session, submission: Submission, *, reason: str, now: float) -> int:
    """Take what was not begun out of the queue."""
    jobs = session.scalars(
        select(JobRow).where(JobRow.submission_id == submission.id, JobRow.state == 'queued').with_for_update()
    ).all()
    for job in jobs:
        job.state, job.reason, job.updated_at = 'cancelled', reason, now
    return len(jobs)


def open_names(folder: Path, benchmark: BenchmarkRow, submissions: list[Submission], *, by: str, now: float) -> None:
    """Tell the record the names behind codes whose blinding has ended; telling it again changes nothing."""
    store = open_store(folder, benchmark)
    known = store.unblindings().by_trial
    by_trial: dict[str, dict[str, str]] = {}
    for submission in submissions:
        by_trial.setdefault(plan_from_json(submission.plan).hash, {})[submission.code] = submission.policy
    at = dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec='seconds')
    for trial_id, policies in by_trial.items():
        if trial_id not in known:
            why = 'the trial was closed' if benchmark.mode == 'trial' else 'the submission is finished'
            reference = next((code for code, policy in policies.items() if policy == benchmark.reference), '')
            record = Unblinding(trial_id=trial_id, by=by, at=at, policies=policies, why=why, reference=reference)
            write_unblinding(store.path, record)


# Benchmarks whose store is damaged are set apart: the others continue, and whoever runs the server is told once.

RETRY_AFTER_S = 60.0
QUARANTINED = 'quarantined'  # the code of the refusal
WAITS = 'the record of this benchmark is damaged: it waits, with nothing lost, and goes on once it is repaired'
log = logging.getLogger('robotrials.service.platform')


class Quarantine:
    """Which benchmarks cannot be read or written, and why; each is tried again, and is back once it is repaired."""

    def __init__(self, config: PlatformConfig, database: Database) -> None:
        self._config, self._database = config, database
        self._why: dict[tuple[str, str], str] = {}  # benchmark id, reading or writing -> what is wrong
        self._guard = threading.Lock()

    def why(self, benchmark: BenchmarkRow) -> str:
        """What is wrong with a benchmark's store; empty if nothing is known to be."""
        return self._why.get((benchmark.id, 'writing')) or self._why.get((benchmark.id, 'reading'), '')

    @property
    def benchmark_ids(self) -> frozenset[str]:
        """The ids of benchmarks that nothing can be added to: no cell is given to them."""
        with self._guard:
            return frozenset(benchmark_id for benchmark_id, doing in self._why if doing == 'writing')

    @contextlib.contextmanager
    def around(self, benchmark: BenchmarkRow) -> Iterator[None]:
        """Use a benchmark's store: if that fails because the store is damaged, it is set apart, with a refusal."""
        try:
            yield
        except StoreError as error:
            if isinstance(error, WriteError) or not (damage := self._damage(benchmark)):
                raise
            self.set_apart(benchmark, 'writing', damage)
            raise Refusal(
                503, QUARANTINED, f'the store of {benchmark.name} is damaged and set apart until it is repaired; '
                'what was sent is not lost, send it again later', retry_after_s=RETRY_AFTER_S,
            ) from error  # fmt: skip
        self.bring_back(benchmark, 'writing')

    def look(self) -> None:
        """Look at every benchmark's store as a server starts: at its log, and whether its files are there."""
        with self._database.read() as session:
            benchmarks = list(session.scalars(select(BenchmarkRow)))
        for benchmark in benchmarks:
            has_store = (store_path(self._config.folder, benchmark) / 'trial.json').exists()
            if has_store and (damage := self._damage(benchmark)):
                self.set_apart(benchmark, 'writing', damage)

    def look_again(self) -> None:
        """Bring back what was repaired meanwhile: nobody writes to a benchmark that gets no cells."""
        quarantined = self.benchmark_ids
        if not quarantined:
            return
        with self._database.read() as session:
            benchmarks = list(session.scalars(select(BenchmarkRow).where(BenchmarkRow.id.in_(quarantined))))
        for benchmark in benchmarks:
            if not self._damage(benchmark):
                self.bring_back(benchmark, 'writing')

    def _damage(self, benchmark: BenchmarkRow) -> str:
        """What is damaged in a store; empty if it is sound, so that the error was about something else."""
        path = store_path(self._config.folder, benchmark)
        try:
            store = Store.open(path)
            store.ledger()
            damage = [f'{f.path}: {f.detail}' for f in store.missing() if f.is_damage]
            return '; '.join(damage[:3])
        except RobotrialsError as error:
            return str(error)

    def set_apart(self, benchmark: BenchmarkRow, doing: str, why: str) -> None:
        """Put it on record, once, in the log and in the audit trail: that is where its owner looks."""
        with self._guard:
            is_new = (benchmark.id, doing) not in self._why
            self._why[benchmark.id, doing] = why
        if is_new:
            log.error('benchmark quarantined', extra={'fields': {'benchmark': benchmark.name, 'why': why}})
            with self._database.write() as session:
                note(session, 'benchmark.quarantine', benchmark.id, name=benchmark.name, why=why)

    def bring_back(self, benchmark: BenchmarkRow, doing: str) -> None:
        """It went well: if it did not before, that is over."""
        with self._guard:
            was_apart = self._why.pop((benchmark.id, doing), None) is not None
        if was_apart:
            log.warning('benchmark back from quarantine', extra={'fields': {'benchmark': benchmark.name}})
            with self._database.write() as session:
                note(session, 'benchmark.back', benchmark.id, name=benchmark.name)


# Episodes for their submitters, once blinding has ended.


def open_facts(benchmark: BenchmarkRow, episode: Episode) -> Episode:
    """An episode as its submitter may see it: while a benchmark takes submissions, nobody is told its start states."""
    return episode if benchmark.state == 'closed' else episode.replace(seed=None, instance=None)


def episode_bundle(folder: Path, submission: Submission, episode_id: str, *, attempt: int | None) -> bytes:
    """One attempt of a submission as a bundle, with its files."""
    path = store_path(folder, submission.benchmark)
    if not (path / 'trial.json').exists():
        raise not_found('episode')
    store = dataclasses.replace(Store.open(path), is_view=True)
    where = {'episode_id': episode_id, 'policy': submission.policy}
    episodes = list(store.episodes(attempts='counted' if attempt is None else 'all', where=where))
    chosen = next((e for e in episodes if attempt in (None, e.attempt)), None)
    if chosen is None:
        raise not_found('episode')
    own = f'media/{media_folder(chosen)}/'
    names = [name for name in store.ledger().wanted() if name.startswith(own)]
    media = {name.removeprefix('media/'): store.file(name).read_bytes() for name in names}
    facts = open_facts(submission.benchmark, chosen)
    return pack_bundle(facts, trajectory=store.trajectory(chosen), media=media)
