"""The word `trialist`, this project's name before, wherever it has to stay.

Scenes are drawn from seeds, seals and leases are keyed, and files are recognised by these very bytes. With another word
a resumed trial would draw other scenes, a sealed one could not be opened, and no store on disk would be recognised. So
these literals keep the old word for good. The functions at the end let saved plans, other people's packages, settings
and environments that use the old name go on working.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

OLD_NAME = 'trialist'

# What is drawn or keyed: another word would be another scene, code or key.
SCENE_SEED = b'trialist scene'
SOURCE_SEED = b'trialist source'
PLATFORM_POLICY_SEED = b'trialist platform policy'
BLINDING_KEY = b'trialist blinding'
COMMITMENT_TAG = b'trialist commitment'
ENVELOPE_TAG = b'trialist envelope'
LEASE_TAG = 'trialist lease'
SVG_SALT = 'trialist'  # of the ids in an SVG, so that a figure is the same file as before

# How stores and files are recognised.
PARQUET_KEY = b'trialist'
STORE_FORMAT = 'trialist-store'
LOG_FORMAT = 'trialist-log-1'
ACTIONS_KIND = 'trialist-actions'
SPLIT_FORMAT = 'trialist-action-split'
DATASOURCE_FORMAT = 'trialist-datasource'
MIX_FORMAT = 'trialist-mix'
OVERFIT_FORMAT = 'trialist-overfit'
SHORTCUT_FORMAT = 'trialist shortcut 1'
BACKUP_FORMAT = 'trialist-platform-backup'
DEMONSTRATIONS_FORMAT = 'trialist-demonstrations'
PROBE_FORMAT = 'trialist-probe'
ENVIRONMENT_RECORD = 'trialist-environment.json'
DEMO_MARK = '.trialist-demo'

# Names inside files that others read.
LEROBOT_FILE = 'trialist.jsonl'
LEROBOT_FORM = 'trialist-lerobot-1'
LEROBOT_PREFIX = 'trialist.'
MCAP_PROFILE = 'trialist'
MCAP_SIGNAL = 'trialist.Signal'
MCAP_CONTACTS = 'trialist.Contacts'
MCAP_EPISODE = 'trialist.episode'
MCAP_SCENE = 'trialist.scene'
RERUN_APPLICATION = 'trialist'
RLDS_MODULE = 'trialist'
CELL_MODEL = 'trialist tabletop cell'
USAGE_FIELD = 'trialist_usage'
EVIDENCE_FIELD = 'trialist_evidence'

# Names that browsers and monitoring keep: a change would sign people out, lose unsent entries, or empty dashboards.
# (console-box.js, theme.js and page.js spell the same words.)
SIGN_IN_COOKIE = 'trialist_sign_in'
CONSOLE_PREFIX = 'trialist-console'
THEME_KEY = 'trialist-theme'
METRIC_PREFIX = 'trialist'

# Where the modules of the old package are now; the longest name that fits counts.
MOVED = {
    'trialist': 'robotrials',
    'trialist.actions': 'robotrials.measure.actions',
    'trialist.analysis': 'robotrials.verdict.analysis',
    'trialist.annotate': 'robotrials.measure.annotate',
    'trialist.audit': 'robotrials.verdict.audit',
    'trialist.cell': 'robotrials.worlds.cell',
    'trialist.conditions': 'robotrials.run.conditions',
    'trialist.diagnose': 'robotrials.study',
    'trialist.environment': 'robotrials.run.environment',
    'trialist.episodes': 'robotrials.record',
    'trialist.geometry': 'robotrials.measure.geometry',
    'trialist.hosts': 'robotrials.worlds',
    'trialist.planning': 'robotrials.verdict.planning',
    'trialist.platform': 'robotrials.service.platform',
    'trialist.robustness': 'robotrials.verdict.robustness',
    'trialist.safety': 'robotrials.measure.safety',
    'trialist.timing': 'robotrials.measure.timing',
    'trialist.web': 'robotrials.service',
    'trialist.web.explore': 'robotrials.service.explorer',
}

# Modules that are part of a sibling now, for plans and packages that name what is in them.
MERGED = {
    'robotrials.formats.attach': 'clock',
    'robotrials.formats.benchmark_result': 'calvin droid_csv robochallenge score_matrix simpler_env',
    'robotrials.formats.catalog': 'folder from_table',
    'robotrials.formats.export': 'rerun_write table_write',
    'robotrials.formats.guess': 'typed_value',
    'robotrials.formats.inspect_log': 'inspect_robots',
    'robotrials.formats.lerobot': 'lerobot_format',
    'robotrials.formats.lerobot_layout': 'lerobot_frame',
    'robotrials.formats.lerobot_write': 'lerobot_plan',
    'robotrials.formats.libero': 'libero_log libero_plus',
    'robotrials.formats.mcap_file': 'mcap_read mcap_write',
    'robotrials.formats.positronic': 'positronic_signal',
    'robotrials.formats.rlds': 'rlds_format',
    'robotrials.formats.ros_signal': 'rgbd',
    'robotrials.formats.row_outcome': 'checkup',
    'robotrials.formats.space': 'norm_stats',
    'robotrials.formats.vla_eval': 'vla_eval_recording',
    'robotrials.measure.actions.compare': 'report',
    'robotrials.measure.actions.evaluate': 'baseline clone',
    'robotrials.measure.actions.metric': 'summary',
    'robotrials.measure.actions.prediction': 'convert',
    'robotrials.measure.actions.split': 'curation',
    'robotrials.measure.annotate.calibrate': 'agreement',
    'robotrials.measure.annotate.detector': 'weight',
    'robotrials.policies.lerobot': 'lerobot_server',
    'robotrials.policies.openpi': 'roboarena',
    'robotrials.policies.plain': 'function replay',
    'robotrials.policies.served': 'check',
    'robotrials.policies.server': 'shared',
    'robotrials.run.conditions.instruction': 'endpoint',
    'robotrials.show.answer': 'card',
    'robotrials.show.audit': 'divergence',
    'robotrials.show.catalog': 'request',
    'robotrials.show.curve': 'practice practice_figure timing_figure',
    'robotrials.show.document': 'file',
    'robotrials.show.gate': 'markup',
    'robotrials.show.phrase': 'verdict_text',
    'robotrials.show.report': 'film report_films',
    'robotrials.show.safety': 'safety_figure',
    'robotrials.show.svg': 'plot_plane',
    'robotrials.show.table': 'terminal',
    'robotrials.show.timing': 'timing_sheet',
    'robotrials.study.datasource': 'mix',
    'robotrials.study.evaluate': 'start',
    'robotrials.study.probe_maker': 'lookup',
    'robotrials.testing.policy': 'point_mass',
    'robotrials.worlds.arm.signal': 'render',
    'robotrials.worlds.cell.control': 'world',
    'robotrials.worlds.cell.reset': 'spread',
    'robotrials.worlds.cell.task': 'state',
    'robotrials.worlds.libero.suite': 'state',
    'robotrials.worlds.robosuite.host': 'family',
    'robotrials.worlds.robot': 'lerobot_robot',
    'robotrials.worlds.simulator': 'dm_control',
}
_PART_OF = {f'{whole.rpartition(".")[0]}.{part}': whole for whole, parts in MERGED.items() for part in parts.split()}


def current_module(name: str) -> str:
    """The module that a plan or another package means by `name`: renamed ones and merged ones are looked up.

    >>> current_module('trialist.cell.checked'), current_module('mylab.trialist')
    ('robotrials.worlds.cell.checked', 'mylab.trialist')
    """
    fitting = [old for old in MOVED if name == old or name.startswith(f'{old}.')]
    if fitting:
        longest = max(fitting, key=len)
        name = MOVED[longest] + name.removeprefix(longest)
    return _PART_OF.get(name, name)


def old_group(group: str) -> str:
    """The entry-point group that packages made for the old name use."""
    return group.replace('robotrials.', f'{OLD_NAME}.', 1)


def setting(variable: str) -> str | None:
    """An environment variable ``ROBOTRIALS_...``; its old spelling counts for one more release, with a warning."""
    old = variable.replace('ROBOTRIALS_', 'TRIALIST_', 1)
    if variable not in os.environ and old in os.environ:
        warnings.warn(f'{old} is now called {variable}; the old name stops working soon', FutureWarning, stacklevel=2)
        return os.environ[old]
    return os.environ.get(variable)


def caches() -> tuple[Path, Path]:
    """The folder in the user's cache, and the one of the old name: environments in that cannot be moved."""
    cache = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
    return cache / 'robotrials', cache / OLD_NAME
