"""Baselines that any model has to beat: the training mean, and the action of the most similar training moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.dataset import RecordedEpisode, RecordedObservation
from robotrials.formats.space import FloatArray
from robotrials.measure.actions.prediction import Invalid, InvalidReason, Prediction
from robotrials.measure.actions.predictor import PredictorContext
from robotrials.measure.actions.view import state_vector

NEAREST_ROWS = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class MeanPredictor:
    """Always the mean training action."""

    mean: FloatArray
    name: str = 'mean'

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        return self.mean


def make_mean(context: PredictorContext) -> MeanPredictor:
    return MeanPredictor(context.statistics.mean)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """States (N, K), standardised, and actions (N, D) of training moments."""

    states: FloatArray
    actions: FloatArray
    center: FloatArray
    scale: FloatArray

    def standardize(self, state: FloatArray) -> FloatArray:
        standard: FloatArray = (state - self.center) / self.scale
        return standard


def training_set(episodes: Iterable[RecordedEpisode], *, seed: int, most: int = NEAREST_ROWS) -> TrainingSet:
    """States and actions of training episodes; a seeded sample of at most `most` moments."""
    states, actions = [], []
    for episode in episodes:
        if not episode.state:
            raise NotEstimable(
                f'{episode.episode_id}: no floating-point observations, so nothing to learn a policy from'
            )
        states.append(np.concatenate([episode.state[n].reshape(episode.n_steps, -1) for n in sorted(episode.state)], 1))
        actions.append(episode.actions)
    if not states:
        raise InputError('no training episodes; give a split that has some')
    x, y = np.concatenate(states).astype(np.float64), np.concatenate(actions).astype(np.float64)
    if len(x) > most:
        chosen = np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))
        x, y = x[chosen], y[chosen]
    scale = x.std(axis=0)
    scale[scale == 0] = 1.0
    return TrainingSet((x - x.mean(axis=0)) / scale, y, x.mean(axis=0), scale)


class NearestPredictor:
    """The action of the training moment whose standardised state is nearest."""

    def __init__(self, data: TrainingSet, *, name: str = 'nearest') -> None:
        self._data = data
        self._name = name
        self._squares = (data.states**2).sum(axis=1)

    @property
    def name(self) -> str:
        return self._name

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        if not observation.state:
            return Invalid(InvalidReason.UNPREDICTABLE, 'no state in the observation')
        state = self._data.standardize(state_vector(observation))
        distance = self._squares - 2 * self._data.states @ state
        nearest: FloatArray = self._data.actions[int(np.argmin(distance))]
        return nearest


def make_nearest(context: PredictorContext) -> NearestPredictor:
    return NearestPredictor(training_set(context.training(), seed=context.seed))
