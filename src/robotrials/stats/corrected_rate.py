"""A rate that an imperfect scorer measured, corrected for its errors, with intervals that include them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.interval import Interval, check_successes, two_sided_z
from robotrials.stats.proportion import Estimate, wilson, wilson_of_share
from robotrials.value import dataclass

LEAST_KNOWN = 3  # true successes, and true failures, that a scorer's errors are measured on
LEAST_YOUDEN = 1 / 3  # below it a correction multiplies chance by more than three


@dataclass(frozen=True, slots=True)
class ScorerErrors:
    """How a scorer did where the truth is known: its true positives and its true negatives."""

    said_yes_of_true: int
    n_true: int
    said_no_of_false: int
    n_false: int

    def __post_init__(self) -> None:
        check_successes(self.said_yes_of_true, self.n_true, names=('said_yes_of_true', 'n_true'))
        check_successes(self.said_no_of_false, self.n_false, names=('said_no_of_false', 'n_false'))

    @property
    def sensitivity(self) -> float:
        return self.said_yes_of_true / self.n_true

    @property
    def specificity(self) -> float:
        return self.said_no_of_false / self.n_false


def rogan_gladen(said_yes: int, n: int, errors: ScorerErrors, *, level: float = 0.95) -> Estimate:
    """The true rate behind a scorer's (Rogan and Gladen, Am J Epidemiol 1978), errors measured on other units.

    The interval is that of Lang and Reiczigel (Prev Vet Med 2014), which carries the uncertainty of sensitivity and
    specificity. The scorer must err as often here as where its errors were measured.

    >>> round(rogan_gladen(30, 100, ScorerErrors(90, 100, 80, 100)).value, 9)
    0.142857143
    """
    x, n = check_successes(said_yes, n, names=('said_yes', 'n'))
    limits = rogan_gladen_limits(x, n, errors, level=level)
    if limits is None:
        return Estimate(None, note='the scorer is no better than chance, so nothing can be corrected by it', n=n)
    low, value, high = (_share(v) for v in limits)
    return Estimate(value, Interval(low, high), n=n)


def rogan_gladen_limits(
    said_yes: int, n: int, errors: ScorerErrors, *, level: float
) -> tuple[float, float, float] | None:
    """Low limit, value and high limit before they are cut to [0, 1]; None for a scorer at chance.

    What is averaged over strata must not be cut before: cut values are biased inwards, and their limits too near.
    """
    youden = errors.sensitivity + errors.specificity - 1
    if youden <= 0:
        return None
    value = (said_yes / n + errors.specificity - 1) / youden
    z = two_sided_z(level)
    n_adj, rate = n + z**2, (said_yes + z**2 / 2) / (n + z**2)
    n_true, n_false = errors.n_true + 2, errors.n_false + 2
    sens, spec = (errors.said_yes_of_true + 1) / n_true, (errors.said_no_of_false + 1) / n_false
    slope = sens + spec - 1
    if slope <= 0:
        return min(0.0, value), value, max(1.0, value)
    middle = (rate + spec - 1) / slope
    of_sens, of_spec = sens * (1 - sens) / n_true, spec * (1 - spec) / n_false
    shift = 2 * z**2 * (middle * of_sens - (1 - middle) * of_spec)
    spread = rate * (1 - rate) / n_adj + middle**2 * of_sens + (1 - middle) ** 2 * of_spec
    half = z * math.sqrt(spread) / slope
    return min(middle + shift - half, value), value, max(middle + shift + half, value)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


@dataclass(frozen=True, slots=True)
class StratumWord:
    """What a scorer said of the units of one stratum, and how it does there where the truth is known."""

    name: str
    n: int
    said_yes: int
    unscored: int  # of which it said nothing
    errors: ScorerErrors | None  # not saying so counts as "no"; None where nothing is known

    @property
    def is_correctable(self) -> bool:
        """Whether its errors are known well enough: a scorer that stays silent on most says nothing of the rest."""
        e = self.errors
        if e is None or min(e.n_true, e.n_false) < LEAST_KNOWN or 2 * self.unscored > self.n:
            return False
        return e.sensitivity + e.specificity - 1 >= LEAST_YOUDEN


def stratified_rate(strata: Sequence[StratumWord], *, level: float = 0.95) -> Estimate:
    """The true rate over strata, each corrected for the scorer's errors in it (Rogan and Gladen), weighed by size.

    A stratum whose errors are not known well enough gives bounds: its rate if all that is unscored failed, and if all
    succeeded. Then there is no value, only an interval. Limits are joined by MOVER (Zou and Donner 2008), and cut to
    [0, 1] last.
    """
    n = sum(s.n for s in strata)
    if not n:
        return Estimate(None, note='no units')
    reaches = [(s, stratum_reach(s, level=level)) for s in strata]
    low = mover_limit([(s.n / n, r.least, r.low) for s, r in reaches], -1)
    high = mover_limit([(s.n / n, r.most, r.high) for s, r in reaches], 1)
    if short := [s.name for s, r in reaches if not r.is_corrected]:
        note = f'bounds only: too little is known of the scorer in {", ".join(short)}'
        return Estimate(None, Interval(low, high), note=note, n=n)
    value = _share(math.fsum(s.n / n * r.least for s, r in reaches))
    return Estimate(value, Interval(min(low, value), max(high, value)), n=n)


@dataclass(frozen=True, slots=True)
class StratumReach:
    """A stratum's rate or expectation, not cut to [0, 1]: corrected, or if all unscored failed, and succeeded."""

    least: float
    low: float  # the lower limit of `least`
    most: float
    high: float  # the upper limit of `most`
    is_corrected: bool


