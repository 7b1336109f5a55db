"""Names that may be one: `Towel Folding`, `towel folding ` and `towel_folding`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robotrials.formats.imported import Question

ALIKE = ('policy', 'task', 'stratum', 'condition')
MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class AlikeNames:
    """The question whether such names are one, and the spelling of each if they are."""

    question: Question
    spelling: Callable[[str], str]


def plain_name(name: str) -> str:
    """A name without case, and with one kind of space."""
    return re.sub(r'[\s_-]+', ' ', name).strip().casefold()


def groups_alike(names: Iterable[str]) -> list[list[str]]:
    """Names that differ only in case, spaces, underscores and dashes; of each group the most frequent first."""
    groups: dict[str, Counter[str]] = {}
    for name in names:
        groups.setdefault(plain_name(name), Counter())[name] += 1
    return [[name for name, _ in group.most_common()] for group in groups.values() if len(group) > 1]


def alike_names(cells: Mapping[str, Sequence[Any]]) -> AlikeNames | None:
    """What to ask about the names of these fields; None where all are clearly apart."""
    found = {name: groups_alike(map(str, values)) for name, values in cells.items()}
    told = [f'{name} {" = ".join(map(repr, group))}' for name, groups in found.items() for group in groups]
    if not told:
        return None
    more = f' and {len(told) - MOST_TOLD} more' if len(told) > MOST_TOLD else ''
    first = {plain_name(group[0]): group[0] for groups in found.values() for group in groups}
    return AlikeNames(
        Question('names', f'Names that look alike: {"; ".join(told[:MOST_TOLD])}{more}?', ('apart', 'join'), 'apart'),
        lambda name: first.get(plain_name(name), name),
    )
