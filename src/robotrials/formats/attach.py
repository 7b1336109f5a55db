"""`robotrials store attach`: telemetry and cameras of other recorders, joined to a store's episodes by their clocks."""

from __future__ import annotations

import dataclasses
import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.formats.bag import is_bag
from robotrials.formats.catalog import candidates, open_source
from robotrials.formats.clock import (
    COVERED,
    FEWEST_PAIRS,
    MARK_LAG_S,
    ClockJoin,
    Span,
    join_by_marks,
    join_clocks,
    join_in_order,
)
from robotrials.formats.imported import ImportOptions, Media, source_hash
from robotrials.formats.rollout import file_name
from robotrials.formats.ros_view import SETTINGS
from robotrials.formats.video import TimedClip, encode_frames, opened_video
from robotrials.record import Camera, Contacts, Episode, EventKind, EventSource, Scene, Store, Trajectory
from robotrials.record.addition import Attachment, attach, check_attachable
from robotrials.record.media import (
    END,
    FOLDER,
    KNOWN,
    START,
    film_times,
    moment_name,
    moment_time_s,
    pack_views,
    read_scene,
    unpack_views,
)
from robotrials.record.trajectory import STEP_COLUMNS, frame_times

EARLIEST_MARK_S, LATEST_MARK_S = -0.5, 2.0  # in the middle, from a release to the operator's mark
GAP_S = 1.0  # of telemetry inside an episode that is said
VIDEOS = ('.mp4', '.mkv', '.mov', '.avi', '.webm')
# A recorder of telemetry knows no policy, task or verdict: those are the episode's.
NOBODY = {'policy': 'attached', 'task': 'attached'}
BY_FORMAT = {
    'positronic': ImportOptions(defaults=NOBODY, blank='invalid'),
    'mcap': ImportOptions(),
}  # fmt: skip
OTHERS = ImportOptions(defaults={**NOBODY, 'outcome': 'invalid'})
SLACK_S = 1e-3  # the record's own, between clocks
NEAR_S = 2.0  # before the start and after the end, that a view may stand in for one within
Array = NDArray[np.float64]


class Rig(Protocol):
    """What a trial's plan says of the robot that a bag is of (`robotrials.worlds.recorded`)."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Signal -> topic, as `--map` has them."""

    def fitted(self, path: Path, trajectory: Trajectory) -> Trajectory:
        """A bag's trajectory in the record's units."""

    def span(self, path: Path) -> tuple[float, float]:
        """From when to when a bag lasts by its clock; a trajectory begins with its last topic's first message."""

    def views(
        self, path: Path, episode: Episode, *, clock: Callable[[float], float]
    ) -> tuple[Mapping[str, bytes], Sequence[str]]:
        """Files of RGB-D of an episode, and what they lack; `clock` is the bag's, of a time in the episode."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """How sources are read: by the plan's rig, and by what the user maps."""

    rig: Rig | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # of RGB-D views, as `import` takes them

    @property
    def has_rig_views(self) -> bool:
        """Whether the plan's rig says which views are kept; settings of the user's own go before."""
        return self.rig is not None and not self.settings

    def options(self, path: Path, *, cameras: bool) -> ImportOptions:
        formats = candidates(path)
        name = formats[0].format.name if formats else ''
        options = BY_FORMAT.get(name, OTHERS)
        columns = {**(self.rig.columns if self.rig is not None and name == 'ros' else {}), **self.columns}
        options = dataclasses.replace(options, columns=columns) if columns else options
        if name == 'mcap':
            return options
        if not cameras:
            return dataclasses.replace(options, answers={'cameras': 'leave'})
        if name == 'ros':
            # What is known of a scene is told by the episode that the recording is of, which the bag does not know.
            views = {key: text for key, text in self.settings.items() if key != 'known'}
            return dataclasses.replace(options, defaults={**options.defaults, **views})
        return options


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One recording of a source: when it began by its clock, and what it has."""

    path: Path  # of its own bag where the source is a folder of them
    start_s: float  # of its trajectory
    trajectory: Trajectory
    media: Mapping[str, Media]
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file or folder: where its recordings begin and end, and how its clock meets the store's."""

    path: Path
    spans: tuple[Span, ...]
    join: ClockJoin
    starts_s: tuple[float, ...] = ()  # of each recording's trajectory
    releases_s: tuple[tuple[float, ...], ...] = ()  # by their clock, of each recording
    frames_s: Array | None = None  # of a lone film, by its clock

    @property
    def held(self) -> dict[int, list[int]]:
        """Recording -> the episodes in it."""
        held: dict[int, list[int]] = {}
        for episode, recording in enumerate(self.join.pairs):
            if recording is not None:
                held.setdefault(recording, []).append(episode)
        return held


