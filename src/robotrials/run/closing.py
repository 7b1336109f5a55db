"""Closing a trial: the codes are opened, once, with a record of who did it and when."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError, StoreError
from robotrials.record import Outcome, Store, Unblinding, read_store
from robotrials.record.blinding import Leakage, sign, write_unblinding
from robotrials.run.blinding import Allocation, Arms, blinding_of
from robotrials.run.engine import sole_runner, trial_state
from robotrials.run.mark import interrupted_counts
from robotrials.run.plan import TrialPlan
from robotrials.run.schedule import release_leftovers
from robotrials.run.station import Context

FEWEST_TO_GUESS = 5  # episodes of each arm
FOLD_SEED = 20_240_517  # of the folds that guesses are held out by: closing again gives the same figure


@dataclass(frozen=True, slots=True)
class ArmCount:
    """What a closed trial holds of one arm."""

    code: str
    policy: str
    is_reference: bool
    n_valid: int
    n_invalid: int  # attempts, all of them
    n_given_up: int  # slots without a valid attempt
    n_missing: int  # slots never run
    n_interrupted: int = 0  # attempts that were begun and never finished: a killed run, a crashed machine


def close_trial(
    plan: TrialPlan, store: Path | str, *, by: str, why: str = '', early: bool = False,
    allocation: Allocation | None = None,
) -> list[ArmCount]:  # fmt: skip
    """Unblind a finished trial and give what each arm holds; `early` closes an unfinished one, and wants a reason.

    A sealed trial (its plan is the operator's) is closed with the statistician's allocation.
    """
    if plan.blinding.is_sealed and allocation is None:
        raise InputError('this trial was sealed: it is opened with the allocation that the statistician keeps')
    if allocation is not None and allocation.operator_plan.hash != plan.hash:
        raise InputError('this allocation is of another trial')
    if not by:
        raise InputError('closing a trial is on record: say by whom')
    opened = read_store(store)
    if opened.trial.plan_hash != plan.hash:
        raise StoreError(f'{opened.path}: holds a trial under another plan; close it with the plan it was run with')
    earlier = opened.unblindings().by_trial.get(plan.hash)
    if earlier is not None:
        raise StoreError(f'{opened.path}: this trial was closed by {earlier.by} at {earlier.at}; it closes once')
    with sole_runner(opened.path, None):
        release_leftovers(opened, by=by)
        _close(plan, opened, by=by, why=why, early=early, allocation=allocation)
    return arm_counts(plan, opened, names=names_of(plan, allocation))


def names_of(plan: TrialPlan, allocation: Allocation | None) -> dict[str, str]:
    """The policy behind each code."""
    codes = allocation.codes if allocation is not None else blinding_of(plan).codes
    return {code: name for name, code in codes.items()}


def _close(
    plan: TrialPlan, opened: Store, *, by: str, why: str, early: bool, allocation: Allocation | None
) -> None:  # fmt: skip
    """Under the lock of the run: nobody is adding episodes. One entry of the log closes the trial, or nothing does."""
    rotation = allocation.rotation if allocation is not None else b''
    state = trial_state(plan, opened, rotation=rotation)
    if not state.is_complete and not (early and why):
        left = state.n_total - state.n_valid - state.n_given_up
        raise InputError(
            f'{left} of {state.n_total} episodes are still to be run; run them, or close early and say why '
            '(--early --why "...")'
        )
    names = names_of(plan, allocation)
    whole = allocation.plan if allocation is not None else plan
    record = Unblinding(
        trial_id=plan.hash,
        by=by,
        at=dt.datetime.now(dt.UTC).isoformat(timespec='seconds'),
        why=why or 'complete: nothing is left to run',
        policies=names,
        reference={name: code for code, name in names.items()}.get(whole.reference, ''),
        plan=whole.as_json(),
        key=(allocation.secret if allocation is not None else blinding_of(plan).key).hex(),
        operator_plan=plan.as_json() if allocation is not None else '',
        rotation=rotation.hex(),
        leakage=() if allocation is None else measured_leakage(opened, allocation),
        n_per_arm=state.n_total // len(plan.policies) if rotation else 0,
    )
    write_unblinding(opened.path, sign(record))


def measured_leakage(store: Store, allocation: Allocation) -> tuple[Leakage, ...]:
    """How well the arms of a sealed trial could be guessed from all that its operator's account can read.

    Measured at closing, while names and times of files are still those that the operator saw: once from what the store
    tells besides behaviour, once with behaviour (durations, outcomes), which nobody beside the robot can be kept from.
    () where there are too few episodes to guess from.
    """
    import numpy as np

    from robotrials.record.counted import visible_features
    from robotrials.stats.guess import guess_classes

    recorded = Store.open(store.path)  # as it lies there, not the blinded view of it
    codes = sorted(allocation.codes.values())
    arms = {code: number for number, code in enumerate(codes)}
    if allocation.rotation:
        context = Context.of(allocation.operator_plan, arms=Arms({}, allocation.rotation))
        arms = {context.planned(slot).policy: arms[slot.policy] for slot in context.slots()}
    policy = {e.key: e.policy for e in recorded.episodes(attempts='all', dropped=True, events=False)}
    measured = []
    for name, behaviour in (('files', False), ('files and behaviour', True)):
        keys, names, values = visible_features(recorded, behaviour=behaviour)
        known = [i for i, key in enumerate(keys) if policy.get(key) in arms]
        labels = np.array([arms[policy[keys[i]]] for i in known], dtype=np.int64)
        if np.bincount(labels, minlength=len(codes)).min() < FEWEST_TO_GUESS:
            return ()
        guessing = guess_classes(values[known], labels, names=names, rng=np.random.default_rng(FOLD_SEED))
        bits = guessing.bits_interval
        measured.append(
            Leakage(
                source=name,
                n=guessing.n,
                n_right=guessing.n_right,
                n_arms=guessing.n_classes,
                bits=round(guessing.bits, 4),
                low=round(bits.low, 4),
                high=round(bits.high, 4),
                telling=guessing.telling,
            )
        )
    return tuple(measured)


def arm_counts(plan: TrialPlan, store: Store, *, names: Mapping[str, str] | None = None) -> list[ArmCount]:
    """Valid, invalid, given-up and missing episodes of each arm; unequal INVALID shares deserve a question."""
    known = dict(names or names_of(plan, None))  # code -> policy
    codes = {name: code for code, name in known.items()}
    planned = plan.episodes_in_a_cell() * plan.repeats * len(plan.cells())
    valid: dict[str, set[str]] = {code: set() for code in known}
    seen: dict[str, set[str]] = {code: set() for code in known}
    opened = store.unblindings().by_trial.get(plan.hash)
    behind = {} if opened is None else opened.names()
    interrupted: Counter[str] = Counter()
    for arm, count in interrupted_counts(store).items():
        interrupted[codes.get(behind.get(arm, arm), arm)] += count
    invalid = dict.fromkeys(known, 0)
    reference = opened.policies.get(opened.reference, '') if opened is not None else plan.reference
    for episode in store.episodes(attempts='all', events=False, where={'trial_id': plan.hash}):
        code = codes.get(episode.policy, episode.policy)
        seen[code].add(episode.episode_id)
        if episode.outcome is Outcome.INVALID:
            invalid[code] += 1
        else:
            valid[code].add(episode.episode_id)
    return [
        ArmCount(
            code=code,
            policy=name,
            is_reference=name == reference,
            n_valid=len(valid[code]),
            n_invalid=invalid[code],
            n_given_up=len(seen[code] - valid[code]),
            n_missing=planned - len(seen[code]),
            n_interrupted=interrupted[code],
        )
        for code, name in sorted(known.items(), key=lambda item: item[1])
    ]
