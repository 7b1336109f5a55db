"""Normalising what goes to a policy, and undoing it on what comes back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.norm_stats import read_norm_stats

EPSILON = 1e-6  # openpi's, added to every spread


class Method(enum.StrEnum):
    MEAN_STD = 'mean_std'
    RANGE = 'range'  # low..high to -1..1: quantiles (q01, q99) or extremes


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticEntry:
    """Numbers per dimension, or a file of openpi, OpenVLA or LeRobot, and the key in it."""

    method: Method = Method.MEAN_STD
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    file: str = ''
    key: str = ''

    def numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(mean, std) or (low, high), as the method says."""
        first, second = ('mean', 'std') if self.method is Method.MEAN_STD else ('low', 'high')
        given: tuple[Any, Any] = (getattr(self, first), getattr(self, second))
        if self.file:
            given = _read_file(Path(self.file), self.key, self.method)
        pair = np.asarray(given[0], dtype=float), np.asarray(given[1], dtype=float)
        if not pair[0].size or pair[0].shape != pair[1].shape or pair[0].ndim != 1:
            raise InputError(f'normalisation by {self.method} wants {first} and {second}, equally many numbers each')
        return pair


@dataclass(frozen=True, slots=True, eq=False)
class Normalizer:
    """x -> (x - shift) / spread, or back, on the first dimensions it has numbers for."""

    shift: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, entry: StatisticEntry) -> Normalizer:
        first, second = entry.numbers()
        if entry.method is Method.MEAN_STD:
            return cls(first, second + EPSILON)
        return cls((first + second) / 2, (second - first + EPSILON) / 2)

    def normalize(self, values: NDArray[Any]) -> NDArray[np.float64]:
        self.check_width(values.shape[-1])
        n = values.shape[-1]
        return np.asarray((values - self.shift[:n]) / self.spread[:n])

    def restore(self, values: NDArray[Any]) -> NDArray[np.float64]:
        self.check_width(values.shape[-1])
        n = values.shape[-1]
        return np.asarray(values * self.spread[:n] + self.shift[:n])

    def check_width(self, width: int) -> None:
        if width > len(self.shift):
            raise InputError(f'normalisation has {len(self.shift)} numbers for a vector of {width}')


def _read_file(path: Path, key: str, method: Method) -> tuple[object, object]:
    """The numbers under `key`, in a file of openpi, OpenVLA (`DATASET/action` chooses one of several) or LeRobot."""
    dataset, _, name = key.rpartition('/')
    vector = read_norm_stats(path, dataset=dataset).vector(name, where=str(path))
    names = [('mean', 'std')] if method is Method.MEAN_STD else [('q01', 'q99'), ('min', 'max')]
    for first, second in names:
        if getattr(vector, first) and getattr(vector, second):
            return getattr(vector, first), getattr(vector, second)
    raise InputError(f'{path}: {key!r} has no {" or ".join("/".join(pair) for pair in names)}')
