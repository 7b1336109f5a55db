"""Candidate tables in: CSV, JSONL, BibTeX, and the vla-eval leaderboard file."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from robotrials.errors import InputError, near_miss
from robotrials.old_name import EVIDENCE_FIELD, USAGE_FIELD
from robotrials.verdict.audit.bibtex import BibEntry, parse_bibtex, plain_text
from robotrials.verdict.audit.citation import ARXIV, BenchmarkUse, Candidate, Usage
from robotrials.verdict.audit.leaderboard import FAMILIES
from robotrials.verdict.audit.leaderboard_entry import Entry, Leaderboard

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
