"""Checkpoints and variants as the policies of one ordinary trial, under the benchmark's own protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from robotrials.errors import InputError, NotEstimable, StoreError
from robotrials.record import Episode, read_store
from robotrials.record.folder import held_lock
from robotrials.run import TrialPlan, run_trial
from robotrials.run.plan import (
    BlindingOptions,
    FaultOptions,
    FaultOutcome,
    HostEntry,
    PolicyEntry,
    RecordingOptions,
    TaskEntry,
    WatchdogOptions,
)
from robotrials.run.schedule import Report
from robotrials.verdict.audit import Benchmark, InstanceOutcome, find_benchmark, outcomes_of
from robotrials.verdict.audit.outcome import instances_of

SCORES_ALONE = RecordingOptions(trajectories=False, film=False, rgbd='off')
# Counted as a failure, a variant that answers nonsense would show that the score needs what it lacks.
FAULTS = FaultOptions(policy_answer=FaultOutcome.INVALID, policy_late=FaultOutcome.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """How a diagnosis evaluates. What is not given is the benchmark's own, where the host knows it.

    Every policy meets the same start states. `seed` must not be that of the demonstrations.
    """

    tasks: tuple[TaskEntry, ...] = ()
    episodes_per_task: int | None = None
    time_cap_s: float | None = None
    seed: int = 2026
    repeats: int = 1
    watchdog: WatchdogOptions = field(default_factory=lambda: WatchdogOptions(host_s=180.0))
    faults: FaultOptions = field(default_factory=lambda: FAULTS)
    recording: RecordingOptions = SCORES_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialProtocol:
    """A benchmark's own protocol on a host that knows it: its tasks, episodes per task and step cap."""

    benchmark: Benchmark
    tasks: tuple[str, ...]
    step_cap: int
    control_rate_hz: float
    initial_states: str  # how the host's statement of its start states begins

    @property
    def time_cap_s(self) -> float:
        return self.step_cap / self.control_rate_hz


def official_protocol(host: HostEntry) -> OfficialProtocol | None:
    """The protocol that published scores on this host are under; None for a host that has none."""
    if host.use != 'libero':
        return None
    from robotrials.worlds.libero.suite import CONTROL_RATE_HZ, find_suite

    suite = find_suite(str(host.options.get('suite', 'libero-spatial')))
    try:
        benchmark = find_benchmark(suite.id)
    except InputError:  # libero-90 is trained on, not reported
        return None
    return OfficialProtocol(
        benchmark=benchmark,
        tasks=suite.tasks,
        step_cap=suite.step_cap,
        control_rate_hz=CONTROL_RATE_HZ,
        initial_states='fixed, by instance',
    )


