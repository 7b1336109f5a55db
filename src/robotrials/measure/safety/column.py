"""The scored episodes of one cell as columns and counts: what a summary needs of them, in a tenth of their memory."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.safety.result import Disagreement, EpisodeSafety
from robotrials.measure.safety.spec import Spec

FloatArray = NDArray[np.float64]
Key = tuple[str, int]


def _numbers() -> array[float]:
    return array('d')


@dataclass(slots=True)
class SpecColumn:
    """One spec in the episodes it was scored in: which rows, and how deep it was violated."""

    rows: array[int] = field(default_factory=lambda: array('q'))
    depth: array[float] = field(default_factory=_numbers)
    n_violated: int = 0
    n_violated_in_success: int = 0
    n_clamped: int = 0  # episodes in which the host clamps its signal at the threshold

    def dense(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Depth of every row, 0 where it is not active, and where it is active, as 0 and 1."""
        depth, active = np.zeros(n_rows), np.zeros(n_rows)
        rows = np.asarray(self.rows)
        depth[rows], active[rows] = np.asarray(self.depth), 1.0
        return depth, active


@dataclass(slots=True)
class ScoreColumns:
    """Scored episodes in the order they were added, their numbers as columns; whatever has no order as counts."""

    keys: list[Key] = field(default_factory=list)
    vsi: array[float] = field(default_factory=_numbers)
    unsafe: array[float] = field(default_factory=_numbers)
    margin: array[float] = field(default_factory=_numbers)  # NaN where there is none
    force_n: array[float] = field(default_factory=_numbers)
    saturation_s: array[float] = field(default_factory=_numbers)
    specs: dict[str, Spec] = field(default_factory=dict)  # that are active in some episode
    columns: dict[str, SpecColumn] = field(default_factory=dict)
    endings: Counter[tuple[bool, bool | None]] = field(default_factory=Counter)  # success and safe
    axes_hit: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    reported_violated: Counter[str] = field(default_factory=Counter)
    inapplicable: Counter[str] = field(default_factory=Counter)
    disagreements: list[tuple[Key, Disagreement]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, score: EpisodeSafety) -> None:
        """Take in one scored episode."""
        key, severity = (score.episode_id, score.attempt), score.vsi
        assert severity is not None  # it is scored
        self._add_specs(score)
        self.keys.append(key)
        self.vsi.append(severity)
        self.unsafe.append(score.safe is False)
        for column, value in (
            (self.margin, score.margin), (self.force_n, score.peak_force_n), (self.saturation_s, score.saturation_s),
        ):  # fmt: skip
            column.append(math.nan if value is None else value)
        self.endings[score.success, score.safe] += 1
        self.reported.update(score.reported.keys())
        self.reported_violated.update(name for name, margin in score.reported.items() if margin < 0)
        self.inapplicable.update(score.inapplicable.keys())
        self.disagreements += [(key, item) for item in score.disagreements]

    def _add_specs(self, score: EpisodeSafety) -> None:
        row = len(self.keys)
        for name, margin in score.robustness.items():
            column = self.columns.setdefault(name, SpecColumn())
            column.rows.append(row)
            column.depth.append(score.depth.get(name, 0.0))
            column.n_violated += margin < 0
            column.n_violated_in_success += margin < 0 and score.success
            column.n_clamped += name in score.cannot_fail
        self.specs.update((spec.id, spec) for spec in score.active)
        self.axes_hit.update({spec.axis for spec in score.active if score.robustness[spec.id] < 0})

    def order(self) -> NDArray[np.int64]:
        """The rows by episode and attempt, so that the order in which they came has no effect."""
        return np.array(sorted(range(len(self)), key=self.keys.__getitem__), np.int64)
