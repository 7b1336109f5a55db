"""SafeVLA-Bench records as a format of `robotrials import`: `safety` reads them, and `formats` may not ask it to."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.imported import (
    CERTAIN,
    LIKELY,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    head_of,
    refuse_unused,
)

SUFFIXES = ('.json', '.jsonl', '.npz')
MOST_LOOKED_AT = 20


class SafevlaFormat:
    """Trajectory and metrics records of SafeVLA-Bench's Appendix B."""

    name = 'safevla'
    summary = 'SafeVLA-Bench trajectory or metrics records: .json, .jsonl, .npz, or a folder of them'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            files = _files(path)
            return LIKELY if files and all(map(_is_record, files)) else None
        return CERTAIN if path.suffix in SUFFIXES and path.is_file() and _is_record(path) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        from robotrials.measure.safety.safevla import read_safevla

        refuse_unused(options, name='SafeVLA-Bench records', takes=('columns',))
        if options.columns or options.defaults.keys() - {'policy'}:
            unused = ', '.join([*options.columns, *(options.defaults.keys() - {'policy'})])
            raise InputError(
                f'{path}: SafeVLA-Bench records take --set policy=NAME and no other mapping, found {unused}'
            )
        ledger = Ledger()

        def recordings() -> Iterator[Recording]:
            policy = options.defaults.get('policy', '')
            for episode, trajectory in read_safevla(path, policy=policy, source=options.source):
                ledger.keep('episodes with their trajectories' if trajectory is not None else 'episodes as metrics')
                yield Recording(episode, trajectory)

        return Imported(
            format=self.name,
            sources=tuple(sorted(p for p in path.rglob('*') if p.suffix in SUFFIXES)) if path.is_dir() else (path,),
            recordings=recordings,
            ledger=ledger,
        )


def _is_record(path: Path) -> bool:
    from robotrials.measure.safety.safevla import RECORD_FIELDS, is_safevla

    if path.suffix != '.npz':
        # The whole file is parsed only where its beginning speaks for it.
        return b'"episode_id"' in head_of(path) and is_safevla(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix('.npy') for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        return False
    return names >= set(RECORD_FIELDS) or ({'episode_id', 'success'} <= names and is_safevla(path))


def _files(folder: Path) -> list[Path]:
    """Some of the files that would be read, from whichever depth they lie at."""
    records = (p for p in folder.rglob('*') if p.suffix in SUFFIXES)
    return list(itertools.islice(records, MOST_LOOKED_AT))


SAFEVLA = SafevlaFormat()
