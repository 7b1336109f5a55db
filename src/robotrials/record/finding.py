"""What is not as it should be in a store: one finding for each file, episode or edit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class FindingKind(enum.StrEnum):
    DAMAGED = 'damaged'  # bytes that are not what was written
    MISSING = 'missing'  # a file that the log or another file names
    FOREIGN = 'foreign'  # a file that robotrials did not write, or that the log does not know
    SCHEMA = 'schema'  # another schema version
    RECORD = 'record'  # a row that breaks the record's rules
    CLASH = 'clash'  # one id and attempt, two contents; or two valid attempts
    EDIT = 'edit'  # an edit that can't be read or applied
    UNLOGGED = 'unlogged'  # a store of an older version without a commit log: nothing can be missed
    SIGNATURE = 'signature'  # an entry that bears a name or a key, and was not signed by it
    LOST = 'lost'  # known damage: a repair has set it aside
    LEFTOVER = 'leftover'  # harmless: what a killed writer or compaction left behind


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and the file it is in."""

    kind: FindingKind
    path: Path
    detail: str

    @property
    def is_damage(self) -> bool:
        return self.kind not in (FindingKind.LEFTOVER, FindingKind.UNLOGGED, FindingKind.LOST)

    @property
    def is_loss(self) -> bool:
        """Whether something that was recorded can't be read."""
        return self.kind not in (FindingKind.LEFTOVER, FindingKind.UNLOGGED, FindingKind.FOREIGN, FindingKind.CLASH)
