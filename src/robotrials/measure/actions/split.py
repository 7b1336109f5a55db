"""Which episodes are evaluated and which may be learned from: whole episodes, recorded in a file with a hash."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import TEST_SPLITS, ActionDataset, RecordedEpisode, check_split, evaluation_split
from robotrials.formats.space import ActionSpace, FloatArray, parse_action_type
from robotrials.old_name import SPLIT_FORMAT
from robotrials.record.folder import write_durably


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSplit:
    """Episodes by (split, index). `seed` is None where the dataset's own evaluation split is used."""

    dataset: str
    counts: tuple[tuple[str, int], ...]  # episodes in each of the dataset's splits: what the split was made for
    test_split: str
    test: tuple[int, ...]
    train_split: str
    train: tuple[int, ...]
    seed: int | None = None

    @property
    def test_ids(self) -> tuple[str, ...]:
        return tuple(f'{self.dataset}/{self.test_split}/{i}' for i in self.test)

    @property
    def train_ids(self) -> tuple[str, ...]:
        return tuple(f'{self.dataset}/{self.train_split}/{i}' for i in self.train)

    @property
    def hash(self) -> str:
        """SHA-256 over the dataset's name and the evaluated and training episode ids, one per line."""
        lines = [self.dataset, 'test', *self.test_ids, 'train', *self.train_ids]
        return hashlib.sha256('\n'.join(lines).encode()).hexdigest()

    def test_episodes(self, dataset: ActionDataset) -> Iterator[RecordedEpisode]:
        self.check_dataset(dataset)
        return dataset.episodes(self.test_split, only=frozenset(self.test))

    def train_episodes(self, dataset: ActionDataset) -> Iterator[RecordedEpisode]:
        self.check_dataset(dataset)
        return dataset.episodes(self.train_split, only=frozenset(self.train))

    def check_dataset(self, dataset: ActionDataset) -> None:
        """Raise unless the split was made for this dataset as it is now."""
        named_splits = tuple(sorted(dataset.splits.items()))
        if dataset.name != self.dataset or named_splits != self.counts:
            raise InputError(
                f'the split was made for {self.dataset} with {dict(self.counts)} episodes, '
                f'found {dataset.name} with {dict(named_splits)}'
            )

    def as_json(self) -> dict[str, Any]:
        return {
            'format': SPLIT_FORMAT, 'dataset': self.dataset, 'counts': dict(self.counts), 'seed': self.seed,
            'test': list(self.test_ids), 'train': list(self.train_ids), 'hash': self.hash,
        }  # fmt: skip


def make_split(
    dataset: ActionDataset, *, seed: int = 0, test_share: float = 0.1, test_split: str | None = None
) -> EvaluationSplit:
    """The dataset's own test or validation split; else `test_share` of the training episodes, whole and seeded.

    Episodes are ranked by the SHA-256 of `SEED:EPISODE_ID`, so that anyone can rebuild the split in any language.
    """
    counts = tuple(sorted(dataset.splits.items()))
    own = check_split(dataset, test_split) if test_split else evaluation_split(dataset.splits)
    train_split = 'train' if 'train' in dataset.splits else next((n for n, _ in counts if n != own), '')
    if own is not None and own != train_split:
        return EvaluationSplit(
            dataset=dataset.name, counts=counts, test_split=own, test=tuple(range(dataset.splits[own])),
            train_split=train_split, train=tuple(range(dataset.splits.get(train_split, 0))),
        )  # fmt: skip
    total = dataset.splits.get(train_split, 0)
    if not 0 < test_share < 1:
        raise InputError(f'test_share is {test_share}, wanted a share between 0 and 1')
    if total < 2:
        raise InputError(f'{dataset.name}: {total} episodes; a split by whole episodes needs at least 2')
    names = [f'{seed}:{dataset.name}/{train_split}/{i}' for i in range(total)]
    ranked = sorted(range(total), key=lambda i: hashlib.sha256(names[i].encode()).digest())
    size = min(total - 1, max(1, round(total * test_share)))
    return EvaluationSplit(
        dataset=dataset.name, counts=counts, test_split=train_split, test=tuple(sorted(ranked[:size])),
        train_split=train_split, train=tuple(sorted(ranked[size:])), seed=seed,
    )  # fmt: skip


def write_split(split: EvaluationSplit, path: Path | str) -> Path:
    target = Path(path)
    write_durably(target, json.dumps(split.as_json(), indent=1) + '\n')
    return target


def read_split(path: Path | str) -> EvaluationSplit:
    """Read a split and check its hash."""
    target = Path(path)
    try:
        values = json.loads(target.read_text(encoding='utf-8'))
        if values.get('format') != SPLIT_FORMAT:
            raise InputError(f'{target}: format is {values.get("format")!r}, wanted {SPLIT_FORMAT!r}')
        split = EvaluationSplit(
            dataset=values['dataset'],
            counts=tuple(sorted((k, int(v)) for k, v in values['counts'].items())),
            **_places('test', values['test'], values['dataset'], target),
            **_places('train', values['train'], values['dataset'], target),
            seed=values['seed'],
        )
    except (OSError, json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'{target}: not readable as a split ({error!r})') from error
    if split.hash != values.get('hash'):
        raise InputError(f'{target}: the hash does not fit the episodes; the file was changed after it was written')
    shared_ids = set(split.test_ids) & set(split.train_ids)
    if shared_ids:
        raise InputError(f'{target}: {min(shared_ids)} is both evaluated and trained on')
    return split


