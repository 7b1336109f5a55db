"""Limits on motion, and stopping the arm from beside it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from robotrials.errors import InputError, RobotrialsError
from robotrials.old_name import setting
from robotrials.run.plan import LimitOptions
from robotrials.run.seam import Action, ActionConvention, ControlMode, FloatArray, Rotation, Target
from robotrials.wire.request import HttpLink

# Limits on motion: Clip(a, v_max) of the robot's controller, and a bound on how fast the velocity changes.


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


# Stopping the arm from beside it: a command or an address that somebody configured, and whether it confirmed.

PATIENCE_S = 5.0
MOST_TOLD = 300
SECRET_VARIABLE = 'ROBOTRIALS_STOP_SECRET'


@dataclass(frozen=True, slots=True)
class ArmStop:
    """What came of one call. Not confirmed does not mean that the arm still moves: it means that nobody knows."""

    is_confirmed: bool
    told: str


StopHook = Callable[[], ArmStop]


def stop_by_command(command: str, *, patience_s: float = PATIENCE_S) -> StopHook:
    """Run a command; exit code 0 within `patience_s` confirms."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f'the stop command is {command!r}, wanted a program and its arguments ({error})') from error
    if not words:
        raise InputError('the stop command is empty, wanted a program and its arguments')
    if shutil.which(words[0]) is None:  # told at the start, not in an emergency
        raise InputError(
            f'the stop command {words[0]}: no such program, or not executable; nothing would stop the arm. '
            'Give the path of one that runs (it is run without a shell)'
        )

    def stop() -> ArmStop:
        # Not a pipe: whatever the command leaves running would hold it open, and the answer back.
        with tempfile.TemporaryFile() as output:
            try:
                ran = subprocess.run(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=patience_s, check=False
                )
            except subprocess.TimeoutExpired:
                return ArmStop(False, f'the stop command did not end within {patience_s:g} s')
            except OSError as error:
                return ArmStop(False, f'the stop command could not be run ({error.strerror})')
            output.seek(0)
            said = output.read(MOST_TOLD).decode(errors='replace').strip()
        if ran.returncode != 0:
            return ArmStop(False, f'the stop command failed with exit code {ran.returncode}: {said}')
        return ArmStop(True, said or 'the stop command succeeded')

    return stop


def stop_by_url(url: str, *, patience_s: float = PATIENCE_S) -> StopHook:
    """POST to an address; an answer in the 200s within `patience_s` confirms.

    ROBOTRIALS_STOP_SECRET, where it is set, goes along as a bearer token; so a worker's own `/stop` can be used.
    """
    secret = setting(SECRET_VARIABLE) or ''
    headers = {'Authorization': f'Bearer {secret}'} if secret else {}
    path = '' if urlsplit(url).path.strip('/') else '/'
    try:
        HttpLink(url)  # a wrong address is told at the start, not in an emergency
    except InputError as error:
        raise InputError(f'the address that stops the arm: {error}') from error

    def stop() -> ArmStop:
        link = HttpLink(url, headers=headers)
        try:
            answer = link.post(path, json.dumps({'source': 'operator'}).encode(), timeout_s=patience_s)
        except RobotrialsError as error:
            return ArmStop(False, str(error)[:MOST_TOLD])
        finally:
            link.close()
        is_confirmed = 200 <= answer.status < 300
        return ArmStop(is_confirmed, f'{url} answered {answer.status} {answer.text(MOST_TOLD)}'.strip())

    return stop
