"""What the explorer shows: the table of episodes, and one episode on one clock.

The table of episodes: columns in memory, read once a state of the store, and filtered there.

One episode as a page needs it: lanes of telemetry, path, events, margins, films, all on one clock.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.errors import RobotrialsError, UnknownName
from robotrials.measure.annotate import with_marks
from robotrials.measure.safety import Scoring, score_episode
from robotrials.measure.safety.score import margin_traces
from robotrials.record import Annotation, Episode, Store, Trajectory
from robotrials.record.blinding import Where
from robotrials.record.counted import CountedColumns
from robotrials.verdict.analysis.detail import films_of

FILTERS = ('policy', 'benchmark', 'task', 'stratum', 'condition', 'outcome', 'session', 'operator')
COLUMNS = (*FILTERS, 'duration_s', 'items', 'items_placed', 'success', 'episode_id', 'attempt', 'reason')
PAGE_ROWS = 100
MOST_CHOICES = 200
SORTS = ('place', 'duration_s', 'items_placed', 'outcome', 'policy')


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeIndex:
    """Every counted episode: the columns that filters and the table need, as codes."""

    ids: pa.StringArray
    attempts: NDArray[np.int64]
    codes: Mapping[str, NDArray[np.int64]]  # filter -> (n,) place of its value in `values`
    values: Mapping[str, tuple[str, ...]]
    duration_s: NDArray[np.float64]  # NaN where absent
    placed: NDArray[np.int64]  # -1 where absent
    items: NDArray[np.int64]
    success: NDArray[np.int8]  # -1 where absent
    reasons: pa.Array

    def __len__(self) -> int:
        return len(self.ids)

    def key(self, place: int) -> tuple[str, int]:
        return self.ids[place].as_py(), int(self.attempts[place])

    def place(self, key: tuple[str, int]) -> int:
        """Where an episode stands; -1 if it is not here."""
        rows = np.flatnonzero(pc.equal(self.ids, key[0]).to_numpy(zero_copy_only=False) & (self.attempts == key[1]))
        return int(rows[0]) if len(rows) else -1

    def matching(self, wanted: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
        """The rows that have one of the wanted values in every field asked for, in order."""
        mask = np.ones(len(self), dtype=np.bool_)
        for name, choices in wanted.items():
            if name == 'episode_id':
                begins = [pc.starts_with(self.ids, choice).to_numpy(zero_copy_only=False) for choice in choices]
                mask &= np.any(begins, axis=0)
                continue
            if name not in self.codes:
                raise UnknownName('filter', name, (*FILTERS, 'episode_id'))
            known = {value: code for code, value in enumerate(self.values[name])}
            mask &= np.isin(self.codes[name], [known[c] for c in choices if c in known])
        return np.flatnonzero(mask)

    def ordered(self, rows: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
        """Rows by a column; a leading minus turns it round, and rows without a value come last."""
        name = sort.removeprefix('-')
        if name not in SORTS:
            raise UnknownName('order', name, SORTS)
        if name == 'place':
            return rows[::-1] if sort.startswith('-') else rows
        column = {'duration_s': self.duration_s, 'items_placed': self.placed.astype(float)}.get(name)
        ranked = self.codes[name].astype(float) if column is None else column
        values = np.where(ranked < 0, np.nan, ranked)[rows]
        return rows[np.argsort(-values if sort.startswith('-') else values, kind='stable')]

    def choices(self, name: str, rows: NDArray[np.int64]) -> list[tuple[str, int]]:
        """The values of a field among some rows, with how many each has."""
        counts = np.bincount(self.codes[name][rows], minlength=len(self.values[name]))
        return [(value, int(n)) for value, n in zip(self.values[name], counts, strict=True) if n][:MOST_CHOICES]

    def row(self, place: int) -> dict[str, Any]:
        """One line of the table."""
        key = self.key(place)
        fields: dict[str, Any] = {name: self.values[name][self.codes[name][place]] for name in FILTERS}
        duration_s, success = float(self.duration_s[place]), int(self.success[place])
        return {
            **fields, 'episode_id': key[0], 'attempt': key[1], 'reason': self.reasons[place].as_py() or '',
            'duration_s': None if np.isnan(duration_s) else duration_s,
            'placed': None if self.placed[place] < 0 else int(self.placed[place]),
            'items': None if self.items[place] < 0 else int(self.items[place]),
            'success': None if success < 0 else bool(success),
        }  # fmt: skip


def _index(table: pa.Table) -> EpisodeIndex:
    codes: dict[str, NDArray[np.int64]] = {}
    values: dict[str, tuple[str, ...]] = {}
    for name in FILTERS:
        values[name], codes[name] = _coded(table[name])
    return EpisodeIndex(
        ids=_whole(table['episode_id']),
        attempts=table['attempt'].to_numpy().astype(np.int64),
        codes=codes,
        values=values,
        duration_s=_filled(table['duration_s'], np.nan).astype(np.float64),
        placed=_filled(table['items_placed'], -1).astype(np.int64),
        items=_filled(table['items'], -1).astype(np.int64),
        success=_filled(table['success'].cast(pa.int8()), -1).astype(np.int8),
        reasons=_whole(table['reason']),
    )


def _filled(column: pa.ChunkedArray, absent: float) -> NDArray[Any]:
    return np.asarray(pc.fill_null(column, pa.scalar(absent, column.type)).to_numpy())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _coded(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The values that occur, sorted, and each row's place among them."""
    array = _whole(column)
    indices = array.indices.to_numpy()
    names = array.dictionary.to_pylist()
    used = sorted(np.flatnonzero(np.bincount(indices, minlength=len(names))).tolist(), key=names.__getitem__)
    rank = np.zeros(len(names), np.int64)
    rank[used] = np.arange(len(used))
    return tuple(names[k] for k in used), rank[indices]


