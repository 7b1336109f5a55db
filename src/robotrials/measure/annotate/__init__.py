"""When things happened, after the fact: a release detector, its calibration, review and agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.annotate.agreement import Agreement, agreements, cohen_kappa
    from robotrials.measure.annotate.assess import Assessment, assess, match_marks, placement_times
    from robotrials.measure.annotate.calibrate import (
        DetectorCalibration,
        Labelled,
        Settings,
        assess_settings,
        calibrate,
        success_marks,
    )
    from robotrials.measure.annotate.detector import DetectorOptions, ReleaseCandidate, ReleaseKind, detect_releases
    from robotrials.measure.annotate.learned import LearnedClassifier, classifier_from_json, train_classifier
    from robotrials.measure.annotate.reconcile import LabelStanding, LabelStatus, scan, status_of, statuses, with_marks
    from robotrials.measure.annotate.telemetry import Telemetry, read_telemetry
    from robotrials.measure.annotate.verdict import JudgedRelease, ReleaseVerdict, RuleOptions, judge
    from robotrials.measure.annotate.weight import ScaleOptions, WeightStep, weigh, weight_steps
    from robotrials.measure.annotate.zone import Zone, Zones, read_zones, swapped

__all__ = [
    'Agreement',
    'Assessment',
    'DetectorCalibration',
    'DetectorOptions',
    'JudgedRelease',
    'LabelStanding',
    'LabelStatus',
    'Labelled',
    'LearnedClassifier',
    'ReleaseCandidate',
    'ReleaseKind',
    'ReleaseVerdict',
    'RuleOptions',
    'ScaleOptions',
    'Settings',
    'Telemetry',
    'WeightStep',
    'Zone',
    'Zones',
    'agreements',
    'assess',
    'assess_settings',
    'calibrate',
    'classifier_from_json',
    'cohen_kappa',
    'detect_releases',
    'judge',
    'match_marks',
    'placement_times',
    'read_telemetry',
    'read_zones',
    'scan',
    'status_of',
    'statuses',
    'success_marks',
    'swapped',
    'train_classifier',
    'weigh',
    'weight_steps',
    'with_marks',
]  # fmt: skip

_PLACES = {
    '.agreement': 'Agreement agreements cohen_kappa',
    '.assess': 'Assessment assess match_marks placement_times',
    '.calibrate': 'DetectorCalibration Labelled Settings assess_settings calibrate success_marks',
    '.detector': 'DetectorOptions ReleaseCandidate ReleaseKind detect_releases',
    '.learned': 'LearnedClassifier classifier_from_json train_classifier',
    '.reconcile': 'LabelStanding LabelStatus scan status_of statuses with_marks',
    '.telemetry': 'Telemetry read_telemetry',
    '.verdict': 'JudgedRelease ReleaseVerdict RuleOptions judge',
    '.weight': 'ScaleOptions WeightStep weigh weight_steps',
    '.zone': 'Zone Zones read_zones swapped',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
