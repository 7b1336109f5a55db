"""Running trials: declared plans, blinded rotation, the control loop, recording and resuming.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.run.closing import *
    from robotrials.run.conformance import *
    from robotrials.run.engine import *
    from robotrials.run.host import *
    from robotrials.run.plan import *
    from robotrials.run.seam import *
    from robotrials.run.size import *

_PLACES = {
    '.closing': 'close_trial',
    '.conformance': 'check_policy',
    '.engine': 'Shard run_trial',
    '.host': 'Ability Host HostWrapper as_host',
    '.plan': 'TrialPlan read_plan',
    '.seam': (
        'Action ActionConvention Chunk ControlMode Frame Gripper HostReport HostSpec Observation Policy PolicySpec '
        'Rotation Session Setup Target'
    ),
    '.size': 'summarize_plan',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
