"""The text syntax of signal temporal logic, by recursive descent.

    formula     := disjunction ('->' formula)?
    disjunction := conjunction ('or' conjunction)*
    conjunction := binary ('and' binary)*
    binary      := unary (('until' | 'since') bounds? unary)*
    unary       := 'not' unary | ('always' | 'eventually' | 'historically' | 'once') bounds? unary | primary
    primary     := 'true' | 'false' | comparison | event | '(' formula ')'
    bounds      := '[' seconds ',' (seconds | 'T' | 'inf') ']'
    comparison  := sum ('<' | '<=' | '>' | '>=') sum
    event       := the bare name of a 0/1 signal

Also read: `implies`, `=>`, `&`, `&&`, `|`, `||`, `!`, and the letters G F H O U S for the temporal operators.
"""

from __future__ import annotations

import re

from robotrials.errors import InputError
from robotrials.measure.safety.formula import (
    And,
    Arithmetic,
    Bounds,
    Compare,
    Comparison,
    Event,
    Expression,
    Formula,
    Implies,
    Magnitude,
    Not,
    Number,
    Or,
    Signal,
    Sum,
    Temporal,
    Truth,
    Until,
    Window,
    height,
)
from robotrials.value import dataclass

TOKEN = re.compile(
    r'(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r'|(?P<symbol>->|=>|<=|>=|==|!=|&&|\|\||[-+*/()<>,\[\]&|!:])'
)
SPELLINGS = {
    '&': 'and', '&&': 'and', '|': 'or', '||': 'or', '!': 'not', '=>': '->', 'implies': '->',
}  # fmt: skip
LETTERS = {'G': 'always', 'F': 'eventually', 'H': 'historically', 'O': 'once'}
INFIX_LETTERS = {'U': 'until', 'S': 'since'}
KEYWORDS = frozenset({*Temporal, 'until', 'since', 'not', 'and', 'or', '->', 'true', 'false', 'abs'})
AFTER_A_SIGNAL = frozenset({*Comparison, *Arithmetic, ')', '->', 'and', 'or', 'until', 'since', ''})
DEEPEST = 100
HIGHEST = 300  # operators from the top of a formula to an atom; every walk over it is recursive


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    kind: str
    position: int


def parse_stl(text: str) -> Formula:
    """The formula that `text` says; an error points at the character that was not understood."""
    if not isinstance(text, str):
        raise InputError(f'an STL formula is text, found {type(text).__name__}')
    return _Reader(text, _tokens(text)).whole()


