"""The leaderboard as RADAR prints it: splits and conditions across, successes of n everywhere, drops with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Episode
from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.robustness import conditions_by_severity


@dataclass(frozen=True, slots=True, kw_only=True)
class GridField:
    """Successes of n episodes; under a changed condition also the paired drop from the baseline, in shares."""

    successes: int = 0
    n: int = 0
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ''  # why there is no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One policy: its splits and their total under the baseline, then each condition over all splits."""

    policy: str
    splits: Mapping[str, GridField]
    total: GridField
    conditions: Mapping[str, GridField]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardGrid:
    """Every number with what it rests on; a policy with one episode has a row."""

    baseline: str
    splits: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    rows: tuple[GridRow, ...] = field(default=())


def make_grid(analysis: Analysis, policies: Iterable[str]) -> BoardGrid:
    """The grid of these policies, in their order. Missing episodes count as failures, as everywhere on a board."""
    baseline = analysis.plan.baseline
    valid = [e for e in analysis.episodes if e.is_valid]
    named = conditions_by_severity(valid)
    splits = tuple(sorted({e.cell for e in valid}))
    conditions = tuple(dict.fromkeys(named(e) for e in valid if e.condition != baseline))
    drops = {}
    if conditions:
        try:
            found = condition_drops(analysis.episodes, analysis.plan, rng=analysis.stream('drops'))  # as a report does
            drops = {(d.policy, d.condition): d for d in found}
        except (InputError, NotEstimable):
            pass  # counts are shown all the same; each field says that it has no drop
    rows = []
    for policy in policies:
        own = [e for e in valid if e.policy == policy]
        at_baseline = [e for e in own if e.condition == baseline]
        fields = {}
        for condition in conditions:
            told = drops.get((policy, condition))
            interval = None if told is None else told.success_interval
            counted = _counted(e for e in own if e.condition != baseline and named(e) == condition)
            fields[condition] = GridField(
                successes=counted.successes, n=counted.n, drop=None if told is None else told.success_drop,
                low=None if interval is None else interval.low, high=None if interval is None else interval.high,
                note='' if interval is not None else (told.note if told is not None else 'no episodes to compare with'),
            )  # fmt: skip
        by_split = {name: _counted(e for e in at_baseline if e.cell == name) for name in splits}
        rows.append(GridRow(policy=policy, splits=by_split, total=_counted(at_baseline), conditions=fields))
    return BoardGrid(baseline=baseline, splits=splits, conditions=conditions, rows=tuple(rows))


def _counted(episodes: Iterable[Episode]) -> GridField:
    listed = list(episodes)
    return GridField(successes=sum(e.is_success for e in listed), n=len(listed))
