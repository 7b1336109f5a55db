"""What the hosts of LIBERO and robosuite have in common: one arm, one environment, one task at a time."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RigError
from robotrials.record import Outcome, Scene
from robotrials.run.host import SteppedHost
from robotrials.run.seam import Action, HostReport, HostSpec, Observation
from robotrials.worlds.arm.signal import (
    CONVENTION,
    REST,
    Cast,
    FrameCheck,
    Monitor,
    Shutter,
    arm_scene,
    proprioception,
)

MOST_RESETS = 20  # until objects that found no place are given up


class ArmHost(SteppedHost):
    """One environment on robosuite. A subclass makes it, resets it, and advances it by one control step."""

    checks_frames = True  # whether pictures must show the present
    _cast: Cast
    _frames: FrameCheck

    def __init__(
        self,
        *,
        name: str,
        control_rate_hz: float,
        layout: Sequence[str],
        cameras: Mapping[str, str],
        image_size: Sequence[int],
        tasks: Sequence[str],
        conditions: Sequence[str] = (),
        shows_upside_down: bool = False,
    ) -> None:
        self._cameras = dict(cameras)  # the host's name -> the simulation's
        self._height, self._width = (int(v) for v in image_size)
        self._env: Any = None
        self._monitor: Monitor | None = None
        self._shutter: Shutter | None = None
        self._spec = HostSpec(
            name=name,
            action=CONVENTION,
            control_rate_hz=control_rate_hz,
            state_width=len(layout),
            state_layout=tuple(layout),
            images=dict.fromkeys(self._cameras, (self._height, self._width)),
            conditions=tuple(conditions),
            tasks=tuple(tasks),
            shows_upside_down=shows_upside_down,
        )

    def step(self, action: Action) -> Observation:
        self._begun()
        sent = self._checked(action)
        if self._monitor is not None:
            self._monitor.begin()
        self._observed, self._is_done = self._advance(sent)
        if self._monitor is not None:
            self._monitor.end()
        self._sent = sent
        self._steps += 1
        return self._seen(self._observed)

    def expect_look(self, is_looked_at: bool) -> None:
        if self._shutter is not None:
            self._shutter.is_open = is_looked_at

    def look(self) -> Observation:
        self._begun()
        return self._shown(self._observed, self._shutter.drawn() if self._shutter is not None else {})

    def outcome(self) -> Outcome | None:
        """The native predicate after a step; one that a start state meets by itself counts from the first step on."""
        if not self._is_begun or not self._steps:
            return None
        if self._is_done:
            return Outcome.SUCCESS
        return Outcome.TIMEOUT if self._steps >= self._step_cap() else None

    def hold(self) -> Action:
        """No motion, the gripper as commanded."""
        self._begun()
        return np.concatenate([np.zeros(6), self._sent[6:]])

    def report(self) -> HostReport:
        self._begun()
        labels = {'success_at_reset': 'yes'} if self._was_done_at_reset else {}
        return HostReport(success=self._is_done, instruction=self.instruction(), labels=labels)

    def scene(self) -> Scene:
        self._begun()
        return arm_scene(self._cast, self._cameras, height_px=self._height, width_px=self._width)

    # --- what a subclass says

    @abstractmethod
    def _advance(self, action: NDArray[np.float64]) -> tuple[Any, bool]:
        """One control step: what robosuite observed, and whether the task is done."""

    @abstractmethod
    def _step_cap(self) -> int:
        """Of the task at hand."""

    @abstractmethod
    def _reset_once(self) -> Any:
        """Reset the environment; robosuite raises RandomizationError where its objects find no place."""

    @abstractmethod
    def _state(self, proprioception: NDArray[np.float64]) -> NDArray[np.float64]:
        """The state that is shown, from the numbers of the arm itself."""

    # --- inside

    def _begun(self) -> Any:
        if not self._is_begun:
            raise InputError(f'{self._spec.name} was not reset yet; call reset(task, seed=...) first')
        return self._env

    def _begin(self, observed: Any, *, is_done: bool) -> Observation:
        """The start state has settled; what it shows."""
        self._steps, self._is_done, self._was_done_at_reset = 0, False, is_done
        self._sent, self._observed, self._is_begun = REST, observed, True
        return self._seen(observed)

    def _open_shutter(self, env: Any) -> None:
        size = {'height_px': self._height, 'width_px': self._width}
        self._shutter = Shutter(env, self._cameras, **size) if self._cameras else None

    def _reset_native(self) -> Any:
        """As the benchmark resets, but with an end to its tries."""
        from robosuite.utils.errors import RandomizationError

        for _ in range(MOST_RESETS):
            try:
                return self._reset_once()
            except RandomizationError:
                continue
        raise RigError(f'{self._spec.name} found no place for the objects of the task in {MOST_RESETS} resets')

    def _images(self, observed: Any) -> dict[str, NDArray[np.uint8]]:
        return {name: np.array(observed[f'{camera}_image']) for name, camera in self._cameras.items()}

    def _seen(self, observed: Any) -> Observation:
        is_drawn = self._shutter is not None and self._shutter.is_open
        return self._shown(observed, self._images(observed) if is_drawn else {})

    def _shown(self, observed: Any, images: dict[str, NDArray[np.uint8]]) -> Observation:
        own = proprioception(observed)
        if images and self.checks_frames:
            self._frames.at_step(images, own[:3])
        if not self._spec.shows_upside_down:
            images = {name: np.array(image[::-1]) for name, image in images.items()}  # robosuite's are
        return Observation(self._steps / self._spec.control_rate_hz, self._state(own), images=images)


def render_flags() -> dict[str, str]:
    """The variables that say how pictures are drawn."""
    return {name: os.environ[name] for name in ('MUJOCO_GL', 'PYOPENGL_PLATFORM') if name in os.environ}
