"""A camera's frame as a policy wants it: turned, resized, and laid out."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, install_hint


class Fit(enum.StrEnum):
    """How a frame of another shape is brought to the wanted size."""

    PAD = 'pad'  # keep the aspect ratio, black bars around
    STRETCH = 'stretch'
    CROP = 'crop'  # keep the aspect ratio, cut what stands over


class Filter(enum.StrEnum):
    BILINEAR = 'bilinear'
    BICUBIC = 'bicubic'
    LANCZOS = 'lanczos'


class Layout(enum.StrEnum):
    HEIGHT_WIDTH_CHANNEL = 'hwc'
    CHANNEL_HEIGHT_WIDTH = 'chw'


class Pixels(enum.StrEnum):
    BYTE = 'byte'  # 0..255, uint8
    UNIT = 'unit'  # 0..1, float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """Where a picture of the policy comes from, and what is done to it: turned first, then resized."""

    camera: str
    size_px: tuple[int, ...] = ()  # height, width; empty: as the camera gives it
    fit: Fit = Fit.PAD
    filter: Filter = Filter.BILINEAR
    rotate_deg: int = 0  # counter-clockwise
    layout: Layout = Layout.HEIGHT_WIDTH_CHANNEL
    pixels: Pixels = Pixels.BYTE
    is_bgr: bool = False

    def __post_init__(self) -> None:
        if self.rotate_deg not in (0, 90, 180, 270):
            raise InputError(f'rotate_deg is {self.rotate_deg}, wanted 0, 90, 180 or 270')
        if self.size_px and (len(self.size_px) != 2 or not all(0 < n <= 8192 for n in self.size_px)):
            raise InputError(f'size_px is {list(self.size_px)}, wanted [height, width]')

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """The shape of what comes out for a camera of this size."""
        if self.rotate_deg in (90, 270):
            height, width = width, height
        if self.size_px:
            height, width = self.size_px
        return (3, height, width) if self.layout is Layout.CHANNEL_HEIGHT_WIDTH else (height, width, 3)


def prepare_image(image: NDArray[np.uint8], entry: ImageEntry) -> NDArray[Any]:
    """The frame (H, W, 3) as `entry` says; contiguous."""
    turned = np.rot90(image, entry.rotate_deg // 90) if entry.rotate_deg else image
    sized = resize(turned, entry.size_px, fit=entry.fit, by=entry.filter) if entry.size_px else turned
    if entry.is_bgr:
        sized = sized[:, :, ::-1]
    if entry.layout is Layout.CHANNEL_HEIGHT_WIDTH:
        sized = np.transpose(sized, (2, 0, 1))
    if entry.pixels is Pixels.UNIT:
        return np.ascontiguousarray(sized, dtype=np.float32) / np.float32(255.0)
    return np.ascontiguousarray(sized)


def resize(
    image: NDArray[np.uint8], size_px: tuple[int, ...], *, fit: Fit = Fit.PAD, by: Filter = Filter.BILINEAR
) -> NDArray[np.uint8]:
    """Resize to (height, width). Padding is openpi's: sizes and margins are cut to whole pixels, the rest is black."""
    height, width = size_px
    if image.shape[:2] == (height, width):
        return image
    if fit is Fit.STRETCH:
        return _scale(image, height, width, by)
    ratios = image.shape[1] / width, image.shape[0] / height
    ratio = max(ratios) if fit is Fit.PAD else min(ratios)
    scaled = _scale(image, max(1, int(image.shape[0] / ratio)), max(1, int(image.shape[1] / ratio)), by)
    if fit is Fit.CROP:
        top, left = (scaled.shape[0] - height) // 2, (scaled.shape[1] - width) // 2
        return scaled[max(0, top) : max(0, top) + height, max(0, left) : max(0, left) + width]
    padded = np.zeros((height, width, 3), dtype=np.uint8)
    top, left = int((height - scaled.shape[0]) / 2), int((width - scaled.shape[1]) / 2)
    padded[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    return padded


def _scale(image: NDArray[np.uint8], height: int, width: int, by: Filter) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise SetupError(f'pillow is not installed; {install_hint("wire")}') from error
    kind = Image.Resampling[by.name]
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), kind), dtype=np.uint8)
