"""positronic's dataset folders, such as PhAIL's releases: facts, signals and films of each episode, edits applied.

Signals and cameras are files beside `static.json`, and are laid on the steps of the robot's state. A signal is
`NAME.parquet` with `value` and one column of nanoseconds per timeline: `ts.<timeline>`, or `timestamp` in files from
before timelines had names. A camera is `NAME.mp4` with the times of its frames in `NAME.frames.parquet`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    FixableError,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    listed,
    placed,
    refuse_unused,
)
from robotrials.formats.rollout import EXTRA, asked, build_trajectory, camera_question, check_finite
from robotrials.formats.ros_signal import hold
from robotrials.formats.rows import load_json
from robotrials.formats.video import TimedClip, opened_video
from robotrials.record import Camera, Scene, Trajectory
from robotrials.record.episode import Episode, Event, EventKind, EventSource, Outcome, parse_field
from robotrials.record.trajectory import POSE_WIDTH, frame_times

NANOSECOND = 1e-9
TIMELINES = ('harness.world', 'received.world', 'recorded')  # positronic's own order; then whatever all signals have
COLUMN = 'ts.'
LEGACY = {'timestamp': 'recorded', 'ts_ns': 'recorded'}  # files from before version 2
STEP_SIGNALS = ('robot_state.ee_pose', 'robot_state.q', 'grip')  # whose samples are the steps, in this order
OBSERVED = ('robot_state', 'grip', 'image.')
POSE_COMMANDS = ('robot_command.pose', 'robot_commands.pose')
JOINT_COMMANDS = ('robot_command.joints', 'robot_commands.joints')
STAGES = 'progress.state'  # what an operator marks while the arm works
CLOSED_AT_ONE = ('grip', 'target_grip')  # 1 is closed; the record's openings have 0 closed

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class SignalFile:
    """One signal on its timelines; `values` is None for the frames of a camera."""

    path: Path
    times_ns: Mapping[str, NDArray[np.int64]]
    values: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class PositronicSignals:
    """What one episode recorded, on one timeline, from the moment at which every sensor had spoken."""

    trajectory: Trajectory | None
    duration_s: float | None
    stages: tuple[tuple[float, str], ...]
    media: Mapping[str, TimedClip]  # the name in media/ -> the film
    starts_at_ns: int | None  # on the wall clock, where one was recorded


def read_signals(folder: Path, ledger: ImportAccount, *, keeps_cameras: bool, media_stem: str) -> PositronicSignals:
    """The signals of one episode; whatever is broken in a file is named by its path."""
    numeric: dict[str, SignalFile] = {}
    texts: dict[str, SignalFile] = {}
    cameras: dict[str, SignalFile] = {}
    for path in sorted(folder.glob('*.parquet')):
        name = path.name.removesuffix('.parquet')
        if name.endswith('.frames'):
            cameras[name.removesuffix('.frames')] = _read_file(path, has_values=False)
            continue
        signal = _read_file(path, has_values=True)
        if signal.values is not None and len(signal.values):
            (texts if signal.values.dtype.kind in 'OU' else numeric)[name] = signal
    if not numeric and not cameras:
        return PositronicSignals(None, None, (), {}, None)
    timeline = _timeline({**numeric, **cameras}, folder)
    start_ns, finish_ns = _bounds({**numeric, **texts, **cameras}, timeline, folder)
    films = _films(folder, cameras, timeline, ledger) if keeps_cameras else {}
    if cameras and not keeps_cameras:
        ledger.drop('cameras', len(cameras), why='--answer cameras=leave')
    trajectory = None
    if numeric:
        trajectory = _trajectory(
            folder, numeric, timeline, start_ns, ledger, films={n: (cameras[n], f) for n, f in films.items()},
            media_stem=media_stem,
        )  # fmt: skip
    elif films:
        ledger.drop('camera videos', len(films), why='an episode without signals has no steps to lay frames on')
        films = {}
    return PositronicSignals(
        trajectory=trajectory,
        duration_s=(finish_ns - start_ns) * NANOSECOND,
        stages=_stages(texts, timeline, start_ns, ledger),
        media=(
            {}
            if trajectory is None
            else {
                camera.video: TimedClip(
                    folder / Path(camera.video).name, tuple(frame_times(camera, trajectory).tolist())
                )
                for camera in trajectory.scene.cameras
            }
        ),
        starts_at_ns=_wall_start(numeric or cameras, timeline, start_ns),
    )


def _read_file(path: Path, *, has_values: bool) -> SignalFile:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f'{path}: not readable as Parquet ({error}); fetch it again') from error
    times: dict[str, NDArray[np.int64]] = {}
    for column in table.column_names:
        timeline = column.removeprefix(COLUMN) if column.startswith(COLUMN) else LEGACY.get(column)
        if timeline is None:
            continue
        if table[column].null_count or not pa.types.is_integer(table[column].type):
            raise InputError(f'{path}: {column} wants whole nanoseconds for every sample')
        stamps = table[column].to_numpy().astype(np.int64)
        if np.any(np.diff(stamps) < 0):
            at = int(np.flatnonzero(np.diff(stamps) < 0)[0]) + 1
            raise InputError(f'{path}: {column} falls from {stamps[at - 1]} to {stamps[at]} ns at sample {at}')
        times[timeline] = stamps
    if table.num_rows and not times:
        raise InputError(
            f'{path}: no times in it; wanted ts.<timeline> or timestamp, found {", ".join(table.column_names)}'
        )
    if not has_values:
        return SignalFile(path, times, None)
    if 'value' not in table.column_names:
        raise InputError(f'{path}: no column value in it; found {", ".join(table.column_names)}')
    return SignalFile(path, times, _values(path, table['value']))


def _values(path: Path, column: pa.ChunkedArray) -> Array:
    """(T,) or (T, K); text stays objects."""
    if column.null_count:
        raise InputError(f'{path}: value is missing in {column.null_count} of {len(column)} samples')
    rows: Array = column.to_numpy()
    if rows.dtype != object:
        return rows
    if not len(rows) or isinstance(rows[0], str | bytes):
        return rows.astype(str) if len(rows) and isinstance(rows[0], str) else rows
    widths = {np.size(row) for row in rows}
    if len(widths) != 1:
        raise InputError(f'{path}: value has {min(widths)} to {max(widths)} numbers per sample, wanted always as many')
    is_nested = isinstance(rows[0], np.ndarray) and rows[0].dtype == object
    return np.stack([np.concatenate([np.ravel(part) for part in row]) if is_nested else np.ravel(row) for row in rows])


def _timeline(files: Mapping[str, SignalFile], folder: Path) -> str:
    """The timeline that positronic itself would read, if every signal has it."""
    sets = [set(file.times_ns) for file in files.values()]
    common = set.intersection(*sets)
    chosen = next((name for name in TIMELINES if name in common), None) or next(iter(sorted(common)), None)
    if chosen is None:
        names = ', '.join(sorted(set.union(*sets))) or 'none'
        raise InputError(f'{folder}: no timeline that every signal has; found {names}')
    return chosen


def _bounds(files: Mapping[str, SignalFile], timeline: str, folder: Path) -> tuple[int, int]:
    """From when the last sensor first spoke to the last sample of anything; commands and marks may begin later."""
    timed = {name: f.times_ns[timeline] for name, f in files.items() if len(f.times_ns.get(timeline, ()))}
    if not timed:
        raise InputError(f'{folder}: every signal is empty')
    sensors = [t[0] for name, t in timed.items() if name.startswith(OBSERVED)]
    return int(max(sensors or [min(t[0] for t in timed.values())])), int(max(t[-1] for t in timed.values()))


def _trajectory(
    folder: Path, numeric: Mapping[str, SignalFile], timeline: str, start_ns: int, ledger: ImportAccount, *,
    films: Mapping[str, tuple[SignalFile, Path]], media_stem: str,
) -> Trajectory:  # fmt: skip
    longest = max(numeric, key=lambda name: len(numeric[name].times_ns[timeline]))
    steps = next((name for name in STEP_SIGNALS if name in numeric), longest)
    at_ns = np.unique(numeric[steps].times_ns[timeline])
    at_ns = at_ns[at_ns >= start_ns] if np.any(at_ns >= start_ns) else at_ns[-1:]
    ledger.note(
        f'steps are the samples of {steps}; other signals keep their last value, and have none before the first'
    )
    time_s = (at_ns - start_ns) * NANOSECOND
    held: dict[str, Array] = {}
    for name, file in numeric.items():
        assert file.values is not None
        check_finite({name: file.values}, where=str(file.path))
        values, known = hold(file.times_ns[timeline], file.values, at_ns)
        if not known.all():
            values = values.astype(np.float64)
            values[~known] = np.nan
        held[name] = values
    signals = _named(held, ledger)
    rate_hz = float(1 / np.median(np.diff(time_s))) if len(time_s) > 1 else None
    cameras = tuple(
        _camera(name, video, frames.times_ns[timeline], at_ns, file=f'{media_stem}/{video.name}')
        for name, (frames, video) in films.items()
    )
    ledger.keep('steps', len(time_s))
    scene = Scene(control_rate_hz=rate_hz, cameras=cameras)
    return build_trajectory(time_s, signals, scene=scene, where=str(folder))


def _named(held: Mapping[str, Array], ledger: ImportAccount) -> dict[str, Array]:
    """The record's signals: poses and joints as they are, openings turned round, commands as one action."""
    signals: dict[str, Array] = {}
    for name, values in held.items():
        is_pose = values.ndim == 2 and values.shape[1] == POSE_WIDTH
        if name == 'robot_state.ee_pose' and is_pose:
            signals['ee_pose'] = values
            ledger.keep('ee_pose from robot_state.ee_pose', None)
        elif name == 'robot_state.q' and values.ndim == 2:
            signals['joint_position_rad'] = values
            ledger.keep('joint_position_rad from robot_state.q', None)
        elif name in CLOSED_AT_ONE and values.size == len(values):
            signal = 'gripper_position' if name == 'grip' else 'gripper_command'
            signals[signal] = 1.0 - values.reshape(-1).astype(np.float64)
            ledger.keep(f'{signal} from {name}', None, why='1 - value: positronic has 1 for closed')
        else:
            whole = values.astype(np.int64) if values.dtype.kind == 'b' else values
            signals[EXTRA + name] = whole.reshape(len(whole), -1) if whole.ndim > 2 else whole
            ledger.keep(f'{EXTRA}{name}', None)
    command = next((name for name in (*POSE_COMMANDS, *JOINT_COMMANDS) if name in held), None)
    if command is not None and 'target_grip' in held:
        parts = [held[name].reshape(len(held[name]), -1).astype(np.float64) for name in (command, 'target_grip')]
        signals['action_raw'] = np.concatenate(parts, axis=1)
        ledger.keep(f'action_raw from {command} and target_grip', None)
    return signals


