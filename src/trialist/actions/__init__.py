"""Offline action prediction: how well a model predicts recorded actions, with no robot at all."""

from trialist.actions.compare import ActionComparison, compare_actions
from trialist.actions.metric import absolute_errors, action_errors, class_metrics
from trialist.actions.parse import parse_action
from trialist.actions.prediction import Invalid, InvalidChoice, InvalidReason, PredictedEpisode
from trialist.actions.predictor import Predictor
from trialist.actions.prompt import Prompt, build_prompt
from trialist.actions.split import EvaluationSplit, make_split, read_split, write_split
from trialist.actions.statistic import ActionStatistics, action_statistics
from trialist.actions.summary import ActionSummary, summarize_actions
from trialist.formats.dataset import RecordedEpisode, RecordedObservation, open_dataset
from trialist.formats.space import ActionSpace, Dimension, DimensionKind
from trialist.stats import Verdict

__all__ = [
    'ActionComparison',
    'ActionSpace',
    'ActionStatistics',
    'ActionSummary',
    'Dimension',
    'DimensionKind',
    'EvaluationSplit',
    'Invalid',
    'InvalidChoice',
    'InvalidReason',
    'PredictedEpisode',
    'Predictor',
    'Prompt',
    'RecordedEpisode',
    'RecordedObservation',
    'Verdict',
    'absolute_errors',
    'action_errors',
    'action_statistics',
    'build_prompt',
    'class_metrics',
    'compare_actions',
    'make_split',
    'open_dataset',
    'parse_action',
    'read_split',
    'summarize_actions',
    'write_split',
]
