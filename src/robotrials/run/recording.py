"""Recording an episode: columns of every control step, films drawn afterwards, RGB-D views that are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RobotrialsError, StoreError, UnknownName
from robotrials.record import Contacts, Scene, Trajectory
from robotrials.record.footage import (
    END,
    FOLDER,
    KNOWN,
    START,
    STATES_FILE,
    FilmStates,
    encode_film,
    load_av,
    moment_name,
    pack_views,
)
from robotrials.record.trajectory import STEP_COLUMNS, Camera
from robotrials.run.conditions import Delay
from robotrials.run.fault import message_of, storable_text
from robotrials.run.host import Ability, Host
from robotrials.run.plan import FilmOptions, RecordingOptions, TrialPlan
from robotrials.run.seam import Action, Gripper, HostSpec, Observation, Setup
from robotrials.value import dataclass

# The recorder: columns of what was measured after every control step. It only looks; nothing depends on it.

FIRST_ROWS = 4096
STATE = 'observation_state'
AGE = 'observation_age_s'
BOOLEAN = ('gripper_contact', 'done')
POINTS = 'contact_point_m'  # a host's (C, 3) points of the `contacts` of the same step


class Recorder:
    """Row t is the world after action t, and that action: an episode of T actions has T rows.

    `action_raw` is what the policy said (NaN where it was still thinking), `action_processed` what the host was given.
    Latencies, and the age of the observation, stand at the step in which an answer took effect and are NaN elsewhere.
    """

    def __init__(
        self, spec: HostSpec, options: RecordingOptions, *, most_steps: int, with_latency: bool, scene: Scene | None,
        with_age: bool = False,
    ) -> None:  # fmt: skip
        self._options = options
        self._capacity = min(max(most_steps, 1), FIRST_ROWS)  # a long cap is no reason to take its memory
        self._columns: dict[str, NDArray[Any]] = {}
        self._hashes: dict[str, NDArray[np.uint64]] = {}
        self._contacts: list[list[tuple[str, str, float]]] = []
        self._points: list[NDArray[np.float32]] = []
        self._bodies: tuple[str, ...] = ()
        self._broken: dict[str, str] = {}
        self._next: dict[str, int] = {}  # the row that a boolean or contact column has to fill next
        self._limits: NDArray[Any] | None = None
        self._with_latency, self._with_age = with_latency, with_age
        self._has_gripper = spec.action.gripper is not Gripper.NONE
        self._missing = np.full(spec.action.width, np.nan)
        base = scene if scene is not None else Scene()
        mode = f'{spec.action.control_mode.value}_{spec.action.target.value}'
        self._scene = dataclasses.replace(base, control_mode=mode, control_rate_hz=spec.control_rate_hz)
        self._rows = 0

    def record(
        self, time_s: float, observation: Observation, *, raw: Action | None, sent: Action, delay: Delay | None,
        signals: Mapping[str, Any] | None, age_s: float | None = None,
    ) -> None:  # fmt: skip
        """Add one row."""
        if self._rows == self._capacity:
            self._grow()
        self._put('time_s', time_s)
        self._put('action_raw', self._missing if raw is None else raw)
        self._put('action_processed', sent)
        if self._has_gripper:
            self._put('gripper_command', sent[-1])
        if len(observation.state):
            self._put(STATE, observation.state)
        if self._with_latency:
            for name in ('network', 'inference', 'transport'):
                self._put(f'{name}_latency_s', np.nan if delay is None else getattr(delay, f'{name}_s'))
        if self._with_age:
            self._put(AGE, np.nan if age_s is None else age_s)
        if self._options.frame_hashes:
            for camera, image in observation.images.items():
                self._put_hash(camera, image)
        if signals:
            self._put_signals(signals)
        self._rows += 1

    def _grow(self) -> None:
        """Twice the room."""
        for columns in (self._columns, self._hashes):
            for name, column in columns.items():
                columns[name] = np.concatenate([column, np.full_like(column, _blank(column.dtype))])
        self._capacity *= 2

    def trajectory(self) -> Trajectory | None:
        """The rows so far as a trajectory; None before the first."""
        if not self._rows:
            return None
        columns = {name: column[: self._rows].copy() for name, column in self._columns.items()}
        for name, row in self._next.items():
            if row < self._rows:
                self._broken.setdefault(name, f'not recorded at step {row}')
        for name in self._broken:
            columns.pop(name, None)
        known = {name: columns.pop(name) for name in (*STEP_COLUMNS, 'time_s', 'body_pose') if name in columns}
        has_contacts = bool(self._contacts) and 'contacts' not in self._broken
        return Trajectory(
            **known,
            bodies=self._bodies,
            contacts=Contacts.from_steps(self._contacts, points_m=self._all_points()) if has_contacts else None,
            joint_torque_limit_nm=self._limits,
            frame_hash={camera: hashes[: self._rows].copy() for camera, hashes in self._hashes.items()},
            extra=columns,
            scene=self._scene,
            broken=dict(self._broken),
        )

    def _all_points(self) -> list[NDArray[np.float32]] | None:
        """A point for every contact of every step; else none at all, and the column is broken."""
        if not self._points or POINTS in self._broken:
            return None
        for step, (rows, points) in enumerate(zip(self._contacts, self._points, strict=True)):
            if points.shape != (len(rows), 3):
                self._broken[POINTS] = f'shape {points.shape} at step {step}, wanted ({len(rows)}, 3)'
                return None
        return self._points

    def _put(self, name: str, value: Any) -> None:
        try:
            self._columns[name][self._rows] = value
        except KeyError:
            self._columns[name] = np.full((self._capacity, *np.shape(value)), np.nan)
            self._columns[name][self._rows] = value

    def _put_truth(self, name: str, value: Any) -> None:
        if self._is_next(name, value):
            if name not in self._columns:
                self._columns[name] = np.zeros(self._capacity, dtype=bool)
            self._columns[name][self._rows] = value

    def _is_next(self, name: str, value: Any) -> bool:
        """Whether a column that has no NaN goes on without a gap and with a truth value; else it is broken."""
        row = self._next.get(name, 0)
        if row < self._rows:
            self._broken.setdefault(name, f'not recorded at step {row}')
        elif not isinstance(value, bool | np.bool_) and not (isinstance(value, int | float) and value in (0, 1)):
            self._broken.setdefault(name, f'{value!r} at step {row}, wanted true or false')
        self._next[name] = self._rows + 1
        return name not in self._broken

    def _put_signals(self, signals: Mapping[str, Any]) -> None:
        for name, value in signals.items():
            if value is None or (name == 'simulator_state' and not self._options.simulator_state):
                continue
            if name == 'body_pose':
                self._bodies = self._bodies or tuple(value)
                self._put(name, np.array([value[body] for body in self._bodies]))
            elif name == 'contacts':
                if self._is_next(name, False):
                    self._contacts.append(list(value))
            elif name == POINTS:
                if self._is_next(name, False):
                    self._points.append(np.array(value, dtype=np.float32).reshape(-1, 3))
            elif name == 'joint_torque_limit_nm':
                self._limits = np.array(value, dtype=float)
            elif name in BOOLEAN:
                self._put_truth(name, value)
            else:
                self._put(name, value)

    def _put_hash(self, camera: str, image: NDArray[np.uint8]) -> None:
        digest = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=8).digest()
        if camera not in self._hashes:
            self._hashes[camera] = np.zeros(self._capacity, dtype=np.uint64)
        self._hashes[camera][self._rows] = int.from_bytes(digest)


def _blank(kind: np.dtype[Any]) -> float:
    return float('nan') if kind.kind == 'f' else 0


# Filming an episode: drawn from the states its host kept, once the episode is over, so that no step waits for it.
# A film is a view of the record. Whatever goes wrong with it is noted, and changes neither outcome nor validity.

LONGEST_NOTE = 300
MOST_SEEN = 2
MOST_SEEN_BYTES = 256 << 20  # a longer episode is filmed at half the rate, and half again
PREFIX = 'film_'  # a film has its own size, so it is a camera of its own in the record


@dataclass(frozen=True, slots=True, eq=False)
class Filmed:
    """The trajectory with its films as cameras, the files, and why there is no film where one was wanted."""

    trajectory: Trajectory | None
    media: Mapping[str, bytes] = field(default_factory=dict)
    note: str = ''


class SeenFrames:
    """What a host that cannot draw afterwards showed in its observations, at the film's rate: its first two cameras."""

    def __init__(self, spec: HostSpec, options: FilmOptions) -> None:
        self._spec, self._every = spec, max(spec.control_rate_hz / options.rate_hz, 1.0)
        self._cameras = tuple(c for c in spec.images if c in options.cameras or not options.cameras)[:MOST_SEEN]
        self._frame_bytes = sum(3 * high * wide for high, wide in (spec.images[c] for c in self._cameras))
        self._kept: dict[int, dict[str, NDArray[np.uint8]]] = {}
        self._last: tuple[int, dict[str, NDArray[np.uint8]]] | None = None

    def see(self, images: Mapping[str, NDArray[np.uint8]], *, step: int) -> None:
        """Keep the pictures after a step if a frame is due; the arrays are ours, so nothing is copied."""
        seen = {name: images[name] for name in self._cameras}
        self._last = (step, seen)
        if step == int(np.floor(len(self._kept) * self._every + 0.5)):
            self._kept[step] = seen
            if len(self._kept) * self._frame_bytes > MOST_SEEN_BYTES:
                self._kept = dict(list(self._kept.items())[::2])
                self._every *= 2

    def film(self, trajectory: Trajectory, beat: Callable[[], None]) -> Filmed:
        """A film of each camera, as the policy's side was shown the world before any condition was laid over it.

        Pictures that are upside down, as LIBERO's, are the right way up in the film.
        """
        frames = {**self._kept, **({self._last[0]: self._last[1]} if self._last else {})}
        steps = tuple(sorted(frames))
        media, cameras = {}, []
        for place, name in enumerate(self._cameras):
            high, wide = (side - side % 2 for side in self._spec.images[name])  # 4:2:0 wants even sides
            if not (high and wide):
                raise InputError(f'camera {name} shows {self._spec.images[name]} pixels, too few for a film')
            turn = slice(None, None, -1 if self._spec.shows_upside_down else 1)
            own = _beating((frames[step][name][turn][:high, :wide] for step in steps), beat)
            file = _film_file(name, place)
            media[file] = encode_film(own, steps, control_rate_hz=self._spec.control_rate_hz)
            cameras.append(Camera(f'{PREFIX}{name}', None, None, wide, high, video=file, video_steps=steps))
        return Filmed(_with_cameras(trajectory, cameras), media)


