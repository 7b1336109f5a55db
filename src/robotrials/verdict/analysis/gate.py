"""The gate: is a candidate no worse than the baseline on speed, success and safety, at margins stated beforehand?

Every endpoint that is required must be shown to be no worse (intersection-union: each at alpha, no correction). The
candidate fails when any of them is shown to be worse (union: each at alpha over their number).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety import Scoring, load_registry
from robotrials.stats import MeanCell, ratio_noninferiority
from robotrials.stats.interval import check_open_unit
from robotrials.stats.success_rule import SuccessContrast
from robotrials.verdict.analysis.arm import (
    arm_caveats,
    arm_safety,
    check_distinct,
    choose_arm,
    declared_for,
    n_identical,
    read_arms,
    scored_sides,
    tell_apart,
    two_sides,
)
from robotrials.verdict.analysis.cameras import success_extremes, told_by_cameras
from robotrials.verdict.analysis.contrast import contrast, design_word
from robotrials.verdict.analysis.ranking import seconds_text
from robotrials.verdict.planning import MoreEpisodes, more_episodes, more_for_margin, time_standing
from robotrials.verdict.planning.analysis_plan import EndpointName, Pairing, SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.timing.curve import UnitMeans
    from robotrials.record import Store
    from robotrials.record.blinding import Where
    from robotrials.stats import RatioNonInferiority
    from robotrials.stats.interval import FloatArray
    from robotrials.stats.matching import UnseenRule
    from robotrials.verdict.analysis.arm import Arm, Scores, Side
    from robotrials.verdict.analysis.cameras import Silence
    from robotrials.verdict.analysis.contrast import Contrast, LeftOut
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis


# One endpoint of a non-inferiority gate: success, speed or safety of two arms against a margin.

ENDPOINTS = ('success', 'speed', 'safety')
FAR_CAP = 4.0


class GateFinding(enum.StrEnum):
    """What an endpoint's data say; 'no worse' goes first, since a difference may be real and within the margin."""

    NO_WORSE = 'no worse'
    WORSE = 'worse'
    SHORT = 'not enough episodes'
    MISSING = 'missing'


@dataclass(frozen=True, slots=True)
class GateEndpoint:
    """One endpoint. Rates have a difference and are good when large; times have a ratio and are good when small."""

    name: str
    measure: str
    finding: GateFinding
    margin: float
    is_required: bool = True
    new: float | None = None
    reference: float | None = None
    estimate: float | None = None  # difference of rates, or ratio of times
    low: float | None = None  # one-sided bounds: of being worse by the margin, and of being no worse at all
    high: float | None = None
    contrast: Contrast | None = None  # with the p-value of the margin
    p_worse: float | None = None  # of being no worse at all
    more: MoreEpisodes | None = None
    note: str = ''

    @property
    def is_ratio(self) -> bool:
        return self.name == 'speed'

    @property
    def p_value(self) -> float | None:
        """Of being worse by the margin or more."""
        return None if self.contrast is None else self.contrast.p_margin

    @property
    def taus_s(self) -> Mapping[str, float] | None:
        """Cell -> tau, of times."""
        return self.contrast.taus_s if self.is_ratio and self.contrast is not None else None

    @property
    def is_paired(self) -> bool:
        return self.contrast is not None and self.contrast.is_matched

    @property
    def limit(self) -> float:
        """What the bound must clear: -margin for a difference, 1 + margin for a ratio."""
        return 1 + self.margin if self.is_ratio else -self.margin

    @property
    def bound(self) -> float | None:
        """The one-sided bound that decides."""
        return self.high if self.is_ratio else self.low


@dataclass(frozen=True, slots=True)
class Levels:
    """Error rates: of passing an endpoint that is worse by the margin, and of failing one that is no worse."""

    alpha: float = 0.05
    alpha_worse: float = 0.05
    power: float = 0.8


def missing_endpoint(name: str, measure: str, margin: float, note: str) -> GateEndpoint:
    return GateEndpoint(name, measure, GateFinding.MISSING, margin, note=note)


