"""Planning from a pilot: detection rates, power, null calibration of the test, and the trial as it is watched."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import NullMethod, Operations
from robotrials.measure.timing.curve import cut
from robotrials.measure.timing.operation import Unit
from robotrials.verdict.analysis.arm import Side
from robotrials.verdict.analysis.contrast import common_cap_s
from robotrials.verdict.analysis.endpoint_pairs import too_few
from robotrials.verdict.analysis.ranking import declared_tau
from robotrials.verdict.analysis.selection import present, stream
from robotrials.verdict.planning import (
    AssumedCell,
    NullSetup,
    WatchedScore,
    bridge_power,
    calibrate_design_effect,
    detection_rate,
    null_calibration,
    watch_trial,
)
from robotrials.verdict.planning.power import DETECTION_PER_CELL, METRICS

if TYPE_CHECKING:
    from robotrials.measure.timing import Cohort
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.ranking import Stream, Times
    from robotrials.verdict.analysis.selection import ComparisonFrame
    from robotrials.verdict.planning import BridgePower, Calibration, DesignCalibration, DetectionStudy, WatchedTrial
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

DETECTION_TRIALS = 300
DETECTION_RESAMPLES = 200
ASSUMED_TAU_S = 120.0  # without a tau: PhAIL's efficiency study
POWER_SIZES = (5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100)
PolicyCells = Mapping[
    str, Mapping[str, Operations | AssumedCell]
]  # policy -> stratum -> a pilot's cell, or an assumption
OnRow = Callable[[int, int], None]
Kept = TypeVar('Kept')


class Planning:
    """Parts of an analysis that look ahead. Every pair has a random stream of its own, whoever else is shown."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._kept: dict[Hashable, object] = {}

    def _once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        if key not in self._kept:
            self._kept[key] = compute()
        return cast('Kept', self._kept[key])

    @property
    def cells(self) -> PolicyCells:
        """The pilot: each ranked policy's operations, followed to the tau of each stratum."""
        return self._once('cells', self._cells)

    def _cells(self) -> PolicyCells:
        frame, times = self._timed()
        return {p: {s: cut(c, times.taus_s[s]) for s, c in times.cohorts[p].cells.items()} for p in frame.policies}

    def _timed(self) -> tuple[ComparisonFrame, Times]:
        return present(self._analysis.frame), present(self._analysis.times)

    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of ranked policies; fewer than two are an error that says why."""
        frame = present(self._analysis.frame)
        lonely = too_few(frame)
        if lonely is not None:
            present(lonely)
        from robotrials.verdict.analysis.endpoint_pairs import pairs_of

        return pairs_of(frame)

    def detection(
        self, *, pairs: Sequence[tuple[str, str]] | None = None, threads: int | None = None,
        on_row: OnRow | None = None, **options: Any,
    ) -> DetectionStudy:  # fmt: skip
        """How often each test rejects at each N, by drawing episodes of the store; KS and RMST to the smallest tau.

        Options are those of `detection_study`.
        """
        _, times = self._timed()
        asked = self.pairs() if pairs is None else list(pairs)
        return self._once(
            ('detection', tuple(asked), *_hashable(options)),
            lambda: detection_study(
                self.cells, stream=self._analysis.stream, pairs=asked, tau_s=min(times.taus_s.values()),
                alpha=self._analysis.plan.alpha, threads=threads, on_row=on_row, **options,
            ),
        )  # fmt: skip

    def design(
        self, study: DetectionStudy, *, fit_on: Sequence[int], method: str = NullMethod.PERMUTATION
    ) -> DesignCalibration:
        """The bridge model fitted at some N of a study and judged at the others."""
        return fitted_design(self.cells, study, stream=self._analysis.stream, fit_on=fit_on, method=method)

    def power(self, a: str, b: str, *, per_cell: Sequence[int] = POWER_SIZES, **options: Any) -> BridgePower:
        """Power of the macro-KS test of one pair, by the bridge model from this pilot."""
        for name in (a, b):
            if name not in self.cells:
                raise UnknownName('policy', name, self.cells)
        first, second = sorted((a, b))
        return self._once(
            ('power', first, second, tuple(per_cell), *_hashable(options)),
            lambda: pair_power(
                self.cells, first, second, stream=self._analysis.stream, per_cell=per_cell,
                **{'alpha': self._analysis.plan.alpha, **options},
            ),
        )  # fmt: skip

    def calibration(
        self, *, n_trials: int, n_resamples: int, setups: Sequence[str] = tuple(NullSetup), label: str | None = None,
        method: str = NullMethod.PERMUTATION, on_row: OnRow | None = None,
    ) -> Calibration:  # fmt: skip
        """Reject rates of the macro-KS test on null data made from these episodes."""
        frame, times = self._timed()
        key = ('calibration', n_trials, n_resamples, tuple(setups), label, str(method))
        cohorts = {p: _named_strata(c, frame, times) for p, c in times.cohorts.items() if c.cells}
        return self._once(
            key,
            lambda: null_calibration(
                cohorts, rng=self._analysis.stream('calibration'), setups=setups, label=label, n_trials=n_trials,
                n_resamples=n_resamples, method=method, on_row=on_row,
            ),
        )  # fmt: skip

    def watched(
        self, *, score: WatchedScore | str = WatchedScore.SUCCESS, tau_s: float | Mapping[str, float] | None = None,
        paired: bool = False, strata: Sequence[str] | None = None, horizon: int | None = None,
        smallest_difference: float | None = None,
    ) -> WatchedTrial:  # fmt: skip
        """What an anytime-valid test may say of every pair now: all policies but the reference, at the plan's alpha."""
        frame = present(self._analysis.frame)
        policies = [p for p in frame.everyone if p != frame.reference]
        if len(policies) < 2:
            policies = list(frame.everyone)
        # The cells of the contrast: by condition where policies were run under several and none is the baseline.
        plan, known = self._analysis.plan, self._analysis.sides
        sides = {p: known.get(p) or Side(p, frame.cells[p], Unit(plan.unit)) for p in policies}
        is_success = WatchedScore(score) is WatchedScore.SUCCESS

        def follow_up(a: str, b: str) -> dict[str, float]:
            cells = [c for c in sides[a].cells if c in sides[b].cells]
            if is_success:
                caps = {c: common_cap_s(sides[a], sides[b], c) for c in cells}
                return {c: cap_s for c, cap_s in caps.items() if cap_s is not None}
            return {} if tau_s is not None else {c: _reach_s(c, (sides[a], sides[b]), plan) for c in cells}

        episodes = [e.replace(stratum=s) for side in sides.values() for s, group in side.cells.items() for e in group]
        return watch_trial(
            [*episodes, *(e for p in policies for e in frame.invalid.get(p, ()))], score=score, tau_s=tau_s,
            paired=paired, strata=strata, alpha=plan.alpha, horizon=horizon,
            smallest_difference=smallest_difference, unit=Unit(plan.unit), follow_up=follow_up,
        )  # fmt: skip


