"""Recipes: what goes into an environment, locked; kept as data."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.old_name import ENVIRONMENT_RECORD, caches, setting
from robotrials.value import dataclass

DIGEST_DIGITS = 12
SPOKEN = ('numpy', 'msgpack')
LOCKED = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """An environment as it is to be: equal recipes make equal environments, and share one.

    `requirements` are installed with what they need, within `constraints`; `without_dependencies` afterwards, alone,
    for packages whose own pins are narrower than what they run with. `python` is a version such as 3.12, where ours
    will not do. To be sound, `imports` must work, and so must `checks`: ``module:function``, each run inside.
    """

    name: str
    about: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    python: str = ''
    checks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for line in (*self.requirements, *self.constraints, *self.without_dependencies):
            if not LOCKED.fullmatch(line):
                raise InputError(f'recipe {self.name}: {line!r} is not locked, wanted PACKAGE==VERSION')
        for module in self.imports:
            if not all(part.isidentifier() for part in module.split('.')):
                raise InputError(f'recipe {self.name}: {module!r} is not a module')
        if self.python and not re.fullmatch(r'3\.\d+', self.python):
            raise InputError(f'recipe {self.name}: python is {self.python!r}, wanted a version such as "3.12"')
        for check in self.checks:
            if not re.fullmatch(r'[\w.]+:\w+', check):
                raise InputError(f'recipe {self.name}: the check {check!r} is not MODULE:FUNCTION')

    @property
    def version(self) -> tuple[int, ...]:
        """The Python that it runs with."""
        return tuple(map(int, self.python.split('.'))) if self.python else sys.version_info[:2]

    @property
    def digest(self) -> str:
        """What identifies the environment: what is installed, and the Python that runs it; checks install nothing."""
        installed = {key: value for key, value in asdict(self).items() if key not in ('python', 'checks')}
        content = json.dumps([installed, self.version, sys.platform], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:DIGEST_DIGITS]


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with robotrials."""
    folder = files('robotrials.run.environment').joinpath('recipes')
    return tuple(sorted(entry.name.removesuffix('.toml') for entry in folder.iterdir() if entry.name.endswith('.toml')))


def read_recipe(name: str) -> Recipe:
    """A recipe by name, or from a file of your own (``.toml``).

    One of the same name in the folder that ROBOTRIALS_RECIPES names goes before ours: other versions, same hosts.
    """
    if name.endswith('.toml'):
        path = Path(name)
        try:
            recipe = _parse(path.read_text(encoding='utf-8'), path.stem, str(path))
        except FileNotFoundError as error:
            raise InputError(
                f'{path}: no such file; wanted a recipe, or a name: {", ".join(recipe_names())}'
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f'{path}: cannot be read ({error})') from error
        _check_spoken(recipe, str(path))
        return recipe
    if name not in recipe_names():
        raise UnknownName('environment', name, recipe_names())
    text = files('robotrials.run.environment').joinpath('recipes', f'{name}.toml').read_text(encoding='utf-8')
    instead = Path(os.environ.get('ROBOTRIALS_RECIPES', os.devnull)) / f'{name}.toml'
    if instead.is_file():
        return _parse(instead.read_text(encoding='utf-8'), name, str(instead))
    return _parse(text, name, name)


def _check_spoken(recipe: Recipe, where: str) -> None:
    """Refuse, before anything is downloaded, a recipe without what the process inside speaks with."""
    lines = (*recipe.requirements, *recipe.constraints, *recipe.without_dependencies)
    named = {re.split(r'[\[=]', line)[0].lower() for line in lines}
    missing = [package for package in SPOKEN if package not in named]
    if missing:
        raise InputError(
            f'{where}: {" and ".join(missing)} not in requirements, and the process inside speaks with it; '
            'add it, such as "msgpack==1.2.4"'
        )


def _parse(text: str, name: str, where: str) -> Recipe:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{where}: not TOML ({error})') from error
    known = ('about', 'python', 'requirements', 'constraints', 'without_dependencies', 'imports', 'checks')
    texts = ('about', 'python')
    for key, value in values.items():
        if key not in known:
            raise UnknownName(f'key of recipe {where}', key, known)
        is_fine = (
            isinstance(value, str)
            if key in texts
            else isinstance(value, list) and all(isinstance(v, str) for v in value)
        )
        if not is_fine:
            raise InputError(f'{where}: {key} is {value!r}, wanted {"text" if key in texts else "a list of texts"}')
    if 'requirements' not in values:
        raise InputError(f'{where}: requirements is missing')
    lists = {key: tuple(value) for key, value in values.items() if key not in texts}
    return Recipe(name=name, about=values.get('about', ''), python=values.get('python', ''), **lists)


# Where environments lie, and what is known of each.

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
    complete = next((place for place in places if place.is_complete), None)
    if complete is None:
        raise SetupError(f'the environment {name!r} is not there; run `robotrials env create {name}`')
    return complete


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


# Files that a benchmark needs beside its packages: where they may lie, and how to get them. Kept as data.


@dataclass(frozen=True, slots=True)
class Asset:
    """One kind of file that an environment needs; `found` is where it lies, or where it was looked for.

    is_optional: only a part of what it does, such as drawing, needs it.
    """

    name: str
    found: str
    is_there: bool
    mend: str
    is_optional: bool = False


def assets_of(environment: Environment) -> Iterator[Asset]:
    """What an environment needs beside its packages, each looked for in every place it may lie in."""
    text = files('robotrials.run.environment').joinpath('assets.toml').read_text(encoding='utf-8')
    for entry in tomllib.loads(text)['asset']:
        if entry['environment'] != environment.name:
            continue
        named = [place.replace('{environment}', str(environment.folder)) for place in entry['places']]
        places = [os.path.expanduser(os.path.expandvars(place)) for place in named]
        location = next((path for place in places for path in glob.glob(place) if _has_files(Path(path))), None)
        looked = ', '.join(place for place in places if '$' not in place)
        mend = entry['mend'].replace('{environment}', str(environment.folder))
        is_optional = bool(entry.get('optional', False))
        yield Asset(entry['name'], location or f'not in {looked}', location is not None, mend, is_optional)


def _has_files(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and next(path.iterdir(), None) is not None)
