"""Limits on motion: Clip(a, v_max) of the robot's controller, and a bound on how fast the velocity changes."""

from __future__ import annotations

import numpy as np

from robotrials.errors import InputError
from robotrials.run.convention import ActionConvention, ControlMode, Rotation, Target
from robotrials.run.plan import LimitOptions
from robotrials.run.seam import Action, FloatArray


class Limiter:
    """Clips the motion part of each action, element by element; the gripper passes.

    An action's velocity is delta/dt, (target - last target)/dt or the action itself, as the convention says. The change
    of velocity is bounded first and the velocity last, so that the velocity bound always holds. One limiter serves one
    episode: it remembers the last command.
    """

    def __init__(
        self, options: LimitOptions, convention: ActionConvention, *, dt_s: float, start: Action | None
    ) -> None:
        self._width = convention.motion_width
        self._velocity = _bounds('velocity', options.velocity, self._width)
        self._acceleration = _bounds('acceleration', options.acceleration, self._width)
        self._dt_s = dt_s
        self._is_velocity = convention.control_mode is ControlMode.JOINT_VELOCITY
        self._is_absolute = convention.target is Target.ABSOLUTE and not self._is_velocity
        self._last_velocity = np.zeros(self._width)
        self._last_target: FloatArray = np.zeros(self._width)
        if self.is_active and self._is_absolute:
            if convention.rotation is not Rotation.NONE:
                raise InputError(f'limits on absolute {convention.rotation} rotations are not meaningful by element')
            if start is None:
                raise InputError(
                    'limits on absolute targets want a host that has hold(): where the arm is at the start'
                )
            self._last_target = np.array(start[: self._width], dtype=float)

    @property
    def is_active(self) -> bool:
        return self._velocity is not None or self._acceleration is not None

    def clip(self, action: Action, *, share: float = 1.0) -> Action:
        """The action as the arm will be told it, for this share of a control step."""
        if not self.is_active:
            return action
        lasting_s = self._dt_s * share
        motion = action[: self._width]
        if self._is_velocity:
            velocity = motion
        elif self._is_absolute:
            velocity = (motion - self._last_target) / lasting_s
        else:
            velocity = motion / self._dt_s
        if self._acceleration is not None:
            change = self._acceleration * lasting_s
            velocity = np.clip(velocity, self._last_velocity - change, self._last_velocity + change)
        if self._velocity is not None:
            velocity = np.clip(velocity, -self._velocity, self._velocity)
        self._last_velocity = np.array(velocity, dtype=float)
        clipped = np.array(action, dtype=float)
        if self._is_velocity:
            clipped[: self._width] = velocity
        elif self._is_absolute:
            self._last_target = self._last_target + velocity * lasting_s
            clipped[: self._width] = self._last_target
        else:
            clipped[: self._width] = velocity * self._dt_s
        return clipped


def _bounds(name: str, given: float | tuple[float, ...] | None, width: int) -> FloatArray | None:
    if given is None:
        return None
    bounds = np.broadcast_to(np.asarray(given, dtype=float), (width,)) if np.ndim(given) == 0 else np.array(given)
    if bounds.shape != (width,) or not np.all(bounds > 0):
        raise InputError(f'limits {name} is {given}, wanted one number > 0 or {width} of them')
    return bounds
