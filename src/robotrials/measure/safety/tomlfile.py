"""TOML files whose errors name the line: tables of one kind, each value with the place it was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from robotrials.errors import InputError, near_miss

T = TypeVar('T')


@dataclass(frozen=True, slots=True)
class Row:
    """One [[table]] of a file: its values, and where each stands."""

    file: str
    kind: str
    values: Mapping[str, Any]
    line: int
    lines: Mapping[str, int]

    def error(self, reason: str, *, key: str = '') -> InputError:
        """An error at the key's line, or at the table's."""
        return InputError(f'{self.file}, line {self.lines.get(key, self.line)}: {reason}')

    def check_keys(self, known: set[str], needed: set[str]) -> None:
        for key in self.values:
            if key not in known:
                raise self.error(f'[[{self.kind}]] has no field {key!r}: {near_miss(key, sorted(known))}', key=key)
        for key in sorted(needed):
            if key not in self.values:
                raise self.error(f'[[{self.kind}]] {self.values.get("id", "")!r} has no {key!r}')

    def text(self, key: str, default: str = '') -> str:
        return self._typed(key, str, default, 'text')

    def flag(self, key: str) -> bool:
        return self._typed(key, bool, False, 'true or false')

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f'{key} is {value!r}, wanted a number', key=key)
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        values: list[object] = self._typed(key, list, [], 'a list of text')
        for value in values:
            if not isinstance(value, str):
                raise self.error(f'{key} holds {value!r}, wanted text', key=key)
        return tuple(str(value) for value in values)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        if key not in self.values:
            return None
        values: list[object] = self._typed(key, list, [], 'a list of numbers')
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(f'{key} holds {value!r}, wanted numbers', key=key)
        return tuple(float(str(value)) for value in values)

    def _typed(self, key: str, kind: type[T], default: T, wanted: str) -> T:
        value = self.values.get(key, default)
        if not isinstance(value, kind):
            raise self.error(f'{key} is {value!r}, wanted {wanted}', key=key)
        return value


def read_rows(path: Path | str, *, kinds: set[str]) -> list[Row]:
    """Every table of the file, in order of kind; a table of an unknown kind is refused."""
    file = Path(path)
    try:
        text = file.read_text(encoding='utf-8')
    except OSError as error:
        raise InputError(f'{file}: cannot be read ({error.strerror})') from error
    return list(parse_rows(text, str(path), kinds=kinds))


def parse_rows(text: str, file: str, *, kinds: set[str]) -> Iterator[Row]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{file}: not TOML: {error}') from error
    places = _places(text)
    for kind, tables in document.items():
        starts = [place for place in places if place[1] == kind]
        if kind not in kinds:
            line = starts[0][0] if starts else _line_of_key(text, kind)
            raise InputError(f'{file}, line {line}: no table named {kind!r}: {near_miss(kind, sorted(kinds))}')
        if not isinstance(tables, list) or len(starts) != len(tables):
            line = starts[0][0] if starts else _line_of_key(text, kind)
            raise InputError(f'{file}, line {line}: wanted one [[{kind}]] for each {kind}')
        for (line, _, lines), values in zip(starts, tables, strict=True):
            yield Row(file, kind, values, line, lines)


def _places(text: str) -> list[tuple[int, str, dict[str, int]]]:
    """(line, kind, line of each key) of every [[kind]]; lines inside multi-line values are passed over."""
    found: list[tuple[int, str, dict[str, int]]] = []
    quote, depth = '', 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not quote and depth == 0:
            header = re.match(r'\s*\[\[\s*["\']?([\w-]+)["\']?\s*\]\]', line)
            key = re.match(r'\s*["\']?([\w-]+)["\']?\s*=', line)
            if header:
                found.append((number, header.group(1), {}))
                continue
            if key and found:
                found[-1][2].setdefault(key.group(1), number)
        quote, depth = _open_after(line, quote, depth)
    return found


def _open_after(line: str, quote: str, depth: int) -> tuple[str, int]:
    """The triple quote still open, and the brackets still open, after this line."""
    position = 0
    while position < len(line):
        rest = line[position:]
        if quote:
            end = rest.find(quote)
            if end < 0:
                return quote, depth
            position += end + len(quote)
            quote = ''
            continue
        if rest.startswith(('"""', "'''")):
            quote = rest[:3]
            position += 3
            continue
        string = re.match(r'"(?:\\.|[^"\\])*"|\'[^\']*\'', rest)
        if string:
            position += string.end()
            continue
        if rest[0] == '#':
            break
        depth += (rest[0] in '[{') - (rest[0] in ']}')
        position += 1
    return quote, depth


def _line_of_key(text: str, key: str) -> int:
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf'\s*\[*\s*["\']?{re.escape(key)}\b', line):
            return number
    return 1
