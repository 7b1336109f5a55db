"""Data-source dependence: score against the distance of the training data to the test (Section 6, Appendix A.3).

A point is one policy, trained on demonstrations that begin a stated distance from the test's start states, and
evaluated on those start states. A high score at a small distance proves that a high score can be had without crossing
any gap. It is an existence result: no rate of anything but this training on this grid.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import DATASOURCE_FORMAT
from robotrials.stats import Interval, exact_mcnemar, newcombe, wilson
from robotrials.verdict.audit.result import read_result, write_result

FORMAT = DATASOURCE_FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePoint:
    """One trained policy: where its data began, and how each test start ended. Tuples have one entry per test start."""

    task: str
    asked_m: float  # the displacement of training starts from test starts
    n_demonstrations: int
    n_tried: int  # expert episodes run to get them
    outcomes: tuple[int, ...]  # 1 where the policy succeeded
    nearest_m: tuple[float, ...]
    nearest_deg: tuple[float, ...]
    images: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # embedding -> over the spread
    n_same: int
    n_leaked: int
    parameters: int | None = None  # of the policy, where it has any

    def __post_init__(self) -> None:
        n = len(self.outcomes)
        if not n:
            raise NotEstimable(f'task {self.task} at {self.asked_m} m: no valid episode; nothing to score')
        lengths = {len(self.nearest_m), len(self.nearest_deg), *(len(v) for v in self.images.values())}
        if lengths != {n} or set(self.outcomes) - {0, 1}:
            raise InputError(f'task {self.task} at {self.asked_m} m: wanted {n} distances and outcomes of 0 or 1')
        if not (0 <= self.n_same <= self.n_leaked <= n and 0 < self.n_demonstrations <= self.n_tried):
            raise InputError(f'task {self.task} at {self.asked_m} m: counts that cannot be')

    @property
    def successes(self) -> int:
        return sum(self.outcomes)

    @property
    def n(self) -> int:
        return len(self.outcomes)

    @property
    def interval(self) -> Interval:
        return wilson(self.successes, self.n)

    @property
    def median_m(self) -> float:
        """The measured distance: half of the test starts have a training start nearer than this."""
        return statistics.median(self.nearest_m)

    @property
    def median_deg(self) -> float:
        return statistics.median(self.nearest_deg)

    def median_image(self, embedding: str) -> float:
        return statistics.median(self.images[embedding])


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProtocol:
    """How the points were made; the defaults are those of Appendix A.3."""

    host: str
    learner: str
    seed: int
    grid: int = 24
    demonstrations_per_start: int = 5
    jitter_m: float = 0.0025
    turn_deg: float = 15.0
    padding_steps: int = 10
    chunk_length: int = 5
    execute: int = 5
    tolerance_m: float = 0.005
    tolerance_deg: float = 15.0
    repeats: int = 1  # of every test start; a start succeeded if its first repeat did


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPoint:
    """All tasks at one asked distance."""

    asked_m: float
    median_m: float
    n_demonstrations: int
    successes: int
    n: int
    n_same: int
    n_leaked: int
    level: float = 0.95

    @property
    def rate(self) -> float:
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        """Wilson: of this training on such starts, not of other trainings."""
        return wilson(self.successes, self.n, self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """The nearest data against the farthest, on the same test starts."""

    near: PooledPoint
    far: PooledPoint
    won_near_only: int
    won_far_only: int
    interval: Interval  # near minus far, Newcombe: wider than the pairing would allow
    p_value: float  # exact McNemar, one-sided: near is better

    @property
    def estimate(self) -> float:
        return self.near.rate - self.far.rate

    @property
    def is_resolved(self) -> bool:
        return self.p_value < 0.05 and self.interval.low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """The diagnostic's result: points of one protocol over tasks and distances."""

    protocol: SourceProtocol
    points: tuple[SourcePoint, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise NotEstimable('a data-source diagnostic without points')
        seen = [(p.task, p.asked_m) for p in self.points]
        if len(set(seen)) < len(seen):
            raise InputError('a task has two points at one distance; wanted one')
        if len(seen) != len(self.tasks) * len(self.distances_m):
            raise InputError('not every task has a point at every distance; a pooled row would mix tasks')

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.task for p in self.points))

    @property
    def distances_m(self) -> tuple[float, ...]:
        return tuple(sorted({p.asked_m for p in self.points}))

    def at(self, asked_m: float) -> tuple[SourcePoint, ...]:
        return tuple(p for p in self.points if p.asked_m == asked_m)

    def pooled(self, asked_m: float, *, level: float = 0.95) -> PooledPoint:
        points = self.at(asked_m)
        return PooledPoint(
            asked_m=asked_m,
            median_m=statistics.median(m for p in points for m in p.nearest_m),
            n_demonstrations=sum(p.n_demonstrations for p in points),
            successes=sum(p.successes for p in points),
            n=sum(p.n for p in points),
            n_same=sum(p.n_same for p in points),
            n_leaked=sum(p.n_leaked for p in points),
            level=level,
        )

    def curve(self, *, level: float = 0.95) -> tuple[PooledPoint, ...]:
        """One row per asked distance, in the order of the measured one."""
        return tuple(sorted((self.pooled(d, level=level) for d in self.distances_m), key=lambda p: p.median_m))

    def fall(self, *, level: float = 0.95) -> Fall:
        """Nearest against farthest by measured distance, start by start."""
        curve = self.curve(level=level)
        if len(curve) < 2:
            raise NotEstimable('one distance alone shows no fall; ask for two or more')
        near, far = curve[0], curve[-1]
        pairs = [
            (a, b)
            for p, q in zip(self.at(near.asked_m), self.at(far.asked_m), strict=True)
            for a, b in zip(p.outcomes, q.outcomes, strict=True)
        ]
        near_only, far_only = sum(a > b for a, b in pairs), sum(b > a for a, b in pairs)
        return Fall(
            near=near,
            far=far,
            won_near_only=near_only,
            won_far_only=far_only,
            interval=newcombe(near.successes, near.n, far.successes, far.n, level),
            p_value=exact_mcnemar(near_only, far_only, alternative='greater').p_value,
        )


def write_datasource(found: DataSource, path: Path) -> Path:
    """The result as JSON, for a card and for anyone who checks it."""
    return write_result(FORMAT, found, path)


def read_datasource(path: Path | str) -> DataSource:
    return read_result(FORMAT, DataSource, Path(path))


# Appendix A.3, Table 9: task, scripted demonstrations, successes, evaluations on the SimplerEnv WidowX grid.
TABLE_NINE: tuple[tuple[str, int, int, int], ...] = (
    ('Stack', 120, 24, 24), ('Carrot', 120, 23, 24), ('Spoon', 120, 21, 24), ('Eggplant', 120, 23, 24),
)  # fmt: skip