def _films(
    folder: Path, cameras: Mapping[str, SignalFile], timeline: str, ledger: ImportAccount
) -> dict[str, Path]:  # fmt: skip
    films = {}
    for name, frames in cameras.items():
        video = folder / f'{name}.mp4'
        if not video.is_file():
            raise InputError(f'{video}: missing; {frames.path.name} has the times of its frames')
        if len(frames.times_ns[timeline]):
            films[name] = video
            ledger.keep('camera videos')
    return films


def _camera(
    name: str, video: Path, frame_ns: NDArray[np.int64], at_ns: NDArray[np.int64], *, file: str
) -> Camera:  # fmt: skip
    with opened_video(video) as container:
        stream = container.streams.video[0]
        width, height = int(stream.codec_context.width), int(stream.codec_context.height)
    n_before = np.searchsorted(at_ns, frame_ns, side='right')  # 0: before the first step
    return Camera(
        name.removeprefix('image.'), None, None, width, height, video=file, video_steps=tuple(n_before.tolist())
    )


def _stages(
    texts: Mapping[str, SignalFile], timeline: str, start_ns: int, ledger: ImportAccount
) -> tuple[tuple[float, str], ...]:  # fmt: skip
    for name in texts:
        if name != STAGES:
            ledger.drop(f'signal {name}', None, why='text per sample has no place in a trajectory')
    marks = texts.get(STAGES)
    if marks is None or marks.values is None or timeline not in marks.times_ns:
        return ()
    times_s = np.maximum((marks.times_ns[timeline] - start_ns) * NANOSECOND, 0.0)
    ledger.keep('phase events', len(times_s), why=f'{STAGES}, as the operator marked them')
    return tuple((float(t), str(code)) for t, code in zip(times_s, marks.values, strict=True) if str(code))