@dataclass(frozen=True, slots=True, eq=False)
class AttachmentPlan:
    """What would be joined to what, before anything is written."""

    store: Store
    episodes: tuple[Episode, ...]
    telemetry: tuple[Source, ...]
    films: tuple[Source, ...]
    keys: tuple[tuple[str, int], ...] = ()
    lags_s: tuple[float, ...] = ()  # from a release in the telemetry to the operator's mark
    reading: Reading = field(default_factory=Reading)
    notes: list[str] = field(default_factory=list)  # what is missing of what was joined; complete after `write`

    def write(self, *, by: str = '') -> int:
        """Attach everything in one durable write; how many episodes have a trajectory now."""
        is_blinded = self.store.is_blinded
        sources = [
            {'sha256': source_hash(_files(s.path)), **({} if is_blinded else {'source': s.path.name}),
             'offset_s': s.join.offset_s, 'drift': s.join.drift, 'how': s.join.how,
             'start_gap_s': s.join.start_gap_s, 'spread_s': s.join.spread_s}
            for s in (*self.telemetry, *self.films)
        ]  # fmt: skip
        return attach(self.store, self._attachments(), keys=self.keys, body={'sources': sources}, by=by)

    def _attachments(self) -> Iterator[Attachment]:
        """One recording in memory at a time; then the episodes that have films alone."""
        done: set[int] = set()
        for source in self.telemetry:
            held = source.held
            recordings = _recordings(source.path, self.reading, cameras=True, needs_clock=False)
            for number, recorded in enumerate(recordings):
                for index in held.get(number, ()):
                    done.add(index)
                    own = dataclasses.replace(recorded, start_s=source.starts_s[number])
                    yield self._joined(index, source, own)
        for index in sorted({e for film in self.films for held in film.held.values() for e in held} - done):
            yield self._filmed(index)

    def _joined(self, index: int, source: Source, recorded: Recorded) -> Attachment:
        episode, trajectory = self.episodes[index], recorded.trajectory
        start_s, media = recorded.start_s, recorded.media
        time_s = _episode_time(source.join, episode, start_s + np.asarray(trajectory.time_s, dtype=np.float64))
        rows = np.flatnonzero((time_s >= -SLACK_S) & (time_s <= (episode.duration_s or 0.0) + SLACK_S))
        cameras: list[Camera] = []
        files: dict[str, Callable[[Path], object]] = {}
        for camera in trajectory.scene.cameras:
            if camera.video in media:
                frames_s = np.asarray(frame_times(camera, trajectory), dtype=np.float64)
                shown_s = _episode_time(source.join, episode, start_s + frames_s)
                kept, clip = _cut_film(episode, camera, shown_s, time_s[rows], media[camera.video])
                cameras.append(kept)
                files[kept.video] = clip.write
        for camera, write in self._films_of(index, time_s[rows]):
            cameras.append(camera)
            files[camera.video] = write
        cut = cut_trajectory(trajectory, rows, time_s[rows], cameras=tuple(cameras))
        self.notes.extend(_gaps(episode, time_s[rows]))
        return Attachment(episode.key, cut, files | self._views(episode, source, recorded))

    def _views(self, episode: Episode, source: Source, recorded: Recorded) -> dict[str, Callable[[Path], object]]:
        rig, path = self.reading.rig, recorded.path
        if rig is None or not self.reading.has_rig_views:
            moved = partial(_episode_time, source.join, episode)
            clock = lambda t_s: float(moved(np.array(recorded.start_s + t_s)))  # noqa: E731
            return _moments(episode, recorded.media, clock, self.reading.settings)
        if not is_bag(path):
            return {}
        files, lacks = rig.views(path, episode, clock=lambda t_s: source.join.theirs(_start_s(episode) + t_s))
        self.notes.extend(f'{_named(episode)}: no RGB-D of the {lack}' for lack in lacks)
        folder = f'episodes/{episode.episode_id}-{episode.attempt}'
        return {f'{folder}/{name}': partial(_write_bytes, content) for name, content in files.items()}

    def _filmed(self, index: int) -> Attachment:
        """Steps of an episode without telemetry: the frames of its first film."""
        episode = self.episodes[index]
        source = next(f for f in self.films if f.join.pairs[index] is not None)
        assert source.frames_s is not None
        shown_s = _episode_time(source.join, episode, source.frames_s)
        inside = (shown_s >= -SLACK_S) & (shown_s <= (episode.duration_s or 0.0) + SLACK_S)
        time_s = np.unique(shown_s[inside])
        films = list(self._films_of(index, time_s))
        rate_hz = float(1 / np.median(np.diff(time_s))) if len(time_s) > 1 else None
        scene = Scene(control_rate_hz=rate_hz, cameras=tuple(camera for camera, _ in films))
        files = {camera.video: write for camera, write in films}
        return Attachment(episode.key, Trajectory(time_s=time_s, scene=scene), files)

    def _films_of(self, index: int, time_s: Array) -> Iterator[tuple[Camera, Callable[[Path], object]]]:
        episode = self.episodes[index]
        for source in self.films:
            if source.join.pairs[index] is None or source.frames_s is None:
                continue
            with opened_video(source.path) as container:
                context = container.streams.video[0].codec_context
                camera = Camera(source.path.stem, None, None, int(context.width), int(context.height))
            shown_s = _episode_time(source.join, episode, source.frames_s)
            kept, clip = _cut_film(episode, camera, shown_s, time_s, source.path)
            yield kept, clip.write


