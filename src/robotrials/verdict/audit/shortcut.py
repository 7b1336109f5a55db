"""Shortcut solvability: what a deliberately small probe scores, beside what others reported (section 3, Tables 1, 2).

A pure function of recorded outcomes. It says that a score can be reached without a capability, never that a policy
which reaches it lacks the capability.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import SHORTCUT_FORMAT
from robotrials.stats.interval import FloatArray, check_open_unit
from robotrials.value import dataclass, read_table, without_nulls
from robotrials.verdict.audit.reported import (
    ProbeStanding,
    ReportedGap,
    ReportedScore,
    best_score,
    foundation_score,
    reported_gap,
)
from robotrials.verdict.audit.run_score import (
    RunOutcomes,
    RunScore,
    ScoreDrop,
    read_sealed,
    run_score,
    score_drop,
    sealed_json,
)
from robotrials.verdict.audit.topline import Protocol

# What choosing a checkpoint on the test set adds to its score.
# The best of several checkpoints scores higher than any of them deserves, even where all are the same. Two honest
# numbers stand beside it: what the choice alone would add if the checkpoints did not differ (their labels are
# exchanged within each start state), and the score of the same choice made on one half of the start states and counted
# on the other.

BATCH_ENTRIES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptimism:
    """Mean scores; `n_checkpoints` were compared on `n_starts` start states that all of them met."""

    best: float
    final: float
    cross_fitted: float  # chosen on half of the start states, counted on the other half; mean over random halves
    gain_by_chance: float  # how far the best stands above the mean of all, expected if they did not differ
    gain: float  # how far it does
    p_value: float  # the chance of such a gain if they did not differ
    n_checkpoints: int
    n_starts: int

    @property
    def over_final(self) -> float:
        """Best minus final: what Table 2 shows."""
        return self.best - self.final

    @property
    def estimate(self) -> float:
        """Best minus the cross-fitted score: how much of the best score is owed to the choice."""
        return self.best - self.cross_fitted


def selection_optimism(
    totals: FloatArray, sizes: FloatArray, tasks: Sequence[str], *, rng: np.random.Generator, n_resamples: int = 2_000
) -> SelectionOptimism:
    """From `totals` (checkpoints, starts), in training order, the last one final; `sizes` (starts,) are episodes each.

    Halves are drawn within tasks. Of equal checkpoints the latest is chosen, so that nothing is gained by a tie.
    """
    count, starts = totals.shape
    if count < 2 or starts < 2:
        raise InputError(f'{count} checkpoints on {starts} start states; wanted at least two of each to choose among')
    episodes = float(sizes.sum())
    codes = np.unique(np.asarray(tasks), return_inverse=True)[1]
    means = totals.sum(axis=1) / episodes
    gain = float(means.max() - means.mean())
    by_chance = _exchanged_gains(totals, episodes, rng, n_resamples)
    return SelectionOptimism(
        best=float(means.max()),
        final=float(means[-1]),
        cross_fitted=_cross_fitted(totals, sizes, codes, rng, n_resamples),
        gain_by_chance=float(by_chance.mean()),
        gain=gain,
        p_value=float((1 + (by_chance >= gain - 1e-12).sum()) / (1 + n_resamples)),
        n_checkpoints=count,
        n_starts=starts,
    )  # fmt: skip


def latest_best(means: FloatArray) -> int:
    """The place of the highest mean; of equal ones the last."""
    return int(len(means) - 1 - np.argmax(means[::-1] >= means.max() - 1e-12))


def _exchanged_gains(totals: FloatArray, episodes: float, rng: np.random.Generator, n_resamples: int) -> FloatArray:
    """Best minus mean with the checkpoints' labels exchanged within each start state, (n_resamples,)."""
    count, starts = totals.shape
    gains = []
    left = n_resamples
    while left:
        batch = min(left, max(1, BATCH_ENTRIES // totals.size))
        order = np.argsort(rng.random((batch, count, starts)), axis=1)
        means = np.take_along_axis(np.broadcast_to(totals, order.shape), order, axis=1).sum(axis=2) / episodes
        gains.append(means.max(axis=1) - means.mean(axis=1))
        left -= batch
    return np.concatenate(gains)


def _cross_fitted(
    totals: FloatArray, sizes: FloatArray, tasks: NDArray[np.int64], rng: np.random.Generator, n_resamples: int
) -> float:
    members = [np.flatnonzero(tasks == task) for task in range(int(tasks.max()) + 1)]
    scores = np.empty(n_resamples)
    for draw in range(n_resamples):
        first = np.zeros(totals.shape[1], dtype=bool)
        for ids in members:
            # an odd start goes to either half by chance, so that tasks of one start state are not all in one half
            half = (len(ids) + int(rng.integers(2))) // 2
            first[rng.permutation(ids)[:half]] = True
        scores[draw] = _swapped(totals, sizes, first)
    return float(scores.mean())


def _swapped(totals: FloatArray, sizes: FloatArray, first: NDArray[np.bool_]) -> float:
    """The score of choosing on either half and counting on the other."""
    if first.all() or not first.any():
        first = np.arange(len(first)) % 2 == 0
    counted = 0.0
    for chosen_on, counted_on in ((first, ~first), (~first, first)):
        means = totals[:, chosen_on].sum(axis=1) / sizes[chosen_on].sum()
        counted += float(totals[latest_best(means), counted_on].sum())
    return counted / float(sizes.sum())


# How a probe's training settings were chosen: by the loss on held-out demonstrations, never by a score on the test.


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSetting:
    """One training of a sweep, and the loss of its last checkpoint on demonstrations that were held out."""

    learning_rate: float
    augmentation: float
    steps: int
    validation_loss: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.validation_loss):
            raise InputError(f'validation_loss is {self.validation_loss}, wanted a finite loss to compare settings by')

    def __str__(self) -> str:
        return f'learning rate {self.learning_rate:g}, augmentation {self.augmentation:g}, {self.steps} steps'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSweep:
    """All trainings of a sweep, in the order they were run."""

    settings: tuple[SweepSetting, ...]

    def __post_init__(self) -> None:
        if len(self.settings) < 2:
            raise InputError(f'a sweep of {len(self.settings)} settings, wanted at least two to choose among')

    @property
    def chosen(self) -> SweepSetting:
        """The setting of the smallest validation loss; of equal ones the first."""
        return min(self.settings, key=lambda setting: setting.validation_loss)


BEST, FOUNDATION = 'best', 'foundation'
SHUFFLED = 'shuffled'
REMOVED: Mapping[str, str] = {
    'blind': 'images',
    'proprioception': 'images and task',
    'no_task': 'task',
    SHUFFLED: 'right task',
}


class InputNeed(enum.StrEnum):
    """Whether the probe's score needs an input."""

    NEEDED = 'needed'
    NOT_NEEDED = 'not needed'
    UNRESOLVED = 'unresolved'


class ShortcutVerdict(enum.StrEnum):
    """What the probe's best checkpoint shows about the benchmark's score."""

    NEAR_BEST = 'within the margin of the best reported score'
    NEAR_FOUNDATION = 'within the margin of the foundation policy or above it, and below the best reported score'
    BELOW = 'provably below the reported scores'
    UNRESOLVED = 'unresolved'
    NOTHING_REPORTED = 'no reported score was given'


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDrop:
    task: str
    drop: ScoreDrop
    need: InputNeed


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantScore:
    """A variant of the probe beside the full one at its final checkpoint, on the same start states."""

    score: RunScore
    removes: str
    drop: ScoreDrop
    need: InputNeed
    tasks: tuple[TaskDrop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """What the probe is, and the demonstrations it saw; None and '' where nobody said."""

    encoder: str = ''
    parameters: int | None = None
    task_input: str = ''  # 'id', 'text' or 'none'
    demonstrations: int | None = None
    mid_motion: int | None = None  # demonstrations that begin in mid-motion
    digest: str = ''  # of the demonstrations
    sweep: ProbeSweep | None = None  # how its training settings were chosen; None: they were declared

    @property
    def has_language_encoder(self) -> bool:
        return self.task_input == 'text'


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """The whole diagnosis. Scores are means in 0..max_score; counts are kept."""

    title: str
    host: str = ''  # where it was run; '' where nobody said
    benchmark: str = ''
    max_score: int
    level: float
    alpha: float
    margin: float  # of a mean score: how near counts as reaching, and how small a drop as none
    checkpoints: tuple[RunScore, ...]  # in training order; the last is final
    best: str  # name of the best complete checkpoint
    variants: tuple[VariantScore, ...] = ()
    gaps: tuple[ReportedGap, ...] = ()
    reported: tuple[ReportedScore, ...] = ()
    optimism: SelectionOptimism | None = None  # None: one checkpoint, so that nothing was chosen
    probe: ProbeFacts = dataclasses.field(default_factory=ProbeFacts)
    deviations: tuple[str, ...] = ()  # where the run left the benchmark's official protocol
    not_run: tuple[str, ...] = ()  # variants that could not be run, and why
    format: str = SHORTCUT_FORMAT

    @property
    def best_checkpoint(self) -> RunScore:
        return next(c for c in self.checkpoints if c.name == self.best)

    @property
    def final_checkpoint(self) -> RunScore:
        return self.checkpoints[-1]

    def gap(self, role: str, checkpoint: str) -> ReportedGap | None:
        """The gap to the foundation policy or the best reported score, of one checkpoint."""
        return next((g for g in self.gaps if g.role == role and g.checkpoint == checkpoint), None)

    @property
    def verdict(self) -> ShortcutVerdict:
        """By the best checkpoint, as the benchmark's rules allow every submission to be chosen."""
        return self.verdict_of(self.best)

    def verdict_of(self, checkpoint: str) -> ShortcutVerdict:
        """Near means that the interval of the gap rules out the margin: a few episodes are near nothing."""
        best, foundation = self.gap(BEST, checkpoint), self.gap(FOUNDATION, checkpoint)
        known = [g for g in (best, foundation) if g is not None]
        if not known:
            return ShortcutVerdict.NOTHING_REPORTED
        if best is not None and self._is_near(best):
            return ShortcutVerdict.NEAR_BEST
        is_below_best = best is not None and best.standing is ProbeStanding.BELOW
        if is_below_best and foundation is not None and self._is_near(foundation):
            return ShortcutVerdict.NEAR_FOUNDATION
        if all(g.standing is ProbeStanding.BELOW for g in known):
            return ShortcutVerdict.BELOW
        return ShortcutVerdict.UNRESOLVED

    def _is_near(self, gap: ReportedGap) -> bool:
        return gap.interval is not None and gap.interval.high < self.margin * self.max_score

    def as_json(self) -> str:
        """Everything, with the verdict in words, so that a card or a page needs nothing else."""
        return sealed_json({**dataclasses.asdict(self), 'verdict': self.verdict.value})


def read_shortcut(path: Path | str) -> Shortcut:
    """A diagnosis back from the file that `robotrials audit shortcut` wrote."""
    source = Path(path)
    wanted = 'wanted the shortcut.json that `robotrials audit shortcut` writes'
    document = read_sealed(source, {'format': SHORTCUT_FORMAT}, wanted=wanted)
    said = document.pop('verdict', None)
    diagnosis = read_table(Shortcut, without_nulls(document), where=str(source))
    if not diagnosis.checkpoints or diagnosis.best not in {c.name for c in diagnosis.checkpoints}:
        raise InputError(f'{source}: best is {diagnosis.best!r}, which is none of its checkpoints')
    if said != diagnosis.verdict.value:
        raise InputError(f'{source}: its verdict is {said!r}, and its numbers say {diagnosis.verdict.value!r}')
    return diagnosis


def shortcut(
    checkpoints: Sequence[RunOutcomes],
    variants: Sequence[RunOutcomes] = (),
    *,
    planned: Iterable[tuple[str, str]] = (),
    reported: Sequence[ReportedScore] = (),
    official: Protocol | None = None,
    max_score: int = 1,
    margin: float = 0.05,
    alpha: float = 0.05,
    level: float = 0.95,
    rng: np.random.Generator,
    n_resamples: int = 2_000,
    title: str = '',
    host: str = '',
    benchmark: str = '',
    probe: ProbeFacts | None = None,
    deviations: Sequence[str] = (),
    not_run: Sequence[str] = (),
) -> Shortcut:
    """Score a probe's checkpoints (in training order) and variants (under the names of REMOVED) from their outcomes.

    `planned`: every instance (task, sample) that was to be run. `official`: the protocol that reported scores are on. A
    run that lacks an instance which was planned, or which another run has, is shown, and is neither the best nor
    compared; if that leaves no checkpoint, the diagnosis is not estimable.
    """
    if not checkpoints:
        raise NotEstimable('no checkpoint was evaluated')
    check_open_unit('margin', margin)
    _check_names(checkpoints, variants)
    every = frozenset(key for run in (*checkpoints, *variants) for key in run.by_instance()) | frozenset(planned)
    scores = tuple(run_score(run, every=every, max_score=max_score, level=level) for run in checkpoints)
    whole = [i for i, score in enumerate(scores) if not score.missing]
    if not whole:
        raise NotEstimable(
            f'no checkpoint has a valid episode of each of the {len(every)} instances; the record says why the '
            'others came to nothing: mend that, and run it again in a new folder'
        )
    best = scores[whole[latest_best(np.array([scores[i].mean for i in whole]))]]
    final = scores[-1]
    pairs = ((FOUNDATION, foundation_score(reported)), (BEST, best_score(reported, max_score)))
    gaps = [
        reported_gap(row, score, role=role, official=official, alpha=alpha, level=level)
        for role, row in pairs
        if row is not None
        for score in {s.name: s for s in (best, final)}.values()
        if not score.missing
    ]
    return Shortcut(
        title=title, host=host, benchmark=benchmark, max_score=max_score, level=level, alpha=alpha, margin=margin,
        checkpoints=scores, best=best.name,
        variants=tuple(_variant(checkpoints[-1], final, v, every, margin, alpha, level) for v in variants),
        gaps=tuple(gaps), reported=tuple(reported),
        optimism=None if final.missing else _optimism([checkpoints[i] for i in whole], rng, n_resamples),
        probe=probe or ProbeFacts(), deviations=tuple(deviations), not_run=tuple(not_run),
    )  # fmt: skip


def _check_names(checkpoints: Sequence[RunOutcomes], variants: Sequence[RunOutcomes]) -> None:
    names = [run.name for run in (*checkpoints, *variants)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InputError(f'two runs are called {twice!r}')
    unknown = next((v.name for v in variants if v.name not in REMOVED), None)
    if unknown is not None:
        raise InputError(f'no variant is called {unknown!r}; known: {", ".join(REMOVED)}')
    steps = [c.step for c in checkpoints if c.step is not None]
    if steps != sorted(set(steps)):
        raise InputError(f'checkpoints must come in training order, found steps {steps}')


def _variant(
    full: RunOutcomes, full_score: RunScore, variant: RunOutcomes, every: frozenset[tuple[str, str]], margin: float,
    alpha: float, level: float,
) -> VariantScore:  # fmt: skip
    most = full_score.max_score
    score = run_score(variant, every=every, max_score=most, level=level)
    drop = score_drop(full, variant, max_score=most, level=level, margin=margin)
    tasks = []
    for count in full_score.tasks:
        if any(t.task == count.task for t in score.tasks):
            own = score_drop(full, variant, max_score=most, level=level, margin=margin, task=count.task)
            alone = run_score(_of_task(full, count.task), every=frozenset(), max_score=most, level=level)
            asked = {key for key in every if key[0] == count.task}
            is_asked = asked <= full.by_instance().keys() & variant.by_instance().keys()
            need = _need(own, alone, margin, alpha) if is_asked else InputNeed.UNRESOLVED
            tasks.append(TaskDrop(task=count.task, drop=own, need=need))
    is_whole = not (score.missing or full_score.missing)
    need = _need(drop, full_score, margin, alpha) if is_whole else InputNeed.UNRESOLVED
    return VariantScore(score=score, removes=REMOVED[variant.name], drop=drop, need=need, tasks=tuple(tasks))


def _of_task(run: RunOutcomes, task: str) -> RunOutcomes:
    return dataclasses.replace(run, outcomes=tuple(o for o in run.outcomes if o.task == task))


def _need(drop: ScoreDrop, full: RunScore, margin: float, alpha: float) -> InputNeed:
    """A drop above 0 shows a need; one below the margin shows none, if the full probe is high enough to fall so far."""
    if drop.p_value is not None and drop.p_value <= alpha and drop.difference > 0:
        return InputNeed.NEEDED
    is_small = drop.p_margin is not None and drop.p_margin <= alpha
    return InputNeed.NOT_NEEDED if is_small and full.interval.low > margin * full.max_score else InputNeed.UNRESOLVED


def _optimism(runs: Sequence[RunOutcomes], rng: np.random.Generator, n_resamples: int) -> SelectionOptimism | None:
    if len(runs) < 2:
        return None
    tables = [run.by_instance() for run in runs]
    starts: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, outcome in sorted(tables[0].items()):
        starts.setdefault((outcome.task, outcome.start or outcome.sample), []).append(key)
    if len(starts) < 2:
        return None
    totals = np.array([[sum(t[k].score for k in keys) for keys in starts.values()] for t in tables], dtype=np.float64)
    sizes = np.array([len(keys) for keys in starts.values()], dtype=np.float64)
    return selection_optimism(totals, sizes, [task for task, _ in starts], rng=rng, n_resamples=n_resamples)
