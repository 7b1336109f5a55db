"""`robotrials store attach`: telemetry and cameras of other recorders, joined to a store's episodes by their clocks.

The console's clock times episodes; a recorder's clock times its recordings. Where both are set by the same time service
the intervals meet as they are, and what the starts differ by is who pressed first. Where they do not meet, the pattern
of starts gives the offset: a shift is believed only where no other shift explains the pattern nearly as well.
"""

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
from robotrials.formats.imported import ImportOptions, Media, source_hash
from robotrials.formats.rollout import file_name
from robotrials.formats.ros_view import SETTINGS
from robotrials.formats.video import TimedClip, encode_frames, opened_video
from robotrials.record import Camera, Contacts, Episode, EventKind, EventSource, Scene, Store, Trajectory
from robotrials.record.addition import Attachment, attach, check_attachable
from robotrials.record.footage import (
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

AGREE_S = 5.0  # starts that differ by less are of one episode where clocks agree
TOLERANCE_S = 2.0  # of starts around one offset
COVERED = 0.8  # of an episode's time that its recording must have
FEWEST_PAIRS = 3  # to believe an offset that no clock confirms
RIVAL = 0.8  # of the pairs: another offset with as many makes the first a guess
LONGEST_OFFSET_S = 36 * 3600.0  # a wrong time zone, or a clock a day off
FEWEST_FOR_DRIFT = 5
LARGEST_DRIFT = 1e-3  # seconds per second: no clock is that bad
MARK_LAG_S = 0.5  # from a release until the item lies still and an operator has pressed the key; give or take as much
MARK_SEARCH_S = 3.0  # how far starts may be off: a recorder is started before the clock, by somebody who looks up
MARK_WINDOW_S = 0.5
FEWEST_MARKS = 5


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something lasted, in seconds since 1970 by its own clock."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ClockJoin:
    """`theirs = ours + offset_s + drift * (ours - epoch_s)`; the recording of each episode, or None."""

    offset_s: float
    drift: float
    epoch_s: float
    pairs: tuple[int | None, ...]  # episode -> recording
    start_gap_s: float | None  # how long before the episode a recording begins, in the middle
    spread_s: float | None
    how: str
    bounds_s: tuple[float, float] | None = None  # of the offset, where it was estimated from recordings about episodes
    is_estimated: bool = False

    def theirs(self, ours_s: float) -> float:
        """The recorder's time of a moment on the console's clock."""
        return ours_s + self.offset_s + self.drift * (ours_s - self.epoch_s)

    def __str__(self) -> str:
        drift = f', drift {self.drift * 1e6:+.0f} ppm' if self.drift else ', no drift seen'
        spread = '' if self.spread_s is None else f' (starts scatter by {self.spread_s:.2f} s)'
        return f'offset {self.offset_s:+.3f} s{drift}, {self.how}{spread}'


def join_clocks(episodes: Sequence[Span], recordings: Sequence[Span], *, offset_s: float | None = None) -> ClockJoin:
    """Which recording holds which episode. `offset_s` is theirs minus ours where somebody measured it.

    InputError where nothing meets, or where two offsets explain the starts about equally well.
    """
    if not episodes or not recordings:
        raise InputError('nothing to join: no episode with a start and a duration, or no recording with a clock')
    epoch_s = min(span.start_s for span in episodes)
    if offset_s is not None:
        return _joined(episodes, recordings, offset_s, 0.0, epoch_s, how='as given')
    pairs = _held(episodes, recordings, 0.0, 0.0, epoch_s)
    if _agree(episodes, recordings, pairs) and not _drift(episodes, recordings, pairs, epoch_s):
        return _joined(episodes, recordings, 0.0, 0.0, epoch_s, how='the recorded clocks agree')
    offset, how = _voted_offset(episodes, recordings)
    pairs = _held(episodes, recordings, offset, 0.0, epoch_s)
    drift = _drift(episodes, recordings, pairs, epoch_s)
    bounds = _bounds(episodes, recordings, pairs, drift, epoch_s)
    if bounds is not None:
        offset = sum(bounds) / 2
        how += f', within {(bounds[1] - bounds[0]) / 2:.2f} s as each holds its episode'
    join = _joined(episodes, recordings, offset, drift, epoch_s, how=how)
    return dataclasses.replace(join, bounds_s=bounds, is_estimated=True)


def _bounds(
    episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None], drift: float, epoch_s: float
) -> tuple[float, float] | None:
    """The least and the largest offset by which every recording begins before its episode and ends after it.

    A recorder is started before the clock and stopped after it, so that starts alone would be off by how long somebody
    took to look up. None where a recording is no longer than its episode, or several episodes lie in one.
    """
    held = [(e, recordings[j]) for e, j in zip(episodes, pairs, strict=True) if j is not None]
    if len({id(r) for _, r in held}) < len(held) or len(held) < FEWEST_PAIRS:
        return None
    low = max(r.start_s - e.start_s - drift * (e.start_s - epoch_s) for e, r in held)
    high = min(r.end_s - e.end_s - drift * (e.end_s - epoch_s) for e, r in held)
    return (low, high) if low <= high else None


