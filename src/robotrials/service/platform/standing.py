"""How submissions stand on a leaderboard: each on the benchmark's own cells, with every one of its account beside it.

What a submission did not run, it has failed: otherwise whoever cancels when losing, or leaves a hard task out, would be
ranked by the rest, and would shrink the cells on which others are compared. And whoever submits k times has k chances
to be lucky: all of them stand on the board, and each is tested at alpha / k.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Episode, Outcome, Store
from robotrials.run.fault import FaultKind
from robotrials.service.platform.benchmark import is_open
from robotrials.service.platform.job import benchmark_slots
from robotrials.service.platform.queue import planning_order
from robotrials.service.platform.table import Benchmark, Job, Lease, Submission
from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.analysis.selection import Selection, ordered_episodes, select_store
from robotrials.verdict.robustness import conditions_by_severity

MISSING = f'{FaultKind.POLICY_WITHDRAWN.value}: it was not run to an end, which counts as a failure'


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
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
    ranked: tuple[Standing, ...] = ()
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

    def of(self, policy: str) -> Standing:
        return next(s for s in self.ranked if s.policy == policy)

    def missing(self, where: Mapping[str, str]) -> list[Episode]:
        """The missing episodes that match a filter."""
        return [e for s in self.ranked for e in s.missing if all(getattr(e, k) == v for k, v in where.items())]


def read_standings(session: Session, benchmark: Benchmark) -> Standings:
    """Every submission whose name may be shown; nothing of a trial before it is closed."""
    if not is_open(benchmark):
        return Standings()
    every = list(
        session.scalars(select(Submission).where(Submission.benchmark_id == benchmark.id).order_by(Submission.policy))
    )
    opened = [s for s in every if s.opened_at is not None]
    begun = set(
        session.scalars(
            select(Job.submission_id)
            .outerjoin(Lease, Lease.job_id == Job.id)  # one that a restored backup knows from the record has no lease
            .where(Job.benchmark_id == benchmark.id, (Lease.state != 'unclaimed') | (Job.state == 'done'))
            .distinct()
        )
    )
    ranked = [s for s in opened if s.id in begun and s.state != 'void']
    # Also those that are not over yet: who leaves what goes badly unfinished, and tries again, has tried twice.
    counts = Counter(s.user.name for s in every if s.id in begun and s.state != 'void')
    return Standings(
        ranked=tuple(
            Standing(
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
        select(Job.slot).where(Job.submission_id == submission.id, Job.state != 'done').order_by(Job.slot)
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
    n: int = 0
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ''  # why there is no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One policy: its splits and their total under the baseline, then each condition over all splits."""

    policy: str
    splits: Mapping[str, GridField]
    total: GridField
    conditions: Mapping[str, GridField]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardGrid:
    """Every number with what it rests on; a policy with one episode has a row."""

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
