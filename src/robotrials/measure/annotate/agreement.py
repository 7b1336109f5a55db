"""Two people mark the same episodes: how far they agree."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.annotate.assess import Matched, match_marks
from robotrials.record import Annotation, EventKind, EventSource
from robotrials.stats import Interval, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two reviewers, over the episodes that both marked."""

    first: str
    second: str
    n_episodes: int
    n_counts_agree: int
    kappa: float | None  # of the counts, by Cohen; None where both gave one and the same answer throughout
    n_marks: tuple[int, int]
    n_matched: int
    apart_s: float | None  # median time between matched marks
    apart_90_s: float | None

    @property
    def count_agreement(self) -> Interval:
        return wilson(self.n_counts_agree, self.n_episodes)


def agreements(annotations: Mapping[tuple[str, int], Sequence[Annotation]]) -> tuple[Agreement, ...]:
    """Every pair of reviewers with an episode in common; the last account of each counts."""
    marked: dict[str, dict[tuple[str, int], Annotation]] = {}
    for key, rows in annotations.items():
        for row in rows:
            if row.source is EventSource.REVIEWER:
                marked.setdefault(row.by, {})[key] = row
    found = []
    for first, second in itertools.combinations(sorted(marked), 2):
        shared = sorted(marked[first].keys() & marked[second].keys())
        if shared:
            found.append(_compare(first, second, [(marked[first][k], marked[second][k]) for k in shared]))
    if not found:
        raise NotEstimable('no two reviewers have marked the same episode')
    return tuple(found)


def _compare(first: str, second: str, pairs: Sequence[tuple[Annotation, Annotation]]) -> Agreement:
    matched: list[Matched] = [match_marks(_times(a), _times(b)) for a, b in pairs]
    apart = np.abs(np.concatenate([np.empty(0), *(m.errors_s for m in matched)]))
    counts = [(len(_times(a)), len(_times(b))) for a, b in pairs]
    return Agreement(
        first=first, second=second, n_episodes=len(pairs), n_counts_agree=sum(a == b for a, b in counts),
        kappa=cohen_kappa(counts), n_marks=(sum(a for a, _ in counts), sum(b for _, b in counts)),
        n_matched=len(apart), apart_s=float(np.median(apart)) if len(apart) else None,
        apart_90_s=float(np.quantile(apart, 0.9)) if len(apart) else None,
    )  # fmt: skip


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement beyond chance: (p_o - p_e) / (1 - p_e)."""
    n = len(pairs)
    values = sorted({v for pair in pairs for v in pair})
    seen = sum(a == b for a, b in pairs) / n
    expected = sum(sum(a == v for a, _ in pairs) * sum(b == v for _, b in pairs) for v in values) / n**2
    return None if expected >= 1 else (seen - expected) / (1 - expected)


def _times(annotation: Annotation) -> list[float]:
    return [e.t_s for e in annotation.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
