"""The figures of action prediction by name, from a store of predictions or from the published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from robotrials.errors import UnknownName
from robotrials.measure.actions.report import ActionReport, Scores
from robotrials.show.actions_figure import amse_figure, namse_figure
from robotrials.show.policy_look import PolicyLook, policy_looks
from robotrials.show.request import ShowRequest, takes
from robotrials.verdict.analysis.subject import Input, Predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@takes(Input.PREDICTIONS)
def draw_amse(request: ShowRequest) -> Figure:
    """AMSE of every model on every dataset, with intervals; --stratum chooses datasets."""
    scores = requested_scores(request)
    return amse_figure(chosen_scores(scores, request), looks=_looks(scores))


@takes(Input.PREDICTIONS)
def draw_namse(request: ShowRequest) -> Figure:
    """NAMSE of one model by dataset; --policy says which, and the first is drawn without it."""
    scores = requested_scores(request)
    chosen = chosen_scores(scores, request)
    return namse_figure(chosen, chosen.models[0], looks=_looks(scores))


def requested_report(request: ShowRequest) -> ActionReport:
    """Everything about the runs of a store of predictions."""
    return request.value(Predictions).full()


def requested_scores(request: ShowRequest) -> Scores:
    """The scores of a store's runs, or those that the paper printed."""
    return request.value(Predictions).scores


def chosen_scores(scores: Scores, request: ShowRequest) -> Scores:
    """The models and datasets asked for; all when none is."""
    for kind, names, known in (
        ('model', request.policies, scores.models), ('dataset', request.strata, scores.datasets),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                raise UnknownName(kind, name, known)
    models = tuple(m for m in scores.models if not request.policies or m in request.policies)
    titles = {d: t for d, t in scores.titles.items() if not request.strata or d in request.strata}
    kept = {key: score for key, score in scores.values.items() if key[0] in titles and key[1] in models}
    return Scores(titles, models, kept, scores.in_pretraining)


def _looks(scores: Scores) -> Mapping[str, PolicyLook]:
    return policy_looks(scores.models)
