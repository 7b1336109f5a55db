"""Candidate tables in: CSV, JSONL, BibTeX, and the vla-eval leaderboard file."""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError, near_miss
from robotrials.old_name import EVIDENCE_FIELD, USAGE_FIELD
from robotrials.verdict.audit.citation import ARXIV, BenchmarkUse, Candidate, Usage
from robotrials.verdict.audit.leaderboard import FAMILIES, Entry, Leaderboard

# BibTeX files: entries, strings, concatenation, comments; an error names the line.
# A parser of our own, since the light libraries either drop what they can't read or pull in more than this module has
# lines; a bibliography that lost entries in silence would undercount.

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
        entries = []
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
                entries.append(self._entry(kind, closing, self._line(start)))
            self._skip_space()
            self._expect(closing, f'the end of @{kind} from line {self._line(start)}')
        return entries

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
        rest = self.text[self.at : self.at + 20].split('\n')[0]
        return InputError(f'{self.source} line {self._line(self.at)}: {message}, found {rest or "the end"!r}')


SEED_PAPERS = {
    'libero': '2306.03310', 'calvin': '2112.03227', 'simpler_env': '2405.05941', 'robocasa': '2406.02523',
    'robotwin_v2': '2506.18088',
}  # fmt: skip
COLUMNS = {
    'title': ('title',),
    'doi': ('doi',),
    'arxiv_id': ('arxiv_id', 'arxiv id', 'arxiv'),
    'semantic_scholar_id': ('semantic_scholar_id', 'semantic scholar id', 's2_id', 's2'),
    'openalex_id': ('openalex_id', 'openalex id', 'openalex'),
    'first_arxiv_date': ('first_arxiv_date', 'first arxiv date'),
    'found_via': ('found_via', 'found via', 'sources'),
}
USAGE_COLUMN = re.compile(r'^(.+?)[ _]usage$', re.IGNORECASE)


def read_candidates(path: Path | str) -> tuple[Candidate, ...]:
    """Rows of a CSV or JSONL table: ids, `found via` (sources joined by ;), and for each benchmark a column
    `<benchmark> usage` with `<benchmark> evidence`, or the columns `benchmark`, `usage`, `evidence`.
    """
    source = Path(path)
    if not source.exists():
        raise InputError(f'{source}: no such file; wanted a CSV or JSONL table of candidates')
    if source.suffix.lower() == '.csv':
        with source.open(newline='', encoding='utf-8-sig') as file:
            reader = csv.DictReader(file)
            rows = [(f'{source} line {reader.line_num}', row) for row in reader]
    elif source.suffix.lower() in ('.jsonl', '.ndjson'):
        rows = list(_json_rows(source))
    else:
        raise InputError(f'{source}: wanted a table ending in .csv or .jsonl, found {source.suffix!r}')
    return tuple(candidate_of(row, where=where) for where, row in rows)


def candidates_from_bibtex(
    path: Path | str, *, benchmark: str, usage: Usage = Usage.TERM_ONLY, found_via: str = ''
) -> tuple[Candidate, ...]:
    """A bibliography as candidates for one benchmark, all of one class; what they do with it is not in a BibTeX file.

    Saying `citation-only` declares that the entries are known to cite the benchmark. A field `trialist_usage` (with
    `trialist_evidence`) in an entry overrides the class for that entry.
    """
    source = Path(path)
    if not source.exists():
        raise InputError(f'{source}: no such file; wanted a BibTeX file')
    entries = parse_bibtex(source.read_text(encoding='utf-8-sig'), source=str(source))
    declared = ' (citations)' if usage is Usage.CITATION_ONLY else ''
    via = found_via or f'BibTeX {source.name}{declared}'
    return tuple(_from_entry(entry, benchmark, usage, via, str(source)) for entry in entries)


def candidates_from_leaderboard(leaderboard: Leaderboard) -> tuple[Candidate, ...]:
    """The papers behind a vla-eval leaderboard file: each reports a number on the benchmark, and the table says where.

    The file holds only papers that report results, and no titles, so the funnel above that class stays empty.
    """
    return tuple(_from_leaderboard(e) for e in leaderboard.entries if e.benchmark in FAMILIES and e.paper)


