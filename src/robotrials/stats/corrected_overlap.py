"""The expectation of an overlap that an imperfect scorer measured, with an interval that includes its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.stats.corrected_rate import LEAST_KNOWN, StratumWord, mover_limit, stratum_reach
from robotrials.stats.estimate import Estimate
from robotrials.stats.interval import Interval

BOUNDS_ONLY = 'bounds only: some ends are unscored, and too little is known of the scorer'


@dataclass(frozen=True, slots=True)
class SplitOverlap:
    """What a scorer said of one split: who succeeded, how far those overlap, and how it errs in both."""

    word: StratumWord
    overlaps: tuple[float, ...]  # of those it calls successes, as it measures them
    errors: tuple[float, ...]  # measured minus true, of other units that are successes by the truth and the scorer


@dataclass(frozen=True, slots=True)
class _Reach:
    """A split's expectation if all that is unscored failed, and if all of it succeeded, each with its own limit."""

    least: float
    low: float
    most: float
    high: float
    size: float  # the mean overlap of successes, which no expectation exceeds
    is_known: bool


def expected_overlap(splits: Sequence[SplitOverlap], *, level: float = 0.95) -> Estimate:
    """The mean over splits of success rate x mean overlap of successes (RADAR's tables), of a scorer that errs.

    The rate is corrected as in `stratified_rate`, the overlap by the mean of `errors` where there are enough. Limits
    of the product, and of the mean over splits, are joined by MOVER (Zou and Donner 2008). An unscored end of a split
    whose rate cannot be corrected may have any overlap up to 1: then there is an interval and no value.
    """
    if not splits:
        return Estimate(None, note='no units')
    reaches = [_reach(split, level) for split in splits]
    weight, n = 1 / len(splits), sum(s.word.n for s in splits)
    low = mover_limit([(weight, r.least, r.low) for r in reaches], -1)
    high = mover_limit([(weight, r.most, r.high) for r in reaches], 1)
    if not all(r.is_known for r in reaches):
        return Estimate(None, Interval(low, high), note=BOUNDS_ONLY, n=n)
    value = weight * min(max(0.0, math.fsum(r.least for r in reaches)), math.fsum(r.size for r in reaches))
    return Estimate(value, Interval(min(low, value), max(high, value)), n=n)


def _reach(split: SplitOverlap, level: float) -> _Reach:
    rate, size = stratum_reach(split.word, level=level), mean_overlap(split.overlaps, split.errors, level=level)
    assert size.interval is not None
    mean = 1.0 if size.value is None else size.value
    silent = rate.most - rate.least  # of which nothing is known, not even that its overlap is like the others'
    least, most = rate.least * mean, rate.least * mean + silent
    below = math.hypot(mean * (rate.least - rate.low), rate.least * (mean - size.interval.low))
    above = math.hypot((1.0 if silent else mean) * (rate.high - rate.most), rate.least * (size.interval.high - mean))
    return _Reach(least, least - below, most, most + above, mean, is_known=not silent)


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
