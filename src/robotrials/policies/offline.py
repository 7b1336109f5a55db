"""Any policy of a trial as a predictor of recorded actions: the same checkpoint, offline.

It is asked at every recorded moment, or at every `horizon`-th, when its answer's actions stand for the steps up to the
next question, as they do in a closed loop that executes chunks. What breaks on the way is a fault of the rig; an answer
that is no action is a named invalid answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from robotrials.errors import AnswerError, InputError, RigError, RobotrialsError, UnknownName
from robotrials.formats.dataset import RecordedEpisode
from robotrials.formats.dataset import RecordedObservation as Recorded
from robotrials.formats.space import FloatArray
from robotrials.measure.actions.prediction import (
    Invalid,
    InvalidReason,
    Prediction,
    PredictorContext,
    eight_bit,
    state_vector,
)
from robotrials.run.component import open_policy
from robotrials.run.plan import PolicyEntry, read_plan
from robotrials.run.seam import FittedPolicy, HostSpec, Observation, Policy, Session, Setup

RETRIES = 1  # a server that hung up is asked once more, in a new session


class OfflinePolicy:
    """A policy that predicts recorded actions.

    cameras: the policy's camera -> the dataset's image; the names themselves where none are given.
    state: the observations that make the state vector, in order; all of them, sorted, where none are given.
    horizon: how many actions of an answer stand for as many steps; 1 asks at every step.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        cameras: Mapping[str, str] | None = None,
        state: Sequence[str] | None = None,
        horizon: int = 1,
        control_rate_hz: float | None = None,
        task: str = '',
        seed: int = 0,
    ) -> None:
        if horizon < 1:
            raise InputError(f'horizon is {horizon}, wanted at least 1')
        if horizon > policy.spec.chunk_length:
            raise InputError(
                f'horizon is {horizon}, but {name} answers with {policy.spec.chunk_length} actions at a time'
            )
        self._policy, self.name, self._task, self._seed = policy, name, task, seed
        self._cameras, self._state, self._horizon = cameras, state, horizon
        self._rate_hz = control_rate_hz or policy.spec.control_rate_hz or 1.0
        self._setup: Setup | None = None
        self._session: Session | None = None
        self._step = 0
        self._waiting: list[Prediction] = []
        self.n_questions = 0
        self.thought_s = 0.0

    def start(self, episode_id: str, instruction: str) -> None:
        self._setup = Setup(task=self._task or episode_id, seed=self._seed, instruction=instruction)
        self._session, self._step, self._waiting = None, 0, []

    def predict(self, observation: Recorded, instruction: str) -> Prediction:
        if self._setup is None:
            raise InputError(f'{self.name}: predict before start')
        if instruction != self._setup.instruction:  # a new subtask is asked for at once
            self._setup = Setup(task=self._setup.task, seed=self._seed, instruction=instruction)
            self._session, self._waiting = None, []
        if not self._waiting:
            self._waiting = self._ask(self._shown(observation))
        self._step += 1
        return self._waiting.pop(0)

    def _shown(self, recorded: Recorded) -> Observation:
        cameras = self._cameras if self._cameras is not None else {n: n for n in recorded.images}
        images = {own: _rgb(recorded, theirs) for own, theirs in cameras.items()}
        return Observation(self._step / self._rate_hz, self._state_of(recorded), images)

    def _state_of(self, recorded: Recorded) -> FloatArray:
        if self._state is None:
            return state_vector(recorded, dummy_size=0)
        for name in self._state:
            if name not in recorded.state:
                raise UnknownName('observation of the dataset', name, recorded.state)
        return np.concatenate([np.ravel(recorded.state[n]) for n in self._state]) if self._state else np.zeros(0)

    def _ask(self, observation: Observation) -> list[Prediction]:
        for attempt in range(RETRIES + 1):
            try:
                return self._answer(observation)
            except AnswerError as error:  # the wire looked at the answer, and it is none
                message = str(error)
                reason = InvalidReason.NOT_FINITE if 'not finite' in message else InvalidReason.WRONG_SIZE
                return [Invalid(reason, message[:200])]
            except RobotrialsError as error:
                # What is asked wrongly, or not set up, stays wrong when it is asked again.
                if not isinstance(error, RigError) or attempt == RETRIES:
                    raise RigError(f'{self.name}: {error}') from error
            except Exception as error:
                if attempt == RETRIES:
                    raise RigError(f'{self.name}: no answer ({type(error).__name__}: {error})') from error
            self._session = None
        raise AssertionError('unreachable')

    def _answer(self, observation: Observation) -> list[Prediction]:
        assert self._setup is not None
        if self._session is None:
            self._session = self._policy.start(self._setup, seed=self._seed)
        began = time.perf_counter()
        actions = np.asarray(self._session.act(observation).actions)
        self.thought_s += time.perf_counter() - began
        self.n_questions += 1
        return _predictions(actions, self._policy.spec.action.width, self._horizon)

    def close(self) -> None:
        close = getattr(self._policy, 'close', None)
        if callable(close):
            close()


