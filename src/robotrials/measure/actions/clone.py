"""A small behaviour-cloned network: two hidden layers from the state to the action, trained by Adam in numpy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from robotrials.formats.dataset import RecordedObservation
from robotrials.formats.space import FloatArray
from robotrials.measure.actions.baseline import TrainingSet, training_set
from robotrials.measure.actions.prediction import Invalid, InvalidReason, Prediction
from robotrials.measure.actions.predictor import PredictorContext
from robotrials.measure.actions.view import state_vector

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
