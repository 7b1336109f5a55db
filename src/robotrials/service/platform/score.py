"""Scores: what the analysis of a benchmark's store says, as far as blinding allows; kept until the store changes.

Nothing here computes a number: everything is read from `robotrials.verdict.analysis`. A `Board` and its parts are also
what the interface answers: their fields are those of its description.

How submissions stand on a leaderboard: each on the benchmark's own cells, with every one of its account beside it.

What a submission did not run, it has failed: otherwise whoever cancels when losing, or leaves a hard task out, would be
ranked by the rest, and would shrink the cells on which others are compared. And whoever submits k times has k chances
to be lucky: all of them stand on the board, and each is tested at alpha / k.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from robotrials.errors import InputError, NotEstimable, StoreError
from robotrials.measure.geometry.projection import Rescoring
from robotrials.record import Episode, Outcome, Store
from robotrials.record.episode import conditions_by_severity
from robotrials.run.fault import FaultKind
from robotrials.service.platform.benchmark import Quarantine, is_open, store_path
from robotrials.service.platform.job import benchmark_slots
from robotrials.service.platform.queue import planning_order
from robotrials.service.platform.table import BenchmarkRow, JobRow, Lease, Submission
from robotrials.show.phrase import short_decision
from robotrials.stats import Estimate, Rate
from robotrials.verdict.analysis import Absent, Analysis, present
from robotrials.verdict.analysis.cameras import expected_iou, iou_caution, success_source
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.analysis.contrast import Cells
from robotrials.verdict.analysis.ranking import Rates, count_rates
from robotrials.verdict.analysis.selection import Selection, ordered_episodes, select_store
from robotrials.verdict.planning.analysis_plan import SuccessSource, declared_analysis

MISSING = f'{FaultKind.POLICY_WITHDRAWN.value}: it was not run to an end, which counts as a failure'


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStanding:
    """One submission that was begun and is over: its missing episodes, as failures, and how many its account has."""

    policy: str
    account: str
    state: str
    reason: str
    missing: tuple[Episode, ...]
    n_of_account: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A submission that is shown and not ranked: it was voided, or ended before it was given a cell."""

    policy: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    ranked: tuple[BoardStanding, ...] = ()
    aside: tuple[SetAside, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(s.policy for s in self.ranked)

    @property
    def key(self) -> tuple[object, ...]:
        """What a board hangs on, besides the store."""
        return (
            *((s.policy, s.state, len(s.missing), s.n_of_account) for s in self.ranked),
            *((a.policy, a.reason) for a in self.aside),
        )

    def of(self, policy: str) -> BoardStanding:
        return next(s for s in self.ranked if s.policy == policy)

    def missing(self, where: Mapping[str, str]) -> list[Episode]:
        """The missing episodes that match a filter."""
        return [e for s in self.ranked for e in s.missing if all(getattr(e, k) == v for k, v in where.items())]


def read_standings(session: Session, benchmark: BenchmarkRow) -> Standings:
    """Every submission whose name may be shown; nothing of a trial before it is closed."""
    if not is_open(benchmark):
        return Standings()
    every = list(
        session.scalars(select(Submission).where(Submission.benchmark_id == benchmark.id).order_by(Submission.policy))
    )
    opened = [s for s in every if s.opened_at is not None]
    begun = set(
        session.scalars(
            select(JobRow.submission_id)
            .outerjoin(
                Lease, Lease.job_id == JobRow.id
            )  # one that a restored backup knows from the record has no lease
            .where(JobRow.benchmark_id == benchmark.id, (Lease.state != 'unclaimed') | (JobRow.state == 'done'))
            .distinct()
        )
    )
    ranked = [s for s in opened if s.id in begun and s.state != 'void']
    # Also those that are not over yet: who leaves what goes badly unfinished, and tries again, has tried twice.
    counts = Counter(s.user.name for s in every if s.id in begun and s.state != 'void')
    return Standings(
        ranked=tuple(
            BoardStanding(
                policy=s.policy, account=s.user.name, state=s.state, reason=s.reason, n_of_account=counts[s.user.name],
                missing=_missing(session, s),
            )
            for s in ranked
        ),
        aside=tuple(
            SetAside(policy=s.policy, state=s.state, reason=s.reason or 'it ended before it was given a cell')
            for s in opened
            if s not in ranked
        ),
    )  # fmt: skip


def _missing(session: Session, submission: Submission) -> tuple[Episode, ...]:
    slots = session.scalars(
        select(JobRow.slot).where(JobRow.submission_id == submission.id, JobRow.state != 'done').order_by(JobRow.slot)
    ).all()
    if not slots:
        return ()
    context, planned = planning_order(submission).context(), benchmark_slots(submission.plan)
    is_reference = submission.policy == submission.benchmark.reference
    return tuple(
        context.planned(planned[slot]).replace(
            policy=submission.policy, is_reference=is_reference, outcome=Outcome.FAILURE, success=False,
            is_unrecoverable=True, reason=MISSING,
        )
        for slot in slots
    )  # fmt: skip


def complete_selection(
    store: Store, policies: Sequence[str], missing: Sequence[Episode], where: Mapping[str, str]
) -> Selection:
    """The episodes of a store that match, with those that are missing; a missing one takes the place of an INVALID."""
    asked = {'policy': list(policies), **where}
    try:
        selection = select_store(store, where=asked)
    except NotEstimable:
        if not missing:
            raise
        selection = Selection(
            source=str(store.path), episodes=(), store=store, where=asked, trial=store.trial,
            every_policy=tuple(sorted(policies)),
        )  # fmt: skip
    if not missing:
        return selection
    ids = {e.episode_id for e in missing}
    kept = [e for e in selection.episodes if e.episode_id not in ids]
    return dataclasses.replace(
        selection, episodes=ordered_episodes([*kept, *missing]),
        every_policy=tuple(sorted({*selection.every_policy, *policies})),
    )  # fmt: skip


# The leaderboard as RADAR prints it: splits and conditions across, successes of n everywhere, drops with intervals.


@dataclass(frozen=True, slots=True, kw_only=True)
class GridField:
    """Successes of n episodes; under a changed condition also the paired drop from the baseline, in shares."""

    successes: int = 0
    n: Annotated[int, Field(description='Episodes that the number rests on.')] = 0
    drop: Annotated[
        float | None, Field(description='Of success from the baseline condition, as a share; None for a split.')
    ] = None
    low: float | None = None
    high: float | None = None
    note: Annotated[str, Field(description='Why there is no interval.')] = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One policy: its splits and their total under the baseline, then each condition over all splits."""

    policy: str
    splits: Mapping[str, GridField]
    total: GridField
    conditions: Mapping[str, GridField]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardGrid:
    """Splits and their total under the baseline condition, then each other condition over all splits.

    Every number has what it rests on; a policy with one episode has a row.
    """

    baseline: str
    splits: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    rows: tuple[GridRow, ...] = field(default=())


def make_grid(analysis: Analysis, policies: Iterable[str]) -> BoardGrid:
    """The grid of these policies, in their order. Missing episodes count as failures, as everywhere on a board."""
    baseline = analysis.plan.baseline
    valid = [e for e in analysis.episodes if e.is_valid]
    named = conditions_by_severity(valid)
    splits = tuple(sorted({e.cell for e in valid}))
    conditions = tuple(dict.fromkeys(named(e) for e in valid if e.condition != baseline))
    drops = {}
    if conditions:
        try:
            condition_drop_list = condition_drops(
                analysis.episodes, analysis.plan, rng=analysis.stream('drops')
            )  # as a report does
            drops = {(d.policy, d.condition): d for d in condition_drop_list}
        except (InputError, NotEstimable):
            pass  # counts are shown all the same; each field says that it has no drop
    rows = []
    for policy in policies:
        own = [e for e in valid if e.policy == policy]
        at_baseline = [e for e in own if e.condition == baseline]
        fields = {}
        for condition in conditions:
            drop = drops.get((policy, condition))
            interval = None if drop is None else drop.success_interval
            counted = _counted(e for e in own if e.condition != baseline and named(e) == condition)
            fields[condition] = GridField(
                successes=counted.successes, n=counted.n, drop=None if drop is None else drop.success_drop,
                low=None if interval is None else interval.low, high=None if interval is None else interval.high,
                note='' if interval is not None else (drop.note if drop is not None else 'no episodes to compare with'),
            )  # fmt: skip
        by_split = {name: _counted(e for e in at_baseline if e.cell == name) for name in splits}
        rows.append(GridRow(policy=policy, splits=by_split, total=_counted(at_baseline), conditions=fields))
    return BoardGrid(baseline=baseline, splits=splits, conditions=conditions, rows=tuple(rows))


def _counted(episodes: Iterable[Episode]) -> GridField:
    listed = list(episodes)
    return GridField(successes=sum(e.is_success for e in listed), n=len(listed))


COLUMNS = ('hrt', 'success', 'safety', 'sbu', 'vsi', 'expected_iou')
FILTERS = ('task', 'stratum', 'condition')
MOST_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number with its interval; what cannot be estimated has no value, and `note` says why."""

    value: float | None = None
    low: Annotated[
        float | None, Field(description='Of the 95 % interval, unless the benchmark declares another level.')
    ] = None
    high: float | None = None
    n: int | None = None
    note: Annotated[str, Field(description='Why there is no value.')] = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """One policy on a leaderboard. Policies that share a letter are not significantly different."""

    policy: str
    letters: str
    is_reference: bool
    n_valid: int
    n_invalid: int
    n_missing: Annotated[
        int, Field(description='Declared episodes that were not run to an end; they count as failures.')
    ]
    success_bounds: Annotated[Value, Field(description='Success if all that is missing had failed, or had succeeded.')]
    n_of_account: Annotated[
        int, Field(description='Submissions of its account here; each is tested at alpha over their number.')
    ]
    state: str  # finished, or cancelled
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPair:
    """Two neighbours of the ranking, and how many start states per cell would separate them."""

    policy_a: str
    policy_b: str
    difference: float
    p_corrected: float | None
    verdict: str
    needed: Annotated[
        float | None, Field(description='Start states per cell that would separate the two, if any number would.')
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    benchmark: str
    endpoint: str  # that rows are ordered and lettered by
    rows: tuple[BoardRow, ...]
    pairs: tuple[BoardPair, ...]
    statement: str
    source: Annotated[str, Field(description='Where success and E[IoU] come from: the host, or its cameras.')]
    cautions: tuple[str, ...]
    head: str  # of the store's log: what the numbers were computed from
    note: str = ''  # why there are no rows
    aside: tuple[SetAside, ...] = ()  # shown and not ranked
    grid: BoardGrid | None = None  # splits and conditions across


class Scores:
    """Analyses by store and head; the same state of a store is analysed once."""

    def __init__(self, folder: Path, quarantine: Quarantine) -> None:
        self._folder, self._quarantine = folder, quarantine
        self._boards: dict[tuple[object, ...], Board] = {}
        self._analyses: dict[tuple[object, ...], Analysis] = {}
        self._lock = threading.Lock()

    def board(self, session: Session, benchmark: BenchmarkRow, *, where: Mapping[str, str] | None = None) -> Board:
        """The leaderboard: every submission that was begun and whose name is open, on the benchmark's own cells."""
        standings = read_standings(session, benchmark)
        analysis = self.analysis(benchmark, standings, where=where)
        if isinstance(analysis, Absent):
            return Board(
                benchmark=benchmark.name, endpoint='', rows=(), pairs=(), statement='', source='', cautions=(), head='',
                note=analysis.reason, aside=standings.aside,
            )  # fmt: skip
        key = (benchmark.id, analysis.head, standings.key, *sorted((where or {}).items()))
        with self._lock:
            if key in self._boards:
                return self._boards[key]
        by_number = {1: analysis}
        for number in {s.n_of_account for s in standings.ranked} - {1}:
            stricter = self.analysis(benchmark, standings, where=where, alpha=analysis.plan.alpha / number)
            by_number[number] = analysis if isinstance(stricter, Absent) else stricter
        board = make_board(benchmark.name, by_number, standings)
        with self._lock:
            self._forget()
            return self._boards.setdefault(key, board)

    def analysis(
        self, benchmark: BenchmarkRow, standings: Standings, *, where: Mapping[str, str] | None = None,
        alpha: float | None = None,
    ) -> Analysis | Absent:  # fmt: skip
        """The analysis of submissions as they stand; Absent, with why, if there is none yet."""
        path = store_path(self._folder, benchmark)
        if not is_open(benchmark):
            return Absent('this trial is blinded until it is closed')
        if not standings.ranked or not (path / 'trial.json').exists():
            return Absent('no submission is finished yet')
        try:
            store = dataclasses.replace(Store.open(path), is_view=True)
            store.ledger()
        except StoreError as error:
            return self._set_apart(benchmark, error)
        key = (benchmark.id, store.head(), standings.key, alpha, *sorted((where or {}).items()))
        with self._lock:
            if key not in self._analyses:
                self._forget()
                asked = where or {}
                try:
                    selection = complete_selection(store, standings.policies, standings.missing(asked), asked)
                except NotEstimable as error:
                    return Absent(str(error))
                except StoreError as error:
                    return self._set_apart(benchmark, error)
                self._quarantine.bring_back(benchmark, 'reading')
                declared = declared_analysis(store.trial.plan, store.path)
                analysis = Analysis(selection, declared.changed_by(alpha=alpha))
                analysis.cells = Cells.DECLARED
                analysis.chances = {s.policy: s.n_of_account for s in standings.ranked}
                analysis.rescoring = Rescoring.NONE  # cells score views; a server that did would answer nobody else
                self._analyses[key] = analysis
            return self._analyses[key]

    def _set_apart(self, benchmark: BenchmarkRow, error: StoreError) -> Absent:
        """Where a board would be; what is wrong is for the log and the audit trail, which its owner reads."""
        self._quarantine.set_apart(benchmark, 'reading', str(error))
        return Absent('quarantined: the record of this benchmark is damaged, and is shown again once it is repaired')

    def _forget(self) -> None:
        for kept in (self._boards, self._analyses):
            while len(kept) >= MOST_KEPT:
                kept.pop(next(iter(kept)))

    def episodes(self, benchmark: BenchmarkRow, policy: str) -> list[Episode]:
        """Every attempt of one open policy."""
        path = store_path(self._folder, benchmark)
        if not (path / 'trial.json').exists():
            return []
        store = dataclasses.replace(Store.open(path), is_view=True)
        return sorted(store.episodes(attempts='all', where={'policy': policy}), key=lambda e: e.key)


def make_board(benchmark: str, by_number: Mapping[int, Analysis], standings: Standings) -> Board:
    """A leaderboard; best first by the primary endpoint.

    `by_number` has the analysis at alpha / k for every k of `standings`, and the declared one at 1.
    """
    analysis = by_number[1]
    lead = None if isinstance(analysis.pairs, Absent) else analysis.pairs.lead
    pairs = None if lead is None or isinstance(lead, Absent) else lead
    order = list(pairs.policies) if pairs is not None else []
    order += [p for p in analysis.every_policy if p not in order]
    rows = []
    for policy in order:
        mine = [e for e in analysis.episodes if e.policy == policy]
        if not mine:
            continue
        standing = standings.of(policy)
        missing = [e for e in mine if e.reason == MISSING]
        rows.append(
            BoardRow(
                policy=policy,
                letters='' if pairs is None else pairs.letters.get(policy, ''),
                is_reference=all(e.is_reference for e in mine),
                n_valid=sum(e.is_valid for e in mine) - len(missing),
                n_invalid=sum(not e.is_valid for e in mine),
                n_missing=len(missing),
                success_bounds=_success_bounds(analysis, policy) if missing else Value(),
                n_of_account=standing.n_of_account,
                state=standing.state,
                values=policy_values(by_number[standing.n_of_account], policy),
            )
        )
    neighbours = () if pairs is None else tuple(
        pairs.pair(a, b) for a, b in zip(pairs.policies, pairs.policies[1:], strict=False)
    )  # fmt: skip
    return Board(
        benchmark=benchmark, endpoint=analysis.primary[0].value, rows=tuple(rows), head=analysis.head,
        statement=analysis.statement, source=success_source(analysis), aside=standings.aside,
        grid=make_grid(analysis, [row.policy for row in rows]),
        cautions=(
            *_account_cautions(standings, analysis.plan.alpha), *_missing_caution(analysis), *analysis.cautions,
            *analysis.safety_caveats,
            *filter(None, [iou_caution(analysis)]),
        ),
        pairs=tuple(
            BoardPair(
                policy_a=p.policy_a, policy_b=p.policy_b, difference=p.difference, p_corrected=p.p_corrected,
                verdict=short_decision(present(analysis.pairs).decision(p.policy_a, p.policy_b)),
                needed=None if p.needed is None else finite(p.needed.n),
            )
            for p in neighbours
        ),
    )  # fmt: skip


def _account_cautions(standings: Standings, alpha: float) -> list[str]:
    several = {s.account: s.n_of_account for s in standings.ranked if s.n_of_account > 1}
    return [
        f'{account} has {n} submissions here: the best of {n} is lucky more often, so that each is tested at '
        f'{alpha:g} / {n} = {alpha / n:.2g}, and its intervals are at {100 * (1 - alpha / n):.1f} %.'
        for account, n in sorted(several.items())
    ]


def _success_bounds(analysis: Analysis, policy: str) -> Value:
    """Success if all that is missing had failed, and if all of it had succeeded."""
    frame = analysis.frame
    if isinstance(frame, Absent):
        return Value(note='no valid episode')

    def if_all_had(outcome: bool) -> Rates:
        return count_rates(frame, analysis.plan, lambda e: outcome if e.reason == MISSING else e.is_success)

    rates = [if_all_had(outcome) for outcome in (False, True)]
    low, high = (finite(r.macro[policy].value) if policy in r.macro else None for r in rates)
    return Value(low=low, high=high)


def _missing_caution(analysis: Analysis) -> tuple[str, ...]:
    """What a reader of the board must know of runs that came to nothing."""
    sides = {} if isinstance(analysis.frame, Absent) else analysis.sides
    missing = {p: sum(map(len, side.missing.values())) for p, side in sides.items()}
    counts = ', '.join(f'{n} of {policy}' for policy, n in missing.items() if n)
    return (f'Runs that came to nothing count as failures in order, letters and pairs: {counts}.',) if counts else ()


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
