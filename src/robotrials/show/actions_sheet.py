"""Tables of action prediction by name: from a store of predictions, the published numbers, or the registry."""

from __future__ import annotations

from robotrials.errors import NotEstimable
from robotrials.measure.actions.registry import load_datasets
from robotrials.show.actions import (
    comparison_table,
    completion_table,
    dataset_table,
    difficulty_table,
    dimension_table,
    error_table,
    group_table,
    invalid_table,
    measure_table,
    phase_table,
)
from robotrials.show.actions_plot import chosen_scores, requested_report, requested_scores
from robotrials.show.request import ShowRequest, takes
from robotrials.show.table import Table
from robotrials.verdict.analysis.subject import Input, Predictions


@takes(Input.NOTHING)
def datasets(request: ShowRequest) -> list[Table]:
    """The datasets of MultiNet: which models cover them, the pretraining mix, the action space."""
    return [dataset_table(load_datasets().values())]


@takes(Input.PREDICTIONS)
def errors(request: ShowRequest) -> list[Table]:
    """AMSE and NAMSE of every model on every dataset."""
    return [error_table(chosen_scores(requested_scores(request), request))]


@takes(Input.PREDICTIONS)
def completion(request: ShowRequest) -> list[Table]:
    """Share of episodes whose last predicted action equals the recorded one."""
    return [completion_table(chosen_scores(requested_scores(request), request))]


@takes(Input.PREDICTIONS)
def invalid(request: ShowRequest) -> list[Table]:
    """Invalid answers of every model, by reason."""
    return [invalid_table(requested_report(request))]


@takes(Input.PREDICTIONS)
def measures(request: ShowRequest) -> list[Table]:
    """Every error measure of every model and dataset, with intervals."""
    return [measure_table(requested_report(request))]


@takes(Input.PREDICTIONS)
def dimensions(request: ShowRequest) -> list[Table]:
    """Error by dimension of the action."""
    return [dimension_table(requested_report(request))]


@takes(Input.PREDICTIONS)
def phases(request: ShowRequest) -> list[Table]:
    """Error by thirds of the episode."""
    return [phase_table(requested_report(request))]


@takes(Input.PREDICTIONS)
def model_pairs(request: ShowRequest) -> list[Table]:
    """Every pair of models on the same timesteps, with a verdict."""
    found = requested_report(request).comparisons
    if not found:
        raise NotEstimable('no two models predicted the same dataset; a comparison needs two')
    return [comparison_table(found)]


@takes(Input.PREDICTIONS)
def groups(request: ShowRequest) -> list[Table]:
    """Every model inside and outside the pretraining mix."""
    return [group_table(request.value(Predictions).groups)]


@takes(Input.PREDICTIONS)
def difficulties(request: ShowRequest) -> list[Table]:
    """Datasets by how hard they are, as ranks of each model's own error."""
    scores = requested_scores(request)
    found = request.value(Predictions).difficulty
    if not found:
        raise NotEstimable('no dataset was predicted by every model; a difficulty needs their ranks')
    return [difficulty_table(found, scores.titles)]
