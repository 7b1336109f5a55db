"""What is disturbed, how hard, and by which draw: conditions as small values that are recorded with the episode."""

from robotrials.run.conditions.application import Application, DisturbableHost, frames_of, share_out
from robotrials.run.conditions.background import (
    Background,
    Distractor,
    DistractorObject,
    Shared,
    rim_background,
    table_background,
)
from robotrials.run.conditions.chaos import (
    CHAOS,
    KINDS,
    default_severity,
    draw_chaos,
    draw_condition,
    is_drawable,
    severity_ladder,
)
from robotrials.run.conditions.condition import (
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
from robotrials.run.conditions.endpoint import EndpointParaphraser
from robotrials.run.conditions.instruction import Instruction, Paraphraser, RuleParaphraser
from robotrials.run.conditions.layout import (
    Displacement,
    Footprint,
    Layout,
    PlanarPose,
    RobotState,
    Support,
    Workspace,
)
from robotrials.run.conditions.lexicon import Sameness, compare_meaning, meaning
from robotrials.run.conditions.light import Exposure, Light
from robotrials.run.conditions.physics import Delay, Disturbance, Latency
from robotrials.run.conditions.reference import Thing, keeps_references
from robotrials.run.conditions.sensor import SensorNoise
from robotrials.run.conditions.texture import Texture
from robotrials.run.conditions.viewpoint import CameraShift

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
