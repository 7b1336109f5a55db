"""Audit a whole leaderboard file (the public vla-eval JSON) by the top-line reading, claim by claim.

Two rules. `paper`: a paper's best own score against the best baseline that the same paper reports. `chronology`: the
same score against the best that any earlier paper in the file reports. arXiv ids give the order.
"""

from __future__ import annotations

import enum
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.verdict.audit.envelope import check_alpha
from robotrials.verdict.audit.topline import BENCHMARKS, Benchmark, Classification, Topline, topline

# The vla-eval leaderboard file, parsed once: entries with exact scores, and what their notes say of the protocol.

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
class LeaderboardEntry:
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
        ids = (ARXIV_ID.findall(m) for m in ALSO_REPORTED.findall(self.notes))
        return frozenset(paper for papers in ids for paper in papers)

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
    entries: tuple[LeaderboardEntry, ...]


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


def comparable_score(entry: LeaderboardEntry, preset: Benchmark) -> Score | None:
    """The entry's score on the preset's suite, if it is of the preset's training protocol or split."""
    if preset.training and entry.training != preset.training:
        return None
    return entry.overall if preset.suite == 'overall' else entry.suites.get(preset.suite)


def stated_protocol_problem(entry: LeaderboardEntry, preset: Benchmark) -> str:
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


