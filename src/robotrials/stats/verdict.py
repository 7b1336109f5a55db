"""The words in which every comparison of two policies ends."""

from __future__ import annotations

import enum


class Verdict(enum.StrEnum):
    """What may be said of two policies; only the first names a winner."""

    BETTER = 'better'
    DEPENDS = 'depends on the stratum'
    SAME = 'the same within a margin'
    CROSSING = 'different but crossing'
    DIRECTION_UNRESOLVED = 'different, direction unresolved'
    UNRESOLVED = 'unresolved'
