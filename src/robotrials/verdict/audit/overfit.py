"""Creeping overfitting: what a policy loses on fresh samples and on changes that its training data held (Section 5).

A drop alone does not say "overfitting": a policy that never met a change may simply not generalise. So every change
comes with how often it and the official condition occur in the training data, and the word is used only where the
change is there about as often. A fresh sample has the official distribution by construction, so there a count is
enough, whatever it is: data that holds the official samples and not their like is sample overfitting.
drop = calibration - altered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import OVERFIT_FORMAT
from robotrials.stats import Interval
from robotrials.verdict.audit.drop import Drop, drop_of_outcomes
from robotrials.verdict.audit.outcome import InstanceOutcome
from robotrials.verdict.audit.result import read_result, write_result

Compared = tuple[Interval | None, str]  # the drop's interval, and the test
Compare = Callable[[Sequence[InstanceOutcome], Sequence[InstanceOutcome], float], Compared]
FORMAT = OVERFIT_FORMAT
OFFICIAL = 'official'
LEAST_SHARE = 0.5  # of the official condition's count; the paper argues from 30 against 41


class ChangeKind(enum.StrEnum):
    FRESH = 'fresh sample'  # other start states from the same generator
    ALTERED = 'altered'  # one factor changed


class DropReading(enum.StrEnum):
    """What a drop may be called."""

    OVERFITTING = 'overfitting'
    NO_DROP = 'no drop shown'
    UNCOUNTED = 'drop, cause open: training data not counted'
    RARE = 'drop, cause open: rarer in training than the official condition'


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCount:
    """How many of the training demonstrations hold the official condition and each change, and how that was counted."""

    total: int
    counts: Mapping[str, int]  # change, and 'official' -> demonstrations
    basis: str  # what counts as an occurrence, in words

    def __post_init__(self) -> None:
        if OFFICIAL not in self.counts:
            raise InputError(f'training counts name {", ".join(self.counts) or "nothing"}; wanted {OFFICIAL!r} too')
        if not self.basis.strip():
            raise InputError('training counts: basis is empty; say what was counted as an occurrence')
        for name, count in self.counts.items():
            if not 0 <= count <= self.total:
                raise InputError(f'training counts: {name} in {count} of {self.total} demonstrations cannot be')

    def is_in_support(self, change: str, *, least_share: float = LEAST_SHARE) -> bool | None:
        """Whether the change occurs about as often as the official condition; None where nobody counted it."""
        if change not in self.counts:
            return None
        return self.counts[change] > 0 and self.counts[change] >= least_share * self.counts[OFFICIAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One policy under one change, against its calibration."""

    policy: str
    change: str
    kind: ChangeKind
    successes: tuple[float, float]  # calibration, altered: sums of scores
    n: tuple[int, int]
    n_starts: tuple[int, int]
    low: float  # of the paper's row-level interval, which knows no start states
    high: float
    cluster_low: float | None = None  # of results of older versions: start states drawn whole
    cluster_high: float | None = None
    contrast_low: float | None = None  # of the contrast's interval; None where too few starts were run
    contrast_high: float | None = None
    family_low: float  # of the contrast's, at the level of the family of all rows
    family_high: float
    method: str = 'newcombe'  # of the row-level interval
    test: str = ''  # of the contrast

    @property
    def calibration(self) -> float:
        return self.successes[0] / self.n[0]

    @property
    def altered(self) -> float:
        return self.successes[1] / self.n[1]

    @property
    def drop(self) -> float:
        return self.calibration - self.altered

    @property
    def is_dropped(self) -> bool:
        """Whether a drop above zero is shown, allowing for the number of rows."""
        return self.family_low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit:
    """The diagnostic's result."""

    host: str
    task: str
    level: float
    rows: tuple[Alteration, ...]
    training: TrainingCount | None = None
    least_share: float = LEAST_SHARE
    missing: Mapping[str, str] = field(default_factory=dict)  # a change that this host cannot make -> why
    starts: Mapping[str, str] = field(default_factory=dict)  # a change -> how far target and arm really move
    still: tuple[str, ...] = ()  # changes under which the target stays where it was: no drop there says nothing

    def reading(self, row: Alteration) -> DropReading:
        if not row.is_dropped:
            return DropReading.NO_DROP
        in_support = (
            None if self.training is None else self.training.is_in_support(row.change, least_share=self.least_share)
        )
        if in_support is None:
            return DropReading.UNCOUNTED
        is_same_distribution = row.kind is ChangeKind.FRESH  # by construction, however rare in training
        return DropReading.OVERFITTING if in_support or is_same_distribution else DropReading.RARE

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.change for row in self.rows))


