"""Checks of the arguments that statistics share; each raises InputError and says what was wanted and found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError

Alternative = Literal['two-sided', 'greater', 'less']
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def check_count(name: str, value: float, *, least: int = 0) -> int:
    """A whole number that is at least `least`."""
    if isinstance(value, bool | np.bool_) or not math.isfinite(value) or value != int(value):
        raise InputError(f'{name} must be a whole number, found {value!r}')
    if value < least:
        raise InputError(f'{name} must be at least {least}, found {int(value)}')
    return int(value)


def check_successes(successes: float, n: float, *, names: tuple[str, str] = ('successes', 'n')) -> tuple[int, int]:
    """Successes among n trials, n > 0: a rate of no trials does not exist."""
    n = check_count(names[1], n, least=1)
    successes = check_count(names[0], successes)
    if successes > n:
        raise InputError(f'{names[0]} must be at most {names[1]} = {n}, found {successes}')
    return successes, n


def check_open_unit(name: str, value: float) -> float:
    """A number strictly between 0 and 1: a level, an alpha, a power."""
    if not 0 < value < 1:
        raise InputError(f'{name} must be strictly between 0 and 1, found {value!r} (95 % is 0.95)')
    return float(value)


def check_unit(name: str, value: float) -> float:
    """A probability in [0, 1]."""
    if not 0 <= value <= 1:
        raise InputError(f'{name} must be between 0 and 1, found {value!r} (a percentage is divided by 100)')
    return float(value)


def check_alternative(alternative: str) -> Alternative:
    if alternative == 'two-sided':
        return 'two-sided'
    if alternative == 'greater':
        return 'greater'
    if alternative == 'less':
        return 'less'
    raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', found {alternative!r}")


def check_values(name: str, values: ArrayLike, *, infinite: bool = False) -> NDArray[Any]:
    """A non-empty array of numbers, never NaN; whole numbers and booleans become int64, so that sums are exact."""
    array = np.asarray(values)
    if array.dtype.kind in 'bui':
        array = array.astype(np.int64)
    elif array.dtype.kind == 'f':
        array = array.astype(np.float64)
    else:
        raise InputError(f'{name} must be numbers, found {array.dtype}')
    if array.size == 0:
        raise InputError(f'{name} is empty; wanted at least one value')
    bad = np.flatnonzero(np.isnan(array.ravel()) if infinite else ~np.isfinite(array.ravel()))
    if bad.size:
        wanted = 'numbers' if infinite else 'finite numbers'
        raise InputError(f'{name}[{bad[0]}] is {array.ravel()[bad[0]]}; wanted {wanted}')
    return array


def check_labels(name: str, labels: ArrayLike, *, n: int, of: str) -> tuple[IntArray, NDArray[Any]]:
    """One label a value: codes 0..k-1, and the k distinct labels in sorted order."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(f'{name} must have one label for each of the {n} {of}, found shape {array.shape}')
    if array.dtype.kind == 'f' and np.isnan(array).any():
        raise InputError(f'{name}[{int(np.flatnonzero(np.isnan(array))[0])}] is NaN; wanted a label')
    distinct, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), distinct


def stratify(name: str, values: ArrayLike, strata: ArrayLike | None) -> list[NDArray[Any]]:
    """The values of each stratum, in sorted order of labels; a 2-d array is (strata, samples) already."""
    array = check_values(name, values)
    if array.ndim == 2 and strata is None:
        return list(array)
    if array.ndim != 1:
        raise InputError(f'{name} must be (samples,) or (strata, samples), found shape {array.shape}')
    if strata is None:
        return [array]
    codes, distinct = check_labels('strata', strata, n=array.size, of=name)
    return [array[codes == k] for k in range(len(distinct))]


def check_rng(rng: object) -> np.random.Generator:
    """The generator itself; a seed or nothing is refused, since global or hidden randomness cannot be repeated."""
    if isinstance(rng, np.random.Generator):
        return rng
    raise InputError(f'rng is {rng!r}, wanted a numpy.random.Generator: pass rng=numpy.random.default_rng(seed)')


def check_p_values(p_values: Sequence[float] | FloatArray) -> FloatArray:
    array = np.asarray(p_values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f'p_values must be a non-empty sequence, found shape {array.shape}')
    bad = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if bad.size:
        raise InputError(f'p_values[{bad[0]}] is {array[bad[0]]}; wanted a probability in [0, 1]')
    return array


def exact_mean(values: FloatArray) -> float:
    """The mean of (n,) values, summed without rounding, so that it does not depend on their order."""
    return math.fsum(values.tolist()) / len(values)
