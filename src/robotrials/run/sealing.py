"""Sealing a trial: who is who goes to the statistician, how to reach each code to the machine, and the rest on.

operator.json    for the operator: codes instead of policies; nothing in it leads back, or tells which comes when
arms.json        for the account of the machine that runs: the key of the order, and code -> how to open it; names no
                 policy, but its options may tell
allocation.json  for the statistician alone: the random secret, the whole plan, which code is which policy
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.record.envelope import public_key
from robotrials.record.unblinding import arm_codes, commitment, rotation_commitment
from robotrials.run.blinding import Blinding, blinding_of, check_open_names
from robotrials.run.plan import HUMAN, BlindingOptions, PolicyEntry, TrialPlan, plan_from_json

SECRET_BYTES = 32
SEALED = 'sealed'  # the `use` of a code in an operator's plan


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the statistician keeps."""

    secret: bytes
    plan: TrialPlan
    operator_plan: TrialPlan
    rotation: bytes = b''  # the key of the order; b'' of an older trial, whose order follows from its plan

    @property
    def codes(self) -> dict[str, str]:
        """Policy -> code."""
        return arm_codes(sorted(self.plan.policies), self.secret)


@dataclass(frozen=True, slots=True)
class Arms:
    """What the account of the machine has: how to open each code, and the key of the order."""

    entries: Mapping[str, PolicyEntry]
    rotation: bytes = b''

    def entry_of(self, plan: TrialPlan, name: str) -> tuple[str, PolicyEntry]:
        """The code behind what stands for an arm in one episode, and how to open it."""
        blinding = blinding_of(plan, self.entries, rotation=self.rotation)
        names = {blinding.name(code, place): code for code in self.entries for place in range(blinding.n_per_arm)}
        if name not in names:
            raise InputError(f'{name} stands for no arm of this plan; the console says the name: assignments[0].code')
        return names[name], self.entries[names[name]]


def seal_trial(plan: TrialPlan, folder: Path | str, *, secret: bytes | None = None) -> Allocation:
    """Write the three files of a sealed trial into a folder; each is new, and readable by its owner alone."""
    if plan.blinding.is_sealed:
        raise InputError("this is an operator's plan already; seal the plan that names the policies")
    if not plan.blinding.enabled:
        raise InputError('blinding is off in this plan; set enabled = true under [blinding]')
    chosen = secret or secrets.token_bytes(SECRET_BYTES)
    codes = arm_codes(sorted(plan.policies), chosen)
    check_open_names(plan, Blinding(codes, b'', codes))
    rotation = secrets.token_bytes(SECRET_BYTES)
    n_per_arm = plan.episodes_in_a_cell() * plan.repeats * len(plan.cells())
    entries = {codes[name]: entry for name, entry in plan.policies.items()}
    arms_text = _arms_text(entries, rotation=rotation, n_per_arm=n_per_arm)
    options = BlindingOptions(
        enabled=True,
        commitment=commitment(chosen, plan.as_json()),
        arms=hashlib.sha256(arms_text.encode()).hexdigest(),
        public_key=public_key(chosen),
        rotation=rotation_commitment(rotation),
    )
    # A person who is an arm knows it: their code says so.
    people = {codes[name] for name, entry in plan.policies.items() if entry.is_human}
    policies = {code: PolicyEntry(HUMAN if code in people else SEALED) for code in sorted(codes.values())}
    title = blinding_of(plan).hide(plan.title)
    operator = dataclasses.replace(plan, policies=policies, reference='', title=title, blinding=options)
    sealed = Allocation(chosen, plan, operator, rotation)
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    _write_new(root / 'allocation.json', json.dumps(_as_json(sealed), indent=1) + '\n')
    _write_new(root / 'arms.json', arms_text)
    _write_new(root / 'operator.json', operator.as_json() + '\n')
    return sealed


def _arms_text(arms: Mapping[str, PolicyEntry], *, rotation: bytes, n_per_arm: int) -> str:
    """How to reach each code. A random salt, so that its hash in the operator's plan can't be guessed at."""
    entries = {code: _entry_json(entry) for code, entry in sorted(arms.items())}
    values = {'salt': secrets.token_hex(16), 'rotation': rotation.hex(), 'n_per_arm': n_per_arm, 'arms': entries}
    return json.dumps(values, indent=1) + '\n'


def _entry_json(entry: PolicyEntry) -> dict[str, Any]:
    values = {**dataclasses.asdict(entry), 'card': {}}
    return {key: value for key, value in values.items() if value not in (None, {}, '')}


def _as_json(sealed: Allocation) -> dict[str, Any]:
    return {
        'secret': sealed.secret.hex(),
        'rotation': sealed.rotation.hex(),
        'codes': sealed.codes,
        'plan': sealed.plan.as_json(),
        'operator_plan': sealed.operator_plan.as_json(),
    }


def _write_new(path: Path, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InputError(f'{path}: is there already; a trial is sealed once. Give another folder') from error
    with os.fdopen(handle, 'w', encoding='utf-8') as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def read_arms(plan: TrialPlan, path: Path | str) -> Arms:
    """How to reach each code of an operator's plan, and when; a file that belongs to another plan is refused."""
    content = _read(path)
    if hashlib.sha256(content).hexdigest() != plan.blinding.arms:
        raise InputError(f'{path}: not the arms of this plan; use the file that was sealed with it')
    values = json.loads(content)
    entries = {code: read_table(PolicyEntry, entry, where=f'{path} {code}') for code, entry in values['arms'].items()}
    return Arms(entries, bytes.fromhex(values.get('rotation', '')))


def read_allocation(path: Path | str) -> Allocation:
    """What `seal_trial` wrote for the statistician."""
    try:
        values = json.loads(_read(path))
        plan, operator = plan_from_json(values['plan']), plan_from_json(values['operator_plan'])
        rotation = bytes.fromhex(values.get('rotation', ''))
        found = Allocation(bytes.fromhex(values['secret']), plan, operator, rotation)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not the allocation of a sealed trial ({error})') from error
    if commitment(found.secret, plan.as_json()) != operator.blinding.commitment:
        raise InputError(f"{path}: its secret and plan are not those that the operator's plan commits to")
    return found


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error
