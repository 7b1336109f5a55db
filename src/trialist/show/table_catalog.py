"""Tables by name: what `trialist tables NAME` can print. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from trialist.catalog import Catalog
from trialist.show.request import ShowRequest

if TYPE_CHECKING:
    from trialist.show.table import Table

TABLES = Catalog(
    'table',
    {
        'headline': 'trialist.show.timing_sheet:headline',
        'success': 'trialist.show.timing_sheet:success',
        'scalars': 'trialist.show.timing_sheet:scalars',
        'scalars-by-stratum': 'trialist.show.timing_sheet:scalars_by_stratum',
        'relative': 'trialist.show.timing_sheet:relative',
        'scalar-definitions': 'trialist.show.timing_sheet:scalar_definitions',
        'pairs': 'trialist.show.timing_sheet:pairs',
        'logrank': 'trialist.show.timing_sheet:logrank',
        'stratum-differences': 'trialist.show.timing_sheet:differences',
        'failures': 'trialist.show.timing_sheet:failures',
        'labels': 'trialist.show.timing_sheet:labels',
        'calibration': 'trialist.show.timing_sheet:calibration',
        'recorded': 'trialist.show.timing_sheet:recorded',
        'task-success': 'trialist.show.timing_sheet:task_success',
        'counts': 'trialist.show.timing_sheet:counts',
        'detection': 'trialist.show.planning_sheet:detection',
        'smallest-n': 'trialist.show.planning_sheet:smallest',
        'needed-n': 'trialist.show.planning_sheet:needed',
        'sequential': 'trialist.show.planning_sheet:sequential',
        'survey': 'trialist.show.planning_sheet:survey',
        'condition-success': 'trialist.show.robustness_sheet:condition_success',
        'condition-drops': 'trialist.show.robustness_sheet:condition_drops',
        'doses': 'trialist.show.robustness_sheet:doses',
        'compound': 'trialist.show.robustness_sheet:compound',
        'swap': 'trialist.show.robustness_sheet:swap',
        'spatial': 'trialist.show.robustness_sheet:spatial',
        'splits-by-policy': 'trialist.show.robustness_sheet:splits_by_policy',
        'splits-by-condition': 'trialist.show.robustness_sheet:splits_by_condition',
        'splits-estimates': 'trialist.show.robustness_sheet:split_estimates',
        'drops': 'trialist.show.audit_sheet:drops',
        'claims': 'trialist.show.audit_sheet:claims',
        'claim-shares': 'trialist.show.audit_sheet:claim_shares',
        'claim-rounding': 'trialist.show.audit_sheet:claim_rounding',
        'claim-coverage': 'trialist.show.audit_sheet:claim_coverage',
        'claim-obstacles': 'trialist.show.audit_sheet:claim_obstacles',
        'claim-list': 'trialist.show.audit_sheet:claim_list',
        'cutoffs': 'trialist.show.audit_sheet:needed_gaps',
        'citations': 'trialist.show.audit_sheet:citations',
        'citation-months': 'trialist.show.audit_sheet:citation_months',
        'traces': 'trialist.show.audit_sheet:traces',
        'trace-channels': 'trialist.show.audit_sheet:trace_channels',
        'trace-targets': 'trialist.show.audit_sheet:trace_targets',
        'shortcut': 'trialist.show.shortcut_sheet:gaps',
        'shortcut-checkpoints': 'trialist.show.shortcut_sheet:checkpoints',
        'shortcut-sweep': 'trialist.show.shortcut_sheet:sweep',
        'shortcut-inputs': 'trialist.show.shortcut_sheet:inputs',
        'shortcut-tasks': 'trialist.show.shortcut_sheet:tasks',
        'datasource': 'trialist.show.audit_data_sheet:datasource',
        'mix': 'trialist.show.audit_data_sheet:mix',
        'published-datasource': 'trialist.show.audit_data_sheet:published_datasource',
        'published-mix': 'trialist.show.audit_data_sheet:published_mix',
        'probe-scores': 'trialist.show.shortcut_sheet:paper_scores',
        'probe-checkpoints': 'trialist.show.shortcut_sheet:paper_checkpoints',
        'probe-tasks': 'trialist.show.shortcut_sheet:paper_tasks',
        'cameras': 'trialist.show.cameras:cameras',
        'camera-episodes': 'trialist.show.cameras:camera_episodes',
        'safety': 'trialist.show.safety_sheet:quadruple',
        'safety-suites': 'trialist.show.safety_sheet:suites',
        'safety-means': 'trialist.show.safety_sheet:means',
        'safety-violations': 'trialist.show.safety_sheet:violations',
        'safety-specs': 'trialist.show.safety_sheet:specs',
        'safety-composition': 'trialist.show.safety_sheet:composition',
        'safety-sensitivity': 'trialist.show.safety_sheet:sensitivity',
        'safety-tasks': 'trialist.show.safety_sheet:tasks',
        'safety-contingency': 'trialist.show.safety_sheet:contingency',
        'safety-margins': 'trialist.show.safety_sheet:margins',
        'safety-saving': 'trialist.show.safety_sheet:saving',
        'safety-unscored': 'trialist.show.safety_sheet:unscored',
        'safety-witnesses': 'trialist.show.safety_sheet:witnesses',
        'safety-library': 'trialist.show.registry_sheet:library',
        'safety-templates': 'trialist.show.registry_sheet:templates',
        'safety-tags': 'trialist.show.registry_sheet:tags',
        'safety-clauses': 'trialist.show.registry_sheet:clauses',
        'safety-axes': 'trialist.show.registry_sheet:axes',
        'safety-severity': 'trialist.show.registry_sheet:severity',
        'safety-signals': 'trialist.show.registry_sheet:signals',
        'safety-thresholds': 'trialist.show.registry_sheet:thresholds',
        'safety-availability': 'trialist.show.registry_sheet:availability',
        'safety-exclusions': 'trialist.show.registry_sheet:exclusions',
        'safety-applicability': 'trialist.show.registry_sheet:applicability',
        'action-datasets': 'trialist.show.actions_sheet:datasets',
        'action-errors': 'trialist.show.actions_sheet:errors',
        'action-completion': 'trialist.show.actions_sheet:completion',
        'action-invalid': 'trialist.show.actions_sheet:invalid',
        'action-measures': 'trialist.show.actions_sheet:measures',
        'action-dimensions': 'trialist.show.actions_sheet:dimensions',
        'action-phases': 'trialist.show.actions_sheet:phases',
        'action-pairs': 'trialist.show.actions_sheet:model_pairs',
        'action-groups': 'trialist.show.actions_sheet:groups',
        'action-difficulty': 'trialist.show.actions_sheet:difficulties',
    },
    entry_point_group='trialist.tables',
)

Build = Callable[[ShowRequest], 'Sequence[Table]']


def find_table(name: str) -> Build:
    """The function that makes the table of this name (or tables); an unknown one suggests the near name."""
    return cast('Build', TABLES.load(name))
