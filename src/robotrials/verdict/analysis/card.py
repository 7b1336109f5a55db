"""What is known of each policy: its card, and how the plan declared it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robotrials.record import PolicyCard

if TYPE_CHECKING:
    from robotrials.record import Provenance, Unblinding

# What a card can say beside whose it is; a plan of another version may declare more.
CARD_FIELDS = frozenset(f.name for f in dataclasses.fields(PolicyCard)) - {'policy'}


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """One policy's card, and the component and options it was declared with ('' where no plan is open)."""

    card: PolicyCard
    declared: str = ''


def known_policies(origins: Iterable[Provenance], openings: Iterable[Unblinding]) -> dict[str, KnownPolicy]:
    """By policy: a plan's card, else the one recorded with the episodes."""
    found = {card.policy: KnownPolicy(card) for origin in origins for card in origin.policy_cards}
    for opening in openings:
        for name, entry in _declared(opening).items():
            given = entry.get('card')
            facts: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
            facts = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in CARD_FIELDS}
            earlier = found.get(name, KnownPolicy(PolicyCard(policy=name))).card
            card = PolicyCard(policy=name, **facts) if facts else earlier
            found[name] = KnownPolicy(card, _told(entry))
    return found


def _declared(opening: Unblinding) -> Mapping[str, dict[str, object]]:
    try:
        policies = json.loads(opening.plan).get('policies', {})
    except (json.JSONDecodeError, AttributeError):
        return {}
    if not isinstance(policies, dict):
        return {}  # not a plan of the runner's
    return {name: entry for name, entry in policies.items() if isinstance(entry, dict)}


def _told(entry: Mapping[str, object]) -> str:
    options = entry.get('options')
    named = ', '.join(f'{k}={v}' for k, v in options.items()) if isinstance(options, Mapping) else ''
    n = entry.get('execute')
    chunk = f', {n} action{"" if n == 1 else "s"} a chunk' if n else ''
    return f'{entry.get("use", "")}({named}){chunk}'
