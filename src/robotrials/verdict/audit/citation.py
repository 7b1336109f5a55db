"""Who reports results on a benchmark: the citation tracker of Appendix D over a table of candidates.

Candidates are read from CSV, JSONL, BibTeX and the vla-eval leaderboard file.
"""

from __future__ import annotations

import csv
import enum
import itertools
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from robotrials.errors import InputError, NotEstimable, near_miss
from robotrials.old_name import EVIDENCE_FIELD, USAGE_FIELD
from robotrials.verdict.audit.leaderboard import FAMILIES, Leaderboard, LeaderboardEntry

ARXIV = re.compile(
    r'(?:arxiv[.:/]|abs/|pdf/|^)\s*(\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?', re.IGNORECASE
)
COLLISION_PRONE = frozenset({'libero', 'calvin', 'habitat'})
CITATION_SOURCE = re.compile(r'citation|references|cited', re.IGNORECASE)


class BenchmarkUsage(enum.StrEnum):
    """What a paper does with a benchmark (D.3), from the least to the most that evidence can promote it to."""

    TERM_ONLY = 'term-only-not-counted'
    UNCLEAR = 'unclear/full-text-unavailable'
    CITATION_ONLY = 'citation-only'
    USES_DATA = 'uses-data-no-results'
    REPORTS_RESULTS = 'reports-results'
    SEED_WORK = 'seed-work'

    @property
    def rank(self) -> int:
        return list(BenchmarkUsage).index(self)


@dataclass(frozen=True, slots=True)
class BenchmarkUse:
    """A paper's class for one benchmark, with the row-level evidence (protocol, suite, table) that supports it."""

    usage: BenchmarkUsage
    evidence: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvestedPaper:
    """One harvested paper. Absent ids are empty; `found_via` names every source that surfaced it."""

    title: str = ''
    doi: str = ''
    arxiv_id: str = ''
    semantic_scholar_id: str = ''
    openalex_id: str = ''
    first_arxiv_date: str = ''  # of v1: YYYY-MM-DD or YYYY-MM
    found_via: tuple[str, ...] = ()
    uses: Mapping[str, BenchmarkUse] = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, 'doi', normal_doi(self.doi))
        put(self, 'arxiv_id', normal_arxiv_id(self.arxiv_id) or _arxiv_of_doi(self.doi))
        if not any((self.title.strip(), self.doi, self.arxiv_id, self.semantic_scholar_id, self.openalex_id)):
            raise InputError('a candidate needs a title or an id (DOI, arXiv, Semantic Scholar, OpenAlex)')
        if self.first_arxiv_date and not re.fullmatch(r'\d{4}-(0[1-9]|1[0-2])(-\d{2})?', self.first_arxiv_date):
            raise InputError(f'first_arxiv_date is {self.first_arxiv_date!r}, wanted YYYY-MM-DD or YYYY-MM')

    @property
    def month(self) -> str:
        """The month of the first arXiv posting; from the id where the date is absent; '' without an arXiv id."""
        if not self.arxiv_id:
            return ''
        if self.first_arxiv_date:
            return self.first_arxiv_date[:7]
        digits = self.arxiv_id.split('/')[-1]
        year = 2000 + int(digits[:2]) if int(digits[:2]) < 91 else 1900 + int(digits[:2])
        return f'{year}-{digits[2:4]}'


@dataclass(frozen=True, slots=True)
class Paper:
    """A candidate after deduplication: every source kept, and what kept it from a higher class."""

    candidate: HarvestedPaper
    rows: int
    held_back: Mapping[str, str] = field(default_factory=dict)  # benchmark -> why


@dataclass(frozen=True, slots=True)
class Month:
    month: str
    candidates: int
    reported: int
    cumulative: int


@dataclass(frozen=True, slots=True)
class UsageTracker:
    """One benchmark's funnel (D.5) and months (D.4)."""

    benchmark: str
    rows: int  # candidate rows that name the benchmark, before deduplication
    papers: int
    by_usage: Mapping[BenchmarkUsage, int]
    without_arxiv_id: int  # papers left out of the months
    reported_without_arxiv_id: int
    dated_by_id: int  # papers whose month is read from the arXiv id, for want of a date
    held_back: int
    months: tuple[Month, ...]

    @property
    def reported(self) -> int:
        """Papers that report results: the only class that counts."""
        return self.by_usage.get(BenchmarkUsage.REPORTS_RESULTS, 0)


@dataclass(frozen=True, slots=True)
class CitationCounts:
    """One tracker a benchmark; a paper on several benchmarks counts once for each."""

    trackers: Mapping[str, UsageTracker]
    papers: tuple[Paper, ...]
    conflicts: tuple[str, ...]  # groups that share an id or a title but carry two arXiv ids

    def __getitem__(self, benchmark: str) -> UsageTracker:
        return self.trackers[benchmark]


