"""LeRobotDatasets, versions 2.0, 2.1 and 3.0, read without LeRobot: as episodes to predict and as rollouts to import.

Images inside the Parquet files are read. Cameras stored as video are named, and decoded where PyAV is installed. On
import, frames become trajectories, `next.*` outcomes, and language phases.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import RecordedEpisode, RecordedImage, check_split
from robotrials.formats.imported import (
    CERTAIN,
    ImportAccount,
    Imported,
    ImportOptions,
    Question,
    Recording,
    refuse_unused,
)
from robotrials.formats.lerobot_layout import (
    PLACE_COLUMNS,
    DatasetLayout,
    EpisodeFrames,
    FeatureInfo,
    LeRobotEpisode,
    OwnRecord,
    column_names,
    encoded_images,
    read_layout,
    read_own,
    stream_frames,
)
from robotrials.formats.rollout import (
    SETTABLE,
    Assignment,
    CameraClip,
    RolloutRecorder,
    SourceRollout,
    account_signals,
    assign,
    camera_question,
    check_finite,
    import_rollouts,
    nan_question,
    take_signals,
)
from robotrials.formats.space import ActionSpace
from robotrials.formats.video import FrameClip, VideoClip, VideoFrames
from robotrials.record import Outcome, Provenance
from robotrials.record.episode import parse_field

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
        slices = {kind: dict(parts) for kind, parts in parsed.items()}
        for kind in ('state', 'action'):
            for name, part in slices.get(kind, {}).items():
                if not 0 <= int(part['start']) < int(part['end']):
                    raise ValueError(f'{kind}.{name} goes from {part["start"]} to {part["end"]}')
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f'{path}: not readable as slices of state and action ({error!r})') from error
    return slices


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
    slices = {short(name): Slice(name) for name in own}
    parts = modality.get('state', {})
    for name, part in parts.items():
        feature = str(part.get('original_key') or given or 'observation.state')
        if feature in features:
            slices.pop(short(feature), None)
            slices[str(name)] = Slice(feature, int(part['start']), int(part['end']))
    return slices


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

    layout: DatasetLayout
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
        feature_names = find_names(layout.path, features, given=names)
        return cls(layout, layout.path.name, ActionSpace.from_names(feature_names.action_names), feature_names)

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


def instructions(layout: DatasetLayout, frames: EpisodeFrames, *, column: str = 'task_index') -> tuple[str, ...]:
    """The language of an episode: one text for all its frames, or one per frame where it changes."""
    numbers = frames.numbers.get(column)
    if numbers is not None and len(numbers):
        first = numbers.reshape(-1)[0]
        distinct = [first.item()] if (numbers == first).all() else np.unique(numbers).tolist()
        if all(number in layout.tasks for number in distinct):
            if len(distinct) == 1:
                return (layout.tasks[distinct[0]],)
            return tuple(layout.tasks[number] for number in numbers.tolist())
    return frames.row.tasks[:1]


# Language of a LeRobotDataset as phases: subtask rows, subtask numbers, and tasks that change within an episode.

LANGUAGE_COLUMNS = ('language_persistent', 'language_events')
STYLE = 'subtask'
Phases = tuple[tuple[float, str], ...]


def phases(frames: EpisodeFrames, texts: Sequence[str], *, subtasks: Mapping[int, str], fps: float) -> Phases:
    """(seconds, name) where each phase of an episode begins, in order."""
    numbers = frames.numbers.get('subtask_index')
    if numbers is not None and subtasks:
        return _changes([subtasks.get(int(n), f'subtask {n}') for n in numbers.reshape(-1)], fps)
    spoken = {*_persistent(frames), *_events(frames, fps)}
    if spoken:
        end_s = frames.row.length / fps
        return tuple(sorted((t_s, name) for t_s, name in spoken if t_s <= end_s))
    return _changes(texts, fps) if len(texts) > 1 else ()


def _changes(names: Sequence[str], fps: float) -> Phases:
    return tuple((i / fps, name) for i, name in enumerate(names) if i == 0 or names[i - 1] != name)


def _persistent(frames: EpisodeFrames) -> set[tuple[float, str]]:
    """Rows that hold from their own timestamp on; every frame may carry all of them."""
    column = frames.others.get('language_persistent')
    if column is None:
        return set()
    start_s = float(frames.numbers['timestamp'].reshape(-1)[0])
    spoken = set()
    for cell in column.to_pylist():
        for row in _subtasks(cell):
            stamp = row.get('timestamp')
            if stamp is None:
                raise InputError(f'{frames.where}: a subtask of language_persistent has no timestamp')
            spoken.add((max(0.0, float(stamp) - start_s), str(row['content'])))
    return spoken


def _events(frames: EpisodeFrames, fps: float) -> set[tuple[float, str]]:
    column = frames.others.get('language_events')
    if column is None:
        return set()
    return {(i / fps, str(row['content'])) for i, cell in enumerate(column.to_pylist()) for row in _subtasks(cell)}


def _subtasks(cell: Any) -> Iterable[Mapping[str, Any]]:
    return (row for row in cell or () if row.get('style') == STYLE and row.get('content'))


def read_subtasks(root: Path) -> Mapping[int, str]:
    """`meta/subtasks.parquet`: number -> text; empty where the dataset has none."""
    path = root / 'meta' / 'subtasks.parquet'
    if not path.exists():
        return {}
    try:
        table = pq.read_table(path).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error
    text = next((c for c in ('subtask', '__index_level_0__') if c in table), None)
    if text is None or 'subtask_index' not in table:
        raise InputError(f'{path}: wanted the columns subtask and subtask_index, found {list(table)}')
    return dict(zip(np.asarray(table['subtask_index']).tolist(), table[text], strict=True))


# Recordings of `lerobot-eval`: an episode is saved only when its environment says that it ended.
# LIBERO's environment never says so of a failure (read in LeRobot 0.6.1), so its recordings hold successes alone, and
# a success rate from them would always be 100 %. What eval_info.json counted decides.

FOLDER = 'recordings'
WHY = (
    'lerobot-eval saves an episode only when its environment reports the end, and LIBERO reports none for a failure: '
    'a rate from these would be too high'
)


def rollouts_question() -> Question:
    """Whether failed rollouts are among those recorded."""
    return Question('rollouts', 'Every recorded episode succeeded. Are all rollouts recorded?', ('all',), None)


def check_rollouts(path: Path, outcomes: Sequence[bool | None], options: ImportOptions) -> None:
    """Raise InputError where the recorded episodes are fewer than those evaluated, or may be successes alone."""
    counted = counted_rollouts(path)
    if counted is not None:
        info, expected, recorded = counted
        if expected != recorded:
            raise InputError(
                f'{path}: {recorded} recorded episodes ({sum(map(bool, outcomes))} of {len(outcomes)} here succeeded), '
                f'{info} counts {expected} rollouts. {WHY}. Import {info.name} for the rate; nothing was imported'
            )
        return
    if outcomes and all(outcomes) and rollouts_question().answer(options) != 'all':
        raise InputError(
            f'{path}: all {len(outcomes)} recorded episodes succeeded, and no eval_info.json says how many there were. '
            f'{WHY}. If no rollout is missing, say --answer rollouts=all; nothing was imported'
        )


def counted_rollouts(path: Path) -> tuple[Path, int, int] | None:
    """The evaluation's own count of this task's rollouts, and how many are recorded; None where it left none."""
    root = path.resolve()
    if FOLDER not in root.parts:
        return None
    at = len(root.parts) - 1 - root.parts[::-1].index(FOLDER)
    top = Path(*root.parts[: at + 1])
    info = top.parent / 'eval_info.json'
    if not info.exists() or at + 1 >= len(root.parts):
        return None
    name = root.parts[at + 1]
    expected = _expected(info, name)
    if expected is None:
        return None
    n_recorded = sum(_total(meta) for meta in sorted((top / name).rglob('meta/info.json')))
    return info, expected, n_recorded


def _expected(info: Path, name: str) -> int | None:
    try:
        values = json.loads(info.read_text(encoding='utf-8'))  # bare NaN, as LeRobot writes it, is taken
    except (OSError, ValueError) as error:
        raise InputError(f'{info}: not readable as JSON ({error})') from error
    entries = values.get('per_task') if isinstance(values, dict) else None
    if not isinstance(entries, list):
        rows = values.get('per_episode') if isinstance(values, dict) else None
        return len(rows) if isinstance(rows, list) else None
    for entry in entries:
        if f'{entry.get("task_group")}_{entry.get("task_id")}' == name:
            successes = entry.get('metrics', {}).get('successes')
            return len(successes) if isinstance(successes, list) else None
    return None


def _total(meta: Path) -> int:
    try:
        return int(json.loads(meta.read_text(encoding='utf-8'))['total_episodes'])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f'{meta}: no total_episodes in it ({error})') from error


KNOWN = {'action_raw': 'action', 'reward': 'next.reward', 'done': 'next.done'}
TOLERANCE_S = 1e-4  # LeRobot's own

# What became of each episode, where the dataset itself does not say: a table beside a recording of `lerobot-record`,
# or the scores and the quality control that EVA-CLIENT writes into meta/episodes.jsonl.

RESULTS = 'results'
EVA_FACTS = ('quality', 'qc_verdict', 'score', 'max_score', 'milestones', 'scored_at')


def unscored_question() -> Question:
    """What an episode is that EVA-CLIENT's operator has not scored."""
    return Question('unscored', 'Episodes that nobody has scored:', ('refuse', 'invalid'), 'refuse')


