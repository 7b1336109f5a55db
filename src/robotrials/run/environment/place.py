"""Where environments lie, and what is known of each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import SetupError
from robotrials.old_name import ENVIRONMENT_RECORD, caches, setting

RECORD = ENVIRONMENT_RECORD


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment on disk. `packages` is what was installed when it was made, empty if it never was whole."""

    name: str
    digest: str
    folder: Path
    created_at: str
    packages: Mapping[str, str]

    @property
    def python(self) -> Path:
        return self.folder / 'bin' / 'python'

    @property
    def is_complete(self) -> bool:
        return bool(self.packages) and self.python.exists()


class _OwnEnvironment(Environment):
    @property
    def python(self) -> Path:
        return Path(sys.executable)


def own_environment(folder: Path) -> Environment:
    """The environment of this interpreter itself, with a folder that may be written to: for work in another process."""
    return _OwnEnvironment('own', '', folder, '', {})


def environments_folder() -> Path:
    """The user's cache, or the folder that ROBOTRIALS_ENVIRONMENTS names."""
    given = setting('ROBOTRIALS_ENVIRONMENTS')
    if given:
        return Path(given)
    return caches()[0] / 'environments'


def environment_at(folder: Path) -> Environment:
    """What lies in a folder; an unfinished one has no packages."""
    name, _, digest = folder.name.rpartition('-')
    try:
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
        packages = {str(k): str(v) for k, v in record['packages'].items()}
        return Environment(name, digest, folder, str(record['created_at']), packages)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return Environment(name, digest, folder, '', {})


def environments() -> tuple[Environment, ...]:
    """Every environment there is, whole or not."""
    folders = [f for root in _roots() if root.is_dir() for f in sorted(root.iterdir())]
    return tuple(environment_at(f) for f in folders if f.is_dir() and '-' in f.name)


def _roots() -> tuple[Path, ...]:
    """Where environments may lie: those that were made under the old name stay where they are."""
    folder = environments_folder()
    old = caches()[1] / 'environments'
    return (folder,) if setting('ROBOTRIALS_ENVIRONMENTS') or not old.is_dir() else (folder, old)


def find_environment(name: str, digest: str) -> Environment:
    """The environment of a recipe; SetupError says how to make it."""
    places = [environment_at(root / f'{name}-{digest}') for root in _roots()]
    found = next((place for place in places if place.is_complete), None)
    if found is None:
        raise SetupError(f'the environment {name!r} is not there; run `robotrials env create {name}`')
    return found


def link_robotrials(folder: Path) -> Path:
    """A folder on whose path this robotrials, and nothing else of its surroundings, can be imported.

    Checkouts that share an environment have one each, so that a worker always runs the code of its caller.
    """
    import robotrials

    ours = Path(robotrials.__file__).resolve().parent
    place = folder / 'robotrials-link' / hashlib.sha256(str(ours).encode()).hexdigest()[:12]
    link = place / 'robotrials'
    if not link.is_symlink():
        place.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process was faster, with the same link
            link.symlink_to(ours)
    return place
