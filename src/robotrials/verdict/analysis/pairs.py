"""Two policies' times to success: which is better, whether they differ at all, and what single scalars say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.measure.timing import Logrank, MacroKS, NullMethod, Operations, auc, logrank, macro_ks, scalar_label
from robotrials.measure.timing.better import Better, better
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.decision import Decided, Evidence, decide
from robotrials.measure.timing.follow_up import CommonFollowUp, common_follow_up
from robotrials.measure.timing.reference import check_cells
from robotrials.measure.timing.reversal import Reversal, reversal
from robotrials.measure.timing.unit import Endpoint
from robotrials.stats import Estimate, Verdict
from robotrials.stats.argument import check_count, check_open_unit, check_rng
from robotrials.verdict.analysis.absent import Absent, or_absent
from robotrials.verdict.analysis.needed import NeededUnits, needed_units

Stream = Callable[..., np.random.Generator]
Cells = Mapping[str, Operations]


@dataclass(frozen=True, slots=True, eq=False)
class TimeComparison:
    """Two policies compared on time to success; whatever has a sign is > 0 in favour of policy a."""

    policy_a: str
    policy_b: str
    better: Better
    reversal: Reversal
    ks: MacroKS | Absent  # whether the curves differ anywhere
    advantages: Mapping[str, Estimate]
    logrank: Logrank | Absent
    strata: tuple[str, ...]
    alpha: float
    n_pairs: int
    margin: float | None = None  # seconds within which the two are the same
    p_better: float | None = None  # corrected over pairs
    p_different: float | None = None
    p_same: float | None = None

    @property
    def favouring_a(self) -> tuple[str, ...]:
        """Scalars whose interval excludes zero in a's favour."""
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.low > 0)

    @property
    def favouring_b(self) -> tuple[str, ...]:
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.high < 0)

    @property
    def decided(self) -> Decided:
        """The strongest verdict that the corrected p-values allow."""
        crossing = bool(self.favouring_a and self.favouring_b)
        evidence = Evidence(
            p_better=self.p_better, favoured=self.better.favoured, p_reversal=self.p_reversal, p_same=self.p_same,
            p_different=self.p_different, is_crossing=crossing,
        )  # fmt: skip
        return decide(evidence, alpha=self.alpha)

    @property
    def p_reversal(self) -> float | None:
        """That single strata truly point the other way, corrected over pairs (Bonferroni)."""
        p = self.reversal.p_value
        return None if p is None else min(1.0, p * self.n_pairs)

    @property
    def verdict(self) -> Verdict:
        return self.decided.verdict

    @property
    def winner(self) -> str | None:
        """The name of the better policy, only with Verdict.BETTER."""
        return {None: None, 'a': self.policy_a, 'b': self.policy_b}[self.decided.winner]

    @property
    def needed(self) -> NeededUnits | None:
        """Units per cell at which the primary test would call the observed difference."""
        found = self.better
        if found.withheld:
            return None
        moved = found.rule.moved_low if found.difference > 0 else found.rule.moved_high
        per_cell = sum(found.n_units) / (2 * len(found.tau_s))
        return needed_units(
            difference=found.difference, interval=found.interval, variance=found.variance, moved=moved,
            per_cell=per_cell, alpha=self.alpha / self.n_pairs,
        )  # fmt: skip

    @property
    def crossing_text(self) -> tuple[str, str]:
        """What each side is ahead by, in words."""
        return _listed(self.favouring_a), _listed(self.favouring_b)


def _listed(names: Sequence[str]) -> str:
    *first, last = (scalar_label(name) for name in names) if names else ('nothing',)
    return f'{", ".join(first)} and {last}' if first else last


def compare_cells(
    a: Cells, b: Cells, *, names: tuple[str, str], taus_s: float | Mapping[str, float], stream: Stream,
    paired: bool = False, thresholds_s: Sequence[float] = (30.0, 60.0), alpha: float = 0.05, n_pairs: int = 1,
    n_resamples: int = 2000, margin: float | None = None,
) -> TimeComparison:  # fmt: skip
    """Compare two policies given as stratum -> Operations, on the strata that both have."""
    strata = tuple(s for s in sorted(a) if s in b)
    first, second = {s: a[s] for s in strata}, {s: b[s] for s in strata}
    level = 1 - alpha
    primary = better(first, second, tau_s=taus_s, paired=paired, level=level, n_pairs=n_pairs)
    follow = common_follow_up(first, second, taus_s)
    return TimeComparison(
        policy_a=names[0], policy_b=names[1], better=primary, reversal=reversal(primary),
        ks=_ks(follow, primary, stream('ks', *sorted(names)), n_resamples=n_resamples),
        advantages=_advantages(first, second, primary, thresholds_s, stream, names, n_resamples, level=level),
        logrank=or_absent(lambda: logrank(follow.a, follow.b)), strata=strata, alpha=alpha, n_pairs=n_pairs,
        margin=margin, p_same=_p_same(primary, margin),
    )  # fmt: skip