def film_episode(
    host: Host, setup: Setup, trajectory: Trajectory | None, *, options: FilmOptions | None,
    seen: SeenFrames | None = None, beat: Callable[[], None] = lambda: None,
) -> Filmed:  # fmt: skip
    """Film the episode that a host has just ended; `setup` is what the host was told, `beat` is called at every frame.

    The states are kept also where no film could be made of them: it can be made later. A host that keeps none is filmed
    by what it showed.
    """
    can_draw = Ability.FILM in host.abilities
    if options is None or not (can_draw or seen):
        return Filmed(trajectory)
    if seen is not None and trajectory is not None and options.draw:
        try:
            return seen.film(trajectory, beat)
        except (Exception, SystemExit) as error:
            return Filmed(trajectory, note=_told(error))
    if not can_draw:
        return Filmed(
            trajectory, note='no step was taken' if options.draw else 'this host keeps no states to draw from'
        )
    if trajectory is None:
        return Filmed(trajectory, note='no step was taken')
    media: dict[str, bytes] = {}
    try:
        beat()
        footage = host.film(options)
        fields = {f.name: getattr(setup, f.name) for f in dataclasses.fields(setup)}
        states = dataclasses.replace(footage.states, setup=json.dumps(fields, default=dict, sort_keys=True))
        media[STATES_FILE] = states.to_bytes()
        if not options.draw:
            return Filmed(trajectory, media)
        steps = tuple(int(step) for step in states.steps)
        load_av('filming')
        cameras = []
        for place, shot in enumerate(footage.shots):
            name, file = f'{PREFIX}{shot.camera.name}', _film_file(shot.camera.name, place)
            frames = _beating(shot.frames, beat)
            media[file] = encode_film(frames, steps, control_rate_hz=host.spec.control_rate_hz)
            cameras.append(dataclasses.replace(shot.camera, name=name, video=file, video_steps=steps))
    except (Exception, SystemExit) as error:
        return Filmed(trajectory, {name: media[name] for name in media if name == STATES_FILE}, _told(error))
    return Filmed(_with_cameras(trajectory, cameras), media)


