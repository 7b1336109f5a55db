"""Signal temporal logic as a tree of frozen nodes.

Arithmetic nodes have a value at every step; logical nodes have a margin. `str` of a node is text that
parses back to it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

from robotrials.value import dataclass

EVENT_LEVEL = 0.5  # a bare name is a binary event: it holds above this level of its 0/1 signal


class Comparison(enum.StrEnum):
    LT = '<'
    LE = '<='
    GT = '>'
    GE = '>='

    @property
    def is_upper(self) -> bool:
        """Whether the right-hand side bounds the left-hand side from above."""
        return self in (Comparison.LT, Comparison.LE)


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
class Bounds:
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
class Number:
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

    operator: Comparison
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f'{self.left} {self.operator} {self.right}'


@dataclass(frozen=True, slots=True)
class Event:
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
    bounds: Bounds
    argument: Formula

    def __str__(self) -> str:
        return f'{self.operator}{self.bounds} ({self.argument})'


@dataclass(frozen=True, slots=True)
class Until:
    """left holds from now until, within the bounds, right does; `is_past` makes it `since`.

    left need not hold at the very step at which right does.
    """

    bounds: Bounds
    left: Formula
    right: Formula
    is_past: bool = False

    def __str__(self) -> str:
        return f'(({self.left}) {"since" if self.is_past else "until"}{self.bounds} ({self.right}))'


Expression = Number | Signal | Sum | Magnitude
Formula = Compare | Event | Truth | Not | And | Or | Implies | Window | Until
Node = Expression | Formula


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly under `node`, left to right."""
    if isinstance(node, Number | Signal | Event | Truth):
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
    return tuple(sorted({n.name for n in walk(node) if isinstance(n, Signal | Event)}))


def event_names(node: Node) -> frozenset[str]:
    """The signals that the formula reads as 0/1 events."""
    return frozenset(n.name for n in walk(node) if isinstance(n, Event))


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
