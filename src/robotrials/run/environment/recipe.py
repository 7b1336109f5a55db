"""Recipes: what goes into an environment, locked; kept as data."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from robotrials.errors import InputError, UnknownName

DIGEST_DIGITS = 12
SPOKEN = ('numpy', 'msgpack')
LOCKED = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """An environment as it is to be: equal recipes make equal environments, and share one.

    `requirements` are installed with what they need, within `constraints`; `without_dependencies` afterwards, alone,
    for packages whose own pins are narrower than what they run with. `imports` must work for it to be sound.
    """

    name: str
    about: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for line in (*self.requirements, *self.constraints, *self.without_dependencies):
            if not LOCKED.fullmatch(line):
                raise InputError(f'recipe {self.name}: {line!r} is not locked, wanted PACKAGE==VERSION')
        for module in self.imports:
            if not all(part.isidentifier() for part in module.split('.')):
                raise InputError(f'recipe {self.name}: {module!r} is no module')

    @property
    def digest(self) -> str:
        """What identifies the environment: the recipe, and the Python that runs it."""
        content = json.dumps([asdict(self), sys.version_info[:2], sys.platform], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:DIGEST_DIGITS]


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with robotrials."""
    folder = files('robotrials.run.environment').joinpath('recipes')
    return tuple(sorted(entry.name.removesuffix('.toml') for entry in folder.iterdir() if entry.name.endswith('.toml')))


def read_recipe(name: str) -> Recipe:
    """A recipe by name, or from a file of your own (``.toml``)."""
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
    known = ('about', 'requirements', 'constraints', 'without_dependencies', 'imports')
    for key, value in values.items():
        if key not in known:
            raise UnknownName(f'key of recipe {where}', key, known)
        is_fine = (
            isinstance(value, str)
            if key == 'about'
            else isinstance(value, list) and all(isinstance(v, str) for v in value)
        )
        if not is_fine:
            raise InputError(f'{where}: {key} is {value!r}, wanted {"text" if key == "about" else "a list of texts"}')
    if 'requirements' not in values:
        raise InputError(f'{where}: requirements is missing')
    lists = {key: tuple(value) for key, value in values.items() if key != 'about'}
    return Recipe(name=name, about=str(values.get('about', '')), **lists)