def _entry(row: Any, where: str) -> LeaderboardEntry:
    if not isinstance(row, dict):
        raise InputError(f'{where}: wanted an object, found {type(row).__name__}')
    for name in ('model', 'benchmark'):
        if not isinstance(row.get(name), str) or not row[name]:
            raise InputError(f'{where}: {name} is {row.get(name)!r}, wanted a name')
    scores = row.get('suite_scores') or {}
    return LeaderboardEntry(
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
    match = ARXIV_ID.search(address or '')
    return match.group(1) if match else (address or '')


def _score(value: Any, where: str) -> Score | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise InputError(f'{where} is {value!r}, wanted a number or null')
    return Score(Fraction(value), str(value))


FAMILIES = {
    'libero': 'LIBERO', 'calvin': 'CALVIN', 'simpler_env': 'SimplerEnv', 'robocasa': 'RoboCasa',
    'robotwin_v2': 'RoboTwin 2.0',
}  # fmt: skip
LIBERO_SUITES = ('libero_spatial', 'libero_object', 'libero_goal', 'libero_10')


class Rule(enum.StrEnum):
    PAPER = 'paper'
    CHRONOLOGY = 'chronology'


class Obstacle(enum.StrEnum):
    """Why a claim can't be judged."""

    NO_SCORE = 'no score on a suite with a known protocol'
    NO_BASELINE = 'missing baseline'
    SAMPLES = 'S unknown or not standard'
    NOT_REALIZABLE = 'not realizable in one pass'
    OUT_OF_RANGE = 'score out of range'


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """One comparison: a paper's own score against the baseline that the rule picks, and what came of it."""

    rule: Rule
    family: str
    benchmark: Benchmark | None  # None where no suite with a known protocol was scored
    paper: str
    model: str
    score: Score | None = None
    baseline_paper: str = ''
    baseline_model: str = ''
    baseline_score: Score | None = None
    baseline_is_copied: bool = False
    reading: Topline | None = None
    obstacle: Obstacle | None = None
    detail: str = ''

    @property
    def classification(self) -> Classification | None:
        return None if self.reading is None else self.reading.classification


@dataclass(frozen=True, slots=True)
class Shares:
    """The classes of one benchmark's judged claims under one rule."""

    rule: Rule
    family: str
    counts: dict[Classification, int]
    unjudged: dict[Obstacle, int]
    tie_decided: int  # judged claims whose class depends on how a half count is rounded
    rounded: int  # judged claims with a score that is no whole count as printed
    unprintable: int  # of these, with a score that no single pass can print

    @property
    def judged(self) -> int:
        return sum(self.counts.values())

    def share(self, classification: Classification) -> Fraction | None:
        return Fraction(self.counts.get(classification, 0), self.judged) if self.judged else None


@dataclass(frozen=True, slots=True)
class BaselineCoverage:
    """How many papers with an own score have a baseline row of their own, and with copied scores from notes."""

    family: str
    own_papers: int
    with_baseline_row: int
    with_any_baseline: int


@dataclass(frozen=True, slots=True)
class LeaderboardAudit:
    """Every claim, judged or not, with the shares and the coverage."""

    claims: tuple[PaperClaim, ...]
    coverage: tuple[BaselineCoverage, ...]
    alpha: Fraction
    updated: str
    entries: int

    def shares(self) -> tuple[Shares, ...]:
        groups: dict[tuple[Rule, str], list[PaperClaim]] = defaultdict(list)
        for claim in self.claims:
            groups[claim.rule, claim.family].append(claim)
        return tuple(_shares(rule, family, claims) for (rule, family), claims in groups.items())


def audit_leaderboard(
    leaderboard: Leaderboard,
    *,
    families: Sequence[str] = tuple(FAMILIES),
    libero_suites: Sequence[str] = LIBERO_SUITES,
    rules: Sequence[Rule] = tuple(Rule),
    benchmarks: Sequence[Benchmark] = BENCHMARKS,
    copied_baselines: bool = True,
    require_realizable: bool = False,
    alpha: float | str | Fraction = 0.05,
) -> LeaderboardAudit:
    """Judge every paper's best own score on every suite. One claim is one (paper, suite, training protocol).

    `libero_suites` says which LIBERO suites are pooled (the paper pools three and does not name them); 'overall' is the
    four-suite mean. `copied_baselines` also uses scores that another entry's notes say the paper repeats.
    `require_realizable` sets aside scores that no single pass can print, instead of rounding them by C.7.
    """
    level = check_alpha(alpha)
    for family in families:
        if family not in FAMILIES:
            raise UnknownName('leaderboard benchmark', family, FAMILIES)
    known = [s for b in benchmarks if b.family == 'libero' for s in (b.suite,)]
    for suite in libero_suites:
        if suite not in known:
            raise UnknownName('LIBERO suite', suite, known)
    claims: list[PaperClaim] = []
    coverage = []
    for family in families:
        entries = [e for e in leaderboard.entries if e.benchmark == family]
        if not entries:
            continue
        presets = [b for b in benchmarks if b.family == family and (family != 'libero' or b.suite in libero_suites)]
        coverage.append(_coverage(family, entries))
        judge = _Judge(family, entries, presets, copied_baselines, require_realizable, level)
        claims.extend(judge.claims(rules))
    if not claims:
        raise NotEstimable(f'{leaderboard.source}: no entries of {", ".join(families)}')
    return LeaderboardAudit(tuple(claims), tuple(coverage), level, leaderboard.updated, len(leaderboard.entries))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry with its score on one preset."""

    entry: LeaderboardEntry
    score: Score
    problem: str  # how its notes contradict the preset's protocol
    is_copied: bool = False


@dataclass(frozen=True, slots=True)
class _Judge:
    """Both rules on one benchmark's entries, one preset at a time."""

    family: str
    entries: Sequence[LeaderboardEntry]
    presets: Sequence[Benchmark]
    copied_baselines: bool
    require_realizable: bool
    alpha: Fraction

    def claims(self, rules: Sequence[Rule]) -> Iterable[PaperClaim]:
        own: dict[str, list[LeaderboardEntry]] = defaultdict(list)
        for entry in self.entries:
            if entry.is_own:
                own[entry.paper].append(entry)
        judged: list[PaperClaim] = []
        for preset in self.presets:
            scored = [
                _Candidate(e, score, stated_protocol_problem(e, preset))
                for e in self.entries
                if (score := comparable_score(e, preset)) is not None
            ]
            for rule in rules:
                judged.extend(self._by_paper(preset, scored) if rule is Rule.PAPER else self._by_date(preset, scored))
        with_score = {claim.paper for claim in judged}
        for rule in rules:
            yield from (c for c in judged if c.rule is rule)
            yield from (self._no_score(rule, own[p][0]) for p in sorted(own, key=_order) if p not in with_score)

    def _no_score(self, rule: Rule, entry: LeaderboardEntry) -> PaperClaim:
        detail = entry.notes[:200] or 'no suite score in the entry'
        if entry.benchmark in ('calvin', 'robotwin_v2') and not entry.training:
            detail = f'split or training protocol not stated once; {detail}'
        return PaperClaim(rule, self.family, None, entry.paper, entry.model, obstacle=Obstacle.NO_SCORE, detail=detail)

    def _by_paper(self, preset: Benchmark, scored: Sequence[_Candidate]) -> Iterable[PaperClaim]:
        baselines: dict[str, list[_Candidate]] = defaultdict(list)
        for candidate in scored:
            entry = candidate.entry
            if not entry.is_own:
                baselines[entry.paper].append(candidate)
            if self.copied_baselines:
                for paper in entry.also_reported_in - {entry.paper}:
                    baselines[paper].append(_Candidate(entry, candidate.score, candidate.problem, is_copied=True))
        for best in _best_own(scored):
            paper = best.entry.paper
            against = _best([c for c in baselines[paper] if c.entry.model != best.entry.model])
            yield self._judged(Rule.PAPER, preset, best, against)

    def _by_date(self, preset: Benchmark, scored: Sequence[_Candidate]) -> Iterable[PaperClaim]:
        """Against the best earlier score of the same protocol; one whose notes say otherwise is no predecessor."""
        dated = sorted((c for c in scored if not c.problem), key=lambda c: _order(c.entry.paper))
        previous: _Candidate | None = None
        position = 0
        for best in _best_own(scored):
            while position < len(dated) and _order(dated[position].entry.paper) < _order(best.entry.paper):
                previous = _best([dated[position], *([previous] if previous else [])])
                position += 1
            yield self._judged(Rule.CHRONOLOGY, preset, best, previous)

    def _judged(self, rule: Rule, preset: Benchmark, own: _Candidate, base: _Candidate | None) -> PaperClaim:
        claim = PaperClaim(rule, self.family, preset, own.entry.paper, own.entry.model, score=own.score)
        if base is None:
            return replace(claim, obstacle=Obstacle.NO_BASELINE, detail=WHY_NO_BASELINE[rule])
        claim = replace(
            claim, baseline_paper=base.entry.paper, baseline_model=base.entry.model, baseline_score=base.score,
            baseline_is_copied=base.is_copied,
        )  # fmt: skip
        for who, candidate in (('own', own), ('baseline', base)):
            if candidate.problem:
                return replace(claim, obstacle=Obstacle.SAMPLES, detail=f'{who}: {candidate.problem}')
        return self._read(claim, preset, own.score, base.score)

    def _read(self, claim: PaperClaim, preset: Benchmark, own: Score, base: Score) -> PaperClaim:
        protocol = preset.protocol
        try:
            reading = topline(
                base.text, own.text, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score,
                alpha=self.alpha, unit=preset.unit,
            )  # fmt: skip
        except InputError as error:
            return replace(claim, obstacle=Obstacle.OUT_OF_RANGE, detail=str(error))
        if self.require_realizable and not reading.is_printable:
            counts = [f'{float(s.exact_count):.6g}' for s in (reading.score_a, reading.score_b) if not s.is_printable]
            detail = f'would be {" and ".join(counts)} successes'
            return replace(claim, obstacle=Obstacle.NOT_REALIZABLE, detail=detail)
        return replace(claim, reading=reading, detail=_detail(reading))


WHY_NO_BASELINE = {
    Rule.PAPER: 'the file has no other score from this paper on this suite',
    Rule.CHRONOLOGY: 'no earlier paper in the file scores this suite',
}


def _best(candidates: Sequence[_Candidate]) -> _Candidate | None:
    """The highest score; of equal ones the earliest paper, and a row of the paper's own before a copied one."""
    if not candidates:
        return None
    return min(candidates, key=lambda c: (-c.score.value, c.is_copied, _order(c.entry.paper), c.entry.model))


def _best_own(scored: Sequence[_Candidate]) -> list[_Candidate]:
    """Each paper's best own score, papers in order."""
    own: dict[str, list[_Candidate]] = defaultdict(list)
    for candidate in scored:
        if candidate.entry.is_own:
            own[candidate.entry.paper].append(candidate)
    return [best for paper in sorted(own, key=_order) if (best := _best(own[paper])) is not None]


def _order(paper: str) -> tuple[int, int, str]:
    """ArXiv ids in order of submission; anything else comes last, and so is no one's predecessor."""
    month, _, number = paper.partition('.')
    if month.isdigit() and number.isdigit():
        return int(month), int(number), ''
    return 10**9, 0, paper


def _detail(reading: Topline) -> str:
    parts = []
    for name, score in (('baseline', reading.score_a), ('own', reading.score_b)):
        if score.is_tie:
            parts.append(f'{name} {float(score.exact_count):g} is a tie, rounded up to {score.half_up}')
        elif not score.is_realizable:
            parts.append(f'{name} {float(score.exact_count):.6g} rounded to {score.half_up}')
    if reading.is_tie_decisive:
        others = sorted({str(r.classification) for r in reading.readings} - {str(reading.classification)})
        parts.append(f'the other rounding gives {" or ".join(others)}')
    return '; '.join(parts)


def _shares(rule: Rule, family: str, claims: Sequence[PaperClaim]) -> Shares:
    readings = [c.reading for c in claims if c.reading is not None]
    return Shares(
        rule=rule,
        family=family,
        counts=dict(Counter(r.classification for r in readings)),
        unjudged=dict(Counter(c.obstacle for c in claims if c.obstacle is not None)),
        tie_decided=sum(r.is_tie_decisive for r in readings),
        rounded=sum(not r.is_realizable for r in readings),
        unprintable=sum(not r.is_printable for r in readings),
    )


def _coverage(family: str, entries: Sequence[LeaderboardEntry]) -> BaselineCoverage:
    own = {e.paper for e in entries if e.is_own}
    rows = {e.paper for e in entries if not e.is_own}
    copied = {paper for e in entries for paper in e.also_reported_in if paper != e.paper}
    return BaselineCoverage(family, len(own), len(own & rows), len(own & (rows | copied)))
