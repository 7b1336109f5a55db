"""Signal temporal logic: a tree of frozen nodes, and its text syntax by recursive descent.

Arithmetic nodes have a value at every step, logical nodes a margin. `str` of a node is text that parses back to it.

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

import enum
import math
import re
from collections.abc import Iterator

from robotrials.errors import InputError
from robotrials.value import dataclass

EVENT_LEVEL = 0.5  # a bare name is a binary event: it holds above this level of its 0/1 signal


class Relation(enum.StrEnum):
    LT = '<'
    LE = '<='
    GT = '>'
    GE = '>='

    @property
    def is_upper(self) -> bool:
        """Whether the right-hand side bounds the left-hand side from above."""
        return self in (Relation.LT, Relation.LE)


class Arithmetic(enum.StrEnum):
    ADD = '+'
    SUBTRACT = '-'
    MULTIPLY = '*'
    DIVIDE = '/'


ADDITIVE = (Arithmetic.ADD, Arithmetic.SUBTRACT)
MULTIPLICATIVE = (Arithmetic.MULTIPLY, Arithmetic.DIVIDE)


class Temporal(enum.StrEnum):
    """Operators of one argument; the last two look back."""

    ALWAYS = 'always'
    EVENTUALLY = 'eventually'
    HISTORICALLY = 'historically'
    ONCE = 'once'

    @property
    def is_past(self) -> bool:
        return self in (Temporal.HISTORICALLY, Temporal.ONCE)

    @property
    def is_universal(self) -> bool:
        """Whether it takes the worst margin of its window (else the best)."""
        return self in (Temporal.ALWAYS, Temporal.HISTORICALLY)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A closed window in seconds from now, ahead or back; an infinite high end is the end of the trace."""

    low_s: float = 0.0
    high_s: float = math.inf

    @property
    def is_whole(self) -> bool:
        return self.low_s == 0 and self.high_s == math.inf

    def __str__(self) -> str:
        if self.is_whole:
            return ''
        return f'[{_number(self.low_s)},{"T" if math.isinf(self.high_s) else _number(self.high_s)}]'


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    value: float

    def __str__(self) -> str:
        return _number(self.value)


@dataclass(frozen=True, slots=True)
class Signal:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sum:
    """Two arithmetic arguments under + - * or /."""

    operator: Arithmetic
    left: Expression
    right: Expression

    def __str__(self) -> str:
        same = ADDITIVE if self.operator in ADDITIVE else MULTIPLICATIVE
        parts: list[str] = []
        node: Expression = self
        while isinstance(node, Sum) and node.operator in same:
            parts += [str(node.right), str(node.operator)]
            node = node.left
        return f'({" ".join([str(node), *reversed(parts)])})'


@dataclass(frozen=True, slots=True)
class Magnitude:
    """The absolute value."""

    argument: Expression

    def __str__(self) -> str:
        return f'abs({self.argument})'


@dataclass(frozen=True, slots=True)
class Compare:
    """left < right and its kin; margin right - left for upper bounds, left - right for lower ones."""

    operator: Relation
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f'{self.left} {self.operator} {self.right}'


@dataclass(frozen=True, slots=True)
class Proposition:
    """A 0/1 signal read as a proposition; margin signal - 0.5."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Truth:
    is_true: bool

    def __str__(self) -> str:
        return 'true' if self.is_true else 'false'


@dataclass(frozen=True, slots=True)
class Not:
    argument: Formula

    def __str__(self) -> str:
        return f'not ({self.argument})'


@dataclass(frozen=True, slots=True)
class And:
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return _chain(self, ' and ')


@dataclass(frozen=True, slots=True)
class Or:
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return _chain(self, ' or ')


@dataclass(frozen=True, slots=True)
class Implies:
    """if left then right; how the antecedent enters the margin is chosen at evaluation (see Gate)."""

    left: Formula
    right: Formula

    def __str__(self) -> str:
        return f'({self.left} -> {self.right})'


@dataclass(frozen=True, slots=True)
class Window:
    """always, eventually, historically or once over a window."""

    operator: Temporal
    bounds: TimeWindow
    argument: Formula

    def __str__(self) -> str:
        return f'{self.operator}{self.bounds} ({self.argument})'


@dataclass(frozen=True, slots=True)
class Until:
    """left holds from now until, within the bounds, right does; `is_past` makes it `since`.

    left need not hold at the very step at which right does.
    """

    bounds: TimeWindow
    left: Formula
    right: Formula
    is_past: bool = False

    def __str__(self) -> str:
        return f'(({self.left}) {"since" if self.is_past else "until"}{self.bounds} ({self.right}))'


Expression = NumberLiteral | Signal | Sum | Magnitude
Formula = Compare | Proposition | Truth | Not | And | Or | Implies | Window | Until
Node = Expression | Formula


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly under `node`, left to right."""
    if isinstance(node, NumberLiteral | Signal | Proposition | Truth):
        return ()
    if isinstance(node, Magnitude | Not | Window):
        return (node.argument,)
    return node.left, node.right


