"""Blinding: codes instead of policy names wherever somebody could look, until the trial is closed.

Everything here follows from the plan, so a resumed run has the same codes. It hides names from those who have the
store, the console and the logs but not the plan's file; it is no protection against those who have that file.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.old_name import BLINDING_KEY, OLD_NAME
from robotrials.record.blinding import arm_codes, commitment, pseudonyms, public_key, rotation_commitment
from robotrials.run.plan import HUMAN, BlindingOptions, PolicyEntry, TrialPlan, plan_from_json
from robotrials.value import dataclass, read_table

SHORTEST_TERM = 3
PLAIN_WORDS = frozenset(
    {OLD_NAME, 'robotrials', 'testing', 'policy', 'policies', 'model', 'models', 'src'}
)  # they tell nothing


@dataclass(frozen=True, slots=True)
class Blinding:
    """The codes of a plan's policies, and the words that would give them away."""

    codes: Mapping[str, str]  # policy -> code
    key: bytes
    terms: Mapping[str, str]  # word -> what stands for it
    public: str = ''  # of a sealed trial: closes what only the statistician may read
    rotation: bytes = b''  # of a concealed trial: the key of its order
    n_per_arm: int = 0

    @property
    def is_concealed(self) -> bool:
        return bool(self.rotation)

    def name(self, policy: str, place: int) -> str:
        """What stands for a policy in the record of one episode: its code or, in a concealed trial, a pseudonym."""
        if not self.rotation:
            return self.codes[policy]
        codes = tuple(sorted(self.codes.values()))
        return pseudonyms(self.rotation, codes, self.n_per_arm)[self.codes[policy], place]

    def scrub(self, text: str) -> str:
        """`text` with every telling word replaced."""
        for term in sorted(self.terms, key=len, reverse=True):
            text = re.sub(rf'(?<![A-Za-z0-9]){re.escape(term)}(?![A-Za-z0-9])', self.terms[term], text, flags=re.I)
        return text

    def hide(self, text: str) -> str:
        """`text` with every telling word struck out; unlike `scrub`, it does not say which arm was meant."""
        return Blinding({}, b'', dict.fromkeys(self.terms, '[policy]')).scrub(text)

    def seal(self, text: str, *, nonce: str) -> str:
        """`text` made unreadable without the plan (or, after closing, the unblinding record)."""
        return seal(self.key, text, nonce=nonce)


def blinding_of(
    plan: TrialPlan, arms: Mapping[str, PolicyEntry] | None = None, *, rotation: bytes = b''
) -> Blinding:  # fmt: skip
    """The codes of a plan; with blinding off, every policy is its own code.

    Of an operator's plan they are the names of its policies, and `arms` says what is behind them. rotation: of a
    concealed trial, the key of its order.
    """
    key = hmac.digest(plan.as_json().encode(), BLINDING_KEY, 'sha256')
    if not plan.blinding.enabled:
        return Blinding({name: name for name in plan.policies}, key, {})
    if plan.blinding.is_sealed:
        # Its policies are codes; what would tell them apart is in the entries behind them.
        behind = arms or {}
        return Blinding(
            {c: c for c in plan.policies}, rotation or key, _telling(behind), public=plan.blinding.public_key,
            rotation=rotation, n_per_arm=plan.episodes_in_a_cell() * plan.repeats * len(plan.cells()),
        )  # fmt: skip
    codes = arm_codes(sorted(plan.policies), key)
    blinding = Blinding(codes, key, {**_telling(plan.policies), **codes})
    check_open_names(plan, blinding)
    return blinding


def _telling(entries: Mapping[str, PolicyEntry]) -> dict[str, str]:
    """The words that would tell arms apart; what all of them share tells nobody apart."""
    said = {name: set(_words(entry)) for name, entry in entries.items()}
    common = set.intersection(*said.values()) if said else set()
    return {word: '[policy]' for words in said.values() for word in words - common}


