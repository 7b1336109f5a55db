"""Diagnoses of training data by name: from the files that `robotrials audit datasource` and `mix` write."""

from __future__ import annotations

from robotrials.show.audit_data import datasource_tables, mix_table, published_mix_table, published_table
from robotrials.show.request import ShowRequest, takes
from robotrials.show.table import Table
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit import DataSource, TrainingMix


@takes(Input.DATASOURCE)
def datasource(request: ShowRequest) -> list[Table]:
    """Score against the distance of the training data to the test, and whether it falls."""
    return datasource_tables(request.value(DataSource))


@takes(Input.MIX)
def mix(request: ShowRequest) -> list[Table]:
    """Training on one task, on some and on all, tested on each task."""
    return [mix_table(request.value(TrainingMix))]


@takes(Input.NOTHING)
def published_datasource(request: ShowRequest) -> list[Table]:
    """The audit's own policies that were trained beside the test of SimplerEnv."""
    return [published_table()]


@takes(Input.NOTHING)
def published_mix(request: ShowRequest) -> list[Table]:
    """RADAR's training mixes, with E[IoU] recomputed and intervals."""
    return [published_mix_table()]
