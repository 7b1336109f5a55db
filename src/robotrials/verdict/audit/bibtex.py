"""BibTeX files: entries, strings, concatenation, comments; an error names the line.

A parser of our own, since the light libraries either drop what they can't read or pull in more than this module has
lines; a bibliography that lost entries in silence would undercount.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from robotrials.errors import InputError

MONTHS = ('jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec')
NAME = re.compile(r'[^\s"#%\'(),={}]+')
CLOSING = {'{': '}', '(': ')'}
ACCENTS = {
    '`': '\u0300', "'": '\u0301', '^': '\u0302', '~': '\u0303', '"': '\u0308', '=': '\u0304', '.': '\u0307',
    'u': '\u0306', 'v': '\u030c', 'H': '\u030b', 'c': '\u0327', 'k': '\u0328', 'r': '\u030a',
}  # fmt: skip
LETTERS = {'ss': 'ß', 'ae': 'æ', 'AE': 'Æ', 'oe': 'œ', 'OE': 'Œ', 'o': 'ø', 'O': 'Ø', 'l': 'ł', 'L': 'Ł', 'i': 'i'}


@dataclass(frozen=True, slots=True)
class BibEntry:
    """One entry: its kind and field names in lower case, values as written but for outer delimiters."""

    kind: str
    key: str
    fields: Mapping[str, str]
    line: int


def parse_bibtex(text: str, *, source: str = 'bibtex') -> tuple[BibEntry, ...]:
    """All entries of a BibTeX text. Text between entries is a comment, as in BibTeX itself."""
    return tuple(_Reader(text, source).entries())


def plain_text(value: str) -> str:
    """A field for reading and matching: accents as letters, no braces or commands, single spaces."""
    text = re.sub(
        r"\\([`'^~\"=.]|[uvHckr](?![a-zA-Z]))\s*(?:\{\s*\\?(\w)\s*\}|\\?(\w))",
        lambda m: unicodedata.normalize('NFC', (m[2] or m[3]) + ACCENTS[m[1]]),
        value,
    )
    text = re.sub(r'\\(ss|ae|AE|oe|OE|o|O|l|L|i)(?![a-zA-Z])\s*(?:\{\})?', lambda m: LETTERS[m[1]], text)
    text = re.sub(r'\\([&%$#_{}])', r'\1', text)
    text = re.sub(r'\\[a-zA-Z]+\s*', '', text)
    return ' '.join(text.replace('~', ' ').replace('{', '').replace('}', '').replace('--', '-').split())


class _Reader:
    """A cursor over the text."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.at = 0
        self.strings = {name: name for name in MONTHS}
        self.seen: dict[str, int] = {}

    def entries(self) -> list[BibEntry]:
        found = []
        while (start := self.text.find('@', self.at)) >= 0:
            self.at = start + 1
            if self.text[self.text.rfind('\n', 0, start) + 1 : start].lstrip().startswith('%'):
                continue
            self._skip_space()
            kind = self._name('an entry type after @').lower()
            if kind == 'comment':
                self._skip_comment()
                continue
            closing = self._open()
            if kind == 'preamble':
                self._value()
            elif kind == 'string':
                name, value = self._field()
                self.strings[name] = value
            else:
                found.append(self._entry(kind, closing, self._line(start)))
            self._skip_space()
            self._expect(closing, f'the end of @{kind} from line {self._line(start)}')
        return found

    def _entry(self, kind: str, closing: str, line: int) -> BibEntry:
        self._skip_space()
        match = re.compile(r'[^\s,{}()]+').match(self.text, self.at)
        if match is None:
            raise self._error(f'wanted a citation key after @{kind}')
        key = match.group()
        self.at = match.end()
        if key in self.seen:
            raise self._error(f'citation key {key!r} again, first on line {self.seen[key]}; wanted each key once')
        self.seen[key] = line
        fields: dict[str, str] = {}
        while True:
            self._skip_space()
            if self._peek() != ',':
                break
            self.at += 1
            self._skip_space()
            if self._peek() == closing:
                break
            name, value = self._field()
            if name in fields:
                raise self._error(f'field {name!r} twice in {key!r}')
            fields[name] = value.strip()
        return BibEntry(kind, key, fields, line)

    def _field(self) -> tuple[str, str]:
        self._skip_space()
        name = self._name('a field name').lower()
        self._skip_space()
        self._expect('=', f'after field {name!r}')
        return name, self._value()

    def _value(self) -> str:
        """One or more pieces joined by #."""
        pieces = [self._piece()]
        while True:
            self._skip_space()
            if self._peek() != '#':
                return ''.join(pieces)
            self.at += 1
            pieces.append(self._piece())

    def _piece(self) -> str:
        self._skip_space()
        mark = self._peek()
        if mark in ('{', '"'):
            return self._delimited(mark)
        word = self._name('a value: braces, quotes, a number or the name of a @string')
        if word.isdigit():
            return word
        if word.lower() not in self.strings:
            raise self._error(f'no @string named {word!r}; known: {", ".join(sorted(self.strings))}')
        return self.strings[word.lower()]

    def _delimited(self, mark: str) -> str:
        start, depth = self.at, 0
        for position in range(self.at + 1, len(self.text)):
            char = self.text[position]
            if self.text[position - 1] == '\\' and char in '{}"':
                continue
            if depth == 0 and char == ('}' if mark == '{' else '"'):
                self.at = position + 1
                return re.sub(r'\s+', ' ', self.text[start + 1 : position])
            depth += (char == '{') - (char == '}')
            if depth < 0:
                self.at = position
                raise self._error(f'a closing brace without its opening one, in a value from line {self._line(start)}')
        self.at = start
        raise self._error(f'a value that begins with {mark} and never ends')

    def _skip_comment(self) -> None:
        """A comment in braces is skipped whole; a bare one runs to the next entry."""
        self._skip_space()
        if self._peek() == '{':
            self._delimited('{')

    def _open(self) -> str:
        self._skip_space()
        mark = self._peek()
        if mark not in CLOSING:
            raise self._error('wanted { or ( after the entry type')
        self.at += 1
        return CLOSING[mark]

    def _name(self, wanted: str) -> str:
        match = NAME.match(self.text, self.at)
        if match is None:
            raise self._error(f'wanted {wanted}')
        self.at = match.end()
        return match.group()

    def _expect(self, mark: str, wanted: str) -> None:
        if self._peek() != mark:
            raise self._error(f'wanted {mark!r} ({wanted})')
        self.at += 1

    def _skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _line(self, at: int) -> int:
        return self.text.count('\n', 0, at) + 1

    def _error(self, message: str) -> InputError:
        found = self.text[self.at : self.at + 20].split('\n')[0]
        return InputError(f'{self.source} line {self._line(self.at)}: {message}, found {found or "the end"!r}')
