"""Null calibration: does the macro-KS test reject at its nominal rate on data like yours? (PhAIL, Appendix J)"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.cohort import Cohort, find_cohort
from robotrials.measure.timing.ks import PValueRule, macro_ks_trials
from robotrials.measure.timing.label import check_label, label_reader
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations, stratum_of
from robotrials.measure.timing.reference import shared_strata
from robotrials.measure.timing.resample import NullMethod, PairLayout, pair_layout
from robotrials.stats import Interval, wilson

ALPHAS = (0.01, 0.05, 0.10)
LEAST_EPISODES = 30


class NullSetup(enum.StrEnum):
    SAME_POLICY = 'same_policy'  # one policy's episodes halved within each stratum
    REFERENCE = 'reference'  # the same with the reference
    PERMUTATION = 'permutation'  # two policies' labels shuffled within stratum x label


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationRow:
    """One null scenario: its p-values, which should be uniform."""

    setup: NullSetup
    name: str
    p_values: FloatArray  # (trials,)

    @property
    def mean_p(self) -> float:
        return float(self.p_values.mean())

    def rejection(self, alpha: float) -> tuple[float, Interval]:
        """Share of p-values at or below alpha, with its Monte-Carlo (Wilson) interval."""
        count = int(np.count_nonzero(self.p_values <= alpha + 1e-12))
        return count / len(self.p_values), wilson(count, len(self.p_values))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    rows: tuple[CalibrationRow, ...]
    method: NullMethod
    rule: PValueRule
    n_trials: int
    n_resamples: int
    skipped: tuple[str, ...]  # scenarios that the data do not allow, and why


def null_calibration(
    found: Mapping[str, Cohort], *, rng: np.random.Generator, setups: Iterable[NullSetup | str] = tuple(NullSetup),
    pairs: Sequence[tuple[str, str]] | None = None, label: str | None = None, n_trials: int = 500,
    n_resamples: int = 500, method: NullMethod | str = NullMethod.PERMUTATION,
    rule: PValueRule | str = PValueRule.PLUS_ONE, tau_s: float | None = None, threads: int | None = None,
    on_row: Callable[[int, int], None] | None = None,
) -> Calibration:  # fmt: skip
    """Run the whole test on data in which nothing differs by construction, made from your own episodes.

    `label` refines the permutation blocks (the paper: tote placement); `pairs` default to all pairs of policies;
    `on_row(done, total)` is told of progress.
    """
    method, rule = NullMethod(method), PValueRule(rule)
    if method is NullMethod.PAIRED_SWAP:
        raise InputError('paired_swap has no null splits; calibrate permutation or pooled_bootstrap')
    if n_trials < 1 or n_resamples < 1:
        raise InputError(f'n_trials is {n_trials} and n_resamples {n_resamples}, wanted at least 1 of each')
    wanted = [NullSetup(s) for s in setups]
    if label is not None:
        check_label(found, label)
    rows, skipped = [], []
    scenarios = _scenarios(found, wanted, pairs)
    for done, (setup, name, a, b) in enumerate(scenarios):
        if on_row is not None:
            on_row(done, len(scenarios))
        if a.n_episodes < LEAST_EPISODES:
            skipped.append(f'{name}: {a.n_episodes} episodes, wanted at least {LEAST_EPISODES}')
            continue
        layout, units, n_a, n_b = (
            _halves(a, n_trials, rng, tau_s) if b is None else _shuffles(a, b, label, n_trials, rng, tau_s)
        )
        trials = macro_ks_trials(
            layout, units, n_a=n_a, n_b=n_b, n_resamples=n_resamples, rng=rng, method=method, threads=threads
        )
        rows.append(CalibrationRow(setup, name, trials.p_values(rule)))
    if not rows:
        raise NotEstimable('no scenario could be run: ' + ('; '.join(skipped) or 'no policy matches the setups asked'))
    return Calibration(tuple(rows), method, rule, n_trials, n_resamples, tuple(skipped))


def _scenarios(
    found: Mapping[str, Cohort], setups: Sequence[NullSetup], pairs: Sequence[tuple[str, str]] | None
) -> list[tuple[NullSetup, str, Cohort, Cohort | None]]:
    from itertools import combinations

    models = [c for c in found.values() if not c.is_reference]
    listed: list[tuple[NullSetup, str, Cohort, Cohort | None]] = []
    if NullSetup.SAME_POLICY in setups:
        listed += [(NullSetup.SAME_POLICY, c.policy, c, None) for c in models]
    if NullSetup.REFERENCE in setups:
        listed += [(NullSetup.REFERENCE, c.policy, c, None) for c in found.values() if c.is_reference]
    if NullSetup.PERMUTATION in setups:
        named = None if pairs is None else [(find_cohort(found, x), find_cohort(found, y)) for x, y in pairs]
        chosen = list(combinations(models, 2)) if named is None else named
        listed += [(NullSetup.PERMUTATION, f'{a.policy} ↔ {b.policy}', a, b) for a, b in chosen]
    return listed


Arrangements = tuple[PairLayout, NDArray[np.int32], IntArray, IntArray]


def _halves(cohort: Cohort, n_trials: int, rng: np.random.Generator, tau_s: float | None) -> Arrangements:
    cells = {s: c for s, c in cohort.cells.items() if c.n_episodes >= 2}
    if not cells:
        raise NotEstimable(f'{cohort.policy}: no stratum has two episodes to split')
    nothing = Operations(np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=np.int64))
    layout = pair_layout(cells, dict.fromkeys(cells, nothing), tau_s=tau_s)
    sizes = np.array([c.n_episodes for c in cells.values()], dtype=np.int64)
    columns = [rng.permuted(np.tile(np.arange(n), (n_trials, 1)), axis=1) for n in sizes]
    half = sizes // 2
    return layout, np.concatenate(columns, axis=1).astype(np.int32), half, sizes - half


def _shuffles(
    a: Cohort, b: Cohort, label: str | None, n_trials: int, rng: np.random.Generator, tau_s: float | None
) -> Arrangements:
    both, _ = shared_strata(a.cells, b.cells, missing='drop')
    layout = pair_layout({s: a.cells[s] for s in both}, {s: b.cells[s] for s in both}, tau_s=tau_s)
    columns = []
    for s in both:
        one, other = (np.asarray(_block_values(c, s, label)) for c in (a, b))
        columns.append(_blockwise(one, other, n_trials, rng))
    return layout, np.concatenate(columns, axis=1).astype(np.int32), layout.n_a, layout.n_b


def _block_values(cohort: Cohort, stratum: str, label: str | None) -> list[str]:
    """The block of each scored episode of the stratum, in the order of its Operations."""
    own = [e for e in cohort.valid if stratum_of(e) == stratum]
    read = label_reader(label) if label else (lambda _: '')
    return [read(e) or '' for e in own]


def _blockwise(a: NDArray[np.str_], b: NDArray[np.str_], n_trials: int, rng: np.random.Generator) -> IntArray:
    """Rows of episode places with labels shuffled within blocks, each block keeping how many are a's."""
    blocks = np.concatenate([a, b])
    units = np.tile(np.arange(len(blocks)), (n_trials, 1))
    for value in np.unique(blocks):
        places = np.flatnonzero(blocks == value)
        units[:, places] = rng.permuted(units[:, places], axis=1)
    return units
