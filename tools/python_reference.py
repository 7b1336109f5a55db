"""Write the reference of the public Python surface from docstrings and signatures.

python tools/python_reference.py > docs/reference/python.md
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

# What users import, kept stable and pinned by a test; everything else may move.
SURFACE: dict[str, tuple[str, ...]] = {
    'robotrials': ('load', 'Trial', 'Result'),
    'robotrials.record': (
        'Episode', 'Event', 'EventKind', 'EventSource', 'Outcome', 'Trajectory', 'Contacts', 'Scene', 'Camera',
        'Provenance', 'PolicyCard', 'Store', 'read_store',
    ),
    'robotrials.verdict': ('contrast', 'Contrast', 'AnalysisPlan'),
    'robotrials.verdict.analysis': (
        'analyse', 'Analysis', 'Absent', 'present', 'Contrast', 'EndpointVerdict', 'TimeComparison', 'compare_stores',
        'gate_stores', 'GateRules',
    ),
    'robotrials.verdict.planning': (
        'AnalysisPlan', 'detection_rate', 'bridge_power', 'null_calibration', 'wilson_sample_size',
        'mcnemar_sample_size', 'sequential_comparison', 'plan_sizes', 'watch_trial', 'field_position',
        'mcnemar_rollouts', 'two_proportion_sample_size', 'barnard_sample_size', 'noninferiority_sample_size',
        'paired_noninferiority_sample_size', 'sequential_power',
    ),
    'robotrials.measure.timing': (
        'operations', 'success_curve', 'rmst', 'hrt', 'macro_ks', 'logrank', 'cohorts', 'score_cohort', 'better',
        'endpoint_estimate', 'hrt_estimate', 'reversal', 'common_follow_up', 'cumulative_incidence',
        'endings_by_stratum',
    ),
    'robotrials.stats': (
        'wilson', 'newcombe', 'wilson_sample_size', 'mcnemar_sample_size', 'paired_wald', 'two_sample_wald',
        'cluster_bootstrap', 'Interval', 'Estimate', 'Rate', 'price', 'fewest_units',
        'stratified_exact', 'success_contrast', 'win_contrast', 'gail_simon',
    ),
    'robotrials.measure.safety': (
        'parse_stl', 'robustness', 'load_registry', 'score_episode', 'score_pairs', 'store_pairs', 'summarize_safety',
    ),
    'robotrials.measure.geometry': (
        'Box', 'box_iou', 'reconstruct_box', 'score_placement', 'ObjectModel', 'score_views', 'with_placement',
    ),
    'robotrials.measure.actions': (
        'action_errors', 'summarize_actions', 'build_prompt', 'parse_action', 'compare_actions', 'class_metrics',
        'open_dataset', 'make_split', 'PredictedEpisode', 'ActionSpace',
    ),
    'robotrials.verdict.audit': (
        'topline', 'paired_significance', 'drop', 'compare_traces', 'citation_counts', 'compare_outcomes',
        'read_outcomes', 'outcomes_of', 'shortcut', 'read_shortcut', 'read_reported', 'RunOutcomes',
    ),
    'robotrials.study': ('ShortcutPlan', 'read_shortcut_plan', 'diagnose_shortcut', 'EvaluationOptions'),
    'robotrials.run.conditions': ('CameraFrame', 'condition_parameters', 'draw_condition', 'severity_ladder'),
    'robotrials.policies.probe': (
        'Demonstrations', 'DemonstrationWriter', 'EpisodeFacts', 'read_demonstrations', 'collect_demonstrations',
        'demonstrations_from_hdf5', 'demonstrations_from_lerobot', 'demonstrations_from_store', 'ProbeOptions',
        'read_options', 'variants', 'train_probe', 'read_trained', 'TrainedProbe', 'sweep_probe', 'ProbePolicy',
    ),
    'robotrials.worlds': ('Host', 'HostWrapper', 'Ability', 'as_host', 'check_host', 'check_wrapper'),
    'robotrials.run': ('Policy', 'TrialPlan', 'read_plan', 'run_trial', 'close_trial', 'check_policy'),
}  # fmt: skip
HEAD = """\
# The public Python surface

Written by `tools/python_reference.py` from docstrings and signatures; a test keeps it true. These names are kept
stable; everything else may move.

| room | names |
|---|---|
"""
LONGEST = 110


def signature_of(value: Any) -> str:
    """The call as one would write it; empty for enums and protocols, which are not called."""
    if inspect.isclass(value) and (issubclass(value, str) or getattr(value, '_is_protocol', False)):
        return ''
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ''
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values() if p.name != 'self'
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    text = re.sub(r'frozenset\(\{[^}]*\}\)', 'frozenset(...)', text)  # its order differs between runs
    return re.sub(r'<[^<>]*>', '...', text)


def section(room: str, name: str) -> str:
    """One name: how it is called, and what it says of itself."""
    value = getattr(importlib.import_module(room), name)
    call = f'{name}{signature_of(value)}'
    if len(call) > LONGEST:
        call = call.replace(', ', ',\n    ').replace('(', '(\n    ', 1)[: -len(')')] + '\n)'
    text = inspect.cleandoc(value.__doc__ or '').strip()
    examples = re.compile(r'((?:^>>>.*\n(?:^(?!\s*$).*\n?)*\n?)+)', flags=re.MULTILINE)
    known = '' if 'import' in text else f'>>> from {room} import {name}\n'
    text = examples.sub(lambda m: f'```python\n{known}{m.group(1).rstrip()}\n\n```\n', text)
    return f'### `{name}`\n\n```python\n{call}\n```\n\n{text.rstrip()}\n'


def reference() -> str:
    """The whole page."""
    rows = ''.join(f'| `{room}` | {", ".join(f"`{n}`" for n in names)} |\n' for room, names in SURFACE.items())
    parts = [HEAD + rows]
    for room, names in SURFACE.items():
        parts.append(f'## `{room}`\n')
        parts += [section(room, name) for name in names]
    return '\n'.join(parts)


if __name__ == '__main__':
    print(reference(), end='')