def read_results(path: Path) -> dict[int, dict[str, Any]]:
    """The fields of each episode from a table with episode_index and outcome, and whatever else it has of it."""
    try:
        with path.open(encoding='utf-8-sig', newline='') as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'{path}: not readable as CSV ({error})') from error
    results: dict[int, dict[str, Any]] = {}
    for line, row in enumerate(rows, start=2):
        number = row.pop('episode_index', None)
        if number is None or not str(number).strip().isdigit() or not (row.get('outcome') or '').strip():
            raise InputError(f'{path} line {line}: wanted episode_index and outcome, found {number!r} and {dict(row)}')
        if int(number) in results:
            raise InputError(f'{path} line {line}: episode {number} a second time')
        unknown = next((name for name in row if name not in SETTABLE), None)
        if unknown is not None:
            raise UnknownName(f'field of an episode ({path})', str(unknown), SETTABLE)
        given = {name: text.strip() for name, text in row.items() if text and text.strip()}
        results[int(number)] = {name: parse_field(name, text) for name, text in given.items()}
    return results


def eva_fields(row: LeRobotEpisode, options: ImportOptions) -> dict[str, Any]:
    """What EVA-CLIENT says of an episode: a full score is success; one that its quality control rejects is INVALID."""
    facts, where = row.facts, f'meta/episodes.jsonl: episode {row.index}'
    fields: dict[str, Any] = {'reason': str(facts.get('note') or '')}
    labels = {name: str(facts[name]) for name in ('quality', 'trial', 'clip_id') if facts.get(name) not in (None, '')}
    milestones = facts.get('milestones')
    for name, value in milestones.items() if isinstance(milestones, dict) else ():
        labels[f'milestone {name}'] = str(value)
    fields['labels'] = labels
    if str(facts.get('quality', '')).lower() == 'red' or str(facts.get('qc_verdict', '')).lower() == 'fail':
        issues = facts.get('quality_issues')
        causes = [str(facts.get('reason') or facts.get('qc_note') or '')]
        causes += [str(i.get('detail') or i.get('code')) if isinstance(i, dict) else str(i) for i in issues or ()]
        return {**fields, 'outcome': Outcome.INVALID, 'reason': '; '.join(filter(None, causes)) or 'red quality'}
    score, best = facts.get('score'), facts.get('max_score')
    if score is None or best is None:
        if unscored_question().answer(options) == 'refuse' and 'outcome' not in options.defaults:
            raise InputError(
                f'{where} has no score; score it in EVA-CLIENT, say --set outcome=..., or --answer unscored=invalid'
            )
        return {**fields, 'outcome': Outcome.INVALID, 'reason': fields['reason'] or 'not scored'}
    for value in (score, best):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise InputError(f'{where}: score {score!r} of {best!r}, wanted numbers from 0 on')
    if not 0 < best >= score:
        raise InputError(f'{where}: score {score} of {best}, wanted at most all of it')
    return {**fields, 'score': float(score), 'max_score': float(best), 'success': score == best}


