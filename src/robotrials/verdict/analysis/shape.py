"""Shapes of success curves: steps, P-P and Q-Q against the reference, UPH against MTBF, sup-sign cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robotrials.measure.timing import macro_curve, success_curve
from robotrials.measure.timing.sup_sign import example_curves, find_cycle
from robotrials.measure.timing.trace import pp_trace, qq_trace, trade_off_trace
from robotrials.stats import Estimate, Interval
from robotrials.verdict.analysis.ranking import ALL_STRATA

if TYPE_CHECKING:
    from robotrials.measure.timing import SuccessCurve
    from robotrials.measure.timing.sup_sign import SupSign
    from robotrials.measure.timing.trace import PPTrace, QQTrace, TradeOffTrace
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.pairs import TimeComparison
    from robotrials.verdict.analysis.times import Times

SWEEP_LOW_S = 30.0  # UPH against MTBF starts here, or at a quarter of tau where that is earlier
Key = tuple[str, str]  # policy, stratum (ALL_STRATA is the mean over them)


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """Three curves whose KS signs cycle, so that none is first."""

    curves: Mapping[str, SuccessCurve]
    edges: tuple[SupSign, SupSign, SupSign]
    is_example: bool  # constructed, because no three policies of the data cycle


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Curves of every policy in every stratum that it is judged on, and what is drawn of them."""

    curves: Mapping[Key, SuccessCurve]
    pp: Mapping[Key, PPTrace]  # against the reference; empty where there is none
    qq: Mapping[Key, QQTrace]
    trade_off: Mapping[Key, TradeOffTrace]
    cycle: Cycle
    reference: str | None
    taus_s: Mapping[str, float]

    def strata_of(self, policy: str) -> tuple[str, ...]:
        """The strata in which a policy has a curve."""
        return tuple(s for p, s in self.curves if p == policy and s != ALL_STRATA)


@dataclass(frozen=True, slots=True, eq=False)
class PairShape:
    """The P-P plot of two policies, averaged over strata, and P(T_a < T_b) as their comparison has it."""

    policy_a: str
    policy_b: str
    trace: PPTrace
    auc: Estimate

    def seen_from(self, policy: str) -> PairShape:
        """The same with the sides changed."""
        if policy == self.policy_a:
            return self
        trace = replace(
            self.trace, reference=self.trace.model, model=self.trace.reference, auc=1.0 - self.trace.auc,
            ks_point=(self.trace.ks_point[1], self.trace.ks_point[0]),
        )  # fmt: skip
        turned = self.auc.interval and Interval(1.0 - self.auc.interval.high, 1.0 - self.auc.interval.low)
        value = None if self.auc.value is None else 1.0 - self.auc.value
        return PairShape(self.policy_b, self.policy_a, trace, Estimate(value, turned, self.auc.note, n=self.auc.n))


def curve_shapes(frame: ComparisonFrame, times: Times) -> Shapes:
    """Every shape that needs no random number."""
    curves: dict[Key, SuccessCurve] = {}
    for policy, cohort in times.cohorts.items():
        own = {s: success_curve(c.durations_s, c.observed) for s, c in cohort.cells.items()}
        curves |= {(policy, s): curve for s, curve in own.items()}
        if own:
            curves[policy, ALL_STRATA] = macro_curve(own)
    models = [p for p in (*frame.policies, *frame.apart) if (p, ALL_STRATA) in curves]
    pp, qq = _against_reference(curves, models, frame.reference, times.taus_s)
    return Shapes(
        curves=curves, pp=pp, qq=qq, trade_off=_trade_offs(curves, models, times), cycle=_cycle(curves, frame.policies),
        reference=frame.reference, taus_s=times.taus_s,
    )  # fmt: skip


def _against_reference(
    curves: Mapping[Key, SuccessCurve], models: Sequence[str], reference: str | None, taus_s: Mapping[str, float]
) -> tuple[dict[Key, PPTrace], dict[Key, QQTrace]]:
    pp: dict[Key, PPTrace] = {}
    qq: dict[Key, QQTrace] = {}
    for (policy, stratum), curve in curves.items():
        anchor = curves.get((reference or '', stratum))
        if stratum == ALL_STRATA or policy not in models or anchor is None:
            continue
        pp[policy, stratum] = pp_trace(curve, anchor, tau_s=taus_s[stratum])
        if curve.plateau > 0 and anchor.plateau > 0:
            qq[policy, stratum] = qq_trace(curve, anchor)
    return pp, qq


def _trade_offs(curves: Mapping[Key, SuccessCurve], models: Sequence[str], times: Times) -> dict[Key, TradeOffTrace]:
    found: dict[Key, TradeOffTrace] = {}
    for policy in models:
        own = {s: curve for (p, s), curve in curves.items() if p == policy and s != ALL_STRATA}
        asked = {ALL_STRATA: list(own.values()), **{s: [curve] for s, curve in own.items()}}
        for stratum, parts in asked.items():
            end_s = min(times.taus_s[s] for s in own) if stratum == ALL_STRATA else times.taus_s[stratum]
            found[policy, stratum] = trade_off_trace(parts, low_s=min(SWEEP_LOW_S, end_s / 4), high_s=end_s)
    return found


def _cycle(curves: Mapping[Key, SuccessCurve], policies: Sequence[str]) -> Cycle:
    own = {p: curves[p, ALL_STRATA] for p in policies if (p, ALL_STRATA) in curves}
    found = find_cycle(own)
    if found is not None:
        return Cycle(own, found, is_example=False)
    example = example_curves()
    made = find_cycle(example)
    assert made is not None  # it was constructed to
    return Cycle(example, made, is_example=True)


def pair_shapes(pairs: Sequence[TimeComparison], shapes: Shapes) -> tuple[PairShape, ...]:
    """P-P plots of every pair; the AUC is that of the comparison, moved back from a difference to a chance."""
    found = []
    for pair in pairs:
        own, other = shapes.curves[pair.policy_a, ALL_STRATA], shapes.curves[pair.policy_b, ALL_STRATA]
        centred = pair.advantages.get('auc_between', Estimate(None, note='not estimable'))
        interval = centred.interval and Interval(centred.interval.low + 0.5, centred.interval.high + 0.5)
        value = None if centred.value is None else centred.value + 0.5
        found.append(
            PairShape(
                pair.policy_a, pair.policy_b, pp_trace(own, other, tau_s=min(pair.better.tau_s.values())),
                Estimate(value, interval, centred.note, n=centred.n),
            )
        )  # fmt: skip
    return tuple(found)
