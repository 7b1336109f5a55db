"""A trial of a lab with a real robot: no simulator, two policies and a person, objects, camera and tote sides."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from robotrials.run import TrialPlan
from robotrials.run.arm_limit import StopHook
from robotrials.run.blinding import Allocation, Arms, seal_trial
from robotrials.run.engine import chosen_slots, open_trial_store, with_provenance
from robotrials.run.station import Context
from robotrials.service.console import Desk
from robotrials.service.console.account import Journal, console_folder
from robotrials.value import read_table

NAMES = ('zebrafinch-large', 'quokka-mini', 'wombat-teleop')
ITEMS, CAP_S = 3, 30.0


def lab_plan(**changes: Any) -> TrialPlan:
    values: dict[str, Any] = {
        'title': f'{NAMES[0]} against {NAMES[1]}',
        'seed': 5,
        'host': {'use': 'the-cell-in-room-4'},
        'tasks': [{'name': 'bin-to-bin', 'instruction': 'move everything to the other tote'}],
        'strata': [{'name': 'spoon', 'items': ITEMS}, {'name': 'towel', 'items': ITEMS}],
        'policies': {
            NAMES[0]: {'use': 'openpi', 'options': {'url': 'ws://zebrafinch:8000'}},
            NAMES[1]: {'use': 'groot', 'options': {'url': 'tcp://quokka:5555'}},
            NAMES[2]: {'use': 'human'},
        },
        'reference': NAMES[2],
        'episodes_per_cell': 2,
        'time_cap_s': CAP_S,
        'nuisance': {'camera_side': ['left', 'right'], 'tote_side': ['left', 'right']},
    }
    values.update(changes)
    return read_table(TrialPlan, values, where='test plan')


ROTATIONS: dict[str, bytes] = {}  # of the trials that were sealed here: what the machine's account has of each


def sealed(folder: Path, **changes: Any) -> Allocation:
    allocation = seal_trial(lab_plan(**changes), folder, secret=secrets.token_bytes(32))
    ROTATIONS[allocation.operator_plan.hash] = allocation.rotation
    return allocation


def make_desk(plan: TrialPlan, store: Path, *, stop: StopHook | None = None, operator: str = 'kim') -> Desk:
    context = Context.of(plan, operator=operator, arms=Arms({}, ROTATIONS.get(plan.hash, b'')))
    opened = open_trial_store(context, store)
    slots = chosen_slots(context.slots(), fixture=None, session=None)
    journal = Journal(console_folder(opened.path) / 'journal.jsonl')
    return Desk(with_provenance(context, opened), opened, slots, journal, stop=stop)


def account(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        'started_ms': 1_790_000_000_000, 'duration_s': 21.5, 'label': 'success',
        'marks': [{'t_s': 4.0, 'kind': 'placement'}, {'t_s': 9.5, 'kind': 'placement'}],
        'counts': {'placed': 3, 'source': 0, 'lost': 0},
    }  # fmt: skip
    return {**values, **changes}


def action(kind: str, key: str, **changes: Any) -> dict[str, Any]:
    return {'kind': kind, 'id': secrets.token_hex(16), 'key': key, **changes}
