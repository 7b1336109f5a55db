"""Which of two arms is faster: the win probability within strata, judged by R or by the exact sign test.

A run that is not done by the common follow-up is later than any that is done and level with any other such run. P is
the mean over strata of the chance that a run of a beats a run of b, level runs counting one half: one unseen failure
costs one comparison, not the seconds up to the cap. With K items per run (a race) the k-th item of one run is compared
with the k-th item of the other, and the K comparisons are averaged. Which form applies follows from the design:

- independent arms: placements of every unit among the other arm's units, and R (robotrials.stats.matching);
- matched starts, one run each, equal cells: every start against itself, exact sign test on the decided pairs;
- matched starts with repeats, several items or unequal cells: each start's share of wins, and R;
- some starts shared: both, weighted by what they are, and R;
- runs lost before the follow-up: win probability of the two Kaplan-Meier curves, variance by leaving each unit out,
  N* from the units not lost, and R. It assumes that loss says nothing about the outcome; `p_whatever_lost` does not.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.interval import BoolArray, FloatArray, IntArray, Interval, Spread, check_open_unit, exact_mean
from robotrials.stats.matching import (
    Evidence,
    Labels,
    Match,
    Pairing,
    SignTest,
    Units,
    UnseenRule,
    WorstCase,
    check_side,
    compared_units,
    curve_win,
    distinct_units,
    few_units,
    has_label,
    linked_spread,
    match_units,
    mean_term,
    units_of,
)
from robotrials.value import dataclass

FLOAT_NOISE = 1e-9  # relative: times nearer than this are level
MOST_UNDECIDED = 0.1  # of matched pairs, up to which each is simply counted against the claim


class WinDesign(enum.StrEnum):
    """What a win probability compares, and by which test."""

    INDEPENDENT = 'independent arms'
    MATCHED_SIGN = 'matched starts, exact sign test'
    MATCHED_SHARES = 'matched starts, share of wins'
    PART_SHARED = 'some starts shared'
    LOSSY = 'runs lost before the follow-up, Kaplan-Meier'


@dataclass(frozen=True, slots=True, eq=False)
class WinArm:
    """One stratum's runs of one arm, cut at the follow-up common to both arms.

    `times_s` is (runs, K) seconds from the start of the run to its k-th item (K = 1: the time to success), infinite
    where it failed or was not done by the follow-up. `starts` names the start state of each run (None: none is known,
    and every run is a unit). `followed_s` is infinite for a run followed to the common follow-up, and otherwise when it
    was lost; what was not done by then is unknown.
    """

    times_s: FloatArray
    starts: Labels | None
    followed_s: FloatArray

    def __post_init__(self) -> None:
        if self.times_s.ndim != 2 or self.times_s.size == 0:
            raise InputError(f'times_s must be (runs, items) with at least one of each, found {self.times_s.shape}')
        if np.isnan(self.times_s).any() or np.isnan(self.followed_s).any():
            raise InputError('a time is NaN; an item that was never done is infinite')
        if self.followed_s.shape != (len(self.times_s),):
            raise InputError(f'wanted one followed_s for each of {len(self.times_s)} runs, '
                             f'found shape {self.followed_s.shape}')  # fmt: skip

    @property
    def units(self) -> Units:
        return units_of(self.starts, len(self.times_s))

    @property
    def lost(self) -> BoolArray:
        """(runs,) whether something of the run is unknown."""
        return np.isfinite(self.followed_s) & ~np.isfinite(self.times_s).all(axis=1)


def win_arm(
    times_s: ArrayLike, starts: Sequence[Hashable | None] | None = None, followed_s: ArrayLike | None = None
) -> WinArm:
    """A WinArm from plain sequences: (runs,) times are one item each, and without `followed_s` no run was lost."""
    times = np.asarray(times_s, dtype=np.float64)
    times = times[:, None] if times.ndim == 1 else times
    followed = np.full(len(times), np.inf) if followed_s is None else np.asarray(followed_s, dtype=np.float64)
    return WinArm(times, None if starts is None else tuple(starts), followed)


@dataclass(frozen=True, slots=True, eq=False)
class WinContrast:
    """The probability that a is faster, over 1/2 in favour of a, with its interval and two-sided unadjusted p-value.

    `n_units` are the units compared, `n_matched` how many of them are shared. For a sign test `probability` and
    `interval` are of the decided pairs; else level comparisons count one half. A withheld contrast has neither interval
    nor p-value.
    """

    probability: float
    interval: Interval | None
    p_value: float | None
    level: float
    design: WinDesign
    n_units: tuple[int, int]
    n_matched: int
    per_stratum: tuple[float, ...]
    evidence: Evidence
    n_lost: tuple[int, int] = (0, 0)  # runs lost before the follow-up
    assumes_loss_uninformative: bool = False
    p_whatever_lost: float | None = None  # with every undecided comparison counted against the claim
    wins: int | None = None  # pairs, of a sign test
    losses: int | None = None
    ties: int | None = None
    withheld: str = ''

    @property
    def favours(self) -> str | None:
        """'a' or 'b', by the sign; not yet a claim."""
        return None if self.probability == 0.5 else 'a' if self.probability > 0.5 else 'b'

    def p_one_sided(self, favours: str) -> float | None:
        """The p-value of "this arm is not faster", for the warning light of dominance; None where withheld."""
        return None if self.withheld else self.evidence.p_one_sided(check_side(favours))


def win_contrast(
    a: Sequence[WinArm],
    b: Sequence[WinArm],
    *,
    pairing: Pairing = 'auto',
    level: float = 0.95,
    n_tests: int = 1,
    is_linked: bool = False,
) -> WinContrast:
    """Compare two arms over the same strata, in the same order; `n_tests` hypotheses in all decide what is withheld.

    `is_linked` says that the units in `starts` reach over strata and arms (sessions, operators): arms are then compared
    unmatched, a unit's moves are added up over all cells, and N* is the fewest units of an arm.

    >>> from robotrials.stats import win_arm, win_contrast
    >>> slow, quick = win_arm([20.0, 21, 22, 23, 24, 25]), win_arm([10.0, 11, 12, 13, 14, 15])
    >>> found = win_contrast([quick], [slow])
    >>> found.probability, round(found.p_value, 4)
    (1.0, 0.0498)
    """
    alpha = 1 - check_open_unit('level', level)
    cells = _cells(a, b, 'independent' if is_linked else pairing)
    has_loss = any(arm.lost.any() for cell in cells for arm in (cell.a, cell.b))
    is_matched = all(cell.match.n_shared and not cell.match.smaller_rest for cell in cells)
    has_items = any(cell.a.times_s.shape[1] > 1 for cell in cells)
    if has_loss and not has_items and not is_linked and not (is_matched and _undecided_share(cells) <= MOST_UNDECIDED):
        return _lossy(cells, level=level, n_tests=n_tests)
    is_plain = is_matched and not has_items and not any(cell.has_repeats for cell in cells)
    if is_plain and len({cell.match.n_shared for cell in cells}) == 1:
        return _sign_contrast(cells, level=level, alpha=alpha, n_tests=n_tests)
    if is_matched:
        design = WinDesign.MATCHED_SHARES
    elif any(cell.match.n_shared for cell in cells):
        design = WinDesign.PART_SHARED
    else:
        design = WinDesign.INDEPENDENT
    rule, per_stratum = _placement_rule(cells, undecided=0.5, is_linked=is_linked)
    evidence: Evidence = rule
    if has_loss:
        least, most = (_placement_rule(cells, undecided=end, is_linked=is_linked)[0] for end in (0.0, 1.0))
        evidence = WorstCase(least, most)
    sizes = [rule.n_star] if is_linked else [cell.match.n_compared for cell in cells]
    return _judged(
        cells, rule.value, per_stratum, evidence, design, level=level,
        withheld=_withheld(sizes, n_tests, alpha, cells), p_whatever_lost=evidence.p_value if has_loss else None,
        n_units=_distinct(cells) if is_linked else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _TimedCell:
    """One stratum: both arms with times as joint ranks, their units, and what they share."""

    a: WinArm
    b: WinArm
    ranks_a: FloatArray  # (runs, K); infinite where not done
    ranks_b: FloatArray
    ends_a: FloatArray  # (runs,) the rank of the time a lost run was followed to, infinite where it was not lost
    ends_b: FloatArray
    units_a: Units
    units_b: Units
    match: Match

    @property
    def has_repeats(self) -> bool:
        return self.units_a.has_repeats or self.units_b.has_repeats


def _cells(a: Sequence[WinArm], b: Sequence[WinArm], pairing: Pairing) -> list[_TimedCell]:
    if not a or len(a) != len(b):
        raise InputError(f'wanted the same strata of both arms, at least one, found {len(a)} and {len(b)}')
    cells = []
    for first, second in zip(a, b, strict=True):
        if first.times_s.shape[1] != second.times_s.shape[1]:
            items = f'{first.times_s.shape[1]} and {second.times_s.shape[1]}'
            raise InputError(f'the arms have {items} items per run in one stratum; compare the items that both have')
        units_a, units_b = first.units, second.units
        match = match_units(units_a, units_b, pairing)
        if not match.n_compared:
            raise InputError('a stratum has no start state that both arms ran; compare the arms as independent')
        lost = [np.where(arm.lost, arm.followed_s, np.inf) for arm in (first, second)]
        times_a, times_b, ends_a, ends_b = _level_ranks([first.times_s, second.times_s, *lost])
        cells.append(_TimedCell(first, second, times_a, times_b, ends_a, ends_b, units_a, units_b, match))
    return cells


def _level_ranks(parts: Sequence[FloatArray]) -> list[FloatArray]:
    """Finite values replaced by their rank, where values within float noise of a neighbour share one."""
    finite = np.concatenate([part[np.isfinite(part)].ravel() for part in parts])
    order = np.sort(finite)
    group = np.zeros(len(order))
    if len(order) > 1:
        group[1:] = np.cumsum(np.diff(order) > FLOAT_NOISE * np.maximum(np.abs(order[1:]), 1e-300))
    ranks = []
    for part in parts:
        ranked = np.full(part.shape, np.inf)
        inside = np.isfinite(part)
        ranked[inside] = group[np.searchsorted(order, part[inside])]
        ranks.append(ranked)
    return ranks


def _withheld(sizes: Sequence[float], n_tests: int, alpha: float, cells: Sequence[_TimedCell]) -> str:
    """Why no claim is made: too few units in a cell, or too few for as many hypotheses."""
    kind = 'start states' if any(has_label(c.units_a.labels) for c in cells) else 'episodes'
    return few_units(sizes, n_tests, alpha, kind)


def _judged(
    cells: Sequence[_TimedCell], probability: float, per_stratum: Sequence[float], evidence: Evidence,
    design: WinDesign,
    *, level: float, withheld: str, p_whatever_lost: float | None, assumes: bool = False,
    n_units: tuple[int, int] | None = None,
) -> WinContrast:  # fmt: skip
    return WinContrast(
        probability=probability,
        interval=None if withheld else evidence.interval(level, low=0.0, high=1.0),
        p_value=None if withheld else evidence.p_value,
        level=level,
        design=design,
        n_units=n_units or compared_units(c.match for c in cells),
        n_matched=0 if design is WinDesign.LOSSY else sum(cell.match.n_shared for cell in cells),
        per_stratum=tuple(per_stratum),
        evidence=evidence,
        n_lost=(sum(int(c.a.lost.sum()) for c in cells), sum(int(c.b.lost.sum()) for c in cells)),
        assumes_loss_uninformative=assumes,
        p_whatever_lost=None if withheld else p_whatever_lost,
        withheld=withheld,
    )


# --- matched starts, one run each -------------------------------------------------------------------------------------


def _sign_contrast(cells: Sequence[_TimedCell], *, level: float, alpha: float, n_tests: int) -> WinContrast:
    """Every start against itself: exact sign test on the decided pairs of all strata; unequal cells would not do."""
    scores = [_pair_scores(cell) for cell in cells]
    wins, losses = (int(sum((low[low == high] == end).sum() for low, high in scores)) for end in (1.0, 0.0))
    undecided = int(sum((low < high).sum() for low, high in scores))
    n = sum(len(low) for low, _ in scores)
    evidence: Evidence = SignTest(wins, losses)
    if undecided:
        evidence = WorstCase(SignTest(wins, losses + undecided), SignTest(wins + undecided, losses))
    least = fewest_pairs(n_tests, alpha)
    starts = '1 matched start' if n == 1 else f'{n} matched starts'
    tests = 'a claim' if n_tests == 1 else f'{n_tests} tests'
    withheld = '' if n >= least else f'{starts}; at least {least} are needed for {tests}'
    decided = wins + losses
    per_stratum = [_decided_share(low, high) for low, high in scores]
    contrast = _judged(
        cells, wins / decided if decided else 0.5, per_stratum, evidence, WinDesign.MATCHED_SIGN, level=level,
        withheld=withheld,
        p_whatever_lost=evidence.p_value if any(c.a.lost.any() or c.b.lost.any() for c in cells) else None,
    )  # fmt: skip
    return replace(contrast, wins=wins, losses=losses, ties=n - wins - losses - undecided)


def _decided_share(low: FloatArray, high: FloatArray) -> float:
    known = low[(low == high) & (low != 0.5)]
    return float(known.mean()) if known.size else 0.5


def fewest_pairs(n_tests: int, alpha: float) -> int:
    """Starts below which the sign test cannot reject: 2 x 2^-n <= alpha / n_tests."""
    return max(1, math.ceil(1 + math.log2(n_tests / alpha) - 1e-9))


def _pair_scores(cell: _TimedCell, k: int = 0) -> tuple[FloatArray, FloatArray]:
    """(shared,) scores of a's run against b's at one start (1, 1/2, 0), at least and at most given what was lost."""
    x, y = cell.match.shared_a, cell.match.shared_b
    place_a, place_b = (
        np.argsort(cell.units_a.codes, kind='stable')[x],
        np.argsort(cell.units_b.codes, kind='stable')[y],
    )
    return _scores(cell.ranks_a[place_a, k], cell.ranks_b[place_b, k], cell.ends_a[place_a], cell.ends_b[place_b])


def _scores(
    times_a: FloatArray, times_b: FloatArray, ends_a: FloatArray, ends_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Elementwise scores at least and at most; equal where the comparison is decided.

    A lost run's item is done after its end or never: it may be as early as just after that, or as late as never.
    """
    unknown_a, unknown_b = np.isinf(times_a) & np.isfinite(ends_a), np.isinf(times_b) & np.isfinite(ends_b)
    soon_a, soon_b = (
        np.where(unknown, end + 0.5, time)
        for unknown, end, time in ((unknown_a, ends_a, times_a), (unknown_b, ends_b, times_b))
    )
    return _score(times_a, soon_b), _score(soon_a, times_b)


