"""Cameras of ROS bags: raw and compressed images, read again from the bag when their video is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.bag import Bag, Message, header_stamp_ns
from robotrials.formats.clip import encode_frames
from robotrials.formats.image import decode_pixels
from robotrials.formats.ros_signal import CAMERA_INFO, why_not_stamps

CHANNELS = {'rgb8': 3, 'bgr8': 3, 'rgba8': 4, 'bgra8': 4, 'mono8': 1, '8UC1': 1, '8UC3': 3}


@dataclass(frozen=True, slots=True, eq=False)
class CameraFacts:
    """What the first image and the calibration of a camera say."""

    width_px: int = 0
    height_px: int = 0
    intrinsics_px: NDArray[np.float64] | None = None
    has_stamps: bool = False
    refused: str = ''


def read_camera_facts(bag: Bag, topic: str) -> CameraFacts:
    """Size, calibration and clock of one camera."""
    base = topic.rsplit('/', 1)[0]
    infos = [t for t, kind in bag.topics.items() if kind == CAMERA_INFO and t.rsplit('/', 1)[0] == base]
    intrinsics = None
    for message in bag.messages(infos[:1]):
        intrinsics = np.array(message.content.k, dtype=np.float64).reshape(3, 3)
        break
    first = next(iter(bag.messages([topic])), None)
    if first is None:
        return CameraFacts(refused='no image on its topic')
    encoding = getattr(first.content, 'encoding', '')
    if encoding and encoding not in CHANNELS:
        return CameraFacts(refused=f'encoding {encoding}: depth and raw formats are not kept as video')
    pixels = image_pixels(first, str(bag.path))
    return CameraFacts(pixels.shape[1], pixels.shape[0], intrinsics, not why_not_stamps(*bag.stamps_ns(topic)))


def image_pixels(message: Message, where: str) -> NDArray[Any]:
    """(height, width, 1 or 3) of uint8, colours as RGB."""
    image = message.content
    if hasattr(image, 'format'):
        return decode_pixels(bytes(image.data), channels=3, dtype='uint8', where=f'{where}: {message.topic}')
    channels = CHANNELS.get(image.encoding)
    if channels is None:
        raise InputError(f'{where}: {message.topic}: encoding {image.encoding!r}; wanted one of {", ".join(CHANNELS)}')
    rows = np.frombuffer(bytes(image.data), np.uint8)
    if len(rows) < image.height * image.step:
        raise InputError(
            f'{where}: {message.topic}: {len(rows)} bytes for {image.height} rows of {image.step}; cut short'
        )
    pixels = rows[: image.height * image.step].reshape(image.height, image.step)[:, : image.width * channels]
    pixels = pixels.reshape(image.height, image.width, channels)
    if image.encoding.startswith('bgr'):
        pixels = pixels[..., [2, 1, 0]]
    return pixels[..., :3] if channels == 4 else pixels


@dataclass(frozen=True, slots=True)
class BagClip:
    """The images of one topic as a video with one frame per step: the last image before it."""

    bag: Bag
    topic: str
    at_ns: tuple[int, ...]
    fps: float
    uses_stamps: bool = False

    def write(self, target: Path) -> None:
        """Read the bag once more, for this topic alone, and encode as it goes."""
        encode_frames(self._frames(), target, fps=self.fps, times_s=[(ns - self.at_ns[0]) / 1e9 for ns in self.at_ns])

    def _frames(self) -> Iterator[NDArray[Any]]:
        held: Message | None = None
        step = 0
        for message in self.bag.messages([self.topic]):
            time_ns = header_stamp_ns(message.content) if self.uses_stamps else message.log_ns
            while held is not None and step < len(self.at_ns) and self.at_ns[step] < time_ns:
                yield image_pixels(held, str(self.bag.path))
                step += 1
            held = message
        while held is not None and step < len(self.at_ns):
            yield image_pixels(held, str(self.bag.path))
            step += 1
