"""Unblinding records: which policy each code stood for, who opened that and when. Logged once, when a trial closes.

While a trial is open its episodes carry codes. Readers apply these records, so that closing rewrites nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import StoreError
from robotrials.old_name import COMMITMENT_TAG
from robotrials.record.commit import log_entry
from robotrials.record.entry import EntryKind
from robotrials.record.episode import Episode
from robotrials.record.ledger import Ledger, read_ledger

FOLDER = 'unblinding'  # of older versions
CODE_DIGITS = 4
PLAN_HASH_DIGITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblinding:
    """One trial's opening."""

    trial_id: str
    by: str
    at: str
    policies: Mapping[str, str]  # code -> policy
    reference: str = ''  # the reference's code
    why: str = ''
    plan: str = ''  # the whole plan, as declared
    key: str = ''  # opens what was sealed while the trial was open, in hex
    operator_plan: str = ''  # of a trial with roles apart: the plan that was run; `plan` is then the statistician's
    signature: str = ''  # of all the above, with the key that only who sealed the trial had


@dataclass(frozen=True, slots=True)
class Unblindings:
    """All openings of a store, by trial."""

    by_trial: Mapping[str, Unblinding] = field(default_factory=dict)

    def apply(self, episode: Episode) -> Episode:
        """The episode under its policy's name, if its trial has been closed."""
        found = self.by_trial.get(episode.trial_id)
        if found is None or episode.policy not in found.policies:
            return episode
        return episode.replace(policy=found.policies[episode.policy], is_reference=episode.policy == found.reference)

    def codes(self, names: Collection[object]) -> list[str]:
        """Every code that stood for one of these policies."""
        return [code for u in self.by_trial.values() for code, policy in u.policies.items() if policy in names]


def arm_codes(names: Iterable[str], key: bytes) -> dict[str, str]:
    """The code of each policy under a key: policy -> arm-XXXX."""
    digests = {name: hmac.digest(key, name.encode(), 'sha256').hex() for name in names}
    digits = CODE_DIGITS
    while len({d[:digits] for d in digests.values()}) < len(digests):
        digits += 1
    return {name: f'arm-{digests[name][:digits]}' for name in digests}


def commitment(secret: bytes, plan: str) -> str:
    """What binds a sealed trial to its secret and its whole plan, and tells neither."""
    return hmac.digest(secret, COMMITMENT_TAG + plan.encode(), 'sha256').hex()


def sign(unblinding: Unblinding) -> Unblinding:
    """The record with its signature: whoever has the key can make it, and afterwards everyone can check it."""
    return dataclasses.replace(unblinding, signature=_signature(unblinding))


def _signature(unblinding: Unblinding) -> str:
    values = {k: v for k, v in _as_json(unblinding).items() if k != 'signature'}
    text = json.dumps(values, sort_keys=True, separators=(',', ':'))
    return hmac.digest(bytes.fromhex(unblinding.key), text.encode(), 'sha256').hex()


def check_unblinding(unblinding: Unblinding) -> str:
    """What is wrong with a record, recomputed from the plan and the key in it; '' if nothing is."""
    if not unblinding.plan:
        return ''  # written by hand: nothing to recompute it from
    declared = unblinding.operator_plan or unblinding.plan
    if hashlib.sha256(declared.encode()).hexdigest()[:PLAN_HASH_DIGITS] != unblinding.trial_id:
        return 'its plan is not the plan of the trial'
    try:
        plan, key = json.loads(unblinding.plan), bytes.fromhex(unblinding.key)
        if unblinding.operator_plan:
            committed = json.loads(unblinding.operator_plan)['blinding']['commitment']
            if not hmac.compare_digest(committed, commitment(key, unblinding.plan)):
                return 'its secret and plan are not those that were committed to when the trial was sealed'
        is_blinded = bool(plan['blinding']['enabled'])
        codes = arm_codes(sorted(plan['policies']), key) if is_blinded else {name: name for name in plan['policies']}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f'its plan or key cannot be read ({error})'
    if {code: name for name, code in codes.items()} != dict(unblinding.policies):
        return 'its codes do not follow from the plan and the key'
    if codes.get(plan.get('reference', ''), '') != unblinding.reference:
        return "its reference is not the plan's"
    if unblinding.signature and not hmac.compare_digest(unblinding.signature, _signature(unblinding)):
        return 'its signature does not fit'
    return ''


def read_unblindings(root: Path) -> Unblindings:
    """The openings of a store; a file that is not one is named."""
    return Unblindings({u.trial_id: u for u in reversed(all_unblindings(root, read_ledger(root)))})


def all_unblindings(root: Path, ledger: Ledger) -> list[Unblinding]:
    """Every opening on record, the first that counts first: two copies of a store may each have been closed."""
    records = [_parse(entry.body['unblinding'], where=f'{root}: the log') for entry in ledger.closings]
    folder = root / FOLDER
    return records + ([_read(path) for path in sorted(folder.glob('*.json'))] if folder.is_dir() else [])


def write_unblinding(root: Path, unblinding: Unblinding) -> None:
    """Log an opening; a trial that is already open is refused, with who opened it and when."""
    earlier = read_unblindings(root).by_trial.get(unblinding.trial_id)
    if earlier is not None:
        raise StoreError(f'{root}: this trial was closed by {earlier.by} at {earlier.at}; it closes once')
    log_entry(root, EntryKind.CLOSE, by=unblinding.by, body={'unblinding': _as_json(unblinding)})


def _as_json(unblinding: Unblinding) -> dict[str, Any]:
    values = {**dataclasses.asdict(unblinding), 'policies': dict(unblinding.policies)}
    return {k: v for k, v in values.items() if v or k != 'operator_plan'}


def _read(path: Path) -> Unblinding:
    try:
        return _parse(json.loads(path.read_text(encoding='utf-8')), where=str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f'{path}: not an unblinding record ({error}); run: robotrials store verify') from error


def _parse(values: Any, *, where: str) -> Unblinding:
    try:
        return Unblinding(**values)
    except TypeError as error:
        raise StoreError(f'{where}: not an unblinding record ({error}); run: robotrials store verify') from error