def _wall_start(files: Mapping[str, SignalFile], timeline: str, start_ns: int) -> int | None:
    """When the episode began by the wall clock, from a signal with both timelines."""
    wall = timeline.rpartition('.')[0] + '.wall'
    for file in files.values():
        if wall in file.times_ns and timeline in file.times_ns and len(file.times_ns[wall]):
            at = min(int(np.searchsorted(file.times_ns[timeline], start_ns)), len(file.times_ns[wall]) - 1)
            return int(file.times_ns[wall][at])
    return None


NUMBERED = re.compile(r'^\d{12}$')
EDITS = 'edits.jsonl'
DEEPEST = 5  # folders between a release and its datasets, such as v1.0/dataset/rollouts
MOST_FOLDERS = 2000  # looked into for datasets
LABELS = ('eval.tote_placement', 'eval.external_camera', 'eval.trial_index', 'eval.trial_count', 'eval.universe',
          'eval.embodiment', 'eval.charge_inference_time', 'eval.control_mode', 'eval.ended_by', 'eval.policy_end',
          'inference.policy.label')  # fmt: skip
# Where the name of a policy stands: given by an analysis or a release, then as its server or the policy said it.
NAMES = ('policy', 'eval.policy', 'model', 'inference.policy.server.type', 'inference.policy.type', 'inference.policy',
         'inference.policy_fqn', 'inference.model_id')  # fmt: skip
