"""Tables of time-to-success by name, from a store."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trialist.analysis.pairs import compare_all
from trialist.errors import InputError, NotEstimable
from trialist.planning import null_calibration
from trialist.robustness import episodes_by_severity
from trialist.show.record import count_tables
from trialist.show.request import Input, ShowRequest, takes
from trialist.show.table import Cell, Column, Table, table
from trialist.show.timing import (
    all_pairs_table,
    calibration_table,
    failure_tables,
    headline_table,
    label_table,
    logrank_table,
    scalar_table,
    stratum_difference_table,
)
from trialist.timing import (
    Cohort,
    RelativeScore,
    Scale,
    SuccessCount,
    cohorts,
    failure_modes,
    find_cohort,
    find_reference,
    hrt,
    logrank_pairs,
    recorded_times,
    score_cohort,
    sensitivity_table,
    stratum_differences,
    success_counts,
)

CALIBRATION_TRIALS = 500
# PhAIL's Table 1; UPH by the first formula there, and MTBF/A of the whole episode.
DEFINITIONS = (
    ('success rate at τ', 'F(τ)'),
    ('median time to success', 'smallest t with F(t) ≥ 0.5'),
    ('RMST(τ), restricted mean time', 'integral of 1 - F(t) from 0 to τ'),
    ('UPH, units per hour', '3600 / E[T given T < τ], or 3600 / RMST(τ)'),
    ('completion fraction', 'F(τ) at the time budget of the episode'),
    ('MTBF/A, mean time between failures or assists', 'RMST(τ) / (1 - F(τ))'),
    ('HRT, relative throughput', 'RMST(τ) of the reference / RMST(τ), mean over strata'),
    ('AUC', 'P(T < T of the reference), mean over strata'),
)


def headline(request: ShowRequest) -> list[Table]:
    """RMST and HRT with intervals, intervention rate and episodes of every policy, best first."""
    found, anchor = requested_cohorts(request)
    rng = np.random.default_rng(request.seed)
    scale = Scale(tau_s=request.tau_s)
    scores = [score_cohort(c, scale=scale, n_resamples=request.n_resamples, rng=rng) for c in found.values()]
    relative: dict[str, RelativeScore] = {}
    for name, cohort in found.items():
        if anchor is not None and name != anchor.policy and cohort.cells.keys() & anchor.cells.keys():
            relative[name] = hrt(
                cohort.cells, anchor.cells, tau_s=request.tau_s, n_resamples=request.n_resamples, rng=rng,
                missing='drop',
            )  # fmt: skip
    reference = anchor.policy if anchor else None
    return [
        headline_table(
            scores, relative, tau_s=request.tau_s, n_resamples=request.n_resamples, reference=reference
        )
    ]  # fmt: skip


def scalars(request: ShowRequest) -> list[Table]:
    """Every scalar of the success curve with its intervals, macro over strata, one table a policy."""
    found, _ = requested_cohorts(request)
    rng = np.random.default_rng(request.seed)
    scale = Scale(tau_s=request.tau_s)
    return [
        scalar_table(score_cohort(cohort, scale=scale, n_resamples=request.n_resamples, rng=rng))
        for cohort in found.values()
    ]


@takes(Input.NOTHING)
def scalar_definitions(request: ShowRequest) -> list[Table]:
    """What each scalar is as a function of the success curve F(t)."""
    return [table('Scalars of the success curve', ['scalar', 'of F(t)'], DEFINITIONS)]


def pairs(request: ShowRequest) -> list[Table]:
    """Every pair of policies: KS, corrected p-values, and what may be said about them."""
    models, anchor = _models(request, 'pairs')
    found = compare_all(
        models, rng=np.random.default_rng(request.seed), reference=anchor, scale=Scale(tau_s=request.tau_s),
        n_resamples=request.n_resamples, missing='drop',
    )  # fmt: skip
    return [all_pairs_table(found)]


def logrank(request: ShowRequest) -> list[Table]:
    """Logrank tests of every pair, stratified and pooled, corrected over the pairs."""
    models, _ = _models(request, 'logrank')
    return [logrank_table(logrank_pairs(list(itertools.combinations(models, 2)), missing='drop'))]


def differences(request: ShowRequest) -> list[Table]:
    """RMST differences of every pair in every stratum, corrected over all of them."""
    models, _ = _models(request, 'stratum-differences')
    rows = stratum_differences(
        list(itertools.combinations(models, 2)), tau_s=request.tau_s, n_resamples=request.n_resamples,
        rng=np.random.default_rng(request.seed), missing='drop',
    )  # fmt: skip
    return [stratum_difference_table(rows)]


def failures(request: ShowRequest) -> list[Table]:
    """How operations and episodes of every policy failed."""
    found, _ = requested_cohorts(request)
    return failure_tables([failure_modes(c, tau_s=request.tau_s) for c in found.values()])


def labels(request: ShowRequest) -> list[Table]:
    """Completion by a label of the episodes, such as the side of the camera; --label says which."""
    found, anchor = requested_cohorts(request)
    known = sorted({key for c in found.values() for e in c.episodes for key in e.labels})
    if request.label is None:
        raise InputError(f'labels wants --label; the episodes have: {", ".join(known) or "none"}')
    models = {name: c for name, c in found.items() if anchor is None or name != anchor.policy} or found
    return [label_table(sensitivity_table(models, label=request.label, rng=np.random.default_rng(request.seed)))]


def calibration(request: ShowRequest) -> list[Table]:
    """Rejection rates of the macro-KS test on null data made from the store's own episodes."""
    found, _ = requested_cohorts(request)
    result = null_calibration(
        found, rng=np.random.default_rng(request.seed), label=request.label,
        n_trials=min(CALIBRATION_TRIALS, request.n_resamples), n_resamples=request.n_resamples,
    )  # fmt: skip
    return [calibration_table(result)]


