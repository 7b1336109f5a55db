"""Instruction paraphrase: other words, the same meaning; the words that were used are part of the record.

Paraphrases by a language model behind an OpenAI-compatible endpoint, checked before they are used or kept.
"""

from __future__ import annotations

import enum
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from robotrials.catalog import Catalog
from robotrials.errors import InputError, NotEstimable
from robotrials.run.conditions.condition import CONDITIONS, Effect, SingleCondition, check_severity, generator
from robotrials.value import dataclass
from robotrials.wire.chat import ChatClient, ChatFault, ChatFaultKind, ChatMessage, ChatReply, ChatSettings, ReplyState

# The words of instructions, by what they mean, and a check that two instructions mean the same.
# An instruction's meaning is the sequence of its concepts: phrases of the lexicon become concepts, words that carry no
# meaning here are left out, and every other word stands for itself. Order counts: red on blue is not blue on red.

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
FILLERS = (
    'the a an and then please could can would you your robot i we need want to it up now go ahead kindly is that which '
    'task of there with'
)
EMPTY_WORDS = frozenset(FILLERS.split())
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
    concepts: list[str] = []
    at = 0
    lowered = text.lower()
    for start, end, concept in [*spans(text), (len(text), len(text), '')]:
        between = re.findall(r"[\w'-]+", lowered[at:start])
        concepts += [f'"{word}"' for word in between if word not in EMPTY_WORDS]
        if concept:
            concepts.append(concept)
        at = end
    return tuple(concepts)


def compare_meaning(canonical: str, candidate: str) -> Sameness:
    """Whether a candidate means what the canonical instruction means.

    `object` may stand for a noun whose colour is named with it; never the other way round. A concept too many, too few
    or out of order is DIFFERENT; words outside the lexicon make it UNKNOWN unless the concepts already differ.
    """
    wanted, given = meaning(canonical), meaning(candidate)
    if not wanted:
        raise InputError(f'an instruction needs at least one word that means something, found {canonical!r}')
    if _match(wanted, given):
        return Sameness.SAME
    strange = [word for word in given if word.startswith('"') and word not in wanted]
    known = tuple(word for word in given if word not in strange)
    if not strange:
        return Sameness.DIFFERENT
    # A strange word may be a synonym of one concept that is missing; anything else is a real difference.
    missing = len(wanted) - len(known)
    return Sameness.UNKNOWN if 0 <= missing <= len(strange) and _in_order(known, wanted) else Sameness.DIFFERENT


def _match(wanted: tuple[str, ...], given: tuple[str, ...]) -> bool:
    if len(wanted) != len(given):
        return False
    for i, (a, b) in enumerate(zip(wanted, given, strict=True)):
        is_named_by_color = b == 'thing' and a in NOUNS and i > 0 and wanted[i - 1] in COLORS
        if a != b and not is_named_by_color:
            return False
    return True