SERVER = 'inference.policy.server.'
CHECKPOINTS = (f'{SERVER}checkpoint_id', f'{SERVER}checkpoint_path', 'inference.policy.checkpoint_path')
TELEOPERATED = ('teleop', 'teleoperation', 'teleoperated by human', 'robot teleoperated by human')
BY_HAND = ('human',)
# positronic's own list, and Stalled of PhAIL's first release. Nobody scored an UNSCORED one: `--blank` says what it is.
OUTCOMES = {
    'success': Outcome.SUCCESS, 'fail': Outcome.FAILURE, 'stalled': Outcome.FAILURE,
    'ran out of time': Outcome.TIMEOUT, 'safety': Outcome.SAFETY_STOP, 'system': Outcome.INVALID,
    'discarded': Outcome.INVALID,
}  # fmt: skip
UNSCORED = 'unscored'
EARLIER_TIMEOUTS = ('timeout', 'time_limit')  # `eval.ended_by` of older recordings


class PositronicFormat:
    """One positronic dataset, or a folder with several of them, such as a release."""

    name = 'positronic'
    summary = 'positronic dataset folders, such as PhAIL releases: facts, signals, films; edits.jsonl applied'

    def recognise(self, path: Path) -> float | None:
        return CERTAIN if path.is_dir() and next(_folders(path), None) is not None else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(
            options, name='positronic datasets', takes=('values', 'blank', 'answers'), sets=('policy', 'task')
        )
        ledger = ImportAccount()
        source = _PositronicSource(path, options, ledger)
        return Imported(
            format=self.name, sources=source.files(), recordings=source.recordings, ledger=ledger,
            questions=asked(options, camera_question()), resolved=options,
            guesses=(
                FieldGuess('policy', 'static policy, model and variant, or inference.policy.*'),
                FieldGuess('outcome', 'static eval.outcome, eval.success or eval.terminated'),
                FieldGuess('duration_s', 'static eval.duration, or the times of the signals'),
                FieldGuess('time_cap_s', 'static eval.timeout, or eval.cap_per_item for every item'),
                FieldGuess('is_reference', 'model teleop, or human where nothing was teleoperated'),
                FieldGuess('stratum', 'static eval.object'),
                FieldGuess('seed', 'static eval.seed'),
            ),
        )  # fmt: skip


