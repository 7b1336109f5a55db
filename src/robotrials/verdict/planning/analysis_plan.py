"""The declared analysis: what will be claimed, and how it will be judged, written down before the data are there."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from robotrials.errors import InputError, near_miss
from robotrials.value import dataclass, read_table

ANALYSIS_FILE = 'analysis.toml'
HASH_HEX_DIGITS = 12
RULE = 2  # 1: restricted means with an allowance, endpoints in a hierarchy; 2: one list of claims, and dominance


class EndpointName(enum.StrEnum):
    """What a claim is about."""

    TIME = 'time'  # macro restricted mean time to success
    SUCCESS = 'success'  # share of episodes that succeeded
    THROUGHPUT = 'throughput'  # items per hour: the same test as time, shown as a rate
    SCORE = 'score'  # the host's bounded score
    SAFETY = 'safety'  # share of episodes with every active specification kept
    LOST = 'lost'  # items lost for good, of episodes with several


class SuccessSource(enum.StrEnum):
    HOST = 'host'  # the host's own predicate, or the outcome where there is none
    OUTCOME = 'outcome'  # the recorded outcome alone
    RECONSTRUCTION = 'reconstruction'  # kept RGB-D views: a projection, beside the recorded outcome
    BOTH = 'both'  # the host's, with the cameras' score and their agreement beside it

    @property
    def wants_cameras(self) -> bool:
        return self in (SuccessSource.RECONSTRUCTION, SuccessSource.BOTH)


class FailureRule(enum.StrEnum):
    NEVER = 'never'  # an early failure ends the operation under way for good
    CENSORED = 'censored'  # it might have been mended: watching stopped


class Correction(enum.StrEnum):
    HOLM = 'holm'
    BONFERRONI = 'bonferroni'
    NONE = 'none'


class Pairing(enum.StrEnum):
    AUTO = 'auto'  # paired where start states are recorded and matched
    PAIRED = 'paired'
    INDEPENDENT = 'independent'


E = TypeVar('E', bound=enum.StrEnum)


def _member(kind: type[E], value: str, name: str) -> E:
    known = [member.value for member in kind]
    if value not in known:
        raise InputError(f'{name} is {value!r}: {near_miss(str(value), known)}')
    return kind(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """One analysis of one selection of episodes; with the same both, every number is the same."""

    rule: int | None = None  # the version of the rule that it was declared under; None: it names none
    primary: tuple[EndpointName, ...] = ()  # success, and time where every episode is timed; safety where scored
    secondary: tuple[EndpointName, ...] = ()  # shown, and exploratory
    tau_s: float | Mapping[str, float] | None = None  # one for all, or one per stratum; None: by the written rule
    policies: tuple[str, ...] = ()  # compared; all of the store when empty
    strata: tuple[str, ...] = ()  # compared on; all that are shared when empty
    stratify_by: tuple[str, ...] = ('benchmark', 'task', 'stratum')
    reference: str = ''  # the policy that is marked, when empty
    baseline: str = 'nominal'  # the condition that policies are ranked under
    compound: str = 'chaos'
    margins: Mapping[EndpointName, float] = field(default_factory=dict)  # within which two policies are the same
    alpha: float = 0.05
    correction: Correction = Correction.HOLM
    pairing: Pairing = Pairing.AUTO
    unit: str = 'start state'  # what varies independently: start state, episode, session or operator
    success: SuccessSource = SuccessSource.HOST
    failure: FailureRule = FailureRule.NEVER
    resamples: int = 2000
    seed: int = 0
    safety_registry: tuple[str, ...] = ()  # files beside the built-in one
    safety_gate: str = 'boolean'  # how a gate enters a margin; literal: as published
    safety_severity: str = 'ratio'  # of VSI (Eq. 1), or anchored
    safety_phases: bool = False  # score the specs scoped to a phase too

    def __post_init__(self) -> None:
        for name in ('primary', 'secondary', 'policies', 'strata', 'stratify_by', 'safety_registry'):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        self._read_words()
        self._check_times()
        if self.rule not in (None, RULE):
            raise InputError(f'rule is {self.rule}; this version judges by rule {RULE}, and declares no other')
        if not 0 < self.alpha < 1:
            raise InputError(f'alpha is {self.alpha}, wanted a number between 0 and 1')
        if self.resamples < 1:
            raise InputError(f'resamples is {self.resamples}, wanted at least 1')
        if self.seed < 0:
            raise InputError(f'seed is {self.seed}, wanted a whole number from 0 on')
        if self.unit not in ('start state', 'episode', 'session', 'operator'):
            raise InputError(f'unit is {self.unit!r}, wanted start state, episode, session or operator')
        for name in self.stratify_by:
            if name not in ('benchmark', 'task', 'stratum'):
                raise InputError(f'stratify_by names {name!r}, wanted some of benchmark, task, stratum')
        for name, known in (('safety_gate', ('boolean', 'literal')), ('safety_severity', ('ratio', 'anchored'))):
            if getattr(self, name) not in known:
                raise InputError(f'{name} is {getattr(self, name)!r}: {near_miss(getattr(self, name), known)}')
        twice = [e for e in self.secondary if e in self.primary]
        if twice:
            raise InputError(f'{twice[0].value} is both primary and secondary; name it once')

    def _read_words(self) -> None:
        """Words of closed sets may be given as text."""
        for name in ('primary', 'secondary'):
            object.__setattr__(self, name, tuple(_member(EndpointName, value, name) for value in getattr(self, name)))
        for name, kind in (
            ('correction', Correction), ('pairing', Pairing), ('success', SuccessSource), ('failure', FailureRule),
        ):  # fmt: skip
            object.__setattr__(self, name, _member(kind, getattr(self, name), name))
        margins = {_member(EndpointName, key, 'margins'): value for key, value in self.margins.items()}
        object.__setattr__(self, 'margins', margins)

    def _check_times(self) -> None:
        taus = self.tau_s.values() if isinstance(self.tau_s, Mapping) else () if self.tau_s is None else (self.tau_s,)
        for tau_s in taus:
            if not 0 < tau_s < float('inf'):
                raise InputError(f'tau_s is {tau_s}, wanted a finite number of seconds > 0')
        for endpoint, margin in self.margins.items():
            if not 0 < margin < float('inf'):
                raise InputError(f'the margin of {endpoint} is {margin}, wanted a finite number > 0')

    @property
    def level(self) -> float:
        """Of every interval."""
        return 1.0 - self.alpha

    @property
    def endpoints(self) -> tuple[EndpointName, ...]:
        return (*self.primary, *self.secondary)

    def as_json(self) -> str:
        """The plan with its defaults filled in, as canonical JSON."""
        values = dataclasses.asdict(self) | {'rule': RULE}  # by which it is judged, whatever was declared
        return json.dumps(values, sort_keys=True, separators=(',', ':'), allow_nan=False)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:HASH_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class DeclaredAnalysis:
    """A plan, where it was declared, and what was changed after the data were there."""

    plan: AnalysisPlan
    source: str = ''  # 'trial plan' or a file; empty where none was declared
    changed: tuple[str, ...] = ()  # fields that are not as declared
    declared_rule: int | None = RULE  # the version of the rule that it was declared under; None: it names none

    @property
    def is_declared(self) -> bool:
        return bool(self.source)

    def changed_by(self, **changes: Any) -> DeclaredAnalysis:
        """The same with other values for some fields; those that really differ are marked. None leaves a field."""
        given = {name: value for name, value in changes.items() if value is not None}
        plan = dataclasses.replace(self.plan, **given)
        names = [f.name for f in dataclasses.fields(plan)]
        differ = {n for n in names if getattr(plan, n) != getattr(self.plan, n)}
        changed = tuple(n for n in names if n in differ or n in self.changed)
        return DeclaredAnalysis(plan, self.source, changed, self.declared_rule)

    @property
    def standing(self) -> str:
        """Whether the analysis is the declared one, in words."""
        values = ', '.join(f'{name} = {_worded(getattr(self.plan, name))}' for name in self.changed)
        if not self.source:
            held = 'none was declared, so the documented defaults apply'
            return f'{held}, but for {values}' if values else held
        text = f'declared in the {self.source}'
        if self.declared_rule is None:
            text += f', which names no rule of verdicts and is judged by rule {RULE}'
        elif self.declared_rule != RULE:
            text += f' under rule {self.declared_rule} of verdicts, and judged by rule {RULE}'
        return f'{text}; NOT AS DECLARED: {values}' if values else text


def _worded(value: object) -> str:
    if isinstance(value, Mapping):
        return ', '.join(f'{key} {item:g}' for key, item in value.items())
    if isinstance(value, tuple):
        return ' '.join(map(str, value)) or 'none'
    return f'{value:g}' if isinstance(value, float) else str(value)


def read_analysis(values: object, *, where: str) -> AnalysisPlan:
    """The plan of an `[analysis]` table; a single endpoint may stand without its brackets.

    What was declared under an older rule is read as it stands, and judged by today's.
    """
    if isinstance(values, Mapping):
        values = {k: v for k, v in values.items() if k != 'rule' or v not in range(1, RULE)}
        lists = ('primary', 'secondary', 'policies', 'strata', 'stratify_by', 'safety_registry')
        values = {k: [v] if k in lists and isinstance(v, str) else v for k, v in values.items()}
    return read_table(AnalysisPlan, values, where=where)


def declared_analysis(plan_json: str, folder: Path | None) -> DeclaredAnalysis:
    """The analysis that a trial's plan declares, or `analysis.toml` in the folder of a store; else the defaults."""
    declared = _of_trial(plan_json)
    if declared is not None:
        return DeclaredAnalysis(declared, 'trial plan', declared_rule=json.loads(plan_json)['analysis'].get('rule'))
    file = None if folder is None else folder / ANALYSIS_FILE
    if file is None or not file.exists():
        return DeclaredAnalysis(AnalysisPlan())
    import tomllib

    try:
        values = tomllib.loads(file.read_text(encoding='utf-8'))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f'{file}: not TOML ({error})') from error
    table = values.get('analysis', values)
    plan = read_analysis(table, where=f'{file} [analysis]')
    return DeclaredAnalysis(plan, ANALYSIS_FILE, declared_rule=table.get('rule'))


def _of_trial(plan_json: str) -> AnalysisPlan | None:
    try:
        table = json.loads(plan_json).get('analysis') if plan_json else None
    except (json.JSONDecodeError, AttributeError):
        return None  # a plan that is not the runner's declares no analysis
    if table is None:
        return None
    return read_analysis({k: v for k, v in table.items() if v is not None}, where='the trial plan [analysis]')