def join_by_marks(
    join: ClockJoin, episodes: Sequence[Span], recordings: Sequence[Span], *, lags_s: Sequence[Sequence[float]]
) -> ClockJoin:
    """An offset that was estimated from starts, set by what an operator marked.

    `lags_s` are, for each mark, the times from every release in the telemetry to it, by the join as it is. The lag that
    most marks share becomes `MARK_LAG_S`; where too few share one, two are shared about equally, or recordings would
    then not hold their episodes, the join stays as it is.
    """
    pairs = [(mark, lag) for mark, own in enumerate(lags_s) for lag in own if abs(lag) <= MARK_SEARCH_S]
    if not join.is_estimated or len(lags_s) < FEWEST_MARKS or not pairs:
        return join
    marks, lags = np.array([m for m, _ in pairs]), np.array([lag for _, lag in pairs])
    votes = np.array([len(set(marks[np.abs(lags - lag) <= MARK_WINDOW_S / 2].tolist())) for lag in lags])
    middle = float(np.median(lags[votes == votes.max()]))
    near = np.abs(lags - middle) <= MARK_WINDOW_S / 2
    count = len(set(marks[near].tolist()))
    rivals = votes[np.abs(lags - middle) > MARK_WINDOW_S]
    if count < COVERED * len(lags_s) or (len(rivals) and rivals.max() >= RIVAL * count):
        return join
    offset_s = join.offset_s - (float(np.median(lags[near])) - MARK_LAG_S)
    if join.bounds_s is not None and not join.bounds_s[0] <= offset_s <= join.bounds_s[1]:
        return join
    how = f'{join.how}, set by {count} marks, taken as {MARK_LAG_S:g} s after releases'
    return _joined(episodes, recordings, offset_s, join.drift, join.epoch_s, how=how)


def join_in_order(episodes: Sequence[Span], recordings: Sequence[Span]) -> ClockJoin:
    """The first recording is the first episode's, and so on; refused where their numbers or lengths differ."""
    if len(episodes) != len(recordings):
        raise InputError(f'{len(recordings)} recordings for {len(episodes)} episodes: their order does not tell')
    for number, (episode, recording) in enumerate(zip(episodes, recordings, strict=True), start=1):
        if not _is_alike(episode, recording):
            raise InputError(
                f'recording {number} lasts {recording.length_s:.1f} s and episode {number} {episode.length_s:.1f} s: '
                'their order does not tell'
            )
    how = 'joined in their order, each from its own start'
    return ClockJoin(0.0, 0.0, episodes[0].start_s, tuple(range(len(episodes))), None, None, how)


def _joined(
    episodes: Sequence[Span], recordings: Sequence[Span], offset_s: float, drift: float, epoch_s: float, *, how: str
) -> ClockJoin:
    pairs = _held(episodes, recordings, offset_s, drift, epoch_s)
    if all(pair is None for pair in pairs):
        raise InputError(
            f'no episode lies inside a recording with an offset of {offset_s:+.1f} s: their clocks say '
            f'{_when(episodes)} for episodes and {_when(recordings)} for recordings. Say what their clock is ahead by '
            'with --offset-s'
        )
    gaps = [
        recordings[j].start_s - (e.start_s + offset_s + drift * (e.start_s - epoch_s))
        for e, j in zip(episodes, pairs, strict=True)
        if j is not None
    ]
    apiece = len({p for p in pairs if p is not None}) == len(gaps)
    middle = float(np.median(gaps)) if apiece else None
    spread = float(np.std(gaps, ddof=1)) if apiece and len(gaps) > 1 else None
    return ClockJoin(offset_s, drift, epoch_s, tuple(pairs), middle, spread, how)


def _held(
    episodes: Sequence[Span], recordings: Sequence[Span], offset_s: float, drift: float, epoch_s: float
) -> list[int | None]:
    """The recording that has most of each episode, if one has enough of it."""
    pairs: list[int | None] = []
    starts = np.array([r.start_s for r in recordings])
    ends = np.array([r.end_s for r in recordings])
    for episode in episodes:
        shift = offset_s + drift * (episode.start_s - epoch_s)
        first, last = episode.start_s + shift, episode.end_s + shift
        shared = np.minimum(ends, last) - np.maximum(starts, first)
        best = int(np.argmax(shared))
        pairs.append(best if shared[best] >= COVERED * max(episode.length_s, 1e-9) else None)
    return pairs


def _agree(episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None]) -> bool:
    """Whether the intervals meet as they are: a recording of one episode also begins with it.

    Recordings of a wrong clock meet some episodes by accident: a few of them, and those in their middle.
    """
    held = [(episodes[i], recordings[j]) for i, j in enumerate(pairs) if j is not None]
    n_used = len({j for j in pairs if j is not None})
    if not held or (len(held) < COVERED * len(episodes) and n_used < COVERED * len(recordings)):
        return False
    single = [(e, r) for e, r in held if _is_alike(e, r)]
    near = sum(abs(r.start_s - e.start_s) <= AGREE_S for e, r in single)
    return near >= COVERED * len(single)