def _hashable(options: Mapping[str, Any]) -> list[Hashable]:
    """Options as part of a key."""
    return [(name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(options.items())]


class AssumedPlanning:
    """The same without a pilot: curves that are assumed, and a seed."""

    def __init__(self, cells: PolicyCells, *, seed: int = 0, tau_s: float | None = None, alpha: float = 0.05) -> None:
        self.cells = cells
        self._seed = seed
        self._tau_s = tau_s
        self._alpha = alpha

    def _stream(self, quantity: str, *names: str) -> np.random.Generator:
        return stream(self._seed, quantity, *names)

    def power(self, a: str, b: str, *, per_cell: Sequence[int] = POWER_SIZES, **options: Any) -> BridgePower:
        return pair_power(
            self.cells, a, b, stream=self._stream, per_cell=per_cell, tau_s=self._tau_s, alpha=self._alpha, **options
        )

    def detection(self, **options: Any) -> DetectionStudy:
        """Options are those of `detection_study`."""
        tau_s = ASSUMED_TAU_S if self._tau_s is None else self._tau_s
        return detection_study(self.cells, stream=self._stream, tau_s=tau_s, alpha=self._alpha, **options)

    def design(
        self, study: DetectionStudy, *, fit_on: Sequence[int], method: str = NullMethod.PERMUTATION
    ) -> DesignCalibration:
        return fitted_design(self.cells, study, stream=self._stream, fit_on=fit_on, method=method)


def detection_study(
    cells: PolicyCells, *, stream: Stream, pairs: Sequence[tuple[str, str]] | None = None, tau_s: float, alpha: float,
    per_cell: Sequence[int] = DETECTION_PER_CELL, metrics: Sequence[str] = METRICS, n_trials: int = DETECTION_TRIALS,
    n_resamples: int = DETECTION_RESAMPLES, method: str = NullMethod.PERMUTATION, threads: int | None = None,
    on_row: OnRow | None = None,
) -> DetectionStudy:  # fmt: skip
    """A study of pairs, each with a stream of its own, so that no rate depends on which others were asked for."""
    names = sorted(cells)
    asked = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]] if pairs is None else list(pairs)
    if not asked:
        raise InputError(f'wanted at least two policies to compare, found {len(names)}')
    studies = []
    for k, pair in enumerate(asked):
        first, second = _known(cells, pair)
        advance = None if on_row is None else _shifted(on_row, k, len(asked))
        study = detection_rate(
            cells, rng=stream('detection', first, second), per_cell=per_cell, pairs=[(first, second)], metrics=metrics,
            tau_s=tau_s, n_trials=n_trials, n_resamples=n_resamples, alpha=alpha, method=method, missing='drop',
            threads=threads, on_row=advance,
        )  # fmt: skip
        studies.append(replace(study, rows=tuple(replace(r, policy_a=pair[0], policy_b=pair[1]) for r in study.rows)))
    return replace(studies[0], rows=tuple(row for study in studies for row in study.rows))