POSITRONIC = PositronicFormat()


def _folders(root: Path) -> Iterator[Path]:
    """The episodes of a dataset, or of every dataset in a tree, as positronic's own loader finds them."""
    waiting, seen = [(root, 0)], 0
    while waiting and seen < MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        seen += 1
        for entry in listed(folder):
            if NUMBERED.match(entry.name):
                yield from (
                    episode
                    for episode in listed(entry)
                    if NUMBERED.match(episode.name)
                    and any((episode / name).is_file() for name in ('static.json', 'meta.json'))
                )
            elif depth < DEEPEST and entry.is_dir() and not entry.is_symlink():
                waiting.append((entry, depth + 1))


@dataclass(slots=True)
class _Facts:
    """What is known of an episode without its signals."""

    folder: Path
    static: Mapping[str, Any]
    meta: Mapping[str, Any]
    uid: str


@dataclass(slots=True)
class _PositronicSource:
    path: Path
    options: ImportOptions
    ledger: ImportAccount
    _logs: dict[Path, dict[str, list[Mapping[str, Any]]]] = field(default_factory=dict)

    def files(self) -> tuple[Path, ...]:
        """The files whose hash says what was read: facts and edits; signals and films are hashed in the store."""
        folders: dict[Path, None] = {}
        for folder in _folders(self.path):
            for log in self._log_files(folder):
                folders[log] = None
            folders[folder / 'static.json'] = None
        return tuple(f for f in folders if f.is_file())

    def recordings(self) -> Iterator[Recording]:
        variants, has_teleoperation = self._survey()
        keeps_cameras = camera_question().answer(self.options) == 'keep'
        for folder in _folders(self.path):
            facts = self._facts(folder, self.ledger)
            if facts is None:
                continue
            stem = f'positronic-{file_stem(facts.uid)}'
            signals = read_signals(folder, self.ledger, keeps_cameras=keeps_cameras, media_stem=stem)
            try:
                episode = self._episode(facts, signals, variants, has_teleoperation=has_teleoperation)
            except FixableError:
                raise
            except RecordError as error:
                raise RecordError(f'{folder / "static.json"}: {error}; nothing was imported') from error
            if episode is None:
                continue
            self.ledger.keep(f'episodes: {episode.outcome.value}')
            yield Recording(placed(episode, facts.uid), signals.trajectory, signals.media)

    def _survey(self) -> tuple[dict[str, set[str]], bool]:
        """The variants of every model, and whether anything was teleoperated: what one name means hangs on the rest."""
        variants: dict[str, set[str]] = {}
        for folder in _folders(self.path):
            facts = self._facts(folder, ImportAccount())
            if facts is not None:
                name, variant = self._named(facts)
                variants.setdefault(name, set()).add(variant)
        return variants, any(name.lower() in TELEOPERATED for name in variants)

    def _log_files(self, folder: Path) -> list[Path]:
        """Edit logs in the order in which they apply: the dataset's, those of folders around it, the episode's own."""
        around = [folder.parent.parent, *folder.parent.parent.parents]
        inside = [f for f in around if f == self.path or self.path in f.parents]
        return [f / EDITS for f in (*inside, folder)]

    def _facts(self, folder: Path, ledger: ImportAccount) -> _Facts | None:
        if (folder / '.unfinished').exists():
            ledger.drop('episodes', why='recording was not finished (.unfinished)')
            return None
        static = _object(folder / 'static.json') if (folder / 'static.json').is_file() else {}
        meta = _object(folder / 'meta.json') if (folder / 'meta.json').is_file() else {}
        uid = str(meta.get('uid') or f'ts-{meta.get("created_ts_ns", folder.parent.name + folder.name)}')
        is_dropped = False
        for path in self._log_files(folder):
            if path not in self._logs:
                self._logs[path] = _read_edits(path)
            for edit in self._logs[path].get(uid, ()):
                if edit['op'] == 'set_static':
                    static = {**static, **dict(edit.get('data') or {})}
                    ledger.note(f'facts were corrected by {EDITS}; the corrected ones are read')
                else:
                    is_dropped = edit['op'] == 'drop'
        if is_dropped:
            ledger.drop('episodes', why=f'withdrawn by {EDITS}')
            return None
        return _Facts(folder, static, meta, uid)

    def _named(self, facts: _Facts) -> tuple[str, str]:
        """The policy's name and its variant: a checkpoint, or what a release calls so."""
        static = facts.static
        given = self.options.defaults.get('policy')
        if given:
            return given, ''
        names = [text for key in NAMES if isinstance(text := static.get(key), str) and text and text != 'remote']
        if not names:
            parents = [part.lower() for part in facts.folder.relative_to(self.path).parts[:-2]]
            folders = [self.path.name.lower(), *parents]
            names = [f for f in reversed(folders) if f in (*TELEOPERATED, *BY_HAND)]
        if not names:
            return '', ''
        experiment, checkpoint = static.get(f'{SERVER}experiment_name'), _checkpoint(static)
        version = ':'.join(str(part) for part in (experiment, checkpoint) if part)
        return names[0], str(static.get('variant') or version)

    def _episode(
        self, facts: _Facts, signals: PositronicSignals, variants: Mapping[str, set[str]], *, has_teleoperation: bool
    ) -> Episode | None:
        static, meta = facts.static, facts.meta
        name, variant = self._named(facts)
        if not name:
            raise RecordError('no policy is recorded; give it with --set policy=NAME')
        outcome, word = self._outcome(facts)
        if outcome is None:
            self.ledger.drop('episodes', why='nobody scored them (--blank drop)')
            return None
        if len(variants[name]) > 1 and variant:
            self.ledger.note(f'{name} was run in {len(variants[name])} variants: each is a policy of its own')
        is_hand = name.lower() in BY_HAND
        task = self.options.defaults.get('task') or static.get('eval.task') or static.get('eval.task_id')
        items = _field(static, 'items', 'eval.total_items')
        labels = {k.rpartition('.')[2]: str(static[k]) for k in LABELS if static.get(k) is not None}
        duration_s = _field(static, 'duration_s', 'eval.duration')
        if duration_s is None and signals.duration_s is not None:
            duration_s = signals.duration_s
            self.ledger.note('duration_s: from the first sample of the last sensor to the last sample of any signal')
        is_broken = outcome is Outcome.INVALID
        return Episode(
            policy=f'{name} {variant}' if variant and len(variants[name]) > 1 else name,
            is_reference=name.lower() in TELEOPERATED or (is_hand and not has_teleoperation),
            task=str(task or static.get('task') or ''), outcome=outcome,
            trial_id=f'import:{self.options.source_name(self.path)}', benchmark=str(static.get('eval.suite') or ''),
            stratum=str(static.get('eval.object') or ''), seed=_field(static, 'seed', 'eval.seed'),
            duration_s=duration_s, time_cap_s=_time_cap(static, items, duration_s),
            items=items, items_placed=None if is_broken else _field(static, 'items_placed', 'eval.successful_items'),
            instruction=str(static.get('task') or ''),
            success=static.get('eval.success') if isinstance(static.get('eval.success'), bool) else None,
            started_at=_started_at(signals.starts_at_ns, meta.get('created_ts_ns')),
            reason=': '.join(part for part in (word, str(static.get('eval.notes') or '')) if part),
            events=tuple(
                Event(t_s, EventKind.PHASE, EventSource.OPERATOR, name=code)
                for t_s, code in signals.stages
                if duration_s is None or t_s <= duration_s
            ),
            labels={**labels, **({'variant': variant} if variant else {}), 'positronic_uid': facts.uid},
        )  # fmt: skip

    def _outcome(self, facts: _Facts) -> tuple[Outcome | None, str]:
        """The outcome, and the word for it where ours says less; None for an episode that is to be left out."""
        static = facts.static
        word = str(static.get('eval.outcome') or '').strip()
        if word in self.options.values:
            return Outcome(self.options.values[word]), word
        if word and word.lower() != UNSCORED:
            if word.lower() in OUTCOMES:
                outcome = OUTCOMES[word.lower()]
                return outcome, word if word.lower() in ('stalled', 'system', 'discarded') else ''
            return parse_field('outcome', word), ''
        success = static.get('eval.success')
        if success is True:
            return Outcome.SUCCESS, ''
        is_cut = static.get('eval.terminated') is False or static.get('eval.timeout') is True
        if is_cut or str(static.get('eval.ended_by', '')).lower() in EARLIER_TIMEOUTS:
            return Outcome.TIMEOUT, ''
        if success is False:
            return Outcome.FAILURE, ''
        if not self.options.blank:
            raise FixableError(
                f'{facts.folder / "static.json"}: neither eval.outcome nor eval.success is recorded: nobody scored '
                'this episode; nothing was imported. --blank invalid|failure|drop says what such episodes are',
                self.path, dataclasses.replace(self.options, blank='invalid'),
            )  # fmt: skip
        return (None if self.options.blank == 'drop' else Outcome(self.options.blank)), 'nobody scored it'


