"""Closing a trial: the codes are opened, once, with a record of who did it and when."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from trialist.episodes import Outcome, Store, Unblinding, read_store
from trialist.episodes.unblinding import sign, write_unblinding
from trialist.errors import InputError, StoreError
from trialist.run.begun import interrupted_counts
from trialist.run.blinding import blinding_of
from trialist.run.engine import sole_runner, trial_state
from trialist.run.plan import TrialPlan


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


def close_trial(plan: TrialPlan, store: Path | str, *, by: str, why: str = '', early: bool = False) -> list[ArmCount]:
    """Unblind a finished trial and give what each arm holds; `early` closes an unfinished one, and wants a reason."""
    if not by:
        raise InputError('closing a trial is on record: say by whom')
    opened = read_store(store)
    if opened.trial.plan_hash != plan.hash:
        raise StoreError(f'{opened.path}: holds a trial under another plan; close it with the plan it was run with')
    earlier = opened.unblindings().by_trial.get(plan.hash)
    if earlier is not None:
        raise StoreError(f'{opened.path}: this trial was closed by {earlier.by} at {earlier.at}; it closes once')
    with sole_runner(opened.path, None):
        _close(plan, opened, by=by, why=why, early=early)
    return arm_counts(plan, opened)


def _close(plan: TrialPlan, opened: Store, *, by: str, why: str, early: bool) -> None:
    """Under the lock of the run: nobody is adding episodes. One entry of the log closes the trial, or nothing does."""
    state = trial_state(plan, opened)
    if not state.is_complete and not (early and why):
        left = state.n_total - state.n_valid - state.n_given_up
        raise InputError(
            f'{left} of {state.n_total} episodes are still to be run; run them, or close early and say why '
            '(--early --why "...")'
        )
    blinding = blinding_of(plan)
    record = Unblinding(
        trial_id=plan.hash,
        by=by,
        at=dt.datetime.now(dt.UTC).isoformat(timespec='seconds'),
        why=why,
        policies={code: name for name, code in blinding.codes.items()},
        reference=blinding.codes.get(plan.reference, ''),
        plan=plan.as_json(),
        key=blinding.key.hex(),
    )
    write_unblinding(opened.path, sign(record))


def arm_counts(plan: TrialPlan, store: Store) -> list[ArmCount]:
    """Valid, invalid, given-up and missing episodes of each arm; unequal INVALID shares deserve a question."""
    codes = blinding_of(plan).codes
    planned = plan.episodes_in_a_cell() * plan.repeats * len(plan.cells())
    valid: dict[str, set[str]] = {name: set() for name in plan.policies}
    seen: dict[str, set[str]] = {name: set() for name in plan.policies}
    interrupted = interrupted_counts(store)
    invalid = dict.fromkeys(plan.policies, 0)
    names = {code: name for name, code in codes.items()} | {name: name for name in plan.policies}
    for episode in store.episodes(attempts='all', events=False, where={'trial_id': plan.hash}):
        name = names[episode.policy]
        seen[name].add(episode.episode_id)
        if episode.outcome is Outcome.INVALID:
            invalid[name] += 1
        else:
            valid[name].add(episode.episode_id)
    return [
        ArmCount(
            code=codes[name],
            policy=name,
            is_reference=name == plan.reference,
            n_valid=len(valid[name]),
            n_invalid=invalid[name],
            n_given_up=len(seen[name] - valid[name]),
            n_missing=planned - len(seen[name]),
            n_interrupted=interrupted[codes[name]],
        )
        for name in sorted(plan.policies)
    ]