def stratum_reach(word: StratumWord, *, level: float) -> StratumReach:
    """What can be said of one stratum."""
    limits = None
    if word.errors is not None and word.is_correctable:
        limits = rogan_gladen_limits(word.said_yes, word.n, word.errors, level=level)
    if limits is not None:
        low, value, high = limits
        return StratumReach(value, low, value, high, is_corrected=True)
    least, most = word.said_yes, word.said_yes + word.unscored
    return StratumReach(
        least / word.n, wilson(least, word.n, level).low, most / word.n, wilson(most, word.n, level).high,
        is_corrected=False,
    )  # fmt: skip


def mover_limit(parts: Sequence[tuple[float, float, float]], side: int) -> float:
    """One limit of a weighted sum, from (weight, value, its own limit) of independent parts; cut to [0, 1]."""
    middle = sum(weight * value for weight, value, _ in parts)
    half = math.sqrt(sum((weight * (value - limit)) ** 2 for weight, value, limit in parts))
    return _share(middle + side * half)


def prediction_powered(
    truth: Sequence[bool], said: Sequence[float], unlabelled: Sequence[float], *, level: float = 0.95
) -> Estimate:
    """A rate from a few true labels and a scorer's word on all units (PPI++, Angelopoulos, Duchi and Zrnic 2023).

    `truth` and `said` are of the same units, `unlabelled` is the scorer's word on the rest. It holds whatever the
    scorer's errors are, as long as the labelled units are a random sample of all. Without unlabelled units it is the
    rate of the labels themselves, with Wilson's interval.
    """
    if len(truth) != len(said) or not len(truth):
        raise InputError(f'wanted as many labels as scores, at least 1, found {len(truth)} and {len(said)}')
    y, f, g = (np.asarray(v, dtype=float) for v in (truth, said, unlabelled))
    n, rest = len(y), len(g)
    if not rest:
        return Estimate(float(y.mean()), wilson(round(float(y.sum())), n, level), n=n)
    pooled = np.concatenate([f, g])
    weight = 0.0
    if n > 1 and float(pooled.var()) > 0:
        slope = float(np.cov(y, f, ddof=1)[0, 1]) / float(pooled.var(ddof=1))
        weight = min(1.0, max(0.0, slope / (1 + n / rest)))
    value = float(y.mean()) + weight * (float(g.mean()) - float(f.mean()))
    value = min(1.0, max(0.0, value))
    # Two more units on either side, one of them an error: a sample without errors must not have no variance, and near
    # 0 and 1 the rate that is seen says too little of the variance. The interval is Wilson's at the sample size that
    # labels alone would need for this variance.
    smooth = (n * value + 2) / (n + 4)
    left = y - weight * f
    of_labels = (float(left.var()) * n + 1.0) / (n + 4) / n
    of_rest = weight**2 * (float(g.var()) * rest + 1.0) / (rest + 4) / rest
    n_alike = min(float(n + rest), max(1.0, smooth * (1 - smooth) / (of_labels + of_rest)))
    return Estimate(value, wilson_of_share(value, n_alike, level), n=n + rest)