def _read_edits(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    """The edits of each episode, in order: an importer that ignores them reads withdrawn verdicts."""
    edits: dict[str, list[Mapping[str, Any]]] = {}
    if not path.is_file():
        return edits
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
        if not line.strip():
            continue
        try:
            edit = json.loads(line)
            operation, uid, version = edit['op'], str(edit['ep']), edit.get('v', 1)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f'{path} line {number}: not an edit ({error}); nothing was imported') from error
        if operation not in ('set_static', 'drop', 'undrop') or version != 1:
            raise InputError(
                f'{path} line {number}: op {operation!r}, v {version!r} is not known; nothing was imported'
            )
        edits.setdefault(uid, []).append(edit)
    return edits


def file_stem(uid: str) -> str:
    """A uid as the name of a folder in media/."""
    return ''.join(c if c.isalnum() or c in '-_' else '_' for c in uid)[:64]


def _object(path: Path) -> dict[str, Any]:
    value = load_json(path)
    if not isinstance(value, dict):
        raise InputError(f'{path}: wanted a JSON object; nothing was imported')
    return value


def _checkpoint(static: Mapping[str, Any]) -> str:
    """The checkpoint by its id, or by the last folders of its path that say which it is."""
    path = next((str(static[key]) for key in CHECKPOINTS if static.get(key)), '')
    parts = [p for p in path.strip('/').split('/') if p not in ('', 'pretrained_model')]
    return parts[-1].removeprefix('checkpoint-') if parts else ''


def _started_at(wall_ns: int | None, created_ns: Any) -> dt.datetime | None:
    stamp = wall_ns if wall_ns is not None else created_ns
    return dt.datetime.fromtimestamp(stamp / 1e9, dt.UTC) if isinstance(stamp, int) and stamp > 0 else None


def _time_cap(static: Mapping[str, Any], items: int | None, duration_s: float | None) -> float | None:
    """The budget of the trial: as recorded, or so much for every item. One that the episode outlasted is none."""
    budget = static.get('eval.timeout')
    per_item = static.get('eval.cap_per_item')
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        cap_s = float(budget)
    elif isinstance(per_item, int | float) and not isinstance(per_item, bool) and items:
        cap_s = float(per_item) * items
    else:
        return None
    if not (math.isfinite(cap_s) and cap_s > 0) or (duration_s is not None and duration_s > cap_s + 1.0):
        return None
    return cap_s


def _field(static: Mapping[str, Any], name: str, key: str) -> Any:
    value = static.get(key)
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else parse_field(name, value)
