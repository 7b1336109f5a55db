from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.measure.actions import Invalid, parse_action


@pytest.mark.parametrize(
    'text',
    [
        '[0.1, -2, 3e-1]',
        '  [0.1,-2.0,0.3]\n',
        '```\n[0.1, -2, 0.3]\n```',
        '```json\n[0.1, -2, 0.3]\n```',
        '[.1, -2., 0.3,]',
    ],
)
def test_a_list_of_numbers_is_an_action(text: str) -> None:
    np.testing.assert_allclose(parse_action(text, 3), [0.1, -2.0, 0.3])


@pytest.mark.parametrize(
    ('text', 'reason'),
    [
        ('', 'empty'),
        ('   \n', 'empty'),
        ('I cannot help with that.', 'no_list'),
        ('0.1, 0.2, 0.3', 'no_list'),
        ('{"action": 3}', 'no_list'),
        ('[0.1, 0.2]', 'wrong_size'),
        ('[0.1, 0.2, 0.3, 0.4]', 'wrong_size'),
        ('[]', 'wrong_size'),
        ('[0.1, "0.2", 0.3]', 'text_element'),
        ('[0.1, open, 0.3]', 'text_element'),
        ('[0.1 0.2 0.3]', 'text_element'),
        ('The action is [0.1, 0.2, 0.3].', 'mixed_text'),
        ('{"action": [0.1, 0.2, 0.3]}', 'mixed_text'),
        ('[0.1, 0.2, 0.3] or [0.1, 0.2, 0.4]', 'mixed_text'),
        ('[[0.1, 0.2, 0.3]]', 'not_scalar'),
        ('[0.1, [0.2], 0.3]', 'not_scalar'),
        ('[0.1, null, 0.3]', 'not_scalar'),
        ('[0.1, true, 0.3]', 'not_scalar'),
        ('[0.1, {"x": 1}, 0.3]', 'not_scalar'),
        ('[0.1, NaN, 0.3]', 'not_finite'),
        ('[0.1, Infinity, 0.3]', 'not_finite'),
        ('[0.1, 1e999, 0.3]', 'not_finite'),
        (f'[0.1, {"9" * 400}, 0.3]', 'not_finite'),
        ('[' * 5000 + ']' * 5000, 'not_scalar'),
        ('x' * 30_000, 'mixed_text'),
    ],
)
def test_malformed_answers_of_every_kind_have_their_reason(text: str, reason: str) -> None:
    found = parse_action(text, 3)
    assert isinstance(found, Invalid)
    assert found.reason == reason


def test_lenient_takes_the_only_list_inside_text() -> None:
    np.testing.assert_allclose(parse_action('Sure: [1, 2, 3]!', 3, lenient=True), [1, 2, 3])
    assert isinstance(parse_action('[1, 2, 3] or [4, 5, 6]', 3, lenient=True), Invalid)


@given(st.text(max_size=60), st.integers(1, 4), st.booleans())
def test_any_text_is_an_action_of_the_right_size_or_invalid(text: str, size: int, lenient: bool) -> None:
    found = parse_action(text, size, lenient=lenient)
    assert isinstance(found, Invalid) or (found.shape == (size,) and np.isfinite(found).all())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_every_printed_action_is_read_back(values: list[float]) -> None:
    np.testing.assert_array_equal(parse_action(repr(values), len(values)), values)