def film_steps(n_steps: int, *, control_rate_hz: float, rate_hz: float) -> NDArray[np.int64]:
    """The control steps that a film shows: evenly at about its rate from the reset (0) on, and the last."""
    every = max(control_rate_hz / rate_hz, 1.0)
    even = np.floor(np.arange(int(n_steps / every) + 1) * every + 0.5).astype(np.int64)
    return np.union1d(even[even <= n_steps], [n_steps]).astype(np.int64)


def thinned(states: FilmStates, *, control_rate_hz: float, rate_hz: float) -> FilmStates:
    """The kept states at a lower rate; where they were kept more rarely than that, all of them."""
    wanted = film_steps(int(states.steps[-1]), control_rate_hz=control_rate_hz, rate_hz=rate_hz)
    chosen = np.isin(states.steps, wanted)
    chosen[[0, -1]] = True
    is_coarse = np.isin(wanted, states.steps).mean() < 1
    return states if is_coarse else FilmStates(states.steps[chosen], states.states[chosen], states.setup)


def check_filming(recording: RecordingOptions, host: Host) -> None:
    """Raise InputError if a plan asks for films that its host cannot make; by default hosts that cannot draw do not."""
    options = recording.filming
    if options is None or not recording.film:
        return
    if Ability.FILM not in host.abilities:
        unknown = [camera for camera in options.cameras if camera not in host.spec.images]
        if host.spec.images and not unknown:
            return  # filmed by what it shows
        raise InputError(f'recording.film: host {host.spec.name} cannot draw; leave film out, or say film = "off"')
    for camera in options.cameras:
        if camera not in host.film_cameras:
            raise UnknownName(f'camera that host {host.spec.name} films with', camera, host.film_cameras)


