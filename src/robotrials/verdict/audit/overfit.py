"""Creeping overfitting: what a policy loses on fresh samples and on changes that its training data held (Section 5).

A drop alone does not say "overfitting": a policy that never met a change may simply not generalise. So every change
comes with how often it and the official condition occur in the training data, and the word is used only where the
change is there about as often. A fresh sample has the official distribution by construction, so there a count is
enough, whatever it is: data that holds the official samples and not their like is sample overfitting.
drop = calibration - altered.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import OVERFIT_FORMAT
from robotrials.stats import Interval, newcombe, paired_wald, two_sample_wald
from robotrials.verdict.audit.outcome import InstanceOutcome, by_key, outcome_contrast, read_outcomes
from robotrials.verdict.audit.run_score import read_result, write_result

# Creeping overfitting: how much a policy loses when the test is altered or drawn afresh (Appendix A.2).
# drop = calibration - altered, so that a positive drop means the altered or fresh test scored lower.

Method = Literal['newcombe', 'paired_wald', 'two_sample_wald']
METHODS: tuple[Method, ...] = ('newcombe', 'paired_wald', 'two_sample_wald')


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop with its interval; both on the scale of the score (1.0 is 100 percentage points for 0/1 scores)."""

    calibration: float
    altered: float
    n_calibration: int
    n_altered: int
    interval: Interval
    method: Method
    level: float
    unmatched: tuple[tuple[str, str], ...] = ()
    label: str = ''
    is_rate: bool = True  # a success rate, printed in percentage points

    @property
    def estimate(self) -> float:
        return self.calibration - self.altered

    @property
    def is_resolved(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval.excludes(0.0)


def drop(
    calibration: ArrayLike | tuple[int, int] | Path | str,
    altered: ArrayLike | tuple[int, int] | Path | str,
    *,
    method: Method | None = None,
    discordant: int | None = None,
    level: float = 0.95,
    label: str = '',
) -> Drop:
    """Calibration minus altered, with the interval of a named method: the paper's computation, from counts or scores.

    Two `(successes, n)` tuples: Newcombe-Wilson; with `discordant` (shared sequences on which the two differ) paired
    Wald. Two score arrays: Newcombe for 0/1 scores and two-sample Wald for others, or `method='paired_wald'` where
    entry i of both is the same sequence. Two paths (CSVs or stores) are read and matched by `drop_of_outcomes`. None of
    these knows of start states that repeat, or of tasks: that is the contrast's, which is the verdict.
    """
    if method is not None and method not in METHODS:
        raise InputError(f'method is {method!r}, wanted one of {", ".join(METHODS)}')
    if isinstance(calibration, str | Path) and isinstance(altered, str | Path):
        return _from_files((calibration, altered), method, discordant, level, label)
    _check_same_form(calibration, altered)
    if _is_counts(calibration) and _is_counts(altered):
        if method == 'two_sample_wald':
            calibration, altered = _expanded(calibration), _expanded(altered)
        else:
            return _from_counts(calibration, altered, method, discordant, level, label)
    if discordant is not None:
        raise InputError('discordant goes with counts (successes, n); arrays hold their own pairs')
    a, b = _scores(calibration, 'calibration'), _scores(altered, 'altered')
    is_rate = bool(max(a.max(), b.max()) <= 1)
    chosen = method or ('newcombe' if is_rate else 'two_sample_wald')
    return Drop(
        calibration=float(a.mean()),
        altered=float(b.mean()),
        n_calibration=a.size,
        n_altered=b.size,
        interval=_interval(a, b, chosen, level),
        method=chosen,
        level=level,
        label=label,
        is_rate=is_rate,
    )


def drop_of_outcomes(
    calibration: Sequence[InstanceOutcome],
    altered: Sequence[InstanceOutcome],
    *,
    paired: bool = False,
    full_score: int | None = None,
    level: float = 0.95,
    label: str = '',
) -> Drop:
    """The drop of two runs read from CSVs or stores. `paired` matches by (task, sample) and names what has no partner.

    With `full_score` (5 for CALVIN) a run is scored by its share of full chains.
    """
    a, b = by_key(calibration, 'calibration'), by_key(altered, 'altered')
    unmatched: tuple[tuple[str, str], ...] = ()
    if paired:
        shared = sorted(a.keys() & b.keys())
        unmatched = tuple(sorted(a.keys() ^ b.keys()))
        if not shared:
            raise NotEstimable('no (task, sample) is in both runs; a paired drop needs shared sequences')
        a, b = {k: a[k] for k in shared}, {k: b[k] for k in shared}
    runs = [list(run.values()) for run in (a, b)]
    scores = [np.array([_scored(o, full_score) for o in run], dtype=np.int64) for run in runs]
    dropped = drop(scores[0], scores[1], method='paired_wald' if paired else None, level=level, label=label)
    return replace(dropped, unmatched=unmatched)


def half_up_percent(successes: int, n: int, *, digits: int = 1) -> str:
    """A count as a printed percentage, half up and in decimals: 90/288 is 31.3, as in Table 4."""
    if n <= 0 or not 0 <= successes <= n:
        raise InputError(f'{successes} of {n}: wanted 0 <= successes <= n and n > 0')
    value = Decimal(100 * successes) / Decimal(n)
    return str(value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))


