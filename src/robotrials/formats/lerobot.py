"""LeRobotDataset folders, versions 2.0, 2.1 and 3.0, as recorded actions to predict; read without LeRobot.

Images inside the Parquet files are read. Cameras stored as video are named, and decoded where PyAV is installed.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import RecordedEpisode, RecordedImage, check_split
from robotrials.formats.lerobot_frame import EpisodeFrames, encoded_images, stream_frames
from robotrials.formats.lerobot_layout import Layout, read_layout
from robotrials.formats.space import ActionSpace
from robotrials.formats.video import VideoFrames

# Which feature of a LeRobot folder is what: by LeRobot's own names, by those of openpi and RADAR, by GR00T's
# `modality.json`, or as you say.
# LeRobot observation.state, observation.images.NAME, action openpi, RADAR state, image, wrist_image, ..., actions
# GR00T meta/modality.json: named slices of state and action, names of cameras

ACTION_NAMES = ('action', 'actions')
BOOKKEEPING = ('timestamp', 'frame_index', 'episode_index', 'index', 'task_index', 'subtask_index', 'reward', 'success')
OBSERVATION = 'observation'
ROLES = ('action', 'state')


@dataclass(frozen=True, slots=True)
class Slice:
    """Some numbers of a vector feature; without an end, all of them."""

    feature: str
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class FeatureNames:
    """The feature of the action, and the observations under the names that a model sees them by."""

    action: str
    action_names: tuple[str, ...]
    state: Mapping[str, Slice]
    images: Mapping[str, str]
    instruction: str  # the column that numbers the task


Features = Mapping[str, Mapping[str, Any]]


def find_names(root: Path, features: Features, *, given: Mapping[str, str] | None = None) -> FeatureNames:
    """What each feature is. `given` maps a role (action, state) to a feature where the folder's names say nothing."""
    said = dict(given or {})
    for role, feature in said.items():
        if role not in ROLES:
            raise UnknownName('role of a feature', role, ROLES)
        if feature not in features:
            raise UnknownName(f'feature (for {role}) of {root.name}', feature, features)
    modality = read_modality(root / 'meta' / 'modality.json')
    action = said.get('action') or _action(root, features, modality)
    state = _state(features, modality, action, said.get('state'))
    images = {short(n): n for n, f in features.items() if f['dtype'] in ('image', 'video')}
    for name, part in modality.get('video', {}).items():
        feature = str(part.get('original_key') or f'observation.images.{name}')
        if feature in features:
            images = {n: f for n, f in images.items() if f != feature} | {str(name): feature}
    return FeatureNames(action, _action_names(features, modality, action), state, images, _instruction(modality))


def short(name: str) -> str:
    """A feature's name without LeRobot's prefixes."""
    return name.removeprefix('observation.images.').removeprefix('observation.')


def read_modality(path: Path) -> dict[str, dict[str, Any]]:
    """GR00T's description of the slices; empty without the file."""
    if not path.exists():
        return {}
    try:
        parsed = json.loads(path.read_text(encoding='utf-8'))
        found = {kind: dict(parts) for kind, parts in parsed.items()}
        for kind in ('state', 'action'):
            for name, part in found.get(kind, {}).items():
                if not 0 <= int(part['start']) < int(part['end']):
                    raise ValueError(f'{kind}.{name} goes from {part["start"]} to {part["end"]}')
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f'{path}: not readable as slices of state and action ({error!r})') from error
    return found


def _action(root: Path, features: Features, modality: Mapping[str, Mapping[str, Any]]) -> str:
    named = {str(part['original_key']) for part in modality.get('action', {}).values() if part.get('original_key')}
    for name in (*ACTION_NAMES, *sorted(named)):
        if name in features:
            return name
    floating = [n for n, f in features.items() if str(f['dtype']).startswith('float') and n not in BOOKKEEPING]
    raise InputError(
        f'{root}: meta/info.json declares no feature "action" or "actions"; say which it is (action=NAME): '
        f'{", ".join(floating) or "no floating-point feature is declared"}'
    )


def _state(
    features: Features, modality: Mapping[str, Mapping[str, Any]], action: str, given: str | None
) -> dict[str, Slice]:
    floating = [n for n, f in features.items() if str(f['dtype']).startswith('float')]
    own = [given] if given else [n for n in floating if n.startswith(OBSERVATION)]
    if not own:
        own = [n for n in floating if n not in BOOKKEEPING and n != action and not n.startswith(('action', 'next.'))]
    found = {short(name): Slice(name) for name in own}
    parts = modality.get('state', {})
    for name, part in parts.items():
        feature = str(part.get('original_key') or given or 'observation.state')
        if feature in features:
            found.pop(short(feature), None)
            found[str(name)] = Slice(feature, int(part['start']), int(part['end']))
    return found


def _action_names(features: Features, modality: Mapping[str, Mapping[str, Any]], action: str) -> tuple[str, ...]:
    names = vector_names(features[action])
    for name, part in modality.get('action', {}).items():
        start, end = int(part['start']), int(part['end'])
        if str(part.get('original_key') or action) == action and end <= len(names):
            names[start:end] = [f'{name}[{i}]' for i in range(end - start)] if end - start > 1 else [str(name)]
    return tuple(names)


def _instruction(modality: Mapping[str, Mapping[str, Any]]) -> str:
    keys = [str(part['original_key']) for part in modality.get('annotation', {}).values() if part.get('original_key')]
    return next(iter(keys), 'task_index')


def vector_names(feature: Mapping[str, Any]) -> list[str]:
    """The names of a vector's numbers: a list, a dictionary of one list, or none."""
    size = 1
    for extent in feature['shape']:
        size *= int(extent)
    names = feature.get('names')
    if isinstance(names, Mapping):
        names = next((v for v in names.values() if isinstance(v, list)), list(names))
    if not names or len(names) != size:
        return [f'action[{i}]' for i in range(size)] if size > 1 else ['action']
    twice = {n for n in names if names.count(n) > 1}
    return [f'{n}[{i}]' if n in twice else str(n) for i, n in enumerate(names)]


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
