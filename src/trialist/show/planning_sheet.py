"""Tables of planning by name: detection rates, needed sizes, the trial as watched, the field's habit."""

from __future__ import annotations

import itertools

import numpy as np

from trialist.errors import InputError
from trialist.planning import DetectionStudy, bridge_power, detection_rate, read_survey, watch_trial
from trialist.show.planning import detection_table, needed_table, smallest_table, survey_table, watch_table
from trialist.show.planning_figure import DETECTION_RESAMPLES, DETECTION_TRIALS
from trialist.show.request import Input, ShowRequest, takes
from trialist.show.table import Table
from trialist.show.timing_figure import cast_of


def detection(request: ShowRequest) -> list[Table]:
    """Detection rate of every test for every pair and number of episodes a cell, by subsampling the store."""
    return [detection_table(requested_study(request))]


def smallest(request: ShowRequest) -> list[Table]:
    """The smallest number of episodes a cell at which each test tells each pair apart 8 times in 10."""
    return [smallest_table(requested_study(request))]


def needed(request: ShowRequest) -> list[Table]:
    """Episodes a cell that every pair needs for 80 % power of the macro-KS test, from this store as a pilot."""
    cast = cast_of(request)
    rng = np.random.default_rng(request.seed)
    found = {}
    for a, b in itertools.combinations(cast.models, 2):
        shared = [s for s in cast.strata if s in a.cells and s in b.cells]
        found[a.policy, b.policy] = bridge_power(
            {s: a.cells[s] for s in shared}, {s: b.cells[s] for s in shared}, rng=rng, tau_s=request.tau_s,
            per_cell=[30],
        )  # fmt: skip
    if not found:
        raise InputError('needed-n needs two policies besides the reference')
    return [needed_table(found)]


def sequential(request: ShowRequest) -> list[Table]:
    """What an anytime-valid test of success may say of every pair now."""
    cast = cast_of(request)
    chosen = {c.policy for c in cast.models}
    return [watch_table(watch_trial([e for e in request.episodes if e.policy in chosen]))]


@takes(Input.NOTHING)
def survey(request: ShowRequest) -> list[Table]:
    """Rollouts a condition and statistics in recent papers, as PhAIL surveyed them."""
    return [survey_table(read_survey())]


def requested_study(request: ShowRequest) -> DetectionStudy:
    cast = cast_of(request)
    if len(cast.models) < 2:
        raise InputError('a detection study needs two policies besides the reference')
    return detection_rate(
        {c.policy: {s: c.cells[s] for s in cast.strata if s in c.cells} for c in cast.models},
        rng=np.random.default_rng(request.seed), tau_s=request.tau_s,
        n_trials=min(DETECTION_TRIALS, request.n_resamples), n_resamples=DETECTION_RESAMPLES, missing='drop',
    )  # fmt: skip
