"""Baselines that any model has to beat: the training mean, and the action of the most similar training moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.dataset import RecordedEpisode, RecordedObservation
from robotrials.formats.space import FloatArray
from robotrials.measure.actions.prediction import Invalid, InvalidReason, Prediction, PredictorContext, state_vector

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


# A small behaviour-cloned network: two hidden layers from the state to the action, trained by Adam in numpy.

Layers = list[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True, eq=False)
class ClonePredictor:
    """A trained network; `layers` are (weights, bias), tanh between them."""

    data: TrainingSet
    layers: tuple[tuple[FloatArray, FloatArray], ...]
    action_center: FloatArray
    action_scale: FloatArray
    losses: tuple[float, ...]  # mean squared error of the standardised actions after each epoch
    name: str = 'clone'

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        if not observation.state:
            return Invalid(InvalidReason.UNPREDICTABLE, 'no state in the observation')
        hidden = self.data.standardize(state_vector(observation))[None, :]
        action: FloatArray = _forward(list(self.layers), hidden)[-1][0] * self.action_scale + self.action_center
        return action


def train_clone(
    data: TrainingSet, *, hidden: int = 64, epochs: int = 60, batch: int = 64, rate: float = 3e-3, seed: int = 0
) -> ClonePredictor:
    """Regress the standardised actions on the standardised states; the seed decides everything."""
    rng = np.random.default_rng(seed)
    center, scale = data.actions.mean(axis=0), data.actions.std(axis=0)
    scale[scale == 0] = 1.0
    x, y = data.states, (data.actions - center) / scale
    sizes = [x.shape[1], hidden, hidden, y.shape[1]]
    layers: Layers = [(rng.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)) for a, b in itertools.pairwise(sizes)]
    moments = [[np.zeros_like(p) for layer in layers for p in layer] for _ in range(2)]
    losses, step = [], 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            step += 1
            _adam(layers, _gradients(layers, x[rows], y[rows]), moments, step, rate)
        losses.append(float(((_forward(layers, x)[-1] - y) ** 2).mean()))
    return ClonePredictor(data, tuple(layers), center, scale, tuple(losses))


def _forward(layers: Layers, x: FloatArray) -> list[FloatArray]:
    """The activations of every layer, the input first."""
    activations = [x]
    for number, (weights, bias) in enumerate(layers):
        x = x @ weights + bias
        if number < len(layers) - 1:
            x = np.tanh(x)
        activations.append(x)
    return activations


def _gradients(layers: Layers, x: FloatArray, y: FloatArray) -> list[FloatArray]:
    activations = _forward(layers, x)
    slope = 2 * (activations[-1] - y) / y.size
    found: list[FloatArray] = []
    for number in reversed(range(len(layers))):
        before = activations[number]
        found = [before.T @ slope, slope.sum(axis=0), *found]
        slope = (slope @ layers[number][0].T) * (1 - before**2)
    return found


def _adam(layers: Layers, gradients: list[FloatArray], moments: list[list[FloatArray]], step: int, rate: float) -> None:
    parameters = [p for layer in layers for p in layer]
    for p, g, first, second in zip(parameters, gradients, *moments, strict=True):
        first += 0.1 * (g - first)
        second += 0.001 * (g**2 - second)
        p -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)


def make_clone(context: PredictorContext) -> ClonePredictor:
    data = training_set(context.training(), seed=context.seed)
    return train_clone(
        data, hidden=int(context.option('hidden', '64')), epochs=int(context.option('epochs', '60')), seed=context.seed
    )
