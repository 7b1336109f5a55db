"""What stands in the place of a part that the data cannot give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from robotrials.errors import InputError, NotEstimable

T = TypeVar('T')


@dataclass(frozen=True, slots=True)
class Absent:
    """A part of an analysis that these data cannot give: why, and what would change that."""

    reason: str
    remedy: str = ''


def present(part: T | Absent) -> T:
    """The part, or NotEstimable with the reason why it is absent."""
    if isinstance(part, Absent):
        raise NotEstimable('; '.join(text for text in (part.reason, part.remedy) if text))
    return part


def or_absent(compute: Callable[[], T], *, remedy: str = '') -> T | Absent:
    """What `compute` gives, or why it cannot."""
    try:
        return compute()
    except (NotEstimable, InputError) as error:
        return Absent(str(error), remedy)
