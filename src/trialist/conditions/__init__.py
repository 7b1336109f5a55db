"""What is disturbed, how hard, and by which draw: conditions as small values that are recorded with the episode."""

from trialist.conditions.application import Application, DisturbableHost, frames_of, share_out
from trialist.conditions.background import (
    Background,
    Distractor,
    DistractorObject,
    Shared,
    rim_background,
    table_background,
)
from trialist.conditions.chaos import (
    CHAOS,
    KINDS,
    default_severity,
    draw_chaos,
    draw_condition,
    is_drawable,
    severity_ladder,
)
from trialist.conditions.condition import (
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
from trialist.conditions.endpoint import EndpointParaphraser
from trialist.conditions.instruction import Instruction, Paraphraser, RuleParaphraser
from trialist.conditions.layout import (
    Displacement,
    Footprint,
    Layout,
    PlanarPose,
    RobotState,
    Support,
    Workspace,
)
from trialist.conditions.lexicon import Sameness, compare_meaning, meaning
from trialist.conditions.light import Exposure, Light
from trialist.conditions.physics import Delay, Disturbance, Latency
from trialist.conditions.reference import Thing, keeps_references
from trialist.conditions.sensor import SensorNoise
from trialist.conditions.texture import Texture
from trialist.conditions.viewpoint import CameraShift

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
