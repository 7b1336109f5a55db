"""What a verb or a notebook was given to ask, opened."""

from __future__ import annotations

from pathlib import Path

from robotrials.record.bucket import CachedPath, store_root
from robotrials.record.store import Store
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSource:
    """Episodes to ask, and where they came from in the user's own words."""

    store: Store
    name: str
    told: str = ''  # how a file was read in a line, and a line for each thing assumed; else nothing


def is_store(path: Path | str) -> bool:
    """Whether a path is a store, or an address of one."""
    root = store_root(path)
    return isinstance(root, CachedPath) or (root / 'trial.json').exists()
