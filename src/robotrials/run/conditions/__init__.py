"""What is disturbed, how hard, and by which draw: conditions as small values that are recorded with the episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import robotrials.run.conditions.draw  # noqa: F401 - loads every kind, which registers itself
from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.run.conditions.background import *
    from robotrials.run.conditions.camera import *
    from robotrials.run.conditions.condition import *
    from robotrials.run.conditions.draw import *
    from robotrials.run.conditions.instruction import *
    from robotrials.run.conditions.layout import *

_PLACES = {
    '.background': 'Background Distractor DistractorObject',
    '.camera': 'CameraShift Light',
    '.condition': (
        'NOMINAL CameraFrame Compound Condition Delay Disturbance compose condition_parameters parts_of read_condition'
    ),
    '.draw': 'CHAOS Application default_severity draw_condition is_drawable severity_ladder share_out',
    '.instruction': 'Thing',
    '.layout': 'Displacement Footprint Layout PlanarPose RobotState Support Workspace',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
