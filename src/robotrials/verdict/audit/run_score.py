"""One run of a checkpoint or variant over a benchmark's instances: counts, mean and intervals."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import MIX_FORMAT
from robotrials.record.folder import write_durably
from robotrials.stats import Interval, newcombe, wilson
from robotrials.value import dataclass, read_table, without_nulls
from robotrials.verdict.audit.outcome import InstanceOutcome, by_key, outcome_contrast

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """What one policy did: a name, its training step if it is a checkpoint, and an outcome an instance."""

    name: str
    outcomes: tuple[InstanceOutcome, ...]
    step: int | None = None

    def by_instance(self) -> dict[Key, InstanceOutcome]:
        return by_key(self.outcomes, self.name)


@dataclass(frozen=True, slots=True)
class TaskCount:
    """The total score of one task over `n` episodes."""

    task: str
    total: int
    n: int

    def __post_init__(self) -> None:
        if self.n < 1 or self.total < 0:
            raise InputError(f'task {self.task}: {self.total} in {self.n} episodes cannot be')


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """A total over `n` episodes with two intervals of the mean: over start states, and over tasks like these."""

    name: str
    total: int
    n: int
    max_score: int
    interval: Interval  # Wilson for success; for other scores by the spread of start states
    tasks: tuple[TaskCount, ...]
    step: int | None = None
    task_interval: Interval | None = None  # None for one task
    missing: int = 0  # instances that were planned, or that another run has: never the best, never compared

    def __post_init__(self) -> None:
        if self.n < 1 or self.missing < 0 or not 0 <= self.total <= self.n * self.max_score:
            raise InputError(f'{self.name}: {self.total} in {self.n} episodes out of {self.max_score} cannot be')

    @property
    def mean(self) -> float:
        return self.total / self.n


@dataclass(frozen=True, slots=True)
class ScoreDrop:
    """The contrast of a reference run and another, in points of the score; no interval where there is no test."""

    difference: float
    interval: Interval | None
    p_value: float | None
    n: int  # episodes of either run
    withheld: str = ''
    p_margin: float | None = None  # one-sided, of "the other loses the margin or more": small says that it does not
    test: str = ''


def run_score(run: RunOutcomes, *, every: frozenset[Key], max_score: int, level: float) -> RunScore:
    """Count one run; `every` is what all runs together met."""
    outcomes = run.by_instance()
    if not outcomes:
        raise NotEstimable(f'{run.name}: no valid episodes')
    above = next((o for o in outcomes.values() if o.score > max_score), None)
    if above is not None:
        raise InputError(f'{run.name}: task {above.task}, {above.sample} scored {above.score}, more than {max_score}')
    names = sorted({o.task for o in outcomes.values()})
    scores = {name: [o.score for o in outcomes.values() if o.task == name] for name in names}
    tasks = tuple(TaskCount(name, sum(values), len(values)) for name, values in scores.items())
    total, n = sum(t.total for t in tasks), len(outcomes)
    interval = (
        wilson(total, n, level) if max_score == 1 else _spread_interval(list(outcomes.values()), max_score, level)
    )
    return RunScore(
        name=run.name, step=run.step, total=total, n=n, max_score=max_score, interval=interval, tasks=tasks,
        task_interval=_over_tasks(tasks, interval, max_score, level), missing=len(every - outcomes.keys()),
    )  # fmt: skip


def _spread_interval(outcomes: Sequence[InstanceOutcome], max_score: int, level: float) -> Interval:
    """Of a mean score: t over start states, never narrower than one full score more or less in n would make it."""
    starts: dict[str, list[int]] = {}
    for o in outcomes:
        starts.setdefault(o.start or f'{o.task} {o.sample}', []).append(o.score)
    mean = math.fsum(o.score for o in outcomes) / len(outcomes)
    reach = max(_t_reach([math.fsum(v) / len(v) for v in starts.values()], level), max_score / len(outcomes))
    return Interval(max(0.0, mean - reach), min(float(max_score), mean + reach))


def _over_tasks(tasks: Sequence[TaskCount], plain: Interval, max_score: int, level: float) -> Interval | None:
    """For tasks drawn like these: t over their means, and never narrower than the plain interval."""
    if len(tasks) < 2:
        return None
    means = [t.total / t.n for t in tasks]
    centre, reach = math.fsum(means) / len(means), _t_reach(means, level)
    return Interval(
        max(0.0, min(centre - reach, plain.low)), min(float(max_score), max(centre + reach, plain.high))
    )  # fmt: skip


def _t_reach(values: Sequence[float], level: float) -> float:
    from robotrials.stats.special import stdtrit

    if len(values) < 2:
        return math.inf
    return float(stdtrit(len(values) - 1, (1 + level) / 2)) * statistics.stdev(values) / math.sqrt(len(values))


def score_drop(
    reference: RunOutcomes, other: RunOutcomes, *, max_score: int, level: float, margin: float, task: str | None = None
) -> ScoreDrop:
    """Reference minus other by their contrast, tasks as cells; `margin` is a share of the full score."""
    runs = [[o for o in run.by_instance().values() if task in (None, o.task)] for run in (reference, other)]
    if not {(o.task, o.sample) for o in runs[0]} & {(o.task, o.sample) for o in runs[1]}:
        raise NotEstimable(f'{reference.name} and {other.name} share no instance{f" of {task}" if task else ""}')
    names = other.name, reference.name
    effect = outcome_contrast(runs[1], runs[0], names=names, level=level, max_score=max_score).at_margin(margin)
    drop = effect.seen_from(reference.name)
    return ScoreDrop(
        max_score * drop.estimate,
        None if drop.interval is None else drop.interval.scaled(max_score),
        drop.p_value,
        sum(drop.n_episodes) // 2,
        drop.withheld,
        effect.p_margin,
        drop.test,
    )


# A diagnostic's value as a JSON file that says what it is, and back.

T = TypeVar('T')


def write_result(form: str, result: Any, path: Path) -> Path:
    """A diagnostic's value as JSON that says what it is. Infinite numbers are refused: JSON has none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(path, sealed_json({'format': form, 'version': 1, **asdict(result)}))


