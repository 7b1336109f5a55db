"""Instruction paraphrase: other words, the same meaning; the words that were used are part of the record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from robotrials.catalog import Catalog
from robotrials.errors import InputError, NotEstimable
from robotrials.run.conditions.condition import CONDITIONS, Effect, SingleCondition, check_severity, generator
from robotrials.run.conditions.lexicon import (
    COLORS,
    CONCEPTS,
    GOING,
    HEARD_ONLY,
    MOTIONS,
    MOVABLE,
    RELATIONS,
    VERBS,
    WRAPPINGS,
    Sameness,
    compare_meaning,
    spans,
)
from robotrials.run.conditions.reference import Thing, keeps_references

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
        'endpoint': 'robotrials.run.conditions.endpoint:make_endpoint',
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
        found = [(span, others) for span in spans(instruction) if (others := _others(instruction, span))]
        n = max(1, math.ceil(severity * len(found)))
        chosen = set(rng.choice(len(found), size=min(n, len(found)), replace=False).tolist())
        pieces, at = [], 0
        for i, ((start, end, concept), others) in enumerate(found):
            if i not in chosen:
                continue
            before = spans(instruction[:start])
            is_told_by_color = bool(before) and before[-1][2] in COLORS and concept in MOVABLE
            if severity > 0.6 and is_told_by_color and rng.random() < 0.3:
                others = ['object']
            pieces += [instruction[at:start], _like(instruction[start:end], str(rng.choice(others)))]
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


def _like(old: str, new: str) -> str:
    return new[0].upper() + new[1:] if old[:1].isupper() else new


def _articles(text: str) -> str:
    """`a emerald` becomes `an emerald`, and `an block` becomes `a block`."""
    text = re.sub(r'\b([Aa])n? (?=[aeio])', r'\1n ', text)
    return re.sub(r'\b([Aa])n (?=[^aeiou\W])', r'\1 ', text)
