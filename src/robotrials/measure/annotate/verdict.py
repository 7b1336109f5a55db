"""What became of each candidate: a transparent rule set with named thresholds."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.measure.annotate.detector import ReleaseCandidate, ReleaseKind
from robotrials.measure.annotate.zone import OUTSIDE

FURTHEST_M = 10.0


class ReleaseVerdict(enum.StrEnum):
    SUCCESS = 'success'  # an item was placed
    FAILURE = 'failure'  # an item was lost, or taken out of the target again
    NEUTRAL = 'neutral'  # nothing was carried, or it was put back
    UNKNOWN = 'unknown'  # a person has to look


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    edge_m: float = 0.02  # nearer than this to the edge of a zone, it cannot be said on which side an item fell
    least_displacement_m: float = 0.05  # carried less far, an item was not carried over

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= FURTHEST_M:
                raise InputError(f'{field.name} is {value}, wanted 0 to {FURTHEST_M:g}')


@dataclass(frozen=True, slots=True)
class JudgedRelease:
    """A candidate, its verdict and the reason in words."""

    candidate: ReleaseCandidate
    verdict: ReleaseVerdict
    why: str


def judge(candidates: Iterable[ReleaseCandidate], options: RuleOptions | None = None) -> list[JudgedRelease]:
    """The rules, applied to each candidate by itself."""
    chosen = options or RuleOptions()
    return [JudgedRelease(candidate, *_rule(candidate, chosen)) for candidate in candidates]


def _rule(candidate: ReleaseCandidate, options: RuleOptions) -> tuple[ReleaseVerdict, str]:
    at_edge = abs(candidate.zone_depth_m) < options.edge_m
    if candidate.is_empty:
        return ReleaseVerdict.NEUTRAL, 'nothing was held'
    if candidate.kind is ReleaseKind.SLUMP:
        return _slumped(candidate, at_edge=at_edge)
    if not candidate.has_plateau:
        return ReleaseVerdict.UNKNOWN, 'the grip had not come to rest'
    if at_edge:
        return ReleaseVerdict.UNKNOWN, f'let go at the edge of a zone ({candidate.zone})'
    if candidate.zone == OUTSIDE:
        return ReleaseVerdict.FAILURE, 'let go outside both zones'
    if candidate.grasp_zone == 'target':
        moved = candidate.zone == 'target'
        return (
            (ReleaseVerdict.NEUTRAL, 'moved within the target')
            if moved
            else (ReleaseVerdict.FAILURE, 'taken out of the target')
        )
    if candidate.zone == 'source':
        return ReleaseVerdict.NEUTRAL, 'put back'
    if candidate.displacement_m < options.least_displacement_m:
        return ReleaseVerdict.UNKNOWN, 'hardly moved'
    return ReleaseVerdict.SUCCESS, 'let go over the target'


def _slumped(candidate: ReleaseCandidate, *, at_edge: bool) -> tuple[ReleaseVerdict, str]:
    if candidate.zone == 'source':
        return ReleaseVerdict.NEUTRAL, 'slipped out over the source'
    if candidate.zone == 'target' or at_edge:
        return (
            ReleaseVerdict.UNKNOWN,
            f'slipped out over the {"target" if candidate.zone == "target" else "edge of a zone"}',
        )
    return ReleaseVerdict.FAILURE, 'slipped out between the zones'
