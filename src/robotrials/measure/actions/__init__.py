"""Offline action prediction: how well a model predicts recorded actions, with no robot at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.formats.dataset import RecordedEpisode, RecordedObservation, open_dataset
    from robotrials.formats.space import ActionSpace, Dimension, DimensionKind
    from robotrials.measure.actions.compare import ActionComparison, compare_actions
    from robotrials.measure.actions.metric import (
        ActionSummary,
        absolute_errors,
        action_errors,
        class_metrics,
        summarize_actions,
    )
    from robotrials.measure.actions.prediction import Invalid, InvalidChoice, InvalidReason, PredictedEpisode, Predictor
    from robotrials.measure.actions.split import (
        ActionStatistics,
        EvaluationSplit,
        action_statistics,
        make_split,
        read_split,
        write_split,
    )
    from robotrials.measure.actions.vlm import Prompt, build_prompt, parse_action
    from robotrials.stats import Verdict

__all__ = [
    'ActionComparison', 'ActionSpace', 'ActionStatistics', 'ActionSummary', 'Dimension', 'DimensionKind',
    'EvaluationSplit', 'Invalid', 'InvalidChoice', 'InvalidReason', 'PredictedEpisode', 'Predictor', 'Prompt',
    'RecordedEpisode', 'RecordedObservation', 'Verdict', 'absolute_errors', 'action_errors', 'action_statistics',
    'build_prompt', 'class_metrics', 'compare_actions', 'make_split', 'open_dataset', 'parse_action', 'read_split',
    'summarize_actions', 'write_split',
]  # fmt: skip

_PLACES = {
    '.compare': 'ActionComparison compare_actions',
    '.metric': 'ActionSummary absolute_errors action_errors class_metrics summarize_actions',
    '.prediction': 'Invalid InvalidChoice InvalidReason PredictedEpisode Predictor',
    '.split': 'ActionStatistics EvaluationSplit action_statistics make_split read_split write_split',
    '.vlm': 'Prompt build_prompt parse_action',
    'robotrials.formats.dataset': 'RecordedEpisode RecordedObservation open_dataset',
    'robotrials.formats.space': 'ActionSpace Dimension DimensionKind',
    'robotrials.stats': 'Verdict',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
