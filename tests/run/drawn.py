"""A point mass that can be filmed, and some that cannot go through with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from robotrials.record.footage import FilmStates
from robotrials.record.trajectory import Camera
from robotrials.run.plan import FilmOptions
from robotrials.run.recording import film_steps
from robotrials.run.seam import Action, Footage, HostSpec, Observation, Shot
from robotrials.testing.policy import PointMassHost


class DrawnHost(PointMassHost):
    """A white square on black where the point is; the second camera shows it on grey."""

    film_cameras = ('top', 'wide')

    def reset(self, task: str, *, seed: int) -> Observation:
        observation = super().reset(task, seed=seed)
        self._kept = [(self._x, self._y)]
        return observation

    def step(self, action: Action) -> Observation:
        observation = super().step(action)
        self._kept.append((self._x, self._y))
        return observation

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        if states is None:
            rate_hz = self.spec.control_rate_hz
            steps = film_steps(len(self._kept) - 1, control_rate_hz=rate_hz, rate_hz=options.rate_hz)
            states = FilmStates(steps, np.array(self._kept)[steps])
        width_px, height_px = options.size_px
        shots = [
            Shot(Camera(name, None, None, width_px, height_px), self._frames(states, options, ground=90 * place))
            for place, name in enumerate(options.cameras or self.film_cameras)
        ]
        return Footage(states, tuple(shots))

    def _frames(self, states: FilmStates, options: FilmOptions, *, ground: int) -> Iterator[NDArray[np.uint8]]:
        width_px, height_px = options.size_px
        for x, y in states.states:
            frame = np.full((height_px, width_px, 3), ground, dtype=np.uint8)
            column, row = (int((at / self.table_m + 1) / 2 * side) for at, side in ((x, width_px), (y, height_px)))
            frame[max(row - 4, 0) : row + 4, max(column - 4, 0) : column + 4] = 255
            yield frame


class TornHost(DrawnHost):
    """Its second film breaks off."""

    def _frames(self, states: FilmStates, options: FilmOptions, *, ground: int) -> Iterator[NDArray[np.uint8]]:
        for number, frame in enumerate(super()._frames(states, options, ground=ground)):
            if ground and number == 2:
                raise OSError('the lamp of zebrafinch-large went out')
            yield frame


class DyingHost(DrawnHost):
    """It breaks after seven steps."""

    def step(self, action: Action) -> Observation:
        if self._steps == 7:
            raise OSError('unplugged')
        return super().step(action)


class ShownHost(PointMassHost):
    """It keeps no states, and shows pictures of odd sides: the left edge brightens with every step."""

    @property
    def spec(self) -> HostSpec:
        return dataclasses.replace(super().spec, images={'front': (33, 47), 'wrist': (16, 16), 'third': (16, 16)})

    def reset(self, task: str, *, seed: int) -> Observation:
        self._shown = 0
        return self._with_images(super().reset(task, seed=seed))

    def step(self, action: Action) -> Observation:
        self._shown += 1
        return self._with_images(super().step(action))

    def _with_images(self, observation: Observation) -> Observation:
        images = {name: np.zeros((*size, 3), dtype=np.uint8) for name, size in self.spec.images.items()}
        images['front'][:, :16] = min(3 * self._shown, 250)
        return dataclasses.replace(observation, images=images)


class TopicHost(ShownHost):
    """Its cameras have the names of topics, and some that lead out of a folder."""

    names = ('/camera/../../front', 'wrist é', 'third')
    sizes = ((33, 47), (16, 16), (16, 16))

    @property
    def spec(self) -> HostSpec:
        return dataclasses.replace(super().spec, images=dict(zip(self.names, self.sizes, strict=True)))

    def _with_images(self, observation: Observation) -> Observation:
        images = {name: np.zeros((*size, 3), dtype=np.uint8) for name, size in self.spec.images.items()}
        return dataclasses.replace(observation, images=images)


class SpeckHost(TopicHost):
    sizes = ((1, 47), (0, 0), (16, 16))


class FloatHost(TopicHost):
    def _with_images(self, observation: Observation) -> Observation:
        shown = super()._with_images(observation)
        return dataclasses.replace(shown, images={k: v / np.float32(255) for k, v in shown.images.items()})


class ListHost(TopicHost):
    def _with_images(self, observation: Observation) -> Observation:
        shown = super()._with_images(observation)
        return dataclasses.replace(shown, images={k: v.tolist() for k, v in shown.images.items()})