def _in_order(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    rest = iter(whole)
    return all(any(p == w or (p == 'thing' and w in NOUNS) for w in rest) for p in part)


# What the words of an instruction may mean in a scene: a paraphrase must not fit more things than the original.


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that stands in the scene, as words of the lexicon name it; no colour is an empty one."""

    noun: str
    color: str = ''


def references(text: str, things: Sequence[Thing]) -> list[frozenset[int]]:
    """For every noun of the text, in order, which of the things it fits with the colour that is said with it."""
    candidates = []
    color = ''
    for _, _, concept in spans(text):
        if concept in COLORS:
            color = concept
        elif concept in NOUNS or concept == 'thing':
            fits = (
                i
                for i, thing in enumerate(things)
                if color in ('', thing.color)
                and (thing.noun == concept or (concept == 'thing' and thing.noun in MOVABLE))
            )
            candidates.append(frozenset(fits))
            color = ''
        else:
            color = ''
    return candidates


def keeps_references(canonical: str, text: str, things: Sequence[Thing] | None) -> bool:
    """Whether every noun of the text fits no more things than its original does.

    Without a known scene a noun must stay itself: `object` for a block could fit anything.
    """
    if things is None:
        wanted, said = ([c for _, _, c in spans(t)].count('thing') for t in (canonical, text))
        return said <= wanted
    before, after = references(canonical, things), references(text, things)
    return len(before) != len(after) or all(new <= old for old, new in zip(before, after, strict=True))


RULES = 'rules'


@runtime_checkable
class Paraphraser(Protocol):
    """Anything that rewords an instruction: the local rules, or a language model behind an endpoint."""

    @property
    def name(self) -> str: ...

    def paraphrase(self, instruction: str, *, severity: float, seed: int, things: Sequence[Thing] | None = None) -> str:
        """The instruction in other words; none of them may fit more of the scene's `things` than before."""


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction(SingleCondition):
    """An instruction in other words: what was asked for, and what was said.

    Where the host draws what is asked for, the words can't be known before its reset: until then `canonical` is empty,
    and `say` finds the words.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('instruction',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.INSTRUCTION})

    severity: float
    seed: int
    canonical: str
    text: str
    source: str  # who reworded it; until then who is to

    @classmethod
    def draw(
        cls,
        severity: float,
        *,
        seed: int,
        canonical: str,
        paraphraser: Paraphraser | str | None = None,
        things: Sequence[Thing] | None = None,
    ) -> Instruction:
        """A paraphraser may be named in words, as in a plan: `rules`, or `endpoint,url=...,model=...,cache=...`.

        `things` is what the scene holds; without it no word becomes wider (`object` for a block).
        """
        s = check_severity('instruction', severity)
        if not canonical:
            named = paraphraser if isinstance(paraphraser, str) else ''
            return cls(severity=s, seed=seed, canonical='', text='', source=named)
        chosen = load_paraphraser(paraphraser) if isinstance(paraphraser, str) else paraphraser or RuleParaphraser()
        text = chosen.paraphrase(canonical, severity=s, seed=seed, things=things) if s else canonical
        if not keeps_references(canonical, text, things):
            raise NotEstimable(f'{chosen.name}: {text!r} is not clear in its scene; it says {canonical!r} too widely')
        return cls(severity=s, seed=seed, canonical=canonical, text=text, source=chosen.name if s else 'canonical')

    @property
    def is_said(self) -> bool:
        return bool(self.canonical)

    def say(
        self, canonical: str, *, paraphraser: Paraphraser | None = None, things: Sequence[Thing] | None = None
    ) -> Instruction:
        """The same condition with its words; one that has them stays as it is, for its own instruction only."""
        if not canonical:
            raise InputError('the condition instruction needs words to paraphrase; the task has no instruction')
        if not self.is_said:
            chosen = paraphraser or self.source or None
            return Instruction.draw(
                self.severity, seed=self.seed, canonical=canonical, paraphraser=chosen, things=things
            )
        if self.canonical != canonical:
            raise InputError(f'the paraphrase is of {self.canonical!r}, the task says {canonical!r}')
        return self


PARAPHRASERS = Catalog(
    'paraphraser',
    {
        RULES: 'robotrials.run.conditions.instruction:make_rules',
        'endpoint': 'robotrials.run.conditions.instruction:make_endpoint',
    },
)


def load_paraphraser(spec: str) -> Paraphraser:
    """The paraphraser that a specification names: NAME,key=value,... or a literal `module:function`."""
    name, *pairs = spec.split(',')
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition('=')
        if not separator or not key:
            raise InputError(f'{spec!r}: wanted NAME,key=value,..., found {pair!r}')
        options[key] = value
    factory = PARAPHRASERS.load(name)
    made = factory(options) if callable(factory) else None
    if not isinstance(made, Paraphraser):
        raise InputError(f'{name}: wanted a function that makes a paraphraser, found {type(made).__name__}')
    return made


def make_rules(options: Mapping[str, str]) -> RuleParaphraser:
    if options:
        raise InputError(f'the rules take no options, found {sorted(options)}')
    return RuleParaphraser()


@dataclass(frozen=True, slots=True)
class RuleParaphraser:
    """Synonyms from the lexicon, and a polite wrapping; every result is checked to mean the same.

    The severity is the share of the known phrases that are replaced; above 0.6 a noun may become `object` where its
    colour still tells it in the scene, and above 0.3 the sentence may be wrapped.
    """

    name: str = RULES
    tries: int = 40

    def paraphrase(self, instruction: str, *, severity: float, seed: int, things: Sequence[Thing] | None = None) -> str:
        """The instruction in other words; InputError when the lexicon has no other words for it."""
        if not any(_others(instruction, span) for span in spans(instruction)):
            raise InputError(f'no word of {instruction!r} has a synonym in the lexicon; use the endpoint paraphraser')
        for attempt in range(self.tries):
            text = self._reword(instruction, severity, seed, attempt)
            is_same = compare_meaning(instruction, text) is Sameness.SAME
            if text.lower() != instruction.lower() and is_same and keeps_references(instruction, text, things):
                return text
        raise NotEstimable(f'no rewording of {instruction!r} kept its meaning in {self.tries} tries')

    def _reword(self, instruction: str, severity: float, seed: int, attempt: int) -> str:
        rng = generator('instruction', seed, instruction, attempt)
        replaceable = [(span, others) for span in spans(instruction) if (others := _others(instruction, span))]
        n = max(1, math.ceil(severity * len(replaceable)))
        chosen = set(rng.choice(len(replaceable), size=min(n, len(replaceable)), replace=False).tolist())
        pieces, at = [], 0
        for i, ((start, end, concept), others) in enumerate(replaceable):
            if i not in chosen:
                continue
            before = spans(instruction[:start])
            is_told_by_color = bool(before) and before[-1][2] in COLORS and concept in MOVABLE
            if severity > 0.6 and is_told_by_color and rng.random() < 0.3:
                others = ['object']
            word = str(rng.choice(others))
            pieces += [instruction[at:start], word[0].upper() + word[1:] if instruction[start].isupper() else word]
            at = end
        text = _articles(''.join([*pieces, instruction[at:]]))
        if severity > 0.3 and rng.random() < severity:
            bare = text.rstrip('.!')
            text = str(rng.choice(WRAPPINGS)).format(bare[0].lower() + bare[1:])
            text = text[0].upper() + text[1:]
        return text


def _others(instruction: str, span: tuple[int, int, str]) -> list[str]:
    """What may be said instead of a phrase at its place."""
    start, end, concept = span
    others = [p for p in CONCEPTS[concept] if p != instruction[start:end].lower() and p not in HEARD_ONLY]
    if not _goes_there(instruction, start, end):
        others = [p for p in others if p not in GOING]
    return others


def _goes_there(instruction: str, start: int, end: int) -> bool:
    """Whether a preposition says where the verb moves something: it is the only one in the verb's clause."""
    concepts = [(s, c) for s, _, c in spans(instruction) if c in VERBS or c in RELATIONS]
    verbs = [s for s, c in concepts if c in VERBS and s < start]
    if not verbs or dict(concepts)[verbs[-1]] not in MOTIONS:
        return False
    stop = min([s for s, c in concepts if c in VERBS and s > end], default=len(instruction))
    comma = instruction.find(',', end)
    stop = min(stop, comma) if comma >= 0 else stop
    return sum(c in RELATIONS and verbs[-1] < s < stop for s, c in concepts) == 1


def _articles(text: str) -> str:
    """`a emerald` becomes `an emerald`, and `an block` becomes `a block`."""
    text = re.sub(r'\b([Aa])n? (?=[aeio])', r'\1n ', text)
    return re.sub(r'\b([Aa])n (?=[^aeiou\W])', r'\1 ', text)


ASK = (
    'Reword this instruction for a robot in {n} different ways. Keep exactly the same meaning: the same action, the '
    'same objects told apart by the same attributes, the same spatial relation. {manner} Answer with a JSON list of '
    'strings and nothing else.\nInstruction: {instruction}'
)
JUDGE = (
    'Do these two instructions ask a robot for exactly the same thing: same action, same objects, same spatial '
    'relation? Answer yes or no.\n1. {canonical}\n2. {candidate}'
)
MANNERS = ('Change only a word or two.', 'Change most of the words.', 'Use quite another sentence and uncommon words.')


@dataclass(frozen=True, slots=True)
class EndpointParaphraser:
    """Ask a chat model for paraphrases; keep usable answers in a folder, so that a trial can be repeated.

    A candidate is used when the lexicon finds it the same; when words outside the lexicon decide, the model is asked to
    judge it; a candidate that the lexicon finds different is never used.
    """

    settings: ChatSettings
    n_candidates: int = 8
    client: ChatClient = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'client', ChatClient(self.settings))

    @property
    def name(self) -> str:
        return f'endpoint:{self.settings.model}'

    def paraphrase(self, instruction: str, *, severity: float, seed: int, things: Sequence[Thing] | None = None) -> str:
        """One accepted paraphrase, chosen by the seed; NotEstimable when the model gave none that keeps the meaning."""
        manner = MANNERS[min(int(severity * len(MANNERS)), len(MANNERS) - 1)]
        said = self._answer(
            ASK.format(n=self.n_candidates, manner=manner, instruction=instruction), _string_list, 'a list of strings'
        )
        candidates = _string_list(said) or []
        clear = [text for text in dict.fromkeys(candidates) if keeps_references(instruction, text, things)]
        accepted = [text for text in clear if self._is_accepted(instruction, text)]
        if not accepted:
            raise NotEstimable(
                f'{self.name}: none of {len(candidates)} paraphrases of {instruction!r} kept its meaning: '
                f'{candidates[:3]}'
            )
        return accepted[seed % len(accepted)]

    def _is_accepted(self, canonical: str, candidate: str) -> bool:
        if not candidate.strip() or candidate.strip().lower() == canonical.strip().lower():
            return False
        verdict = compare_meaning(canonical, candidate)
        if verdict is Sameness.UNKNOWN:
            said = self._answer(JUDGE.format(canonical=canonical, candidate=candidate), _yes_or_no, 'yes or no')
            return _yes_or_no(said) == 'yes'
        return verdict is Sameness.SAME

    def _answer(self, prompt: str, read: Callable[[str], object], wanted: str) -> str:
        """The answer if it reads as what is wanted; only then is it kept."""

        def is_usable(reply: ChatReply) -> bool:
            return reply.state is ReplyState.ANSWERED and read(reply.text) is not None

        reply = self.client.ask([ChatMessage('user', (prompt,))], is_usable=is_usable)
        if not is_usable(reply):
            text = reply.detail or reply.text[:200]
            raise ChatFault(
                ChatFaultKind.NOT_CHAT, f'{self.settings.url}: wanted {wanted}, found {reply.state}: {text!r}'
            )
        return reply.text


