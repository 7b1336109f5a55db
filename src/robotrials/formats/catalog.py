"""Which formats there are, which one a file or a folder has, and sources that are read in a process of their own."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.catalog import Catalog
from robotrials.errors import InputError, SetupError, undone_by
from robotrials.formats.imported import (
    CERTAIN,
    POSSIBLE,
    Doubt,
    FieldGuess,
    FixableError,
    Format,
    ImportAccount,
    Imported,
    ImportOptions,
    Media,
    Question,
    Recording,
    head_of,
    listed,
)
from robotrials.record import Episode
from robotrials.record.episode import check_episode, provenance_from_json
from robotrials.record.folder import is_inside
from robotrials.value import dataclass, read_table

if TYPE_CHECKING:
    import pyarrow as pa

    from robotrials.record import Trajectory


FORMATS = Catalog(
    'format',
    {
        'calvin': 'robotrials.formats.benchmark_result:CALVIN',
        'droid': 'robotrials.formats.droid:DROID',
        'folder': 'robotrials.formats.catalog:FOLDER',
        'inspect': 'robotrials.formats.inspect_log:INSPECT_LOG',
        'inspect-robots': 'robotrials.formats.inspect_log:INSPECT_ROBOTS',
        'lerobot': 'robotrials.formats.lerobot:LEROBOT',
        'lerobot-eval': 'robotrials.formats.lerobot_eval:LEROBOT_EVAL',
        'libero-log': 'robotrials.formats.libero:LIBERO_LOG',
        'libero-plus': 'robotrials.formats.libero:LIBERO_PLUS',
        'mcap': 'robotrials.formats.mcap_file:MCAP',
        'openpi-droid': 'robotrials.formats.benchmark_result:DROID_CSV',
        'positronic': 'robotrials.formats.positronic:POSITRONIC',
        'rlds': 'robotrials.formats.rlds:RLDS',
        'robochallenge': 'robotrials.formats.benchmark_result:ROBOCHALLENGE',
        'robomimic': 'robotrials.formats.hdf5_format:ROBOMIMIC_FORMAT',
        'ros': 'robotrials.formats.ros_format:ROS',
        # By name alone: `safety` reads it, and this room may not import that one.
        'safevla': 'robotrials.cli.safety:SAFEVLA',
        'score-matrix': 'robotrials.formats.benchmark_result:SCORE_MATRIX',
        'simpler-env': 'robotrials.formats.benchmark_result:SIMPLER_ENV',
        'table': 'robotrials.formats.table:TABLE',
        'vla-eval': 'robotrials.formats.vla_eval:VLA_EVAL',
    },
    entry_point_group='robotrials.formats',
)
# The formats of ours that recognise a file of this suffix: reading one needs no other.
BY_SUFFIX = {
    '.csv': frozenset({'openpi-droid', 'table'}), '.jsonl': frozenset({'safevla', 'table'}),
    **dict.fromkeys(('.tsv', '.parquet', '.xlsx', '.ndjson'), frozenset({'table'})),
}  # fmt: skip
# What the first bytes of such a file hold in any case.
MARKS = {'openpi-droid': b'video_filename'}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A format that takes the source for its own, and how sure it is."""

    format: Format
    confidence: float


def known_formats(path: Path | None = None) -> Iterator[Format]:
    """Every format that can be loaded, or may recognise `path`; one whose package is broken is left to `--as`."""
    likely = BY_SUFFIX.get(path.suffix.lower()) if path is not None and path.is_file() else None
    head = b'' if likely is None or path is None else head_of(path)
    for name in FORMATS.names():
        if likely is not None and name in FORMATS.builtin and (name not in likely or MARKS.get(name, b'') not in head):
            continue
        try:
            yield load_format(name)
        except (InputError, SetupError):
            continue


def load_format(name: str) -> Format:
    """The format of this name, or of a literal ``module:attribute``."""
    loaded: Format = FORMATS.load_like(name, 'robotrials.formats.Format', ('name', 'summary', 'recognise', 'read'))
    return loaded


def candidates(path: Path) -> list[Candidate]:
    """The formats that recognise the source, surest first."""
    sure = [(format_, format_.recognise(path)) for format_ in known_formats(path)]
    sure_enough = [Candidate(format_, confidence) for format_, confidence in sure if confidence is not None]
    return sorted(sure_enough, key=lambda c: (-c.confidence, c.format.name))