def rate_endpoint(name: str, measure: str, effect: Contrast, *, margin: float, levels: Levels) -> GateEndpoint:
    """A rate of the candidate (arm a) against the baseline's, by its contrast; the margin is tested by R."""
    effect = effect.at_margin(margin)
    assert isinstance(effect.rule, SuccessContrast)
    p_margin, p_worse = effect.p_margin, effect.p_behind(effect.a)
    made = GateEndpoint(
        name, measure, GateFinding.SHORT, margin, new=effect.values[0], reference=effect.values[1],
        estimate=effect.estimate,
        contrast=effect, p_worse=p_worse, note=effect.note,
    )  # fmt: skip
    rule = effect.rule.rule
    if p_margin is None:
        more = _more_for_margin(rule, effect, margin, levels)
        return replace(made, note=effect.rule.margin_withheld, more=more)
    finding = _finding(p_margin, p_worse, levels)
    return replace(
        made, finding=finding, low=rule.bound(levels.alpha, is_lower=True),
        high=rule.bound(levels.alpha_worse, is_lower=False),
        more=_more_for_margin(rule, effect, margin, levels) if finding is GateFinding.SHORT else None,
    )  # fmt: skip


def _finding(p_margin: float | None, p_worse: float | None, levels: Levels) -> GateFinding:
    if p_margin is not None and p_margin <= levels.alpha:
        return GateFinding.NO_WORSE
    return GateFinding.WORSE if p_worse is not None and p_worse <= levels.alpha_worse else GateFinding.SHORT


def _more_for_margin(rule: UnseenRule, effect: Contrast, margin: float, levels: Levels) -> MoreEpisodes | None:
    """Episodes to add, start states run as often each as those that are there."""
    runs = [max(1.0, n / u) if u else 1.0 for n, u in zip(effect.n_episodes, effect.n_units, strict=True)]
    units = np.array([[c.n_a / runs[0], c.n_b / runs[1]] for c in effect.cells])
    rates = np.array([[c.value_a, c.value_b] for c in effect.cells])
    more = more_for_margin(
        rule, units, rates, margin=margin, is_matched=bool(effect.n_matched), alpha=levels.alpha, power=levels.power
    )
    return _in_episodes(more, effect)


def speed_endpoint(effect: Contrast, *, margin: float, levels: Levels) -> GateEndpoint:
    """The restricted mean time to success up to each cell's own tau, macro over the cells, as a ratio."""
    tau_s = max(effect.taus_s.values())  # what a failure not seen yet may cost
    measure = f'RMST({seconds_text(effect.taus_s)})'
    try:
        cells = time_cells(effect)
        ratio = ratio_noninferiority(
            cells, margin=margin, cap=tau_s, alpha=levels.alpha, alpha_worse=levels.alpha_worse
        )
    except (NotEstimable, InputError) as error:
        return missing_endpoint('speed', measure, margin, str(error))
    p_worse = effect.p_behind(effect.a)
    finding = _finding(ratio.p_value, p_worse, levels)
    more = None
    if finding is GateFinding.SHORT:
        standing = time_standing(cells, margin=margin, cap=tau_s, alpha=levels.alpha)
        more = _in_episodes(more_episodes(standing, alpha=levels.alpha, power=levels.power), effect)
    is_size_open = finding is GateFinding.SHORT or (finding is GateFinding.WORSE and ratio.low <= 1)
    return GateEndpoint(
        'speed', measure, finding, margin, new=ratio.new, reference=ratio.reference, estimate=ratio.ratio,
        low=ratio.low, high=ratio.high, p_worse=p_worse, contrast=replace(effect, p_margin=ratio.p_value), more=more,
        note=_cap_note(ratio, tau_s) if is_size_open else effect.note,
    )  # fmt: skip


def _in_episodes(more: MoreEpisodes | None, effect: Contrast) -> MoreEpisodes | None:
    """Start states to be added as episodes, run as often each as those that are there."""
    if more is None:
        return None
    repeats = max(n / max(u, 1) for n, u in zip(effect.n_episodes, effect.n_units, strict=True))
    new, reference, per_cell = (math.ceil(repeats * n) for n in (more.new, more.reference, more.per_cell))
    return MoreEpisodes(new, reference, per_cell, more.power)


def _cap_note(ratio: RatioNonInferiority, tau_s: float) -> str:
    """A hint where the cap, and not the pace, is what makes a mean time uncertain."""
    longest = max(ratio.new, ratio.reference)
    if tau_s <= FAR_CAP * longest:
        return ''
    return (
        f'a failure not seen yet would count {tau_s:g} s against a mean of {longest:.3g} s, and most of the bound is '
        'that; a shorter tau, chosen before looking, asks about pace'
    )


def time_cells(effect: Contrast) -> list[MeanCell]:
    """The contrast's restricted means of each cell with the (co)variances that leaving out one unit at a time gives."""
    assert effect.seconds is not None
    first, second = effect.seconds.arms
    made = []
    for name, new in first.cells.items():
        reference = second.cells[name]
        for who, side in (('candidate', new), ('baseline', reference)):
            if side.n_units < 2:
                raise NotEstimable(f'{name}: {side.n_units} start state of the {who}, and a mean time needs at least 2')
        covariance = _covariance(new, reference) if effect.seconds.is_paired else None
        made.append(
            MeanCell(
                new.value, reference.value, new.variance, reference.variance, new.n_units, reference.n_units, covariance
            )
        )  # fmt: skip
    return made