def overfit(
    calibration: Mapping[str, Sequence[InstanceOutcome]],
    altered: Mapping[str, tuple[ChangeKind, Mapping[str, Sequence[InstanceOutcome]]]],
    *,
    host: str,
    task: str,
    compare: Compare,
    training: TrainingCount | None = None,
    level: float = 0.95,
    least_share: float = LEAST_SHARE,
    missing: Mapping[str, str] | None = None,
) -> Overfit:
    """Drops of every policy (keys of `calibration`) under every change, with what each may be called.

    Start states of a fresh sample are its own; those of an alteration are the calibration's, and are compared with
    themselves. `compare` gives the drop of two runs with its interval at a level: the contrast that every other verb
    reads, which lives above this room.
    """
    if not altered:
        raise NotEstimable('no change was run; there is nothing to compare the calibration with')
    n_rows = sum(len(runs) for _, runs in altered.values())
    rows = []
    for change, (kind, runs) in altered.items():
        if set(runs) != set(calibration):
            raise InputError(f'{change}: policies {sorted(runs)}, the calibration has {sorted(calibration)}')
        for policy, outcomes in runs.items():
            other = [_fresh(o) for o in outcomes] if kind is ChangeKind.FRESH else list(outcomes)
            pair = _one_task(calibration[policy]), _one_task(other)
            compared = compare(*pair, level), compare(*pair, 1 - (1 - level) / n_rows)
            rows.append(_row(policy, change, kind, compared, drop_of_outcomes(*pair, level=level), pair))
    return Overfit(
        host=host, task=task, level=level, rows=tuple(rows), training=training, least_share=least_share,
        missing=missing or {},
    )  # fmt: skip


def _row(
    policy: str,
    change: str,
    kind: ChangeKind,
    compared: tuple[Compared, Compared],
    paper: Drop,
    runs: tuple[Sequence[InstanceOutcome], Sequence[InstanceOutcome]],
) -> Alteration:
    (plain, test), (family, _) = compared
    sums, starts = [_sum(run) for run in runs], [_n_starts(run) for run in runs]
    widest = (-1.0, 1.0) if family is None else (family.low, family.high)
    return Alteration(
        policy=policy, change=change, kind=kind, successes=(sums[0], sums[1]), n=(len(runs[0]), len(runs[1])),
        n_starts=(starts[0], starts[1]), low=paper.interval.low, high=paper.interval.high,
        contrast_low=None if plain is None else plain.low, contrast_high=None if plain is None else plain.high,
        family_low=widest[0], family_high=widest[1], method=paper.method, test=test,
    )  # fmt: skip


def _sum(run: Sequence[InstanceOutcome]) -> float:
    return float(sum(o.score for o in run))


def _n_starts(run: Sequence[InstanceOutcome]) -> int:
    return len({o.start or o.sample for o in run})


def _fresh(outcome: InstanceOutcome) -> InstanceOutcome:
    """The instance numbers of a fresh sample are those of the grid by chance; its start states are others."""
    return replace(outcome, start=f'fresh {outcome.start}' if outcome.start else '')


def _one_task(outcomes: Sequence[InstanceOutcome]) -> list[InstanceOutcome]:
    """A reversed instruction is another task of the same scene: start states go by their instance alone."""
    if len({o.task for o in outcomes}) > 1:
        return list(outcomes)
    return [replace(o, start=o.start.replace(f'{o.task} ', '', 1)) for o in outcomes]


def write_overfit(found: Overfit, path: Path) -> Path:
    return write_result(FORMAT, found, path)


def read_overfit(path: Path | str) -> Overfit:
    return read_result(FORMAT, Overfit, Path(path))