def plan_attachment(
    store: Store,
    paths: Sequence[Path],
    *,
    offset_s: float | None = None,
    in_order: bool = False,
    rig: Rig | None = None,
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> AttachmentPlan:
    """Open every source once for its clock, and say what belongs to what; InputError where it cannot be told.

    rig: what the plan says of a bag's topics and cameras. columns: signal -> column or topic where the presets do not
    know. settings: what `robotrials import` takes for RGB-D views of bags (known, calibration, rgbd and the others);
    they go before the rig's own views.
    """
    unknown = next((name for name in settings or {} if name not in SETTINGS), None)
    if unknown is not None:
        raise UnknownName('setting of an attachment', unknown, SETTINGS)
    reading = Reading(rig, columns or {}, settings or {})
    episodes = tuple(
        sorted(
            (e for e in store.episodes(attempts='all') if e.started_at is not None and e.duration_s),
            key=lambda e: (_start_s(e), e.attempt),
        )
    )
    if not episodes:
        raise InputError(
            f'{store.path}: no episode says when it began and how long it lasted, so nothing can be joined'
        )
    store.check_open({e.trial_id for e in episodes})  # before hours of recordings are read for nothing
    ours = [Span(_start_s(e), _start_s(e) + (e.duration_s or 0.0)) for e in episodes]
    telemetry: list[Source] = []
    films: list[Source] = []
    for path in paths:
        if not path.exists():
            raise InputError(f'{path}: no such file or folder')
        is_film = path.is_file() and path.suffix.lower() in VIDEOS and not candidates(path)
        if is_film:
            source = _open_film(path, ours, offset_s)
        else:
            source = _open_telemetry(path, ours, offset_s, in_order, reading)
            join = join_by_marks(source.join, ours, source.spans, lags_s=list(_mark_lags(source, episodes)))
            source = dataclasses.replace(source, join=join)
        (films if is_film else telemetry).append(source)
    named = [e for source in telemetry for held in source.held.values() for e in held]
    named += sorted({e for film in films for held in film.held.values() for e in held} - set(named))
    keys = tuple(episodes[index].key for index in named)
    check_attachable(store, keys)
    lags_s = tuple(min(own, key=abs) for source in telemetry for own in _mark_lags(source, episodes))
    notes = [*_unjoined(ours, episodes, telemetry), *_late_marks(lags_s)]
    return AttachmentPlan(store, episodes, tuple(telemetry), tuple(films), keys, lags_s, reading, notes)


def _open_telemetry(
    path: Path, ours: Sequence[Span], offset_s: float | None, in_order: bool, reading: Reading
) -> Source:
    spans, starts, releases = [], [], []
    for recorded in _recordings(path, reading, cameras=False, needs_clock=not in_order):
        spans.append(recorded.span)
        starts.append(recorded.start_s)
        releases.append(tuple(recorded.start_s + t for t in _releases(recorded.trajectory)))
    if not spans:
        raise InputError(f'{path}: no recording with telemetry in it')
    try:
        join = join_in_order(ours, spans) if in_order else join_clocks(ours, spans, offset_s=offset_s)
    except InputError as error:
        raise InputError(f'{path}: {error}; nothing was attached') from error
    if in_order:  # the clock of an ordered recording is its episode's
        pairs = {j: i for i, j in enumerate(join.pairs) if j is not None}
        spans = [Span(ours[pairs[j]].start_s, ours[pairs[j]].start_s + s.length_s) for j, s in enumerate(spans)]
        starts = [span.start_s for span in spans]
    return Source(path, tuple(spans), join, tuple(starts), tuple(releases))


def _open_film(path: Path, ours: Sequence[Span], offset_s: float | None) -> Source:
    frames_s = _film_clock(path)
    span = Span(float(frames_s[0]), float(frames_s[-1]))
    try:
        join = join_clocks(ours, [span], offset_s=offset_s)
    except InputError as error:
        raise InputError(f'{path}: {error}; nothing was attached') from error
    return Source(path, (span,), join, frames_s=frames_s)


def _film_clock(path: Path) -> Array:
    """When each frame was taken, in seconds since 1970: its times from the moment that the file says it began."""
    with opened_video(path) as container:
        created = container.metadata.get('creation_time') or container.streams.video[0].metadata.get('creation_time')
    if not created:
        raise InputError(
            f'{path}: no creation_time in it, so that nobody knows when it was filmed; record with one, or write it: '
            'ffmpeg -i IN.mp4 -c copy -metadata creation_time=2026-01-31T14:00:00Z OUT.mp4'
        )
    try:
        began = dt.datetime.fromisoformat(created.replace('Z', '+00:00'))
    except ValueError as error:
        raise InputError(f'{path}: creation_time is {created!r}, wanted ISO 8601') from error
    began = began if began.tzinfo is not None else began.replace(tzinfo=dt.UTC)
    return np.asarray(film_times(path), dtype=np.float64) + began.timestamp()


def _recordings(path: Path, reading: Reading, *, cameras: bool, needs_clock: bool = True) -> Iterator[Recorded]:
    """The recordings of a source that have telemetry."""
    options = reading.options(path, cameras=cameras)
    imported = open_source(path, options)  # its files are there as long as it is
    for recording in imported.recordings():
        started, trajectory = recording.episode.started_at, recording.trajectory
        if started is None and needs_clock:
            raise InputError(
                f'{path}: it does not record when a recording began, so that clocks cannot be joined; with --in-order '
                'its recordings are those of the episodes, in their order and of their lengths; nothing was attached'
            )
        if trajectory is None:
            continue
        own = path / recording.episode.labels.get('bag', '') if not is_bag(path) else path
        start_s = 0.0 if started is None else started.timestamp()
        span = Span(start_s, start_s + float(trajectory.time_s[-1]))
        if reading.rig is not None and imported.format == 'ros':
            trajectory = reading.rig.fitted(own, trajectory)
            span = span if started is None else Span(*reading.rig.span(own))
        yield Recorded(own, start_s, trajectory, recording.media, span)


def _unjoined(ours: Sequence[Span], episodes: Sequence[Episode], telemetry: Sequence[Source]) -> Iterator[str]:
    """Episodes of the recorded time that no recording has enough of, and those that two have."""
    for span, episode in zip(ours, episodes, strict=True):
        shares = []
        for source in telemetry:
            first, last = source.join.theirs(span.start_s), source.join.theirs(span.end_s)
            if last > min(r.start_s for r in source.spans) and first < max(r.end_s for r in source.spans):
                shares += [max(min(r.end_s, last) - max(r.start_s, first), 0.0) / span.length_s for r in source.spans]
        best = sorted(shares, reverse=True)[:2]
        if best and best[0] < COVERED:
            had = (
                f'the most that one recording has of it is {best[0]:.0%}' if best[0] else 'no recording is of its time'
            )
            yield f'{_named(episode)}: no telemetry: {had}'
        elif len(best) == 2 and best[1] >= COVERED:
            yield f'{_named(episode)}: two recordings overlap it; the one that has more of it was taken'


def _late_marks(lags_s: Sequence[float]) -> Iterator[str]:
    """A join that the operator's marks contradict: nobody marks a placement long before or after it."""
    if len(lags_s) >= FEWEST_PAIRS and not EARLIEST_MARK_S <= (lag := float(np.median(lags_s))) <= LATEST_MARK_S:
        yield (
            f"the operator's marks come {lag:+.1f} s after releases in the middle: the clocks may differ by about "
            f'{MARK_LAG_S - lag:+.1f} s more; look at an episode, and say the offset with --offset-s'
        )


def _gaps(episode: Episode, time_s: Array) -> Iterator[str]:
    """Where an episode has no telemetry for longer than a beat: nothing that happened then can be detected."""
    edges = np.concatenate([[0.0], time_s, [episode.duration_s or 0.0]])
    for begin in np.flatnonzero(np.diff(edges) > GAP_S).tolist():
        yield f'{_named(episode)}: no telemetry from {edges[begin]:.1f} to {edges[begin + 1]:.1f} s'


def _named(episode: Episode) -> str:
    return f'{episode.episode_id}/{episode.attempt}'


def _write_bytes(content: bytes, target: Path) -> None:
    target.write_bytes(content)


def _moments(
    episode: Episode, media: Mapping[str, Media], episode_time: Callable[[float], float], settings: Mapping[str, str]
) -> dict[str, Callable[[Path], object]]:
    """The moments of RGB-D that show an episode, by its own time; its start and end, and what lies between."""
    own = f'episodes/{episode.episode_id}-{episode.attempt}'
    duration_s = episode.duration_s or 0.0
    moments: list[tuple[float, Media]] = []
    for name, medium in media.items():
        if f'/{FOLDER}/' in name and name.endswith('.zip'):
            moments.append((episode_time(moment_time_s(_content(medium), where=name)), medium))
    near = sorted((m for m in moments if -NEAR_S <= m[0] <= duration_s + NEAR_S), key=lambda m: m[0])
    inside = [m for m in near if -SLACK_S <= m[0] <= duration_s + SLACK_S]
    # What was seen shortly before the start or after the end stands in where nothing was within.
    first = inside[0] if inside else None
    chosen = [first or near[0], *inside[1:-1], inside[-1] if len(inside) > 1 else near[-1]] if len(near) > 1 else []
    if not chosen or chosen[0] is chosen[-1]:
        return {}
    names = [START, *(moment_name(t_s) for t_s, _ in chosen[1:-1]), END]
    files: dict[str, Callable[[Path], object]] = {
        f'{own}/{name}': partial(_write_moment, medium, shift_s=t_s)
        for name, (t_s, medium) in zip(names, chosen, strict=True)
    }
    if settings.get('known'):
        given = {name: getattr(episode, name) for name in ('task', 'seed', 'instance', 'stratum')}
        text = read_scene(settings['known'], given).as_json()
        files[f'{own}/{KNOWN}'] = partial(_write_text, text)
    return files


def _content(medium: Media) -> bytes:
    """The bytes of a file, or of what would become one."""
    if isinstance(medium, Path):
        return medium.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        medium.write(Path(folder) / 'medium')
        return (Path(folder) / 'medium').read_bytes()


def _write_moment(medium: Media, target: Path, *, shift_s: float) -> None:
    """A moment by the episode's own time: its first view at `shift_s`."""
    views = unpack_views(_content(medium), where=str(target))
    first_s = min(view.t_s for view in views.values())
    moved = {n: dataclasses.replace(v, t_s=v.t_s - first_s + shift_s) for n, v in views.items()}
    target.write_bytes(pack_views(moved))


def _write_text(text: str, target: Path) -> None:
    target.write_text(text, encoding='utf-8')


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob('*') if p.is_file())