def walk(node: Node) -> Iterator[Node]:
    """The node and everything under it, depth first."""
    yield node
    for child in children(node):
        yield from walk(child)


def height(node: Node) -> int:
    """The longest way from the node down to an atom, in nodes; without recursion, so that any tree can be measured."""
    deepest, open_nodes = 0, [(node, 1)]
    while open_nodes:
        current, depth = open_nodes.pop()
        deepest = max(deepest, depth)
        open_nodes += [(child, depth + 1) for child in children(current)]
    return deepest


def signal_names(node: Node) -> tuple[str, ...]:
    """Every signal the formula reads, sorted."""
    return tuple(sorted({n.name for n in walk(node) if isinstance(n, Signal | Proposition)}))


def event_names(node: Node) -> frozenset[str]:
    """The signals that the formula reads as 0/1 events."""
    return frozenset(n.name for n in walk(node) if isinstance(n, Proposition))


def _chain(node: And | Or, word: str) -> str:
    """`a and b and c`, which groups to the left, without a parenthesis for each."""
    parts: list[str] = []
    rest: Formula = node
    while isinstance(rest, And | Or) and type(rest) is type(node):
        parts.append(str(rest.right))
        rest = rest.left
    return f'({word.join([str(rest), *reversed(parts)])})'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


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
AFTER_A_SIGNAL = frozenset({*Relation, *Arithmetic, ')', '->', 'and', 'or', 'until', 'since', ''})
MOST_NESTED = 100
HIGHEST = 300  # operators from the top of a formula to an atom; every walk over it is recursive


@dataclass(frozen=True, slots=True)
class FormulaToken:
    text: str
    kind: str
    position: int


def parse_stl(text: str) -> Formula:
    """The formula that `text` says; an error points at the character that was not understood."""
    if not isinstance(text, str):
        raise InputError(f'an STL formula is text, found {type(text).__name__}')
    return _FormulaReader(text, _tokens(text)).whole()


def _tokens(text: str) -> list[FormulaToken]:
    tokens, position = [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = TOKEN.match(text, position)
        if match is None:
            raise _error(text, position, f'{text[position]!r} is not part of the syntax')
        word = match.group()
        tokens.append(FormulaToken(SPELLINGS.get(word, word), str(match.lastgroup), position))
        position = match.end()
    return [*tokens, FormulaToken('', 'end', len(text))]


def _error(text: str, position: int, problem: str) -> InputError:
    return InputError(f'STL formula, character {position + 1}: {problem}\n  {text}\n  {" " * position}^')


class _FormulaReader:
    """One pass over the tokens; `at` moves forward, and back only where a parenthesis could open either kind."""

    def __init__(self, text: str, tokens: list[FormulaToken]) -> None:
        self.text, self.tokens, self.at, self.depth = text, tokens, 0, 0

    @property
    def token(self) -> FormulaToken:
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
        if self.depth > MOST_NESTED:
            raise _error(self.text, self.token.position, f'nested deeper than {MOST_NESTED} levels')
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
        if self.depth > MOST_NESTED:
            raise _error(self.text, self.token.position, f'nested deeper than {MOST_NESTED} levels')
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

    def bounds(self) -> TimeWindow:
        if not self.took('['):
            return TimeWindow()
        start = self.token.position
        low = self.seconds()
        if not self.took(',', ':'):
            raise self.fail("','")
        high = float('inf') if self.took('T', 'inf') else self.seconds()
        self.take(']')
        if high < low:
            raise _error(self.text, start, f'the window [{low:g},{high:g}] ends before it starts')
        return TimeWindow(low, high)

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
        word = self.took(*Relation)
        if word:
            return Compare(Relation(word), left, self.sum())
        if isinstance(left, Signal) and self.at == start + 1:
            return Proposition(left.name)
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
        if self.depth > MOST_NESTED:
            raise _error(self.text, self.token.position, f'nested deeper than {MOST_NESTED} levels')
        made = self.operand()
        self.depth -= 1
        return made

    def operand(self) -> Expression:
        if self.took('-'):
            inner = self.factor()
            return (
                NumberLiteral(-inner.value)
                if isinstance(inner, NumberLiteral)
                else Sum(Arithmetic.SUBTRACT, NumberLiteral(0.0), inner)
            )
        token = self.token
        if token.kind == 'number':
            return NumberLiteral(self.number())
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
