"""LeRobotDataset folders, versions 2.0, 2.1 and 3.0, as recorded actions to predict; read without LeRobot.

Images inside the Parquet files are read. Cameras stored as video are named, and decoded where PyAV is installed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robotrials.formats.dataset import RecordedEpisode, RecordedImage, check_split
from robotrials.formats.lerobot_frame import EpisodeFrames, encoded_images, stream_frames
from robotrials.formats.lerobot_layout import Layout, read_layout
from robotrials.formats.lerobot_names import FeatureNames, find_names
from robotrials.formats.space import ActionSpace
from robotrials.formats.video import VideoFrames


@dataclass(frozen=True, slots=True)
class LeRobotDataset:
    """A LeRobotDataset. Open it with `LeRobotDataset.open`."""

    layout: Layout
    name: str
    space: ActionSpace
    names: FeatureNames

    @classmethod
    def open(cls, path: Path | str, *, names: Mapping[str, str] | None = None) -> LeRobotDataset:
        """Open the folder with `meta/info.json` in it; `names` says which feature is the action or the state."""
        layout = read_layout(path)
        features = {
            key: {'dtype': f.dtype, 'shape': list(f.shape), 'names': list(f.names)}
            for key, f in layout.features.items()
        }
        found = find_names(layout.path, features, given=names)
        return cls(layout, layout.path.name, ActionSpace.from_names(found.action_names), found)

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
        for frames in stream_frames(wanted, self._columns()):
            yield self._episode(split, frames, index=frames.row.index - span.start)

    def _columns(self) -> list[str]:
        """What is read of the data files: the action, the state, images in the table, times and tasks."""
        named = {self.names.action, *(part.feature for part in self.names.state.values()), *self.names.images.values()}
        named |= {'timestamp', self.names.instruction}
        return [key for key, f in self.layout.features.items() if key in named and f.dtype != 'video']

    def _episode(self, split: str, frames: EpisodeFrames, *, index: int) -> RecordedEpisode:
        row = frames.row
        state = {
            name: frames.numbers[part.feature].reshape(row.length, -1).astype(np.float64)[:, part.start : part.end]
            for name, part in self.names.state.items()
        }
        images: dict[str, Sequence[RecordedImage]] = {}
        for name, source in self.names.images.items():
            feature = self.layout.features[source]
            if feature.dtype == 'image':
                images[name] = encoded_images(frames, feature)
            else:
                place = row.videos[source]
                images[name] = VideoFrames(place.path, place.start_s, self.layout.fps, row.length)
        return RecordedEpisode(
            dataset=self.name,
            split=split,
            index=index,
            actions=frames.numbers[self.names.action].reshape(row.length, -1).astype(np.float64),
            instructions=instructions(self.layout, frames, column=self.names.instruction),
            state=state,
            images=images,
            time_s=frames.numbers['timestamp'].astype(np.float64),
            metadata={'episode_index': str(row.index)},
        )


def instructions(layout: Layout, frames: EpisodeFrames, *, column: str = 'task_index') -> tuple[str, ...]:
    """The language of an episode: one text for all its frames, or one per frame where it changes."""
    numbers = frames.numbers.get(column)
    if numbers is not None and len(numbers):
        distinct = np.unique(numbers).tolist()
        if all(number in layout.tasks for number in distinct):
            if len(distinct) == 1:
                return (layout.tasks[distinct[0]],)
            return tuple(layout.tasks[number] for number in numbers.tolist())
    return frames.row.tasks[:1]
