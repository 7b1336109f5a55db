"""The vla-eval leaderboard file, parsed once: entries with exact scores, and what their notes say of the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.verdict.audit.benchmark import Benchmark

ARXIV_ID = re.compile(r'(\d{4}\.\d{4,5})')
ALSO_REPORTED = re.compile(r'also reported in:((?:[\s,]*https?://\S+)+)', re.IGNORECASE)
PER_TASK = re.compile(
    r'\b(\d+)\s+(?:evaluation\s+)?(?:trials?|episodes?|rollouts?|evaluations?|runs?)'
    r'\s*(?:per|/|for each|each|x)\s*task',
    re.IGNORECASE,
)
PER_SUITE = re.compile(r'\b(\d+)\s+(?:trials?|episodes?|rollouts?)\s*(?:per|/)\s*suite', re.IGNORECASE)
SUBSET = re.compile(
    r'\b(?:only\s+(\d+)\s+(?:of\s+(?:the\s+)?\d+\s+)?\w*\s*tasks?|(\d+)\s+tasks?\s+only|(\d+)-task\s+\w*\s*subset)',
    re.IGNORECASE,
)
ROLLOUTS = re.compile(r'\b([\d,]+)\s+(?:evaluation\s+)?(?:rollouts?|chains?|sequences?|instruction chains?)\b')
TRAINING = re.compile(r'\bprotocol\s+([AB])\b', re.IGNORECASE)
CALVIN_SPLIT = re.compile(r'\b(ABCD|ABC|D)\s*(?:→|->|to|\\to)\s*D\b')


@dataclass(frozen=True, slots=True)
class Score:
    """A score as printed: its exact value and its digits."""

    value: Fraction
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the leaderboard: who was scored, by which paper, and how."""

    model: str
    display_name: str
    benchmark: str
    paper: str  # arXiv id of the reporting paper, or its address
    model_paper: str
    overall: Score | None
    suites: Mapping[str, Score]
    notes: str
    added: str

    @property
    def is_own(self) -> bool:
        """Whether the paper scores its own model; a model key with `__` was measured by someone else."""
        return bool(self.paper) and '__' not in self.model and self.paper == self.model_paper

    @property
    def also_reported_in(self) -> frozenset[str]:
        """Papers that, by the notes, repeat this score."""
        found = (ARXIV_ID.findall(m) for m in ALSO_REPORTED.findall(self.notes))
        return frozenset(paper for papers in found for paper in papers)

    @property
    def training(self) -> str:
        """The training protocol (RoboTwin's A or B) or split (CALVIN's ABC->D) in the notes; '' if unstated."""
        if self.benchmark == 'robotwin_v2':
            stated = {m.upper() for m in TRAINING.findall(self.notes)}
            return stated.pop() if len(stated) == 1 else ''
        if self.benchmark == 'calvin':
            # The file is declared to hold ABC->D; notes name the exceptions.
            stated = set(CALVIN_SPLIT.findall(self.notes))
            return f'{stated.pop()}->D' if len(stated) == 1 else ('ABC->D' if not stated else '')
        return ''


@dataclass(frozen=True, slots=True)
class Leaderboard:
    source: str
    updated: str
    entries: tuple[Entry, ...]


def read_leaderboard(path: Path | str) -> Leaderboard:
    """Parse the file; numbers are kept as the decimals that were written."""
    source = Path(path)
    try:
        document = json.loads(source.read_text(encoding='utf-8'), parse_float=Decimal)
    except OSError as error:
        raise InputError(f'{source}: cannot be read ({error.strerror}); wanted a vla-eval leaderboard file') from error
    except json.JSONDecodeError as error:
        raise InputError(f'{source} line {error.lineno}: not JSON ({error.msg})') from error
    rows = document.get('results') if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(f'{source}: wanted an object with a list "results", or a list of entries')
    entries = tuple(_entry(row, f'{source} results[{i}]') for i, row in enumerate(rows))
    seen: dict[tuple[str, str, str], int] = {}
    for i, entry in enumerate(entries):
        first = seen.setdefault((entry.benchmark, entry.model, entry.paper), i)
        if first != i:
            raise InputError(
                f'{source}: results[{first}] and results[{i}] are both {entry.model!r} on {entry.benchmark} from '
                f'{entry.paper}; wanted one entry each'
            )
    updated = str(document.get('last_updated', '')) if isinstance(document, dict) else ''
    return Leaderboard(str(source), updated, entries)


def comparable_score(entry: Entry, preset: Benchmark) -> Score | None:
    """The entry's score on the preset's suite, if it is of the preset's training protocol or split."""
    if preset.training and entry.training != preset.training:
        return None
    return entry.overall if preset.suite == 'overall' else entry.suites.get(preset.suite)


def stated_protocol_problem(entry: Entry, preset: Benchmark) -> str:
    """How the notes contradict the preset's tasks and samples; '' if they do not."""
    tasks, samples = preset.protocol.tasks, preset.protocol.samples
    notes = entry.notes
    stated = [int(n) for n in PER_TASK.findall(notes)]
    if tasks > 1 and stated and samples not in stated:
        return f'notes say {stated[0]} a task, the protocol {samples}'
    if preset.family == 'libero':
        per_suite = [int(n) for n in PER_SUITE.findall(notes)]
        if per_suite and 500 not in per_suite:
            return f'notes say {per_suite[0]} a suite, the protocol 500'
    if preset.family == 'calvin':
        chains = [int(n.replace(',', '')) for n in ROLLOUTS.findall(notes)]
        if chains and samples not in chains:
            return f'notes say {chains[0]} sequences, the protocol {samples}'
    if preset.family in ('robocasa', 'robotwin_v2'):
        subset = [int(n) for groups in SUBSET.findall(notes) for n in groups if n]
        if subset and tasks not in subset:
            return f'notes say {subset[0]} tasks, the protocol {tasks}'
    return ''


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, dict):
        raise InputError(f'{where}: wanted an object, found {type(row).__name__}')
    for name in ('model', 'benchmark'):
        if not isinstance(row.get(name), str) or not row[name]:
            raise InputError(f'{where}: {name} is {row.get(name)!r}, wanted a name')
    scores = row.get('suite_scores') or {}
    return Entry(
        model=row['model'],
        display_name=str(row.get('display_name') or row['model']),
        benchmark=row['benchmark'],
        paper=paper_id(row.get('reported_paper')),
        model_paper=paper_id(row.get('model_paper')),
        overall=_score(row.get('overall_score'), f'{where} overall_score'),
        suites={
            name: score
            for name, value in scores.items()
            if (score := _score(value, f'{where} suite_scores.{name}')) is not None
        },
        notes=str(row.get('notes') or ''),
        added=str(row.get('date_added') or ''),
    )


def paper_id(address: str | None) -> str:
    """The arXiv id in an address, or the address itself."""
    found = ARXIV_ID.search(address or '')
    return found.group(1) if found else (address or '')


def _score(value: Any, where: str) -> Score | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise InputError(f'{where} is {value!r}, wanted a number or null')
    return Score(Fraction(value), str(value))
