"""Two policies' times to success: mean times, whether curves differ anywhere, and what single scalars say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing import NullMethod, Operations, auc, logrank, macro_ks, scalar_label
from robotrials.measure.timing.better import better
from robotrials.measure.timing.cohort import common_follow_up
from robotrials.measure.timing.contrast import reversal
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.reference import check_cells
from robotrials.measure.timing.unit import Endpoint
from robotrials.stats import Estimate
from robotrials.stats.argument import check_count, check_open_unit, check_rng
from robotrials.value import dataclass
from robotrials.verdict.analysis.selection import Absent, or_absent

if TYPE_CHECKING:
    from robotrials.measure.timing import Logrank, MacroKS
    from robotrials.measure.timing.better import Better
    from robotrials.measure.timing.cohort import CommonFollowUp
    from robotrials.measure.timing.contrast import Reversal
    from robotrials.verdict.analysis.ranking import Stream

Cells = Mapping[str, Operations]


@dataclass(frozen=True, slots=True, eq=False)
class TimeComparison:
    """What lies behind a contrast of times: mean times, the shapes of curves, scalars. > 0 favours policy a.

    It names no winner: who is faster is the contrast's claim, and a difference in shape is no more than that.
    """

    policy_a: str
    policy_b: str
    better: Better
    reversal: Reversal
    ks: MacroKS | Absent  # whether the curves differ anywhere
    advantages: Mapping[str, Estimate]
    logrank: Logrank | Absent
    strata: tuple[str, ...]
    n_pairs: int = 1
    p_different: float | None = None  # of the KS test, corrected over pairs

    @property
    def favouring_a(self) -> tuple[str, ...]:
        """Scalars whose interval excludes zero in a's favour."""
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.low > 0)

    @property
    def favouring_b(self) -> tuple[str, ...]:
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.high < 0)

    @property
    def crossing_text(self) -> tuple[str, str]:
        """What each side is ahead by, in words."""
        return _listed(self.favouring_a), _listed(self.favouring_b)


def _listed(names: Sequence[str]) -> str:
    *first, last = (scalar_label(name) for name in names) if names else ('nothing',)
    return f'{", ".join(first)} and {last}' if first else last


def compare_cells(
    a: Cells, b: Cells, *, names: tuple[str, str], primary: Better, stream: Stream,
    thresholds_s: Sequence[float] = (30.0, 60.0), n_resamples: int = 2000,
) -> TimeComparison:  # fmt: skip
    """What lies behind the difference of mean times `primary` of two policies given as stratum -> Operations."""
    strata = tuple(primary.tau_s)
    first, second = {s: a[s] for s in strata}, {s: b[s] for s in strata}
    follow = common_follow_up(first, second, primary.tau_s)
    return TimeComparison(
        policy_a=names[0], policy_b=names[1], better=primary, reversal=reversal(primary),
        ks=_ks(follow, primary, stream('ks', *sorted(names)), n_resamples=n_resamples),
        advantages=_advantages(first, second, primary, thresholds_s, stream, names, n_resamples, level=primary.level),
        logrank=or_absent(lambda: logrank(follow.a, follow.b)), strata=strata,
    )  # fmt: skip


def _ks(follow: CommonFollowUp, effect: Better, rng: np.random.Generator, *, n_resamples: int) -> MacroKS | Absent:
    if effect.ks_refused:
        return Absent(effect.ks_refused, 'run both policies under one protocol')
    method = NullMethod.PAIRED_SWAP if effect.is_paired else NullMethod.PERMUTATION
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
        judgement = better(a, b, tau_s=tau_s, paired=primary.is_paired, level=level, endpoint=endpoint)
        return Estimate(judgement.difference, judgement.interval, judgement.withheld, n=sum(judgement.n_units))

    advantages = {'rmst_s': Estimate(primary.difference, primary.interval, primary.withheld, n=sum(primary.n_units))}
    least = min(primary.tau_s.values())
    for t in thresholds_s:
        if t < least:
            advantages[f'chance_{t:g}s'] = judged(Endpoint.CHANCE, t)
    advantages['chance_tau'] = judged(Endpoint.CHANCE, primary.tau_s)
    advantages['hard_failure'] = judged(Endpoint.HARD_FAILURE, primary.tau_s)
    order = sorted(names)
    sides = (a, b) if order[0] == names[0] else (b, a)
    area = or_absent(
        lambda: auc(*sides, tau_s=primary.tau_s, n_resamples=n_resamples, rng=stream('auc', *order), level=level)
    )
    if not isinstance(area, Absent):
        advantages['auc_between'] = _centred(area.macro, sign=1.0 if order[0] == names[0] else -1.0)
    return advantages


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
    alpha: float = 0.05, n_resamples: int = 2000,
) -> TimeComparison:  # fmt: skip
    """Mean times, curves and scalars of two policies given as stratum -> Operations: a single pair.

    `rng` feeds the permutations of the KS test and the interval of AUC. Who is faster is asked of episodes
    (`robotrials.load(...).compare()`), whose starts and items operations no longer know.
    """
    for cells in (a, b):
        check_cells(cells)
    check_rng(rng)
    check_count('n_resamples', n_resamples, least=1)
    check_open_unit('alpha', alpha)
    for time_s in tau_s.values() if isinstance(tau_s, Mapping) else (tau_s,):
        check_tau(time_s)
    streams = {'ks': rng, 'auc': rng}
    strata = [s for s in sorted(a) if s in b]
    first, second = {s: a[s] for s in strata}, {s: b[s] for s in strata}
    comparison = compare_cells(
        first, second, names=names, primary=better(first, second, tau_s=tau_s, paired=paired, level=1 - alpha),
        stream=lambda quantity, *_: streams[quantity], thresholds_s=thresholds_s, n_resamples=n_resamples,
    )  # fmt: skip
    return replace(comparison, p_different=None if isinstance(comparison.ks, Absent) else comparison.ks.p_value)