def _shifted(on_row: OnRow, k: int, n: int) -> OnRow:
    return lambda done, total: on_row(k * total + done, n * total)


def _known(cells: PolicyCells, pair: tuple[str, str]) -> tuple[str, str]:
    for name in pair:
        if name not in cells:
            raise UnknownName('policy', name, cells)
    first, second = sorted(pair)
    return first, second


def pair_power(
    cells: PolicyCells, a: str, b: str, *, stream: Stream, per_cell: Sequence[int], **options: Any
) -> BridgePower:
    """The bridge model of one pair on the strata that both have."""
    first, second = _known(cells, (a, b))
    return bridge_power(
        cells[first], cells[second], rng=stream('bridge', first, second), per_cell=per_cell, missing='drop', **options
    )


def fitted_design(
    cells: PolicyCells, study: DetectionStudy, *, stream: Stream, fit_on: Sequence[int], method: str
) -> DesignCalibration:
    """The design effect at which the bridge model meets the KS rates of a study."""
    if 'ks' not in study.metrics:
        raise InputError('the bridge model is judged by KS rates; keep ks among the metrics')
    return calibrate_design_effect(
        {f'{x} {y}': (cells[x], cells[y]) for x, y in study.pairs},
        {f'{x} {y}': study.rates((x, y), 'ks') for x, y in study.pairs},
        fit_on=fit_on, rng=stream('design effect'), alpha=study.alpha, tau_s=study.tau_s, method=method,
    )  # fmt: skip


def _reach_s(cell: str, arms: Sequence[Side], plan: AnalysisPlan) -> float:
    """The declared tau, or the smallest time cap, but no further than every episode of the cell was followed to."""
    episodes = [e for side in arms for e in side.cells[cell]]
    declared = None if plan.tau_s is None else declared_tau(cell, episodes[0], plan.tau_s)
    reaches = [min((t for t in (declared, e.time_cap_s) if t is not None), default=None) for e in episodes]
    if any(t is None for t in reaches):
        raise InputError('some episodes do not say their time cap; give the tau up to which promptness counts')
    return min(t for t in reaches if t is not None)


def _named_strata(cohort: Cohort, frame: ComparisonFrame, times: Times) -> Cohort:
    """The cohort cut at each stratum's tau, its episodes carrying the names that strata have in the analysis."""
    episodes = tuple(e.replace(stratum=frame.stratum_of(e)) for e in cohort.episodes if e.is_valid)
    return replace(cohort, episodes=episodes, cells={s: cut(c, times.taus_s[s]) for s, c in cohort.cells.items()})


__all__ = ['AssumedPlanning', 'Planning', 'detection_study', 'fitted_design', 'pair_power']
