"""Scores: what the analysis of a benchmark's store says, as far as blinding allows; kept until the store changes.

Nothing here computes a number: everything is read from `robotrials.verdict.analysis`.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.projection import Rescoring
from robotrials.record import Episode, Store
from robotrials.service.platform.benchmark import is_open, store_path
from robotrials.service.platform.table import Benchmark, Submission
from robotrials.show.verdict_text import short_decision
from robotrials.stats import Estimate, Rate
from robotrials.verdict.analysis import Absent, Analysis, analyse, present
from robotrials.verdict.analysis.contrast import Cells
from robotrials.verdict.analysis.expected_iou import expected_iou, iou_caution
from robotrials.verdict.analysis.score_source import success_source
from robotrials.verdict.planning.analysis_plan import SuccessSource

COLUMNS = ('hrt', 'success', 'safety', 'sbu', 'vsi', 'expected_iou')
FILTERS = ('task', 'stratum', 'condition')
MOST_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number with its interval; what cannot be estimated has no value, and `note` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """One policy on a leaderboard. Policies that share a letter are not significantly different."""

    policy: str
    letters: str
    is_reference: bool
    n_valid: int
    n_invalid: int
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPair:
    """Two neighbours of the ranking, and how many start states per cell would separate them."""

    policy_a: str
    policy_b: str
    difference: float
    p_corrected: float | None
    verdict: str
    needed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    benchmark: str
    endpoint: str  # that rows are ordered and lettered by
    rows: tuple[BoardRow, ...]
    pairs: tuple[BoardPair, ...]
    statement: str
    source: str  # where success and E[IoU] come from
    cautions: tuple[str, ...]
    head: str  # of the store's log: what the numbers were computed from
    note: str = ''  # why there are no rows


class Scores:
    """Analyses by store and head; the same state of a store is analysed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boards: dict[tuple[object, ...], Board] = {}
        self._analyses: dict[tuple[object, ...], Analysis] = {}
        self._lock = threading.Lock()

    def board(self, session: Session, benchmark: Benchmark, *, where: Mapping[str, str] | None = None) -> Board:
        """The leaderboard: every policy whose name is open and that has a valid or invalid episode."""
        policies = open_policies(session, benchmark)
        found = self.analysis(benchmark, policies, where=where)
        if isinstance(found, Absent):
            return _empty_board(benchmark.name, found.reason)
        head = found.head
        key = (benchmark.id, head, policies, *sorted((where or {}).items()))
        with self._lock:
            if key not in self._boards:
                self._forget()
                self._boards[key] = make_board(benchmark.name, found, head=head)
            return self._boards[key]

    def analysis(
        self, benchmark: Benchmark, policies: tuple[str, ...], *, where: Mapping[str, str] | None = None
    ) -> Analysis | Absent:
        """The analysis of the open part of a store; Absent, with why, if there is none yet."""
        path = store_path(self._folder, benchmark)
        if not is_open(benchmark):
            return Absent('this trial is blinded until it is closed')
        if not policies or not (path / 'trial.json').exists():
            return Absent('no submission is finished yet')
        store = dataclasses.replace(Store.open(path), is_view=True)
        key = (benchmark.id, store.head(), policies, *sorted((where or {}).items()))
        with self._lock:
            if key not in self._analyses:
                self._forget()
                try:
                    analysis = analyse(store, where={'policy': list(policies), **(where or {})})
                except NotEstimable as error:
                    return Absent(str(error))
                analysis.cells = Cells.DECLARED
                analysis.rescoring = Rescoring.NONE  # cells score views; a server that did would answer nobody else
                self._analyses[key] = analysis
            return self._analyses[key]

    def _forget(self) -> None:
        for kept in (self._boards, self._analyses):
            while len(kept) >= MOST_KEPT:
                kept.pop(next(iter(kept)))

    def episodes(self, benchmark: Benchmark, policy: str) -> list[Episode]:
        """Every attempt of one open policy."""
        path = store_path(self._folder, benchmark)
        if not (path / 'trial.json').exists():
            return []
        store = dataclasses.replace(Store.open(path), is_view=True)
        return sorted(store.episodes(attempts='all', where={'policy': policy}), key=lambda e: e.key)


def open_policies(session: Session, benchmark: Benchmark) -> tuple[str, ...]:
    """The policies of a benchmark that may be shown with their results: those that ran to the end."""
    if not is_open(benchmark):
        return ()
    shown = ('finished',) if benchmark.mode == 'open' else ('finished', 'cancelled')
    rows = session.scalars(
        select(Submission.policy).where(
            Submission.benchmark_id == benchmark.id, Submission.state.in_(shown), Submission.opened_at.is_not(None)
        )
    )
    return tuple(sorted(rows))


