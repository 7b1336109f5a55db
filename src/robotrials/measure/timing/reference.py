"""Against a reference: human-relative throughput (HRT) and AUC = P(T < T_reference), per cell and macro."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing.better import hrt_estimate
from robotrials.measure.timing.curve import SuccessCurve, check_tau
from robotrials.measure.timing.jackknife import auc_jackknife
from robotrials.measure.timing.operation import Operations
from robotrials.measure.timing.resample import pair_layout, spread
from robotrials.measure.timing.scalar import Draws, ResampledCell, estimate, macro_mean, ratio, resampled_cells
from robotrials.measure.timing.unit import tau_of
from robotrials.stats import Estimate, Interval, RatioKind, UnseenRule
from robotrials.stats.allowance import FEWEST_PER_CELL, Spread
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RelativeScore:
    """A scalar against the reference: macro over the strata both have, and in each of them."""

    macro: Estimate
    per_stratum: Mapping[str, Estimate]
    dropped: tuple[str, ...]  # strata that only one of the two has, left out
    rows: Mapping[str, Estimate] = field(default_factory=dict)  # further readings of a ratio, by name

    @property
    def value(self) -> float | None:
        return self.macro.value


def check_cells(cells: object) -> None:
    """Raise InputError unless this maps strata to Operations."""
    if isinstance(cells, Operations):
        raise InputError("wanted stratum -> Operations, found Operations alone; for a single cell pass {'all': them}")
    if not isinstance(cells, Mapping):
        raise InputError(
            f'wanted a mapping of stratum -> Operations, found {type(cells).__name__}; '
            'operations_by_stratum(episodes) and Cohort.cells are such mappings'
        )
    for stratum, cell in cells.items():
        if not isinstance(cell, Operations):
            raise InputError(f'stratum {stratum!r} holds {type(cell).__name__}, wanted Operations')


def shared_strata(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, missing: str = 'refuse'
) -> tuple[list[str], tuple[str, ...]]:
    """Strata with operations in both, in a's order, and those in only one: refused, or dropped by name."""
    for cells in (a, b):
        check_cells(cells)
    filled = [{s for s, cell in cells.items() if cell.n_operations} for cells in (a, b)]
    shared = [s for s in a if s in filled[0] & filled[1]]
    lonely = tuple(sorted((set(a) | set(b)) - set(shared)))
    if missing not in ('refuse', 'drop'):
        raise InputError(f"missing is {missing!r}, wanted 'refuse' or 'drop'")
    if not shared:
        raise InputError(
            f'no stratum has operations of both; first: {sorted(filled[0])}, second: {sorted(filled[1])}. Run both on '
            'the same strata, or give them one name (--map stratum=COLUMN at import)'
        )
    if lonely and missing == 'refuse':
        raise InputError(
            f'strata with operations of only one of the two: {", ".join(lonely)}; run them, or leave them out with '
            '--drop (missing="drop" in Python)'
        )
    return shared, lonely


def hrt(
    model: Mapping[str, Operations], reference: Mapping[str, Operations], *, tau_s: float | Mapping[str, float] = 240.0,
    n_resamples: int = 1000, rng: np.random.Generator, level: float = 0.95, missing: str = 'refuse',
    threads: int | None = None,
) -> RelativeScore:  # fmt: skip
    """Human-relative throughput: RMST_reference / RMST_model in each stratum, then their equal-weight mean.

    A fraction, not a percentage. Both sides vary. `rows` of the result has two more readings by name: the ratio of the
    macro means, and the mean of ratios with the reference taken as fixed, whose unseen failures are most of the width.
    """
    common, dropped = shared_strata(model, reference, missing=missing)
    for stratum in common:
        check_tau(tau_of(tau_s, stratum))
    ours, theirs = (
        resampled_cells({s: cells[s] for s in common}, n_resamples=n_resamples, rng=rng, threads=threads)
        for cells in (model, reference)
    )
    per = {s: hrt_draws(ours[s], theirs[s], tau_of(tau_s, s)) for s in common}
    relative = _relative(per, dropped, level)
    shared = {s: model[s] for s in common}
    return RelativeScore(
        macro=_judged(relative.macro, shared, reference, tau_s, level),
        per_stratum={s: _judged(e, {s: model[s]}, reference, tau_s, level) for s, e in relative.per_stratum.items()},
        dropped=dropped,
        rows={
            kind.value: _judged(relative.macro, shared, reference, tau_s, level, kind)
            for kind in (RatioKind.RATIO_OF_MEANS, RatioKind.FIXED_REFERENCE)
        },
    )


def _judged(
    plain: Estimate, model: Mapping[str, Operations], reference: Mapping[str, Operations],
    tau_s: float | Mapping[str, float], level: float, kind: RatioKind = RatioKind.MEAN_OF_RATIOS,
) -> Estimate:  # fmt: skip
    """The ratio with the rule's interval, or why there is none."""
    judged = hrt_estimate(model, reference, tau_s=tau_s, level=level, kind=kind)
    value = judged.value if kind is RatioKind.RATIO_OF_MEANS else plain.value
    return replace(plain, value=value, interval=judged.interval, n=judged.n_units, note=judged.withheld)