def _predictions(actions: np.ndarray[tuple[int, ...], np.dtype[np.generic]], width: int, most: int) -> list[Prediction]:
    """The first actions of an answer, each valid or the reason why it is not."""
    if actions.dtype.kind not in 'biuf':
        return [Invalid(InvalidReason.TEXT_ELEMENT, str(actions.dtype))]
    if actions.ndim != 2 or len(actions) == 0 or actions.shape[1] != width:
        return [Invalid(InvalidReason.WRONG_SIZE, f'shape {actions.shape}, wanted (h, {width})')]
    numbers = actions[:most].astype(np.float64)
    return [
        row if np.isfinite(row).all() else Invalid(InvalidReason.NOT_FINITE, f'action {i} of the answer')
        for i, row in enumerate(numbers)
    ]


def _rgb(recorded: Recorded, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    pixels = recorded.image(name)
    made = pixels if pixels.dtype == np.uint8 else eight_bit(pixels)
    return np.repeat(made, 3, axis=2) if made.shape[2] == 1 else made[..., :3]


def open_offline(
    entry: PolicyEntry,
    *,
    name: str,
    sample: RecordedEpisode,
    rate_hz: float | None = None,
    cameras: Mapping[str, str] | None = None,
    state: Sequence[str] | None = None,
    horizon: int = 1,
    task: str = '',
    seed: int = 0,
) -> OfflinePolicy:
    """Open the policy that a plan names, fitted to the shapes of a sample of the dataset."""
    policy = open_policy(entry)
    if isinstance(policy, FittedPolicy):
        policy.fit(_as_host(policy, sample, rate_hz, cameras, state))
    width = sample.actions.shape[1]
    if policy.spec.action.width != width:
        raise InputError(
            f'{name} gives actions of {policy.spec.action.width} numbers, those of {sample.dataset} have {width}'
        )
    return OfflinePolicy(
        policy, name=name, cameras=cameras, state=state, horizon=horizon, control_rate_hz=rate_hz, task=task, seed=seed
    )


def _as_host(
    policy: Policy, sample: RecordedEpisode, rate_hz: float | None, cameras: Mapping[str, str] | None,
    state: Sequence[str] | None,
) -> HostSpec:  # fmt: skip
    """The dataset as a host that takes the policy's own actions: offline nothing is converted but what it states."""
    seen = sample.observation(0)
    sizes = {}
    for own, theirs in (cameras if cameras is not None else {n: n for n in seen.images}).items():
        height, width = seen.image(theirs).shape[:2]
        sizes[own] = (int(height), int(width))
    numbers = sum(np.size(v) for n, v in seen.state.items() if state is None or n in state)
    return HostSpec(
        name=sample.dataset, action=policy.spec.action, images=sizes, state_width=int(numbers),
        control_rate_hz=rate_hz or policy.spec.control_rate_hz or 1.0,
    )  # fmt: skip


def make_offline(context: PredictorContext) -> OfflinePolicy:
    """A policy of a plan. Options: plan (its file) and policy (its name there), both required; horizon, cameras
    (theirs:ours;...), state (names joined by ;), rate_hz, task.
    """
    o = context.option
    known = {'plan', 'policy', 'horizon', 'cameras', 'state', 'rate_hz', 'task'}
    unknown = sorted(set(context.options) - known)
    if unknown:
        raise InputError(f'policy knows no option {unknown[0]!r}; known: {", ".join(sorted(known))}')
    declared = read_plan(o('plan')).policies
    if o('policy') not in declared:
        raise UnknownName('policy of the plan', o('policy'), declared)
    sample = next(iter(context.training()), None)
    if sample is None:
        raise InputError(f'{context.dataset} has no training episode to take shapes from')
    return open_offline(
        declared[o('policy')], name=o('policy'), sample=sample, rate_hz=_number(context, 'rate_hz'),
        cameras=_cameras(o('cameras', '')), state=o('state').split(';') if 'state' in context.options else None,
        horizon=int(_number(context, 'horizon') or 1), task=o('task', ''), seed=context.seed,
    )  # fmt: skip


def _number(context: PredictorContext, name: str) -> float | None:
    text = context.options.get(name)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InputError(f'{name} is {text!r}, wanted a number') from None


def _cameras(text: str) -> dict[str, str] | None:
    if not text:
        return None
    pairs = [pair.partition(':') for pair in text.split(';')]
    if any(not separator or not own or not theirs for own, separator, theirs in pairs):
        raise InputError(
            f"cameras is {text!r}, wanted the policy's name and the dataset's: front:image;wrist:wrist_image"
        )
    return {own: theirs for own, _, theirs in pairs}
