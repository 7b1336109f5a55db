"""The recorder: columns of what was measured after every control step. It only looks; nothing depends on it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.record import Contacts, Scene, Trajectory
from robotrials.record.trajectory import STEP_COLUMNS
from robotrials.run.conditions import Delay
from robotrials.run.convention import Gripper, HostSpec
from robotrials.run.plan import RecordingOptions
from robotrials.run.seam import Action, Observation

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
        return Trajectory(
            **known,
            bodies=self._bodies,
            contacts=Contacts.from_steps(self._contacts, points_m=self._all_points()) if self._has_contacts() else None,
            joint_torque_limit_nm=self._limits,
            frame_hash={camera: hashes[: self._rows].copy() for camera, hashes in self._hashes.items()},
            extra=columns,
            scene=self._scene,
            broken=dict(self._broken),
        )

    def _has_contacts(self) -> bool:
        return bool(self._contacts) and 'contacts' not in self._broken

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
        if name in BOOLEAN and not self._is_next(name, value):
            return
        column = self._columns.get(name)
        if column is None:
            kind = np.dtype(bool if name in BOOLEAN else float)
            column = np.full((self._capacity, *np.shape(value)), _blank(kind), dtype=kind)
            self._columns[name] = column
        column[self._rows] = value

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
            else:
                self._put(name, value)

    def _put_hash(self, camera: str, image: NDArray[np.uint8]) -> None:
        digest = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=8).digest()
        if camera not in self._hashes:
            self._hashes[camera] = np.zeros(self._capacity, dtype=np.uint64)
        self._hashes[camera][self._rows] = int.from_bytes(digest)


def _blank(kind: np.dtype[Any]) -> float:
    return float('nan') if kind.kind == 'f' else 0