def _from_leaderboard(entry: Entry) -> Candidate:
    is_seed = entry.paper == SEED_PAPERS[entry.benchmark]
    scored = ', '.join(entry.suites) or ('overall' if entry.overall else 'task scores')
    use = BenchmarkUse(
        Usage.SEED_WORK if is_seed else Usage.REPORTS_RESULTS, f'{entry.display_name}: {scored} (vla-eval leaderboard)'
    )
    is_arxiv = ARXIV.search(entry.paper) is not None
    return Candidate(
        title='' if is_arxiv else entry.paper,
        arxiv_id=entry.paper if is_arxiv else '',
        found_via=('vla-eval leaderboard',),
        uses={FAMILIES[entry.benchmark]: use},
    )


def _from_entry(entry: BibEntry, benchmark: str, usage: Usage, via: str, source: str) -> Candidate:
    fields = entry.fields
    where = f'{source} line {entry.line} ({entry.key})'
    archive = fields.get('archiveprefix', fields.get('eprinttype', '')).lower()
    arxiv = fields.get('eprint', '') if archive == 'arxiv' else ''
    if not arxiv:
        texts = (fields.get(name, '') for name in ('journal', 'url', 'note', 'howpublished', 'doi'))
        marked = (m for text in texts if 'arxiv' in text.lower() and (m := ARXIV.search(text)))
        arxiv = next((m.group(1) for m in marked), '')
    chosen = _usage(fields[USAGE_FIELD], where) if USAGE_FIELD in fields else usage
    use = BenchmarkUse(chosen, plain_text(fields.get(EVIDENCE_FIELD, '')))
    return _checked(
        where, title=plain_text(fields.get('title', '')), doi=plain_text(fields.get('doi', '')), arxiv_id=arxiv,
        found_via=(via,), uses={benchmark: use},
    )  # fmt: skip


def _json_rows(source: Path) -> Iterable[tuple[str, dict[str, object]]]:
    for number, line in enumerate(source.read_text(encoding='utf-8-sig').split('\n'), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f'{source} line {number}: not JSON ({error.msg})') from error
        if not isinstance(row, dict):
            raise InputError(f'{source} line {number}: wanted an object, found {type(row).__name__}')
        yield f'{source} line {number}', row


def candidate_of(row: Mapping[str, object], *, where: str) -> Candidate:
    """One row of a candidate table; `where` names it in errors."""
    plain = {str(name).strip().lower(): value for name, value in row.items()}
    values: dict[str, str] = {}
    for name, aliases in COLUMNS.items():
        value = next((plain[alias] for alias in aliases if plain.get(alias)), '')
        values[name] = ';'.join(map(str, value)) if isinstance(value, list) else str(value).strip()
    sources = tuple(part.strip() for part in values.pop('found_via').split(';') if part.strip())
    uses = {}
    for name, value in row.items():
        match = USAGE_COLUMN.match(str(name).strip())
        if match and value:
            evidence = plain.get(f'{match.group(1).lower()} evidence', plain.get(f'{match.group(1).lower()}_evidence'))
            uses[match.group(1)] = BenchmarkUse(_usage(str(value), where), str(evidence or ''))
    if plain.get('benchmark'):
        usage = _usage(str(plain.get('usage') or ''), where)
        uses[str(plain['benchmark'])] = BenchmarkUse(usage, str(plain.get('evidence') or ''))
    return _checked(where, found_via=sources, uses=uses, **values)


def _checked(where: str, **values: object) -> Candidate:
    try:
        return Candidate(**values)  # type: ignore[arg-type]  # checked by the class
    except InputError as error:
        raise InputError(f'{where}: {error}') from error


def _usage(text: str, where: str) -> Usage:
    wanted = text.strip().lower()
    for usage in Usage:
        if wanted in (usage.value, *usage.value.split('/')):
            return usage
    raise InputError(f'{where}: usage {text!r}: {near_miss(wanted, [u.value for u in Usage])}')
