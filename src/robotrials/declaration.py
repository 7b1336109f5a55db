"""Reading a declared table into a frozen dataclass: types checked, unknown keys refused with the near name."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union

from robotrials.errors import InputError, near_miss

T = TypeVar('T')


def read_table(kind: type[T], values: object, *, where: str) -> T:
    """A `kind` from a TOML table; a bare string stands for a table with only the first field.

    `where` is the place for messages, such as ``trial.toml [loop]``.
    """
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # callers give dataclasses
    if isinstance(values, str):
        values = {fields[0].name: values}
    if not isinstance(values, Mapping):
        raise InputError(f'{where} is {values!r}, wanted a table')
    known = [f.name for f in fields]
    for key in values:
        if key not in known:
            raise InputError(f'{where}: no key {key!r}: {near_miss(str(key), known)}')
    hints = typing.get_type_hints(kind)
    given = {key: _read(hints[key], value, f'{where} {key}') for key, value in values.items()}
    missing = [
        f.name
        for f in fields
        if f.name not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f'{where}: {missing[0]} is missing; it has no default')
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f'{where}: {error}') from error


def read_toml(kind: type[T], path: Path | str) -> T:
    """A `kind` from a whole TOML file."""
    import tomllib

    try:
        values = tomllib.loads(Path(path).read_text(encoding='utf-8'))
    except FileNotFoundError as error:
        raise InputError(f'{path}: no such file; wanted one in TOML') from error
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: cannot be read as TOML ({error})') from error
    return read_table(kind, values, where=str(path))


def _read(hint: Any, value: object, where: str) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_union(typing.get_args(hint), value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f'{where} is {value!r}, wanted a list')
        inner = typing.get_args(hint)[0]
        return tuple(_read(inner, item, f'{where}[{number}]') for number, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f'{where} is {value!r}, wanted a table')
        outer, inner = typing.get_args(hint)
        return {_read(outer, key, where): _read(inner, item, f'{where}.{key}') for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return read_table(typing.cast('type[Any]', hint), value, where=where)
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        known = [member.value for member in hint]
        if value not in known:
            raise InputError(f'{where} is {value!r}: {near_miss(str(value), known)}')
        return hint(value)
    return _read_scalar(hint, value, where)


def _read_union(options: tuple[Any, ...], value: object, where: str) -> Any:
    kinds = [o for o in options if o is not type(None)]
    if len(kinds) == 1:
        return _read(kinds[0], value, where)
    tables = [o for o in kinds if dataclasses.is_dataclass(o)]
    if isinstance(value, Mapping) and tables:
        return _read(tables[0], value, where)
    scalars = [o for o in kinds if not dataclasses.is_dataclass(o)]
    for kind in sorted(scalars, key=lambda k: k is not type(value)):
        try:
            return _read(kind, value, where)
        except InputError:
            continue
    wanted = ' or '.join('a table' if typing.get_origin(k) else k.__name__ for k in kinds)
    raise InputError(f'{where} is {value!r}, wanted {wanted}')


def _read_scalar(hint: Any, value: object, where: str) -> Any:
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise InputError(f'{where} is {number}, wanted a finite number')
        return number
    if hint is int and isinstance(value, bool):
        raise InputError(f'{where} is {value}, wanted a whole number')
    if not isinstance(value, hint):
        wanted = {str: 'text', int: 'a whole number', float: 'a number', bool: 'true or false'}.get(hint, hint)
        raise InputError(f'{where} is {value!r}, wanted {wanted}')
    return value


def without_nulls(value: Any) -> Any:
    """Absent is absent: a null is left out, so that the field's own default stands."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value