def _is_counts(value: object) -> TypeGuard[tuple[int, int]]:
    return isinstance(value, tuple) and len(value) == 2 and all(np.ndim(part) == 0 for part in value)


def _check_same_form(calibration: object, altered: object) -> None:
    """Refuse what could be read both ways: counts beside scores, or [60, 288], whose mean would be taken."""
    counts = [_is_counts(value) for value in (calibration, altered)]
    if counts[0] != counts[1]:
        raise InputError('counts beside scores: wanted (successes, n) tuples for both, or arrays of scores for both')
    for name, value in (('calibration', calibration), ('altered', altered)):
        if isinstance(value, list) and len(value) == 2 and np.ndim(value) == 1 and max(value) > 1:
            raise InputError(
                f'{name} is {value!r}: counts are a tuple, ({value[0]}, {value[1]}); scores of two episodes an array'
            )


def _from_files(
    paths: tuple[Path | str, Path | str], method: Method | None, discordant: int | None, level: float, label: str
) -> Drop:
    if discordant is not None:
        raise InputError('discordant goes with counts; files hold their own pairs')
    if method not in (None, 'paired_wald'):
        raise InputError(f"method is {method!r}; of files it is chosen by their scores, or 'paired_wald'")
    runs = [read_outcomes(path) for path in paths]
    return drop_of_outcomes(runs[0], runs[1], paired=method == 'paired_wald', level=level, label=label)


def _scored(outcome: InstanceOutcome, full_score: int | None) -> int:
    if full_score is None:
        return outcome.score
    if outcome.score > full_score:
        raise InputError(f'sample {outcome.sample!r} scored {outcome.score}, more than the full {full_score}')
    return int(outcome.score == full_score)


def _from_counts(
    calibration: tuple[int, int],
    altered: tuple[int, int],
    method: Method | None,
    discordant: int | None,
    level: float,
    label: str,
) -> Drop:
    interval = newcombe(*calibration, *altered, level)  # which also checks the counts
    (x, n), (y, m) = (tuple(map(int, counts)) for counts in (calibration, altered))
    chosen: Method = 'newcombe'
    if discordant is None:
        if method == 'paired_wald':
            raise InputError('a paired interval from counts needs discordant: on how many sequences the two differ')
    else:
        interval, chosen = _paired_counts((x, n), (y, m), discordant, level), 'paired_wald'
    return Drop(x / n, y / m, n, m, interval, chosen, level, label=label)


def _paired_counts(calibration: tuple[int, int], altered: tuple[int, int], discordant: int, level: float) -> Interval:
    (x, n), (y, m) = calibration, altered
    lost, odd = divmod(discordant + x - y, 2)
    if n != m or odd or not abs(x - y) <= discordant <= min(x + y, 2 * n - x - y):
        raise InputError(
            f'{x}/{n} and {y}/{m} cannot differ on {discordant} shared sequences; wanted equal n and a number of the '
            f'parity of {abs(x - y)} between {abs(x - y)} and {min(x + y, n + m - x - y)}'
        )
    differences = np.repeat([1, -1, 0], [lost, discordant - lost, n - discordant])
    return paired_wald(differences, level).interval


def _expanded(counts: tuple[int, int]) -> NDArray[np.int64]:
    x, n = counts
    if not 0 <= x <= n:
        raise InputError(f'counts {counts}: wanted (successes, n) with 0 <= successes <= n')
    return np.repeat(np.array([1, 0], dtype=np.int64), [x, n - x])