def setup_from_json(text: str) -> Setup:
    """The set-up that states were kept with."""
    try:
        return Setup(**json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f'the set-up that states were kept with cannot be read ({error})') from error


def _told(error: BaseException) -> str:
    said = storable_text(message_of(error))[:LONGEST_NOTE]
    return said if isinstance(error, RobotrialsError) else f'{type(error).__name__}: {said}'


def _film_file(camera: str, place: int) -> str:
    """The file of a camera's film; a name that is none for a file, such as a topic, is left to the record."""
    is_plain = re.fullmatch(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}', camera) is not None
    return f'{PREFIX}{camera}.mp4' if is_plain else f'{PREFIX}camera-{place + 1}.mp4'


def _beating(frames: Iterable[NDArray[Any]], beat: Callable[[], None]) -> Iterator[NDArray[Any]]:
    for frame in frames:
        beat()
        yield frame


def _with_cameras(trajectory: Trajectory, cameras: Iterable[Camera]) -> Trajectory:
    scene = dataclasses.replace(trajectory.scene, cameras=(*trajectory.scene.cameras, *cameras))
    return dataclasses.replace(trajectory, scene=scene)


# Keeping RGB-D of an episode: at its start and its end, and in between at a stated rate.

MOST_MOMENTS = 4096
TIME_SLACK_S = 1e-9


def no_views(host: str) -> InputError:
    """That the analysis asks for a success which no episode of this host could have."""
    return InputError(
        f"analysis.success is 'reconstruction', and host {host} keeps no calibrated RGB-D views: a score from cameras "
        'also needs the colours and sizes of the objects, where they are to end, and what stands fixed, as '
        "known_scene() gives them; name cameras in the host's option watchers where it has one, or say success = 'host'"
    )


def check_viewing(plan: TrialPlan, host: Host) -> None:
    """Raise InputError if success is the cameras' alone, and the host has none, or none as it was opened."""
    if plan.is_judged_by_cameras and not host.has_views:
        raise no_views(host.spec.name)


class ViewKeeper:
    """Asks a host that has cameras for its views when they are due; of any other host it keeps nothing."""

    def __init__(self, host: Host, recording: RecordingOptions) -> None:
        self._host = host if recording.rgbd != 'off' and host.has_views else None
        rate = recording.rgbd
        self._period_s = 1.0 / rate if isinstance(rate, float) else None
        self._next_s = 0.0
        self._files: dict[str, bytes] = {}

    @property
    def is_timed(self) -> bool:
        """Whether moments between start and end are asked for."""
        return self._host is not None and self._period_s is not None

    @property
    def media(self) -> Mapping[str, bytes]:
        return self._files

    def begin(self) -> None:
        """Right after the reset."""
        if self._host is not None:
            self._files[KNOWN] = self._host.known_scene().as_json().encode()
            self._take(START)
            self._next_s = self._period_s or 0.0

    def step(self, t_s: float) -> None:
        """After every control step; takes a moment when one is due."""
        if self._period_s is None or t_s + TIME_SLACK_S < self._next_s:
            return
        if len(self._files) >= MOST_MOMENTS:
            raise InputError(
                f'more than {MOST_MOMENTS} moments of RGB-D in one episode; ask for a lower recording.rgbd'
            )
        self._next_s += self._period_s
        self._take(moment_name(t_s))

    def end(self) -> None:
        """When the episode is over; what cannot be taken then leaves a note, and the episode stays as judged."""
        if self._host is None or START not in self._files:
            return
        try:
            self._take(END)
        except Exception as error:
            self._files[f'{FOLDER}/end.txt'] = f'{type(error).__name__}: {error}'.encode()

    def _take(self, name: str) -> None:
        assert self._host is not None
        views = self._host.views(is_over=name == END)
        self._files[name] = pack_views(views)
        things = {thing for view in views.values() for thing in view.oracle_masks}
        if name == END and things:
            from robotrials.measure.geometry.mask import MASKS, ORACLE, pack_masks

            masks = {t: {n: v.oracle_masks[t] for n, v in views.items() if t in v.oracle_masks} for t in sorted(things)}
            self._files[MASKS] = pack_masks(masks, by=ORACLE)
