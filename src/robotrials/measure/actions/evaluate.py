"""Predict every timestep of the evaluated episodes and record it: one store for all datasets and models."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable, RigError
from robotrials.formats.dataset import ActionDataset, RecordedEpisode, RecordedObservation
from robotrials.formats.space import ActionSpace, FloatArray, space_from_json
from robotrials.measure.actions.metric import completes
from robotrials.measure.actions.prediction import (
    ConcurrentPredictor,
    Invalid,
    InvalidReason,
    PredictedEpisode,
    Prediction,
    Predictor,
    PredictorContext,
    as_row,
    load_predictor,
    parse_spec,
    state_vector,
)
from robotrials.measure.actions.split import ActionStatistics, EvaluationSplit, action_statistics, check_no_leak
from robotrials.old_name import ACTIONS_KIND
from robotrials.record import Episode, Outcome, Provenance, Store, Trajectory, read_store

KIND = ACTIONS_KIND
REASONS = tuple(InvalidReason)
REASON_SIGNAL = 'invalid_reason'  # 0 where the answer was valid, else 1 + the place in REASONS
MOST_FAULTS = 3


@dataclass(frozen=True, slots=True)
class RunCount:
    """What a run did."""

    evaluated: int = 0
    already_there: int = 0
    faults: int = 0
    timesteps: int = 0
    invalid: int = 0


def prepare(
    dataset: ActionDataset, split: EvaluationSplit, spec: str, *, seed: int = 0, space: ActionSpace | None = None
) -> tuple[Predictor, ActionStatistics]:
    """Statistics of the training episodes, and the predictor that a specification names."""
    name, options = parse_spec(spec)
    statistics = action_statistics(split.train_episodes(dataset), seed=seed)
    context = PredictorContext(
        dataset=dataset.name, space=space or dataset.space, statistics=statistics,
        training=lambda: split.train_episodes(dataset), evaluated_ids=frozenset(split.test_ids), seed=seed,
        options=options,
    )  # fmt: skip
    return load_predictor(name, context), statistics


def run_actions(
    dataset: ActionDataset,
    predictor: Predictor,
    store_path: Path | str,
    *,
    split: EvaluationSplit,
    statistics: ActionStatistics,
    space: ActionSpace | None = None,
    control_rate_hz: float | None = None,
    limit: int | None = None,
    model_spec: str = '',
    progress: Callable[[RunCount], None] = lambda _: None,
) -> RunCount:
    """Predict the evaluated episodes that the store does not have yet; each is durable once it is done.

    A broken endpoint makes an INVALID episode, to be rerun by the next call; three in a row stop the run.
    """
    check_no_leak(statistics, split.test_ids)
    root = Path(store_path)
    store = Store.open(root) if (root / 'trial.json').exists() else Store.create(root, title='action prediction')
    provenance = describe_run(dataset, split, statistics, space or dataset.space, model_spec or predictor.name)
    provenance_id = store.write_provenance(provenance)
    attempts = _attempts(store, predictor.name, dataset.name)
    count, faults_in_row = RunCount(), 0
    for number, recorded in enumerate(split.test_episodes(dataset)):
        if limit is not None and number >= limit:
            break
        blank = _blank_episode(recorded, predictor.name, split, control_rate_hz, provenance_id)
        known = attempts.get(blank.episode_id, [])
        if any(valid for _, valid in known):
            count = _plus(count, already_there=1)
        else:
            attempt = 1 + max((a for a, _ in known), default=-1)
            again = blank.replace(attempt=attempt)
            episode, trajectories, counts = _evaluate_episode(recorded, predictor, again, control_rate_hz)
            store.append([episode], trajectories=trajectories)
            count = _plus(count, **counts)
            faults_in_row = 0 if episode.is_valid else faults_in_row + 1
            if faults_in_row >= MOST_FAULTS:
                raise RigError(f'{MOST_FAULTS} episodes in a row broke; the last: {episode.reason}')
        progress(count)
    return count


def _evaluate_episode(
    recorded: RecordedEpisode, predictor: Predictor, episode: Episode, rate_hz: float | None
) -> tuple[Episode, dict[tuple[str, int], Trajectory], dict[str, int]]:
    """The episode as predicted, what was recorded of it, and what it adds to the count of the run."""
    try:
        predictions = predict_episode(recorded, predictor)
    except RigError as error:
        broken = episode.replace(outcome=Outcome.INVALID, success=None, reason=str(error))
        return broken, {}, {'faults': 1}
    size = recorded.actions.shape[1]
    rows = np.stack([as_row(p, size) for p in predictions])
    reasons = [p.reason if isinstance(p, Invalid) else None for p in predictions]
    codes = np.array([0 if r is None else 1 + REASONS.index(r) for r in reasons], dtype=np.float64)
    chosen = [i for i in range(size) if not np.isnan(rows[:, i]).all()]
    success = bool(chosen) and reasons[-1] is None and completes(rows[:, chosen], recorded.actions[:, chosen])
    tally = Counter(f'invalid_{r.value}' for r in reasons if r is not None)
    labels = {**episode.labels, **{key: str(n) for key, n in sorted(tally.items())}}
    finished = episode.replace(
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE, success=success, labels=labels,
        started_at=dt.datetime.now(dt.UTC),
    )  # fmt: skip
    trajectory = Trajectory(
        time_s=_times(recorded, rate_hz), action_raw=recorded.actions, action_predicted=rows,
        extra={REASON_SIGNAL: codes},
    )  # fmt: skip
    counts = {'evaluated': 1, 'timesteps': len(rows), 'invalid': sum(tally.values())}
    return finished, {finished.key: trajectory}, counts


def predict_episode(recorded: RecordedEpisode, predictor: Predictor) -> list[Prediction]:
    """A prediction for every timestep, in order; several at once where the predictor allows it."""
    predictor.start(recorded.episode_id, recorded.instruction())
    workers = predictor.concurrency if isinstance(predictor, ConcurrentPredictor) else 1
    if workers <= 1:
        return [predictor.predict(recorded.observation(t), recorded.instruction(t)) for t in range(recorded.n_steps)]
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(predictor.predict, recorded.observation(t), recorded.instruction(t))
            for t in range(recorded.n_steps)
        ]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def describe_run(
    dataset: ActionDataset, split: EvaluationSplit, statistics: ActionStatistics, space: ActionSpace, model_spec: str
) -> Provenance:
    """Everything that scoring the run later needs, as the provenance of its episodes."""
    config = {
        'kind': KIND, 'dataset': dataset.name, 'split': split.test_split, 'split_hash': split.hash,
        'split_seed': split.seed, 'model': model_spec, 'space': space.as_json(), 'training': statistics.as_json(),
    }  # fmt: skip
    return Provenance(config=json.dumps(config, sort_keys=True), environment_id=dataset.name)


def _blank_episode(
    recorded: RecordedEpisode, policy: str, split: EvaluationSplit, rate_hz: float | None, provenance_id: str
) -> Episode:
    """The episode before its prediction: its identity is what resuming looks for."""
    rate = {} if rate_hz is None and recorded.time_s is None else {'time': 'recorded'}
    return Episode(
        policy=policy, task=recorded.instruction() or recorded.dataset, outcome=Outcome.FAILURE,
        duration_s=float(_times(recorded, rate_hz)[-1]), trial_id=f'actions-{split.hash[:16]}',
        benchmark=recorded.dataset, stratum=recorded.split, instance=recorded.index,
        instruction=recorded.instruction(), provenance_id=provenance_id,
        labels={'kind': KIND, 'recorded_episode': recorded.episode_id, **(rate or {'time': 'steps'})},
    )  # fmt: skip


def _times(recorded: RecordedEpisode, rate_hz: float | None) -> Any:
    if recorded.time_s is not None:
        return recorded.time_s
    return np.arange(recorded.n_steps) / (rate_hz or 1.0)


def _attempts(store: Store, policy: str, dataset: str) -> dict[str, list[tuple[int, bool]]]:
    attempts: dict[str, list[tuple[int, bool]]] = {}
    where = {'policy': policy, 'benchmark': dataset}
    for episode in store.episodes(where=where, attempts='all', dropped=True, events=False):
        attempts.setdefault(episode.episode_id, []).append((episode.attempt, episode.is_valid))
    return attempts


def _plus(count: RunCount, **more: int) -> RunCount:
    values = {name: getattr(count, name) for name in RunCount.__dataclass_fields__}
    return RunCount(**{name: value + more.get(name, 0) for name, value in values.items()})


# --- reading a run back


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActionRun:
    """The recorded predictions of one model on one dataset."""

    dataset: str
    model: str
    space: ActionSpace
    training_mean: np.ndarray[Any, Any]
    training_range: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # least and largest training action, (D,)
    split_hash: str
    episodes: tuple[PredictedEpisode, ...]
    n_faults: int  # INVALID episodes: the endpoint broke; never scored
    reasons: dict[str, int]  # invalid answers by reason


def read_runs(path: Path | str) -> list[ActionRun]:
    """Every run in a store, by dataset and model."""
    store = read_store(path)
    groups: dict[tuple[str, str], list[PredictedEpisode]] = {}
    origin: dict[tuple[str, str], str] = {}
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for episode, trajectory in store.trajectories(where=None):
        if episode.labels.get('kind') != KIND or not episode.is_valid:
            continue
        key = (episode.benchmark, episode.policy)
        if origin.setdefault(key, episode.provenance_id) != episode.provenance_id:
            _check_same(store, origin[key], episode.provenance_id, key, path)
        assert trajectory.action_predicted is not None
        assert trajectory.action_raw is not None
        groups.setdefault(key, []).append(
            PredictedEpisode(
                episode_id=episode.labels['recorded_episode'],
                predicted=np.asarray(trajectory.action_predicted),
                target=np.asarray(trajectory.action_raw),
            )
        )
        codes = np.asarray(trajectory.extra[REASON_SIGNAL]).astype(int)
        reasons.setdefault(key, Counter()).update(REASONS[c - 1].value for c in codes[codes > 0])
    faults = Counter(
        (e.benchmark, e.policy) for e in store.episodes(events=False)
        if e.labels.get('kind') == KIND and not e.is_valid
    )  # fmt: skip
    if not groups:
        raise InputError(f'{path}: no predicted actions in it; `robotrials actions run --out {path}` records some')
    return [
        _run(key, groups[key], _config(store, origin[key]), faults[key], dict(reasons[key])) for key in sorted(groups)
    ]


def _config(store: Store, provenance_id: str) -> dict[str, Any]:
    config = json.loads(store.provenance(provenance_id).config)
    if config.get('kind') != KIND:
        raise InputError(f'{store.path}: provenance {provenance_id} is not of an action run')
    return dict(config)


def _check_same(store: Store, first: str, second: str, key: tuple[str, str], path: Path | str) -> None:
    first_config, other = _config(store, first), _config(store, second)
    if first_config['split_hash'] != other['split_hash'] or first_config['space'] != other['space']:
        raise InputError(
            f'{path}: {key[1]} predicted {key[0]} on two different splits or action spaces; keep them in two stores'
        )


def _run(
    key: tuple[str, str], episodes: list[PredictedEpisode], config: dict[str, Any], faults: int, reasons: dict[str, int]
) -> ActionRun:
    return ActionRun(
        dataset=key[0], model=key[1], space=space_from_json(config['space'], where=f'{key[0]}, {key[1]}'),
        training_mean=np.array(config['training']['mean']),
        training_range=(np.array(config['training']['minimum']), np.array(config['training']['maximum'])),
        split_hash=config['split_hash'],
        episodes=tuple(sorted(episodes, key=lambda e: e.episode_id)), n_faults=faults, reasons=reasons,
    )  # fmt: skip


# Baselines that any model has to beat: the training mean, and the action of the most similar training moment.


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
        return (state - self.center) / self.scale


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
        self.name = name
        self._data, self._squares = data, (data.states**2).sum(axis=1)

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        if not observation.state:
            return Invalid(InvalidReason.UNPREDICTABLE, 'no state in the observation')
        state = self._data.standardize(state_vector(observation))
        distance = self._squares - 2 * self._data.states @ state
        return np.asarray(self._data.actions[int(np.argmin(distance))])


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
        return np.asarray(_forward(list(self.layers), hidden)[-1][0] * self.action_scale + self.action_center)


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
    gradients: list[FloatArray] = []
    for number in reversed(range(len(layers))):
        before = activations[number]
        gradients = [before.T @ slope, slope.sum(axis=0), *gradients]
        slope = (slope @ layers[number][0].T) * (1 - before**2)
    return gradients


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