def _covariance(new: UnitMeans, reference: UnitMeans) -> float:
    moved: dict[object, float] = dict(zip(reference.labels, reference.influence.tolist(), strict=True))
    second: FloatArray = np.array([moved[label] for label in new.labels])
    return float(new.influence @ second)


def check_required(names: Sequence[str]) -> None:
    for name in names:
        if name not in ENDPOINTS:
            raise InputError(f'no endpoint {name!r}; known: {", ".join(ENDPOINTS)}')


def check_margins(margins: Mapping[str, float]) -> None:
    """Margins are shares between 0 and 1: 5 points are 0.05, 10 % slower is 0.10."""
    for name, value in margins.items():
        if not (math.isfinite(value) and 0 < value < 1):
            raise InputError(f'the margin of {name} is {value}, wanted a share between 0 and 1 (5 points are 0.05)')


MARGINS: Mapping[str, float] = {'success': 0.05, 'speed': 0.10, 'safety': 0.05}
SAFE = 'safe episodes'


class GateVerdict(enum.StrEnum):
    PASS = 'PASS'
    FAIL = 'FAIL'
    NOT_SHOWN = 'NOT SHOWN'


EXIT_CODES = {GateVerdict.PASS: 0, GateVerdict.FAIL: 1, GateVerdict.NOT_SHOWN: 3}


@dataclass(frozen=True, slots=True)
class GateArm:
    """Where one side of the gate comes from."""

    store: str
    policy: str
    store_id: str
    plan_hash: str
    n_valid: int  # in the whole store
    n_compared: int
    n_invalid: int


@dataclass(frozen=True, slots=True)
class GateResult:
    """The verdict with its evidence."""

    verdict: GateVerdict
    endpoints: tuple[GateEndpoint, ...]
    candidate: GateArm
    baseline: GateArm
    cells: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    is_paired: bool
    n_matched: int  # start states that both ran
    alpha: float
    alpha_worse: float
    power: float
    notes: tuple[str, ...]
    n_starts: tuple[int, int]  # units: start states of the candidate and of the baseline
    statement: str  # what analysis was used, and whether it is the declared one

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def required(self) -> tuple[GateEndpoint, ...]:
        return tuple(e for e in self.endpoints if e.is_required)

    @property
    def more(self) -> MoreEpisodes | None:
        """What would do for every required endpoint that is short of episodes; None where none is, or nothing would."""
        if self.verdict is not GateVerdict.NOT_SHOWN:
            return None
        short = [e.more for e in self.required if e.finding is GateFinding.SHORT]
        known = [m for m in short if m is not None]
        if not short or len(known) < len(short):
            return None
        return MoreEpisodes(
            max(m.new for m in known), max(m.reference for m in known), max(m.per_cell for m in known), self.power
        )


@dataclass(frozen=True, slots=True)
class GateRules:
    """What is decided before looking: margins, error rates, what must pass; tau and pairing None: as declared."""

    margins: Mapping[str, float] = field(default_factory=lambda: dict(MARGINS))
    alpha: float = 0.05
    power: float = 0.8
    tau_s: float | None = None
    require: tuple[str, ...] = ()  # empty: success, speed, and safety where the baseline has it
    pairing: str | None = None

    def __post_init__(self) -> None:
        check_margins(self.margins)
        check_required(self.require)
        if not 0 < self.alpha < 0.5:
            raise InputError(f'alpha is {self.alpha}, wanted a chance of error over 0 and under 0.5 (5 % is 0.05)')
        check_open_unit('power', self.power)
        if set(self.margins) != set(ENDPOINTS):
            raise InputError(f'wanted a margin for each of {", ".join(ENDPOINTS)}, found {sorted(self.margins)}')
        if self.pairing is not None and self.pairing not in [p.value for p in Pairing]:
            raise UnknownName('pairing', self.pairing, [p.value for p in Pairing])
        if self.tau_s is not None and not (math.isfinite(self.tau_s) and self.tau_s > 0):
            raise InputError(f'tau_s is {self.tau_s}, wanted a finite time over 0')


