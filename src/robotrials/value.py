"""Value classes: made without compiling before somebody needs it, and read from a declared table.

`dataclass` and `pattern` are as the standard library has them, made without compiling before somebody needs it.

`dataclasses.dataclass` writes and compiles five functions for a frozen class: 0.3 ms each time a process starts, and an
answer of `robotrials compare` needs some 200 classes, most of which it builds never or a few times. Here methods that
all classes share in form are closures, and `__init__` is compiled when many values are built (or its signature is asked
for). What one can see is the same: fields, `replace`, equality, hash, text, pickles, signatures, and what a frozen
value refuses. Type checkers see the standard library's.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
import re
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union

from robotrials.errors import InputError, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from typing import AnyStr

    def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]: ...
else:

    class pattern:  # noqa: N801 (called as `re.compile` is)
        """A regular expression that is compiled at its first use: most of those that a verb imports never match."""

        def __init__(self, text, flags=0):
            self._given = (text, flags)

        def __getattr__(self, name):
            if name.startswith('_'):
                raise AttributeError(name)
            method = getattr(re.compile(*self._given), name)
            setattr(self, name, method)
            return method

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False, kw_only=False):
        """See `dataclasses.dataclass`; the options that this package uses."""
        options = {'eq': eq, 'frozen': frozen, 'slots': slots, 'kw_only': kw_only}
        return _make(cls, **options) if cls is not None else lambda cls: _make(cls, **options)


FEW_VALUES = 25  # filling so many costs as much as compiling
# Annotations that are no fields, and bases with fields of their own: seldom, and left to the standard library.
_NO_FIELDS = ('ClassVar', 'InitVar', 'KW_ONLY')


def _make(cls: type, *, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> Any:
    own = dict(vars(cls))
    annotations = own.get('__annotations__', {})
    text = str(annotations)
    if any(word in text for word in _NO_FIELDS) or any(dataclasses.is_dataclass(b) for b in cls.__mro__[1:]):
        return dataclasses.dataclass(eq=eq, frozen=frozen, slots=slots, kw_only=kw_only)(cls)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature is worked out, and __init__ compiled
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    cls.__annotations__ = dict.fromkeys(annotations, object)  # a text would be searched for what is no field
    made: Any = plain(cls)
    made.__annotations__ = annotations
    for f in made.__dataclass_fields__.values():
        f.type = annotations[f.name]
    methods: dict[str, Any] = {'__init__': _Init(made, frozen=frozen), '__repr__': _repr}
    if eq:
        methods['__eq__'] = _equality(made)
    if frozen:
        methods |= {'__setattr__': _refusal(made, 'assign to'), '__delattr__': _refusal(made, 'delete')}
    if frozen and slots:  # which would be set one by one
        methods |= {'__getstate__': _get_state, '__setstate__': _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    if eq and own.get('__hash__') is None:  # a class with an __eq__ of its own has no hash by default
        made.__hash__ = _hash_of(made) if frozen else None
    params = made.__dataclass_params__  # by which a class derived from this one is checked
    params.init, params.repr, params.eq, params.frozen = True, True, eq, frozen
    return made


class _Init:
    """In the place of `__init__` until its signature is asked for, or compiling it costs less than doing without."""

    def __init__(self, cls: Any, *, frozen: bool) -> None:
        self.cls, self.frozen, self.n_built = cls, frozen, 0

    def __get__(self, value: Any, owner: type | None = None) -> Any:
        self.n_built += 1
        if value is not None and self.n_built <= FEW_VALUES:
            return functools.partial(self._fill, value)
        made = self._compiled()
        return made if value is None else made.__get__(value, owner)

    def _compiled(self) -> Any:
        made = _compiled_init(self.cls, frozen=self.frozen)
        if vars(self.cls).get('__init__') is self:
            self.cls.__init__ = made
        return made

    def _fill(self, value: Any, /, *places: Any, **words: Any) -> None:
        """What the compiled `__init__` does; arguments that do not fit are left to it, which says what is wrong."""
        put = object.__setattr__ if self.frozen else setattr
        missing = dataclasses.MISSING
        n_left, n_placed = len(words), 0
        for f in self.cls.__dataclass_fields__.values():
            if f.init and not f.kw_only and n_placed < len(places):
                given = places[n_placed]
                n_placed += 1
            elif f.init and f.name in words:
                given = words[f.name]
                n_left -= 1
            elif f.default is not missing:
                given = f.default
            elif f.default_factory is not missing:
                given = f.default_factory()
            elif f.init:
                break
            else:
                continue  # __post_init__ sets it
            put(value, f.name, given)
        else:
            if not n_left and n_placed == len(places):
                if hasattr(value, '__post_init__'):
                    value.__post_init__()
                return
        self._compiled()(value, *places, **words)


class _Factory:
    """In a signature, for a default that is made anew for each value."""

    def __repr__(self) -> str:
        return '<factory>'


_FACTORY = _Factory()


def _compiled_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {'_put': object.__setattr__, '_FACTORY': _FACTORY}
    places: list[str] = []
    words: list[str] = []
    body: list[str] = []
    for f in fields:
        value, place = f.name, f.name
        if f.default_factory is not dataclasses.MISSING:
            names[f'_make_{f.name}'] = f.default_factory
            made = f'_make_{f.name}()'
            value, place = (f'{made} if {f.name} is _FACTORY else {f.name}' if f.init else made), f'{f.name}=_FACTORY'
        elif f.default is not dataclasses.MISSING:
            names[f'_is_{f.name}'] = f.default
            value, place = (f.name if f.init else f'_is_{f.name}'), f'{f.name}=_is_{f.name}'
        elif not f.init:
            continue  # __post_init__ sets it
        if f.init:
            (words if f.kw_only else places).append(place)
        body.append(f' _put(self, {f.name!r}, {value})' if frozen else f' self.{f.name} = {value}')
    if hasattr(cls, '__post_init__'):
        body.append(' self.__post_init__()')
    arguments = ', '.join(['self', *places, *(['*', *words] if words else [])])
    exec(f'def __init__({arguments}):\n' + ('\n'.join(body) or ' pass'), names)
    init: Callable[..., None] = names['__init__']
    init.__annotations__ = {f.name: f.type for f in fields if f.init} | {'return': None}
    init.__qualname__, init.__module__ = f'{cls.__qualname__}.__init__', cls.__module__
    return init


def _compared(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What of a value is compared, as a tuple: identical parts are equal, whatever they say themselves."""
    names = [f.name for f in dataclasses.fields(cls) if f.compare]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _equality(cls: Any) -> Callable[[Any, object], bool]:
    parts = _compared(cls)

    def is_equal(self: Any, other: object) -> bool:
        return parts(self) == parts(other) if other.__class__ is self.__class__ else NotImplemented

    return is_equal


def _hash_of(cls: Any) -> Callable[[Any], int]:
    fields = dataclasses.fields(cls)
    names = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
    if names == [f.name for f in fields if f.compare]:
        parts = _compared(cls)
        return lambda self: hash(parts(self))
    return lambda self: hash(tuple(getattr(self, name) for name in names))


def _refusal(cls: Any, deed: str) -> Callable[..., None]:
    """A frozen value keeps its fields; what a derived class adds is that class's own affair."""
    method = '__delattr__' if deed == 'delete' else '__setattr__'

    def refuse(self: Any, name: str, *value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f'cannot {deed} field {name!r}')
        getattr(super(cls, self), method)(name, *value)

    return refuse


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    parts = ', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in dataclasses.fields(self) if f.repr)
    return f'{self.__class__.__qualname__}({parts})'


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


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