class LiveIndex:
    """The index of a store as it shows itself, an open trial without its arms; of a change only the new is read."""

    def __init__(self, store: Store, *, where: Where | None = None) -> None:
        self._store, self._columns = store, CountedColumns(store, COLUMNS, where=where)
        self._lock = threading.Lock()
        self._head = ''
        self._index: EpisodeIndex | None = None

    def now(self) -> EpisodeIndex:
        with self._lock:
            head = self._store.head() or str(self._store.count())
            if self._index is None or head != self._head:
                self._index, self._head = _index(self._columns.read()), head
            return self._index


MOST_POINTS = 4000
DIGITS = 5
AXES = ('x', 'y', 'z')


def episode_data(
    store: Store, episode: Episode, *, annotations: Sequence[Annotation] | None = None, scoring: Scoring | None = None
) -> dict[str, Any]:
    """Everything of one episode, as plain values; what was not recorded is absent and named in `missing`.

    `annotations` are the accounts that may be seen; all of them unless given.
    """
    annotations = store.annotations().get(episode.key, ()) if annotations is None else annotations
    marked = with_marks(episode, annotations)
    trajectory = store.trajectory(episode)
    values: dict[str, Any] = {
        'facts': _facts(episode),
        'duration_s': episode.duration_s,
        'events': [_event(e) for e in marked.events],
        'accounts': [
            {'by': a.by, 'source': a.source.value, 'count': a.count, 'note': a.note,
             'events': [_event(e) for e in a.events]}
            for a in annotations
        ],
        'films': [], 'lanes': [], 'missing': [], 'violations': [], 'margins': [],
    }  # fmt: skip
    if trajectory is None:
        values['missing'].append('no trajectory was recorded: no path, no telemetry, no films')
        return dict(_plain(values))
    kept = _kept(trajectory.n_steps)
    values['time_s'] = _numbers(np.asarray(trajectory.time_s)[kept])
    values['lanes'] = _lanes(trajectory, kept)
    values['path'] = _path(trajectory, kept)
    values['films'] = [
        {'camera': film.camera, 'name': film.name, 'times_s': _numbers(film.times_s), 'width': camera.width_px,
         'height': camera.height_px}
        for film, camera in films_of(store, episode, trajectory)
    ]  # fmt: skip
    if not values['films']:
        values['missing'].append('no film')
    if trajectory.ee_pose is None:
        values['missing'].append('no path of the tool')
    values.update(_safety(episode, trajectory, kept, scoring))
    return dict(_plain(values))


def _plain(value: Any) -> Any:
    """The value with null in place of every number that is not finite, for which JSON has no word."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _facts(episode: Episode) -> dict[str, Any]:
    names = (
        'episode_id', 'attempt', 'policy', 'benchmark', 'task', 'stratum', 'condition', 'outcome', 'reason',
        'instruction', 'items', 'items_placed', 'items_lost', 'success', 'score', 'max_score', 'seed', 'instance',
        'repeat', 'session', 'operator', 'time_cap_s',
    )  # fmt: skip
    values = {name: getattr(episode, name) for name in names}
    return {name: str(value) for name, value in values.items() if value not in (None, '')}


def _event(event: Any) -> dict[str, Any]:
    return {
        't_s': event.t_s, 'kind': event.kind.value, 'source': event.source.value, 'count': event.count,
        'name': event.name,
    }  # fmt: skip


def _kept(n_steps: int) -> NDArray[np.int64]:
    """The rows that are drawn: all of them, or evenly thinned with the last one kept."""
    stride = max(1, -(-n_steps // MOST_POINTS))
    rows = np.arange(0, n_steps, stride)
    return rows if not n_steps or rows[-1] == n_steps - 1 else np.append(rows, n_steps - 1)


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Plain numbers, rounded for the wire; what is none is null."""
    rounded = np.round(np.asarray(values, dtype=np.float64), DIGITS)
    return [None if not np.isfinite(v) else float(v) for v in rounded]


