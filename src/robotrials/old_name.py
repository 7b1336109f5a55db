"""The word `trialist`, this project's name before, wherever it has to stay.

Scenes are drawn from seeds, seals and leases are keyed, and files are recognised by these very bytes. With another word
a resumed trial would draw other scenes, a sealed one could not be opened, and no store on disk would be recognised. So
these literals keep the old word for good.
"""

from __future__ import annotations

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
