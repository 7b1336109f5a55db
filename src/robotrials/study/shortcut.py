"""The shortcut diagnosis from start to end: demonstrations, training, one trial of everything, the reading of it.

A stopped diagnosis resumes: demonstrations and checkpoints that are whole are kept, and the trial runs what is left.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.run.component import HOSTS
from robotrials.run.plan import HostEntry, PolicyEntry, TaskEntry
from robotrials.run.schedule import Report
from robotrials.study.evaluate import EvaluationOptions, evaluation_plan, official_protocol, run_evaluation, work_folder
from robotrials.value import read_table
from robotrials.verdict.audit import ReportedScore, RunOutcomes, Shortcut, find_benchmark, read_reported, shortcut
from robotrials.verdict.audit.reported import foundation_score, of_protocol
from robotrials.verdict.audit.run_score import write_whole
from robotrials.verdict.audit.shortcut import REMOVED, SHUFFLED, ProbeFacts
from robotrials.verdict.audit.topline import Protocol as EvaluationProtocol

# What a shortcut diagnosis is declared by: a host, its demonstrations, a probe, an evaluation, reported scores.

MOST_BYTES = 4 << 20
MOST_EPISODES = 1_000_000  # of each task, as in a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertOptions:
    """Who demonstrates, on the same host, when there are no demonstrations yet.

    `host` are options of the host for the expert alone, such as a privileged state that the probe never sees.
    """

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    episodes_per_task: int = 50
    seed: int = 1
    time_cap_s: float = 60.0
    condition: str = 'nominal'
    task_key: str = 'task'  # or 'instruction': a task number for every wording
    padding_steps: int = 0  # held still after the success
    noise: tuple[float, ...] | float = 0.0  # pushes the executed action aside; the expert's own action is recorded

    def __post_init__(self) -> None:
        if self.episodes_per_task < 1:
            raise InputError(f'episodes_per_task is {self.episodes_per_task}, wanted >= 1')
        if self.episodes_per_task > MOST_EPISODES:
            raise InputError(f'episodes_per_task is {self.episodes_per_task}, wanted at most {MOST_EPISODES}')
        if not self.time_cap_s > 0:
            raise InputError(f'time_cap_s is {self.time_cap_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Training settings to try in every combination; a list that is empty leaves [probe] as it is.

    The full probe is trained with each, and the one with the smallest validation loss at its last step is evaluated.
    Variants are trained with its settings.
    """

    learning_rates: tuple[float, ...] = ()
    augmentations: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        lists = dataclasses.asdict(self)
        for name, values in lists.items():
            if len(set(values)) < len(values):
                raise InputError(f'[sweep] {name} is {list(values)}, wanted each value once')
        if all(len(values) < 2 for values in lists.values()):
            raise InputError(
                '[sweep] has one setting, wanted several to choose among; say a single one in [probe] instead'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutPlan:
    """A declared diagnosis. Either `demonstrations` names a folder or files, or `expert` makes them."""

    host: HostEntry
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    probe: Mapping[str, Any] = field(default_factory=dict)  # fields of ProbeOptions
    sweep: SweepOptions | None = None
    expert: ExpertOptions | None = None
    demonstrations: tuple[str, ...] = ()
    variants: tuple[str, ...] = ('blind', 'proprioception', 'shuffled')
    reported: str = ''  # a CSV of reported scores
    protocol: str = ''  # which of its protocols; the host's own benchmark unless given
    margin: float = 0.05
    seed: int = 0  # of resampling
    title: str = ''

    def __post_init__(self) -> None:
        if bool(self.demonstrations) == (self.expert is not None):
            raise InputError('wanted either demonstrations = [...] or an [expert], found both or neither')
        for name in self.variants:
            if name not in REMOVED:
                raise UnknownName('variant of the probe', name, REMOVED)
        if len(set(self.variants)) != len(self.variants):
            raise InputError(f'variants are {list(self.variants)}, wanted each once')
        if not 0 < self.margin < 1:
            raise InputError(f'margin is {self.margin}, wanted a share of the full score between 0 and 1')
        for name, seed in (('seed', self.seed), ('[expert] seed', self.expert.seed if self.expert else 0)):
            if seed < 0:
                raise InputError(f'{name} is {seed}, wanted >= 0')
        if self.expert is not None and self.expert.seed == self.evaluation.seed:
            raise InputError(
                f'expert and evaluation both have seed {self.expert.seed}: the probe would be tested on the starts it '
                'was shown; give them different seeds'
            )

    def as_json(self) -> str:
        """All of it, defaults filled in, as canonical JSON; what a work folder is held to."""
        values = dataclasses.asdict(self)
        for name in ('reported', 'protocol', 'margin', 'seed', 'title'):
            del values[name]  # change nothing that was trained or run, only how it is read
        if self.sweep is None:
            del values['sweep']
        return json.dumps(values, sort_keys=True, indent=1, allow_nan=False) + '\n'


def read_shortcut_plan(path: Path | str) -> ShortcutPlan:
    """The plan in a TOML file; paths in it are relative to the file."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f'{file}: {file.stat().st_size} bytes, wanted a plan of at most {MOST_BYTES}')
        values = tomllib.loads(file.read_text(encoding='utf-8'))
    except OSError as error:
        raise InputError(f'{file}: cannot be read ({error.strerror}); wanted a TOML file with [host]') from error
    except ValueError as error:
        raise InputError(f'{file}: not TOML ({error})') from error
    if isinstance(values.get('demonstrations'), str):
        values['demonstrations'] = [values['demonstrations']]
    plan = read_table(ShortcutPlan, values, where=str(file))
    base = file.resolve().parent
    return dataclasses.replace(
        plan,
        demonstrations=tuple(str(base / given) for given in plan.demonstrations),
        reported=str(base / plan.reported) if plan.reported else '',
    )


RESULT, STORE, PLAN = 'shortcut.json', 'store', 'plan.json'


@dataclass(frozen=True, slots=True)
class MadeCheckpoint:
    """A checkpoint that a plan can name."""

    step: int
    entry: PolicyEntry

    @property
    def name(self) -> str:
        return f'step {self.step}'


class Maker(Protocol):
    """Who makes the probe and its variants: the room of the probe, or a stand-in of the same manners."""

    def train(self, variant: str) -> Sequence[MadeCheckpoint]:
        """The checkpoints of 'full' or a trained variant, in training order; what is there already is not made anew."""

    def shuffled(self, final: MadeCheckpoint) -> PolicyEntry:
        """The same checkpoint, told another task than it runs."""

    def task_names(self) -> Sequence[str]:
        """The tasks that the probe tells apart."""

    def facts(self) -> ProbeFacts: ...


def diagnose_shortcut(
    plan: ShortcutPlan,
    folder: Path | str,
    maker: Maker,
    *,
    workers: int = 1,
    report: Report | None = None,
    tell: Callable[[str], None] | None = None,
) -> Shortcut:
    """Train, evaluate every checkpoint and variant as one trial, and write the diagnosis to ``shortcut.json``."""
    reported = _reported(plan)  # a mistake shows before hours of training
    evaluation_plan(plan.host, {'probe': PolicyEntry('probe')}, plan.evaluation)
    with work_folder(folder) as root:
        _claim(plan, root)
        return _diagnosed(plan, root, maker, reported, workers=workers, report=report, tell=tell)


def _diagnosed(
    plan: ShortcutPlan, root: Path, maker: Maker, reported: tuple[ReportedScore, ...], *, workers: int,
    report: Report | None, tell: Callable[[str], None] | None,
) -> Shortcut:  # fmt: skip
    checkpoints = list(maker.train('full'))
    if not checkpoints:
        raise InputError('the probe kept no checkpoint; say at which steps to keep one')
    policies = {c.name: c.entry for c in checkpoints}
    not_run = []
    for variant in plan.variants:
        if variant == SHUFFLED and len(maker.task_names()) == 1:
            not_run.append('shuffled: the demonstrations are of one task, and there is no other to be told')
            continue
        policies[variant] = (
            maker.shuffled(checkpoints[-1]) if variant == SHUFFLED else maker.train(variant)[-1].entry
        )  # fmt: skip
    trial = evaluation_plan(
        plan.host, policies, plan.evaluation, title=plan.title or f'shortcut diagnosis of {plan.host.use}'
    )
    if tell is not None:
        tell(f'{len(policies)} policies x {len(trial.tasks)} tasks x {trial.episodes_in_a_cell()} start states')
    evaluated = run_evaluation(trial, root / STORE, workers=workers, report=report)
    behind, elsewhere = _reported_protocol(plan, reported, trial.benchmark)
    steps = {c.name: c.step for c in checkpoints}
    result = shortcut(
        [RunOutcomes(name, evaluated.outcomes[name], step) for name, step in steps.items()],
        [RunOutcomes(name, runs) for name, runs in evaluated.outcomes.items() if name not in steps],
        planned=evaluated.instances,
        reported=reported,
        official=behind,
        max_score=evaluated.max_score,
        margin=plan.margin,
        rng=np.random.default_rng(plan.seed),
        title=trial.title,
        host=plan.host.use,
        benchmark=trial.benchmark,
        probe=maker.facts(),
        deviations=(*evaluated.deviations, *elsewhere),
        not_run=not_run,
    )
    write_whole(root / RESULT, result.as_json())
    return result


def _reported(plan: ShortcutPlan) -> tuple[ReportedScore, ...]:
    if not plan.reported:
        return ()
    official = official_protocol(plan.host)
    wanted = plan.protocol or (official.benchmark.name if official else '')
    chosen = of_protocol(read_reported(plan.reported), wanted)
    foundation_score(chosen)
    elsewhere = _reported_protocol(plan, chosen, official.benchmark.name if official else plan.host.use)[1]
    if elsewhere and not plan.protocol:
        raise InputError(f'{plan.reported}: {elsewhere[0]}; name the protocol to compare them all the same')
    return chosen


def _reported_protocol(
    plan: ShortcutPlan, reported: Sequence[ReportedScore], ours: str
) -> tuple[EvaluationProtocol | None, tuple[str, ...]]:
    """Tasks and samples behind the reported scores, by the protocol they name, and whether that is not ours."""
    official = official_protocol(plan.host)
    name = reported[0].protocol if reported else ''
    if not name:
        return (official.benchmark.protocol if official else None), ()
    try:
        preset = find_benchmark(name)
    except UnknownName:
        return None, ()
    elsewhere = f'reported scores are on {preset.name}, the run is on {ours}'
    return preset.protocol, () if preset.name == ours else (elsewhere,)


def _claim(plan: ShortcutPlan, root: Path) -> None:
    """A work folder belongs to one plan: another one in it would mix two diagnoses. A plan that came to nothing yet
    is replaced, so that a mistake in it can be mended.
    """
    path, ours = root / PLAN, plan.as_json()
    is_begun = any((root / name).exists() for name in ('demonstrations', 'probe', STORE))
    if is_begun and path.exists() and path.read_text(encoding='utf-8') != ours:
        raise InputError(
            f'{path} is another plan than this one; take a new folder, or the old plan to resume its diagnosis'
        )
    if is_begun and not path.exists():
        raise InputError(f'{root} holds no {PLAN}, and folders of another diagnosis; take a new folder')
    write_whole(path, ours)


# Shortcut plans for hosts by name: what a diagnosis needs on a first evening, without a file.

HOST_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    'tabletop': {'cameras': ['front', 'side', 'wrist'], 'image_size': [96, 96], 'shadows': False},
    'libero': {'cameras': ['agentview', 'wrist'], 'image_size': [128, 128]},  # as its demonstrations are drawn
}
EXPERTS: Mapping[str, ExpertOptions] = {
    'tabletop': ExpertOptions(  # gentle near things, with open fingers: a quick one is not learnt from pictures
        use='scripted',
        options={
            'temper': 'reference',
            'changes': {'margin_m': 0.02, 'speed_m_s': 0.6, 'near_speed_m_s': 0.24, 'near_acceleration_m_s2': 1.8},
        },
        host={'state': 'privileged'}, episodes_per_task=200, time_cap_s=15.0,
        noise=(0.005, 0.005, 0.005, 0.012, 0.012, 0.012),
    ),
}  # fmt: skip
PROBES: Mapping[str, Mapping[str, Any]] = {  # for what that expert shows to those cameras
    'tabletop': {
        'execute': 8,
        'task_noise': 0.15,
        'crops': {'front': [0.25, 0.8, 0.05, 0.95], 'side': [0.15, 0.7, 0.2, 0.8], 'wrist': [0.1, 1.0, 0.1, 0.9]},
    },
}


def host_plan(
    host: str,
    *,
    tasks: Sequence[str] = (),
    demonstrations: Sequence[str] = (),
    expert: str = '',
    episodes_per_task: int | None = None,
    time_cap_s: float | None = None,
    suite: str = '',
    probe: Mapping[str, Any] | None = None,
) -> ShortcutPlan:
    """The plan of a host by name; its own expert demonstrates unless demonstrations or another expert are given."""
    if ':' not in host and host not in HOSTS.names():
        raise UnknownName('host, nor a TOML file,', host, HOSTS.names())
    chosen = None if demonstrations else ExpertOptions(use=expert) if expert else EXPERTS.get(host)
    if chosen is None and not demonstrations:
        raise InputError(f'host {host} has no expert of its own; give --demonstrations PATH or --expert NAME')
    options = {**HOST_OPTIONS.get(host, {}), **({'suite': suite} if suite else {})}
    return ShortcutPlan(
        host=HostEntry(host, options),
        expert=chosen,
        demonstrations=tuple(demonstrations),
        probe={**({} if demonstrations else PROBES.get(host, {})), **(probe or {})},
        evaluation=EvaluationOptions(
            tasks=tuple(TaskEntry(name, scene=_scene(host, name)) for name in tasks),
            episodes_per_task=episodes_per_task,
            time_cap_s=time_cap_s,
        ),
    )


def _scene(host: str, task: str) -> str:
    """The scene that a task of the cell shares with others, so that they meet the same start states."""
    if host != 'tabletop':
        return ''
    from robotrials.worlds.cell.task import TASKS

    if task not in TASKS:
        raise UnknownName('task of the tabletop cell', task, TASKS)
    return TASKS[task].scene
