"""Creeping overfitting: how much a policy loses when the test is altered or drawn afresh (Appendix A.2).

drop = calibration - altered, so that a positive drop means the altered or fresh test scored lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import Interval, newcombe, paired_wald, two_sample_wald
from robotrials.verdict.audit.outcome import InstanceOutcome, by_key, read_outcomes

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
    found = drop(
        scores[0],
        scores[1],
        method='paired_wald' if paired else None,
        level=level,
        label=label,
    )
    return replace(found, unmatched=unmatched)


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
    paths: tuple[Path | str, Path | str],
    method: Method | None,
    discordant: int | None,
    level: float,
    label: str,
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


def drop_rows(rows: Mapping[str, tuple[tuple[int, int], tuple[int, int]]], *, level: float = 0.95) -> tuple[Drop, ...]:
    """Newcombe drops for several labelled pairs of counts, as a table lists them."""
    return tuple(drop(a, b, level=level, label=label) for label, (a, b) in rows.items())
