"""Writing a store in other people's formats: what every exporter gives and takes, tables, and Rerun recordings.

An exporter reads the store as anyone would, edits applied and codes of an open blinded trial left as codes, so that it
can never tell more than the store does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robotrials.catalog import Catalog
from robotrials.errors import InputError, install_hint, load_optional
from robotrials.formats.imported import ImportAccount
from robotrials.old_name import RERUN_APPLICATION
from robotrials.record import Camera, Episode, Store, Trajectory
from robotrials.record.blinding import Where
from robotrials.record.column import recorded_signals
from robotrials.record.folder import put_durably
from robotrials.record.rows import EPISODE_FIELDS, episodes_to_arrow
from robotrials.value import dataclass

# Episodes as a table that anyone can read: CSV, JSONL or Parquet, one row an episode; `from_table` reads it back.


def to_table(episodes: Iterable[Episode], path: Path | str) -> int:
    """Write the episodes by the file's suffix (.csv, .jsonl, .parquet); gives how many."""
    target = Path(path)
    suffix = target.suffix.lower()
    writers = {'.csv': _write_csv, '.jsonl': _write_jsonl, '.ndjson': _write_jsonl, '.parquet': _write_parquet}
    if suffix not in writers:
        raise InputError(f'{target}: wanted a table ending in .csv, .jsonl or .parquet, found {target.suffix!r}')
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f'{target}: wanted a file in a folder that is there')
    with put_durably(target) as draft:
        return writers[suffix](episodes, draft)


