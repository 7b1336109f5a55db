"""An answer in words as an action, or the reason why it is none (MultiNet section 4.1)."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import Any

import numpy as np

from robotrials.measure.actions.prediction import Invalid, InvalidReason, Prediction

LONGEST_ANSWER = 20_000
FENCE = re.compile(r'^```[\w-]*\s*\n?(.*?)\n?\s*```$', re.DOTALL)
LIST = re.compile(r'\[[^\[\]]*\]')


def parse_action(text: str, size: int, *, lenient: bool = False) -> Prediction:
    """The action of `size` numbers that `text` states, or `Invalid`.

    The whole answer has to be one list of numbers (a code fence around it is no text). `lenient` also takes the only
    list of numbers inside other text; the paper does not.
    """
    stripped = text.strip()
    if not stripped:
        return Invalid(InvalidReason.EMPTY)
    if len(stripped) > LONGEST_ANSWER:
        return Invalid(InvalidReason.MIXED_TEXT, f'{len(stripped)} characters')
    fenced = FENCE.match(stripped)
    body = fenced[1].strip() if fenced else stripped
    if body.startswith('[') and body.endswith(']'):
        return _from_list(body, size)
    inside = LIST.findall(body)
    if lenient and len(inside) == 1:
        return _from_list(inside[0], size)
    if inside:
        return Invalid(InvalidReason.MIXED_TEXT, _shown(body))
    return Invalid(InvalidReason.NO_LIST, _shown(body))


def _from_list(body: str, size: int) -> Prediction:
    values = _literal(body)
    if values is None:
        nested = body[1:].lstrip().startswith('[')
        several = InvalidReason.NOT_SCALAR if nested else InvalidReason.MIXED_TEXT
        return Invalid(several if body.count('[') > 1 else InvalidReason.TEXT_ELEMENT, _shown(body))
    for value in values:
        fault = _fault(value)
        if fault is not None:
            return Invalid(fault, _shown(repr(value)))
    if len(values) != size:
        return Invalid(InvalidReason.WRONG_SIZE, f'{len(values)} numbers, wanted {size}')
    return np.array([float(v) for v in values])


def _literal(body: str) -> list[Any] | None:
    try:
        parsed = json.loads(body)
    except (json.JSONDecodeError, RecursionError):
        try:
            # Also 1. and .5 and a trailing comma, which JSON does not know.
            parsed = ast.literal_eval(body)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return parsed if isinstance(parsed, list) else None


def _fault(value: Any) -> InvalidReason | None:
    if isinstance(value, str):
        return InvalidReason.TEXT_ELEMENT
    if isinstance(value, bool) or not isinstance(value, int | float):
        return InvalidReason.NOT_SCALAR
    try:
        return None if math.isfinite(float(value)) else InvalidReason.NOT_FINITE
    except OverflowError:
        return InvalidReason.NOT_FINITE


def _shown(text: str, most: int = 80) -> str:
    flat = ' '.join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + '…'
