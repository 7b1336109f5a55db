"""The figures of robustness by name, from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trialist.episodes import Episode, read_store
from trialist.errors import NotEstimable
from trialist.robustness import (
    ConditionTrial,
    StartTrial,
    by_severity,
    condition_rows,
    condition_trials,
    dose_responses,
    drops_from_baseline,
    start_trial,
)
from trialist.show.request import ShowRequest, apart
from trialist.show.robustness_figure import dose_figure, drop_figure, start_figure, success_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = 'nominal'


@apart
def draw_condition_success(request: ShowRequest) -> Figure:
    """Success rate of every policy under every condition, with Wilson intervals."""
    rows = condition_rows(by_severity(requested_trials(request)), n_resamples=1, rng=_rng(request))
    return success_figure(rows, looks=request.looks())


@apart
def draw_condition_drops(request: ShowRequest) -> Figure:
    """What each condition costs each policy, a line a condition, with intervals; filled where resolved after Holm."""
    found = drops_from_baseline(
        requested_trials(request), baseline=BASELINE, n_resamples=request.n_resamples, rng=_rng(request)
    )
    return drop_figure(found, looks=request.looks())


@apart
def draw_doses(request: ShowRequest) -> Figure:
    """Success against the severity of each condition that was run at several."""
    found = dose_responses(requested_trials(request), baseline=BASELINE)
    if not found:
        raise NotEstimable('no condition was run at two severities; a dose-response needs a ladder')
    return dose_figure(found, looks=request.looks())


@apart
def draw_starts(request: ShowRequest) -> Figure:
    """Where the object stood at the start of each episode, and which episodes succeeded."""
    found = requested_starts(request)
    if not found:
        raise NotEstimable(
            'no episode says where its object started: no label start_x_m, and no trajectory with a pose'
        )
    return start_figure(found, looks=request.looks())


def requested_episodes(request: ShowRequest) -> list[Episode]:
    """The valid episodes asked for; the reference is not a policy under test."""
    return [e for e in request.chosen() if e.is_valid and not e.is_reference]


def requested_trials(request: ShowRequest) -> list[ConditionTrial]:
    found = condition_trials(requested_episodes(request), baseline=BASELINE)
    if not found:
        raise NotEstimable('no valid episode: none of these episodes tested a policy under a condition')
    return found


def requested_starts(request: ShowRequest) -> list[StartTrial]:
    """Starts under the baseline and where only the layout was changed."""
    store = read_store(request.store) if request.store is not None else None
    rows = [
        start_trial(e, store.trajectory(e) if store else None)
        for e in requested_episodes(request)
        if e.condition in (BASELINE, 'layout')
    ]
    return [row for row in rows if row is not None]


def _rng(request: ShowRequest) -> np.random.Generator:
    return np.random.default_rng(request.seed)