def episode_row(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON values; absent fields are None."""
    row: dict[str, Any] = {}
    for name in EPISODE_FIELDS:
        value = getattr(episode, name)
        if name in ('condition_parameters', 'labels'):
            value = dict(value)
        elif name == 'started_at' and value is not None:
            value = value.isoformat()
        elif name == 'outcome':
            value = value.value
        row[name] = value
    row['events'] = [
        {'t_s': e.t_s, 'kind': e.kind.value, 'source': e.source.value, 'count': e.count}
        | ({'name': e.name} if e.name else {})
        for e in episode.events
    ]
    return row


def _write_csv(episodes: Iterable[Episode], target: Path) -> int:
    count = 0
    with target.open('w', encoding='utf-8', newline='') as stream:
        writer = csv.writer(stream, lineterminator='\n')
        careful = csv.writer(stream, lineterminator='\n', quoting=csv.QUOTE_ALL)
        writer.writerow([*EPISODE_FIELDS, 'events'])
        for count, episode in enumerate(episodes, start=1):  # noqa: B007 - the last count is the answer
            row = episode_row(episode)
            nested = {
                k: json.dumps(v, ensure_ascii=False) if v else '' for k, v in row.items() if isinstance(v, dict | list)
            }
            cells = ['' if v is None else v for v in {**row, **nested}.values()]
            # The writer leaves a lone carriage return bare, and readers would end the row there.
            (careful if any('\r' in str(c) for c in cells) else writer).writerow(cells)
    return count


def _write_jsonl(episodes: Iterable[Episode], target: Path) -> int:
    count = 0
    with target.open('w', encoding='utf-8') as stream:
        for count, episode in enumerate(episodes, start=1):  # noqa: B007 - the last count is the answer
            stream.write(json.dumps(episode_row(episode), ensure_ascii=False) + '\n')
    return count


def _write_parquet(episodes: Iterable[Episode], target: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    batch = list(episodes)
    events = [json.dumps(episode_row(e)['events']) for e in batch]
    pq.write_table(
        episodes_to_arrow(batch).append_column('events', pa.array(events, pa.string())), target, compression='zstd'
    )
    return len(batch)


EXPORTERS = Catalog(
    'export format',
    {
        'lerobot': 'robotrials.formats.lerobot_write:LEROBOT',
        'lerobot-v2.1': 'robotrials.formats.lerobot_write:LEROBOT_V21',
        'rerun': 'robotrials.formats.export:RERUN',
        'mcap': 'robotrials.formats.mcap_file:MCAP_EXPORT',
        'table': 'robotrials.formats.export:TABLE',
    },
    entry_point_group='robotrials.exporters',
)


@dataclass(frozen=True, slots=True, eq=False)
class ExportedFilm:
    """One camera of one episode for an export: its file, and the step that each of its frames shows."""

    camera: Camera  # with `video_steps`
    path: Path


Redraw = Callable[[Episode], Sequence[ExportedFilm]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user says beyond the store and the format."""

    where: Where | None = None
    rate_hz: float | None = None  # for formats with one rate, where the record does not state it
    redraw: Redraw | None = None  # films drawn from kept states, instead of those that were recorded


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export came to."""

    episodes: int
    ledger: ImportAccount = field(default_factory=ImportAccount)


class Exporter(Protocol):
    """How to write one kind of file or folder."""

    name: str
    summary: str
    suffix: str  # of the file that is written; empty for a folder

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        """Write the whole target, which is not there yet, or nothing."""


def load_exporter(name: str) -> Exporter:
    """The exporter of this name, or of a literal ``module:attribute``."""
    exporter: Exporter = EXPORTERS.load_like(
        name, 'robotrials.formats.Exporter', ('name', 'summary', 'suffix', 'write')
    )
    return exporter


@contextmanager
def fresh_target(target: Path) -> Iterator[Path]:
    """A place beside `target` to write to, renamed when all is written and removed when anything fails."""
    if target.exists():
        raise InputError(f'{target}: is there already; give a new name')
    if not target.parent.is_dir():
        raise InputError(f'{target}: wanted a name in a folder that is there')
    with put_durably(target) as draft:
        yield draft


def recorded_rollouts(
    store: Store, options: ExportOptions, ledger: ImportAccount
) -> Iterator[tuple[Episode, Trajectory]]:
    """The valid counted episodes with a trajectory; the others are entered as dropped."""
    with_steps = set()
    for episode, trajectory in store.trajectories(where=options.where):
        with_steps.add(episode.key)
        if episode.is_valid:
            yield episode, trajectory
    for episode in store.episodes(where=options.where, events=False):
        if not episode.is_valid:
            ledger.drop('episodes', why='invalid: the rig broke, so they show nothing of the policy')
        elif episode.key not in with_steps:
            ledger.drop('episodes', why='no trajectory was recorded')


def export_each(
    store: Store, target: Path, options: ExportOptions, ledger: ImportAccount, *, suffix: str,
    write: Callable[[Path, Episode, Trajectory], None],
) -> Exported:  # fmt: skip
    """A folder with one file for each recorded rollout, which `write` writes."""
    count = 0
    with fresh_target(target) as draft:
        draft.mkdir()
        for episode, trajectory in recorded_rollouts(store, options, ledger):
            write(draft / f'{file_stem(episode)}{suffix}', episode, trajectory)
            count += 1
        check_some(count)
    ledger.keep('episodes', count)
    return Exported(count, ledger)


def check_some(count: int) -> None:
    """Raise InputError where nothing was written."""
    if not count:
        raise InputError('no valid episode with a trajectory to write; a table needs none: --to table')


def media_file(store: Store, name: str) -> Path | None:
    """A file of the store's media folder, or None where it is gone."""
    return store.file(f'media/{name}') if store.has_file(f'media/{name}') else None


def episode_facts(episode: Episode) -> dict[str, str]:
    """What an episode is, as text by field, for a file's own notes; absent fields are left out."""
    row = episode_row(episode)
    skipped = ('events', 'provenance_id')
    facts = {k: v for k, v in row.items() if k not in skipped and v not in (None, '', {}, [])}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}


def file_stem(episode: Episode) -> str:
    """A file name for one episode: its id, and its attempt where that is not the first."""
    safe = ''.join(c if c.isalnum() or c in '-_.' else '_' for c in episode.episode_id)
    return f'{safe}-{episode.attempt}' if episode.attempt else safe


# A store as a table with one row per episode, by the suffix of its name: .csv, .jsonl or .parquet.


@dataclass(frozen=True, slots=True)
class TableExporter:
    name: str = 'table'
    summary: str = 'a table with one row per episode: .csv, .jsonl or .parquet'
    suffix: str = '.csv'

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        if target.exists():
            raise InputError(f'{target}: is there already; give a new name')
        ledger = ImportAccount()
        count = to_table(store.episodes(where=options.where), target)
        ledger.keep('episodes', count)
        ledger.drop('trajectories and media', None, why='a table has one row per episode')
        return Exported(count, ledger)


TABLE = TableExporter()