class LeRobotFormat:
    """LeRobotDataset v2.0, v2.1 and v3.0."""

    name = 'lerobot'
    summary = 'a LeRobotDataset folder, v2.0, v2.1 or v3.0: frames, cameras, next.*, language'

    def recognise(self, path: Path) -> float | None:
        try:
            info = json.loads((path / 'meta' / 'info.json').read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return None
        return CERTAIN if isinstance(info, dict) and 'codebase_version' in info else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='a LeRobotDataset', takes=('columns', 'answers'))
        layout = read_layout(path)
        ledger = ImportAccount()
        own = read_own(path)
        table = options.defaults.get(RESULTS)
        results = read_results(Path(table)) if table is not None else {}
        extra = sorted(results.keys() - {row.index for row in layout.rows})
        if extra:
            raise InputError(f'{table}: episode {extra[0]} is not in {path}')
        assignments = _assignments(layout, options, own)
        is_eva = any(not row.facts.keys().isdisjoint(EVA_FACTS) for row in layout.rows)
        cameras = tuple(f for f in layout.features.values() if f.is_camera and not f.is_depth)
        source = _LeRobotSource(
            layout, assignments, own, options, ledger, read_subtasks(path), results, is_eva, cameras
        )
        source.account()
        keeps_cameras = camera_question().answer(options) == 'keep'
        videos = [place.path for row in layout.rows for place in row.videos.values()] if keeps_cameras else []
        if own is not None and (options.columns or options.defaults):
            raise InputError(
                f'{own.path}: this dataset holds the whole record of its episodes; leave out --map and --set'
            )
        own_files = [own.path] if own is not None else []
        return import_rollouts(
            self.name, source.recordings, source.assignments, options=options, ledger=ledger,
            sources=dict.fromkeys((*layout.meta_files, *own_files, *layout.data_files, *videos)),
            questions=(rollouts_question(), unscored_question()), is_guessed=own is None,
            origin=Provenance(environment_id=layout.robot_type, success_parsing=source.success_parsing),
        )  # fmt: skip


