"""Files that a benchmark needs beside its packages: where they may lie, and how to get them. Kept as data."""

from __future__ import annotations

import glob
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from robotrials.run.environment.place import Environment


@dataclass(frozen=True, slots=True)
class Asset:
    """One kind of file that an environment needs; `found` is where it lies, or where it was looked for."""

    name: str
    found: str
    is_there: bool
    mend: str


def assets_of(environment: Environment) -> Iterator[Asset]:
    """What an environment needs beside its packages, each looked for in every place it may lie in."""
    text = files('robotrials.run.environment').joinpath('assets.toml').read_text(encoding='utf-8')
    for entry in tomllib.loads(text)['asset']:
        if entry['environment'] != environment.name:
            continue
        places = [_filled(place, environment.folder) for place in entry['places']]
        found = next((path for place in places for path in glob.glob(place) if _has_files(Path(path))), None)
        looked = ', '.join(place for place in places if '$' not in place)
        mend = entry['mend'].replace('{environment}', str(environment.folder))
        yield Asset(entry['name'], found or f'not in {looked}', found is not None, mend)


def _filled(place: str, folder: Path) -> str:
    return os.path.expanduser(os.path.expandvars(place.replace('{environment}', str(folder))))


def _has_files(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and next(path.iterdir(), None) is not None)
