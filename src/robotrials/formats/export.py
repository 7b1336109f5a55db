"""Writing a store in other people's formats: what every exporter gives and takes.

An exporter reads the store as anyone would, edits applied and codes of an open blinded trial left as codes, so that it
can never tell more than the store does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from robotrials.catalog import Catalog
from robotrials.errors import InputError, SetupError
from robotrials.formats.imported import Ledger
from robotrials.formats.to_table import episode_row
from robotrials.record import Camera, Episode, Store, Trajectory
from robotrials.record.folder import put_durably
from robotrials.record.select import Where

EXPORTERS = Catalog(
    'export format',
    {
        'lerobot': 'robotrials.formats.lerobot_write:LEROBOT',
        'lerobot-v2.1': 'robotrials.formats.lerobot_write:LEROBOT_V21',
        'rerun': 'robotrials.formats.rerun_write:RERUN',
        'mcap': 'robotrials.formats.mcap_write:MCAP',
        'table': 'robotrials.formats.table_write:TABLE',
    },
    entry_point_group='robotrials.exporters',
)


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One camera of one episode for an export: its file, and the step that each of its frames shows."""

    camera: Camera  # with `video_steps`
    path: Path


Redraw = Callable[[Episode], Sequence[Film]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user says beyond the store and the format."""

    where: Where | None = None
    rate_hz: float | None = None  # for formats with one rate, where the record does not state it
    redraw: Redraw | None = None  # films drawn from kept states, instead of those that were recorded


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export came to."""

    episodes: int
    ledger: Ledger = field(default_factory=Ledger)


class Exporter(Protocol):
    """How to write one kind of file or folder."""

    name: str
    summary: str
    suffix: str  # of the file that is written; empty for a folder

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        """Write the whole target, which is not there yet, or nothing."""


def load_exporter(name: str) -> Exporter:
    """The exporter of this name, or of a literal ``module:attribute``."""
    found = EXPORTERS.load(name)
    for attribute in ('name', 'summary', 'suffix', 'write'):
        if not hasattr(found, attribute):
            raise SetupError(
                f'{name}: {found!r} has no {attribute!r}; wanted an object like robotrials.formats.Exporter'
            )
    return found  # type: ignore[return-value]  # checked above, as far as can be


@contextmanager
def fresh_target(target: Path) -> Iterator[Path]:
    """A place beside `target` to write to, renamed when all is written and removed when anything fails."""
    if target.exists():
        raise InputError(f'{target}: is there already; give a new name')
    if not target.parent.is_dir():
        raise InputError(f'{target}: wanted a name in a folder that is there')
    with put_durably(target) as draft:
        yield draft


def recorded_rollouts(store: Store, options: ExportOptions, ledger: Ledger) -> Iterator[tuple[Episode, Trajectory]]:
    """The valid counted episodes with a trajectory; the others are entered as dropped."""
    with_steps = set()
    for episode, trajectory in store.trajectories(where=options.where):
        with_steps.add(episode.key)
        if episode.is_valid:
            yield episode, trajectory
    for episode in store.episodes(where=options.where, events=False):
        if not episode.is_valid:
            ledger.drop('episodes', why='invalid: the rig broke, so they show nothing of the policy')
        elif episode.key not in with_steps:
            ledger.drop('episodes', why='no trajectory was recorded')


def check_some(count: int) -> None:
    """Raise InputError where nothing was written."""
    if not count:
        raise InputError('no valid episode with a trajectory to write')


def media_file(store: Store, name: str) -> Path | None:
    """A file of the store's media folder, or None where it is gone."""
    return store.file(f'media/{name}') if store.has_file(f'media/{name}') else None


def episode_facts(episode: Episode) -> dict[str, str]:
    """What an episode is, as text by field, for a file's own notes; absent fields are left out."""
    row = episode_row(episode)
    skipped = ('events', 'provenance_id')
    facts = {k: v for k, v in row.items() if k not in skipped and v not in (None, '', {}, [])}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}


def file_stem(episode: Episode) -> str:
    """A file name for one episode: its id, and its attempt where that is not the first."""
    safe = ''.join(c if c.isalnum() or c in '-_.' else '_' for c in episode.episode_id)
    return f'{safe}-{episode.attempt}' if episode.attempt else safe
