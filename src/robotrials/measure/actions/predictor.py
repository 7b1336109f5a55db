"""Who predicts: the seam, what a predictor may be made from, and an adapter for other conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from robotrials.catalog import Catalog
from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedEpisode, RecordedObservation
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.measure.actions.convert import Chain, Conversion
from robotrials.measure.actions.prediction import Invalid, Prediction
from robotrials.measure.actions.statistic import ActionStatistics


@runtime_checkable
class Predictor(Protocol):
    """A model that names the action of each recorded moment."""

    @property
    def name(self) -> str: ...

    def start(self, episode_id: str, instruction: str) -> None:
        """A new episode begins; nothing of the last one may be remembered."""

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        """The action, (D,), or why there is none. Timesteps of an episode come in order."""


@runtime_checkable
class ConcurrentPredictor(Predictor, Protocol):
    """A predictor without memory of earlier timesteps, which may be asked for several at once."""

    @property
    def concurrency(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictorContext:
    """What a predictor may be made from: training episodes and what they say, never the evaluated ones."""

    dataset: str
    space: ActionSpace
    statistics: ActionStatistics
    training: Callable[[], Iterator[RecordedEpisode]]
    evaluated_ids: frozenset[str] = frozenset()
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, default: str | None = None) -> str:
        """An option of the specification; without a default it is required."""
        if name in self.options:
            return self.options[name]
        if default is None:
            raise InputError(f'the predictor needs {name}=...; found the options {sorted(self.options) or "none"}')
        return default


PREDICTORS = Catalog(
    'predictor',
    {
        'mean': 'robotrials.measure.actions.baseline:make_mean',
        'nearest': 'robotrials.measure.actions.baseline:make_nearest',
        'clone': 'robotrials.measure.actions.clone:make_clone',
        'vlm': 'robotrials.measure.actions.vlm:make_vlm',
        'policy': 'robotrials.policies.offline:make_offline',
    },
    entry_point_group='robotrials.predictors',
)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """`NAME,key=value,...` as the name and its options.

    >>> parse_spec('vlm,model=m,url=http://127.0.0.1:8000/v1')
    ('vlm', {'model': 'm', 'url': 'http://127.0.0.1:8000/v1'})
    """
    name, *pairs = spec.split(',')
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition('=')
        if not separator or not key:
            raise InputError(f'{spec!r}: wanted NAME,key=value,..., found {pair!r}')
        options[key] = value
    if not name:
        raise InputError(f'{spec!r}: wanted NAME,key=value,...; known: {", ".join(PREDICTORS.names())}')
    return name, options


def load_predictor(name: str, context: PredictorContext) -> Predictor:
    """Make the predictor of a catalogue name, or of a literal `module:function` that takes a PredictorContext."""
    factory = PREDICTORS.load(name)
    if not callable(factory):
        raise InputError(f'{name}: wanted a function that takes a PredictorContext, found {type(factory).__name__}')
    made = factory(context)
    if not isinstance(made, Predictor):
        raise InputError(f'{name}: made a {type(made).__name__}, which has no name, start and predict')
    return made


@dataclass(slots=True)
class FunctionPredictor:
    """A plain function of (observation, instruction) as a predictor."""

    name: str
    function: Callable[[RecordedObservation, str], ArrayLike | Invalid]

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        answer = self.function(observation, instruction)
        return answer if isinstance(answer, Invalid) else np.asarray(answer, dtype=np.float64)


@dataclass(slots=True)
class AdaptedPredictor:
    """A predictor in its own convention: its answers are converted, and put into dimensions of the dataset's space.

    Dimensions that it does not predict are NaN, and left out of its score.
    """

    inner: Predictor
    size: int
    dimensions: tuple[int, ...]
    conversion: Conversion = field(default_factory=Chain)

    @property
    def name(self) -> str:
        return self.inner.name

    def start(self, episode_id: str, instruction: str) -> None:
        self.inner.start(episode_id, instruction)

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        answer = self.inner.predict(observation, instruction)
        if isinstance(answer, Invalid):
            return answer
        converted = np.asarray(self.conversion(answer))
        if converted.shape != (len(self.dimensions),):
            raise InputError(
                f'{self.name} gives {converted.shape} after conversion, wanted ({len(self.dimensions)},) '
                f'for the dimensions {list(self.dimensions)}'
            )
        row: FloatArray = np.full(self.size, np.nan)
        row[list(self.dimensions)] = converted
        return row
