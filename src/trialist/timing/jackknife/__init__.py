"""Each episode left out in turn, as BCa intervals need it: in nearly linear time, equal to doing it one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trialist.timing.operation import BoolArray, FloatArray, IntArray
from trialist.timing.resample import PairLayout, SortedCell

SLACK = 1e-12


def scalar_jackknife(cell: SortedCell, *, tau_s: float, levels: Sequence[float] = ()) -> FloatArray:
    """(E + 1, 4 + levels): RMST, F(tau), integral of t dF, plateau and quantiles with each episode left out.

    The last row leaves none out. `levels` increase; a quantile that is not reached is NaN.
    """
    from trialist.timing.jackknife import kernel
    from trialist.timing.kernel import N_SCALARS, curve_scalars

    asked = np.array(levels, dtype=np.float64)
    found = np.empty((cell.n_episodes, kernel.FIRST_QUANTILE + len(asked)))
    n_to_tau = int(np.searchsorted(cell.times_s, tau_s, side='right'))
    kernel.left_out_curves(
        cell.times_s, cell.cluster, cell.event, cell.sizes, cell.times_s, n_to_tau, asked, found
    )  # fmt: skip
    out = np.empty((cell.n_episodes + 1, N_SCALARS + len(asked)))
    moment, missing = found[:, kernel.GAIN], found[:, kernel.AT_STOP]
    # Integrating by parts: the RMST is the integral of t dF up to tau, and tau times what is left.
    out[:-1, 0], out[:-1, 1], out[:-1, 2] = moment + tau_s * missing, 1.0 - missing, moment
    out[:-1, 3], out[:-1, N_SCALARS:] = 1.0 - found[:, kernel.AT_END], found[:, kernel.FIRST_QUANTILE :]
    none_left_out = np.ones(cell.n_episodes, dtype=np.int32)
    curve_scalars(
        cell.times_s, cell.cluster, cell.event, cell.sizes, none_left_out, cell.inverse, tau_s, asked, out[-1]
    )  # fmt: skip
    return out


def auc_jackknife(layout: PairLayout) -> FloatArray:
    """(E,) AUC of a layout of one stratum with each episode left out, a's episodes first."""
    n_a = int(layout.n_a[0])
    is_a = layout.cluster < n_a
    # Whoever of the two is ahead, both shares and the ties make 1.
    return np.concatenate([_without(layout, is_a, 0, n_a), 1.0 - _without(layout, ~is_a, n_a, len(layout.sizes))])


def _without(layout: PairLayout, own: BoolArray, start: int, stop: int) -> FloatArray:
    """P(T < T_other), ties halved, with each of the episodes start..stop - 1 left out; `own` marks their operations.

    The other side's curve stays as it is, so the AUC is an integral over this side's curve, up to where the other's is
    unknown, plus half of what both have left at the horizon.
    """
    from trialist.timing.jackknife import kernel

    rank, sizes = layout.rank, layout.sizes[start:stop]
    steps, horizon = _other_side(layout, ~own, at_risk=int(layout.sizes.sum() - sizes.sum()))
    gain = (steps[np.searchsorted(rank, rank[own])] + steps[np.searchsorted(rank, rank[own], side='right')]) / 2
    places, cluster = np.flatnonzero(own), (layout.cluster[own] - start).astype(np.int32)
    found = np.empty((stop - start, kernel.FIRST_QUANTILE))
    kernel.left_out_curves(
        layout.times_s[own], cluster, layout.event[own], sizes, gain, int(np.searchsorted(places, horizon)),
        np.empty(0), found,
    )  # fmt: skip
    ends = np.minimum(_known_to(rank, places, cluster, sizes, found[:, kernel.AT_END]), horizon)
    return np.asarray(found[:, kernel.GAIN] + found[:, kernel.AT_STOP] * steps[ends] / 2, dtype=np.float64)


def _other_side(layout: PairLayout, other: BoolArray, *, at_risk: int) -> tuple[FloatArray, int]:
    """(n + 1,) the other side's 1 - F before each operation and after all, and how many operations it is known for."""
    still = at_risk - (np.cumsum(other) - other)
    factor = np.where(other & (layout.event > 0), 1.0 - 1.0 / np.maximum(still, 1), 1.0)
    steps: FloatArray = np.cumprod(np.concatenate([[1.0], factor]), dtype=np.float64)
    if other.sum() < at_risk or steps[-1] <= SLACK:
        return steps, len(layout.rank)
    return steps, _end_of_instant(layout.rank, int(np.flatnonzero(other)[-1]))


def _known_to(
    rank: NDArray[np.int32], places: IntArray, cluster: NDArray[np.int32], sizes: NDArray[np.int32],
    at_end: FloatArray,
) -> IntArray:  # fmt: skip
    """(E,) how many operations of the layout each left-out curve is known for: all, unless its last was censored."""
    known = np.full(len(sizes), len(rank), dtype=np.int64)
    others = int(sizes.sum()) - sizes
    listed = len(places) - np.bincount(cluster, minlength=len(sizes))
    unknown = (others == listed) & (at_end > SLACK)
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