def sealed_json(content: Mapping[str, Any]) -> str:
    """JSON with a digest of the rest, so that a number which was changed by hand shows. It is no signature."""
    return json.dumps({**content, 'sha256': _digest(content)}, indent=1, allow_nan=False) + '\n'


def read_sealed(path: Path, marks: Mapping[str, Any], *, wanted: str) -> dict[str, Any]:
    """What `sealed_json` wrote, without its digest; InputError if it has other `marks`, or was changed."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f'{path}: cannot be read ({error}); {wanted}') from error
    stated = {key: content.get(key) for key in marks} if isinstance(content, dict) else type(content).__name__
    if not isinstance(content, dict) or stated != marks:
        raise InputError(f'{path}: {stated!r} is there; {wanted}')
    if 'sha256' in content and content.pop('sha256') != _digest(content):
        raise InputError(f'{path}: was changed after it was written; the same audit in its folder writes it anew')
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_whole(path: Path, text: str) -> Path:
    """A file that appears whole or not at all."""
    write_durably(path, text)
    return path


def read_result(form: str, kind: type[T], path: Path) -> T:
    """A diagnostic's value from its JSON; another file is an error that says what was found."""
    content = read_sealed(path, {'format': form, 'version': 1}, wanted=f'wanted {form} of version 1')
    return read_table(
        kind, without_nulls({k: v for k, v in content.items() if k not in ('format', 'version')}), where=str(path)
    )


# Training mixes: one task at a time, some together, all together (RADAR, Table 2).

INDEPENDENT, ALL = 'independent', 'all'


@dataclass(frozen=True, slots=True, kw_only=True)
class MixScore:
    """One mix on one task: an outcome of 0 or 1 for each of the shared start states."""

    mix: str
    task: str
    trained_on: tuple[str, ...]
    outcomes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.outcomes or set(self.outcomes) - {0, 1}:
            raise NotEstimable(f'mix {self.mix}, task {self.task}: wanted outcomes of 0 or 1, found {self.outcomes!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMix:
    host: str
    learner: str
    scores: tuple[MixScore, ...]

    def __post_init__(self) -> None:
        keys = [(s.mix, s.task) for s in self.scores]
        if len(set(keys)) < len(keys) or len(keys) != len(self.names) * len(self.tasks):
            raise InputError('every mix wants every task exactly once')

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.mix for s in self.scores))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.task for s in self.scores))

    def find(self, mix: str, task: str) -> MixScore:
        return next(s for s in self.scores if (s.mix, s.task) == (mix, task))

    def score(self, mix: str, task: str) -> tuple[int, int]:
        """Successes and start states."""
        outcomes = self.find(mix, task).outcomes
        return sum(outcomes), len(outcomes)


def mixes(tasks: Sequence[str], blocks: Sequence[str]) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Mix -> task tested -> tasks trained on: independent, those of `blocks` together, and all."""
    for task in blocks:
        if task not in tasks:
            raise InputError(f'blocks name {task!r}, which is not among the tasks {", ".join(tasks)}')
    whole = tuple(tasks)
    made: dict[str, Mapping[str, tuple[str, ...]]] = {INDEPENDENT: {task: (task,) for task in tasks}}
    if blocks and set(blocks) != set(tasks):
        made['blocks'] = dict.fromkeys(tasks, tuple(blocks))
    return {**made, ALL: dict.fromkeys(tasks, whole)}


@dataclass(frozen=True, slots=True)
class PublishedMix:
    """A row of RADAR's Table 2: successes, trials and mean IoU of successes (None without any) for each split."""

    name: str
    splits: tuple[tuple[int, int, float | None], ...]
    expected_iou: float  # as printed

    @property
    def recomputed_iou(self) -> float:
        """E[IoU]: the mean over splits of the success rate times the mean IoU of successes."""
        return sum(x / n * (iou or 0.0) for x, n, iou in self.splits) / len(self.splits)

    @property
    def total(self) -> tuple[int, int]:
        return sum(x for x, _, _ in self.splits), sum(n for _, n, _ in self.splits)

    def behind(self, other: PublishedMix) -> Interval:
        """How far its total stands behind another's: Newcombe's interval."""
        return newcombe(*other.total, *self.total)


RADAR_SPLITS = ('SingleBlock', 'TwoBlock', 'ThreeBlock', 'Spatial')
RADAR_TABLE_TWO = (
    PublishedMix('Independent', ((4, 4, 0.5216), (4, 10, 0.4608), (6, 10, 0.4816), (3, 8, 0.1261)), 0.2605),
    PublishedMix('Mix Blocks', ((3, 4, 0.6240), (3, 10, 0.4378), (4, 10, 0.5334), (0, 8, None)), 0.2032),
    PublishedMix('Mix ALL', ((4, 4, 0.6186), (4, 10, 0.5711), (2, 10, 0.4056), (2, 8, 0.5655)), 0.2674),
)


def write_mix(diagnosis: TrainingMix, path: Path) -> Path:
    return write_result(MIX_FORMAT, diagnosis, path)


def read_mix(path: Path | str) -> TrainingMix:
    return read_result(MIX_FORMAT, TrainingMix, Path(path))
