"""Films made again, at any size, from the states that were kept with an episode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robotrials.errors import InputError
from robotrials.record import Episode, Store
from robotrials.record.folder import inside, write_durably
from robotrials.record.footage import STATES_FILE, FilmStates, encode_film, read_states
from robotrials.run.component import declared_host, open_host
from robotrials.run.host import Ability, Host
from robotrials.run.plan import FilmOptions
from robotrials.run.recording import setup_from_json, thinned
from robotrials.run.station import media_folder


@dataclass(frozen=True, slots=True)
class NewFilm:
    """A film that was made again."""

    episode: Episode
    camera: str
    path: Path
    steps: tuple[int, ...]  # the control step that each frame shows, 0 being the reset
    width_px: int
    height_px: int

    @property
    def n_frames(self) -> int:
        return len(self.steps)


@contextmanager
def filming_host(store: Store) -> Iterator[Host]:
    """The host that a store's episodes were run on, if it can draw."""
    host = open_host(declared_host(store, 'could draw its episodes'))
    try:
        if Ability.FILM not in host.abilities:
            raise InputError(f'{store.path}: its host {host.spec.name} cannot draw')
        yield host
    finally:
        host.close()


def refilm(store: Store, episode: Episode, host: Host, target: Path, *, options: FilmOptions) -> list[NewFilm]:
    """Film one recorded episode anew into a folder; it begins with the same reset, and is drawn from its states."""
    kept = store.file(f'media/{media_folder(episode)}/{STATES_FILE}')
    if not kept.exists():
        raise InputError(
            f'{store.path}: episode {episode.episode_id} attempt {episode.attempt} has no states to draw from (it was '
            "run with film = 'off', or its host cannot draw)"
        )
    states = read_states(kept)
    setup = setup_from_json(states.setup)
    host.prepare(setup)
    host.reset(setup.task, seed=setup.seed)
    rate_hz = host.spec.control_rate_hz
    every = thinned(_all_states(store, episode, states), control_rate_hz=rate_hz, rate_hz=options.rate_hz)
    footage = host.film(options, states=every)
    steps = tuple(int(step) for step in footage.states.steps)
    films = []
    for shot in footage.shots:
        path = inside(target, f'{episode.episode_id}-{episode.attempt}-{shot.camera.name}.mp4')
        write_durably(path, encode_film(shot.frames, steps, control_rate_hz=rate_hz))
        size = shot.camera.width_px, shot.camera.height_px
        films.append(NewFilm(episode, shot.camera.name, path, steps, *size))
    return films


def _all_states(store: Store, episode: Episode, kept: FilmStates) -> FilmStates:
    """The kept states, or those of every step where `recording.simulator_state` was on."""
    trajectory = store.trajectory(episode, signals=('simulator_state',))
    recorded = trajectory.simulator_state if trajectory is not None else None
    if recorded is None or kept.steps[0] != 0 or not np.isfinite(recorded).all():
        return kept
    width = kept.states.shape[1]
    return FilmStates(np.arange(len(recorded) + 1), np.concatenate([kept.states[:1], recorded[:, :width]]), kept.setup)
