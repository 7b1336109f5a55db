"""The figures of robustness by name, from the analysis of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from robotrials.errors import NotEstimable
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure_mark import Behind, these_episodes
from robotrials.show.request import ShowRequest, apart
from robotrials.show.robustness_figure import dose_figure, drop_figure, start_figure, success_figure
from robotrials.verdict.analysis import Analysis, RobustnessPart, present
from robotrials.verdict.robustness import ConditionDrop, ConditionRow, DoseResponse, StartTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _OfPolicy(Protocol):
    @property
    def policy(self) -> str: ...


R = TypeVar('R', bound=_OfPolicy)


@apart
def draw_condition_success(request: ShowRequest) -> Figure:
    """Episode success of every policy under every condition, with Wilson intervals."""
    return success_figure(requested_rows(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_condition_drops(request: ShowRequest) -> Figure:
    """What each condition costs each policy, one line per condition; filled where resolved after Holm."""
    return drop_figure(requested_drops(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_doses(request: ShowRequest) -> Figure:
    """Success against the severity of each condition that was run at several."""
    return dose_figure(requested_doses(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_starts(request: ShowRequest) -> Figure:
    """Where the object stood at the start of each episode, and which episodes succeeded."""
    return start_figure(requested_starts(request), looks=request.looks())


def conditioned(analysis: Analysis) -> Behind:
    """Which episodes stand behind a policy under a condition: as the analysis names it, or at a severity."""

    def behind(policy: str, condition: str, severity: float | None) -> EpisodeFilter:
        own = analysis.behind.under(policy, condition, severity)
        return these_episodes(own, {'policy': (policy,), 'condition': tuple(dict.fromkeys(e.condition for e in own))})

    return behind


def requested_part(request: ShowRequest) -> RobustnessPart:
    return present(request.analysis.robustness)


def of_shown(request: ShowRequest, rows: Sequence[R]) -> list[R]:
    """The rows of the policies asked for."""
    shown = request.shown(dict.fromkeys(row.policy for row in rows))
    return [row for row in rows if row.policy in shown]


def requested_rows(request: ShowRequest) -> list[ConditionRow]:
    return of_shown(request, requested_part(request).rows)


def requested_drops(request: ShowRequest) -> list[ConditionDrop]:
    return of_shown(request, present(requested_part(request).drops))


def requested_doses(request: ShowRequest) -> list[DoseResponse]:
    return of_shown(request, present(requested_part(request).doses))


def requested_starts(request: ShowRequest) -> list[StartTrial]:
    """Starts under the baseline and where only the layout was changed."""
    found = of_shown(request, request.analysis.trajectories.starts)
    if not found:
        raise NotEstimable(
            'no episode says where its object started: no label start_x_m, and no trajectory with a pose'
        )
    return found
