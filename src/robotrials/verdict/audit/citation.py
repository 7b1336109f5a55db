"""Who reports results on a benchmark: the citation tracker of Appendix D over a table of candidates."""

from __future__ import annotations

import enum
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from robotrials.errors import InputError, NotEstimable

ARXIV = re.compile(
    r'(?:arxiv[.:/]|abs/|pdf/|^)\s*(\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?', re.IGNORECASE
)
COLLISION_PRONE = frozenset({'libero', 'calvin', 'habitat'})
CITATION_SOURCE = re.compile(r'citation|references|cited', re.IGNORECASE)


class Usage(enum.StrEnum):
    """What a paper does with a benchmark (D.3), from the least to the most that evidence can promote it to."""

    TERM_ONLY = 'term-only-not-counted'
    UNCLEAR = 'unclear/full-text-unavailable'
    CITATION_ONLY = 'citation-only'
    USES_DATA = 'uses-data-no-results'
    REPORTS_RESULTS = 'reports-results'
    SEED_WORK = 'seed-work'

    @property
    def rank(self) -> int:
        return list(Usage).index(self)


@dataclass(frozen=True, slots=True)
class BenchmarkUse:
    """A paper's class for one benchmark, with the row-level evidence (protocol, suite, table) that supports it."""

    usage: Usage
    evidence: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
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

    candidate: Candidate
    rows: int
    held_back: Mapping[str, str] = field(default_factory=dict)  # benchmark -> why


@dataclass(frozen=True, slots=True)
class Month:
    month: str
    candidates: int
    reported: int
    cumulative: int


@dataclass(frozen=True, slots=True)
class Tracker:
    """One benchmark's funnel (D.5) and months (D.4)."""

    benchmark: str
    rows: int  # candidate rows that name the benchmark, before deduplication
    papers: int
    by_usage: Mapping[Usage, int]
    without_arxiv_id: int  # papers left out of the months
    reported_without_arxiv_id: int
    dated_by_id: int  # papers whose month is read from the arXiv id, for want of a date
    held_back: int
    months: tuple[Month, ...]

    @property
    def reported(self) -> int:
        """Papers that report results: the only class that counts."""
        return self.by_usage.get(Usage.REPORTS_RESULTS, 0)


@dataclass(frozen=True, slots=True)
class CitationCounts:
    """One tracker a benchmark; a paper on several benchmarks counts once for each."""

    trackers: Mapping[str, Tracker]
    papers: tuple[Paper, ...]
    conflicts: tuple[str, ...]  # groups that share an id or a title but carry two arXiv ids

    def __getitem__(self, benchmark: str) -> Tracker:
        return self.trackers[benchmark]


def citation_counts(
    candidates: Iterable[Candidate | Mapping[str, object]] | Path | str,
    *,
    benchmarks: Sequence[str] | None = None,
    since: str = '',
    until: str = '',
    collision_prone: Iterable[str] = COLLISION_PRONE,
) -> CitationCounts:
    """Deduplicate, apply the promotion rule, and count by month of first arXiv posting (Appendix D).

    Candidates are `Candidate`s, rows with the columns of `read_candidates`, or the path of such a table.
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


def _listed(candidates: Iterable[Candidate | Mapping[str, object]] | Path | str) -> list[Candidate]:
    from robotrials.verdict.audit.candidate_table import candidate_of, read_candidates

    if isinstance(candidates, str | Path):
        return list(read_candidates(candidates))
    entries = []
    for number, row in enumerate(candidates):
        if isinstance(row, Mapping):
            row = candidate_of(row, where=f'candidate {number}')
        if not isinstance(row, Candidate):
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
        raise InputError(f'arxiv_id is {text!r}, and {digits[2:4]} is no month; wanted YYMM.number, such as 2306.03310')
    return match.group(1)


def _arxiv_of_doi(doi: str) -> str:
    match = re.fullmatch(r'10\.48550/arxiv\.(.+?)(?:v\d+)?', doi)
    return match.group(1) if match else ''


def _keys(candidate: Candidate) -> list[str]:
    named = {
        'doi': candidate.doi,
        'arxiv': candidate.arxiv_id,
        's2': candidate.semantic_scholar_id.strip().lower(),
        'openalex': candidate.openalex_id.strip().lower().rsplit('/', 1)[-1],
    }
    return [f'{kind}:{value}' for kind, value in named.items() if value]


def _grouped(candidates: Sequence[Candidate]) -> tuple[list[list[Candidate]], list[str]]:
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
    groups: dict[int, list[Candidate]] = defaultdict(list)
    for i, candidate in enumerate(candidates):
        groups[root(i)].append(candidate)
    return list(groups.values()), conflicts


def _merged(group: Sequence[Candidate], prone: set[str]) -> Paper:
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
    if use.evidence.strip() or use.usage in (Usage.TERM_ONLY, Usage.SEED_WORK):
        return use
    is_cited = any(CITATION_SOURCE.search(source) for source in found_via)
    if use.usage is Usage.REPORTS_RESULTS:
        return BenchmarkUse(Usage.CITATION_ONLY if is_cited else Usage.TERM_ONLY)
    if is_prone and not is_cited:
        return BenchmarkUse(Usage.TERM_ONLY)
    return use


def _tracker(name: str, rows: Sequence[Candidate], papers: Sequence[Paper], since: str, until: str) -> Tracker:
    tracked = [p for p in papers if name in p.candidate.uses]
    if not tracked:
        known = ', '.join(sorted({n for p in papers for n in p.candidate.uses})) or 'none'
        raise NotEstimable(f'no candidate is classified for {name!r}; classified: {known}')
    counted = [p for p in tracked if p.candidate.uses[name].usage is Usage.REPORTS_RESULTS]
    undated = [p for p in tracked if not p.candidate.month]
    return Tracker(
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