def _places(role: str, ids: list[str], dataset: str, path: Path) -> dict[str, Any]:
    parts = [i.removeprefix(f'{dataset}/').rpartition('/') for i in ids]
    splits = {split for split, _, _ in parts}
    if len(splits) > 1:
        raise InputError(f'{path}: the {role} episodes come from several splits: {", ".join(sorted(splits))}')
    return {f'{role}_split': next(iter(splits), ''), role: tuple(int(number) for _, _, number in parts)}


# What the training episodes say of the actions. These numbers may be shown to a model; the evaluated ones may not.

RESERVOIR_ROWS = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class ActionStatistics:
    """Minimum, maximum, mean, standard deviation, 1st and 99th percentile of each dimension, (D,) each.

    `episode_ids` are the episodes they were computed from. Percentiles come from a seeded sample of at most 200,000
    timesteps, the rest from all of them.
    """

    minimum: FloatArray
    maximum: FloatArray
    mean: FloatArray
    deviation: FloatArray
    q01: FloatArray
    q99: FloatArray
    n_timesteps: int
    episode_ids: frozenset[str]

    @property
    def size(self) -> int:
        return len(self.mean)

    def as_json(self) -> dict[str, Any]:
        names = ('minimum', 'maximum', 'mean', 'deviation', 'q01', 'q99')
        return {**{n: getattr(self, n).tolist() for n in names}, 'n_timesteps': self.n_timesteps,
                'n_episodes': len(self.episode_ids)}  # fmt: skip


def action_statistics(episodes: Iterable[RecordedEpisode], *, seed: int = 0) -> ActionStatistics:
    """Statistics of the actions of some episodes, in one pass; memory does not grow with their number."""
    rng = np.random.default_rng(seed)
    ids: set[str] = set()
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    low, high = np.zeros(0), np.zeros(0)
    kept: FloatArray = np.zeros((0, 0))
    for episode in episodes:
        actions = np.asarray(episode.actions, dtype=np.float64)
        if episode.episode_id in ids:
            raise InputError(f'{episode.episode_id} is twice among the training episodes')
        if not ids:
            size = actions.shape[1]
            mean, squares, kept = np.zeros(size), np.zeros(size), np.empty((0, size))
            low, high = np.full(size, np.inf), np.full(size, -np.inf)
        ids.add(episode.episode_id)
        total = count + len(actions)
        # Chan's pairwise update of mean and sum of squares.
        shift = actions.mean(axis=0) - mean
        squares = (
            squares + ((actions - actions.mean(axis=0)) ** 2).sum(axis=0) + shift**2 * count * len(actions) / total
        )
        mean = mean + shift * len(actions) / total
        low, high = np.minimum(low, actions.min(axis=0)), np.maximum(high, actions.max(axis=0))
        kept = _sample(kept, actions, seen=count, rng=rng)
        count = total
    if not ids:
        raise InputError('no training episodes, so no action statistics; give a split that has some')
    q01, q99 = np.quantile(kept, [0.01, 0.99], axis=0)
    return ActionStatistics(low, high, mean, np.sqrt(squares / count), q01, q99, count, frozenset(ids))


def _sample(kept: FloatArray, rows: FloatArray, *, seen: int, rng: np.random.Generator) -> FloatArray:
    """Reservoir sampling, a batch of rows at a time."""
    room = max(0, RESERVOIR_ROWS - len(kept))
    kept = np.concatenate([kept, rows[:room]]) if room else kept
    for number, row in enumerate(rows[room:], start=seen + room):
        place = int(rng.integers(number + 1))
        if place < RESERVOIR_ROWS:
            kept[place] = row
    return kept


def check_no_leak(statistics: ActionStatistics, evaluated: Iterable[str]) -> None:
    """Refuse statistics (or examples) that came from an episode that is to be evaluated."""
    leaked = sorted(statistics.episode_ids & set(evaluated))
    if leaked:
        raise InputError(
            f'{len(leaked)} evaluated episodes, such as {leaked[0]}, are among those the statistics came from; '
            'compute the statistics from the training split'
        )


# Which datasets to keep: MultiNet's rule of section 3.1.1, with a reason for every decision.


QUALITY_EXCLUSIONS: Mapping[str, str] = {
    'austin_buds_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
    'austin_sailor_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
    'stanford_kuka_multimodal_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDescription:
    """The features that the rule compares, the robot first; `splits` decides whether it applies at all."""

    name: str
    robot: str
    morphology: str
    gripper: str
    action_space: str
    rgb_cameras: int
    depth_cameras: int
    wrist_cameras: int
    has_language: bool
    has_calibration: bool
    has_proprioception: bool
    episodes: int
    splits: tuple[str, ...] = ('train',)

    @property
    def is_train_only(self) -> bool:
        return not set(self.splits) & set(TEST_SPLITS)

    @property
    def profile(self) -> tuple[object, ...]:
        """Everything that must be identical for two datasets to be redundant."""
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in UNCOMPARED)