def _is_alike(episode: Span, recording: Span) -> bool:
    return abs(recording.length_s - episode.length_s) <= max(2 * TOLERANCE_S, 0.1 * episode.length_s)


def _voted_offset(episodes: Sequence[Span], recordings: Sequence[Span]) -> tuple[float, str]:
    """The shift of starts that most pairs share: pairs of about the same length, one recording for each episode."""
    ours = np.array([e.start_s for e in episodes])
    theirs = np.array([r.start_s for r in recordings])
    alike = np.array([[_is_alike(e, r) and r.length_s >= COVERED * e.length_s for r in recordings] for e in episodes])
    gaps = theirs[None, :] - ours[:, None]
    usable = alike & (np.abs(gaps) <= LONGEST_OFFSET_S)
    rows, columns = np.nonzero(usable)
    if not len(rows):
        raise InputError(
            'the clocks do not agree, and no recording is about as long as an episode, so that no offset can be '
            f'estimated: episodes at {_when(episodes)}, recordings at {_when(recordings)}. Say what their clock is '
            'ahead by with --offset-s'
        )
    values = gaps[rows, columns]
    votes = np.array([len(set(rows[np.abs(values - v) <= TOLERANCE_S].tolist())) for v in values])
    best = int(np.argmax(votes))
    near = np.abs(values - values[best]) <= TOLERANCE_S
    offset = float(np.median(values[near]))
    rivals = votes[np.abs(values - offset) > 2 * TOLERANCE_S]
    second = int(rivals.max()) if len(rivals) else 0
    count = int(votes[best])
    if count < FEWEST_PAIRS and abs(offset) > AGREE_S:
        raise InputError(
            f'{count} pairs of episodes and recordings suggest an offset of {offset:+.1f} s, too few to believe it '
            f'(wanted {FEWEST_PAIRS}). Say what their clock is ahead by with --offset-s'
        )
    if second >= RIVAL * count:
        raise InputError(
            f'ambiguous: an offset of {offset:+.1f} s explains {count} pairs of starts, and another one {second}. '
            'Say what their clock is ahead by with --offset-s'
        )
    return offset, f'estimated from the starts of {count} pairs'


def _drift(episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None], epoch_s: float) -> float:
    """How much faster their clock runs, by least squares on the starts, if it is seen (three standard errors)."""
    rows = [(e.start_s - epoch_s, recordings[j].start_s - e.start_s) for e, j in zip(episodes, pairs, strict=True)
            if j is not None]  # fmt: skip
    if len(rows) < FEWEST_FOR_DRIFT or len({j for j in pairs if j is not None}) < len(rows):
        return 0.0
    table: NDArray[np.float64] = np.array(rows)
    t, gap = table[:, 0] - table[:, 0].mean(), table[:, 1] - table[:, 1].mean()
    if not np.any(t):
        return 0.0
    slope = float(t @ gap / (t @ t))
    error = float(np.sqrt(((gap - slope * t) ** 2).sum() / (len(t) - 2) / (t @ t)))
    if abs(slope) > LARGEST_DRIFT:
        raise InputError(
            f'the starts drift by {slope * 1e6:+.0f} ppm, more than any clock: these are not the episodes recorded'
        )
    return slope if abs(slope) > 3 * error and abs(slope) * float(np.ptp(t)) > 0.05 else 0.0


def _when(spans: Sequence[Span]) -> str:
    first, last = min(s.start_s for s in spans), max(s.end_s for s in spans)
    written = [dt.datetime.fromtimestamp(t, dt.UTC).isoformat(sep=' ', timespec='seconds') for t in (first, last)]
    return f'{written[0]} to {written[1]}'


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
        if rig is None or self.reading.settings:  # the user's own settings go before the rig's views
            moved = partial(_episode_time, source.join, episode)
            clock = lambda t_s: float(moved(np.array(recorded.start_s + t_s)))  # noqa: E731
            return _moments(episode, recorded.media, clock, self.reading.settings)
        if not is_bag(path):
            return {}
        files, lacks = rig.views(path, episode, clock=lambda t_s: source.join.theirs(_start_s(episode) + t_s))
        self.notes.extend(f'{_named(episode)}: no RGB-D of the {lack}' for lack in lacks)
        folder = f'episodes/{episode.episode_id}-{episode.attempt}'
        return {f'{folder}/{name}': partial(Path.write_bytes, data=content) for name, content in files.items()}

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
        files[f'{own}/{KNOWN}'] = partial(Path.write_text, data=text, encoding='utf-8')
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
    own = slice(int(contacts.offsets[first]), int(contacts.offsets[last]))
    return dataclasses.replace(
        contacts, offsets=contacts.offsets[first : last + 1] - own.start, body_a=contacts.body_a[own],
        body_b=contacts.body_b[own], force_n=contacts.force_n[own],
        point_m=None if contacts.point_m is None else contacts.point_m[own],
    )  # fmt: skip
