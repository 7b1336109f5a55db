"""Tables by name: what `robotrials tables NAME` can print. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from robotrials.catalog import Catalog
from robotrials.show.request import ShowRequest

if TYPE_CHECKING:
    from robotrials.show.table import Table

TABLES = Catalog(
    'table',
    {
        'headline': 'robotrials.show.timing_sheet:headline',
        'success': 'robotrials.show.timing_sheet:success',
        'scalars': 'robotrials.show.timing_sheet:scalars',
        'scalars-by-stratum': 'robotrials.show.timing_sheet:scalars_by_stratum',
        'relative': 'robotrials.show.timing_sheet:relative',
        'scalar-definitions': 'robotrials.show.timing_sheet:scalar_definitions',
        'pairs': 'robotrials.show.timing_sheet:pairs',
        'logrank': 'robotrials.show.timing_sheet:logrank',
        'stratum-differences': 'robotrials.show.timing_sheet:differences',
        'failures': 'robotrials.show.timing_sheet:failures',
        'labels': 'robotrials.show.timing_sheet:labels',
        'calibration': 'robotrials.show.timing_sheet:calibration',
        'recorded': 'robotrials.show.timing_sheet:recorded',
        'task-success': 'robotrials.show.timing_sheet:task_success',
        'counts': 'robotrials.show.timing_sheet:counts',
        'detection': 'robotrials.show.planning_sheet:detection',
        'smallest-n': 'robotrials.show.planning_sheet:smallest',
        'needed-n': 'robotrials.show.planning_sheet:needed',
        'sequential': 'robotrials.show.planning_sheet:sequential',
        'survey': 'robotrials.show.planning_sheet:survey',
        'condition-success': 'robotrials.show.robustness_sheet:condition_success',
        'condition-drops': 'robotrials.show.robustness_sheet:condition_drops',
        'doses': 'robotrials.show.robustness_sheet:doses',
        'compound': 'robotrials.show.robustness_sheet:compound',
        'swap': 'robotrials.show.robustness_sheet:swap',
        'spatial': 'robotrials.show.robustness_sheet:spatial',
        'start-states': 'robotrials.show.robustness_sheet:starts',
        'splits-by-policy': 'robotrials.show.robustness_sheet:splits_by_policy',
        'splits-by-condition': 'robotrials.show.robustness_sheet:splits_by_condition',
        'splits-estimates': 'robotrials.show.robustness_sheet:split_estimates',
        'drops': 'robotrials.show.audit_sheet:drops',
        'claims': 'robotrials.show.audit_sheet:claims',
        'claim-shares': 'robotrials.show.audit_sheet:claim_shares',
        'claim-rounding': 'robotrials.show.audit_sheet:claim_rounding',
        'claim-coverage': 'robotrials.show.audit_sheet:claim_coverage',
        'claim-obstacles': 'robotrials.show.audit_sheet:claim_obstacles',
        'claim-list': 'robotrials.show.audit_sheet:claim_list',
        'cutoffs': 'robotrials.show.audit_sheet:needed_gaps',
        'citations': 'robotrials.show.audit_sheet:citations',
        'citation-months': 'robotrials.show.audit_sheet:citation_months',
        'traces': 'robotrials.show.audit_sheet:traces',
        'trace-channels': 'robotrials.show.audit_sheet:trace_channels',
        'trace-targets': 'robotrials.show.audit_sheet:trace_targets',
        'shortcut': 'robotrials.show.shortcut_sheet:gaps',
        'shortcut-checkpoints': 'robotrials.show.shortcut_sheet:checkpoints',
        'shortcut-sweep': 'robotrials.show.shortcut_sheet:sweep',
        'shortcut-inputs': 'robotrials.show.shortcut_sheet:inputs',
        'shortcut-tasks': 'robotrials.show.shortcut_sheet:tasks',
        'datasource': 'robotrials.show.audit_data_sheet:datasource',
        'mix': 'robotrials.show.audit_data_sheet:mix',
        'published-datasource': 'robotrials.show.audit_data_sheet:published_datasource',
        'published-mix': 'robotrials.show.audit_data_sheet:published_mix',
        'probe-scores': 'robotrials.show.shortcut_sheet:paper_scores',
        'probe-checkpoints': 'robotrials.show.shortcut_sheet:paper_checkpoints',
        'probe-tasks': 'robotrials.show.shortcut_sheet:paper_tasks',
        'cameras': 'robotrials.show.cameras:cameras',
        'camera-episodes': 'robotrials.show.cameras:camera_episodes',
        'safety': 'robotrials.show.safety_sheet:quadruple',
        'safety-slip': 'robotrials.show.safety_sheet:slip',
        'safety-suites': 'robotrials.show.safety_sheet:suites',
        'safety-means': 'robotrials.show.safety_sheet:means',
        'safety-violations': 'robotrials.show.safety_sheet:violations',
        'safety-specs': 'robotrials.show.safety_sheet:specs',
        'safety-composition': 'robotrials.show.safety_sheet:composition',
        'safety-sensitivity': 'robotrials.show.safety_sheet:sensitivity',
        'safety-tasks': 'robotrials.show.safety_sheet:tasks',
        'safety-contingency': 'robotrials.show.safety_sheet:contingency',
        'safety-margins': 'robotrials.show.safety_sheet:margins',
        'safety-saving': 'robotrials.show.safety_sheet:saving',
        'safety-unscored': 'robotrials.show.safety_sheet:unscored',
        'safety-witnesses': 'robotrials.show.safety_sheet:witnesses',
        'safety-library': 'robotrials.show.registry_sheet:library',
        'safety-templates': 'robotrials.show.registry_sheet:templates',
        'safety-tags': 'robotrials.show.registry_sheet:tags',
        'safety-clauses': 'robotrials.show.registry_sheet:clauses',
        'safety-axes': 'robotrials.show.registry_sheet:axes',
        'safety-severity': 'robotrials.show.registry_sheet:severity',
        'safety-signals': 'robotrials.show.registry_sheet:signals',
        'safety-thresholds': 'robotrials.show.registry_sheet:thresholds',
        'safety-availability': 'robotrials.show.registry_sheet:availability',
        'safety-exclusions': 'robotrials.show.registry_sheet:exclusions',
        'safety-applicability': 'robotrials.show.registry_sheet:applicability',
        'action-datasets': 'robotrials.show.actions_sheet:datasets',
        'action-errors': 'robotrials.show.actions_sheet:errors',
        'action-completion': 'robotrials.show.actions_sheet:completion',
        'action-invalid': 'robotrials.show.actions_sheet:invalid',
        'action-measures': 'robotrials.show.actions_sheet:measures',
        'action-dimensions': 'robotrials.show.actions_sheet:dimensions',
        'action-phases': 'robotrials.show.actions_sheet:phases',
        'action-pairs': 'robotrials.show.actions_sheet:model_pairs',
        'action-groups': 'robotrials.show.actions_sheet:groups',
        'action-difficulty': 'robotrials.show.actions_sheet:difficulties',
    },
    entry_point_group='robotrials.tables',
)

Build = Callable[[ShowRequest], 'Sequence[Table]']


def find_table(name: str) -> Build:
    """The function that makes the table of this name (or tables); an unknown one suggests the near name."""
    return cast('Build', TABLES.load(name))
