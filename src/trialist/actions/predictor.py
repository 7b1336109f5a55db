"""Who predicts: the seam, what a predictor may be made from, and adapters for policies and partial actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trialist.actions.convert import Chain, Conversion
from trialist.actions.prediction import Invalid, Prediction
from trialist.actions.statistic import ActionStatistics
from trialist.actions.view import state_vector
from trialist.catalog import Catalog
from trialist.errors import InputError
from trialist.formats.dataset import Observation, RecordedEpisode
from trialist.formats.space import ActionSpace, FloatArray


@runtime_checkable
class Predictor(Protocol):
    """A model that names the action of each recorded moment."""

    @property
    def name(self) -> str: ...

    def start(self, episode_id: str, instruction: str) -> None:
        """A new episode begins; nothing of the last one may be remembered."""

    def predict(self, observation: Observation, instruction: str) -> Prediction:
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
        'mean': 'trialist.actions.baseline:make_mean',
        'nearest': 'trialist.actions.baseline:make_nearest',
        'clone': 'trialist.actions.clone:make_clone',
        'vlm': 'trialist.actions.vlm:make_vlm',
    },
    entry_point_group='trialist.predictors',
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
    function: Callable[[Observation, str], ArrayLike | Invalid]

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: Observation, instruction: str) -> Prediction:
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

    def predict(self, observation: Observation, instruction: str) -> Prediction:
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


# --- any policy of a trial, by structure: this room does not know the one where trials run


class _Answer(Protocol):
    @property
    def actions(self) -> NDArray[Any]: ...


class _Session(Protocol):
    def act(self, observation: Any) -> _Answer: ...


class _Policy(Protocol):
    def start(self, setup: Any, *, seed: int) -> _Session: ...


@dataclass(frozen=True, slots=True, eq=False)
class PolicyObservation:
    """What a policy is shown: time, one state vector, decoded images."""

    t_s: float
    state: FloatArray
    images: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetup:
    """What a policy is told at the start of an episode."""

    task: str
    seed: int
    instruction: str = ''
    stratum: str = ''
    condition: str = 'nominal'
    condition_parameters: Mapping[str, Any] = field(default_factory=dict)
    instance: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    items: int | None = None


class PolicyPredictor:
    """Any policy with `start(setup, seed=...)` and sessions with `act(observation)`.

    It is asked at every recorded moment, and the first action of its answer counts. `cameras` maps the policy's camera
    names to the dataset's; `state` names the observations that make the state vector, in order (all, sorted, if None).
    """

    def __init__(
        self, policy: _Policy, *, name: str, task: str = '', seed: int = 0, control_rate_hz: float = 1.0,
        cameras: Mapping[str, str] | None = None, state: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self._policy = policy
        self._name = name
        self._task = task
        self._seed = seed
        self._rate_hz = control_rate_hz
        self._cameras = cameras
        self._state = state
        self._session: _Session | None = None
        self._step = 0

    @property
    def name(self) -> str:
        return self._name

    def start(self, episode_id: str, instruction: str) -> None:
        setup = PolicySetup(task=self._task or episode_id, seed=self._seed, instruction=instruction)
        self._session = self._policy.start(setup, seed=self._seed)
        self._step = 0

    def predict(self, observation: Observation, instruction: str) -> Prediction:
        if self._session is None:
            raise InputError(f'{self._name}: predict before start')
        cameras = self._cameras if self._cameras is not None else {n: n for n in observation.images}
        images = {own: observation.image(theirs) for own, theirs in cameras.items()}
        shown = PolicyObservation(self._step / self._rate_hz, self._state_of(observation), images)
        self._step += 1
        actions = np.atleast_2d(np.asarray(self._session.act(shown).actions, dtype=np.float64))
        return cast('FloatArray', actions[0])

    def _state_of(self, observation: Observation) -> FloatArray:
        if self._state is None:
            return state_vector(observation, dummy_size=0)
        return np.concatenate([np.ravel(observation.state[n]) for n in self._state]) if self._state else np.zeros(0)