def _start_s(episode: Episode) -> float:
    assert episode.started_at is not None
    return episode.started_at.timestamp()


def _episode_time(join: ClockJoin, episode: Episode, theirs_s: Array) -> Array:
    """Times of their clock as seconds since the episode's start."""
    shift = join.offset_s - join.drift * join.epoch_s
    time_s: Array = (theirs_s - shift) / (1 + join.drift) - _start_s(episode)
    return time_s


def _releases(trajectory: Trajectory) -> Array:
    """When the gripper was told to open, or opened: openings from below the middle of their range to above it."""
    opening = trajectory.gripper_command if trajectory.gripper_command is not None else trajectory.gripper_position
    if opening is None or not np.isfinite(opening).any():
        return np.zeros(0)
    values = np.asarray(opening, dtype=np.float64)
    low, high = np.nanmin(values), np.nanmax(values)
    is_open = values > (low + high) / 2
    return np.asarray(trajectory.time_s, dtype=np.float64)[1:][is_open[1:] & ~is_open[:-1] & (high > low)]


def _mark_lags(source: Source, episodes: Sequence[Episode]) -> Iterator[list[float]]:
    """For each placement that an operator marked: the times from every release in its recording to it."""
    for recording, held in source.held.items():
        releases = np.array(source.releases_s[recording]) if source.releases_s else np.zeros(0)
        for index in held if len(releases) else ():
            times_s = _episode_time(source.join, episodes[index], releases)
            for event in episodes[index].events:
                if event.kind is EventKind.PLACEMENT and event.source is EventSource.OPERATOR:
                    yield (event.t_s - times_s).tolist()


