"""Running trials: declared plans, blinded rotation, the control loop, recording and resuming.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.run.closing import close_trial
    from robotrials.run.conformance import check_policy
    from robotrials.run.convention import (
        ActionConvention,
        ControlMode,
        Frame,
        Gripper,
        HostSpec,
        PolicySpec,
        Rotation,
        Target,
        check_conventions,
    )
    from robotrials.run.engine import TrialRun, run_trial
    from robotrials.run.fault_text import read_fault
    from robotrials.run.host import Ability, Host, HostWrapper, as_host
    from robotrials.run.loop import Order, Rollout, run_episode
    from robotrials.run.plan import TrialPlan, read_plan
    from robotrials.run.rotation import Slot, trial_slots
    from robotrials.run.seam import Action, Chunk, HostReport, Observation, Policy, Session, Setup
    from robotrials.run.shard import Shard
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
    '.convention': 'ActionConvention ControlMode Frame Gripper HostSpec PolicySpec Rotation Target check_conventions',
    '.engine': 'TrialRun run_trial',
    '.fault_text': 'read_fault',
    '.host': 'Ability Host HostWrapper as_host',
    '.loop': 'Order Rollout run_episode',
    '.plan': 'TrialPlan read_plan',
    '.rotation': 'Slot trial_slots',
    '.seam': 'Action Chunk HostReport Observation Policy Session Setup',
    '.shard': 'Shard',
    '.size': 'PlanSummary summarize_plan',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
