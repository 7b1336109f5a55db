"""What is disturbed, how hard, and by which draw: conditions as small values that are recorded with the episode."""

from robotrials.conditions.application import Application, DisturbableHost, frames_of, share_out
from robotrials.conditions.background import (
    Background,
    Distractor,
    DistractorObject,
    Shared,
    rim_background,
    table_background,
)
from robotrials.conditions.chaos import (
    CHAOS,
    KINDS,
    default_severity,
    draw_chaos,
    draw_condition,
    is_drawable,
    severity_ladder,
)
from robotrials.conditions.condition import (
    NOMINAL,
    CameraFrame,
    Compound,
    Condition,
    Effect,
    FrameCondition,
    compose,
    condition_parameters,
    parts_of,
    read_condition,
)
from robotrials.conditions.endpoint import EndpointParaphraser
from robotrials.conditions.instruction import Instruction, Paraphraser, RuleParaphraser
from robotrials.conditions.layout import (
    Displacement,
    Footprint,
    Layout,
    PlanarPose,
    RobotState,
    Support,
    Workspace,
)
from robotrials.conditions.lexicon import Sameness, compare_meaning, meaning
from robotrials.conditions.light import Exposure, Light
from robotrials.conditions.physics import Delay, Disturbance, Latency
from robotrials.conditions.reference import Thing, keeps_references
from robotrials.conditions.sensor import SensorNoise
from robotrials.conditions.texture import Texture
from robotrials.conditions.viewpoint import CameraShift

__all__ = [
    'CHAOS',
    'KINDS',
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
    'DisturbableHost',
    'Disturbance',
    'Effect',
    'EndpointParaphraser',
    'Exposure',
    'Footprint',
    'FrameCondition',
    'Instruction',
    'Latency',
    'Layout',
    'Light',
    'Paraphraser',
    'PlanarPose',
    'RobotState',
    'RuleParaphraser',
    'Sameness',
    'SensorNoise',
    'Shared',
    'Support',
    'Texture',
    'Thing',
    'Workspace',
    'compare_meaning',
    'compose',
    'condition_parameters',
    'default_severity',
    'draw_chaos',
    'draw_condition',
    'frames_of',
    'is_drawable',
    'keeps_references',
    'meaning',
    'parts_of',
    'read_condition',
    'rim_background',
    'severity_ladder',
    'share_out',
    'table_background',
]
