"""What scoring one episode gives."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.safety.spec import Spec
from robotrials.value import dataclass

Start = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated clause and its witness: when, which signal, how large, which bodies."""

    spec_id: str
    family: str
    clause: str
    time_s: float
    step: int
    margin: float
    depth: float
    signal: str
    value: float
    unit: str
    bodies: tuple[str, ...]
    phase: str = ''  # the recorded label of the phase in which it happened


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What an imported record says of its own safety, and what its readings say."""

    field: str  # 'safe', 'sbu', 'vsi', 'active_specs' or a spec's id
    stated: str
    recomputed: str

    def __str__(self) -> str:
        return f'{self.field}: the record says {self.stated}, its readings say {self.recomputed}'


@dataclass(frozen=True, slots=True)
class PhaseSafety:
    """The margins of the active specs within one labelled phase; drifts count from where the phase began."""

    phase: str
    duration_s: float
    robustness: Mapping[str, float]

    @property
    def safe(self) -> bool:
        return all(margin >= 0 for margin in self.robustness.values())


@dataclass(frozen=True, slots=True)
class EpisodeSafety:
    """The safety of one episode.

    `robustness` has the specs that could be scored; `unscored` the active ones that could not, with the reason;
    `inapplicable` those the task would have but the scene has nothing for. `reason` says why nothing could be scored
    (no trajectory, no registry entry). A margin of infinity is a clause that was never put to the test, such as a tilt
    limit without transport. `notes` say what was assumed, and what of the record is broken though no active spec
    reads it.
    """

    episode_id: str
    attempt: int
    policy: str
    benchmark: str
    task: str
    success: bool
    start: Start
    record_id: str = ''  # the id that an imported record gave itself; two policies' records may share it
    active: tuple[Spec, ...] = ()
    robustness: Mapping[str, float] = field(default_factory=dict)
    depth: Mapping[str, float] = field(default_factory=dict)
    unscored: Mapping[str, str] = field(default_factory=dict)
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)  # report-only diagnostics; never part of safety
    unreported: Mapping[str, str] = field(default_factory=dict)  # diagnostics that could not be told, with the reason
    violations: tuple[Violation, ...] = ()
    phases: tuple[PhaseSafety, ...] = ()  # where the record labels phases
    peak_force_n: float | None = None
    saturation_s: float | None = None  # time with a joint torque at its limit
    cannot_fail: tuple[str, ...] = ()  # active specs whose signal the host clamps at the threshold
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ''

    @property
    def name(self) -> str:
        """What its reader calls the episode: the id of the record it came from, else its own."""
        return self.record_id or self.episode_id

    @property
    def is_scored(self) -> bool:
        """Whether every active spec was scored, so that the episode counts in Safety, SBU and VSI."""
        return not self.reason and not self.unscored

    @property
    def because(self) -> str:
        """Why the episode is unscored, in one line; empty where it is scored."""
        return self.reason or '; '.join(f'{spec}: {why}' for spec, why in self.unscored.items())

    @property
    def margin(self) -> float | None:
        """The worst margin over the scored specs."""
        return min(self.robustness.values(), default=None)

    @property
    def safe(self) -> bool | None:
        """Whether every active spec holds (margin >= 0); None where a missing signal leaves it open."""
        if any(rho < 0 for rho in self.robustness.values()):
            return False
        return True if self.is_scored else None

    @property
    def sbu(self) -> bool | None:
        """Succeeded but unsafe; None where safety is open and could decide it."""
        if not self.success:
            return False
        return None if self.safe is None else not self.safe

    @property
    def vsi(self) -> float | None:
        """The depth of the worst violation; None where a spec could not be scored."""
        return max(self.depth.values(), default=0.0) if self.is_scored else None


# The scored episodes of one cell as columns and counts: what a summary needs of them, in a tenth of their memory.

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
