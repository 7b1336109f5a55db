"""Tables of planning by name: detection rates, needed sizes, the trial as watched, the field's habit."""

from __future__ import annotations

from robotrials.show.pair_table import NEEDED_COLUMNS
from robotrials.show.planning import detection_table, needed_table, smallest_table, survey_table, watch_table
from robotrials.show.planning_figure import pairs_shown, requested_powers, requested_study, watched_pairs
from robotrials.show.request import ShowRequest, takes
from robotrials.show.table import Cell, Column, Table, table
from robotrials.show.verdict_text import endpoint_name
from robotrials.verdict.analysis import Absent, present
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.planning import read_survey


def detection(request: ShowRequest) -> list[Table]:
    """Detection rate of every test for every pair and number of episodes per cell, by subsampling the store."""
    return [detection_table(requested_study(request))]


def smallest(request: ShowRequest) -> list[Table]:
    """The smallest number of episodes per cell at which each test detects each pair 8 times in 10."""
    return [smallest_table(requested_study(request, 'smallest-n'))]


def needed(request: ShowRequest) -> list[Table]:
    """What every pair needs for 80 % power of the test of each endpoint, and of the macro-KS test, from this pilot."""
    found = present(request.analysis.pairs)
    pairs = pairs_shown(request, 'needed-n')
    rows: list[tuple[Cell, ...]] = []
    for name, endpoint in found.endpoints.items():
        if isinstance(endpoint, Absent):
            continue
        for a, b in pairs:
            pair = endpoint.pair(a, b)
            own = (None, None, None) if pair.needed is None else (pair.needed.n, pair.needed.low, pair.needed.high)
            rows.append((endpoint_name(name), a, b, pair.unit, sum(pair.n_units) / 2 / _strata(request), *own))
    columns: list[str | Column] = ['endpoint', 'a', 'b', 'unit', Column('N now', '.3g'), *NEEDED_COLUMNS]
    note = (
        'Units per cell for 80 % power at the level of the first step of the correction over pairs, if the difference '
        'is what was observed; N low and N high are what the ends of its interval would need. ∞: the data show no '
        'difference.'
    )
    shown = [table('Needed for a verdict', columns, rows, note=note)]
    if not isinstance(request.analysis.times, Absent):
        shown.append(needed_table(requested_powers(request, 'needed-n')))
    return shown


def _strata(request: ShowRequest) -> int:
    return max(1, len(present(request.analysis.frame).strata))


def sequential(request: ShowRequest) -> list[Table]:
    """What an anytime-valid test of episode success may say of every pair now."""
    found, pairs = watched_pairs(request)
    return [watch_table(found, pairs)]


@takes(Input.NOTHING)
def survey(request: ShowRequest) -> list[Table]:
    """Rollouts per condition and statistics in recent papers, as PhAIL surveyed them."""
    return [survey_table(read_survey())]
