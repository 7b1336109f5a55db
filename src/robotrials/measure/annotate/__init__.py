"""When things happened, after the fact: a release detector, its calibration, review and agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.annotate.calibrate import *
    from robotrials.measure.annotate.detector import *

_PLACES = {
    '.calibrate': (
        'Agreement Assessment DetectorCalibration LabelStanding LabelStatus Labelled LearnedClassifier '
        'Settings agreements assess assess_settings calibrate classifier_from_json cohen_kappa match_marks '
        'placement_times scan status_of statuses success_marks train_classifier with_marks'
    ),
    '.detector': (
        'DetectorOptions JudgedRelease ReleaseCandidate ReleaseKind ReleaseVerdict RuleOptions ScaleOptions '
        'Telemetry WeightStep Zone Zones detect_releases judge read_telemetry read_zones swapped weigh '
        'weight_steps'
    ),
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