def _cut_film(episode: Episode, camera: Camera, shown_s: Array, time_s: Array, source: Media) -> tuple[Camera, CutFilm]:
    """The frames that show the episode, and the last one before it; `shown_s` are in its time."""
    inside = shown_s <= (episode.duration_s or 0.0) + SLACK_S
    before = np.flatnonzero(shown_s < -SLACK_S)
    inside[before[:-1]] = False
    steps = np.searchsorted(time_s, shown_s[inside], side='right')
    times_s = np.append(0.0, time_s)[np.minimum(steps, len(time_s))]
    name = f'{episode.episode_id}-{episode.attempt}/{file_name(camera.name)}.mp4'
    kept = dataclasses.replace(camera, video=name, depth='', video_steps=tuple(steps.tolist()))
    return kept, CutFilm(source, tuple(np.flatnonzero(inside).tolist()), tuple(times_s.tolist()), len(shown_s))


@dataclass(frozen=True, slots=True)
class CutFilm:
    """Some frames of a film, each at its time in the episode; copied where all are kept, else encoded anew."""

    source: Media
    frames: tuple[int, ...]
    times_s: tuple[float, ...]
    length: int

    def write(self, target: Path) -> None:
        """Write the frames as an MP4 file."""
        path = self.source if isinstance(self.source, Path) else target.with_suffix('.whole.mp4')
        try:
            if not isinstance(self.source, Path):
                self.source.write(path)
            if len(self.frames) == self.length:
                TimedClip(path, self.times_s).write(target)
                return
            with opened_video(path) as container:
                wanted = set(self.frames)
                decoded = (
                    frame.to_ndarray(format='rgb24')
                    for number, frame in enumerate(container.decode(container.streams.video[0]))
                    if number in wanted
                )
                rate = float(container.streams.video[0].average_rate or 30)
                encode_frames(decoded, target, fps=rate, times_s=self.times_s)
        finally:
            if path is not self.source:
                path.unlink(missing_ok=True)


