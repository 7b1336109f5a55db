"""Unblinding records: which policy each code stood for, who opened that and when. Logged once, when a trial closes.

While a trial is open its episodes carry codes. Readers apply these records, so that closing rewrites nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, StoreError
from robotrials.old_name import COMMITMENT_TAG
from robotrials.record.commit import log_entry
from robotrials.record.entry import EntryKind
from robotrials.record.episode import Episode
from robotrials.record.ledger import Ledger, read_ledger

FOLDER = 'unblinding'  # of older versions
CODE_DIGITS = 4
PSEUDONYM_DIGITS = 6
MOST_PER_ARM = 1_000_000  # as many as a plan may have in all
PLAN_HASH_DIGITS = 32
# Left out where they are empty: older records keep their signature.
LATER_FIELDS = ('operator_plan', 'rotation', 'n_per_arm', 'leakage')
ROTATION_TAG = b'robotrials rotation'


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """How well the arms of a trial could be guessed from what its operator's account can read."""

    source: str  # what the guesses rest on
    n: int
    n_right: int
    n_arms: int
    bits: float  # per episode
    low: float  # of its 95 % interval
    high: float
    telling: str = ''  # what told most

    def __str__(self) -> str:
        return (
            f'{self.bits:.3f} bits per episode, 95 % interval {self.low:.3f} to {self.high:.3f} ({self.n_right} of '
            f'{self.n} arms guessed right, {self.n / self.n_arms:.0f} by chance)'
        )


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
    rotation: str = ''  # of a concealed trial: the key of its order and of its episodes' pseudonyms, in hex
    n_per_arm: int = 0  # how many episodes each of its arms was planned to have
    leakage: tuple[Leakage, ...] = ()  # of a sealed trial: how well its arms could be guessed while it was open
    signature: str = ''  # of all the above, with the key that only who sealed the trial had

    def names(self) -> Mapping[str, str]:
        """What stands in the record for a policy -> the policy: its code or, in a concealed trial, every pseudonym."""
        if not self.rotation:
            return self.policies
        given = pseudonyms(bytes.fromhex(self.rotation), tuple(sorted(self.policies)), self.n_per_arm)
        return {name: self.policies[code] for (code, _), name in given.items()}


@dataclass(frozen=True, slots=True)
class Unblindings:
    """All openings of a store, by trial."""

    by_trial: Mapping[str, Unblinding] = field(default_factory=dict)
    _known: dict[str, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)

    def apply(self, episode: Episode) -> Episode:
        """The episode under its policy's name, if its trial has been closed."""
        opening = self.by_trial.get(episode.trial_id)
        policy = self._names(episode.trial_id).get(episode.policy)
        if opening is None or policy is None:
            return episode
        return episode.replace(policy=policy, is_reference=policy == opening.policies.get(opening.reference))

    def _names(self, trial_id: str) -> Mapping[str, str]:
        if trial_id not in self._known and trial_id in self.by_trial:
            self._known[trial_id] = self.by_trial[trial_id].names()
        return self._known.get(trial_id, {})

    def codes(self, names: Collection[object]) -> list[str]:
        """Every code that stood for one of these policies."""
        return [code for trial in self.by_trial for code, policy in self._names(trial).items() if policy in names]


def arm_codes(names: Iterable[str], key: bytes) -> dict[str, str]:
    """The code of each policy under a key: policy -> arm-XXXX."""
    digests = {name: hmac.digest(key, name.encode(), 'sha256').hex() for name in names}
    digits = CODE_DIGITS
    while len({d[:digits] for d in digests.values()}) < len(digests):
        digits += 1
    return {name: f'arm-{digests[name][:digits]}' for name in digests}


@functools.lru_cache(maxsize=8)
def pseudonyms(rotation: bytes, codes: tuple[str, ...], n_per_arm: int) -> Mapping[tuple[str, int], str]:
    """The name that stands for an arm in one episode alone: (code, place of the episode in its arm) -> name.

    Without the key, two names of one arm are no more alike than names of two arms.
    """
    digests = {
        (code, place): hmac.digest(rotation, f'{code} {place}'.encode(), 'sha256').hex()
        for code in codes for place in range(n_per_arm)
    }  # fmt: skip
    digits = PSEUDONYM_DIGITS
    while len({d[:digits] for d in digests.values()}) < len(digests):
        digits += 1
    return {key: f'ep-{digest[:digits]}' for key, digest in digests.items()}


def rotation_commitment(rotation: bytes) -> str:
    """What binds a concealed trial to the key of its order, and tells nothing of it."""
    return hashlib.sha256(ROTATION_TAG + rotation).hexdigest()


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
            order = json.loads(unblinding.operator_plan)['blinding'].get('rotation', '')
            if (rotation_commitment(bytes.fromhex(unblinding.rotation)) if unblinding.rotation else '') != order:
                return 'the key of its order is not the one that was committed to when the trial was sealed'
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


def board_opening(trial_id: str, plan: str, path: Path) -> Unblinding | None:
    """What shows an open trial by arm, from its arms.json: pseudonyms become codes, and codes stay codes."""
    committed = json.loads(plan)['blinding'].get('rotation', '')
    if not committed:
        return None  # its episodes carry codes
    try:
        values = json.loads(path.read_bytes())
        rotation = bytes.fromhex(values['rotation'])
        record = Unblinding(
            trial_id=trial_id, by='', at='', policies={code: code for code in values['arms']},
            rotation=rotation.hex(), n_per_arm=int(values['n_per_arm']),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not the arms.json of a sealed trial ({error})') from error
    if rotation_commitment(rotation) != committed:
        raise InputError(f'{path}: the arms of another trial; use the file that was sealed with this one')
    return record


def read_unblindings(root: Path) -> Unblindings:
    """The openings of a store; a file that is not one is named."""
    return Unblindings({u.trial_id: u for u in reversed(all_unblindings(root, read_ledger(root)))})


def all_unblindings(root: Path, ledger: Ledger) -> list[Unblinding]:
    """Every opening on record, the first that counts first: two copies of a store may each have been closed."""
    records = [_parse(entry.body.get('unblinding', {}), where=f'{root}: the log') for entry in ledger.closings]
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
    return {k: v for k, v in values.items() if v or k not in LATER_FIELDS}


def _read(path: Path) -> Unblinding:
    try:
        return _parse(json.loads(path.read_text(encoding='utf-8')), where=str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f'{path}: not an unblinding record ({error}); run: robotrials store verify') from error


def _parse(values: Any, *, where: str) -> Unblinding:
    try:
        record = Unblinding(**{**values, 'leakage': tuple(map(_leakage, values.get('leakage', ())))})
        bytes.fromhex(record.rotation)
        n_per_arm: Any = values.get('n_per_arm', 0)
        if type(n_per_arm) is not int or not 0 <= n_per_arm <= MOST_PER_ARM:
            raise ValueError(f'{n_per_arm!r} episodes of each arm')
        return record
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(f'{where}: not an unblinding record ({error}); run: robotrials store verify') from error


def _leakage(values: Mapping[str, Any]) -> Leakage:
    counts, sizes = [values[k] for k in ('n', 'n_right', 'n_arms')], [values[k] for k in ('bits', 'low', 'high')]
    if not all(type(n) is int and n >= 0 for n in counts) or not all(isinstance(x, int | float) for x in sizes):
        raise ValueError('a leakage without its numbers')
    if not values['n_arms'] or not all(isinstance(values.get(k, ''), str) for k in ('source', 'telling')):
        raise ValueError('a leakage of no arms')
    return Leakage(**values)
