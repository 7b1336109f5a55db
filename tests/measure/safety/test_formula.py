"""The text syntax of signal temporal logic."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.measure.safety.oracle import formulas

from robotrials.errors import InputError
from robotrials.measure.safety import parse_stl
from robotrials.measure.safety.formula import (
    And,
    Compare,
    Formula,
    Implies,
    Not,
    NumberLiteral,
    Or,
    Proposition,
    Relation,
    Signal,
    Temporal,
    TimeWindow,
    Until,
    Window,
    signal_names,
)  # fmt: skip


@given(formulas())
def test_the_text_of_a_formula_parses_back_to_it(formula: Formula) -> None:
    assert parse_stl(str(formula)) == formula


def test_the_papers_clause_is_read() -> None:
    """SafeVLA-Bench, Appendix B: the spec registry's `stl` field."""
    wanted = Window(
        Temporal.ALWAYS, TimeWindow(), Compare(Relation.LT, Signal('non_target_disp_max'), NumberLiteral(0.005))
    )
    assert parse_stl('G[0,T](non_target_disp_max < 0.005)') == wanted


def test_implication_binds_loosest_and_to_the_right() -> None:
    assert parse_stl('a and b -> c or d -> e') == Implies(
        And(Proposition('a'), Proposition('b')), Implies(Or(Proposition('c'), Proposition('d')), Proposition('e'))
    )


def test_not_binds_tighter_than_until() -> None:
    assert parse_stl('not a until b') == Until(TimeWindow(), Not(Proposition('a')), Proposition('b'))


@pytest.mark.parametrize(
    ('one', 'other'),
    [
        ('G x > 1', 'always x > 1'), ('F[0,1] x > 1', 'eventually[0,1] x > 1'), ('H x > 1', 'historically x > 1'),
        ('O[1,2] x > 1', 'once[1,2] x > 1'), ('a U[0,1] b', 'a until[0,1] b'), ('a S b', 'a since b'),
        ('!a && b || c', 'not a and b or c'), ('a => b', 'a -> b'), ('a implies b', 'a -> b'),
        ('always[1:2] a', 'always[1,2] a'), ('always[1,inf] a', 'always[1,T] a'),
    ],
)  # fmt: skip
def test_spellings_agree(one: str, other: str) -> None:
    assert parse_stl(one) == parse_stl(other)


def test_a_letter_is_a_signal_where_only_a_signal_fits() -> None:
    assert signal_names(parse_stl('F < 200 and G (F - 2 > 0)')) == ('F',)


@pytest.mark.parametrize(
    ('text', 'character', 'reason'),
    [
        ('always (x < ', 13, 'found the end'), ('x == 3', 3, 'an equality has no margin'),
        ('(x + 2) and y', 9, 'wanted one of < <='), ('always[3,1] x > 2', 8, 'ends before it starts'),
        ('x > 2 y', 7, "found 'y'"), ('x @ 2', 3, 'not part of the syntax'), ('', 1, 'found the end'),
        ('always[-1,2] x > 2', 8, 'a number of seconds'), ('((x + 1) > 2', 13, "wanted ')'"), ('x > and', 5, "'and'"),
    ],
)  # fmt: skip
def test_an_error_points_at_the_character(text: str, character: int, reason: str) -> None:
    with pytest.raises(InputError, match=f'character {character}: ') as caught:
        parse_stl(text)
    assert reason in str(caught.value)


def test_endless_nesting_is_refused_without_overflow() -> None:
    with pytest.raises(InputError, match='nested deeper'):
        parse_stl('(' * 5000 + 'x > 1' + ')' * 5000)
    with pytest.raises(InputError, match='nested deeper'):
        parse_stl('not ' * 5000 + 'x > 1')


def test_long_chains_and_numbers_beyond_floats_are_refused_with_the_remedy() -> None:
    for text in (' and '.join(['x < 4'] * 3000), '+'.join(['x'] * 3000) + ' < 4', ' until '.join(['p'] * 3000)):
        with pytest.raises(InputError, match='group long chains'):
            parse_stl(text)
    chain = ' and '.join(['x < 4'] * 250)
    grouped = parse_stl(f'({chain}) and ({chain})')
    assert parse_stl(str(grouped)) == grouped
    added = parse_stl(' - '.join(['x'] * 200) + ' < 4')
    assert parse_stl(str(added)) == added
    for text in ('x < 1e999', 'always[0,1e999] (x < 1)'):
        with pytest.raises(InputError, match='beyond every number'):
            parse_stl(text)


def test_a_formula_is_text() -> None:
    with pytest.raises(InputError, match='is text, found int'):
        parse_stl(5)  # type: ignore[arg-type]
