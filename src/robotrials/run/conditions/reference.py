"""What the words of an instruction may mean in a scene: a paraphrase must not fit more things than the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robotrials.run.conditions.lexicon import COLORS, MOVABLE, NOUNS, spans


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that stands in the scene, as words of the lexicon name it; no colour is an empty one."""

    noun: str
    color: str = ''


def references(text: str, things: Sequence[Thing]) -> list[frozenset[int]]:
    """For every noun of the text, in order, which of the things it fits with the colour that is said with it."""
    found = []
    color = ''
    for _, _, concept in spans(text):
        if concept in COLORS:
            color = concept
        elif concept in NOUNS or concept == 'thing':
            fits = (
                i
                for i, thing in enumerate(things)
                if color in ('', thing.color) and (thing.noun == concept or (concept == 'thing' and _is_movable(thing)))
            )
            found.append(frozenset(fits))
            color = ''
        else:
            color = ''
    return found


def keeps_references(canonical: str, text: str, things: Sequence[Thing] | None) -> bool:
    """Whether every noun of the text fits no more things than its original does.

    Without a known scene a noun must stay itself: `object` for a block could fit anything.
    """
    if things is None:
        wanted, said = ([c for _, _, c in spans(t)].count('thing') for t in (canonical, text))
        return said <= wanted
    before, after = references(canonical, things), references(text, things)
    return len(before) != len(after) or all(new <= old for old, new in zip(before, after, strict=True))


def _is_movable(thing: Thing) -> bool:
    return thing.noun in MOVABLE
