"""Training mixes: one task at a time, some together, all together (RADAR, Table 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import MIX_FORMAT
from robotrials.stats import Interval, exact_mcnemar, newcombe
from robotrials.verdict.audit.result import read_result, write_result

FORMAT = MIX_FORMAT
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

    def gain(self, first: str, second: str, task: str) -> tuple[int, int, float]:
        """Start states that only the first mix wins, only the second, and McNemar's two-sided exact p."""
        pairs = list(zip(self.find(first, task).outcomes, self.find(second, task).outcomes, strict=True))
        wins, losses = sum(a > b for a, b in pairs), sum(b > a for a, b in pairs)
        return wins, losses, exact_mcnemar(wins, losses).p_value


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


def write_mix(found: TrainingMix, path: Path) -> Path:
    return write_result(FORMAT, found, path)


def read_mix(path: Path | str) -> TrainingMix:
    return read_result(FORMAT, TrainingMix, Path(path))
