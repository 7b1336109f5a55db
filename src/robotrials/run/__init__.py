"""Running trials: declared plans, blinded rotation, the control loop, recording and resuming.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.run.closing import close_trial
    from robotrials.run.conformance import check_policy
    from robotrials.run.engine import Shard, TrialRun, run_trial
    from robotrials.run.fault import read_fault
    from robotrials.run.host import Ability, Host, HostWrapper, as_host
    from robotrials.run.loop import Order, Rollout, run_episode
    from robotrials.run.plan import TrialPlan, read_plan
    from robotrials.run.schedule import Slot, trial_slots
    from robotrials.run.seam import (
        Action,
        ActionConvention,
        Chunk,
        ControlMode,
        Frame,
        Gripper,
        HostReport,
        HostSpec,
        Observation,
        Policy,
        PolicySpec,
        Rotation,
        Session,
        Setup,
        Target,
        check_conventions,
    )
    from robotrials.run.size import PlanSummary, summarize_plan

__all__ = [
    'Ability',
    'Action',
    'ActionConvention',
    'Chunk',
    'ControlMode',
    'Frame',
    'Gripper',
    'Host',
    'HostReport',
    'HostSpec',
    'HostWrapper',
    'Observation',
    'Order',
    'PlanSummary',
    'Policy',
    'PolicySpec',
    'Rollout',
    'Rotation',
    'Session',
    'Setup',
    'Shard',
    'Slot',
    'Target',
    'TrialPlan',
    'TrialRun',
    'as_host',
    'check_conventions',
    'check_policy',
    'close_trial',
    'read_fault',
    'read_plan',
    'run_episode',
    'run_trial',
    'summarize_plan',
    'trial_slots',
]

_PLACES = {
    '.closing': 'close_trial',
    '.conformance': 'check_policy',
    '.engine': 'Shard TrialRun run_trial',
    '.fault': 'read_fault',
    '.host': 'Ability Host HostWrapper as_host',
    '.loop': 'Order Rollout run_episode',
    '.plan': 'TrialPlan read_plan',
    '.schedule': 'Slot trial_slots',
    '.seam': (
        'Action ActionConvention Chunk ControlMode Frame Gripper HostReport HostSpec Observation Policy PolicySpec '
        'Rotation Session Setup Target check_conventions'
    ),
    '.size': 'PlanSummary summarize_plan',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