def citation_counts(
    candidates: Iterable[HarvestedPaper | Mapping[str, object]] | Path | str,
    *,
    benchmarks: Sequence[str] | None = None,
    since: str = '',
    until: str = '',
    collision_prone: Iterable[str] = COLLISION_PRONE,
) -> CitationCounts:
    """Deduplicate, apply the promotion rule, and count by month of first arXiv posting (Appendix D).

    Candidates are `HarvestedPaper`s, rows with the columns of `read_candidates`, or the path of such a table.
    A row says `reports-results` only with evidence; without, it is held at what its sources show: `citation-only` if a
    citation source found it, else `term-only-not-counted`. The same rule holds every class of a collision-prone name.
    `since` and `until` (YYYY-MM) bound the months listed; the cumulative count starts at zero before `since`.
    """
    listed = _listed(candidates)
    if not listed:
        raise NotEstimable('no candidates; wanted a table with one row a paper')
    for name, bound in (('since', since), ('until', until)):
        if bound and not re.fullmatch(r'\d{4}-(0[1-9]|1[0-2])', bound):
            raise InputError(f'{name} is {bound!r}, wanted YYYY-MM')
    prone = {normal_title(name) for name in collision_prone}
    groups, conflicts = _grouped(listed)
    papers = tuple(_merged(group, prone) for group in groups)
    names = list(benchmarks) if benchmarks is not None else sorted({name for c in listed for name in c.uses})
    trackers = {name: _tracker(name, listed, papers, since, until) for name in names}
    return CitationCounts(trackers, papers, tuple(conflicts))


def _listed(candidates: Iterable[HarvestedPaper | Mapping[str, object]] | Path | str) -> list[HarvestedPaper]:
    if isinstance(candidates, str | Path):
        return list(read_candidates(candidates))
    entries = []
    for number, row in enumerate(candidates):
        if isinstance(row, Mapping):
            row = candidate_of(row, where=f'candidate {number}')
        if not isinstance(row, HarvestedPaper):
            raise InputError(
                f'candidate {number} is of type {type(row).__name__}, wanted a Candidate or a row of a table'
            )
        entries.append(row)
    return entries


def normal_title(title: str) -> str:
    """Letters and digits only, without case or accents."""
    plain = unicodedata.normalize('NFKD', title).casefold()
    return ''.join(ch for ch in plain if ch.isalnum())


def normal_doi(doi: str) -> str:
    return re.sub(r'^(?:https?://(?:dx\.)?doi\.org/|doi:)\s*', '', doi.strip(), flags=re.IGNORECASE).lower()


def normal_arxiv_id(text: str) -> str:
    """The bare id, without version: from an id, an `arXiv:` mark or an address; '' if there is none."""
    if not text.strip():
        return ''
    match = ARXIV.search(text.strip())
    if match is None:
        raise InputError(f'arxiv_id is {text!r}, wanted something like 2306.03310')
    digits = match.group(1).split('/')[-1]
    if not 1 <= int(digits[2:4]) <= 12:
        raise InputError(
            f'arxiv_id is {text!r}, and {digits[2:4]} is not a month; wanted YYMM.number, such as 2306.03310'
        )
    return match.group(1)


def _arxiv_of_doi(doi: str) -> str:
    match = re.fullmatch(r'10\.48550/arxiv\.(.+?)(?:v\d+)?', doi)
    return match.group(1) if match else ''


def _keys(candidate: HarvestedPaper) -> list[str]:
    named = {
        'doi': candidate.doi,
        'arxiv': candidate.arxiv_id,
        's2': candidate.semantic_scholar_id.strip().lower(),
        'openalex': candidate.openalex_id.strip().lower().rsplit('/', 1)[-1],
    }
    return [f'{kind}:{value}' for kind, value in named.items() if value]


