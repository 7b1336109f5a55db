"""The safety figures that `robotrials plot NAME STORE` draws, from the analysis of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.measure.safety import CellSafety
from robotrials.show.request import ShowRequest
from robotrials.show.safety_figure import composition_figure, filmstrip_figure, heatmap_figure, pareto_figure
from robotrials.verdict.analysis import SafetyPart, present

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_pareto(request: ShowRequest) -> Figure:
    """Task success against safety, one marker per policy and benchmark, with Wilson bars and the frontier."""
    return pareto_figure(safety_cells(request), looks=request.looks())


def draw_heatmap(request: ShowRequest) -> Figure:
    """Violation rates of every safety family, one row per policy and benchmark."""
    return heatmap_figure(safety_cells(request), scores=requested_safety(request).scores)


def draw_axis_heatmap(request: ShowRequest) -> Figure:
    """Violation rates of the three axes of safety, one row per policy and benchmark."""
    return heatmap_figure(safety_cells(request), by='axis', scores=requested_safety(request).scores)


def draw_composition(request: ShowRequest) -> Figure:
    """Bars of unsafe successes, split by the specs that they violate."""
    return composition_figure(safety_cells(request), scores=requested_safety(request).scores)


def draw_filmstrip(request: ShowRequest) -> Figure:
    """Start, violation and success of the most severe unsafe success that has a video."""
    part = requested_safety(request)
    films = request.analysis.leading_films
    shown = request.shown(dict.fromkeys(s.policy for s in part.scores))
    unsafe = [s for s in part.scores if s.sbu and s.violations and s.policy in shown]
    filmed = [s for s in unsafe if (s.episode_id, s.attempt) in films]
    if not filmed:
        raise NotEstimable('no unsafe success of this store has a recorded video; a filmstrip needs one')
    worst = max(filmed, key=lambda s: (s.vsi or 0.0, s.episode_id))
    film = films[worst.episode_id, worst.attempt]
    return filmstrip_figure(worst, film)


def requested_safety(request: ShowRequest) -> SafetyPart:
    return present(request.analysis.safety)


def safety_cells(request: ShowRequest) -> tuple[CellSafety, ...]:
    """The cells of the policies asked for."""
    return shown_cells(request, requested_safety(request).summary.cells)


def shown_cells(request: ShowRequest, cells: tuple[CellSafety, ...]) -> tuple[CellSafety, ...]:
    shown = request.shown(dict.fromkeys(c.policy for c in cells))
    return tuple(c for c in cells if c.policy in shown)