def _scores(values: ArrayLike | tuple[int, int] | Path, name: str) -> NDArray[Any]:
    if isinstance(values, str | Path):
        raise InputError(f'{name} is the path {str(values)!r}; wanted paths for both, or for neither')
    scores = np.asarray(values)
    if scores.ndim != 1 or scores.size == 0 or scores.dtype.kind not in 'buif':
        raise InputError(f'{name} has shape {scores.shape} of {scores.dtype}, wanted (n,) scores or (successes, n)')
    if not np.all(np.isfinite(scores)):
        raise InputError(f'{name} holds scores that are not finite')
    return scores.astype(np.int64) if scores.dtype.kind in 'bui' else scores


def _interval(a: NDArray[Any], b: NDArray[Any], method: Method, level: float) -> Interval:
    if method == 'paired_wald':
        if a.size != b.size:
            raise InputError(f'paired scores have {a.size} and {b.size} entries; wanted the same sequences in both')
        return paired_wald(a - b, level).interval
    if method == 'newcombe':
        if not np.all(np.isin(np.concatenate([a, b]), (0, 1))):
            raise InputError('Newcombe is for 0/1 scores; use two_sample_wald or paired_wald for others')
        return newcombe(int(a.sum()), a.size, int(b.sum()), b.size, level)
    return two_sample_wald(a, b, level=level).interval


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
    contrast_drop: float | None = None  # of the contrast: the mean over tasks; None in results of older versions
    contrast_low: float | None = None  # of its interval; None where too few starts were run
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
        return self.calibration - self.altered if self.contrast_drop is None else self.contrast_drop

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
    training: TrainingCount | None = None,
    level: float = 0.95,
    least_share: float = LEAST_SHARE,
    missing: Mapping[str, str] | None = None,
) -> Overfit:
    """Drops of every policy (keys of `calibration`) under every change, with what each may be called.

    Start states of a fresh sample are its own; those of an alteration are the calibration's, and are compared with
    themselves.
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
            rows.append(_row(policy, change, kind, pair, level, 1 - (1 - level) / n_rows))
    return Overfit(
        host=host, task=task, level=level, rows=tuple(rows), training=training, least_share=least_share,
        missing=missing or {},
    )  # fmt: skip


def _row(
    policy: str, change: str, kind: ChangeKind, runs: tuple[Sequence[InstanceOutcome], Sequence[InstanceOutcome]],
    level: float, family_level: float,
) -> Alteration:  # fmt: skip
    plain, family = (outcome_contrast(*runs, level=each) for each in (level, family_level))
    paper = drop_of_outcomes(*runs, level=level)
    sums, starts = [_sum(run) for run in runs], [_n_starts(run) for run in runs]
    own, widest = tuple(plain.interval or (None, None)), tuple(family.interval or (-1.0, 1.0))
    return Alteration(
        policy=policy, change=change, kind=kind, successes=(sums[0], sums[1]), n=(len(runs[0]), len(runs[1])),
        n_starts=(starts[0], starts[1]), low=paper.interval.low, high=paper.interval.high,
        contrast_drop=plain.estimate, contrast_low=own[0], contrast_high=own[1], family_low=widest[0],
        family_high=widest[1], method=paper.method, test=plain.test,
    )  # fmt: skip


def _sum(run: Sequence[InstanceOutcome]) -> float:
    return float(sum(o.score for o in run))


def _n_starts(run: Sequence[InstanceOutcome]) -> int:
    return len({o.start or o.sample for o in run if o.start is not None}) + sum(o.start is None for o in run)


def _fresh(outcome: InstanceOutcome) -> InstanceOutcome:
    """The instance numbers of a fresh sample are those of the grid by chance; its start states are others."""
    return replace(outcome, start=f'fresh {outcome.start}' if outcome.start else outcome.start)


def _one_task(outcomes: Sequence[InstanceOutcome]) -> list[InstanceOutcome]:
    """A reversed instruction is another task of the same scene: start states go by their instance alone."""
    if len({o.task for o in outcomes}) > 1:
        return list(outcomes)
    return [replace(o, start=o.start and o.start.replace(f'{o.task} ', '', 1)) for o in outcomes]


def write_overfit(diagnosis: Overfit, path: Path) -> Path:
    return write_result(OVERFIT_FORMAT, diagnosis, path)


def read_overfit(path: Path | str) -> Overfit:
    return read_result(OVERFIT_FORMAT, Overfit, Path(path))
