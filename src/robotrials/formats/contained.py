"""A binary source that is recognised, opened and read in a bounded process: here is what came of it, as a source.

Whatever format it is, what crosses over is what a store would hold: episodes, events and trajectories as tables, the
account, and files that were written into a scratch folder. What comes is held to the record's rules as if it were read
from a store of somebody else.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.formats.imported import FieldGuess, Imported, ImportOptions, Ledger, Media, Question, Recording
from robotrials.record import Episode
from robotrials.record.entry import is_inside
from robotrials.record.episode import check_episode
from robotrials.record.provenance import provenance_from_json

if TYPE_CHECKING:
    import pyarrow as pa

    from robotrials.record import Trajectory

TEXT_SUFFIXES = frozenset(
    {'.csv', '.tsv', '.txt', '.log', '.json', '.jsonl', '.ndjson', '.md', '.toml', '.yaml', '.yml', '.xml', '.html'}
)
MOST_FILES_LOOKED_AT = 2000
BATCH = 256
STEPS_PER_BATCH = 1 << 16
HERE = 'robotrials.formats.contained'


def is_text(path: Path) -> bool:
    """Whether a source is text by the names of its files, which Python's own readers take in this process."""
    if not path.is_dir():
        return path.suffix.lower() in TEXT_SUFFIXES
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    looked_at = list(itertools.islice(files, MOST_FILES_LOOKED_AT + 1))
    return len(looked_at) <= MOST_FILES_LOOKED_AT and all(f.suffix.lower() in TEXT_SUFFIXES for f in looked_at)


def open_contained(path: Path, options: ImportOptions, *, name: str) -> Imported:
    """The source, opened in a process of its own; every reading of it is another."""
    from robotrials.record.foreign import parse

    request: dict[str, Any] = {'path': str(path), 'options': dataclasses.asdict(options), 'name': name}
    what = str(path)
    scratch = Path(tempfile.mkdtemp(prefix='robotrials-import-'))
    try:
        (told,) = parse(f'{HERE}:opened', what=what, scratch=scratch, **request)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    ledger = _Account()
    ledger.take(told['ledger'])

    def recordings() -> Iterator[Recording]:
        stream = parse(f'{HERE}:recordings', what=what, scratch=scratch, **request)
        for message in stream:
            if 'ledger' in message:
                ledger.take(message['ledger'])
                return
            yield from _batch(message, stream, path, scratch)

    def tables() -> Iterator[pa.Table]:
        from robotrials.formats.bulk import NotPlainError

        stream = parse(f'{HERE}:tables', what=what, scratch=scratch, **request)
        for message in stream:
            if not isinstance(message, dict):
                yield message
            elif 'ledger' in message:
                ledger.take(message['ledger'])
            else:
                raise NotPlainError(message['not_plain'])

    imported = Imported(
        format=told['format'],
        sources=tuple(map(Path, told['sources'])),
        recordings=recordings,
        ledger=ledger,
        guesses=tuple(FieldGuess(*row) for row in told['guesses']),
        questions=tuple(
            Question(key, text, tuple(choices), assumed) for key, text, choices, assumed in told['questions']
        ),
        origin=provenance_from_json(told['origin'], where=what),
        tables=tables if told['has_tables'] else None,
        sha256=told['sha256'],
        resolved=None if told['resolved'] is None else read_options(told['resolved']),
    )
    weakref.finalize(recordings, shutil.rmtree, scratch, ignore_errors=True)  # which lives as long as the source
    return imported


def read_options(values: dict[str, Any]) -> ImportOptions:
    """The inverse of `dataclasses.asdict`."""
    return read_table(ImportOptions, {k: v for k, v in values.items() if v is not None}, where='options')


class _Account(Ledger):
    """The account that the other process keeps."""

    __slots__ = ()

    def take(self, told: dict[str, Any]) -> None:
        """Make it this account, but for notes and hints, each of which stays once it was given."""
        self._kept = {(what, why): count for what, count, why in told['kept']}
        self._dropped = {(what, why): count for what, count, why in told['dropped']}
        for text in told['notes']:
            self.note(text)
        for text in told['hints']:
            self.hint(text)


@dataclass(frozen=True, slots=True)
class _Written:
    """A file that the other process has written."""

    path: Path

    def write(self, target: Path) -> None:
        shutil.copyfile(self.path, target)