UNCOMPARED = frozenset({'name', 'episodes', 'splits'})


@dataclass(frozen=True, slots=True)
class CurationDecision:
    name: str
    is_kept: bool
    reason: str


def curate(
    descriptions: Sequence[DatasetDescription], *, excluded: Mapping[str, str] = QUALITY_EXCLUSIONS
) -> list[CurationDecision]:
    """Quality exclusions first; then, of train-only datasets with one robot and one profile, the largest stays.

    Equal sizes keep the first name in the alphabet. Datasets with an evaluation split of their own always stay.
    """
    names = [d.name for d in descriptions]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f'{twice[0]} is described more than once')
    largest: dict[tuple[object, ...], DatasetDescription] = {}
    for d in sorted(descriptions, key=lambda d: (-d.episodes, d.name)):
        if d.name not in excluded and d.is_train_only:
            largest.setdefault(d.profile, d)
    return [_decide(d, excluded, largest) for d in descriptions]


def _decide(
    d: DatasetDescription, excluded: Mapping[str, str], largest: Mapping[tuple[object, ...], DatasetDescription]
) -> CurationDecision:
    if d.name in excluded:
        return CurationDecision(d.name, False, f'excluded: {excluded[d.name]}')
    if not d.is_train_only:
        own = ', '.join(s for s in d.splits if s in TEST_SPLITS)
        return CurationDecision(d.name, True, f'has its own evaluation split ({own}); the rule does not apply')
    kept = largest[d.profile]
    if kept is d:
        return CurationDecision(d.name, True, f'the only or largest dataset of its profile on {d.robot}')
    relation = f'{kept.episodes} episodes against {d.episodes}'
    return CurationDecision(
        d.name, False, f'same robot ({d.robot}) and same profile as {kept.name}, which has {relation}'
    )


def read_descriptions(path: Path | str) -> list[DatasetDescription]:
    """Descriptions from a JSON list of objects with the fields of DatasetDescription."""
    target = Path(path)
    try:
        rows = json.loads(target.read_text(encoding='utf-8'))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f'{target}: not readable as JSON ({error})') from error
    if not isinstance(rows, list):
        raise InputError(f'{target}: wanted a list of descriptions, found {type(rows).__name__}')
    descriptions = []
    for number, row in enumerate(rows):
        try:
            descriptions.append(DatasetDescription(**{**row, 'splits': tuple(row.get('splits', ('train',)))}))
        except (TypeError, AttributeError) as error:
            raise InputError(f'{target}: description {number}: {error}') from error
    return descriptions


# The datasets of MultiNet v0.1, as far as its tables can be read.

MODELS = ('GPT', 'OpenVLA', 'JAT')


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDataset:
    """One row of Tables 1 and 3; results of Tables 2 and 4 by model where it has them. Unreadable cells are None."""

    name: str
    title: str
    covered_by: frozenset[str]
    coverage_unknown: frozenset[str] = frozenset()
    action_type: str | None  # '' where the table prints a dash
    in_pretraining: bool | None = None
    note: str = ''
    amse: Mapping[str, float] = field(default_factory=dict)
    namse: Mapping[str, float] = field(default_factory=dict)
    completion_percent: Mapping[str, float] = field(default_factory=dict)

    @property
    def space(self) -> ActionSpace | None:
        """The make-up of the action space, where the table says it; its order is not told."""
        return parse_action_type(self.action_type) if self.action_type else None

    def is_covered_by(self, model: str) -> bool | None:
        """Whether a model was profiled on it; None where the mark is unreadable."""
        if model not in MODELS:
            raise UnknownName('model of the paper', model, MODELS)
        return None if model in self.coverage_unknown else model in self.covered_by


@functools.cache
def load_datasets() -> Mapping[str, RegisteredDataset]:
    """Every dataset of the paper by its registered name."""
    text = resources.files('robotrials.measure.actions').joinpath('data/multinet.toml').read_text(encoding='utf-8')
    return {name: _dataset(name, row) for name, row in tomllib.loads(text).items()}


def find_dataset(name: str) -> RegisteredDataset:
    known = load_datasets()
    if name not in known:
        raise UnknownName('dataset', name, known)
    return known[name]


def _dataset(name: str, row: dict[str, object]) -> RegisteredDataset:
    values = dict(row)
    values['title'] = values.pop('short_title', values['title'])
    values['covered_by'] = frozenset(values['covered_by'])  # type: ignore[call-overload]
    values['coverage_unknown'] = frozenset(values.get('coverage_unknown', ()))  # type: ignore[call-overload]
    if values.pop('action_type_unknown', False):
        values['action_type'] = None
    return RegisteredDataset(name=name, **values)  # type: ignore[arg-type]
