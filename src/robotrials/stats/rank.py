"""Ranks with ties, and the Kruskal-Wallis test of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def midranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: FloatArray = (2 * ends - counts + 1) / 2
    return middle[place]


def kruskal_wallis(groups: Sequence[FloatArray]) -> float:
    """The p-value that all groups are of one distribution, by the chi-square limit and corrected for ties.

    Wanted are two or more groups with values that differ.
    """
    from robotrials.stats.special import chdtrc

    values = np.concatenate(groups)
    ranks, n = midranks(values), len(values)
    parts = np.split(ranks, np.cumsum([len(g) for g in groups])[:-1])
    between = sum(float(part.sum()) ** 2 / len(part) for part in parts)
    counts = np.unique(values, return_counts=True)[1].astype(float)
    tied = 1 - float((counts**3 - counts).sum()) / (n**3 - n)
    statistic = (12 / (n * (n + 1)) * between - 3 * (n + 1)) / tied
    return float(chdtrc(len(groups) - 1, statistic))