def _words(entry: PolicyEntry) -> Iterator[str]:
    yield entry.use
    parts = re.split(r'[:.]', entry.use)
    yield from (part for part in parts if len(part) >= SHORTEST_TERM and part.lower() not in PLAIN_WORDS)
    yield from (text for text in _texts(entry.options) if len(text) >= SHORTEST_TERM)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def check_open_names(plan: TrialPlan, blinding: Blinding) -> None:
    texts = [('task', t.name) for t in plan.tasks] + [('stratum', s.name) for s in plan.strata]
    texts += [('task instruction', t.instruction) for t in plan.tasks]
    texts += [('condition', c.name) for c in plan.conditions] + [('benchmark', plan.benchmark), ('host', plan.host.use)]
    texts += [('fixture', f) for f in plan.rotation.fixtures]
    texts += [('nuisance level', level) for levels in plan.nuisance.values() for level in levels]
    texts += [('host option', text) for text in _texts(plan.host.options)]
    texts += [('condition parameter', text) for c in plan.conditions for text in _texts(c.parameters)]
    names = Blinding(blinding.codes, b'', blinding.codes)
    for kind, text in texts:
        if names.scrub(text) != text:
            raise InputError(
                f'{kind} {text!r} holds the name of a policy and would unblind the trial; rename one of the two, '
                'or set enabled = false under [blinding]'
            )


def blinded_plan(plan: TrialPlan, blinding: Blinding) -> str:
    """The plan as the store shows it while the trial is open: codes for policies, and nothing else about them."""
    values = json.loads(plan.as_json())
    if plan.blinding.enabled and not plan.blinding.is_sealed:
        values['policies'] = {code: {} for code in sorted(blinding.codes.values())}
        values['reference'] = ''
        values['title'] = blinding.hide(plan.title)
        values['blinding'] = {'enabled': True}
    return json.dumps(values, sort_keys=True, indent=1)


def derived_seed(key: bytes, *parts: str | int, bits: int = 31) -> int:
    """A seed that depends on every part and on nothing else."""
    text = json.dumps(parts, separators=(',', ':'))
    return int.from_bytes(hmac.digest(key, text.encode(), 'sha256')[:8]) >> (64 - bits)


def seal(key: bytes, text: str, *, nonce: str) -> str:
    """`text` under a key stream of SHA-256 in counter mode: hidden from a casual look, opened by `unseal`."""
    packed = zlib.compress(text.encode('utf-8', 'backslashreplace'))
    return base64.b85encode(_mask(packed, key, nonce)).decode()


def unseal(key: bytes, sealed: str, *, nonce: str) -> str:
    """The text that `seal` hid."""
    try:
        return zlib.decompress(_mask(base64.b85decode(sealed), key, nonce)).decode()
    except (ValueError, zlib.error) as error:
        raise InputError(f'{nonce}: the sealed text does not open with this plan ({error})') from error


def _mask(data: bytes, key: bytes, nonce: str) -> bytes:
    stream = b''.join(
        hashlib.sha256(key + nonce.encode() + block.to_bytes(8)).digest() for block in range(len(data) // 32 + 1)
    )
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


# Sealing a trial: who is who goes to the statistician, how to reach each code to the machine, and the rest on.
# operator.json for the operator: codes instead of policies; nothing in it leads back, or tells which comes when
# arms.json for the account of the machine that runs: the key of the order, and code -> how to open it; names no
# policy, but its options may tell allocation.json for the statistician alone: the random secret, the whole plan, which
# code is which policy

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
        allocation = Allocation(bytes.fromhex(values['secret']), plan, operator, rotation)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not the allocation of a sealed trial ({error})') from error
    if commitment(allocation.secret, plan.as_json()) != operator.blinding.commitment:
        raise InputError(f"{path}: its secret and plan are not those that the operator's plan commits to")
    return allocation


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error
