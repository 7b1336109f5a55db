"""What is disturbed, how hard, and by which draw: conditions as small values that are recorded with the episode."""

from robotrials.run.conditions.background import Background, Distractor, DistractorObject
from robotrials.run.conditions.camera import CameraShift, Light
from robotrials.run.conditions.condition import (
    NOMINAL,
    CameraFrame,
    Compound,
    Condition,
    Delay,
    Disturbance,
    compose,
    condition_parameters,
    parts_of,
    read_condition,
)
from robotrials.run.conditions.draw import (
    CHAOS,
    Application,
    default_severity,
    draw_condition,
    is_drawable,
    severity_ladder,
    share_out,
)
from robotrials.run.conditions.instruction import Thing
from robotrials.run.conditions.layout import (
    Displacement,
    Footprint,
    Layout,
    PlanarPose,
    RobotState,
    Support,
    Workspace,
)

__all__ = [
    'CHAOS',
    'NOMINAL',
    'Application',
    'Background',
    'CameraFrame',
    'CameraShift',
    'Compound',
    'Condition',
    'Delay',
    'Displacement',
    'Distractor',
    'DistractorObject',
    'Disturbance',
    'Footprint',
    'Layout',
    'Light',
    'PlanarPose',
    'RobotState',
    'Support',
    'Thing',
    'Workspace',
    'compose',
    'condition_parameters',
    'default_severity',
    'draw_condition',
    'is_drawable',
    'parts_of',
    'read_condition',
    'severity_ladder',
    'share_out',
]