def gate_stores(
    candidate: Store, baseline: Store, *, policy: str | None = None, baseline_policy: str | None = None,
    rules: GateRules | None = None, where: Where | None = None, **changes: Any,
) -> GateResult:  # fmt: skip
    """Judge a policy of one store against a policy of another (or of the same one).

    The analysis is the one declared for the candidate's store, else for the baseline's; what `rules` and `changes`
    (fields of the plan, such as the safety registry) ask for instead is marked.
    """
    chosen = rules or GateRules()
    pairing = None if chosen.pairing is None else Pairing(chosen.pairing)
    declared = declared_for(candidate, baseline).changed_by(tau_s=chosen.tau_s, pairing=pairing, **changes)
    plan = declared.plan
    new = choose_arm(read_arms(candidate, where=where), policy, what='candidate')
    # The policy of the same name is the natural baseline, unless both are one store.
    twin = None if candidate.trial.store_id == baseline.trial.store_id else new.policy
    like = twin or plan.reference or None
    reference = choose_arm(read_arms(baseline, where=where), baseline_policy, what='baseline', like=like)
    check_distinct(new, reference)
    by_cameras = [told_by_cameras(arm, plan) for arm in (new, reference)]
    sides = two_sides(by_cameras[0][0], by_cameras[1][0], plan, names=_names(new, reference))
    asked = _asked(chosen)
    scores: list[Scores | str] = ['', '']
    caveats: tuple[str, ...] = ()
    if 'safety' in asked:
        rule = Scoring(load_registry(*map(Path, plan.safety_registry)))
        scores = [arm_safety(arm, side.every, scoring=rule) for arm, side in zip((new, reference), sides, strict=True)]
        caveats = arm_caveats(rule.registry, *scores)
    required = chosen.require or _default_required(scores)
    levels = Levels(chosen.alpha, chosen.alpha / len(required), chosen.power)
    ends = by_cameras[0][1], by_cameras[1][1]
    endpoints = _endpoints(sides, scores, plan, rules=chosen, levels=levels, asked=asked, required=required, ends=ends)
    first = next((e.contrast for e in endpoints if e.contrast is not None), None)
    compared = [c for c in sides[0].cells if c in sides[1].cells]
    return GateResult(
        verdict=_verdict([e for e in endpoints if e.is_required]),
        endpoints=endpoints,
        candidate=_gate_arm(new, sides[0].only(*compared)),
        baseline=_gate_arm(reference, sides[1].only(*compared)),
        cells=tuple(compared),
        left_out=() if first is None else first.left_out,
        is_paired=first is not None and first.is_matched,
        n_matched=0 if first is None else first.n_matched,
        alpha=chosen.alpha,
        alpha_worse=levels.alpha_worse,
        power=chosen.power,
        notes=(*_notes(new, reference, sides, chosen, plan), *caveats),
        n_starts=(0, 0) if first is None else first.n_units,
        statement=_statement(declared, endpoints, chosen),
    )


def _names(new: Arm, reference: Arm) -> tuple[str, str]:
    if new.policy != reference.policy:
        return new.policy, reference.policy
    return f'{new.policy} (candidate)', f'{reference.policy} (baseline)'


def _statement(declared: DeclaredAnalysis, endpoints: Sequence[GateEndpoint], rules: GateRules) -> str:
    taus = [e.taus_s for e in endpoints if e.taus_s]
    tau = f'tau {seconds_text(taus[0])}; ' if taus else ''
    designs = [e.contrast for e in endpoints if e.contrast is not None]
    arms = f'{design_word(designs[0])}; ' if designs else ''
    return f'Analysis: {declared.standing}. Used: {tau}{arms}one-sided alpha {rules.alpha:g} per endpoint.'


def _asked(rules: GateRules) -> tuple[str, ...]:
    """Endpoints to compute: those required, or all."""
    return rules.require or ENDPOINTS


def _default_required(scores: Sequence[Scores | str]) -> tuple[str, ...]:
    return ENDPOINTS if not isinstance(scores[1], str) else ('success', 'speed')


def _endpoints(
    sides: tuple[Side, Side], scores: Sequence[Scores | str], plan: AnalysisPlan, *, rules: GateRules, levels: Levels,
    asked: Sequence[str], required: Sequence[str], ends: Silence,
) -> tuple[GateEndpoint, ...]:  # fmt: skip
    compute = {
        'success': partial(_success_endpoint, sides, plan, ends=ends),
        'speed': partial(_speed_endpoint, sides, plan),
        'safety': partial(_safety_endpoint, sides, scores, plan),
    }
    made = (compute[name](margin=rules.margins[name], levels=levels) for name in ENDPOINTS if name in asked)
    return tuple(replace(e, is_required=e.name in required) for e in made)