def _assignments(layout: DatasetLayout, options: ImportOptions, own: OwnRecord | None) -> tuple[Assignment, ...]:
    if own is not None:
        return own.assignments
    numeric = {
        key: feature.names or tuple(map(str, range(feature.size)))
        for key, feature in layout.features.items()
        if feature.is_numeric and key not in PLACE_COLUMNS
    }
    return assign(numeric, mapped=options.columns, known=KNOWN)


@dataclass(frozen=True, slots=True)
class _LeRobotSource:
    layout: DatasetLayout
    assignments: tuple[Assignment, ...]
    own: OwnRecord | None
    options: ImportOptions
    ledger: ImportAccount
    subtasks: Mapping[int, str]
    results: Mapping[int, Mapping[str, Any]]
    is_eva: bool
    cameras: tuple[FeatureInfo, ...]  # whose pictures are kept: all but depth

    @property
    def success_parsing(self) -> str:
        if self.results:
            return f'the table {Path(self.options.defaults[RESULTS]).name}'
        if self.is_eva:
            return 'a full score in meta/episodes.jsonl (EVA-CLIENT); red quality or a failed check is INVALID'
        return 'any frame with next.success' if 'next.success' in self.layout.features else ''

    def account(self) -> None:
        """What of the dataset is left out, and why."""
        features = self.layout.features
        account_signals(self.assignments, {key: f.names for key, f in features.items()}, self.ledger)
        declared = {key for key, feature in features.items() if feature.dtype != 'video'}
        first = self.layout.data_files[:1]
        for name in column_names(first[0]) if first else ():
            if name not in declared and name not in (*PLACE_COLUMNS, *LANGUAGE_COLUMNS):
                self.ledger.drop(f'column {name}', None, why='meta/info.json does not declare it')
        for key, feature in features.items():
            if feature.dtype == 'string':
                self.ledger.drop(f'column {key}', None, why='text per frame has no place in a trajectory')
            elif feature.is_depth:
                self.ledger.drop(f'camera {key}', None, why='depth is kept as lossless files; a video has rounded it')
        self.ledger.drop('statistics', None, why='recomputed when the episodes are written again')

    def recordings(self) -> Iterator[Recording]:
        if self.own is not None:
            yield from self._own_recordings(self.own)
            return
        fields = {name: text for name, text in self.options.defaults.items() if name != RESULTS}
        options = replace(self.options, defaults=fields)
        recorder = RolloutRecorder(
            kind='a LeRobotDataset', options=options, source=self.layout.path, ledger=self.ledger,
            remedy='for an evaluation, give a table with episode_index and outcome: --set results=FILE.csv',
        )  # fmt: skip
        outcomes = []
        for frames in self._frames():
            recording = recorder.record(self._rollout(frames), told=self._told(frames.row))
            outcomes.append(recording.episode.success)
            yield recording
        if 'next.success' in self.layout.features:
            check_rollouts(self.layout.path, outcomes, self.options)

    def _told(self, row: LeRobotEpisode) -> dict[str, Any]:
        """What is said of an episode outside its frames."""
        if self.results:
            if row.index not in self.results:
                raise InputError(f'{self.options.defaults[RESULTS]}: no row of episode {row.index}')
            return dict(self.results[row.index])
        return eva_fields(row, self.options) if self.is_eva else {}

    def _frames(self) -> Iterator[EpisodeFrames]:
        features = self.layout.features
        wanted = [a.place.key for a in self.assignments]
        wanted += [key for key in ('timestamp', 'task_index', 'next.success') if key in features]
        if camera_question().answer(self.options) == 'keep':
            wanted += [key for key, feature in features.items() if feature.dtype == 'image']
        first = self.layout.data_files[:1]
        present = column_names(first[0]) if first else ()
        wanted += [name for name in (*LANGUAGE_COLUMNS, 'subtask_index') if name in present]
        return stream_frames(self.layout.rows, list(dict.fromkeys(wanted)))

    def _own_recordings(self, own: OwnRecord) -> Iterator[Recording]:
        keeps_nan = nan_question().answer(self.options) == 'keep'
        for frames in self._frames():
            if frames.row.index >= len(own.episodes):
                raise InputError(f'{own.path}: no record of episode {frames.row.index}; the dataset was changed since')
            signals = take_signals(self.assignments, frames.numbers, where=frames.where)
            if not keeps_nan:
                check_finite({k: v for k, v in signals.items() if not k.startswith('action')}, where=frames.where)
            self.ledger.keep('episodes')
            self.ledger.keep('steps', frames.row.length)
            yield own.recording(frames, signals, self._cameras(frames))

    def _rollout(self, frames: EpisodeFrames) -> SourceRollout:
        layout, row = self.layout, frames.row
        texts = instructions(layout, frames)
        duration_s = row.length / layout.fps
        success, success_t_s = _success(frames, layout.fps)
        done = frames.numbers.get('next.done')
        return SourceRollout(
            where=frames.where,
            number=row.index,
            time_s=frame_times(frames, layout.fps),
            duration_s=duration_s,
            signals=take_signals(self.assignments, frames.numbers, where=frames.where),
            task=texts[0] if texts else '',
            instruction=texts[0] if texts else '',
            success=success,
            success_t_s=success_t_s,
            is_cut=done is not None and not bool(np.any(done[-1])),
            phases=phases(frames, texts, subtasks=self.subtasks, fps=layout.fps),
            labels={'episode_index': str(row.index)},
            cameras=self._cameras(frames),
            control_rate_hz=layout.fps,
        )

    def _cameras(self, frames: EpisodeFrames) -> dict[str, CameraClip]:
        cameras = {}
        for feature in self.cameras:
            height, width = feature.image_shape[:2]
            name = feature.key.removeprefix('observation.images.')
            cameras[name] = CameraClip(self._clip(frames, feature), width, height)
        return cameras

    def _clip(self, frames: EpisodeFrames, feature: FeatureInfo) -> VideoClip | FrameClip:
        if feature.dtype == 'video':
            place = frames.row.videos[feature.key]
            return VideoClip(place.path, place.start_s, self.layout.fps, frames.row.length)
        if feature.key not in frames.others:
            return FrameClip((), self.layout.fps)
        return FrameClip(encoded_images(frames, feature), self.layout.fps)


