"""The gate: is a candidate no worse than the baseline on speed, success and safety, at margins stated beforehand?

Every endpoint that is required must be shown to be no worse (intersection-union: each at alpha, no correction). The
candidate fails when any of them is shown to be worse (union: each at alpha over their number).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.measure.safety import Scoring, load_registry
from robotrials.record import Episode, Store
from robotrials.record.select import Where
from robotrials.stats.argument import check_open_unit
from robotrials.verdict.analysis.arm import Arm, check_distinct, choose_arm, declared_for, read_arms
from robotrials.verdict.analysis.arm_safety import Scores, arm_caveats, arm_safety, scored_cells, tell_apart
from robotrials.verdict.analysis.camera_extreme import Extremes, camera_extremes
from robotrials.verdict.analysis.endpoint import (
    ENDPOINTS,
    Finding,
    GateEndpoint,
    Levels,
    cell_taus,
    check_margins,
    check_required,
    is_success,
    missing_endpoint,
    rate_endpoint,
    shared_tau,
    speed_endpoint,
    success_endpoint,
)
from robotrials.verdict.analysis.shared_cell import SharedCells, share_cells
from robotrials.verdict.planning import MoreEpisodes
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis, Pairing

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
    only_candidate: tuple[str, ...]
    only_baseline: tuple[str, ...]
    is_paired: bool
    n_unpaired: tuple[int, int]
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
        short = [e.more for e in self.required if e.finding is Finding.SHORT]
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
    like = _twin(candidate, baseline, new) or plan.reference or None
    reference = choose_arm(read_arms(baseline, where=where), baseline_policy, what='baseline', like=like)
    check_distinct(new, reference)
    shared = share_cells(new.episodes, reference.episodes, pairing=plan.pairing.value)
    asked = _asked(chosen)
    scores: list[Scores | str] = ['', '']
    caveats: tuple[str, ...] = ()
    if 'safety' in asked:
        rule = Scoring(load_registry(*map(Path, plan.safety_registry)))
        sides = ((new, _new(shared)), (reference, _old(shared)))
        scores = [arm_safety(arm, side, scoring=rule) for arm, side in sides]
        caveats = arm_caveats(rule.registry, *scores)
    required = chosen.require or _default_required(scores)
    levels = Levels(chosen.alpha, chosen.alpha / len(required), chosen.power)
    extremes = camera_extremes(new, reference, plan) if 'success' in asked else None
    endpoints = _endpoints(
        shared, scores, plan, rules=chosen, levels=levels, asked=asked, required=required, extremes=extremes
    )
    return GateResult(
        verdict=_verdict([e for e in endpoints if e.is_required]),
        endpoints=endpoints,
        candidate=_gate_arm(new, shared.n_new),
        baseline=_gate_arm(reference, shared.n_reference),
        cells=tuple(c.name for c in shared.cells),
        only_candidate=shared.only_new,
        only_baseline=shared.only_reference,
        is_paired=shared.is_paired,
        n_unpaired=shared.n_unpaired,
        alpha=chosen.alpha,
        alpha_worse=levels.alpha_worse,
        power=chosen.power,
        notes=(*_notes(new, reference, shared, chosen, plan), *caveats),
        n_starts=shared.n_starts,
        statement=_statement(declared, shared, endpoints, chosen),
    )


def _statement(
    declared: DeclaredAnalysis, shared: SharedCells, endpoints: Sequence[GateEndpoint], rules: GateRules
) -> str:
    taus = [e.tau_s for e in endpoints if e.tau_s is not None]
    tau = f'tau {taus[0]:g} s; ' if taus else ''
    arms = 'paired by start state' if shared.is_paired else 'independent arms'
    return f'Analysis: {declared.standing}. Used: {tau}{arms}; one-sided alpha {rules.alpha:g} per endpoint.'


def _twin(candidate: Store, baseline: Store, new: Arm) -> str | None:
    """The policy of the same name is the natural baseline, unless both are one store."""
    return None if candidate.trial.store_id == baseline.trial.store_id else new.policy


def _asked(rules: GateRules) -> tuple[str, ...]:
    """Endpoints to compute: those required, or all."""
    return rules.require or ENDPOINTS


def _default_required(scores: Sequence[Scores | str]) -> tuple[str, ...]:
    return ENDPOINTS if not isinstance(scores[1], str) else ('success', 'speed')


def _endpoints(
    shared: SharedCells, scores: Sequence[Scores | str], plan: AnalysisPlan, *, rules: GateRules, levels: Levels,
    asked: Sequence[str], required: Sequence[str], extremes: Extremes | None,
) -> tuple[GateEndpoint, ...]:  # fmt: skip
    made = []
    if 'success' in asked:
        margin = rules.margins['success']
        made.append(
            success_endpoint(shared, margin=margin, levels=levels)
            if extremes is None
            else _success_by_cameras(extremes, margin=margin, levels=levels)
        )
    if 'speed' in asked:
        made.append(_speed_endpoint(shared, plan, margin=rules.margins['speed'], levels=levels))
    if 'safety' in asked:
        made.append(_safety_endpoint(shared, scores, margin=rules.margins['safety'], levels=levels))
    return tuple(replace(e, is_required=e.name in required) for e in made)


def _success_by_cameras(extremes: Extremes, *, margin: float, levels: Levels) -> GateEndpoint:
    """No worse where that holds with every unscored end against the candidate; worse where it holds with all for it."""
    n_new, n_old = extremes.n_unscored
    silence = f'{n_new} unscored ends of the candidate and {n_old} of the baseline'
    against, favour = (
        success_endpoint(shared, margin=margin, levels=levels) for shared in (extremes.against_new, extremes.for_new)
    )
    if favour.finding is Finding.WORSE:
        return replace(favour, note=f'success by cameras, {silence} counted for the candidate')
    if against.finding is Finding.WORSE:
        return missing_endpoint('success', against.measure, margin, f'success by cameras: {silence} decide')
    return replace(against, note=f'success by cameras, {silence} counted against the candidate')


def _speed_endpoint(shared: SharedCells, plan: AnalysisPlan, *, margin: float, levels: Levels) -> GateEndpoint:
    """One tau for all cells; where they have their own, or no durations, speed is missing with the reason."""
    untimed = sum(e.duration_s is None for e in (*_new(shared), *_old(shared)))
    if untimed:
        return missing_endpoint('speed', 'RMST', margin, f'{untimed} episodes have no duration')
    taus = set(cell_taus(shared, plan).values())
    if len(taus) > 1:
        return missing_endpoint('speed', 'RMST', margin, 'the strata have taus of their own, and the gate judges one')
    return speed_endpoint(shared, tau_s=taus.pop(), margin=margin, levels=levels)


def _verdict(required: Sequence[GateEndpoint]) -> GateVerdict:
    findings = {e.finding for e in required}
    if Finding.WORSE in findings:
        return GateVerdict.FAIL
    return GateVerdict.PASS if findings == {Finding.NO_WORSE} else GateVerdict.NOT_SHOWN


def _safety_endpoint(
    shared: SharedCells, scores: Sequence[Scores | str], *, margin: float, levels: Levels
) -> GateEndpoint:
    new, reference = scores
    if isinstance(new, str) or isinstance(reference, str):
        return missing_endpoint('safety', SAFE, margin, tell_apart(('candidate', new), ('baseline', reference)))
    scored, scores_of = scored_cells(shared, new, reference)
    if not scored.cells:
        return missing_endpoint('safety', SAFE, margin, 'no cell has scored episodes of both')
    left = shared.n_new + shared.n_reference - scored.n_new - scored.n_reference
    note = f'{left} episodes left out: their safety cannot be scored' if left else ''
    return rate_endpoint(
        'safety', SAFE, scored, flag=lambda e: bool(scores_of[id(e)].safe), margin=margin, levels=levels, note=note
    )


def _new(shared: SharedCells) -> list[Episode]:
    return [e for c in shared.cells for e in c.new]


def _old(shared: SharedCells) -> list[Episode]:
    return [e for c in shared.cells for e in c.reference]


def _gate_arm(arm: Arm, n_compared: int) -> GateArm:
    trial = arm.store.trial
    return GateArm(
        str(arm.store.path), arm.policy, trial.store_id, trial.plan_hash, len(arm.valid), n_compared, arm.n_invalid
    )


def _notes(new: Arm, reference: Arm, shared: SharedCells, rules: GateRules, plan: AnalysisPlan) -> list[str]:
    notes = []
    everyone = (*_new(shared), *_old(shared))
    if plan.tau_s is None and 'speed' in _asked(rules) and all(e.duration_s is not None for e in everyone):
        tau_s, source = shared_tau(shared)
        notes.append(f'Times are capped at {tau_s:g} s, {source}.')
    if shared.n_scenes and shared.n_identical == shared.n_scenes == min(shared.n_new, shared.n_reference):
        notes.append(
            f'All {shared.n_identical} scenes came out the same to the last digit: the policy did not change, or one '
            'record stands for both.'
        )
    if not any(map(is_success, everyone)):
        notes.append('Neither of the two succeeded once: no worse than that is little to pass with.')
    if new.n_invalid or reference.n_invalid:
        notes.append(
            f'{new.n_invalid} INVALID episodes of the candidate and {reference.n_invalid} of the baseline tested no '
            'policy and are not scored; unequal shares deserve a look.'
        )
    return notes
