"""Why the sign of a KS distance can't rank policies: three curves whose sup-signs cycle (PhAIL, Appendix I)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robotrials.measure.timing.curve import SuccessCurve, success_curve

# Time in seconds -> share of operations that succeed then; the rest never does.
EXAMPLE_SHARES: Mapping[str, Mapping[float, float]] = {
    'A': {1: 0.35},
    'B': {5: 0.30, 20: 0.35},
    'C': {20: 0.25, 50: 0.60},
}


@dataclass(frozen=True, slots=True)
class SupSign:
    """Where two curves are furthest apart, and which is on top there."""

    upper: str
    lower: str
    time_s: float
    distance: float


def example_curves() -> dict[str, SuccessCurve]:
    """The constructed cycle: A over B over C over A."""
    curves = {}
    for name, shares in EXAMPLE_SHARES.items():
        counts = [round(100 * share) for share in shares.values()]
        times = np.repeat([*shares, np.inf], [*counts, 100 - sum(counts)])
        curves[name] = success_curve(times, np.ones(100, dtype=bool))
    return curves


def sup_sign(name_a: str, a: SuccessCurve, *, name_b: str, b: SuccessCurve) -> SupSign | None:
    """The supremum of |Fa - Fb| and its winner; None for curves that are equal everywhere."""
    times = np.union1d(a.times_s, b.times_s)
    if len(times) == 0:
        return None
    gap = np.atleast_1d(a.at(times)) - np.atleast_1d(b.at(times))
    where = int(np.argmax(np.abs(gap)))
    if gap[where] == 0:
        return None
    names = (name_a, name_b) if gap[where] > 0 else (name_b, name_a)
    return SupSign(*names, time_s=float(times[where]), distance=float(abs(gap[where])))


def find_cycle(curves: Mapping[str, SuccessCurve]) -> tuple[SupSign, SupSign, SupSign] | None:
    """The first three policies whose sup-signs cycle, or None."""
    for x, y, z in itertools.combinations(curves, 3):
        edges = [sup_sign(p, curves[p], name_b=q, b=curves[q]) for p, q in ((x, y), (y, z), (z, x))]
        one, two, three = edges
        if one is not None and two is not None and three is not None and len({e.upper for e in (one, two, three)}) == 3:
            return one, two, three
    return None
