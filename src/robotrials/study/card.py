"""Collecting a benchmark card: the host's own rules, a rerun for its determinism, and results of the diagnostics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials import __version__
from robotrials.errors import InputError, NotEstimable, RobotrialsError, UnknownName
from robotrials.policies.probe.collect import using_host
from robotrials.run import run_trial
from robotrials.run.component import POLICIES
from robotrials.run.host import Ability, Host
from robotrials.run.plan import HostEntry, PolicyEntry, RecordingOptions
from robotrials.run.seam import ProtocolFacts
from robotrials.study.evaluate import grid_plan
from robotrials.verdict.audit import RunComparison, compare_traces, find_benchmark
from robotrials.verdict.audit.card import BenchmarkCard, DeterminismCheck, determinism_check, significance_cutoffs
from robotrials.verdict.audit.datasource import DataSource
from robotrials.verdict.audit.overfit import Overfit
from robotrials.verdict.audit.shortcut import Shortcut
from robotrials.verdict.audit.topline import Protocol

SAMPLES = 50  # where a host has no official number: as LIBERO has
RERUN_EPISODES = 2
RERUN_CAP_S = 12.0


@dataclass(frozen=True, slots=True)
class Rerun:
    """Who is rerun on a host where nobody says: a policy that answers what it sees and can solve the task."""

    task: str
    policy: PolicyEntry
    options: Mapping[str, Any]  # of the host


RERUNS: Mapping[str, Rerun] = {
    'tabletop': Rerun(
        'single_block',
        PolicyEntry('scripted', {'temper': 'reference'}),
        {'state': 'privileged', 'cameras': ['front'], 'image_size': [64, 64], 'shadows': False},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRequest:
    """What a card is made of. Without `samples` the preset's own are taken, or SAMPLES, and the card says which."""

    host: HostEntry
    benchmark: str = ''  # a preset, such as libero-spatial
    samples: int | None = None
    runs: tuple[Path, ...] = ()  # two recorded runs of one plan, and perhaps a repeat of the first
    rerun: bool = True  # run the determinism check where no runs are given
    policy: PolicyEntry | None = None  # who is rerun
    task: str = ''  # of the rerun; the host's first unless given
    shortcut: Shortcut | None = None
    overfit: Overfit | None = None
    datasource: DataSource | None = None
    title: str = ''
    failures: Mapping[str, str] = field(default_factory=dict)


def make_card(request: CardRequest, *, tell: Callable[[str], None] | None = None) -> BenchmarkCard:
    """The card; a determinism check that breaks is on it as broken, not as passed."""
    _check_same_host(request)
    with using_host(request.host) as host:
        spec = host.spec
        _check_rerun(request, spec.tasks)
        facts = host.protocol()
        notes = tuple(_notes(host, facts))
    protocol, source = _protocol(request, len(spec.tasks))
    failures = dict(request.failures)
    determinism = None
    try:
        determinism = _determinism(request, next(iter(spec.tasks), ''), tell or (lambda text: None))
    except RobotrialsError as error:
        failures['determinism'] = str(error)
    return BenchmarkCard(
        host=request.host.use, title=request.title or request.benchmark or request.host.use, version=__version__,
        rules={} if facts is None else _rules(facts), tasks=spec.tasks,
        significance=None if protocol is None else significance_cutoffs(protocol, source=source),
        determinism=determinism, shortcut=request.shortcut, overfit=request.overfit, datasource=request.datasource,
        notes=notes, failures=failures,
    )  # fmt: skip


def rerun(
    host: HostEntry, policy: PolicyEntry, *, task: str, folder: Path, seed: int = 1, workers: int = 1
) -> RunComparison:
    """One plan three times on this machine, compared step by step: twice as a contrast, once as the control.

    Each is in a process of its own, unless `workers` is 0.
    """
    plan = grid_plan(
        host, {'rerun': policy}, task=task, seed=seed, grid=RERUN_EPISODES, time_cap_s=RERUN_CAP_S,
        recording=RecordingOptions(film=False, rgbd='off', simulator_state=True, frame_hashes=True),
    )  # fmt: skip
    stores = [folder / name for name in ('first', 'second', 'control')]
    for store in stores:
        state = run_trial(plan, store, workers=workers)
        if state.n_given_up or not state.is_complete:
            raise NotEstimable(f'{store.name} run: {state.n_given_up} of {state.n_total} episodes came to nothing')
    return compare_traces(stores[0], stores[1], control=stores[2], closed_loop=True, name=host.use)


