"""Each episode left out in turn, as BCa intervals need it: in nearly linear time, equal to doing it one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.timing.operation import BoolArray, FloatArray, IntArray
from robotrials.measure.timing.resample import PairLayout, SortedCell
from robotrials.value import dataclass

SLACK = 1e-12


def scalar_jackknife(cell: SortedCell, *, tau_s: float, levels: Sequence[float] = ()) -> FloatArray:
    """(E + 1, 4 + levels): RMST, F(tau), integral of t dF, plateau and quantiles with each episode left out.

    The last row leaves none out. `levels` increase; a quantile that is not reached is NaN.
    """
    from robotrials.measure.timing.jackknife import kernel
    from robotrials.measure.timing.kernel import N_SCALARS, curve_scalars

    asked = np.array(levels, dtype=np.float64)
    left_out = np.empty((cell.n_episodes, kernel.FIRST_QUANTILE + len(asked)))
    n_to_tau = int(np.searchsorted(cell.times_s, tau_s, side='right'))
    kernel.left_out_curves(
        cell.times_s, cell.cluster, cell.event, cell.sizes, cell.times_s, n_to_tau, asked, left_out
    )  # fmt: skip
    out = np.empty((cell.n_episodes + 1, N_SCALARS + len(asked)))
    moment, missing = left_out[:, kernel.GAIN], left_out[:, kernel.AT_STOP]
    # Integrating by parts: the RMST is the integral of t dF up to tau, and tau times what is left.
    out[:-1, 0], out[:-1, 1], out[:-1, 2] = moment + tau_s * missing, 1.0 - missing, moment
    out[:-1, 3], out[:-1, N_SCALARS:] = 1.0 - left_out[:, kernel.AT_END], left_out[:, kernel.FIRST_QUANTILE :]
    none_left_out = np.ones(cell.n_episodes, dtype=np.int32)
    curve_scalars(
        cell.times_s, cell.cluster, cell.event, cell.sizes, none_left_out, cell.inverse, tau_s, asked, out[-1]
    )  # fmt: skip
    return out


def auc_jackknife(layout: PairLayout) -> FloatArray:
    """(E + 1,) AUC of a layout of one stratum with each episode left out, a's first, and last with none left out."""
    n_a, event = int(layout.n_a[0]), layout.event > 0
    is_a = layout.cluster < n_a
    a, b = _CurveSide.of(layout, is_a, slice(0, n_a)), _CurveSide.of(layout, ~is_a, slice(n_a, None))
    end = min(a.known_to, b.known_to)
    steps = np.where(event & is_a, a.steps[:-1] - a.steps[1:], 0.0)[:end]
    whole = float(steps @ b.middle[:end] + a.steps[end] * b.steps[end] / 2)
    # Whoever of the two is ahead, both shares and the ties make 1.
    return np.concatenate([_without(a, b, layout), 1.0 - _without(b, a, layout), [whole]])


@dataclass(frozen=True, slots=True, eq=False)
class _CurveSide:
    """One of the two curves, over the merged operations of both."""

    own: BoolArray  # (n,) its operations
    episodes: slice
    steps: FloatArray  # (n + 1,) 1 - F before each operation, and after all
    middle: FloatArray  # (n,) the mean of 1 - F before and after the instant of each operation
    known_to: int  # how many operations it is known for: all, unless its last was censored

    @classmethod
    def of(cls, layout: PairLayout, own: BoolArray, episodes: slice) -> _CurveSide:
        at_risk, rank = int(layout.sizes[episodes].sum()), layout.rank
        still = at_risk - (np.cumsum(own) - own)
        factor = np.where(own & (layout.event > 0), 1.0 - 1.0 / np.maximum(still, 1), 1.0)
        steps: FloatArray = np.cumprod(np.concatenate([[1.0], factor]), dtype=np.float64)
        middle = (steps[np.searchsorted(rank, rank)] + steps[np.searchsorted(rank, rank, side='right')]) / 2
        known_to = len(rank)
        if own.sum() == at_risk and steps[-1] > SLACK:
            known_to = _end_of_instant(rank, int(np.flatnonzero(own)[-1]))
        return cls(own, episodes, steps, middle, known_to)


def _without(side: _CurveSide, other: _CurveSide, layout: PairLayout) -> FloatArray:
    """P(T < T_other), ties halved, with each episode of `side` left out.

    The other side's curve stays as it is, so the AUC is an integral over this side's curve, up to where the other's is
    unknown, plus half of what both have left at the horizon.
    """
    from robotrials.measure.timing.jackknife import kernel

    own, sizes = side.own, layout.sizes[side.episodes]
    places, cluster = np.flatnonzero(own), (layout.cluster[own] - side.episodes.start).astype(np.int32)
    left_out = np.empty((len(sizes), kernel.FIRST_QUANTILE))
    kernel.left_out_curves(
        layout.times_s[own], cluster, layout.event[own], sizes, other.middle[own],
        int(np.searchsorted(places, other.known_to)), np.empty(0), left_out,
    )  # fmt: skip
    ends = np.minimum(_known_to(layout.rank, places, cluster, sizes, left_out[:, kernel.AT_END]), other.known_to)
    return np.asarray(left_out[:, kernel.GAIN] + left_out[:, kernel.AT_STOP] * other.steps[ends] / 2, dtype=np.float64)


def _known_to(
    rank: NDArray[np.int32], places: IntArray, cluster: NDArray[np.int32], sizes: NDArray[np.int32],
    at_end: FloatArray,
) -> IntArray:  # fmt: skip
    """(E,) how many operations of the layout each left-out curve is known for: all, unless its last was censored."""
    known = np.full(len(sizes), len(rank), dtype=np.int64)
    others = int(sizes.sum()) - sizes
    listed = len(places) - np.bincount(cluster, minlength=len(sizes))
    unknown = (others == listed) & (at_end > SLACK)
    if not unknown.any():
        return known
    if len(places):
        known[unknown] = _end_of_instant(rank, int(places[-1]))
        last = int(cluster[-1])
        rest = places[cluster != last]
        if unknown[last]:
            known[last] = _end_of_instant(rank, int(rest[-1]) if len(rest) else 0)
    known[unknown & (others == 0)] = _end_of_instant(rank, 0) if len(rank) else 0
    return known


def _end_of_instant(rank: NDArray[np.int32], place: int) -> int:
    """How many operations end by the instant of the one at `place`."""
    return int(np.searchsorted(rank, rank[place], side='right'))
