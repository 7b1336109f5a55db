"""How JAT and OpenVLA need to be shown an observation (MultiNet section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedObservation
from robotrials.formats.space import FloatArray

PRIMARY = 'image'
SMALLEST_IMAGE = 8  # pixels on a side
# Non-standard camera names that the paper used for OpenVLA alone, which can't do without an image.
OPENVLA_EXCEPTIONS: Mapping[str, str] = {
    'conq_hose_manipulation': 'frontright_fisheye_image',
    'viola': 'agentview_rgb',
}


def primary_image(observation: RecordedObservation) -> str | None:
    """The name of the primary image: `image` itself, else the first in the alphabet with that word; None without one.

    Wrist and depth images are no primary image.
    """
    names = sorted(observation.images)
    plain = [n for n in names if n.rpartition('/')[2] == PRIMARY]
    keyed = [n for n in names if PRIMARY in n.rpartition('/')[2].split('_')]
    keyed = [n for n in keyed if not {'wrist', 'hand', 'depth', 'gripper', 'fisheye'} & set(n.lower().split('_'))]
    return next(iter([*plain, *keyed]), None)


def with_float_images(observation: RecordedObservation) -> RecordedObservation:
    """The observation with numbers that lie like pixels (height, width, 1 to 4 channels) as 8-bit images."""
    pixels = {name: values for name, values in observation.state.items() if _is_image(values)}
    if not pixels:
        return observation
    state = {name: values for name, values in observation.state.items() if name not in pixels}
    made = {name: eight_bit(values) for name, values in pixels.items()}
    return RecordedObservation(state, {**observation.images, **made})


def _is_image(values: FloatArray) -> bool:
    shape = np.shape(values)
    is_plane = len(shape) == 2 or (len(shape) == 3 and 1 <= shape[2] <= 4)
    return is_plane and min(shape[:2]) >= SMALLEST_IMAGE


def eight_bit(values: FloatArray) -> NDArray[Any]:
    """Values of [0, 1] or of [0, 255] as bytes; what is not finite is black."""
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    scale = 255.0 if numbers.size and numbers.max() <= 1.0 else 1.0
    made = np.clip(np.rint(numbers * scale), 0, 255).astype(np.uint8)
    return made[..., None] if made.ndim == 2 else made


def openvla_image(observation: RecordedObservation, dataset: str) -> str:
    """The image for OpenVLA: the dataset's exception where the paper made one, the primary image, else the first."""
    exception = OPENVLA_EXCEPTIONS.get(dataset)
    for name in sorted(observation.images):
        if exception is not None and name.rpartition('/')[2] == exception:
            return name
    chosen = primary_image(observation) or next(iter(sorted(observation.images)), None)
    if chosen is None:
        raise InputError(f'{dataset}: OpenVLA needs an image, and the observation has none')
    return chosen


def four_channels(image: NDArray[Any]) -> NDArray[Any]:
    """JAT's four channels: RGB with red as alpha, a pair of channels twice, four as they are."""
    if image.ndim != 3:
        raise InputError(f'an image is (height, width, channels), found shape {image.shape}')
    channels = image.shape[2]
    if channels == 4:
        return image
    if channels == 3:
        return np.concatenate([image, image[..., :1]], axis=2)
    if channels == 2:
        return np.concatenate([image, image], axis=2)
    raise InputError(f'JAT takes images of 2, 3 or 4 channels, found {channels}; the paper has no rule for it')


def state_vector(observation: RecordedObservation, *, dummy_size: int = 1) -> FloatArray:
    """All floating-point observations in one vector, names sorted; zeros of `dummy_size` where there are none."""
    parts = [np.asarray(observation.state[name], dtype=np.float64).ravel() for name in sorted(observation.state)]
    return np.concatenate(parts) if parts else np.zeros(dummy_size)


def jat_view(observation: RecordedObservation, *, dummy_size: int = 1) -> tuple[FloatArray, NDArray[Any] | None]:
    """What JAT is given: the state vector, and the primary image in four channels (None without one)."""
    name = primary_image(observation)
    image = None if name is None else four_channels(observation.image(name))
    return state_vector(observation, dummy_size=dummy_size), image