def _lanes(trajectory: Trajectory, kept: NDArray[np.int64]) -> list[dict[str, Any]]:
    lanes: list[dict[str, Any]] = []

    def lane(title: str, unit: str, *series: tuple[str, Any]) -> None:
        there = [(label, values) for label, values in series if values is not None]
        if there:
            drawn = [{'label': label, 'values': _numbers(np.asarray(v, float)[kept])} for label, v in there]
            lanes.append({'title': title, 'unit': unit, 'series': drawn})

    lane('gripper', 'opening', ('target', trajectory.gripper_command), ('measured', trajectory.gripper_position),
         ('contact', trajectory.gripper_contact))  # fmt: skip
    lane('joint positions', 'rad', *_columns('joint', trajectory.joint_position_rad))
    lane('joint torques', 'N m', *_columns('joint', trajectory.joint_torque_nm))
    lane('commanded action', '', *_columns('action', trajectory.action_processed))
    lane('action as the policy gave it', '', *_columns('action', trajectory.action_raw))
    lane('tool', 'm', *_columns('', trajectory.ee_pose, names=AXES))
    if trajectory.contacts is not None:
        lane('contact force', 'N', ('largest', _largest_force(trajectory)))
    latencies = [
        (name.removesuffix('_latency_s'), getattr(trajectory, name))
        for name in ('network_latency_s', 'inference_latency_s', 'transport_latency_s')
    ]
    lane('latency', 's', *latencies)
    lane('reward', '', ('reward', trajectory.reward))
    for name, values in trajectory.extra.items():
        lane(name, '', *(_columns(name, values) if np.ndim(values) == 2 else [(name, values)]))
    return lanes


def _columns(name: str, values: Any, *, names: Sequence[str] = ()) -> list[tuple[str, Any]]:
    if values is None:
        return []
    table = np.asarray(values)
    labels = names or [f'{name} {n + 1}' for n in range(table.shape[1])]
    return [(label, table[:, n]) for n, label in enumerate(labels)]


def _largest_force(trajectory: Trajectory) -> NDArray[np.float64]:
    contacts = trajectory.contacts
    largest = np.zeros(trajectory.n_steps)
    if contacts is not None and len(contacts.force_n):
        step = np.repeat(np.arange(trajectory.n_steps), np.diff(contacts.offsets))
        np.maximum.at(largest, step, contacts.force_n)
    return largest


def _path(trajectory: Trajectory, kept: NDArray[np.int64]) -> dict[str, Any]:
    """The tool's path and those of objects, and the target box where there is one."""
    scene = trajectory.scene
    paths: dict[str, Any] = {'tool': [], 'bodies': [], 'target': None}
    if trajectory.ee_pose is not None:
        paths['tool'] = [_numbers(row) for row in np.asarray(trajectory.ee_pose)[kept, :3]]
    if trajectory.body_pose is not None:
        for place, name in enumerate(trajectory.bodies):
            rows = np.asarray(trajectory.body_pose)[kept, place, :3]
            role = scene.body_roles.get(name, '')
            if role != 'robot':
                paths['bodies'].append({'name': name, 'role': role, 'path': [_numbers(row) for row in rows]})
    if scene.target_center_m is not None and scene.target_size_m is not None:
        numbers = (*scene.target_center_m, *scene.target_size_m)
        if all(map(math.isfinite, numbers)):
            paths['target'] = {'center': list(scene.target_center_m), 'size': list(scene.target_size_m)}
    return paths


def _safety(
    episode: Episode, trajectory: Trajectory, kept: NDArray[np.int64], scoring: Scoring | None
) -> dict[str, Any]:
    """Violations with their times, and each clause's margin over time; why there are none, where there are none."""
    if not episode.is_valid:
        return {'safety_note': 'an invalid episode has no safety'}
    chosen = scoring or Scoring()
    try:
        score = score_episode(episode, trajectory, scoring=chosen)
        traces = margin_traces(episode, trajectory, scoring=chosen) if score.is_scored else {}
    except RobotrialsError as error:
        return {'safety_note': str(error)}
    return {
        'violations': [
            {**{f.name: getattr(v, f.name) for f in dataclasses.fields(v) if f.name in
                ('spec_id', 'clause', 'time_s', 'signal', 'value', 'unit', 'margin')},
             'bodies': ', '.join(map(str, v.bodies))}
            for v in score.violations
        ],
        'margins': [
            {'spec': name, 'values': _numbers(values[kept]), 'unit': ''} for name, values in traces.items()
        ],
        'safety_note': '' if score.is_scored else f'unscored: {score.because}',
    }  # fmt: skip