def _tokens(text: str) -> list[Token]:
    tokens, position = [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = TOKEN.match(text, position)
        if match is None:
            raise _error(text, position, f'{text[position]!r} is not part of the syntax')
        word = match.group()
        tokens.append(Token(SPELLINGS.get(word, word), str(match.lastgroup), position))
        position = match.end()
    return [*tokens, Token('', 'end', len(text))]


def _error(text: str, position: int, problem: str) -> InputError:
    return InputError(f'STL formula, character {position + 1}: {problem}\n  {text}\n  {" " * position}^')


class _Reader:
    """One pass over the tokens; `at` moves forward, and back only where a parenthesis could open either kind."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens, self.at, self.depth = text, tokens, 0, 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self, wanted: str) -> InputError:
        word = repr(self.token.text) if self.token.text else 'the end'
        return _error(self.text, self.token.position, f'wanted {wanted}, found {word}')

    def take(self, text: str) -> None:
        if self.token.text != text:
            raise self.fail(repr(text))
        self.at += 1

    def took(self, *texts: str) -> str:
        """The next token's text if it is one of these, having passed it; else ''."""
        if self.token.text in texts and self.token.kind != 'end':
            self.at += 1
            return self.tokens[self.at - 1].text
        return ''

    def whole(self) -> Formula:
        formula = self.formula()
        if self.token.kind != 'end':
            raise self.fail("an operator ('and', 'or', '->', 'until', 'since') or the end")
        if height(formula) > HIGHEST:
            raise _error(
                self.text, 0, f'more than {HIGHEST} operators one in the other; group long chains with parentheses'
            )
        return formula

    def formula(self) -> Formula:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _error(self.text, self.token.position, f'nested deeper than {DEEPEST} levels')
        left = self.disjunction()
        if self.took('->'):
            left = Implies(left, self.formula())
        self.depth -= 1
        return left

    def disjunction(self) -> Formula:
        left = self.conjunction()
        while self.took('or'):
            left = Or(left, self.conjunction())
        return left

    def conjunction(self) -> Formula:
        left = self.binary()
        while self.took('and'):
            left = And(left, self.binary())
        return left

    def binary(self) -> Formula:
        left = self.unary()
        while word := self.took('until', 'since', 'U', 'S'):
            bounds = self.bounds()
            left = Until(bounds, left, self.unary(), is_past=INFIX_LETTERS.get(word, word) == 'since')
        return left

    def unary(self) -> Formula:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _error(self.text, self.token.position, f'nested deeper than {DEEPEST} levels')
        made: Formula
        if self.took('not'):
            made = Not(self.unary())
        elif self.is_temporal():
            word = self.token.text
            self.at += 1
            bounds = self.bounds()
            made = Window(Temporal(LETTERS.get(word, word)), bounds, self.unary())
        else:
            made = self.primary()
        self.depth -= 1
        return made

    def is_temporal(self) -> bool:
        """A single letter is an operator unless what follows makes it a signal's name."""
        if self.token.text in LETTERS:
            return self.tokens[self.at + 1].text not in AFTER_A_SIGNAL
        return self.token.kind == 'name' and self.token.text in set(Temporal)

    def bounds(self) -> Bounds:
        if not self.took('['):
            return Bounds()
        start = self.token.position
        low = self.seconds()
        if not self.took(',', ':'):
            raise self.fail("','")
        high = float('inf') if self.took('T', 'inf') else self.seconds()
        self.take(']')
        if high < low:
            raise _error(self.text, start, f'the window [{low:g},{high:g}] ends before it starts')
        return Bounds(low, high)

    def seconds(self) -> float:
        if self.token.kind != 'number':
            raise self.fail('a number of seconds >= 0')
        return self.number()

    def number(self) -> float:
        value = float(self.token.text)
        if value == float('inf'):
            raise _error(self.text, self.token.position, f'{self.token.text} is beyond every number')
        self.at += 1
        return value

    def primary(self) -> Formula:
        word = self.took('true', 'false')
        if word:
            return Truth(word == 'true')
        start, depth = self.at, self.depth
        if self.token.text != '(':
            return self.comparison()
        try:
            return self.comparison()
        except InputError as as_comparison:
            furthest = self.at
            self.at, self.depth = start, depth
            self.take('(')
            try:
                inner = self.formula()
                self.take(')')
            except InputError as as_formula:
                raise (as_comparison if furthest > self.at else as_formula) from None
            return inner

    def comparison(self) -> Formula:
        start = self.at
        left = self.sum()
        if self.token.text in ('==', '!='):
            raise self.fail("one of < <= > >= (an equality has no margin; bound it from both sides with 'and')")
        word = self.took(*Comparison)
        if word:
            return Compare(Comparison(word), left, self.sum())
        if isinstance(left, Signal) and self.at == start + 1:
            return Event(left.name)
        raise self.fail('one of < <= > >=')

    def sum(self) -> Expression:
        left = self.product()
        while word := self.took('+', '-'):
            left = Sum(Arithmetic(word), left, self.product())
        return left

    def product(self) -> Expression:
        left = self.factor()
        while word := self.took('*', '/'):
            left = Sum(Arithmetic(word), left, self.factor())
        return left

    def factor(self) -> Expression:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _error(self.text, self.token.position, f'nested deeper than {DEEPEST} levels')
        made = self.operand()
        self.depth -= 1
        return made

    def operand(self) -> Expression:
        if self.took('-'):
            inner = self.factor()
            return Number(-inner.value) if isinstance(inner, Number) else Sum(Arithmetic.SUBTRACT, Number(0.0), inner)
        token = self.token
        if token.kind == 'number':
            return Number(self.number())
        if self.took('abs'):
            self.take('(')
            inner = self.sum()
            self.take(')')
            return Magnitude(inner)
        if self.took('('):
            inner = self.sum()
            self.take(')')
            return inner
        if token.kind == 'name' and token.text not in KEYWORDS:
            self.at += 1
            return Signal(token.text)
        raise self.fail('a signal, a number, an event or a parenthesis')
