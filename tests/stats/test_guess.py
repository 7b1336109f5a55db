"""Guessing classes from features: at chance where they say nothing, right where one does, and worth so many bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.stats.guess import Guessing, guess_classes


def test_features_that_say_nothing_are_worth_nothing() -> None:
    rng = np.random.default_rng(1)
    right = []
    for _ in range(20):
        found = guess_classes(
            rng.normal(size=(200, 12)), np.repeat([0, 1], 100), names=tuple('abcdefghijkl'), rng=rng
        )  # fmt: skip
        right.append(found.n_right)
        assert found.bits_interval.high < 0.1
    assert abs(np.mean(right) - 100) < 3.3 * math.sqrt(50 / 20), 'neither above chance nor below it'


@pytest.mark.parametrize('kind', ['threshold', 'band', 'missing'])
def test_one_telling_feature_among_many_is_found(kind: str) -> None:
    rng = np.random.default_rng(2)
    classes = rng.permutation(np.repeat([0, 1], 100))
    features = rng.normal(size=(200, 12))
    features[:, 7] = {
        'threshold': classes * 0.2 + rng.normal(scale=0.02, size=200),  # 50 answers that take 4 ms longer
        'band': np.where(classes == 1, rng.choice([-3.0, 3.0], 200), 0.0) + rng.normal(scale=0.1, size=200),
        'missing': np.where(classes == 1, np.nan, rng.normal(size=200)),
    }[kind]
    found = guess_classes(features, classes, names=tuple('abcdefghijkl'), rng=rng)
    assert found.n_right > 180
    assert found.telling == 'h'


def test_bits_are_those_of_a_channel_that_errs_evenly() -> None:
    """1 - H(0.25) for two arms; log2 3 if all of three are right; nothing at chance, and nothing below it."""
    assert Guessing(n=100, n_classes=2, n_right=75, telling='').bits == pytest.approx(0.188722, abs=1e-6)
    assert Guessing(n=100, n_classes=3, n_right=100, telling='').bits == pytest.approx(math.log2(3))
    assert Guessing(n=100, n_classes=2, n_right=50, telling='').bits == 0.0
    assert Guessing(n=100, n_classes=2, n_right=30, telling='').bits == 0.0
    at_chance = Guessing(n=400, n_classes=2, n_right=200, telling='').bits_interval
    assert (at_chance.low, round(at_chance.high, 3)) == (0.0, 0.007)


def test_one_class_is_refused() -> None:
    with pytest.raises(InputError, match='two classes'):
        guess_classes(np.zeros((4, 1)), np.zeros(4, dtype=np.int64), names=('a',), rng=np.random.default_rng(0))
