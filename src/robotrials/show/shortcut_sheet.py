"""The shortcut diagnosis by name: its tables from a shortcut.json, the paper's own from nothing, and its figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.show.request import ShowRequest, takes
from robotrials.show.shortcut import (
    checkpoint_table,
    gap_table,
    input_table,
    optimism_table,
    paper_checkpoint_table,
    paper_score_table,
    paper_task_table,
    sweep_table,
    task_table,
)
from robotrials.show.table import Table
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit import Shortcut

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@takes(Input.SHORTCUT)
def gaps(request: ShowRequest) -> list[Table]:
    """A probe's score beside the foundation policy and the best reported score, with what is provable."""
    return [gap_table(request.value(Shortcut))]


@takes(Input.SHORTCUT)
def checkpoints(request: ShowRequest) -> list[Table]:
    """A probe's checkpoints, best and final, and what choosing on the test set adds."""
    found = request.value(Shortcut)
    return [checkpoint_table(found), optimism_table(found)]


@takes(Input.SHORTCUT)
def sweep(request: ShowRequest) -> list[Table]:
    """Training settings of a probe by validation loss, and the one that was chosen."""
    return [sweep_table(request.value(Shortcut))]


@takes(Input.SHORTCUT)
def inputs(request: ShowRequest) -> list[Table]:
    """Which input a probe's score needs: blind, proprioception-only and shuffled-task variants."""
    return [input_table(request.value(Shortcut))]


@takes(Input.SHORTCUT)
def tasks(request: ShowRequest) -> list[Table]:
    """A probe's score on every task, and what each variant loses there."""
    return [task_table(request.value(Shortcut))]


@takes(Input.NOTHING)
def paper_scores(request: ShowRequest) -> list[Table]:
    """The audit's own probe beside reported scores on five benchmarks, with what the averages prove."""
    return [paper_score_table()]


@takes(Input.NOTHING)
def paper_checkpoints(request: ShowRequest) -> list[Table]:
    """Best and final checkpoints of the audit's own probe."""
    return [paper_checkpoint_table()]


@takes(Input.NOTHING)
def paper_tasks(request: ShowRequest) -> list[Table]:
    """The audit's own probe on every task of RoboTwin 2.0."""
    return [paper_task_table()]


@takes(Input.SHORTCUT)
def draw_shortcut(request: ShowRequest) -> Figure:
    """A probe's score by checkpoint with reported scores as lines, and its variants beside it."""
    from robotrials.show.shortcut_figure import shortcut_figure

    return shortcut_figure(request.value(Shortcut))
