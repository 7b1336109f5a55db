"""Data-source dependence: score against the distance of the training data to the test (Section 6, Appendix A.3).

A point is one policy, trained on demonstrations that begin a stated distance from the test's start states, and
evaluated on those start states. A high score at a small distance proves that a high score can be had without crossing
any gap. It is an existence result: no rate of anything but this training on this grid.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import DATASOURCE_FORMAT
from robotrials.stats import Interval, wilson
from robotrials.value import dataclass
from robotrials.verdict.analysis.contrast import Contrast
from robotrials.verdict.audit.outcome import InstanceOutcome, outcome_contrast
from robotrials.verdict.audit.run_score import read_result, write_result


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
    contrast: Contrast  # near minus far, tasks as cells

    @property
    def is_resolved(self) -> bool:
        p = self.contrast.p_value
        return p is not None and p <= 1 - self.contrast.level and self.contrast.estimate > 0


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
        runs = [
            [InstanceOutcome(p.task, str(k), x) for p in self.at(point.asked_m) for k, x in enumerate(p.outcomes)]
            for point in (near, far)
        ]
        pairs = [(a.score, b.score) for a, b in zip(*runs, strict=True)]
        return Fall(
            near=near, far=far, won_near_only=sum(a > b for a, b in pairs), won_far_only=sum(b > a for a, b in pairs),
            contrast=outcome_contrast(runs[0], runs[1], names=('near', 'far'), level=level),
        )  # fmt: skip


def write_datasource(diagnosis: DataSource, path: Path) -> Path:
    """The result as JSON, for a card and for anyone who checks it."""
    return write_result(DATASOURCE_FORMAT, diagnosis, path)


def read_datasource(path: Path | str) -> DataSource:
    return read_result(DATASOURCE_FORMAT, DataSource, Path(path))


# Appendix A.3, Table 9: task, scripted demonstrations, successes, evaluations on the SimplerEnv WidowX grid.
TABLE_NINE: tuple[tuple[str, int, int, int], ...] = (
    ('Stack', 120, 24, 24), ('Carrot', 120, 23, 24), ('Spoon', 120, 21, 24), ('Eggplant', 120, 23, 24),
)  # fmt: skip


# How close training starts lie to test starts: in metres and degrees, in images, and the share that is the same start.
# Two starts are as far apart as the object that differs most. Yaw counts modulo an object's own symmetry. Distances in
# images are told in units of the test's own spread, so that 1 is as far as test starts lie from each other.

FloatArray = NDArray[np.floating[Any]]
SAME_M = 1e-6
SAME_RAD = 1e-6
CHUNK_PAIRS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class StartStates:
    """Objects at the start of n episodes, in the same order in each: the target, the others, the goal."""

    names: tuple[str, ...]  # (k,)
    position_m: FloatArray  # (n, k, 3)
    yaw_rad: FloatArray  # (n, k)
    turns: tuple[int, ...]  # (k,) quarter turns that look the same: 4 for a cube, 1 for a cup, 0 where yaw says nothing

    def __post_init__(self) -> None:
        n, k = len(self.position_m), len(self.names)
        if self.position_m.shape != (n, k, 3) or self.yaw_rad.shape != (n, k) or len(self.turns) != k:
            raise InputError(
                f'{k} objects have positions {self.position_m.shape}, yaws {self.yaw_rad.shape} and {len(self.turns)} '
                f'symmetries, wanted ({n}, {k}, 3), ({n}, {k}) and {k}'
            )
        if any(t < 0 for t in self.turns):
            raise InputError(f'symmetries are {self.turns}, wanted >= 0')
        if not (np.isfinite(self.position_m).all() and np.isfinite(self.yaw_rad).all()):
            raise InputError('start states hold numbers that are not finite')

    @property
    def n(self) -> int:
        return len(self.position_m)


@dataclass(frozen=True, slots=True, eq=False)
class NearestStart:
    """For each test start the training start whose objects lie nearest, and how many are as near as a tolerance."""

    index: NDArray[np.int64]  # (n_test,)
    position_m: FloatArray  # (n_test,) the object that differs most
    yaw_rad: FloatArray  # (n_test,) of that same training start
    n_same: int  # test starts that are in the training set to the digit
    n_leaked: int  # test starts with a training start within both tolerances


def state_distance(train: StartStates, test: StartStates) -> tuple[FloatArray, FloatArray]:
    """Metres and radians between every test and every training start, both (n_test, n_train)."""
    if train.names != test.names or train.turns != test.turns:
        raise InputError(
            f'training starts have the objects {", ".join(train.names)}, test starts {", ".join(test.names)}; '
            'wanted the same in the same order'
        )
    metres = np.zeros((test.n, train.n))
    radians = np.zeros_like(metres)
    for k, turns in enumerate(test.turns):
        gap = test.position_m[:, None, k] - train.position_m[None, :, k]
        np.maximum(metres, np.linalg.norm(gap, axis=-1), out=metres)
        np.maximum(radians, yaw_distance(test.yaw_rad[:, None, k], train.yaw_rad[None, :, k], turns), out=radians)
    return metres, radians


def yaw_distance(a: FloatArray, b: FloatArray, turns: int) -> FloatArray:
    """The smallest turn between headings of an object that looks the same after each of `turns` parts of a circle."""
    if turns == 0:
        return np.zeros(np.broadcast(a, b).shape)
    period = 2 * math.pi / turns
    return np.asarray(np.abs((a - b + period / 2) % period - period / 2))


def nearest_start(
    train: StartStates, test: StartStates, *, tolerance_m: float = 0.005, tolerance_rad: float = math.radians(15)
) -> NearestStart:
    """The nearest training start by position (ties by yaw), and the leakage within both tolerances."""
    if train.n == 0 or test.n == 0:
        raise NotEstimable(f'{train.n} training and {test.n} test starts: a distance needs one of each')
    if tolerance_m < 0 or tolerance_rad < 0:
        raise InputError(f'tolerances are {tolerance_m} m and {tolerance_rad} rad, wanted >= 0')
    metres, radians = state_distance(train, test)
    order = np.lexsort((radians, metres), axis=-1)[:, 0]
    rows = np.arange(test.n)
    same = (metres <= SAME_M) & (radians <= SAME_RAD)
    leaked = (metres <= tolerance_m) & (radians <= tolerance_rad)
    return NearestStart(
        index=order.astype(np.int64),
        position_m=metres[rows, order],
        yaw_rad=radians[rows, order],
        n_same=int(same.any(axis=1).sum()),
        n_leaked=int(leaked.any(axis=1).sum()),
    )


def embed_pixels(images: NDArray[np.uint8]) -> FloatArray:
    """(n, H, W, 3) -> (n, 768): means over a 16 x 16 grid of the picture, 0 to 1. No model."""
    return _pooled(images.astype(np.float32) / np.float32(255), 16)


def embed_random(images: NDArray[np.uint8]) -> FloatArray:
    """(n, H, W, 3) -> (n, 1024): 64 fixed random 8 x 8 filters, rectified, averaged over a 4 x 4 grid. No training.

    Random convolutional features keep edges and colours in place, and need no weights from anywhere.
    """
    pixels = _grid(images.astype(np.float32) / np.float32(255), 8)  # (n, rows, columns, 192)
    centred = pixels - pixels.mean(axis=-1, keepdims=True)
    filters = np.random.default_rng(8).standard_normal((centred.shape[-1], 64)).astype(np.float32)
    return _pooled(np.maximum(centred @ (filters / math.sqrt(len(filters))), 0.0), 4)


EMBEDDINGS: Mapping[str, Callable[[NDArray[np.uint8]], FloatArray]] = {'pixels': embed_pixels, 'random': embed_random}


def nearest_image(train: FloatArray, test: FloatArray) -> FloatArray:
    """(n_test,) how far each embedded test image (n_test, d) is from the training one (n_train, d) most like it.

    The root mean square over the features, in units of the test's spread: the median distance of a test start to the
    nearest other one.
    """
    if len(train) == 0 or len(test) < 2:
        raise NotEstimable(f'{len(train)} training and {len(test)} test images; wanted at least 1 and 2')
    if train.shape[1:] != test.shape[1:]:
        raise InputError(f'embeddings have {train.shape[1:]} and {test.shape[1:]} features, wanted the same')
    among = _feature_distance(test, test)
    np.fill_diagonal(among, np.inf)
    spread = float(np.median(among.min(axis=1)))
    if spread == 0:
        raise NotEstimable('most test images have an equal among them, so the test has no spread to measure by')
    return np.asarray(_feature_distance(test, train).min(axis=1) / spread)


def _feature_distance(a: FloatArray, b: FloatArray) -> FloatArray:
    rows = max(1, CHUNK_PAIRS // max(1, b.size))
    parts = [np.sqrt(np.mean((a[i : i + rows, None] - b[None]) ** 2, axis=-1)) for i in range(0, len(a), rows)]
    return np.concatenate(parts)


def _grid(planes: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """(n, H, W, c) as whole side x side patches (n, H // side, W // side, side * side * c)."""
    n, height, width, channels = planes.shape
    if min(height, width) < side:
        raise InputError(f'images are {height} x {width}, wanted at least {side} x {side}')
    rows, columns = height // side, width // side
    cut = planes[:, : rows * side, : columns * side].reshape(n, rows, side, columns, side, channels)
    return cut.swapaxes(2, 3).reshape(n, rows, columns, side * side * channels)


def _pooled(planes: NDArray[np.float32], cells: int) -> FloatArray:
    """Means over a cells x cells grid, flattened; edges by the nearest whole pixel."""
    n, height, width, channels = planes.shape
    if min(height, width) < cells:
        raise InputError(f'images have {height} x {width} places, wanted at least {cells} x {cells}')
    edges = [np.linspace(0, size, cells + 1).astype(int) for size in (height, width)]
    over_rows = np.add.reduceat(planes, edges[0][:-1], axis=1) / np.diff(edges[0])[:, None, None]
    pooled = np.add.reduceat(over_rows, edges[1][:-1], axis=2) / np.diff(edges[1])[:, None]
    return np.asarray(pooled.reshape(n, cells * cells * channels))
