"""The episode and the events inside it, its deterministic id, and how its fields are parsed from text.

Where an episode came from: what someone needs to rerun it and to judge a discrepancy.

The fields follow the artifact list of the benchmark audit's Appendix B.3: checkpoint, code, command, configuration,
seeds, initial states, wrappers, normalisation, action post-processing, success parsing, hardware, driver, CUDA,
PyTorch, simulator and environment identifiers.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import hashlib
import json
import math
import operator
import os
import platform
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from robotrials.errors import NotEstimable, RecordError
from robotrials.value import dataclass

# What happened inside an episode, at a time, and who says so.

E = TypeVar('E', bound=enum.StrEnum)
LARGEST_COUNT = 2**31 - 1


class EventKind(enum.StrEnum):
    PLACEMENT = 'placement'
    DROP_OUTSIDE = 'drop_outside'
    DROP_UNCOLLECTED = 'drop_uncollected'
    SAFETY_STOP = 'safety_stop'
    ASSIST = 'assist'
    GRASP = 'grasp'
    RELEASE = 'release'
    PHASE = 'phase'  # from here on the episode is in the phase of this name


class EventSource(enum.StrEnum):
    HOST = 'host'
    OPERATOR = 'operator'
    DETECTOR = 'detector'
    REVIEWER = 'reviewer'
    SENSOR = 'sensor'


@dataclass(frozen=True, slots=True)
class Event:
    """One event at `t_s` seconds after the episode's start; `count` items were part of it.

    A phase has a name and lasts until the next phase begins; no other kind has one.
    """

    t_s: float
    kind: EventKind
    source: EventSource = EventSource.HOST
    count: int = 1
    name: str = ''

    def __post_init__(self) -> None:
        object.__setattr__(self, 'kind', enum_member(EventKind, self.kind, 'kind'))
        object.__setattr__(self, 'source', enum_member(EventSource, self.source, 'source'))
        if not (math.isfinite(self.t_s) and self.t_s >= 0):
            raise RecordError(f't_s is {self.t_s}, wanted a finite number of seconds >= 0')
        if type(self.count) is not int and (isinstance(self.count, bool) or int(self.count) != self.count):
            raise RecordError(f'count is {self.count!r}, wanted a whole number >= 1')
        if not 1 <= self.count <= LARGEST_COUNT:
            raise RecordError(f'count is {self.count!r}, wanted a whole number from 1 to {LARGEST_COUNT}')
        if (self.kind is EventKind.PHASE) != bool(self.name):
            wanted = (
                'the name of the phase' if self.kind is EventKind.PHASE else f'none for an event of kind {self.kind}'
            )
            raise RecordError(f'name is {self.name!r}, wanted {wanted}')


def enum_member(kind: type[E], value: str, field: str) -> E:
    """The member of `kind` with this value, or an error that lists the members."""
    if type(value) is kind:
        return value
    try:
        return kind(value)
    except ValueError as error:
        known = ', '.join(m.value for m in kind)
        raise RecordError(f'{field} is {value!r}, wanted one of: {known}') from error


# Deterministic episode ids: the same rollout of the same plan has the same id wherever and whenever it is run.

ID_HEX_DIGITS = 24


def episode_id_of(episode: Episode) -> str:
    """The id of (trial, policy, benchmark, task, stratum, condition, seed, instance, repeat): 24 hex digits.

    `trial_id` is the plan's hash or the import source. The attempt is not part of it: an INVALID episode and its
    rerun share an id, so that they can never both count.
    """
    identity = [
        episode.trial_id, episode.policy, episode.benchmark, episode.task, episode.stratum, episode.condition,
        dict(episode.condition_parameters), episode.seed, episode.instance, episode.repeat,
    ]  # fmt: skip
    return digest(identity)


def digest(value: object) -> str:
    """24 hex digits over the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False, allow_nan=False)
    try:
        return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]
    except UnicodeEncodeError as error:
        fragment = text[error.start : error.end]
        raise RecordError(f'a name holds {fragment!r}, half of a character; wanted whole Unicode text') from error


ParameterValue = str | int | float | bool
NOMINAL = 'nominal'  # the condition of an unchanged world
EMPTY: Mapping[str, Any] = types.MappingProxyType({})
LARGEST_SEED = 2**63 - 1
_event_time = operator.attrgetter('t_s')