def evaluation_plan(
    host: HostEntry, policies: Mapping[str, PolicyEntry], options: EvaluationOptions, *, title: str = ''
) -> TrialPlan:
    """One trial of all policies on the same start states; unblinded, because nobody judges what a simulator counts."""
    official = official_protocol(host)
    tasks = options.tasks or tuple(TaskEntry(name) for name in (official.tasks if official else ()))
    samples, cap_s = options.episodes_per_task, options.time_cap_s
    if official is not None:
        samples = official.benchmark.protocol.samples if samples is None else samples
        cap_s = official.time_cap_s if cap_s is None else cap_s
    for name, value in (('tasks', tasks or None), ('episodes_per_task', samples), ('time_cap_s', cap_s)):
        if value is None:
            raise InputError(
                f'[evaluation] {name} is missing, and host {host.use} states no official protocol; give it'
            )
    return TrialPlan(
        host=host,
        policies=policies,
        tasks=tasks,
        seed=options.seed,
        title=title,
        benchmark=official.benchmark.name if official else host.use,
        episodes_per_cell=samples,
        repeats=options.repeats,
        time_cap_s=cap_s,
        watchdog=options.watchdog,
        faults=options.faults,
        recording=options.recording,
        blinding=BlindingOptions(enabled=False),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a trial of checkpoints and variants came to, as its record says it."""

    outcomes: Mapping[str, tuple[InstanceOutcome, ...]]  # an episode that stayed INVALID is absent from them
    instances: frozenset[tuple[str, str]]  # all that were run, whatever came of them
    max_score: int
    deviations: tuple[str, ...]  # where the trial left the official protocol


def run_evaluation(plan: TrialPlan, store: Path | str, *, workers: int = 1, report: Report | None = None) -> Evaluated:
    """Run what is left of the trial, and read every policy's outcomes back from its record."""
    run = run_trial(plan, store, workers=workers, report=report)
    if not run.is_complete:
        raise StoreError(
            f'{store}: {run.n_valid} of {run.n_total} episodes are valid and the run was stopped; the same command '
            'resumes it'
        )
    opened = read_store(store)
    episodes = counted_by_success(opened.episodes())
    ids = [e.provenance_id for e in episodes if e.is_valid and e.provenance_id]
    stated = opened.provenance(ids[-1]).protocol if ids else {}
    return Evaluated(
        {name: _outcomes(episodes, name, str(store)) for name in plan.policies},
        instances_of(episodes),
        _max_score(episodes, str(store)),
        official_deviations(plan, stated),
    )


def counted_by_success(episodes: Iterable[Episode]) -> list[Episode]:
    """A score out of 1 beside a success (such as an IoU) is quality: the success is counted."""
    return [
        e.replace(score=None, max_score=None) if e.max_score == 1 and e.success is not None else e for e in episodes
    ]


def _outcomes(episodes: Sequence[Episode], policy: str, where: str) -> tuple[InstanceOutcome, ...]:
    try:
        return outcomes_of(episodes, policy=policy, where=where)
    except NotEstimable as error:
        why = next((e.reason for e in episodes if e.policy == policy and not e.is_valid), '')
        raise NotEstimable(f'{error}{f"; the first says: {why}" if why else ""}') from error


def _max_score(episodes: Sequence[Episode], where: str) -> int:
    """The full score that the record states; 1 where episodes only succeed or fail."""
    stated = {e.max_score for e in episodes if e.is_valid and e.score is not None}
    if not stated:
        return 1
    most = next(iter(stated))
    if len(stated) > 1 or most is None or most != int(most):
        raise InputError(f'{where}: episodes have scores out of {stated}; wanted one whole full score for all')
    return int(most)


def official_deviations(plan: TrialPlan, stated: Mapping[str, str]) -> tuple[str, ...]:
    """Where a trial leaves the official protocol of its host, by the plan and by what the host `stated` of itself."""
    official = official_protocol(plan.host)
    if official is None:
        return ()
    shape, deviations = official.benchmark.protocol, []
    if (names := {t.name for t in plan.tasks}) != set(official.tasks):
        deviations.append(f'{len(names)} of the {shape.tasks} official tasks')
    if plan.episodes_in_a_cell() != shape.samples or plan.repeats != 1:
        deviations.append(
            f'{plan.episodes_in_a_cell()} start states x {plan.repeats} per task, official {shape.samples} x 1'
        )
    steps = round((plan.time_cap_s or 0.0) * official.control_rate_hz)
    if steps != official.step_cap:
        deviations.append(f'episodes end at {steps} steps, official {official.step_cap}')
    if not stated.get('initial_states', '').startswith(official.initial_states):
        deviations.append(
            f'start states: {stated.get("initial_states") or "not stated"}, official {official.initial_states}'
        )
    if stated.get('step_cap') not in (None, str(official.step_cap)):
        deviations.append(f'the host ends episodes at {stated["step_cap"]} steps, official {official.step_cap}')
    if stated.get('assets_note'):
        deviations.append(f'assets: {stated["assets_note"]}')
    return tuple(deviations)


# The folder that a diagnosis works in: one process at a time.

BUSY = 'another process is at work in this folder; wait for it to end, or name another folder'


@contextmanager
def work_folder(folder: Path | str) -> Iterator[Path]:
    """Make the folder, and hold it: two trainings that write to one folder would mix their states."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    with held_lock(root, '.lock', busy=BUSY):
        yield root
