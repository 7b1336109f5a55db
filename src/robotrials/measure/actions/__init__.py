"""Offline action prediction: how well a model predicts recorded actions, with no robot at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.formats.dataset import RecordedEpisode as RecordedEpisode
    from robotrials.formats.dataset import RecordedObservation as RecordedObservation
    from robotrials.formats.dataset import open_dataset as open_dataset
    from robotrials.formats.space import ActionSpace as ActionSpace
    from robotrials.formats.space import Dimension as Dimension
    from robotrials.formats.space import DimensionKind as DimensionKind
    from robotrials.measure.actions.compare import *
    from robotrials.measure.actions.metric import *
    from robotrials.measure.actions.prediction import *
    from robotrials.measure.actions.split import *
    from robotrials.measure.actions.vlm import *
    from robotrials.stats import Verdict as Verdict

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