class Outcome(enum.StrEnum):
    SUCCESS = 'success'
    FAILURE = 'failure'
    TIMEOUT = 'timeout'  # working when we stopped watching: censored
    SAFETY_STOP = 'safety_stop'
    INVALID = 'invalid'  # the cell or the host broke; the policy was not tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One rollout: who, where, under what, and what came of it.

    `policy`, `task` and `outcome` are required. Everything else is absent (None or empty) until known; an absent count
    or time is not a zero: without `duration_s` an episode has no time analysis, and its success still counts.
    `episode_id` is derived from the identity when it is left empty.
    """

    policy: str
    task: str
    outcome: Outcome
    duration_s: float | None = None
    steps: int | None = None  # control steps; they become seconds only by a stated rate

    trial_id: str = ''
    episode_id: str = ''
    attempt: int = 0
    is_reference: bool = False
    benchmark: str = ''
    stratum: str = ''  # the object or suite that a cell is made of
    condition: str = NOMINAL
    condition_parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    seed: int | None = None
    instance: int | None = None
    repeat: int = 0  # the same start state run again
    block: str = ''
    session: str = ''
    operator: str = ''
    started_at: dt.datetime | None = None

    time_cap_s: float | None = None
    items: int | None = None
    items_placed: int | None = None
    items_lost: int | None = None
    success: bool | None = None  # the host's own predicate
    score: float | None = None
    max_score: float | None = None
    is_unrecoverable: bool | None = None  # a failure that the host says could not have been mended
    reason: str = ''
    instruction: str = ''
    labels: Mapping[str, str] = field(default_factory=dict)
    provenance_id: str = ''
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, 'outcome', enum_member(Outcome, self.outcome, 'outcome'))
        put(self, 'events', tuple(sorted(self.events, key=_event_time)))
        for name in ('condition_parameters', 'labels'):
            put(self, name, frozen_map(getattr(self, name)))
        check_episode(self)
        if not self.episode_id:
            put(self, 'episode_id', episode_id_of(self))

    @property
    def is_valid(self) -> bool:
        """Whether the policy was tested at all; INVALID episodes are reported and never scored."""
        return self.outcome is not Outcome.INVALID

    @property
    def is_success(self) -> bool:
        """Whether the episode succeeded: by the host's own predicate, or by the outcome where there is none."""
        return self.outcome is Outcome.SUCCESS if self.success is None else self.success

    @property
    def cell(self) -> str:
        """The stratum that the episode belongs to: the one recorded, or its task where none is."""
        return self.stratum or self.task

    @property
    def known_duration_s(self) -> float:
        """`duration_s`, for whoever cannot do without it."""
        if self.duration_s is None:
            raise NotEstimable(
                f'episode {self.episode_id} ({self.policy}, {self.task}) has no duration_s, and this needs one; '
                'record it, or state the control rate of its steps'
            )
        return self.duration_s

    @property
    def key(self) -> tuple[str, int]:
        """What a store keeps once: the id and the attempt."""
        return self.episode_id, self.attempt

    def replace(self, **changes: Any) -> Episode:
        """A copy with some fields changed, checked again; the id stays."""
        return dataclasses.replace(self, **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ('condition_parameters', 'labels'):
            values[name] = dict(values[name])
        return _rebuild, (values,)


def _rebuild(values: dict[str, Any]) -> Episode:
    return Episode(**values)


def trusted_episodes(columns: Mapping[str, Sequence[Any]]) -> list[Episode]:
    """Episodes from columns that were taken from episodes, every field given: they were checked when they were made."""
    made = [object.__new__(Episode) for _ in columns['episode_id']]
    for name, values in columns.items():
        if len(values) != len(made):
            raise ValueError(f'{name} has {len(values)} values for {len(made)} episodes')
        collections.deque(map(getattr(Episode, name).__set__, made, values), maxlen=0)  # a loop in C
    return made


def check_episode(episode: Episode) -> None:
    """Raise RecordError, naming the field, if the episode breaks a rule of the record."""
    for name in ('policy', 'task'):
        if not getattr(episode, name):
            raise RecordError(f'{name} is empty, wanted a name')
    _check_times(episode)
    _check_counts(episode)
    _check_score(episode)
    check_maps(episode.condition_parameters, episode.labels)


def frozen_map(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same entries by their keys' order, for good."""
    return types.MappingProxyType(dict(sorted(given.items()))) if given else EMPTY


def check_maps(condition_parameters: Mapping[str, Any] = EMPTY, labels: Mapping[str, Any] = EMPTY) -> None:
    """Raise RecordError, naming the entry, for a value that may not be in them."""
    for key, value in condition_parameters.items():
        if type(value) not in (str, int, float, bool):
            raise RecordError(f'condition_parameters[{key!r}] is {value!r}, wanted text, a number, true or false')
        if isinstance(value, float) and not math.isfinite(value):
            raise RecordError(f'condition_parameters[{key!r}] is {value}, wanted a finite number')
    for key, text in labels.items():
        if not all(isinstance(part, str) for part in (key, text)):
            raise RecordError(f'labels[{key!r}] is {text!r}, wanted text for both')


def _check_times(episode: Episode) -> None:
    lasted = math.inf if episode.duration_s is None else episode.duration_s
    if episode.duration_s is not None and not (math.isfinite(lasted) and lasted >= 0):
        raise RecordError(f'duration_s is {lasted}, wanted a finite number >= 0, or nothing')
    cap = episode.time_cap_s
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        raise RecordError(f'time_cap_s is {cap}, wanted a finite number > 0, or nothing')
    if episode.started_at is not None and episode.started_at.tzinfo is None:
        raise RecordError(f'started_at is {episode.started_at.isoformat()} without a time zone, wanted one')
    # A millisecond of slack: events and durations often come from different clocks or roundings.
    for number, event in enumerate(episode.events):
        if event.t_s > lasted + 1e-3:
            end = f'after the end at duration_s = {episode.duration_s}'
            raise RecordError(f'events[{number}].t_s is {event.t_s} ({event.kind}), {end}')


def _check_counts(episode: Episode) -> None:
    for name in ('attempt', 'repeat', 'steps', 'items', 'items_placed', 'items_lost'):
        count = getattr(episode, name)
        if count is None or (type(count) is int and 0 <= count <= LARGEST_COUNT):
            continue
        if isinstance(count, bool) or int(count) != count or not 0 <= count <= LARGEST_COUNT:
            raise RecordError(f'{name} is {count!r}, wanted a whole number from 0 to {LARGEST_COUNT}')
    for name in ('seed', 'instance'):
        number = getattr(episode, name)
        if number is not None and not -LARGEST_SEED <= number <= LARGEST_SEED:
            raise RecordError(f'{name} is {number}, wanted a whole number of at most 63 bits')
    placed, lost = episode.items_placed or 0, episode.items_lost or 0
    if episode.items is not None and placed + lost > episode.items:
        raise RecordError(f'items_placed + items_lost is {placed + lost}, more than items = {episode.items}')
    timed = sum(e.count for e in episode.events if e.kind == 'placement')
    if episode.items is not None and timed > episode.items:
        raise RecordError(f'{timed} placements in events, more than items = {episode.items}')
    if episode.items_placed is not None and timed > episode.items_placed:
        raise RecordError(f'{timed} placements in events, more than items_placed = {episode.items_placed}')


def _check_score(episode: Episode) -> None:
    if episode.max_score is not None and not math.isfinite(episode.max_score):
        raise RecordError(f'max_score is {episode.max_score}, wanted a finite number, or nothing')
    if episode.score is None:
        return
    if not math.isfinite(episode.score):
        raise RecordError(f'score is {episode.score}, wanted a finite number')
    if episode.max_score is not None and not (0 <= episode.score <= episode.max_score):
        raise RecordError(f'score is {episode.score}, wanted 0 to max_score = {episode.max_score}')


# Parsing the fields of an episode from text or loose JSON values, for tables and edits.

TRUE_WORDS = frozenset({'true', 't', 'yes', 'y', '1', '1.0', 'success', 'succeeded', 'pass', 'passed'})
FALSE_WORDS = frozenset({'false', 'f', 'no', 'n', '0', '0.0', 'failure', 'failed', 'fail'})
OUTCOME_WORDS: Mapping[str, str] = {
    'succeeded': 'success', 'successful': 'success', 'pass': 'success', 'passed': 'success', 'done': 'success',
    'fail': 'failure', 'failed': 'failure', 'error': 'invalid', 'crash': 'invalid', 'crashed': 'invalid',
    'time_out': 'timeout', 'timed_out': 'timeout', 'timedout': 'timeout', 'ran_out_of_time': 'timeout',
    'truncated': 'timeout', 'safety': 'safety_stop', 'estop': 'safety_stop', 'e_stop': 'safety_stop',
    'safety_stopped': 'safety_stop', 'void': 'invalid', 'aborted': 'invalid',
}  # fmt: skip


def parse_field(name: str, value: Any) -> Any:
    """The value of one field from text or JSON; empty text is absence. RecordError says what was wanted."""
    if (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    ):
        return None
    try:
        return PARSERS[name](value)
    except RecordError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise RecordError(f'{name} is {value!r}, wanted {WANTED[PARSERS[name]]}') from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _whole(value: Any) -> int:
    number = float(value)
    if isinstance(value, bool) or not number.is_integer():
        raise ValueError(value)
    return (
        int(value)
        if not isinstance(value, str)
        else int(float(value))
        if '.' in value or 'e' in value.lower()
        else int(value)
    )


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _truth(value: Any) -> bool:
    word = str(value).strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError(value)


def _outcome(value: Any) -> Outcome:
    word = str(value).strip().lower().replace(' ', '_').replace('-', '_')
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return Outcome.SUCCESS if word in TRUE_WORDS else Outcome.FAILURE
    return enum_member(Outcome, OUTCOME_WORDS.get(word, word), 'outcome')


def _time(value: Any) -> dt.datetime:
    if isinstance(value, int | float):
        return dt.datetime.fromtimestamp(value, dt.UTC)
    parsed = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    if parsed.tzinfo is None:
        raise RecordError(f'started_at is {value!r} without a time zone, wanted one, such as 2026-01-31T14:00:00+00:00')
    return parsed


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and not value.lstrip().startswith('{'):
        pairs = [pair.partition('=') for pair in value.split(';') if pair.strip()]
        if not all(separator for _, separator, _ in pairs):
            raise ValueError(value)
        return {key.strip(): text.strip() for key, _, text in pairs}
    return dict(json.loads(value) if isinstance(value, str) else value)


def _labels(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in _mapping(value).items()}


def _events(value: Any) -> tuple[Event, ...]:
    rows = json.loads(value) if isinstance(value, str) else value
    events = []
    for number, row in enumerate(rows):
        try:
            events.append(Event(**{**dict(row), 't_s': float(row['t_s'])}))
        except RecordError as error:
            raise RecordError(f'events[{number}]: {error}') from error
    return tuple(events)


WANTED: Mapping[Callable[[Any], Any], str] = {
    _text: 'text',
    _whole: 'a whole number',
    _number: 'a number',
    _truth: 'true or false (or yes/no, 1/0, success/failure)',
    _outcome: 'an outcome',
    _time: 'a time in ISO 8601, or seconds since 1970',
    _mapping: 'key=value;key=value, or a JSON object',
    _labels: 'key=value;key=value, or a JSON object',
    _events: 'a list of events such as [{"t_s": 1.5, "kind": "placement"}]',
}

TEXT_FIELDS = (
    'policy', 'task', 'trial_id', 'episode_id', 'benchmark', 'stratum', 'condition', 'block', 'session', 'operator',
    'reason', 'instruction', 'provenance_id',
)  # fmt: skip
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(TEXT_FIELDS, _text),
    **dict.fromkeys(('attempt', 'seed', 'instance', 'repeat', 'steps', 'items', 'items_placed', 'items_lost'), _whole),
    **dict.fromkeys(('duration_s', 'time_cap_s', 'score', 'max_score'), _number),
    **dict.fromkeys(('is_reference', 'success', 'is_unrecoverable'), _truth),
    'outcome': _outcome,
    'started_at': _time,
    'condition_parameters': _mapping,
    'labels': _labels,
    'events': _events,
}


RENDER_VARIABLES = ('MUJOCO_GL', 'PYOPENGL_PLATFORM', 'EGL_DEVICE_ID', 'CUDA_VISIBLE_DEVICES', 'DISPLAY')
WATCHED_PACKAGES = (
    'robotrials', 'numpy', 'scipy', 'torch', 'jax', 'mujoco', 'robosuite', 'hf-libero', 'libero', 'robocasa',
    'gymnasium', 'lerobot', 'openpi-client', 'transformers', 'ray', 'sapien', 'mani-skill', 'metaworld',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCard:
    """What is known of a policy's making; an empty field is unknown."""

    policy: str
    checkpoint: str = ''
    training_data: str = ''
    training_steps: int | None = None
    frozen_parts: str = ''
    state_representation: str = ''
    action_representation: str = ''
    chunk_length: int | None = None
    image_resolution_px: tuple[int, int] | None = None
    notes: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord:
    """Where imported episodes came from, and what of it was kept or dropped and why."""

    format: str
    source: str
    sha256: str
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Versions, hashes, hardware, drivers, seeds and render flags of one run; empty means unknown."""

    command: str = ''
    config: str = ''
    checkpoint: str = ''
    code_revision: str = ''
    code_is_dirty: bool | None = None
    seeds: str = ''
    initial_states: str = ''
    wrappers: str = ''
    normalization: str = ''
    action_postprocessing: str = ''
    success_parsing: str = ''
    environment_id: str = ''
    simulator: str = ''
    cpu: str = ''
    gpu: str = ''
    driver: str = ''
    cuda: str = ''
    torch: str = ''
    operating_system: str = ''
    python: str = ''
    packages: Mapping[str, str] = field(default_factory=dict)
    render_flags: Mapping[str, str] = field(default_factory=dict)
    policy_cards: tuple[PolicyCard, ...] = ()
    imported: ImportRecord | None = None
    protocol: Mapping[str, str] = field(default_factory=dict)  # what the host states of its own rules, by name

    @property
    def provenance_id(self) -> str:
        """The hash of the content: equal provenance is kept once, whoever writes it."""
        return digest(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        values = dataclasses.asdict(self)
        values['packages'] = dict(self.packages)
        values['render_flags'] = dict(self.render_flags)
        values['protocol'] = dict(self.protocol)
        for name in ('imported', 'protocol'):
            if not values[name]:
                del values[name]  # so that ids stay what they were before there was such a field
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]  # tuples become lists, as when read back

    def missing(self) -> tuple[str, ...]:
        """The fields that are still unknown, by name."""
        names = (f.name for f in dataclasses.fields(self) if f.name not in ('imported', 'protocol'))
        return tuple(name for name in names if getattr(self, name) in ('', None, (), {}))


def provenance_from_json(values: Mapping[str, Any], *, where: str) -> Provenance:
    """Parse what `as_json` wrote; unknown or mistyped fields are named."""
    known = {f.name for f in dataclasses.fields(Provenance)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise RecordError(f'{where}: unknown provenance fields {", ".join(unknown)}')
    cards = []
    for number, card in enumerate(values.get('policy_cards', ())):
        try:
            resolution = card.get('image_resolution_px')
            cards.append(PolicyCard(**{**card, 'image_resolution_px': tuple(resolution) if resolution else None}))
        except TypeError as error:
            raise RecordError(f'{where}: policy_cards[{number}]: {error}') from error
    return Provenance(**{**values, 'policy_cards': tuple(cards), 'imported': _import_record(values, where)})


def _import_record(values: Mapping[str, Any], where: str) -> ImportRecord | None:
    imported = values.get('imported')
    if imported is None:
        return None
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in imported.items()}
        return ImportRecord(**fields)
    except (TypeError, AttributeError) as error:
        raise RecordError(f'{where}: imported: {error}') from error


def collect_provenance(*, packages: Iterable[str] = WATCHED_PACKAGES, folder: Path | None = None) -> Provenance:
    """What this process can see of itself: versions, git state of `folder`, hardware, drivers, render flags."""
    revision = _output_of(['git', 'rev-parse', 'HEAD'], folder)
    status = _output_of(['git', 'status', '--porcelain'], folder)
    gpu = _output_of(['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'], None)
    versions = _installed(packages)
    return Provenance(
        command=' '.join(sys.argv),
        code_revision=revision,
        code_is_dirty=bool(status) if revision else None,
        cpu=_cpu_name(),
        gpu='; '.join(line.split(',')[0].strip() for line in gpu.splitlines()),
        driver='; '.join(sorted({line.split(',')[-1].strip() for line in gpu.splitlines()})),
        torch=versions.get('torch', ''),
        simulator=', '.join(f'{n} {versions[n]}' for n in ('mujoco', 'robosuite', 'sapien') if n in versions),
        operating_system=platform.platform(),
        python=platform.python_version(),
        packages=versions,
        render_flags={name: os.environ[name] for name in RENDER_VARIABLES if name in os.environ},
    )


def _installed(packages: Iterable[str]) -> dict[str, str]:
    from importlib import metadata

    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _output_of(command: list[str], folder: Path | None) -> str:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return ran.stdout.strip() if ran.returncode == 0 else ''


def _cpu_name() -> str:
    try:
        for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def recorded_severity(episode: Episode, *, baseline: str = NOMINAL) -> float | None:
    """The severity in an episode's condition parameters; the largest of a compound's parts."""
    if episode.condition == baseline:
        return 0.0
    severities = [
        float(value)
        for name, value in episode.condition_parameters.items()
        if name.rsplit('.', 1)[-1] == 'severity' and isinstance(value, int | float)
    ]
    return max(severities) if severities else None


def conditions_by_severity(episodes: Iterable[Episode]) -> Callable[[Episode], str]:
    """What the condition of an episode is called, with its severity where there are several (`light at 0.5`)."""
    named = rung_names((e.condition, recorded_severity(e)) for e in episodes)
    return lambda episode: named(episode.condition, recorded_severity(episode))


def rung_names(rows: Iterable[tuple[str, float | None]]) -> Callable[[str, float | None], str]:
    rungs: dict[str, set[float | None]] = {}
    for condition, severity in rows:
        rungs.setdefault(condition, set()).add(severity)
    return lambda c, severity: c if len(rungs[c]) < 2 or severity is None else f'{c} at {severity:g}'