def _batch(message: dict[str, Any], stream: Iterator[Any], path: Path, scratch: Path) -> Iterator[Recording]:
    from robotrials.record.column import trajectories_from_arrow
    from robotrials.record.schema import episodes_from_arrow, events_by_episode
    from robotrials.record.trajectory import check_trajectory

    episodes = episodes_from_arrow(next(stream), events_by_episode(next(stream)))
    steps: dict[tuple[str, int], Trajectory] = {}
    if message['has_steps']:
        for key, trajectory in trajectories_from_arrow(next(stream)):
            check_trajectory(trajectory)
            steps[key] = trajectory
    written = []
    for episode, media in zip(episodes, message['media'], strict=True):
        check_episode(episode)
        files = {name: _medium(kind, place, path, scratch) for name, kind, place in media}
        written += [medium.path for medium in files.values() if isinstance(medium, _Written)]
        yield Recording(episode, steps.get(episode.key), files)
    for file in written:
        file.unlink(missing_ok=True)


def _medium(kind: str, place: str, path: Path, scratch: Path) -> Media:
    """A file of the source or of the scratch folder, and of nowhere else, whatever the other process says."""
    root = scratch if kind == 'written' else path if path.is_dir() else path.parent
    if not is_inside(place):
        raise InputError(f'{path}: names {place!r}, which is not in it')
    return _Written(root / place) if kind == 'written' else root / place


# --- in the other process


def preload(**_: Any) -> None:
    """Load what recognises sources, once for all that follow."""
    from robotrials.formats.catalog import known_formats

    list(known_formats())


def _open(path: str, options: dict[str, Any], name: str) -> Imported:
    from robotrials.formats.catalog import open_here

    return open_here(Path(path), read_options(options), name=name)


def _account(ledger: Ledger) -> dict[str, Any]:
    rows = {name: [(e.what, e.count, e.why) for e in getattr(ledger, name)] for name in ('kept', 'dropped')}
    return {**rows, 'notes': ledger.notes, 'hints': ledger.hints}


def opened(*, scratch: Path, **request: Any) -> Iterator[dict[str, Any]]:
    """What a source says of itself."""
    imported = _open(**request)
    yield {
        'format': imported.format, 'sources': list(map(str, imported.sources)), 'ledger': _account(imported.ledger),
        'guesses': [dataclasses.astuple(guess) for guess in imported.guesses],
        'questions': [dataclasses.astuple(question) for question in imported.questions],
        'origin': imported.origin.as_json(), 'has_tables': imported.tables is not None, 'sha256': imported.sha256,
        'resolved': None if imported.resolved is None else dataclasses.asdict(imported.resolved),
    }  # fmt: skip


def tables(*, scratch: Path, **request: Any) -> Iterator[Any]:
    """The episodes by whole columns, and the account."""
    from robotrials.formats.bulk import NotPlainError

    imported = _open(**request)
    assert imported.tables is not None
    try:
        yield from imported.tables()
    except NotPlainError as error:
        yield {'not_plain': str(error)}
        return
    yield {'ledger': _account(imported.ledger)}


def recordings(*, scratch: Path, **request: Any) -> Iterator[Any]:
    """The recordings in batches of tables, media as files, and the account."""
    imported = _open(**request)
    root = Path(request['path'])
    batch: dict[tuple[str, int], Recording] = {}
    n_steps = 0
    for recording in imported.recordings():
        if recording.episode.key in batch:  # events and steps travel by key, which a batch must not repeat
            yield from _packed(list(batch.values()), root, scratch)
            batch, n_steps = {}, 0
        batch[recording.episode.key] = recording
        n_steps += 0 if recording.trajectory is None else len(recording.trajectory.time_s)
        if len(batch) >= BATCH or n_steps >= STEPS_PER_BATCH or recording.media:
            yield from _packed(list(batch.values()), root, scratch)
            batch, n_steps = {}, 0
    if batch:
        yield from _packed(list(batch.values()), root, scratch)
    yield {'ledger': _account(imported.ledger)}


_numbers = itertools.count()


def _packed(batch: Sequence[Recording], root: Path, scratch: Path) -> Iterator[Any]:
    from robotrials.record.column import trajectories_to_arrow
    from robotrials.record.schema import episodes_to_arrow, events_to_arrow

    episodes: list[Episode] = [recording.episode for recording in batch]
    steps = [(r.episode.key, r.trajectory) for r in batch if r.trajectory is not None]
    media = [[(name, *_put(medium, root, scratch)) for name, medium in r.media.items()] for r in batch]
    yield {'media': media, 'has_steps': bool(steps)}
    yield episodes_to_arrow(episodes)
    yield events_to_arrow(episodes)
    if steps:
        yield trajectories_to_arrow([key for key, _ in steps], [trajectory for _, trajectory in steps])


def _put(medium: Media, root: Path, scratch: Path) -> tuple[str, str]:
    if isinstance(medium, Path):
        return 'source', medium.relative_to(root if root.is_dir() else root.parent).as_posix()
    place = scratch / str(next(_numbers))
    medium.write(place)
    return 'written', place.name
