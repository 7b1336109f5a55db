"""Which episodes are evaluated and which may be learned from: whole episodes, recorded in a file with a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.formats.dataset import ActionDataset, RecordedEpisode, check_split, evaluation_split
from robotrials.formats.space import FloatArray
from robotrials.old_name import SPLIT_FORMAT
from robotrials.record.folder import write_durably

FORMAT = SPLIT_FORMAT


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
        """SHA-256 over the dataset's name and the evaluated and training episode ids, one a line."""
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
        found = tuple(sorted(dataset.splits.items()))
        if dataset.name != self.dataset or found != self.counts:
            raise InputError(
                f'the split was made for {self.dataset} with {dict(self.counts)} episodes, '
                f'found {dataset.name} with {dict(found)}'
            )

    def as_json(self) -> dict[str, Any]:
        return {
            'format': FORMAT, 'dataset': self.dataset, 'counts': dict(self.counts), 'seed': self.seed,
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
    ranked = sorted(range(total), key=lambda i: _rank(seed, f'{dataset.name}/{train_split}/{i}'))
    size = min(total - 1, max(1, round(total * test_share)))
    return EvaluationSplit(
        dataset=dataset.name, counts=counts, test_split=train_split, test=tuple(sorted(ranked[:size])),
        train_split=train_split, train=tuple(sorted(ranked[size:])), seed=seed,
    )  # fmt: skip


def _rank(seed: int, episode_id: str) -> bytes:
    return hashlib.sha256(f'{seed}:{episode_id}'.encode()).digest()


def write_split(split: EvaluationSplit, path: Path | str) -> Path:
    target = Path(path)
    write_durably(target, json.dumps(split.as_json(), indent=1) + '\n')
    return target


def read_split(path: Path | str) -> EvaluationSplit:
    """Read a split and check its hash."""
    target = Path(path)
    try:
        values = json.loads(target.read_text(encoding='utf-8'))
        if values.get('format') != FORMAT:
            raise InputError(f'{target}: format is {values.get("format")!r}, wanted {FORMAT!r}')
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
    both = set(split.test_ids) & set(split.train_ids)
    if both:
        raise InputError(f'{target}: {min(both)} is both evaluated and trained on')
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
