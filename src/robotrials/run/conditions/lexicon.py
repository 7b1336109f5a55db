"""The words of instructions, by what they mean, and a check that two instructions mean the same.

An instruction's meaning is the sequence of its concepts: phrases of the lexicon become concepts, words that carry no
meaning here are left out, and every other word stands for itself. Order counts: red on blue is not blue on red.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from robotrials.errors import InputError

VERBS: Mapping[str, tuple[str, ...]] = {
    'pick': ('pick up', 'grasp', 'grab', 'take hold of', 'pick', 'lift', 'retrieve', 'take'),
    'put': ('put', 'place', 'set', 'position', 'deposit', 'lay'),
    'move': ('move', 'bring', 'transfer', 'shift', 'carry'),
    'push': ('push', 'slide', 'shove', 'nudge'),
    'stack': ('stack', 'pile'),
    'insert': ('insert', 'fit', 'plug'),
    'open': ('open', 'pull open'),
    'close': ('close', 'shut'),
    'turn_on': ('turn on', 'switch on'),
    'turn_off': ('turn off', 'switch off'),
}
COLORS: Mapping[str, tuple[str, ...]] = {
    'red': ('red', 'crimson', 'scarlet'),
    'blue': ('blue', 'azure', 'cobalt'),
    'green': ('green', 'emerald'),
    'yellow': ('yellow', 'lemon-coloured'),
    'orange': ('orange', 'tangerine'),
    'purple': ('purple', 'violet'),
    'white': ('white', 'snow-white'),
    'black': ('black', 'jet-black'),
    'grey': ('grey', 'gray'),
}
NOUNS: Mapping[str, tuple[str, ...]] = {
    'block': ('block', 'cube', 'brick'),
    'cylinder': ('cylinder', 'round column', 'cylindrical block'),
    'bowl': ('bowl', 'dish'),
    'plate': ('plate', 'platter'),
    'mug': ('mug', 'cup'),
    'bin': ('bin', 'tote', 'container'),
    'basket': ('basket', 'hamper'),
    'tray': ('tray', 'serving tray'),
    'drawer': ('drawer',),
    'stove': ('stove', 'cooker'),
    'slot': ('slot', 'socket'),
    'peg': ('peg', 'pin'),
    'battery': ('battery',),
    'gripper': ('gripper', 'robot hand', 'end effector'),
    'camera': ('camera',),
    'table': ('table', 'tabletop'),
    'square': ('square',),
    'spoon': ('spoon',),
    'scissors': ('pair of scissors', 'scissors'),
    'target_place': ('target place', 'goal area', 'target location', 'target spot', 'marked spot'),
}
RELATIONS: Mapping[str, tuple[str, ...]] = {
    'left_of': ('to the left of', 'left of', 'on the left side of'),
    'right_of': ('to the right of', 'right of', 'on the right side of'),
    'behind': ('behind', 'in back of', 'at the back of'),
    'in_front_of': ('in front of',),
    'on_top': ('on top', 'on the top'),
    'on': ('on top of', 'on', 'onto', 'atop'),
    'in': ('in', 'into', 'inside'),
    'beside': ('next to', 'beside', 'alongside', 'by the side of'),
    'between': ('between', 'in between'),
    'under': ('under', 'below', 'beneath', 'underneath'),
    'seen_from': ('as seen from', 'from the viewpoint of', 'from the point of view of', 'relative to'),
    'nearest': ('nearest', 'closest'),
    'farthest': ('farthest', 'furthest'),
    'largest': ('largest', 'biggest'),
    'smallest': ('smallest', 'tiniest'),
}
# Understood and never said: they clash with a neighbour (a cylindrical block is a block too) or read badly.
HEARD_ONLY = frozenset({'pick', 'plug', 'cylindrical block', 'scissors', 'at the back of'})
MOTIONS = frozenset({'put', 'move', 'push', 'stack', 'insert'})
GOING = frozenset({'onto', 'into'})  # only where the verb moves something there
MOVABLE = frozenset({'block', 'cylinder', 'bowl', 'plate', 'mug', 'peg', 'battery', 'spoon', 'scissors', 'basket'})
THINGS: Mapping[str, tuple[str, ...]] = {'thing': ('object', 'item', 'thing')}
CONCEPTS: Mapping[str, tuple[str, ...]] = {**VERBS, **COLORS, **NOUNS, **RELATIONS, **THINGS}
EMPTY_WORDS = frozenset(
    [
        'the',
        'a',
        'an',
        'and',
        'then',
        'please',
        'could',
        'can',
        'would',
        'you',
        'your',
        'robot',
        'i',
        'we',
        'need',
        'want',
        'to',
        'it',
        'up',
        'now',
        'go',
        'ahead',
        'kindly',
        'is',
        'that',
        'which',
        'task',
        'of',
        'there',
        'with',
    ]
)
WRAPPINGS = (
    'please {}', '{}, please', 'could you {}?', 'robot, {}', 'now {}', 'go ahead and {}', 'I want you to {}',
    'your task: {}',
)  # fmt: skip

_PHRASES = {phrase: concept for concept, phrases in CONCEPTS.items() for phrase in phrases}
_LONGEST_FIRST = re.compile(
    r'(?<![\w-])(' + '|'.join(re.escape(p) for p in sorted(_PHRASES, key=len, reverse=True)) + r')(?![\w-])'
)


class Sameness(enum.StrEnum):
    SAME = 'same'
    DIFFERENT = 'different'
    UNKNOWN = 'unknown'  # words that the lexicon does not have decide it


def spans(text: str) -> list[tuple[int, int, str]]:
    """(start, end, concept) of every phrase of the lexicon in the text, in order."""
    return [(m.start(), m.end(), _PHRASES[m.group()]) for m in _LONGEST_FIRST.finditer(text.lower())]


def meaning(text: str) -> tuple[str, ...]:
    """The concepts of an instruction, in order; a word that is not in the lexicon stands for itself, in quotes."""
    found: list[str] = []
    at = 0
    lowered = text.lower()
    for start, end, concept in [*spans(text), (len(text), len(text), '')]:
        between = re.findall(r"[\w'-]+", lowered[at:start])
        found += [f'"{word}"' for word in between if word not in EMPTY_WORDS]
        if concept:
            found.append(concept)
        at = end
    return tuple(found)


def compare_meaning(canonical: str, candidate: str) -> Sameness:
    """Whether a candidate means what the canonical instruction means.

    `object` may stand for a noun whose colour is named with it; never the other way round. A concept too many, too few
    or out of order is DIFFERENT; words outside the lexicon make it UNKNOWN unless the concepts already differ.
    """
    wanted, found = meaning(canonical), meaning(candidate)
    if not wanted:
        raise InputError(f'an instruction needs at least one word that means something, found {canonical!r}')
    if _match(wanted, found):
        return Sameness.SAME
    strange = [word for word in found if word.startswith('"') and word not in wanted]
    known = tuple(word for word in found if word not in strange)
    if not strange:
        return Sameness.DIFFERENT
    # A strange word may be a synonym of one concept that is missing; anything else is a real difference.
    missing = len(wanted) - len(known)
    return Sameness.UNKNOWN if 0 <= missing <= len(strange) and _in_order(known, wanted) else Sameness.DIFFERENT


def _match(wanted: tuple[str, ...], found: tuple[str, ...]) -> bool:
    if len(wanted) != len(found):
        return False
    for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
        is_named_by_color = b == 'thing' and a in NOUNS and i > 0 and wanted[i - 1] in COLORS
        if a != b and not is_named_by_color:
            return False
    return True


def _in_order(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    rest = iter(whole)
    return all(any(p == w or (p == 'thing' and w in NOUNS) for w in rest) for p in part)