def _score(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.where(x < y, 1.0, np.where(x > y, 0.0, 0.5))


def _undecided_share(cells: Sequence[_TimedCell]) -> float:
    scores = [_pair_scores(cell) for cell in cells if not cell.has_repeats]
    if len(scores) < len(cells):
        return 1.0
    return sum(float((low < high).sum()) for low, high in scores) / sum(len(low) for low, _ in scores)


# --- placements and shares of wins, judged by R -----------------------------------------------------------------------


def _placement_rule(
    cells: Sequence[_TimedCell], *, undecided: float, is_linked: bool = False
) -> tuple[UnseenRule, tuple[float, ...]]:
    """P over strata with its variance: shared starts by their share of wins, the others by placements.

    An undecided comparison (something was lost) counts as `undecided`: 0 against a, 1 against b. Also each stratum's P.
    """
    values, terms, parts = [], [], []
    strata = len(cells)
    for cell in cells:
        f, match = cell.match.share, cell.match
        value = 0.0
        if match.n_shared:
            wins = _shared_wins(cell, undecided)
            value += f * exact_mean(wins)
            terms.append(mean_term(f * wins))
        if match.smaller_rest:
            p, q = _placements(cell, match.rest_a, match.rest_b, undecided)
            value += (1 - f) * exact_mean(p)
            terms += [mean_term((1 - f) * p), mean_term((1 - f) * q)]
            parts += [(cell.units_a.labels, p / strata), (cell.units_b.labels, q / strata)]
        values.append(value)
    if is_linked:
        spread, n_star = linked_spread(parts), min(_distinct(cells))
    else:
        spread = Spread(np.array([v for v, _ in terms]) / strata**2, np.array([dof for _, dof in terms]))
        n_star = strata * min(cell.match.n_compared for cell in cells)
    return UnseenRule(math.fsum(values) / strata, spread, float(n_star), 0.5), tuple(values)


def _distinct(cells: Sequence[_TimedCell]) -> tuple[int, int]:
    return distinct_units(c.units_a for c in cells), distinct_units(c.units_b for c in cells)


def _placements(
    cell: _TimedCell, units_a: IntArray, units_b: IntArray, undecided: float
) -> tuple[FloatArray, FloatArray]:
    """(units of a,) mean score against b's units, and (units of b,) mean score of a's units against each.

    Scores add up over runs and items, so that one pass over sorted times per item gives all of them.
    """
    of_a, of_b = np.isin(cell.units_a.codes, units_a), np.isin(cell.units_b.codes, units_b)
    weight_a, weight_b = cell.units_a.weights[of_a] / len(units_a), cell.units_b.weights[of_b] / len(units_b)
    ends_a, ends_b = cell.ends_a[of_a], cell.ends_b[of_b]
    items = cell.ranks_a.shape[1]
    p, q = np.zeros(int(of_a.sum())), np.zeros(int(of_b.sum()))
    for k in range(items):
        times_a, times_b = cell.ranks_a[of_a, k], cell.ranks_b[of_b, k]
        if undecided == 0.0:
            times_b = np.where(np.isinf(times_b) & np.isfinite(ends_b), ends_b + 0.5, times_b)
        elif undecided == 1.0:
            times_a = np.where(np.isinf(times_a) & np.isfinite(ends_a), ends_a + 0.5, times_a)
        p += later_share(times_a, times_b, weight_b) / items
        q += (1 - later_share(times_b, times_a, weight_a)) / items
    unit_p = _unit_means(p, cell.units_a, of_a, units_a)
    return unit_p, _unit_means(q, cell.units_b, of_b, units_b)


def later_share(times: FloatArray, others: FloatArray, weights: FloatArray) -> FloatArray:
    """(times,) the weight of the others that are later, level ones by half; `weights` add up to 1."""
    order = np.argsort(others, kind='stable')
    ranked, cumulated = others[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    earlier = cumulated[np.searchsorted(ranked, times, side='left')]
    not_later = cumulated[np.searchsorted(ranked, times, side='right')]
    return np.asarray(1 - (earlier + not_later) / 2 / cumulated[-1])


def _unit_means(values: FloatArray, units: Units, inside: BoolArray, wanted: IntArray) -> FloatArray:
    if not units.has_repeats:
        return values
    whole = np.zeros(len(inside))
    whole[inside] = values
    return units.means(whole)[wanted]


def _shared_wins(cell: _TimedCell, undecided: float) -> FloatArray:
    """(shared,) a's share of wins over run-by-run comparisons at each shared start."""
    if not cell.has_repeats:
        wins = np.zeros(cell.match.n_shared)
        for k in range(cell.ranks_a.shape[1]):
            low, high = _pair_scores(cell, k)
            wins += (low + high) / 2 if undecided == 0.5 else low if undecided == 0.0 else high
        return np.asarray(wins / cell.ranks_a.shape[1])
    by_unit = [
        [np.flatnonzero(units.codes == unit) for unit in shared]
        for units, shared in ((cell.units_a, cell.match.shared_a), (cell.units_b, cell.match.shared_b))
    ]
    shares = []
    for x, y in zip(*by_unit, strict=True):
        low, high = _scores(
            cell.ranks_a[x][:, None, :], cell.ranks_b[y][None, :, :], cell.ends_a[x][:, None, None],
            cell.ends_b[y][None, :, None],
        )  # fmt: skip
        score = (low + high) / 2 if undecided == 0.5 else low if undecided == 0.0 else high
        shares.append(float(score.mean()))
    return np.array(shares)


# --- runs lost before the follow-up -----------------------------------------------------------------------------------


def _lossy(cells: Sequence[_TimedCell], *, level: float, n_tests: int) -> WinContrast:
    """Win probability of two Kaplan-Meier curves per stratum; leftover mass is never done.

    Starts that both arms ran are not matched here: comparing different starts with a matched variance does not hold.
    """
    values, terms, dof, kept = [], [], [], []
    for cell in cells:
        value, variance_a, variance_b = curve_win(
            cell.ranks_a[:, 0], cell.ends_a, cell.units_a, cell.ranks_b[:, 0], cell.ends_b, cell.units_b
        )
        values.append(value)
        terms += [variance_a, variance_b]
        dof += [max(cell.units_a.n - 1.0, 1.0), max(cell.units_b.n - 1.0, 1.0)]
        kept.append(min(_kept(cell.a, cell.units_a), _kept(cell.b, cell.units_b)))
    strata = len(cells)
    n_star = strata * min(kept)
    rule = UnseenRule(
        math.fsum(values) / strata, Spread(np.array(terms) / strata**2, np.array(dof)), max(n_star, 1e-9), 0.5
    )
    separate = [replace(cell, match=match_units(cell.units_a, cell.units_b, 'independent')) for cell in cells]
    worst = WorstCase(*(_placement_rule(separate, undecided=end)[0] for end in (0.0, 1.0)))
    return _judged(
        cells, rule.value, values, rule, WinDesign.LOSSY, level=level,
        withheld=_withheld(kept, n_tests, 1 - level, cells), p_whatever_lost=worst.p_value, assumes=True,
        n_units=(sum(c.units_a.n for c in cells), sum(c.units_b.n for c in cells)),
    )  # fmt: skip


def _kept(arm: WinArm, units: Units) -> float:
    """Units not lost; of a start with repeats, the share of its runs."""
    return float((units.weights * ~arm.lost).sum())