def detect(path: Path) -> Format:
    """The format of a file or folder by its content; InputError lists what could be read where nothing fits."""
    if not path.exists():
        raise InputError(f'{path}: no such file or folder')
    if (path / 'trial.json').is_file():
        raise InputError(f'{path}: already a store; `robotrials store merge` brings one store into another')
    fitting = candidates(path)
    if not fitting:
        kind = 'folder' if path.is_dir() else 'file'
        raise InputError(
            f'{path}: a {kind} of no known format; known: {", ".join(FORMATS.names())} '
            '(`robotrials import --list` says what each one reads; --as NAME insists on one)'
        )
    if len(fitting) > 1 and fitting[0].confidence == fitting[1].confidence:
        names = ' and '.join(c.format.name for c in fitting if c.confidence == fitting[0].confidence)
        raise InputError(f'{path}: could be {names}; say which with --as')
    return fitting[0].format


def open_source(path: Path, options: ImportOptions, *, name: str = '') -> Imported:
    """Open a file or folder as the named format, or what it is recognised as; binary ones in another process."""
    if not path.exists():
        raise InputError(f'{path}: no such file or folder')
    return (open_here if is_text(path) else open_contained)(path, options, name=name)


def open_here(path: Path, options: ImportOptions, *, name: str = '') -> Imported:
    """The same in this process, whatever the bytes do to it: for text, and for the process that may die of it."""
    return (load_format(name) if name else detect(path)).read(path, options)


# A binary source that is recognised, opened and read in a bounded process: here is what came of it, as a source.
# Whatever format it is, what crosses over is what a store would hold: episodes, events and trajectories as tables, the
# account, and files that were written into a scratch folder. What comes is held to the record's rules as if it were
# read from a store of somebody else.

TEXT_SUFFIXES = frozenset(
    {'.csv', '.tsv', '.txt', '.log', '.json', '.jsonl', '.ndjson', '.md', '.toml', '.yaml', '.yml', '.xml', '.html'}
)
MOST_FILES_LOOKED_AT = 2000
BATCH = 256
STEPS_PER_BATCH = 1 << 16
HERE = 'robotrials.formats.catalog'


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
    with undone_by(lambda: shutil.rmtree(scratch, ignore_errors=True)):
        (answer,) = _told(parse(f'{HERE}:opened', what=what, scratch=scratch, **request), path)
    ledger = _Account()
    ledger.take(answer['ledger'])

    def recordings() -> Iterator[Recording]:
        stream = parse(f'{HERE}:recordings', what=what, scratch=scratch, **request)
        for message in _told(stream, path):
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
        format=answer['format'],
        sources=tuple(map(Path, answer['sources'])),
        recordings=recordings,
        ledger=ledger,
        guesses=tuple(FieldGuess(*row) for row in answer['guesses']),
        questions=tuple(
            Question(key, text, tuple(choices), assumed) for key, text, choices, assumed in answer['questions']
        ),
        doubts=tuple(Doubt(text, flag, read_options(options)) for text, flag, options in answer['doubts']),
        origin=provenance_from_json(answer['origin'], where=what),
        tables=tables if answer['has_tables'] else None,
        sha256=answer['sha256'],
        resolved=None if answer['resolved'] is None else read_options(answer['resolved']),
    )
    weakref.finalize(recordings, shutil.rmtree, scratch, ignore_errors=True)  # which lives as long as the source
    return imported


def _told(stream: Iterator[Any], path: Path) -> Iterator[Any]:
    """The messages of the other process; a remedy that it knows is an error with that remedy here, too."""
    for message in stream:
        if isinstance(message, dict) and 'fixable' in message:
            raise FixableError(message['fixable'], path, read_options(message['options']))
        yield message


def read_options(values: dict[str, Any]) -> ImportOptions:
    """The inverse of `dataclasses.asdict`."""
    return read_table(ImportOptions, {k: v for k, v in values.items() if v is not None}, where='options')


class _Account(ImportAccount):
    """The account that the other process keeps."""

    __slots__ = ()

    def take(self, account: dict[str, Any]) -> None:
        """Make it this account, but for notes and hints, each of which stays once it was given."""
        self._kept = {(what, why): count for what, count, why in account['kept']}
        self._dropped = {(what, why): count for what, count, why in account['dropped']}
        for text in account['notes']:
            self.note(text)
        for text in account['hints']:
            self.hint(text)


@dataclass(frozen=True, slots=True)
class _Written:
    """A file that the other process has written."""

    path: Path

    def write(self, target: Path) -> None:
        shutil.copyfile(self.path, target)


def _batch(message: dict[str, Any], stream: Iterator[Any], path: Path, scratch: Path) -> Iterator[Recording]:
    from robotrials.record.column import trajectories_from_arrow
    from robotrials.record.rows import episodes_from_arrow, events_by_episode
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