def make_endpoint(options: Mapping[str, str]) -> EndpointParaphraser:
    """From options in words: url, model and cache (required); key_env, timeout, retries, temperature, token_limit,
    token_limit_name, candidates.
    """
    known = ('url', 'model', 'cache', 'key_env', 'timeout', 'retries', 'temperature', 'token_limit',
             'token_limit_name', 'candidates')  # fmt: skip
    for name in ('url', 'model', 'cache'):
        if name not in options:
            raise InputError(f'the endpoint paraphraser needs {name}=...; found {sorted(options) or "no option"}')
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f'the endpoint paraphraser knows no option {unknown[0]!r}; known: {", ".join(known)}')
    try:
        settings = ChatSettings(
            url=options['url'], model=options['model'], cache=Path(options['cache']),
            api_key=os.environ.get(options.get('key_env', 'OPENAI_API_KEY'), ''),
            timeout_s=float(options.get('timeout', '60')), retries=int(options.get('retries', '5')),
            temperature=float(options.get('temperature', '0')), token_limit=int(options.get('token_limit', '1024')),
            token_limit_name=options.get('token_limit_name', 'max_tokens'),
        )  # fmt: skip
        return EndpointParaphraser(settings, int(options.get('candidates', '8')))
    except ValueError as error:
        raise InputError(f'the endpoint paraphraser: {error}') from error


def _string_list(answer: str) -> list[str] | None:
    """The JSON list of strings in a model's answer, with or without a code fence round it; None without one."""
    match = re.search(r'\[.*\]', answer, flags=re.DOTALL)
    try:
        texts = json.loads(match.group()) if match else None
    except (ValueError, RecursionError):
        return None
    return texts if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) else None


def _yes_or_no(answer: str) -> str | None:
    match = re.match(r'\W*(yes|no)\b', answer.lower())
    return match.group(1) if match else None