def recorded(request: ShowRequest) -> list[Table]:
    """Valid episodes and minutes of every stratum."""
    found = recorded_times(request.chosen())
    rows: list[Sequence[Cell]] = [(r.stratum, r.n_episodes, r.duration_s / 60) for r in found]
    rows.append(('all', sum(r.n_episodes for r in found), sum(r.duration_s for r in found) / 60))
    return [table('What was recorded', ['stratum', 'episodes', Column('duration (min)', '.1f')], rows)]


def task_success(request: ShowRequest) -> list[Table]:
    """Success of every task, conditions across, one table a policy; with intervals where there is one condition."""
    found = success_counts(episodes_by_severity(request.chosen()))
    return [_task_table(p, [c for c in found if c.policy == p]) for p in dict.fromkeys(c.policy for c in found)]


def _task_table(policy: str, counts: Sequence[SuccessCount]) -> Table:
    conditions = list(dict.fromkeys(c.condition for c in counts))
    by_key = {(c.task, c.condition): c for c in counts}
    is_single = len(conditions) == 1
    columns: list[str | Column] = ['task']
    for name in conditions:
        columns += [f'{name} successes', Column(f'{name} %', '.1f')]
    columns += [Column('low', '.1f'), Column('high', '.1f')] if is_single else []
    rows: list[Sequence[Cell]] = []
    for task in dict.fromkeys(c.task for c in counts):
        row: list[Cell] = [task]
        for name in conditions:
            cell = by_key.get((task, name))
            row += [None, None] if cell is None else [f'{cell.successes}/{cell.n}', 100 * cell.successes / cell.n]
        rows.append([*row, *((100 * end for end in by_key[task, conditions[0]].interval) if is_single else ())])
    last: list[Cell] = ['all']
    for name in conditions:
        done, n = (sum(getattr(c, what) for c in counts if c.condition == name) for what in ('successes', 'n'))
        last += [f'{done}/{n}', 100 * done / n]
    rows.append([*last, *((None, None) if is_single else ())])
    note = 'The last row adds the counts up.' + (' Wilson intervals, 95 %.' if is_single else '')
    return table(f'Success by task: {policy}', columns, rows, note=note)


def counts(request: ShowRequest) -> list[Table]:
    """Episodes by policy, stratum and outcome, and the recorded events."""
    return count_tables(request.chosen(), n_dropped=0)


def requested_cohorts(request: ShowRequest) -> tuple[dict[str, Cohort], Cohort | None]:
    """The policies and strata asked for, and the reference; a policy without a valid episode is left out."""
    found = {n: c for n, c in cohorts(replace(request, policies=()).chosen()).items() if c.cells}
    if not found:
        raise NotEstimable('no policy has a valid episode')
    anchor = find_reference(found, request.reference)
    if request.policies:
        kept = {name: find_cohort(found, name) for name in request.policies}
        found = {**({anchor.policy: anchor} if anchor else {}), **kept}
    return found, anchor


def _models(request: ShowRequest, name: str) -> tuple[list[Cohort], Cohort | None]:
    found, anchor = requested_cohorts(request)
    models = [c for c in found.values() if anchor is None or c.policy != anchor.policy]
    if len(models) < 2:
        raise InputError(f'{name} needs two policies besides the reference')
    return models, anchor