def make_board(benchmark: str, analysis: Analysis, *, head: str) -> Board:
    """A leaderboard from an analysis; best first by the primary endpoint."""
    lead = None if isinstance(analysis.pairs, Absent) else analysis.pairs.lead
    pairs = None if lead is None or isinstance(lead, Absent) else lead
    order = list(pairs.policies) if pairs is not None else []
    order += [p for p in analysis.every_policy if p not in order]
    rows = []
    for policy in order:
        mine = [e for e in analysis.episodes if e.policy == policy]
        if not mine:
            continue
        rows.append(
            BoardRow(
                policy=policy,
                letters='' if pairs is None else pairs.letters.get(policy, ''),
                is_reference=all(e.is_reference for e in mine),
                n_valid=sum(e.is_valid for e in mine),
                n_invalid=sum(not e.is_valid for e in mine),
                values=policy_values(analysis, policy),
            )
        )
    neighbours = () if pairs is None else tuple(
        pairs.pair(a, b) for a, b in zip(pairs.policies, pairs.policies[1:], strict=False)
    )  # fmt: skip
    return Board(
        benchmark=benchmark, endpoint=analysis.primary[0].value, rows=tuple(rows), head=head,
        statement=analysis.statement, source=success_source(analysis),
        cautions=(
            *_missing_caution(analysis), *analysis.cautions, *analysis.safety_caveats,
            *filter(None, [iou_caution(analysis)]),
        ),
        pairs=tuple(
            BoardPair(
                policy_a=p.policy_a, policy_b=p.policy_b, difference=p.difference, p_corrected=p.p_corrected,
                verdict=board_verdict(analysis, p.policy_a, p.policy_b),
                needed=None if p.needed is None else finite(p.needed.n),
            )
            for p in neighbours
        ),
    )  # fmt: skip


def _missing_caution(analysis: Analysis) -> tuple[str, ...]:
    """What a reader of the board must know of runs that came to nothing."""
    missing = (
        {} if isinstance(analysis.frame, Absent) else {p: sum(s.missing.values()) for p, s in analysis.sides.items()}
    )
    told = ', '.join(f'{n} of {policy}' for policy, n in missing.items() if n)
    return (f'Runs that came to nothing count as failures in order, letters and pairs: {told}.',) if told else ()


def board_verdict(analysis: Analysis, a: str, b: str) -> str:
    """What is said of two neighbours over all primary endpoints."""
    return short_decision(present(analysis.pairs).decision(a, b))


def policy_values(analysis: Analysis, policy: str) -> dict[str, Value]:
    """The six columns of one policy."""
    ranking, success, safety = analysis.ranking, analysis.success, analysis.safety
    values = dict.fromkeys(COLUMNS, Value(note='not estimable from these episodes'))
    if isinstance(ranking, Absent):
        values['hrt'] = Value(note=ranking.reason)
    elif ranking.reference is None:
        values['hrt'] = Value(note='the benchmark has no reference')
    elif policy == ranking.reference:
        values['hrt'] = Value(note='the reference has none: it is what the others are measured against')
    elif policy in ranking.relative:
        values['hrt'] = from_estimate(ranking.relative[policy].macro)
    if analysis.plan.success is SuccessSource.RECONSTRUCTION:
        values['success'] = _success_by_cameras(analysis, policy)
    elif isinstance(success, Absent):
        values['success'] = Value(note=success.reason)
    elif policy in success.macro:
        values['success'] = from_estimate(success.macro[policy])
    if isinstance(safety, Absent):
        values |= dict.fromkeys(('safety', 'sbu', 'vsi'), Value(note=safety.reason))
    else:
        cell = next((c for c in safety.summary.cells if c.policy == policy and not c.task), None)
        if cell is not None:
            values |= {'safety': from_rate(cell.safety), 'sbu': from_rate(cell.sbu), 'vsi': from_estimate(cell.vsi)}
    overlap = expected_iou(analysis, policy)
    values['expected_iou'] = Value(note=overlap.reason) if isinstance(overlap, Absent) else from_estimate(overlap)
    return values


def _success_by_cameras(analysis: Analysis, policy: str) -> Value:
    part = analysis.cameras
    if isinstance(part, Absent):
        return Value(note=part.reason)
    own = next((p for p in part.policies if p.policy == policy), None)
    return Value(note='no valid episode') if own is None else from_estimate(own.success)


def from_estimate(estimate: Estimate) -> Value:
    interval = estimate.interval
    return Value(
        value=finite(estimate.value), low=None if interval is None else finite(interval.low), n=estimate.n,
        high=None if interval is None else finite(interval.high), note=estimate.note,
    )  # fmt: skip


def from_rate(rate: Rate) -> Value:
    if rate.interval is None:
        return Value(n=0, note='no episode to rate')
    return Value(value=finite(rate.value), low=finite(rate.interval.low), high=finite(rate.interval.high), n=rate.n)


def finite(number: float | None) -> float | None:
    """A number that JSON can hold."""
    return None if number is None or not math.isfinite(number) else float(number)


def _empty_board(benchmark: str, why: str) -> Board:
    return Board(
        benchmark=benchmark, endpoint='', rows=(), pairs=(), statement='', source='', cautions=(), head='', note=why
    )
