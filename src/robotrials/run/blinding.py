"""Blinding: codes instead of policy names wherever somebody could look, until the trial is closed.

Everything here follows from the plan, so a resumed run has the same codes. It hides names from those who have the
store, the console and the logs but not the plan's file; it is no protection against those who have that file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from robotrials.errors import InputError
from robotrials.old_name import BLINDING_KEY, OLD_NAME
from robotrials.record.unblinding import arm_codes, pseudonyms
from robotrials.run.plan import PolicyEntry, TrialPlan

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
    shown = [('task', t.name) for t in plan.tasks] + [('stratum', s.name) for s in plan.strata]
    shown += [('task instruction', t.instruction) for t in plan.tasks]
    shown += [('condition', c.name) for c in plan.conditions] + [('benchmark', plan.benchmark), ('host', plan.host.use)]
    shown += [('fixture', f) for f in plan.rotation.fixtures]
    shown += [('nuisance level', level) for levels in plan.nuisance.values() for level in levels]
    shown += [('host option', text) for text in _texts(plan.host.options)]
    shown += [('condition parameter', text) for c in plan.conditions for text in _texts(c.parameters)]
    names = Blinding(blinding.codes, b'', blinding.codes)
    for kind, text in shown:
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
