"""A file or folder of a known format, opened for asking: read as `robotrials import` would, and kept nowhere.

It becomes a store in a folder of its own among the system's temporary files, which goes when the process ends. So every
question has the same numbers on a file as on the store that it would be imported into, filters and trajectories
included, and a dataset larger than memory can be asked.
"""

from __future__ import annotations

import atexit
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.catalog import candidates, open_source
from robotrials.formats.imported import FieldGuess, Imported, ImportOptions, Question, Recording
from robotrials.formats.intake import import_into
from robotrials.formats.mapping import as_mapped, mapping_beside
from robotrials.record import Store, read_store
from robotrials.record.folder import Disk, replaced_disk
from robotrials.record.opened import OpenedSource, is_store

MOST_FIELDS = 8  # in the line that tells the guess


def open_for_asking(
    path: Path | str, options: ImportOptions | None = None, *, command: str = '',
    ask: Callable[[Sequence[Question]], dict[str, str]] | None = None,
) -> OpenedSource:  # fmt: skip
    """A store as it is; a file or folder of a known format as a store that is gone when the process ends.

    A mapping file beside it (`formats.mapping`) is obeyed; `ask` answers what the source leaves open.
    """
    given = options or ImportOptions()
    source = Path(path)
    if is_store(path) or not source.exists() or (source.is_dir() and not candidates(source)):
        if given != ImportOptions() and is_store(path):
            raise InputError(f'{path}: a store, whose columns are named already; leave out what maps columns')
        return OpenedSource(read_store(path), str(path))  # which says what else a path may be
    kind, given = as_mapped(source, given)
    imported = open_source(source, given, name=kind)
    still_open = [q for q in imported.questions if q.key not in given.answers]
    if still_open and ask is not None:
        given = dataclasses.replace(given, answers={**given.answers, **ask(still_open)})
        imported = open_source(source, given, name=kind)
    imported.settle(source, given, is_asking=True)
    guess = [told_in_a_line(source, imported)] if imported.guesses else []
    mapped = [f'as {mapping_beside(source)} says'] if mapping_beside(source).is_file() else []
    told = '\n'.join([*guess, *mapped, *imported.ledger.hints])
    return OpenedSource(_scratch(imported, command), str(path), told=told)


def told_in_a_line(path: Path, imported: Imported) -> str:
    """What was guessed: `my.csv read as table: policy from model, task from task, success from ok`."""
    known = [(g.field, column_name(g)) for g in imported.guesses if g.field != 'labels']
    fields = [
        f'rows are {source}' if name == '(rows)' else name if name == source else f'{name} from {source}'
        for name, source in known
    ]
    more = len(fields) - MOST_FIELDS
    shown = fields[:MOST_FIELDS] + ([f'and {more} more'] if more > 0 else [])
    return f'{path} read as {imported.format}' + (f': {", ".join(shown)}' if shown else '')


def column_name(guess: FieldGuess) -> str:
    """Where a field comes from, a column by its bare name."""
    is_column = guess.source.startswith("column '")
    return guess.source.removeprefix("column '").removesuffix("'") if is_column else guess.source


class _Hasty(Disk):
    """A disk for what need not outlive the process."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


def _scratch(imported: Imported, command: str) -> Store:
    folder = Path(tempfile.mkdtemp(prefix='robotrials-'))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    read = imported.recordings

    def without_media() -> Iterator[Recording]:
        return (dataclasses.replace(recording, media={}) for recording in read())

    with replaced_disk(_Hasty()):
        import_into(folder / 'store', dataclasses.replace(imported, recordings=without_media), command=command)
    return read_store(folder / 'store')