def _grouped(candidates: Sequence[HarvestedPaper]) -> tuple[list[list[HarvestedPaper]], list[str]]:
    """Groups of rows that are one paper: by shared ids first, then by title unless two arXiv ids speak against it."""
    parent = list(range(len(candidates)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, candidate in enumerate(candidates):
        for key in _keys(candidate):
            parent[root(i)] = root(first.setdefault(key, i))
    ids: dict[int, set[str]] = defaultdict(set)
    for i, candidate in enumerate(candidates):
        ids[root(i)] |= {candidate.arxiv_id} - {''}
    conflicts = [f'one id, arXiv {" and ".join(sorted(arxiv_ids))}' for arxiv_ids in ids.values() if len(arxiv_ids) > 1]
    titled: dict[str, list[int]] = defaultdict(list)
    for i, candidate in enumerate(candidates):
        title = normal_title(candidate.title)
        if not title:
            continue
        fitting = [r for r in map(root, titled[title]) if len(ids[r] | ids[root(i)]) < 2]
        if fitting and root(i) != fitting[0]:
            ids[fitting[0]] |= ids[root(i)]
            parent[root(i)] = fitting[0]
        elif titled[title] and not fitting and root(i) not in map(root, titled[title]):
            conflicts.append(f'one title, several arXiv ids: {candidate.title!r}')
        titled[title].append(i)
    groups: dict[int, list[HarvestedPaper]] = defaultdict(list)
    for i, candidate in enumerate(candidates):
        groups[root(i)].append(candidate)
    return list(groups.values()), conflicts


def _merged(group: Sequence[HarvestedPaper], prone: set[str]) -> Paper:
    sources = tuple(dict.fromkeys(source for c in group for source in c.found_via))
    uses: dict[str, BenchmarkUse] = {}
    held: dict[str, str] = {}
    for benchmark in dict.fromkeys(name for c in group for name in c.uses):
        rows = [(c, c.uses[benchmark]) for c in group if benchmark in c.uses]
        allowed = [_allowed(use, c.found_via, normal_title(benchmark) in prone) for c, use in rows]
        best = max(allowed, key=lambda use: (use.usage.rank, bool(use.evidence)))
        uses[benchmark] = best
        claimed = max((use for _, use in rows), key=lambda use: use.usage.rank)
        if claimed.usage.rank > best.usage.rank:
            held[benchmark] = f'{claimed.usage} claimed without row-level evidence; counted as {best.usage}'
    dates = sorted(c.first_arxiv_date for c in group if c.first_arxiv_date)
    whole = replace(
        group[0],
        title=next((c.title for c in group if c.title), ''),
        doi=next((c.doi for c in group if c.doi), ''),
        arxiv_id=min((c.arxiv_id for c in group if c.arxiv_id), default=''),
        semantic_scholar_id=next((c.semantic_scholar_id for c in group if c.semantic_scholar_id), ''),
        openalex_id=next((c.openalex_id for c in group if c.openalex_id), ''),
        first_arxiv_date=dates[0] if dates else '',
        found_via=sources,
        uses=uses,
    )
    return Paper(whole, len(group), held)


def _allowed(use: BenchmarkUse, found_via: Sequence[str], is_prone: bool) -> BenchmarkUse:
    """The promotion rule (D.3): results need row-level evidence; for a collision-prone name so does everything that
    rests on the name.
    """
    if use.evidence.strip() or use.usage in (BenchmarkUsage.TERM_ONLY, BenchmarkUsage.SEED_WORK):
        return use
    is_cited = any(CITATION_SOURCE.search(source) for source in found_via)
    if use.usage is BenchmarkUsage.REPORTS_RESULTS:
        return BenchmarkUse(BenchmarkUsage.CITATION_ONLY if is_cited else BenchmarkUsage.TERM_ONLY)
    if is_prone and not is_cited:
        return BenchmarkUse(BenchmarkUsage.TERM_ONLY)
    return use


def _tracker(
    name: str, rows: Sequence[HarvestedPaper], papers: Sequence[Paper], since: str, until: str
) -> UsageTracker:
    tracked = [p for p in papers if name in p.candidate.uses]
    if not tracked:
        known = ', '.join(sorted({n for p in papers for n in p.candidate.uses})) or 'none'
        raise NotEstimable(f'no candidate is classified for {name!r}; classified: {known}')
    counted = [p for p in tracked if p.candidate.uses[name].usage is BenchmarkUsage.REPORTS_RESULTS]
    undated = [p for p in tracked if not p.candidate.month]
    return UsageTracker(
        benchmark=name,
        rows=sum(name in row.uses for row in rows),
        papers=len(tracked),
        by_usage=dict(Counter(p.candidate.uses[name].usage for p in tracked)),
        without_arxiv_id=len(undated),
        reported_without_arxiv_id=sum(not p.candidate.month for p in counted),
        dated_by_id=sum(bool(p.candidate.month) and not p.candidate.first_arxiv_date for p in tracked),
        held_back=sum(name in p.held_back for p in tracked),
        months=_months(tracked, counted, since, until),
    )


def _months(tracked: Sequence[Paper], counted: Sequence[Paper], since: str, until: str) -> tuple[Month, ...]:
    all_months = Counter(p.candidate.month for p in tracked if p.candidate.month)
    reported = Counter(p.candidate.month for p in counted if p.candidate.month)
    if not all_months:
        return ()
    span = _month_range(since or min(all_months), until or max(all_months))
    running = itertools.accumulate(reported[month] for month in span)
    return tuple(
        Month(month, all_months[month], reported[month], total) for month, total in zip(span, running, strict=True)
    )


def _month_range(first: str, last: str) -> list[str]:
    start, end = (int(m[:4]) * 12 + int(m[5:7]) - 1 for m in (first, last))
    return [f'{n // 12:04d}-{n % 12 + 1:02d}' for n in range(start, end + 1)]


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
    return tuple(_TableReader(text, source).entries())


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


class _TableReader:
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
TABLE_COLUMNS = {
    'title': ('title',),
    'doi': ('doi',),
    'arxiv_id': ('arxiv_id', 'arxiv id', 'arxiv'),
    'semantic_scholar_id': ('semantic_scholar_id', 'semantic scholar id', 's2_id', 's2'),
    'openalex_id': ('openalex_id', 'openalex id', 'openalex'),
    'first_arxiv_date': ('first_arxiv_date', 'first arxiv date'),
    'found_via': ('found_via', 'found via', 'sources'),
}
USAGE_COLUMN = re.compile(r'^(.+?)[ _]usage$', re.IGNORECASE)


def read_candidates(path: Path | str) -> tuple[HarvestedPaper, ...]:
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
    path: Path | str, *, benchmark: str, usage: BenchmarkUsage = BenchmarkUsage.TERM_ONLY, found_via: str = ''
) -> tuple[HarvestedPaper, ...]:
    """A bibliography as candidates for one benchmark, all of one class; what they do with it is not in a BibTeX file.

    Saying `citation-only` declares that the entries are known to cite the benchmark. A field `trialist_usage` (with
    `trialist_evidence`) in an entry overrides the class for that entry.
    """
    source = Path(path)
    if not source.exists():
        raise InputError(f'{source}: no such file; wanted a BibTeX file')
    entries = parse_bibtex(source.read_text(encoding='utf-8-sig'), source=str(source))
    declared = ' (citations)' if usage is BenchmarkUsage.CITATION_ONLY else ''
    via = found_via or f'BibTeX {source.name}{declared}'
    return tuple(_from_entry(entry, benchmark, usage, via, str(source)) for entry in entries)


def candidates_from_leaderboard(leaderboard: Leaderboard) -> tuple[HarvestedPaper, ...]:
    """The papers behind a vla-eval leaderboard file: each reports a number on the benchmark, and the table says where.

    The file holds only papers that report results, and no titles, so the funnel above that class stays empty.
    """
    return tuple(_from_leaderboard(e) for e in leaderboard.entries if e.benchmark in FAMILIES and e.paper)


def _from_leaderboard(entry: LeaderboardEntry) -> HarvestedPaper:
    is_seed = entry.paper == SEED_PAPERS[entry.benchmark]
    scored = ', '.join(entry.suites) or ('overall' if entry.overall else 'task scores')
    use = BenchmarkUse(
        BenchmarkUsage.SEED_WORK if is_seed else BenchmarkUsage.REPORTS_RESULTS,
        f'{entry.display_name}: {scored} (vla-eval leaderboard)',
    )
    is_arxiv = ARXIV.search(entry.paper) is not None
    return HarvestedPaper(
        title='' if is_arxiv else entry.paper,
        arxiv_id=entry.paper if is_arxiv else '',
        found_via=('vla-eval leaderboard',),
        uses={FAMILIES[entry.benchmark]: use},
    )


def _from_entry(entry: BibEntry, benchmark: str, usage: BenchmarkUsage, via: str, source: str) -> HarvestedPaper:
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


def candidate_of(row: Mapping[str, object], *, where: str) -> HarvestedPaper:
    """One row of a candidate table; `where` names it in errors."""
    plain = {str(name).strip().lower(): value for name, value in row.items()}
    values: dict[str, str] = {}
    for name, aliases in TABLE_COLUMNS.items():
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


def _checked(where: str, **values: object) -> HarvestedPaper:
    try:
        return HarvestedPaper(**values)  # type: ignore[arg-type]  # checked by the class
    except InputError as error:
        raise InputError(f'{where}: {error}') from error


def _usage(text: str, where: str) -> BenchmarkUsage:
    wanted = text.strip().lower()
    for usage in BenchmarkUsage:
        if wanted in (usage.value, *usage.value.split('/')):
            return usage
    raise InputError(f'{where}: usage {text!r}: {near_miss(wanted, [u.value for u in BenchmarkUsage])}')
