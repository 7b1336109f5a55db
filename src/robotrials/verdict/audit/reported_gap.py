"""A reported score minus a probe's: the differences of Table 1, and what the two averages can prove about them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction

from robotrials.errors import InputError
from robotrials.stats import Interval, newcombe
from robotrials.stats.normal import two_sided_z
from robotrials.verdict.audit.realize import realize
from robotrials.verdict.audit.reported import ReportedScore
from robotrials.verdict.audit.run_score import RunScore
from robotrials.verdict.audit.topline import Classification, Protocol, topline


class ProbeStanding(enum.StrEnum):
    """Where the probe stands against a reported score."""

    ABOVE = 'provably above'
    NOT_PROVABLE = 'difference not provable'
    BELOW = 'provably below'
    UNKNOWN = 'episodes behind the reported score unknown'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedGap:
    """Reported minus probe, in mean score; negative means that the probe scores higher."""

    reported: ReportedScore
    role: str  # 'foundation' or 'best'
    checkpoint: str
    difference: float
    standing: ProbeStanding
    interval: Interval | None = None  # of two independent samples; None where the reported one's size is unknown
    classification: Classification | None = None  # by the averages alone, paired, where both have one protocol


def reported_gap(
    reported: ReportedScore, score: RunScore, *, role: str, official: Protocol | None, alpha: float, level: float
) -> ReportedGap:
    """Compare a run with a printed score.

    `official` is the protocol that the reported score is on, if it is known; a row's own tasks and samples go before
    it. Where the run has the same tasks and samples, the sharp top-line bounds decide in both directions; otherwise two
    independent samples are compared.
    """
    mean = reported.mean(score.max_score)
    difference = float(mean - Fraction(score.total, score.n))
    theirs = _protocol(reported, official, score.max_score)
    shown = {'reported': reported, 'role': role, 'checkpoint': score.name, 'difference': difference}
    if theirs is None:
        return ReportedGap(**shown, standing=ProbeStanding.UNKNOWN)  # type: ignore[arg-type]
    interval = _independent(mean, theirs, score, level)
    samples = {t.n for t in score.tasks}
    if len(score.tasks) == theirs.tasks and samples == {theirs.samples} and not score.missing:
        found, standing = _by_topline(mean, score, theirs, alpha)
    else:
        found = None
        standing = (
            ProbeStanding.BELOW
            if interval.low > 0
            else ProbeStanding.ABOVE
            if interval.high < 0
            else ProbeStanding.NOT_PROVABLE
        )
    return ReportedGap(**shown, standing=standing, interval=interval, classification=found)  # type: ignore[arg-type]


def _protocol(reported: ReportedScore, official: Protocol | None, max_score: int) -> Protocol | None:
    if reported.tasks is not None and reported.samples is not None:
        return Protocol(reported.tasks, reported.samples, max_score)
    if official is not None and official.max_score != max_score:
        raise InputError(f'the run is scored out of {max_score} and the official protocol out of {official.max_score}')
    return official


def _by_topline(
    mean: Fraction, score: RunScore, protocol: Protocol, alpha: float
) -> tuple[Classification, ProbeStanding]:  # fmt: skip
    ours = Fraction(score.total, score.n)
    low, high = sorted((mean / score.max_score, ours / score.max_score))
    found = topline(
        low, high, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score, alpha=alpha
    ).classification  # fmt: skip
    if found is not Classification.GUARANTEED:
        return found, ProbeStanding.NOT_PROVABLE
    return found, ProbeStanding.BELOW if mean > ours else ProbeStanding.ABOVE


def _independent(mean: Fraction, theirs: Protocol, score: RunScore, level: float) -> Interval:
    """Of reported minus run: Newcombe for success; for other scores the widest spread that their means allow."""
    if score.max_score == 1:
        count = realize(mean, tasks=theirs.tasks, samples=theirs.samples).half_up
        return newcombe(count, theirs.instances, score.total, score.n, level)
    means, sizes, most = (float(mean), score.mean), (theirs.instances, score.n), score.max_score
    variance = math.fsum(m * (most - m) / n for m, n in zip(means, sizes, strict=True))
    reach = two_sided_z(level) * math.sqrt(variance)
    return Interval(means[0] - means[1] - reach, means[0] - means[1] + reach)