# The expectation of an overlap that an imperfect scorer measured, with an interval that includes its errors.

BOUNDS_ONLY = 'bounds only: some ends are unscored, and too little is known of the scorer'


@dataclass(frozen=True, slots=True)
class SplitOverlap:
    """What a scorer said of one split: who succeeded, how far those overlap, and how it errs in both."""

    word: StratumWord
    overlaps: tuple[float, ...]  # of those it calls successes, as it measures them
    errors: tuple[float, ...]  # measured minus true, of other units that are successes by the truth and the scorer


def expected_overlap(splits: Sequence[SplitOverlap], *, level: float = 0.95) -> Estimate:
    """The mean over splits of success rate x mean overlap of successes (RADAR's tables), of a scorer that errs.

    The rate is corrected as in `stratified_rate`, the overlap by the mean of `errors` where there are enough. Limits
    of the product, and of the mean over splits, are joined by MOVER (Zou and Donner 2008). An unscored end of a split
    whose rate cannot be corrected may have any overlap up to 1: then there is an interval and no value.
    """
    if not splits:
        return Estimate(None, note='no units')
    reaches, sizes = zip(*(_overlap_reach(split, level) for split in splits), strict=True)
    weight, n = 1 / len(splits), sum(s.word.n for s in splits)
    low = mover_limit([(weight, r.least, r.low) for r in reaches], -1)
    high = mover_limit([(weight, r.most, r.high) for r in reaches], 1)
    if not all(r.is_corrected for r in reaches):
        return Estimate(None, Interval(low, high), note=BOUNDS_ONLY, n=n)
    value = weight * min(max(0.0, math.fsum(r.least for r in reaches)), math.fsum(sizes))
    return Estimate(value, Interval(min(low, value), max(high, value)), n=n)


def _overlap_reach(split: SplitOverlap, level: float) -> tuple[StratumReach, float]:
    """A split's expectation, and the mean overlap of its successes, which no expectation exceeds."""
    rate, size = stratum_reach(split.word, level=level), mean_overlap(split.overlaps, split.errors, level=level)
    assert size.interval is not None
    mean = 1.0 if size.value is None else size.value
    silent = rate.most - rate.least  # of which nothing is known, not even that its overlap is like the others'
    least, most = rate.least * mean, rate.least * mean + silent
    below = math.hypot(mean * (rate.least - rate.low), rate.least * (mean - size.interval.low))
    above = math.hypot((1.0 if silent else mean) * (rate.high - rate.most), rate.least * (size.interval.high - mean))
    return StratumReach(least, least - below, most, most + above, is_corrected=not silent), mean


def mean_overlap(overlaps: Sequence[float], errors: Sequence[float], *, level: float = 0.95) -> Estimate:
    """The mean of measured overlaps minus the mean error, with Student's interval; [0, 1] where nothing is known."""
    from robotrials.stats.special import stdtrit

    n = len(overlaps)
    if not n:
        return Estimate(None, Interval(0.0, 1.0), note='no success to measure', n=0)
    is_corrected = len(errors) >= LEAST_KNOWN
    value = min(1.0, max(0.0, float(np.mean(overlaps)) - (float(np.mean(errors)) if is_corrected else 0.0)))
    if n < 2:
        return Estimate(value, Interval(0.0, 1.0), n=n)
    variance = float(np.var(overlaps, ddof=1)) / n
    if is_corrected:
        variance += float(np.var(errors, ddof=1)) / len(errors)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(variance)
    return Estimate(value, Interval(max(0.0, value - half), min(1.0, value + half)), n=n)