def preload(path: str, **_: Any) -> None:
    """Load what recognises such sources, once for all that follow."""
    from robotrials.record.rows import spare_pandas

    list(known_formats(Path(path)))
    if not FORMATS.installed():  # a reader of somebody else's may use pandas
        spare_pandas()


def _open(path: str, options: dict[str, Any], name: str) -> Imported:
    return open_here(Path(path), read_options(options), name=name)


def _account(ledger: ImportAccount) -> dict[str, Any]:
    rows = {name: [(e.what, e.count, e.why) for e in getattr(ledger, name)] for name in ('kept', 'dropped')}
    return {**rows, 'notes': ledger.notes, 'hints': ledger.hints}


def _remedy(error: FixableError) -> dict[str, Any]:
    return {'fixable': error.problem, 'options': dataclasses.asdict(error.options)}


def opened(*, scratch: Path, **request: Any) -> Iterator[dict[str, Any]]:
    """What a source says of itself."""
    try:
        imported = _open(**request)
    except FixableError as error:
        yield _remedy(error)
        return
    yield {
        'format': imported.format, 'sources': list(map(str, imported.sources)), 'ledger': _account(imported.ledger),
        'guesses': [dataclasses.astuple(guess) for guess in imported.guesses],
        'questions': [dataclasses.astuple(question) for question in imported.questions],
        'doubts': [(doubt.text, doubt.flag, dataclasses.asdict(doubt.options)) for doubt in imported.doubts],
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
    """The recordings in batches of tables, media as files, and the account; or the remedy of what stands against it."""
    try:
        yield from _recordings(scratch, request)
    except FixableError as error:
        yield _remedy(error)


def _recordings(scratch: Path, request: dict[str, Any]) -> Iterator[Any]:
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
    from robotrials.record.rows import episodes_to_arrow, events_to_arrow

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


# A folder of files that are each a source of their own, such as one table per policy.

MOST_LOOKED_AT = 50


class FolderFormat:
    """Every file or dataset of a folder that some format knows; formats that know the folder itself go first."""

    name = 'folder'
    summary = 'a folder of files or datasets that are each one of the others, such as one table per policy'

    def recognise(self, path: Path) -> float | None:
        if not path.is_dir() or (path / 'trial.json').exists():
            return None
        return POSSIBLE / 2 if any(_is_known(entry) for entry in listed(path)[:MOST_LOOKED_AT]) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        ledger = ImportAccount()
        opened: list[tuple[Path, Imported]] = []
        for entry in listed(path):
            if _is_known(entry):
                opened.append((entry, open_here(entry, replace(options, folder=path.resolve().name))))
            else:
                ledger.drop(f'{entry.name}', None, why='a folder' if entry.is_dir() else 'of no known format')
        if not opened:
            raise InputError(f'{path}: no file in it has a known format')
        questions: dict[str, Question] = {q.key: q for _, imported in opened for q in imported.questions}
        for _, imported in opened:
            for doubt in imported.doubts:
                imported.ledger.hint(str(doubt))

        def recordings() -> Iterator[Recording]:
            for _, imported in opened:
                yield from imported.recordings()
                ledger.add(imported.ledger)

        everywhere = set.intersection(*({(g.field, g.source) for g in imported.guesses} for _, imported in opened))
        guesses = dict.fromkeys(
            guess if (guess.field, guess.source) in everywhere
            else FieldGuess(guess.field, f'{file.name}: {guess.source}', guess.change)
            for file, imported in opened for guess in imported.guesses
        )  # fmt: skip
        return Imported(
            format=self.name,
            sources=tuple(source for _, imported in opened for source in imported.sources),
            recordings=recordings,
            ledger=ledger,
            guesses=tuple(guesses),
            questions=tuple(questions.values()),
        )


FOLDER = FolderFormat()


def _is_known(entry: Path) -> bool:
    """Whether a file may be read, or a folder surely is a dataset of one of the formats."""
    if not entry.is_dir():
        return bool(candidates(entry))
    sure = (f.recognise(entry) for f in known_formats(entry) if f.name != 'folder')
    return any(confidence == CERTAIN for confidence in sure)


def from_table(
    path: Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    source: str | None = None,
    rate_hz: float | None = None,
    group_by: tuple[str, ...] = (),
) -> list[Episode]:
    """Every row of a table as an episode; a bad row is named by file, row and field, and then nothing is given.

    `columns` maps a field to a column where the guess is wrong; `defaults` sets fields for all rows. `source` (default:
    the file's name) is part of the ids, so that the same table imported again, or grown, adds nothing twice.
    """
    options = ImportOptions(
        columns=columns or {}, defaults=defaults or {}, source=source, rate_hz=rate_hz, group_by=group_by
    )
    return list(open_source(Path(path), options, name='table').episodes())