def cut_trajectory(
    trajectory: Trajectory, rows: NDArray[np.intp], time_s: Array, *, cameras: tuple[Camera, ...]
) -> Trajectory:
    """Some rows, one after the other, on a clock of their own."""
    if not len(rows):
        raise InputError('no step of the recording lies inside the episode; nothing was attached')
    changed: dict[str, Any] = {
        name: np.asarray(column)[rows] for name in STEP_COLUMNS if (column := getattr(trajectory, name)) is not None
    }
    if trajectory.body_pose is not None:
        changed['body_pose'] = trajectory.body_pose[rows]
    if trajectory.contacts is not None:
        changed['contacts'] = _cut_contacts(trajectory.contacts, int(rows[0]), int(rows[-1]) + 1)
    return dataclasses.replace(
        trajectory, time_s=time_s, **changed,
        extra={name: np.asarray(column)[rows] for name, column in trajectory.extra.items()},
        frame_hash={name: column[rows] for name, column in trajectory.frame_hash.items()},
        scene=dataclasses.replace(trajectory.scene, cameras=cameras),
    )  # fmt: skip


def _cut_contacts(contacts: Contacts, first: int, last: int) -> Contacts:
    begin, end = int(contacts.offsets[first]), int(contacts.offsets[last])
    pick = partial(lambda column: column[begin:end])
    return dataclasses.replace(
        contacts, offsets=contacts.offsets[first : last + 1] - begin, body_a=pick(contacts.body_a),
        body_b=pick(contacts.body_b), force_n=pick(contacts.force_n),
        point_m=None if contacts.point_m is None else pick(contacts.point_m),
    )  # fmt: skip