def frame_times(frames: EpisodeFrames, fps: float) -> NDArray[np.float64]:
    """Seconds since the first frame: multiples of 1/fps where the float32 timestamps agree, else as recorded."""
    stamps = frames.numbers.get('timestamp')
    if stamps is None or stamps.ndim != 1 or not len(stamps):
        raise InputError(f'{frames.where}: no timestamp for each frame; wanted one number, in seconds')
    recorded = stamps.astype(np.float64)
    regular = np.arange(len(recorded)) / fps
    if (np.abs(recorded - regular) <= TOLERANCE_S).all():
        return regular
    if not np.isfinite(recorded).all():
        at = int(np.flatnonzero(~np.isfinite(recorded))[0])
        raise InputError(f'{frames.where}: timestamp is {recorded[at]} at frame {at}; wanted seconds')
    if np.any(np.diff(recorded) <= 0):
        at = int(np.flatnonzero(np.diff(recorded) <= 0)[0]) + 1
        raise InputError(f'{frames.where}: timestamp falls from {recorded[at - 1]} to {recorded[at]} s at frame {at}')
    return recorded


def _success(frames: EpisodeFrames, fps: float) -> tuple[bool | None, float | None]:
    """Whether the host's predicate ever held, and when: `next.*` of a frame is what its action led to."""
    flags = frames.numbers.get('next.success')
    if flags is None:
        return None, None
    held = flags.reshape(len(flags), -1)[:, 0].astype(np.bool_, copy=False)
    first = int(held.argmax())
    return (True, (first + 1) / fps) if held[first] else (False, None)


LEROBOT = LeRobotFormat()