def hrt_draws(model: ResampledCell, reference: ResampledCell, tau_s: float) -> Draws:
    """One cell's ratio of restricted means."""
    return ratio(reference.rmst(tau_s), model.rmst(tau_s))


def curve_auc(a: SuccessCurve, b: SuccessCurve, *, tau_s: float | None = None) -> float:
    """P(Ta < Tb) + P(Ta = Tb)/2 from two curves; AUC(a, b) + AUC(b, a) = 1.

    Mass beyond the horizon is tied: beyond tau_s, or beyond the first time from which either curve is unknown.
    """
    horizon = min(np.inf if tau_s is None else tau_s, a.followed_to_s, b.followed_to_s)
    times = np.union1d(a.times_s, b.times_s)
    times = times[times <= horizon]
    fa, fb = (np.concatenate([[0.0], np.atleast_1d(c.at(times))]) for c in (a, b))
    won = np.diff(fa) * (1.0 - fb[1:] + np.diff(fb) / 2)
    return float(won.sum() + (1.0 - fa[-1]) * (1.0 - fb[-1]) / 2)


def auc(
    model: Mapping[str, Operations], reference: Mapping[str, Operations], *,
    tau_s: float | Mapping[str, float] | None = None,
    n_resamples: int = 1000, rng: np.random.Generator, level: float = 0.95, missing: str = 'refuse',
    threads: int | None = None,
) -> RelativeScore:  # fmt: skip
    """P(T_model < T_reference) with ties halved, infinity tied with infinity: per stratum, and their mean."""
    shared, dropped = shared_strata(model, reference, missing=missing)
    if tau_s is not None:
        for stratum in shared:
            check_tau(tau_of(tau_s, stratum))
    ours, theirs = (
        resampled_cells({s: cells[s] for s in shared}, n_resamples=n_resamples, rng=rng, threads=threads)
        for cells in (model, reference)
    )
    per = {
        s: auc_draws(model[s], reference[s], seeds=(ours[s].seed, theirs[s].seed),
                     tau_s=None if tau_s is None else tau_of(tau_s, s), n_resamples=n_resamples, threads=threads)
        for s in shared
    }  # fmt: skip
    relative = _relative(per, dropped, level)
    return replace(
        relative,
        macro=_compared(relative.macro, list(per.values()), level),
        per_stratum={s: _compared(e, [per[s]], level) for s, e in relative.per_stratum.items()},
    )


def _compared(plain: Estimate, parts: Sequence[Draws], level: float) -> Estimate:
    """An AUC with the interval of R: resampling 3 to 5 episodes per cell does not cover."""
    if plain.value is None:
        return plain
    terms, dof, sizes = [], [], []
    for part in parts:
        for arm in (0, 1):
            left = part.left_out[part.group == arm]
            n = len(left)
            if n < FEWEST_PER_CELL:
                note = f'{n} episodes in a cell; at least {FEWEST_PER_CELL} are needed'
                return replace(plain, interval=None, note=note)
            terms.append((n - 1) / n * float(np.sum((left - left.mean()) ** 2)))
            dof.append(n - 1.0)
            sizes.append(n)
    rule = UnseenRule(
        plain.value, Spread(np.array(terms) / len(parts) ** 2, np.array(dof)), len(parts) * min(sizes), 0.5
    )
    interval: Interval = rule.interval(level, low=0.0, high=1.0)
    return replace(plain, interval=interval)


def _relative(per: Mapping[str, Draws], dropped: tuple[str, ...], level: float) -> RelativeScore:
    return RelativeScore(
        macro=estimate(macro_mean(list(per.values())), level=level),
        per_stratum={s: estimate(d, level=level) for s, d in per.items()},
        dropped=dropped,
    )


def auc_draws(
    a: Operations, b: Operations, *, seeds: tuple[np.uint64, np.uint64], tau_s: float | None, n_resamples: int,
    threads: int | None = None,
) -> Draws:  # fmt: skip
    """One cell's AUC with its bootstrap draws and jackknife; each side resampled by its own seed."""
    from robotrials.measure.timing import kernel

    layout = pair_layout({'': a}, {'': b}, tau_s=tau_s)
    arrays = (layout.rank, layout.cluster, layout.event)
    n_a, n = a.n_episodes, a.n_episodes + b.n_episodes
    draws = np.empty(n_resamples)

    def work(start: int, stop: int) -> None:
        kernel.bootstrap_auc(*arrays, layout.sizes, n_a, *seeds, start, draws[start:stop])

    spread(n_resamples, work, steps_a_row=len(layout.times_s), threads=threads)
    left = auc_jackknife(layout)
    return Draws(float(left[-1]), draws, left[:-1], (np.arange(n) >= n_a).astype(np.int64))
