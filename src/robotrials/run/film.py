"""Filming an episode: drawn from the states its host kept, once the episode is over, so that no step waits for it.

A film is a view of the record. Whatever goes wrong with it is noted, and changes neither outcome nor validity.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RobotrialsError, SetupError, StoreError, UnknownName
from robotrials.record import Trajectory
from robotrials.record.film import STATES_FILE, FilmStates, encode_film, load_av
from robotrials.record.trajectory import Camera
from robotrials.run.convention import HostSpec
from robotrials.run.fault import message_of, storable_text
from robotrials.run.host import Ability, Host
from robotrials.run.plan import FilmOptions, RecordingOptions
from robotrials.run.seam import Setup

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
        states = dataclasses.replace(footage.states, setup=_setup_to_json(setup))
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
        return Filmed(trajectory, _only_states(media), _told(error))
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


@functools.cache
def film_obstacle() -> str:
    """Why no film can be encoded here, or ''."""
    try:
        load_av('filming')
    except SetupError as error:
        return str(error)
    return ''


def _setup_to_json(setup: Setup) -> str:
    return json.dumps({f.name: getattr(setup, f.name) for f in dataclasses.fields(setup)}, default=dict, sort_keys=True)


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


def _only_states(media: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in media.items() if name == STATES_FILE}


def _beating(frames: Iterable[NDArray[Any]], beat: Callable[[], None]) -> Iterator[NDArray[Any]]:
    for frame in frames:
        beat()
        yield frame


def _with_cameras(trajectory: Trajectory, cameras: Iterable[Camera]) -> Trajectory:
    scene = dataclasses.replace(trajectory.scene, cameras=(*trajectory.scene.cameras, *cameras))
    return dataclasses.replace(trajectory, scene=scene)
