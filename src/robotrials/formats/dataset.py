"""Recorded episodes to predict, whatever folder they come from."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.formats.video import EncodedImage, VideoFrame

RecordedImage = EncodedImage | VideoFrame | NDArray[Any]
TEST_SPLITS = ('test', 'validation', 'valid', 'val', 'eval')


@dataclass(frozen=True, slots=True, eq=False)
class RecordedObservation:
    """What a model may see at one timestep: named numbers, and named images that decode when looked at."""

    state: Mapping[str, FloatArray] = field(default_factory=dict)  # name -> (K,)
    images: Mapping[str, RecordedImage] = field(default_factory=dict)

    def image(self, name: str) -> NDArray[Any]:
        """The pixels of one image, (height, width, channels)."""
        if name not in self.images:
            raise UnknownName('image of the observation', name, self.images)
        frames = self.images[name]
        return frames if isinstance(frames, np.ndarray) else frames.array()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordedEpisode:
    """One recorded episode of T steps."""

    dataset: str
    split: str
    index: int  # its place in the split
    actions: FloatArray  # (T, D)
    instructions: tuple[str, ...] = ()  # one a step, or one for all, or none
    state: Mapping[str, FloatArray] = field(default_factory=dict)  # name -> (T, K)
    images: Mapping[str, Sequence[RecordedImage]] = field(default_factory=dict)  # name -> T
    time_s: FloatArray | None = None  # (T,), where the recording says
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.actions.ndim != 2 or self.actions.shape[0] == 0:
            raise InputError(f'{self.episode_id}: actions of shape {self.actions.shape}, wanted (T, D) with T > 0')
        lengths = {**{k: len(v) for k, v in self.state.items()}, **{k: len(v) for k, v in self.images.items()}}
        for name, length in lengths.items():
            if length != self.n_steps:
                raise InputError(f'{self.episode_id}: {name} has {length} steps, the actions {self.n_steps}')
        if len(self.instructions) not in (0, 1, self.n_steps):
            raise InputError(f'{self.episode_id}: {len(self.instructions)} instructions for {self.n_steps} steps')

    @property
    def episode_id(self) -> str:
        return f'{self.dataset}/{self.split}/{self.index}'

    @property
    def n_steps(self) -> int:
        return int(self.actions.shape[0])

    def instruction(self, step: int = 0) -> str:
        if not self.instructions:
            return ''
        return self.instructions[step if len(self.instructions) > 1 else 0]

    def observation(self, step: int) -> RecordedObservation:
        state = {name: np.atleast_1d(values[step]) for name, values in self.state.items()}
        return RecordedObservation(state, {name: images[step] for name, images in self.images.items()})


class ActionDataset(Protocol):
    """A folder of recorded episodes in named splits."""

    @property
    def name(self) -> str: ...

    @property
    def space(self) -> ActionSpace: ...

    @property
    def splits(self) -> Mapping[str, int]:
        """How many episodes each split has."""

    def episodes(self, split: str, *, only: Container[int] | None = None) -> Iterator[RecordedEpisode]:
        """Stream a split in order, one episode in memory at a time; `only` picks by index."""


def open_dataset(
    path: Path | str, *, floating_only: bool = False, names: Mapping[str, str] | None = None
) -> ActionDataset:
    """Open an RLDS/TFDS folder or a LeRobotDataset folder, told apart by their metadata files.

    `names` says which feature of a LeRobot folder is the action or the state, where its own names do not.
    """
    from robotrials.formats.lerobot import LeRobotDataset
    from robotrials.formats.rlds import RldsDataset, find_tfds_folder

    root = Path(path)
    if not root.is_dir():
        raise InputError(f'{root}: no such folder; wanted an RLDS/TFDS or LeRobotDataset folder')
    if (root / 'meta' / 'info.json').exists():
        return LeRobotDataset.open(root, names=names)
    if names:
        raise InputError(f'{root}: names of features are for LeRobot folders, found {dict(names)}')
    folder = find_tfds_folder(root)
    if folder is None:
        raise InputError(
            f'{root}: neither an RLDS/TFDS folder (dataset_info.json, features.json) nor a LeRobotDataset '
            '(meta/info.json)'
        )
    return RldsDataset.open(folder, floating_only=floating_only)


def check_split(dataset: ActionDataset, split: str) -> str:
    if split not in dataset.splits:
        raise UnknownName(f'split of {dataset.name}', split, dataset.splits)
    return split


def evaluation_split(splits: Mapping[str, int]) -> str | None:
    """The dataset's own test or validation split, or None where it has only training episodes."""
    return next((name for name in TEST_SPLITS if splits.get(name)), None)
