"""LeRobotDataset folders, versions 2.0, 2.1 and 3.0, as recorded actions to predict; read without LeRobot.

Images inside the Parquet files are read. Cameras stored as video are named, and decoded where PyAV is installed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trialist.errors import InputError
from trialist.formats.dataset import RecordedEpisode, RecordedImage, check_split
from trialist.formats.lerobot_frame import EpisodeFrames, encoded_images, stream_frames
from trialist.formats.lerobot_layout import FeatureInfo, Layout, read_layout
from trialist.formats.space import ActionSpace
from trialist.formats.video import VideoFrames


@dataclass(frozen=True, slots=True)
class LeRobotDataset:
    """A LeRobotDataset. Open it with `LeRobotDataset.open`."""

    layout: Layout
    name: str
    space: ActionSpace

    @classmethod
    def open(cls, path: Path | str) -> LeRobotDataset:
        """Open the folder with `meta/info.json` in it."""
        layout = read_layout(path)
        action = layout.features.get('action')
        if action is None:
            raise InputError(f'{layout.path}: meta/info.json declares no feature "action"')
        names = action.names or tuple(f'action[{i}]' for i in range(action.size))
        return cls(layout, layout.path.name, ActionSpace.from_names(names if action.size > 1 else ['action']))

    @property
    def path(self) -> Path:
        return self.layout.path

    @property
    def version(self) -> str:
        return self.layout.version

    @property
    def splits(self) -> Mapping[str, int]:
        return {name: sum(row.index in span for row in self.layout.rows) for name, span in self.layout.ranges.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        return self.layout.cameras

    def episodes(self, split: str, *, only: Container[int] | None = None) -> Iterator[RecordedEpisode]:
        """Stream the episodes of a split in order; `only` picks by index."""
        check_split(self, split)
        span = self.layout.ranges[split]
        wanted = [r for r in self.layout.rows if r.index in span and (only is None or r.index - span.start in only)]
        stored = [key for key, feature in self.layout.features.items() if feature.dtype != 'video']
        for frames in stream_frames(wanted, [key for key in stored if _is_wanted(self.layout.features[key])]):
            yield self._episode(split, frames, index=frames.row.index - span.start)

    def _episode(self, split: str, frames: EpisodeFrames, *, index: int) -> RecordedEpisode:
        row = frames.row
        state = {}
        images: dict[str, Sequence[RecordedImage]] = {}
        for name, feature in self.layout.features.items():
            if not name.startswith('observation'):
                continue
            if feature.dtype == 'image':
                images[_short(name)] = encoded_images(frames, feature)
            elif feature.dtype == 'video':
                place = row.videos[name]
                images[_short(name)] = VideoFrames(place.path, place.start_s, self.layout.fps, row.length)
            elif feature.dtype.startswith('float'):
                state[_short(name)] = frames.numbers[name].reshape(row.length, -1).astype(np.float64)
        return RecordedEpisode(
            dataset=self.name,
            split=split,
            index=index,
            actions=frames.numbers['action'].reshape(row.length, -1).astype(np.float64),
            instructions=instructions(self.layout, frames),
            state=state,
            images=images,
            time_s=frames.numbers['timestamp'].astype(np.float64),
            metadata={'episode_index': str(row.index)},
        )


def _is_wanted(feature: FeatureInfo) -> bool:
    return feature.key in ('action', 'timestamp', 'task_index') or (
        feature.key.startswith('observation') and (feature.is_camera or feature.dtype.startswith('float'))
    )


def instructions(layout: Layout, frames: EpisodeFrames) -> tuple[str, ...]:
    """The language of an episode: one text for all its frames, or one per frame where it changes."""
    numbers = frames.numbers.get('task_index')
    if numbers is not None and len(numbers):
        distinct = np.unique(numbers).tolist()
        if all(number in layout.tasks for number in distinct):
            if len(distinct) == 1:
                return (layout.tasks[distinct[0]],)
            return tuple(layout.tasks[number] for number in numbers.tolist())
    return frames.row.tasks[:1]


def _short(name: str) -> str:
    return name.removeprefix('observation.images.').removeprefix('observation.')
