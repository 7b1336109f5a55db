"""When things happened, after the fact: a release detector, its calibration, review and agreement."""

from robotrials.annotate.agreement import Agreement, agreements, cohen_kappa
from robotrials.annotate.assess import Assessment, assess, match_marks, placement_times
from robotrials.annotate.calibrate import (
    DetectorCalibration,
    Labelled,
    Settings,
    assess_settings,
    calibrate,
    success_marks,
)
from robotrials.annotate.detector import DetectorOptions, ReleaseCandidate, ReleaseKind, detect_releases
from robotrials.annotate.learned import LearnedClassifier, classifier_from_json, train_classifier
from robotrials.annotate.reconcile import LabelStanding, LabelStatus, scan, status_of, statuses, with_marks
from robotrials.annotate.telemetry import Telemetry, read_telemetry
from robotrials.annotate.verdict import JudgedRelease, ReleaseVerdict, RuleOptions, judge
from robotrials.annotate.weight import ScaleOptions, WeightStep, weigh, weight_steps
from robotrials.annotate.zone import Zone, Zones, read_zones, swapped

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