def _determinism(request: CardRequest, task: str, tell: Callable[[str], None]) -> DeterminismCheck | None:
    if request.runs:
        control = request.runs[2] if len(request.runs) == 3 else None
        compared = compare_traces(request.runs[0], request.runs[1], control=control)
        policies = sorted({a.policy for a, _ in compared.outcomes})
        return determinism_check(compared, policy=', '.join(policies))
    if not request.rerun:
        return None
    known = RERUNS.get(request.host.use)
    policy = request.policy or (known.policy if known is not None else None)
    if policy is None:
        return None
    chosen = request.task or (known.task if known is not None else task)
    if not chosen:
        raise InputError(f'host {request.host.use} names no tasks; say which one to rerun with --task')
    entry = HostEntry(request.host.use, {**(known.options if known is not None else {}), **request.host.options})
    tell(f'running {RERUN_EPISODES} episodes of {policy.use} three times')
    with tempfile.TemporaryDirectory(prefix='robotrials-card-') as folder:
        return determinism_check(rerun(entry, policy, task=chosen, folder=Path(folder)), policy=policy.use)


def _protocol(request: CardRequest, n_tasks: int) -> tuple[Protocol | None, str]:
    """T and S, and whose they are."""
    if request.benchmark:
        preset = find_benchmark(request.benchmark)
        return preset.protocol, f'T and S of the preset {preset.name}'
    try:
        preset = find_benchmark(request.host.use)
        return preset.protocol, f'T and S of the preset {preset.name}'
    except UnknownName:
        pass
    if not n_tasks:
        return None, ''
    if request.samples is not None:
        return Protocol(n_tasks, request.samples), f'{n_tasks} tasks of the host, S = {request.samples} as asked'
    return Protocol(
        n_tasks, SAMPLES
    ), f'{n_tasks} tasks of the host, S = {SAMPLES} assumed: the host has no official number'


def _rules(facts: ProtocolFacts) -> dict[str, str]:
    return facts.stated() | {f'package {name}': version for name, version in facts.packages.items()}


def _notes(host: Host, facts: ProtocolFacts | None) -> list[str]:
    """What the rules themselves give away."""
    if facts is None:
        return ['The host states no protocol: start states, success predicate and step cap are not on record.']
    notes = []
    if facts.step_cap is None:
        notes.append('There is no official step or time cap: scores under different caps are not comparable.')
    if 'drawn from the seed' in facts.initial_states:
        notes.append(
            'Start states are drawn from a public seed: there is no held-out set, and anyone can train on the test.'
        )
    if facts.initial_states.startswith('fixed'):
        notes.append('Start states are a fixed public set: anyone can train on or beside them.')
    if facts.assets_note:
        notes.append(f'Assets: {facts.assets_note}')
    if Ability.SCENE not in host.abilities:
        notes.append('The host describes no target: how close training data lies cannot be measured on it.')
    return [*notes, 'The host states no rule on what a submission may be trained on.']


def _check_rerun(request: CardRequest, tasks: Sequence[str]) -> None:
    """What was asked for by a wrong name is an error, not a check that broke."""
    if request.runs and len(request.runs) not in (2, 3):
        raise InputError(f'{len(request.runs)} runs were given, wanted two, and perhaps a repeat of the first')
    if absent := next((run for run in request.runs if not run.exists()), None):
        raise InputError(f'{absent}: no such folder; wanted the store of a recorded run')
    if request.task and tasks and request.task not in tasks:
        raise UnknownName(f'task of host {request.host.use}', request.task, tasks)
    use = request.policy.use if request.policy is not None else ''
    if use and ':' not in use and use not in POLICIES.names():
        raise UnknownName('policy', use, POLICIES.names())


def _check_same_host(request: CardRequest) -> None:
    """A result of another host on this card would be a lie."""
    for name, host in (
        ('shortcut', request.shortcut and request.shortcut.host),
        ('overfit', request.overfit and request.overfit.host),
        ('datasource', request.datasource and request.datasource.protocol.host),
    ):
        if host and host != request.host.use:
            raise InputError(f'the {name} result is of host {host}, this card is of {request.host.use}')
    ours = request.benchmark or str(request.host.options.get('suite', ''))
    theirs = request.shortcut.benchmark if request.shortcut is not None else ''
    if ours and theirs not in ('', request.host.use) and find_benchmark(ours).name != theirs:
        raise InputError(f'the shortcut result is of {theirs}, this card is of {ours}')
