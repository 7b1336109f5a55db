"""The plan of a trial: declared in a file, hashed, and stored before the first rollout."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, UnknownName, near_miss
from robotrials.record.episode import ParameterValue, PolicyCard
from robotrials.value import dataclass, read_table, without_nulls
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, SuccessSource

LONGEST_LATENCY_S = 86_400.0
MOST_JITTER = 10.0


class Scenes(enum.StrEnum):
    MATCHED = 'matched'  # every policy meets the same start states
    INDEPENDENT = 'independent'


class Grouping(enum.StrEnum):
    """What is kept together in a session, to spare changeovers; blocks are shuffled inside a group."""

    NONE = 'none'
    TASK = 'task'
    STRATUM = 'stratum'


class Clock(enum.StrEnum):
    VIRTUAL = 'virtual'  # time is the count of control steps
    WALL = 'wall'


class LatencyMode(enum.StrEnum):
    NONE = 'none'  # the world waits for the policy
    MEASURED = 'measured'  # the world moves on for as long as the policy really took
    INJECTED = 'injected'  # the world moves on for as long as the plan says


class Waiting(enum.StrEnum):
    """What the arm does until a new answer arrives."""

    KEEP = 'keep'  # play out the queue, then keep the last position target
    REPEAT = 'repeat'  # play out the queue, repeat the last motion for `repeat_s`, then hold still
    CONTINUE = 'continue'  # play out the queue, then hold still; asks as HOLD does
    HOLD = 'hold'  # take the first `execute` actions of an answer, then hold still until the next


class Asking(enum.StrEnum):
    """When the policy is given an observation."""

    STREAM = 'stream'  # one is sent at every control tick, and it takes the newest that has arrived when it is free
    REQUEST = 'request'  # one is sent when `execute` actions of the last answer were taken, and the arm waits for it


class UnderWay(enum.StrEnum):
    """Whether a policy is told which of its commands were not yet carried out when it was shown the world."""

    TOLD = 'told'
    UNTOLD = 'untold'


class FaultOutcome(enum.StrEnum):
    INVALID = 'invalid'
    FAILURE = 'failure'


class StoppingRule(enum.StrEnum):
    NONE = 'none'
    SEQUENTIAL = 'sequential'


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTarget:
    """What the trial must be able to see: the episodes per cell follow from it."""

    difference: float
    power: float = 0.8
    alpha: float = 0.05
    discordance: float | None = None  # for matched scenes
    success_rate: float | None = None  # for independent scenes: of the worse policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationOptions:
    max_rounds_per_block: int = 3  # a block holds every policy 1 to this many times
    sessions: int = 1
    fixtures: tuple[str, ...] = ()
    grouping: Grouping = Grouping.NONE

    def __post_init__(self) -> None:
        for name in ('max_rounds_per_block', 'sessions'):
            if getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 1')
        if len(set(self.fixtures)) != len(self.fixtures):
            raise InputError('fixtures are named twice')


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpread:
    """A latency drawn anew for every question, uniform between two bounds."""

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.high_s <= LONGEST_LATENCY_S:
            bounds = f'low_s is {self.low_s} and high_s {self.high_s}'
            raise InputError(f'{bounds}, wanted 0 <= low_s <= high_s <= {LONGEST_LATENCY_S:g}')


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """The three parts of the time from an observation to its action: network, inference, transport to the arm.

    The rest says what the wires do to messages, what the arm does meanwhile, and what the policy knows of it.
    """

    mode: LatencyMode = LatencyMode.NONE
    network_s: float | LatencySpread = 0.0
    inference_s: float | LatencySpread = 0.0
    transport_s: float | LatencySpread = 0.0
    waiting: Waiting = Waiting.KEEP
    repeat_s: float = 0.2  # how long the last motion is repeated under `waiting = "repeat"`
    asking: Asking | None = None  # not given: request under hold and continue, stream otherwise
    retry_s: float = 1.0  # a request without an answer for so long is put again
    under_way: UnderWay = UnderWay.TOLD
    jitter: float = 0.0  # of injected parts: each times a log-normal factor of mean 1 and this standard deviation
    loss: float = 0.0  # the chance that a message is lost, an observation or an answer
    reorder: bool = True  # a late message may be overtaken; false: it holds up those behind it

    def __post_init__(self) -> None:
        for name in ('network_s', 'inference_s', 'transport_s'):
            value = getattr(self, name)
            if not isinstance(value, LatencySpread) and not 0 <= value <= LONGEST_LATENCY_S:
                raise InputError(f'{name} is {value}, wanted 0 to {LONGEST_LATENCY_S:g}')
            if self.mode is not LatencyMode.INJECTED and value != 0.0:
                raise InputError(f"{name} is given and mode is {self.mode}; injected latencies want mode = 'injected'")
        if self.jitter and self.mode is not LatencyMode.INJECTED:
            raise InputError(f"jitter is given and mode is {self.mode}; it wants mode = 'injected'")
        if self.loss and self.mode is LatencyMode.NONE:
            raise InputError("loss is given and mode is none; it wants mode = 'injected' or 'measured'")
        if not 0 <= self.jitter <= MOST_JITTER:
            raise InputError(f'jitter is {self.jitter}, wanted 0 to {MOST_JITTER:g}')
        if not self.repeat_s >= 0:
            raise InputError(f'repeat_s is {self.repeat_s}, wanted >= 0')
        if not 0 <= self.loss < 1:
            raise InputError(f'loss is {self.loss}, wanted a chance below 1')
        if not self.retry_s > 0:
            raise InputError(f'retry_s is {self.retry_s}, wanted > 0')

    @property
    def asks(self) -> Asking:
        if self.asking is not None:
            return self.asking
        return Asking.REQUEST if self.waiting in (Waiting.HOLD, Waiting.CONTINUE) else Asking.STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Bounds on the motion part of actions, one number for all or one each, in the action's units a second."""

    velocity: float | tuple[float, ...] | None = None
    acceleration: float | tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    clock: Clock = Clock.VIRTUAL
    latency: LatencyOptions = field(default_factory=LatencyOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    deadline_s: float | None = None  # an answer that took longer (wall clock) is late

    def __post_init__(self) -> None:
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError(f'deadline_s is {self.deadline_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogOptions:
    """Seconds of silence after which a call is cut off and its worker killed."""

    policy_s: float = 60.0
    host_s: float = 60.0
    start_s: float = 900.0  # loading hosts and policies
    thinking_s: float | None = None  # of all of a policy's answers in one episode together; None: no budget

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is not None and value <= 0:
                raise InputError(f'{f.name} is {getattr(self, f.name)}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """How often a slot is tried, and what a policy's own faults count as."""

    attempts: int = 3
    policy_crash: FaultOutcome = FaultOutcome.INVALID
    policy_hang: FaultOutcome = FaultOutcome.INVALID
    policy_late: FaultOutcome = FaultOutcome.FAILURE
    policy_answer: FaultOutcome = FaultOutcome.FAILURE  # not finite, or of a wrong shape

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InputError(f'attempts is {self.attempts}, wanted >= 1')


class StoppingScore(enum.StrEnum):
    SUCCESS = 'success'
    PROMPTNESS = 'promptness'  # time-to-success: the mean over items of 1 - min(T, tau_s) / tau_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingOptions:
    rule: StoppingRule = StoppingRule.NONE
    score: StoppingScore = StoppingScore.SUCCESS
    tau_s: float | None = None  # of promptness; each task's own time cap when not given
    alpha: float = 0.05
    smallest_difference: float | None = None
    look_every_rounds: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f'alpha is {self.alpha}, wanted between 0 and 1')
        if self.look_every_rounds < 1:
            raise InputError(f'look_every_rounds is {self.look_every_rounds}, wanted >= 1')
        if self.tau_s is not None and not self.tau_s > 0:
            raise InputError(f'tau_s is {self.tau_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmOptions:
    """How episodes are filmed: the cameras (the policy's and an overview unless named), their size and rate."""

    cameras: tuple[str, ...] = ()
    size_px: tuple[int, ...] = (160, 120)  # width, height
    rate_hz: float = 5.0
    draw: bool = True  # else only the states are kept

    def __post_init__(self) -> None:
        sides = self.size_px
        if len(sides) != 2 or any(s % 2 or not 16 <= s <= most for s, most in zip(sides, (1280, 960), strict=True)):
            raise InputError(
                f'size_px is {list(sides)}, wanted even width and height such as [160, 120], at most [1280, 960]'
            )
        if not 0 < self.rate_hz <= 1000:
            raise InputError(f'rate_hz is {self.rate_hz}, wanted frames per second above 0')
        if len(set(self.cameras)) != len(self.cameras):
            raise InputError(f'cameras are {list(self.cameras)}, wanted each once')


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """What is kept of an episode. Hosts that can draw are filmed unless `film` is "off" (or false).

    With "later" only the states are kept that films can be drawn from.
    """

    trajectories: bool = True
    frame_hashes: bool = False
    simulator_state: bool = False
    film: FilmOptions | bool | str | None = None
    rgbd: str | float = 'ends'  # RGB-D of a host with cameras: ends (start and end), off, or so often per second too

    def __post_init__(self) -> None:
        if isinstance(self.film, str):
            words: dict[str, FilmOptions | bool] = {'on': True, 'off': False, 'later': FilmOptions(draw=False)}
            if self.film not in words:
                raise InputError(f'film is {self.film!r}: {near_miss(self.film, words)}, or a table of its options')
            object.__setattr__(self, 'film', words[self.film])
        rate = self.rgbd
        if isinstance(rate, str) and rate not in ('ends', 'off'):
            raise InputError(f"rgbd is {rate!r}, wanted 'ends', 'off' or a number of views per second")
        if not isinstance(rate, str):
            if not 0 < rate <= 100:
                raise InputError(f'rgbd is {rate}, wanted a rate above 0 and up to 100 per second')
            object.__setattr__(self, 'rgbd', float(rate))

    @property
    def filming(self) -> FilmOptions | None:
        """How to film, if at all. Without a trajectory there is nothing that a film could belong to."""
        if self.film is False or not self.trajectories:
            return None
        return self.film if isinstance(self.film, FilmOptions) else FilmOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindingOptions:
    enabled: bool = True
    secret: str = ''  # makes codes and hash unguessable even for one who guesses the rest of the plan
    # Of an operator's plan, made by `robotrials seal`: its policies are codes, and nothing here leads back to names.
    commitment: str = ''  # binds it to the statistician's secret and whole plan
    arms: str = ''  # SHA-256 of the file that says how to reach each code
    public_key: str = ''  # closes what only the statistician may read
    rotation: str = ''  # commits to the key of the order, which lies with the machine; '' in older trials

    @property
    def is_sealed(self) -> bool:
        return bool(self.commitment)

    @property
    def is_concealed(self) -> bool:
        """Whether nothing in this plan tells which arm comes when."""
        return bool(self.rotation)


# What a plan names: its host, policies, tasks, strata and conditions.

HUMAN = 'human'  # the `use` of an arm that is a person, who acts under the same protocol


@dataclass(frozen=True, slots=True)
class HostEntry:
    """A host by catalogue name, entry point or ``module:attribute``, and the arguments to make it with."""

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy, its arguments, and how many actions of each chunk are executed (all of them unless given).

    `card` is what is known of its making, under the names of `PolicyCard`'s fields; it stays sealed with the plan.
    """

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)
    execute: int | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)  # file or folder -> its SHA-256, checked while running

    def __post_init__(self) -> None:
        for path, digest in self.checkpoints.items():
            if not re.fullmatch('[0-9a-f]{64}', digest):
                raise InputError(f'checkpoints: {path} has {digest!r}, wanted a SHA-256 of 64 hex digits')
        if self.execute is not None and self.execute < 1:
            raise InputError(f'execute is {self.execute}, wanted >= 1')
        known = [f.name for f in dataclasses.fields(PolicyCard) if f.name != 'policy']
        for name in self.card:
            if name not in known:
                raise UnknownName('field of a policy card', name, known)
            _check_card_field(name, self.card[name])

    @property
    def is_human(self) -> bool:
        return self.use == HUMAN


def _check_card_field(name: str, value: object) -> None:
    """Refuse a value that a card's field can't hold."""
    if name == 'image_resolution_px':
        sides = value if isinstance(value, list | tuple) else ()
        if len(sides) != 2 or not all(_is_count(side) and side for side in sides):
            raise InputError(f'card: image_resolution_px is {value!r}, wanted width and height, such as [224, 224]')
    elif name in ('training_steps', 'chunk_length'):
        if not _is_count(value):
            raise InputError(f'card: {name} is {value!r}, wanted a whole number from 0 on')
    elif not isinstance(value, str):
        raise InputError(f'card: {name} is {value!r}, wanted text')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task of the host. Tasks that name the same `scene` share their start states, as a swap test needs."""

    name: str
    instruction: str = ''
    items: int | None = None
    scene: str = ''


@dataclass(frozen=True, slots=True)
class StratumEntry:
    name: str
    items: int | None = None


@dataclass(frozen=True, slots=True)
class ConditionEntry:
    """A condition by name, drawn anew for every start state at its severity, or at each of a rising ladder of them.

    With `parameters` instead, those numbers go to the host as they are. `kinds` are the parts of chaos.
    """

    name: str
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    severity: float | tuple[float, ...] | None = None
    kinds: tuple[str, ...] = ()
    paraphraser: str = ''  # who rewords an instruction: rules (the default), or endpoint,url=...,model=...,cache=...

    def __post_init__(self) -> None:
        if self.paraphraser and not {'instruction', 'chaos'} & set(self.name.split('+')):
            raise InputError(f'condition {self.name}: a paraphraser goes with instruction or chaos')
        if self.severity is not None and self.parameters:
            raise InputError(f'condition {self.name}: wanted either a severity or parameters, found both')
        rungs = self.severity if isinstance(self.severity, tuple) else (self.severity,)
        if not rungs or any(s is not None and not 0 < s <= 1 for s in rungs):
            raise InputError(f'condition {self.name}: severity is {self.severity}, wanted above 0 and at most 1')
        if list(rungs) != sorted(set(rungs), key=lambda s: s or 0.0):
            raise InputError(f'condition {self.name}: severities must rise, found {list(rungs)}')
        if self.kinds and self.name != 'chaos':
            raise InputError(f'condition {self.name}: kinds are the parts of chaos; join others as in light+latency')

    @property
    def is_late(self) -> bool:
        """Whether it delays answers."""
        if self.name == 'chaos':
            return not self.kinds or 'latency' in self.kinds
        return 'latency' in self.name.split('+')

    def rungs(self) -> tuple[ConditionEntry, ...]:
        """The entry once for each severity of its ladder."""
        if not isinstance(self.severity, tuple):
            return (self,)
        return tuple(dataclasses.replace(self, severity=s) for s in self.severity)


HASH_HEX_DIGITS = 32
MOST_EPISODES = 1_000_000
LONGEST_CAP_S = 7 * 86_400.0
MOST_PLAN_BYTES = 4 << 20
# Left out of the canonical JSON where they have their defaults: plans that are older than these keys keep their hash.
LATER_KEYS = ('severity', 'kinds', 'paraphraser', 'scene', 'checkpoints')  # of conditions, tasks and policies
LATER_OPTIONS: Mapping[type[Any], tuple[str, ...]] = {
    LatencyOptions: ('repeat_s', 'asking', 'retry_s', 'under_way', 'jitter', 'loss', 'reorder'),
    RecordingOptions: ('film', 'rgbd'),
    WatchdogOptions: ('thinking_s',),
    BlindingOptions: ('commitment', 'arms', 'public_key', 'rotation'),
    AnalysisPlan: ('rule',),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignCell:
    """What a policy is tried on: one task, stratum and condition."""

    task: TaskEntry
    stratum: StratumEntry
    condition: ConditionEntry
    time_cap_s: float
    items: int | None

    @property
    def name(self) -> str:
        severity = self.condition.severity
        rung = '' if severity is None else f'severity={severity}'
        parts = [self.task.name, self.stratum.name, self.condition.name, rung]
        parameters = ','.join(f'{k}={v}' for k, v in sorted(self.condition.parameters.items()))
        return ' / '.join([p for p in parts if p] + ([parameters] if parameters else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """A declared trial. Equal plans have equal hashes, however their files are laid out.

    reference: the policy that the others are measured against. strata: kinds of start within a task, such as object
    types; every task is run on each of them, under each of the `conditions`. episodes_per_cell, or `power` in its
    place: how many start states each policy meets in each of these cells. repeats: how often each start state is run.
    nuisance: labels that are balanced over the policies, such as a camera's side, with their levels. scenes: whether
    all policies meet the same start states.
    """

    host: HostEntry
    policies: Mapping[str, PolicyEntry]
    tasks: tuple[TaskEntry, ...]
    seed: int
    title: str = ''
    benchmark: str = ''
    reference: str = ''
    strata: tuple[StratumEntry, ...] = ()
    conditions: tuple[ConditionEntry, ...] = ()
    episodes_per_cell: int | None = None
    power: PowerTarget | None = None
    repeats: int = 1
    time_cap_s: float | None = None
    time_cap_per_item_s: float | None = None
    turnaround_s: float | None = None  # between episodes, for the expected duration
    scenes: Scenes = Scenes.MATCHED
    rotation: RotationOptions = field(default_factory=RotationOptions)
    nuisance: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loop: LoopOptions = field(default_factory=LoopOptions)
    watchdog: WatchdogOptions = field(default_factory=WatchdogOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)
    stopping: StoppingOptions = field(default_factory=StoppingOptions)
    recording: RecordingOptions = field(default_factory=RecordingOptions)
    blinding: BlindingOptions = field(default_factory=BlindingOptions)
    analysis: AnalysisPlan | None = None  # declared with the trial, and part of its hash

    def __post_init__(self) -> None:
        if not self.is_late:  # nothing is ever waited for: such plans keep the hash they had
            latency = dataclasses.replace(self.loop.latency, waiting=Waiting.HOLD)
            object.__setattr__(self, 'loop', dataclasses.replace(self.loop, latency=latency))
        check_plan(self)

    @property
    def is_judged_by_cameras(self) -> bool:
        """Whether the declared analysis takes success from cameras alone."""
        return self.analysis is not None and self.analysis.success is SuccessSource.RECONSTRUCTION

    @property
    def is_late(self) -> bool:
        """Whether time can pass between an observation and its action."""
        loop = self.loop
        is_charged = loop.clock is Clock.WALL or loop.latency.mode is not LatencyMode.NONE
        return is_charged or any(c.is_late for c in self.conditions)

    @property
    def hash(self) -> str:
        """What identifies the trial: 32 hex digits over everything that was declared."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:HASH_HEX_DIGITS]

    def as_json(self) -> str:
        """The whole plan, defaults filled in, as canonical JSON."""
        values = dataclasses.asdict(self)
        for entry in (*values['conditions'], *values['tasks'], *values['policies'].values()):
            for name in LATER_KEYS:
                if name in entry and not entry[name]:
                    del entry[name]
        tables = [(values['loop']['latency'], LatencyOptions), (values['recording'], RecordingOptions)]
        tables += [(values['watchdog'], WatchdogOptions), (values['blinding'], BlindingOptions)]
        if values['analysis'] is None:
            del values['analysis']
        else:
            tables.append((values['analysis'], AnalysisPlan))
        for table, kind in tables:
            unsaid = {f.name: f.default for f in dataclasses.fields(kind)}
            for name in LATER_OPTIONS[kind]:
                if table[name] == unsaid[name]:
                    del table[name]
        return json.dumps(values, sort_keys=True, separators=(',', ':'), allow_nan=False)

    def cells(self) -> tuple[DesignCell, ...]:
        """Every task x stratum x condition, with its time cap."""
        strata = self.strata or (StratumEntry(''),)
        conditions = [rung for c in self.conditions for rung in c.rungs()] or [ConditionEntry('nominal')]
        return tuple(self._cell(t, s, c) for t, s, c in itertools.product(self.tasks, strata, conditions))

    def _cell(self, task: TaskEntry, stratum: StratumEntry, condition: ConditionEntry) -> DesignCell:
        items = stratum.items if stratum.items is not None else task.items
        cap_s = self.time_cap_s
        if cap_s is None:
            if items is None:
                raise InputError(f'time_cap_per_item_s is given, and task {task.name} has no items; say items = ...')
            cap_s = (self.time_cap_per_item_s or 0.0) * items
        return DesignCell(task=task, stratum=stratum, condition=condition, time_cap_s=cap_s, items=items)

    def episodes_in_a_cell(self) -> int:
        """How many start states each policy meets in each cell: as declared, or as the power target needs."""
        if self.episodes_per_cell is not None:
            return self.episodes_per_cell
        from robotrials.run.size import episodes_for_power

        return episodes_for_power(self)


def _check_values(value: object, where: str) -> None:
    """Refuse what a plan can't be hashed with: a number that is none, a date."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_values(inner, f'{where}.{name}' if where else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            _check_values(inner, f'{where}[{number}]')
    elif value is not None and not isinstance(value, str | int | float):
        raise InputError(f'{where} is {value}, wanted text, a number or true or false; put a date in quotes')
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f'{where} is {value}, wanted a finite number')


def check_plan(plan: TrialPlan) -> None:
    """Raise InputError if the parts of a plan contradict each other."""
    _check_values(dataclasses.asdict(plan), '')
    if not plan.policies:
        raise InputError('policies is empty, wanted at least one [policies.NAME]')
    if not plan.tasks:
        raise InputError('tasks is empty, wanted at least one')
    if plan.reference and plan.reference not in plan.policies:
        raise UnknownName('policy (the reference)', plan.reference, plan.policies)
    if plan.seed < 0:
        raise InputError(f'seed is {plan.seed}, wanted >= 0')
    _check_amounts(plan)
    _check_size(plan)
    declared: list[tuple[str, list[str]]] = [
        ('task', [t.name for t in plan.tasks]),
        ('stratum', [s.name for s in plan.strata]),
        ('condition', [_condition_name(rung) for c in plan.conditions for rung in c.rungs()]),
    ]
    for kind, names in declared:
        twice = [n for n in names if names.count(n) > 1]
        if twice:
            raise InputError(f'{kind} {twice[0]} is declared twice')
    for label, levels in plan.nuisance.items():
        if label == 'fixture':
            raise InputError("nuisance label 'fixture' is taken by rotation.fixtures; give it another name")
        if len(set(levels)) != len(levels) or len(levels) < 2:
            raise InputError(f'nuisance {label} is {list(levels)}, wanted two or more different levels')
    if plan.recording.rgbd == 'off' and plan.is_judged_by_cameras:
        raise InputError(
            "analysis.success is 'reconstruction' and recording.rgbd is 'off', so that no view would be kept to score; "
            "say rgbd = 'ends', or success = 'host'"
        )
    if plan.stopping.rule is not StoppingRule.NONE and len(plan.policies) < 2:
        raise InputError('a stopping rule compares policies; one policy is declared')
    shortest = min((cell.time_cap_s for cell in plan.cells()), default=0.0)
    if plan.stopping.tau_s is not None and plan.stopping.tau_s > shortest:
        raise InputError(f'stopping.tau_s is {plan.stopping.tau_s:g}, wanted at most the shortest cap, {shortest:g} s')


def _check_size(plan: TrialPlan) -> None:
    """Refuse what could not be held, before anything is made of it."""
    amounts = {
        'episodes_per_cell': (plan.episodes_per_cell or 0, MOST_EPISODES),
        'repeats': (plan.repeats, MOST_EPISODES),
        'faults.attempts': (plan.faults.attempts, 100),
        'rotation.sessions': (plan.rotation.sessions, 10_000),
        'rotation.max_rounds_per_block': (plan.rotation.max_rounds_per_block, 10_000),
        'seed': (plan.seed, 2**63 - 1),
        'combinations of nuisance levels': (math.prod(len(levels) for levels in plan.nuisance.values()), 10_000),
        'the time cap in seconds': (plan.time_cap_s or plan.time_cap_per_item_s or 0, LONGEST_CAP_S),
        'items': (max([t.items or 0 for t in plan.tasks] + [s.items or 0 for s in plan.strata]), 10_000),
    }
    rungs = sum(len(c.rungs()) for c in plan.conditions) or 1
    cells = len(plan.tasks) * max(len(plan.strata), 1) * rungs
    amounts['cells'] = cells, 100_000
    amounts['episodes'] = cells * (plan.episodes_per_cell or 1) * plan.repeats * len(plan.policies), MOST_EPISODES
    for name, (amount, most) in amounts.items():
        if amount > most:
            raise InputError(f'{name}: {amount}, wanted at most {most}')


def _condition_name(entry: ConditionEntry) -> str:
    severity = '' if entry.severity is None else f'at {entry.severity}'
    return f'{entry.name} {severity} {dict(sorted(entry.parameters.items())) or ""}'.strip()


def _check_amounts(plan: TrialPlan) -> None:
    if (plan.episodes_per_cell is None) == (plan.power is None):
        raise InputError('wanted either episodes_per_cell or a [power] target, found both or neither')
    if plan.episodes_per_cell is not None and plan.episodes_per_cell < 1:
        raise InputError(f'episodes_per_cell is {plan.episodes_per_cell}, wanted >= 1')
    if plan.repeats < 1:
        raise InputError(f'repeats is {plan.repeats}, wanted >= 1')
    if (plan.time_cap_s is None) == (plan.time_cap_per_item_s is None):
        raise InputError('wanted either time_cap_s or time_cap_per_item_s, found both or neither')
    cap = plan.time_cap_s if plan.time_cap_s is not None else plan.time_cap_per_item_s
    if cap is not None and cap <= 0:
        raise InputError(f'the time cap is {cap} s, wanted > 0')


def read_plan(path: Path | str) -> TrialPlan:
    """The plan declared in a ``trial.toml``; every mistake names the file and the key."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_PLAN_BYTES:
            raise InputError(f'{file}: {file.stat().st_size} bytes, wanted a plan of at most {MOST_PLAN_BYTES}')
        text = file.read_text(encoding='utf-8')
        values = without_nulls(json.loads(text)) if file.suffix == '.json' else tomllib.loads(text)
    except FileNotFoundError as error:
        raise InputError(f'{file}: no such file; wanted a trial.toml') from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: not UTF-8, a number of thousands of digits
        raise InputError(f'{file}: not {"JSON" if file.suffix == ".json" else "TOML"} ({error})') from error
    except IsADirectoryError as error:
        raise InputError(f'{file}: a folder; wanted a trial.toml') from error
    if file.suffix == '.json' and isinstance(values, dict) and {'host', 'tasks'}.isdisjoint(values):
        kind = (
            "the statistician's allocation" if 'secret' in values else 'a list of arms' if 'salt' in values else 'JSON'
        )
        raise InputError(f'{file}: {kind}, and no plan (neither host nor tasks); wanted trial.toml or operator.json')
    try:
        return read_table(TrialPlan, values, where=str(file))
    except (RecursionError, OverflowError) as error:
        raise InputError(f'{file}: nested too deeply, or a number too large ({error})') from error


def plan_from_json(text: str) -> TrialPlan:
    """A plan back from `TrialPlan.as_json`."""
    return read_table(TrialPlan, without_nulls(json.loads(text)), where='plan')