# A store as Rerun recordings, one .rrd file per episode: poses are transforms, every other signal a plot, cameras the
# videos themselves with a reference per step, events a log. The file format belongs to a version of Rerun, so the
# version is pinned, and named in the account.

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RerunExporter:
    name: str = 'rerun'
    summary: str = 'a folder with one Rerun recording (.rrd) per episode'
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        rerun = load_optional('rerun', f'writing Rerun recordings needs rerun-sdk: {install_hint("rerun")}')
        ledger = ImportAccount()

        def write(path: Path, episode: Episode, trajectory: Trajectory) -> None:
            _write_episode(rerun, store, episode, trajectory, path, ledger)

        exported = export_each(store, target, options, ledger, suffix='.rrd', write=write)
        ledger.note(
            f'written by rerun-sdk {rerun.__version__}; a viewer of another version may need `rerun rrd migrate`'
        )
        return exported


RERUN = RerunExporter()


def _write_episode(
    rerun: Any, store: Store, episode: Episode, trajectory: Trajectory, path: Path, ledger: ImportAccount
) -> None:
    stream = rerun.RecordingStream(RERUN_APPLICATION, recording_id=f'{episode.episode_id}-{episode.attempt}')
    stream.save(path)
    try:
        stream.send_property('episode', rerun.AnyValues(**episode_facts(episode)))
        steps = [
            rerun.TimeColumn('step', sequence=np.arange(trajectory.n_steps)),
            rerun.TimeColumn('time', duration=np.asarray(trajectory.time_s, dtype=np.float64)),
        ]
        for name, values in recorded_signals(trajectory).items():
            _write_signal(rerun, stream, name, np.asarray(values), steps, trajectory.n_steps, ledger)
        _write_contacts(rerun, stream, trajectory, steps)
        for camera in trajectory.scene.cameras:
            _write_camera(rerun, stream, store, camera, trajectory, steps, ledger)
        for event in episode.events:
            stream.set_time('time', duration=event.t_s)
            stream.log('events', rerun.TextLog(f'{event.kind} {event.name}'.strip(), level='INFO'))
        stream.flush()
    finally:
        stream.disconnect()


def _write_signal(
    rerun: Any, stream: Any, name: str, values: Array, steps: list[Any], n_steps: int, ledger: ImportAccount
) -> None:
    if name.startswith(('contacts/', 'frame_hash/')) or name == 'time_s':
        return
    if len(values) != n_steps:
        stream.log(f'limits/{name}', rerun.Scalars(values.astype(np.float64)), static=True)
        return
    if name == 'ee_pose' or name.startswith('body_pose/'):
        entity = 'world/ee' if name == 'ee_pose' else f'world/bodies/{name.removeprefix("body_pose/")}'
        # The record keeps w first, Rerun last.
        turn = values[:, [4, 5, 6, 3]]
        stream.send_columns(entity, steps, rerun.Transform3D.columns(translation=values[:, :3], quaternion=turn))
    flat = values.reshape(n_steps, -1).astype(np.float64)
    columns = rerun.Scalars.columns(scalars=flat.reshape(-1))
    if flat.shape[1] > 1:
        columns = columns.partition([flat.shape[1]] * n_steps)
    stream.send_columns(f'signals/{name}', steps, columns)
    ledger.keep(f'signal {name}', None)


def _write_contacts(rerun: Any, stream: Any, trajectory: Trajectory, steps: list[Any]) -> None:
    contacts = trajectory.contacts
    if contacts is None:
        return
    starts, ends = contacts.offsets[:-1], contacts.offsets[1:]
    total = np.array([contacts.force_n[a:b].sum() for a, b in zip(starts, ends, strict=True)], dtype=np.float64)
    stream.send_columns('signals/contact_force_n', steps, rerun.Scalars.columns(scalars=total))


def _write_camera(
    rerun: Any, stream: Any, store: Store, camera: Camera, trajectory: Trajectory, steps: list[Any],
    ledger: ImportAccount
) -> None:  # fmt: skip
    name, video = camera.name, camera.video
    if not video:
        return
    path = media_file(store, video)
    if path is None or path.suffix.lower() != '.mp4':
        ledger.drop(f'camera {name}', why='its video is gone, or no MP4 file')
        return
    asset = rerun.AssetVideo(path=path)
    stamps = np.asarray(asset.read_frame_timestamps_nanos())
    stream.log(f'cameras/{name}', asset, static=True)
    rows = np.arange(trajectory.n_steps)
    frames = np.searchsorted(camera.video_steps, rows + 1, side='right') - 1 if camera.video_steps else rows
    frame_stamps = stamps[np.clip(frames, 0, len(stamps) - 1)]
    columns = rerun.VideoFrameReference.columns_nanos(frame_stamps)
    stream.send_columns(f'cameras/{name}', steps, columns)
    ledger.keep('camera videos')
