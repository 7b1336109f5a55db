"""One policy in depth, as its submission's page shows it: cells, curves, and how it fails. Read from the analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.measure.timing import FailureModes
from robotrials.measure.timing.incidence import CAUSES, Incidence
from robotrials.service.platform.score import Value, finite, from_rate
from robotrials.stats import Interval, Rate, wilson
from robotrials.verdict.analysis import Absent, Analysis, PolicyCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """Episodes of one task, object and condition."""

    task: str
    stratum: str
    condition: str
    success: Value
    n_invalid: int
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow:
    """One way in which operations end: how many by tau, and the time that it costs."""

    end: str
    by_tau: Value
    time_lost_s: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDetail:
    cells: tuple[CellRow, ...]
    curves: tuple[PolicyCurve, ...]  # over all strata first
    curves_note: str  # why there are none
    tau_text: str
    tau_s: float
    ends: tuple[EndRow, ...]
    failures: FailureModes | None
    attempts: Mapping[str, int]  # episode -> the attempt that counts

    def drawn_curves(self) -> list[dict[str, object]]:
        """The curves as a script draws them."""
        return [
            {'title': c.stratum or 'all objects', 'tau_s': self.tau_s, 'times': c.times_s.tolist(),
             'chance': c.chance.tolist(),
             'low': None if c.low is None else c.low.tolist(), 'high': None if c.high is None else c.high.tolist()}
            for c in self.curves
        ]  # fmt: skip


def policy_detail(analysis: Analysis, policy: str) -> PolicyDetail:
    """What an analysis says of one policy."""
    panels, failures, times = analysis.curves, analysis.failures, analysis.times
    curves: tuple[PolicyCurve, ...] = ()
    if not isinstance(panels, Absent):
        curves = tuple(c for panel in panels.values() for c in panel if c.policy == policy)
    return PolicyDetail(
        cells=_cells(analysis, policy), curves=curves,
        curves_note=panels.reason if isinstance(panels, Absent) else '',
        tau_text='' if isinstance(times, Absent) else times.tau_text,
        tau_s=0.0 if isinstance(times, Absent) else times.tau_s, ends=_ends(analysis, policy),
        failures=None if isinstance(failures, Absent) else next((f for f in failures if f.policy == policy), None),
        attempts={e.episode_id: e.attempt for e in analysis.episodes if e.policy == policy},
    )  # fmt: skip


def _cells(analysis: Analysis, policy: str) -> tuple[CellRow, ...]:
    by_cameras = analysis.by_cameras
    groups: dict[tuple[str, str, str], list[tuple[str, bool, bool | None]]] = {}
    for e in analysis.episodes:
        if e.policy == policy:
            key = e.task, e.stratum, e.condition
            success = e.is_success if by_cameras is None else by_cameras.get(e.key)
            groups.setdefault(key, []).append((e.outcome.value, e.is_valid, success))
    rows = []
    for (task, stratum, condition), episodes in sorted(groups.items()):
        valid = [success for _, is_valid, success in episodes if is_valid]
        rows.append(
            CellRow(
                task=task,
                stratum=stratum,
                condition=condition,
                n_invalid=len(episodes) - len(valid),
                success=_rate(valid, analysis.plan.level),
                outcomes=dict(sorted(Counter(outcome for outcome, _, _ in episodes).items())),
            )
        )
    return tuple(rows)


def _rate(successes: Sequence[bool | None], level: float) -> Value:
    """A share of successes; with an unscored end (None) only what it can be at the least and at the most."""
    n, unscored = len(successes), successes.count(None)
    if not n:
        return Value(n=0, note='no valid episode')
    count = successes.count(True)
    if not unscored:
        return from_rate(Rate(count, n, level))
    low, high = wilson(count, n, level).low, wilson(count + unscored, n, level).high
    return Value(low=low, high=high, n=n, note=f'{unscored} of {n} episodes could not be scored from cameras')


def _ends(analysis: Analysis, policy: str) -> tuple[EndRow, ...]:
    incidences = analysis.incidences
    own = None if isinstance(incidences, Absent) else incidences.get(policy)
    if not isinstance(own, Incidence):
        return ()
    return tuple(
        EndRow(
            end=cause.value.replace('_', ' '),
            by_tau=_value(own.causes[cause].by_tau, own.causes[cause].by_tau_interval),
            time_lost_s=_value(own.causes[cause].time_lost_s, own.causes[cause].time_lost_interval),
        )
        for cause in CAUSES
    )


def _value(value: float, interval: Interval | None) -> Value:
    return Value(
        value=finite(value), low=None if interval is None else finite(interval.low),
        high=None if interval is None else finite(interval.high),
    )  # fmt: skip
