"""What may be seen of a blinded trial while it is open: no arm, and nothing that would tell one arm from another.

Behaviour, duration and outcome are what an operator stands beside and necessarily sees; they stay. Latencies, raw
answers, texts of errors and the make of the machine are withheld. Verbs read stores through this view, so that none of
them has to think of it. A named board sees codes, and that it looked is on record.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError
from robotrials.record.episode import Episode
from robotrials.record.provenance import Provenance

if TYPE_CHECKING:
    from robotrials.record.select import Where
    from robotrials.record.store import TrialInfo
    from robotrials.record.trajectory import Trajectory

ALL_ARMS = 'blinded'  # stands for every arm
WITHHELD_COLUMNS = (
    'network_latency_s', 'inference_latency_s', 'transport_latency_s', 'action_raw', 'action_predicted',
)  # fmt: skip
WITHHELD_SIGNALS = ('observation_age_s',)  # among the extra ones
WITHHELD_PROVENANCE = (
    'command', 'config', 'checkpoint', 'code_revision', 'gpu', 'driver', 'cuda', 'torch', 'cpu', 'operating_system',
    'wrappers', 'normalization', 'action_postprocessing', 'environment_id', 'seeds',
)  # fmt: skip
FAULT_WORDS = re.compile(r'^(policy|host|worker) (crash|hang|silent|endpoint|answer|late|exit|withdrawn|death|fault)\b')


def is_blinded_plan(trial: TrialInfo) -> bool:
    """Whether a store was made under a plan with blinding."""
    if not trial.plan:
        return False
    try:
        return bool(json.loads(trial.plan)['blinding']['enabled'])
    except (ValueError, KeyError, TypeError):
        return False  # a plan that is not the runner's says nothing about codes


def is_concealed_plan(trial: TrialInfo) -> bool:
    """Whether what stands for an arm changes with every episode of a trial."""
    return is_blinded_plan(trial) and bool(json.loads(trial.plan)['blinding'].get('rotation'))


def blinded_episode(episode: Episode, *, board: bool) -> Episode:
    """An episode as it may be seen: coarse reasons, and unless for the board no arm and no seed.

    An id is a hash over the trial's hash, the arm's code, the seed and what is seen anyway: with the seed, trying the
    few codes there can be would tell which arm it was. The start state keeps its number.
    """
    changes: dict[str, Any] = {'reason': coarse_reason(episode.reason)}
    if not board:
        changes |= {'policy': ALL_ARMS, 'is_reference': False, 'seed': None}
    return episode.replace(**changes)


def coarse_reason(reason: str) -> str:
    """Whose fault it was; how it showed would tell arms apart."""
    match = FAULT_WORDS.match(reason)
    return f'{match[1]} fault' if match else reason


def blinded_trajectory(trajectory: Trajectory) -> Trajectory:
    """A trajectory without latencies and raw answers."""
    from robotrials.record.trajectory import trusted_trajectory

    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    extra = {name: signal for name, signal in trajectory.extra.items() if name not in WITHHELD_SIGNALS}
    return trusted_trajectory(**{**values, **dict.fromkeys(WITHHELD_COLUMNS), 'extra': extra})


def blinded_provenance(provenance: Provenance) -> Provenance:
    """A provenance without what differs between the machines that arms run on."""
    withheld: dict[str, Any] = dict.fromkeys(WITHHELD_PROVENANCE, '')
    return dataclasses.replace(provenance, **withheld, packages={}, render_flags={}, policy_cards=())


def check_blinded_where(where: Where | None, *, board: bool) -> None:
    """Refuse to pick out an arm of an open trial."""
    told = {'policy', 'is_reference', 'reason', 'provenance_id', 'seed'} & set(where or {})
    if told and not board:
        raise InputError(
            f'the trial is blinded and open: episodes cannot be picked by {min(told)}; close it first, or look as the '
            'board with: robotrials --board NAME ...'
        )