def _p_same(found: Better, margin: float | None) -> float | None:
    """Two one-sided tests: the difference lies inside the margin on both sides."""
    if margin is None or found.withheld:
        return None
    return max(found.rule.p_above(-margin), found.rule.p_below(margin))


def _ks(follow: CommonFollowUp, found: Better, rng: np.random.Generator, *, n_resamples: int) -> MacroKS | Absent:
    if found.ks_refused:
        return Absent(found.ks_refused, 'run both policies under one protocol')
    method = NullMethod.PAIRED_SWAP if found.is_paired else NullMethod.PERMUTATION
    arms = [{s: _by_unit(c) for s, c in cells.items()} for cells in (follow.a, follow.b)]
    return or_absent(lambda: macro_ks(*arms, n_resamples=n_resamples, rng=rng, method=method))


def _by_unit(cell: Operations) -> Operations:
    """Whole units as what is shuffled, and as what is matched."""
    whole = cell.by_unit()
    return replace(whole, scenes=whole.units)


def _advantages(
    a: Cells, b: Cells, primary: Better, thresholds_s: Sequence[float], stream: Stream, names: tuple[str, str],
    n_resamples: int, *, level: float,
) -> dict[str, Estimate]:  # fmt: skip
    """Macro differences of scalars, oriented so that positive favours a."""

    def judged(endpoint: Endpoint, tau_s: float | Mapping[str, float]) -> Estimate:
        found = better(a, b, tau_s=tau_s, paired=primary.is_paired, level=level, endpoint=endpoint)
        return Estimate(found.difference, found.interval, found.withheld, n=sum(found.n_units))

    found = {'rmst_s': Estimate(primary.difference, primary.interval, primary.withheld, n=sum(primary.n_units))}
    least = min(primary.tau_s.values())
    for t in thresholds_s:
        if t < least:
            found[f'chance_{t:g}s'] = judged(Endpoint.CHANCE, t)
    found['chance_tau'] = judged(Endpoint.CHANCE, primary.tau_s)
    found['hard_failure'] = judged(Endpoint.HARD_FAILURE, primary.tau_s)
    order = sorted(names)
    sides = (a, b) if order[0] == names[0] else (b, a)
    area = or_absent(
        lambda: auc(*sides, tau_s=primary.tau_s, n_resamples=n_resamples, rng=stream('auc', *order), level=level)
    )
    if not isinstance(area, Absent):
        found['auc_between'] = _centred(area.macro, sign=1.0 if order[0] == names[0] else -1.0)
    return found


def _centred(found: Estimate, *, sign: float) -> Estimate:
    """An AUC as a difference from one half."""
    if found.value is None:
        return found
    interval = None
    if found.interval is not None:
        low, high = found.interval.low - 0.5, found.interval.high - 0.5
        interval = replace(found.interval, low=low, high=high).scaled(sign)
    return Estimate(sign * (found.value - 0.5), interval, found.note, n=found.n)


def compare_timing(
    a: Cells, b: Cells, *, rng: np.random.Generator, names: tuple[str, str] = ('a', 'b'),
    tau_s: float | Mapping[str, float] = 240.0, paired: bool = False, thresholds_s: Sequence[float] = (30.0, 60.0),
    alpha: float = 0.05, n_resamples: int = 2000, margin: float | None = None,
) -> TimeComparison:  # fmt: skip
    """Compare two policies given as stratum -> Operations: a single pair, so nothing is corrected.

    The test of "better" uses no random number; `rng` feeds the permutations of the KS test and the interval of AUC.
    """
    for cells in (a, b):
        check_cells(cells)
    check_rng(rng)
    check_count('n_resamples', n_resamples, least=1)
    check_open_unit('alpha', alpha)
    for time_s in tau_s.values() if isinstance(tau_s, Mapping) else (tau_s,):
        check_tau(time_s)
    streams = {'ks': rng, 'auc': rng}
    found = compare_cells(
        a, b, names=names, taus_s=tau_s, stream=lambda quantity, *_: streams[quantity], paired=paired,
        thresholds_s=thresholds_s, alpha=alpha, n_resamples=n_resamples, margin=margin,
    )  # fmt: skip
    p_ks = None if isinstance(found.ks, Absent) else found.ks.p_value
    return replace(found, p_better=found.better.p_value, p_different=p_ks)
