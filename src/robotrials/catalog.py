"""Find things by name: a built-in table, installed entry points, or a literal ``module:attribute``.

A catalogue maps a short name to a ``'package.module:attribute'`` string, so that listing names imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import field
from functools import cache
from types import ModuleType
from typing import Any

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.old_name import OLD_NAME, current_module, old_group
from robotrials.value import dataclass

OUR_GROUP = re.compile(rf'^\s*\[\s*(robotrials|{OLD_NAME})\.'.encode(), re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Names of one kind (hosts, policies, figures, ...) and where each one lives."""

    kind: str
    builtin: Mapping[str, str] = field(default_factory=dict)
    entry_point_group: str | None = None

    def names(self) -> tuple[str, ...]:
        """Every known name, built-in and installed, sorted."""
        return tuple(sorted(self._targets()))

    def load(self, name: str) -> object:
        """The object behind `name`: a known name, or a literal ``module:attribute``."""
        if name in self.builtin:
            return _attribute_of(self.builtin[name])
        installed = self.installed()
        if name in installed or ':' in name:
            return load_attribute(installed.get(name, name))
        raise UnknownName(self.kind, name, self._targets())

    def load_like(self, name: str, model: str, attributes: tuple[str, ...]) -> Any:
        """The same, if it has these attributes, which is as far as it can be checked; `model` names what has them."""
        loaded = self.load(name)
        for attribute in attributes:
            if not hasattr(loaded, attribute):
                raise SetupError(f'{name}: {loaded!r} has no {attribute!r}; wanted an object like {model}')
        return loaded

    def installed(self) -> dict[str, str]:
        """What other packages bring."""
        if self.entry_point_group is None:
            return {}
        known = _entry_points(tuple(sys.path))
        if known is None:
            return {}
        groups = (old_group(self.entry_point_group), self.entry_point_group)
        return {p.name: p.value for group in groups for p in known.select(group=group)}

    def _targets(self) -> dict[str, str]:
        return {**self.installed(), **self.builtin}


@cache
def _entry_points(path: tuple[str, ...]) -> Any:
    """The entry points of every package on the import path, which is listed once; None where none is for us."""
    if not any(map(_mentions_us, path)):
        return None
    from importlib.metadata import entry_points

    return entry_points()


def _mentions_us(folder: str) -> bool:
    """May a package in this part of the import path bring something to a group of ours?

    Looking for the header of a group takes a tenth of the time of parsing what every package says of itself, and most
    installations have none. What is no folder (an archive) may.
    """
    try:
        names = os.listdir(folder or '.')
    except NotADirectoryError:
        return True
    except OSError:
        return False
    for name in names:
        if name.endswith(('.dist-info', '.egg-info')):
            with contextlib.suppress(OSError), open(os.path.join(folder, name, 'entry_points.txt'), 'rb') as file:
                if OUR_GROUP.search(file.read()):
                    return True
    return False


def load_attribute(target: str) -> object:
    """Import ``'package.module:attribute'``, by an old name too; every way it can fail says which half was wrong."""
    module_name, separator, attribute = target.partition(':')
    return _attribute_of(f'{current_module(module_name)}{separator}{attribute}', target)


def _attribute_of(target: str, given: str = '') -> object:
    target, (module_name, separator, attribute) = given or target, target.partition(':')
    if not separator or not module_name or not attribute:
        raise InputError(f"wanted 'module:attribute', found {target!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + '.')):
            raise InputError(f'{target}: no module named {error.name!r} on the import path') from error
        raise SetupError(f'{target}: needs the package {error.name!r}, which is not installed') from error
    value: object = module
    for part in attribute.split('.'):
        if not hasattr(value, part):
            known = [n for n in dir(value) if not n.startswith('_')]
            raise UnknownName(f'attribute of {module_name}', part, known)
        value = getattr(value, part)
    return value


def _keeping(names: Set[str]) -> type[ModuleType]:
    """A package in which importing ``package.price`` does not bind `price` to that module."""

    class LatePackage(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if name not in names or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    return LatePackage


def late_names(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported when asked for.

    `places` maps a module, ``'.store'`` within the package or a full name elsewhere, to its names, separated by spaces.
    A name may be that of its own module (`stats.price`): it stays the function's, as it would be had the package
    imported it. `__all__` is all of these names, unless the package has one of its own. Type checkers are shown
    ``from package.module import *`` instead; a test holds every name that is imported to `places`.
    """
    modules = {name: module for module, names in places.items() for name in names.split()}
    shared = {name for name, module in modules.items() if module == f'.{name}'}
    if shared:
        sys.modules[package].__class__ = _keeping(shared)

    def find(name: str) -> Any:
        if name == '__all__':
            return sorted(modules)
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        value = getattr(importlib.import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return find, names
