"""Ranks and the Kruskal-Wallis test against scipy's, with and without ties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from robotrials.stats.interaction import kruskal_wallis, midranks


@pytest.mark.parametrize('levels', [3, 20, 10**6])
@pytest.mark.parametrize('sizes', [(2, 3), (40, 41, 7), (200, 100, 50, 25)])
def test_ranks_and_p_values_are_scipys(levels: int, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng([levels, *sizes])
    for _ in range(20):
        groups = [rng.integers(0, levels, n).astype(float) + 0.3 * k * (levels > 3) for k, n in enumerate(sizes)]
        values = np.concatenate(groups)
        if len(np.unique(values)) < 2:
            continue
        assert (midranks(values) == scipy.stats.rankdata(values)).all()
        assert kruskal_wallis(groups) == pytest.approx(scipy.stats.kruskal(*groups).pvalue, rel=1e-11, abs=1e-300)
