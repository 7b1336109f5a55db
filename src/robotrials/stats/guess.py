"""How well a class can be guessed from features: held-out guesses of a classifier, and what they are worth in bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.stats.interval import Interval
from robotrials.stats.proportion import wilson

FOLDS = 10
BINS = 8
BEST = 3  # features that a guess rests on: more would mostly add noise to it
FEWEST = 2  # of each class: one to learn from, one to guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessing:
    """What came of guessing every item's class from others' features and classes."""

    n: int
    n_classes: int
    n_right: int
    telling: str  # the feature that said most, by its name

    @property
    def share(self) -> Interval:
        """The share of right guesses, with Wilson's interval."""
        return wilson(self.n_right, self.n)

    @property
    def bits(self) -> float:
        return self._bits(self.n_right / self.n)

    @property
    def bits_interval(self) -> Interval:
        """Bits per item at the two ends of the share's interval."""
        return Interval(self._bits(self.share.low), self._bits(self.share.high))

    def _bits(self, share: float) -> float:
        """What guesses that are right so often tell: a channel that errs evenly. 0 at chance, and below it."""
        k = self.n_classes
        if share <= 1 / k:
            return 0.0
        wrong = 1 - share
        entropy = -sum(p * math.log2(p) for p in (share, wrong) if p > 0)
        return math.log2(k) - entropy - wrong * math.log2(max(k - 1, 1))


def guess_classes(
    features: NDArray[np.float64], classes: NDArray[np.int64], *, names: tuple[str, ...], rng: np.random.Generator
) -> Guessing:
    """Guess each item's class by naive Bayes on the features that say most in the other nine tenths.

    features: (items, features), NaN where there is none. classes: (items,), 0 to k-1. Features are cut at quantiles, so
    that a threshold, a band and a missing value all show; folds hold every class in equal shares, or the rarer class
    of nine tenths would give away the last tenth.
    """
    counts = np.bincount(classes)
    if len(counts) < 2 or counts.min() < FEWEST:
        raise InputError(f'wanted two classes with at least {FEWEST} items each, found {counts.tolist()}')
    fold = np.empty(len(classes), dtype=np.int64)
    for label in range(len(counts)):
        own = rng.permutation(np.flatnonzero(classes == label))
        fold[own] = np.arange(len(own)) % FOLDS
    votes = np.zeros(features.shape[1], dtype=np.int64)
    right = 0
    for held_out in range(FOLDS):
        test = fold == held_out
        if not test.any():
            continue
        scores, chosen = _scores(features[~test], classes[~test], features[test], len(counts))
        votes[chosen] += 1
        noise = rng.random(scores.shape) * 1e-9  # a tie goes to either
        right += int(((scores + noise).argmax(axis=1) == classes[test]).sum())
    telling = names[int(votes.argmax())]
    return Guessing(n=len(classes), n_classes=len(counts), n_right=right, telling=telling)


def _scores(
    train: NDArray[np.float64], classes: NDArray[np.int64], test: NDArray[np.float64], k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log-probabilities of each class for each test item, and the features they rest on, the best first."""
    prior = np.bincount(classes, minlength=k) / len(classes)
    tables, information = [], np.zeros(train.shape[1])
    for number in range(train.shape[1]):
        edges = _edges(train[:, number])
        cells = _cells(train[:, number], edges)
        counts = np.zeros((len(edges) + 2, k))
        np.add.at(counts, (cells, classes), 1.0)
        joint = counts / len(classes)
        expected = joint.sum(axis=1, keepdims=True) * prior
        with np.errstate(divide='ignore', invalid='ignore'):
            information[number] = np.nansum(joint * np.log(joint / expected))
        tables.append((edges, np.log((counts + 1) / (counts.sum(axis=0) + len(counts)))))
    chosen = np.argsort(-information, kind='stable')[:BEST]
    scores = np.tile(np.log(prior), (len(test), 1))
    for number in chosen:
        edges, likelihood = tables[number]
        scores += likelihood[_cells(test[:, number], edges)]
    return scores, chosen[:1]


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = values[np.isfinite(values)]
    return np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])) if len(known) else np.zeros(0)


def _cells(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of each value; the last is for those that are missing."""
    return np.where(np.isfinite(values), np.searchsorted(edges, values), len(edges) + 1)
