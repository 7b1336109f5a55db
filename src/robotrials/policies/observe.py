"""The host's observation as the policy wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.policies.mapping import ObservationEntry, StateEntry, StatePart
from robotrials.policies.picture import prepare_image
from robotrials.policies.rotation import convert_rotation
from robotrials.policies.statistic import Normalizer
from robotrials.run import Gripper, HostSpec, Observation, Rotation

Question = dict[str, Any]  # key of the policy -> array or text: what a wire can carry

# The openness of a gripper is 0 closed .. 1 open; each convention is a line through its values for closed and open.
GRIPPER_ENDS: Mapping[Gripper, tuple[float, float]] = {
    Gripper.OPEN_IS_PLUS_ONE: (-1.0, 1.0),
    Gripper.CLOSED_IS_PLUS_ONE: (1.0, -1.0),
    Gripper.OPEN_IS_ONE: (0.0, 1.0),
    Gripper.CLOSED_IS_ONE: (1.0, 0.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class BoundPart:
    """A part of the state with its places in this host's state worked out."""

    entry: StatePart
    places: NDArray[np.intp]

    def read(self, state: NDArray[Any]) -> NDArray[np.float64]:
        entry = self.entry
        if entry.fill:
            return np.array(entry.fill)
        values = np.asarray(state[self.places], dtype=float)
        if entry.rotation is not Rotation.NONE:
            values = convert_rotation(values, entry.rotation, entry.to_rotation)
        if entry.gripper is not Gripper.NONE:
            values = convert_gripper(values, GRIPPER_ENDS[entry.gripper], GRIPPER_ENDS[entry.to_gripper])
        return np.asarray(values * entry.scale + entry.offset)


class Observer:
    """An ObservationEntry bound to one host."""

    def __init__(self, entry: ObservationEntry, host: HostSpec) -> None:
        self.entry = entry
        self.moments = dict(entry.moments)
        problems = list(_problems(entry, host))
        if problems:
            raise InputError(f'the observation mapping does not fit host {host.name}: ' + '; '.join(problems))
        self._state = {
            key: (
                [bind_part(part, host) for part in vector.parts],
                None if vector.normalize is None else Normalizer.of(vector.normalize),
                np.dtype(vector.number.value),
            )
            for key, vector in entry.state.items()
        }

    def question(self, observation: Observation, instruction: str) -> Question:
        """The observation under the policy's keys: pictures, then vectors, then the prompt."""
        asked: Question = {key: self._read(key, observation) for key in (*self.entry.images, *self._state)}
        if self.entry.prompt:
            asked[self.entry.prompt] = self.entry.prompt_template.replace('{instruction}', instruction)
        return asked

    @property
    def past(self) -> tuple[int, ...]:
        """The earlier control steps of which something is sent."""
        return tuple(sorted({step for steps in self.moments.values() for step in steps if step < 0}))

    def _read(self, key: str, observation: Observation) -> NDArray[Any]:
        """A picture or a vector; with moments, one after the other along a first axis."""
        if key not in self.moments:
            return self._one(key, observation)
        return np.stack([self._one(key, _at(observation, step, key)) for step in self.moments[key]])

    def _one(self, key: str, observation: Observation) -> NDArray[Any]:
        if key in self.entry.images:
            image = self.entry.images[key]
            return prepare_image(observation.images[image.camera], image)
        parts, normalizer, dtype = self._state[key]
        vector = np.concatenate([part.read(observation.state) for part in parts])
        if normalizer is not None:
            vector = normalizer.normalize(vector)
        return np.asarray(vector.astype(dtype))


def _at(observation: Observation, step: int, key: str) -> Observation:
    if step and step not in observation.past:
        raise InputError(
            f'{key} is to show control step {step}, and whoever asks here sends the present alone; run the policy in a '
            'trial of robotrials, which keeps the moments'
        )
    return observation.past[step] if step else observation


def bind_part(part: StatePart, host: HostSpec) -> BoundPart:
    """Find a part in a host's state; InputError names what the host has instead."""
    if part.fill:
        return BoundPart(part, np.empty(0, dtype=np.intp))
    if part.take:
        if part.take[1] > host.state_width:
            raise InputError(f'take {list(part.take)} is beyond the {host.state_width} numbers of the state')
        return BoundPart(part, np.arange(*part.take))
    for name in part.names:
        if name not in host.state_layout:
            raise InputError(f'the state has no {name!r}: {near_miss(name, host.state_layout)}')
    return BoundPart(part, np.array([host.state_layout.index(name) for name in part.names], dtype=np.intp))


def convert_gripper(
    values: NDArray[Any], source: tuple[float, float], target: tuple[float, float]
) -> NDArray[np.float64]:
    """Gripper numbers from one line through (closed, open) to another."""
    openness = (np.asarray(values, dtype=float) - source[0]) / (source[1] - source[0])
    return np.asarray(target[0] + openness * (target[1] - target[0]))


def _problems(entry: ObservationEntry, host: HostSpec) -> Iterator[str]:
    for key, image in entry.images.items():
        if image.camera not in host.images:
            yield f'{key} wants camera {image.camera!r}: {near_miss(image.camera, host.images)}'
    for key, vector in entry.state.items():
        yield from _state_problems(key, vector, host)


def _state_problems(key: str, vector: StateEntry, host: HostSpec) -> Iterator[str]:
    if not vector.parts:
        yield f'{key} has no parts'
    for part in vector.parts:
        try:
            width = len(bind_part(part, host).places)
        except InputError as error:
            yield f'{key}: {error}'
            continue
        if part.rotation is not Rotation.NONE and width != ROTATION_SIZES[part.rotation]:
            yield f'{key}: {width} numbers for a rotation as {part.rotation}, wanted {ROTATION_SIZES[part.rotation]}'


ROTATION_SIZES: Mapping[Rotation, int] = {
    Rotation.AXIS_ANGLE: 3,
    Rotation.EULER_XYZ: 3,
    Rotation.QUATERNION_WXYZ: 4,
    Rotation.QUATERNION_XYZW: 4,
    Rotation.MATRIX_6D: 6,
}