def _success_endpoint(
    sides: tuple[Side, Side], plan: AnalysisPlan, *, margin: float, levels: Levels,
    ends: Silence,
) -> GateEndpoint:  # fmt: skip
    """Success by the host; by cameras, no worse where every unscored end counts against, worse where all count for."""
    measure = 'episode success'
    try:
        if plan.success is not SuccessSource.RECONSTRUCTION:
            effect = contrast(*sides, endpoint=EndpointName.SUCCESS, plan=plan)
            return rate_endpoint('success', measure, effect, margin=margin, levels=levels)
        favour, against = success_extremes(*sides, plan, unscored=ends)
    except NotEstimable as error:
        return missing_endpoint('success', measure, margin, str(error))
    silence = f'{len(ends[0])} unscored ends of the candidate and {len(ends[1])} of the baseline'
    best, worst = (rate_endpoint('success', measure, f, margin=margin, levels=levels) for f in (favour, against))
    if best.finding is GateFinding.WORSE:
        return replace(best, note=f'success by cameras, {silence} counted for the candidate')
    if worst.finding is GateFinding.WORSE:
        return missing_endpoint('success', measure, margin, f'success by cameras: {silence} decide')
    return replace(worst, note=f'success by cameras, {silence} counted against the candidate')


def _speed_endpoint(sides: tuple[Side, Side], plan: AnalysisPlan, *, margin: float, levels: Levels) -> GateEndpoint:
    """Each cell up to its own tau; where durations are missing, so is speed, with the reason."""
    try:
        effect = contrast(*sides, endpoint=EndpointName.TIME, plan=plan)
    except (NotEstimable, InputError) as error:
        return missing_endpoint('speed', 'RMST', margin, str(error))
    return speed_endpoint(effect, margin=margin, levels=levels)


def _verdict(required: Sequence[GateEndpoint]) -> GateVerdict:
    findings = {e.finding for e in required}
    if GateFinding.WORSE in findings:
        return GateVerdict.FAIL
    return GateVerdict.PASS if findings == {GateFinding.NO_WORSE} else GateVerdict.NOT_SHOWN


def _safety_endpoint(
    sides: tuple[Side, Side], scores: Sequence[Scores | str], plan: AnalysisPlan, *, margin: float, levels: Levels
) -> GateEndpoint:
    first, second = scores
    if isinstance(first, str) or isinstance(second, str):
        return missing_endpoint('safety', SAFE, margin, tell_apart(('candidate', first), ('baseline', second)))
    new, old = scored_sides(*sides, first, second)
    if not set(new.cells) & set(old.cells):
        return missing_endpoint('safety', SAFE, margin, 'no cell has scored episodes of both')
    flags = (lambda e: float(bool(first[e.key].safe)), lambda e: float(bool(second[e.key].safe)))
    effect = contrast(new, old, endpoint=EndpointName.SAFETY, plan=plan, value=flags)
    left = sum(side.n_episodes for side in sides) - new.n_episodes - old.n_episodes
    note = f'{left} episodes left out: their safety cannot be scored' if left else ''
    return replace(rate_endpoint('safety', SAFE, effect, margin=margin, levels=levels), note=note)


def _gate_arm(arm: Arm, compared: Side) -> GateArm:
    trial = arm.store.trial
    return GateArm(
        str(arm.store.path), arm.policy, trial.store_id, trial.plan_hash, len(arm.valid), compared.n_episodes,
        arm.n_invalid,
    )  # fmt: skip


def _notes(
    new: Arm, reference: Arm, sides: tuple[Side, Side], rules: GateRules, plan: AnalysisPlan
) -> list[str]:  # fmt: skip
    notes = []
    everyone = [e for side in sides for e in side.every]
    is_timed = all(e.duration_s is not None for e in everyone)
    if plan.tau_s is None and 'speed' in _asked(rules) and is_timed and any(e.time_cap_s is None for e in everyone):
        notes.append('Times are judged as far as both arms were observed; without time caps on record, declare tau.')
    n_same, n_matched = n_identical(*sides)
    if n_matched and n_same == n_matched == min(side.n_episodes for side in sides):
        notes.append(
            f'All {n_same} scenes came out the same to the last digit: the policy did not change, or one record stands '
            'for both.'
        )
    if not any(e.is_success for e in everyone):
        notes.append('Neither of the two succeeded once: no worse than that is little to pass with.')
    if new.n_invalid or reference.n_invalid:
        notes.append(
            f'{new.n_invalid} INVALID episodes of the candidate and {reference.n_invalid} of the baseline tested no '
            'policy and are not scored; unequal shares deserve a look.'
        )
    return notes
