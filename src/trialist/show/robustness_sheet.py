"""Tables of robustness by name, from a store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trialist.episodes import read_store
from trialist.errors import NotEstimable
from trialist.robustness import (
    ConditionRow,
    by_severity,
    compound_effects,
    condition_rows,
    dose_responses,
    drops_from_baseline,
    spatial_sensitivities,
    swap_tests,
    swap_trial,
)
from trialist.show.request import ShowRequest, apart
from trialist.show.robustness import (
    compound_table,
    dose_table,
    drop_table,
    estimate_table,
    spatial_table,
    split_table,
    swap_table,
)
from trialist.show.robustness_plot import BASELINE, requested_episodes, requested_starts, requested_trials
from trialist.show.table import Cell, Column, Table, table

COMPOUND = 'chaos'


@apart
def condition_success(request: ShowRequest) -> list[Table]:
    """Success in percent: policies down, conditions across, with the counts below."""
    rows = _rows(request)
    conditions = list(dict.fromkeys(r.condition for r in rows))
    found = {(r.policy, r.condition): r.summary for r in rows}
    policies = list(dict.fromkeys(r.policy for r in rows))
    lines: list[Sequence[Cell]] = []
    for policy in policies:
        cells = [found.get((policy, condition)) for condition in conditions]
        lines.append([policy, *(None if s is None else 100 * s.successes / s.n for s in cells)])
    sizes = sorted({r.summary.n for r in rows})
    each = f'{sizes[0]} episodes' if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]} episodes'
    columns: list[str | Column] = ['policy', *(Column(name, '.1f') for name in conditions)]
    return [table('Success by condition (%)', columns, lines, note=f'{each} a policy and condition.')]


@apart
def condition_drops(request: ShowRequest) -> list[Table]:
    """What each condition costs each policy in success and IoU, with intervals and corrected p-values."""
    found = drops_from_baseline(
        requested_trials(request), baseline=BASELINE, n_resamples=request.n_resamples, rng=_rng(request)
    )
    return [drop_table(found)]


@apart
def doses(request: ShowRequest) -> list[Table]:
    """Success against the severity of each condition, with a trend test."""
    found = dose_responses(requested_trials(request), baseline=BASELINE)
    if not found:
        raise NotEstimable('no condition was run at two severities; a dose-response needs a ladder')
    return [dose_table(found)]


@apart
def compound(request: ShowRequest) -> list[Table]:
    """Is the compound condition (`chaos`) worse than the sum of its parts?"""
    found = compound_effects(
        requested_trials(request), compound=COMPOUND, baseline=BASELINE, n_resamples=request.n_resamples,
        rng=_rng(request),
    )  # fmt: skip
    return [compound_table(found)]


@apart
def swap(request: ShowRequest) -> list[Table]:
    """Does the policy act on the instruction? The same scenes under other instructions."""
    store = read_store(request.store) if request.store is not None else None
    rows = [
        swap_trial(e, store.trajectory(e) if store else None)
        for e in requested_episodes(request)
        if e.condition == BASELINE
    ]
    found = swap_tests([r for r in rows if r is not None], n_resamples=request.n_resamples, rng=_rng(request))
    return [swap_table(found)]


@apart
def spatial(request: ShowRequest) -> list[Table]:
    """Does success depend on where the object started?"""
    found = spatial_sensitivities(requested_starts(request), n_resamples=request.n_resamples, rng=_rng(request))
    return [spatial_table(found)]


@apart
def splits_by_policy(request: ShowRequest) -> list[Table]:
    """SR, IoU and translation error of every split, a line a policy: under the nominal condition if it was run."""
    rows = _rows(request)
    nominal = [r for r in rows if r.condition == BASELINE]
    shown = nominal or rows
    names = list(dict.fromkeys(r.condition for r in shown))
    return [
        split_table([r for r in shown if r.condition == name], by='policy', title=f'Placement, condition {name}')
        for name in names
    ]


@apart
def splits_by_condition(request: ShowRequest) -> list[Table]:
    """SR, IoU and translation error of every split, a line a condition, one table a policy."""
    rows = _rows(request)
    return [
        split_table([r for r in rows if r.policy == name], by='condition', title=f'Placement, policy {name}')
        for name in dict.fromkeys(r.policy for r in rows)
    ]


@apart
def split_estimates(request: ShowRequest) -> list[Table]:
    """Success rate, IoU and translation error of every policy and condition, with intervals."""
    return [estimate_table(_rows(request, n_resamples=request.n_resamples))]


def _rows(request: ShowRequest, *, n_resamples: int = 1) -> list[ConditionRow]:
    return condition_rows(by_severity(requested_trials(request)), n_resamples=n_resamples, rng=_rng(request))


def _rng(request: ShowRequest) -> np.random.Generator:
    return np.random.default_rng(request.seed)
