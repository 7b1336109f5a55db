"""Images as recorded: kept encoded until somebody looks, so that reading actions costs no pixels."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, install_hint

BATCH_IMAGES = 4


@dataclass(frozen=True, slots=True, eq=False)
class EncodedImage:
    """JPEG or PNG bytes, and the (height, width, channels) and dtype that the dataset declares for them."""

    data: bytes
    shape: tuple[int | None, ...] = (None, None, 3)
    dtype: str = 'uint8'
    where: str = 'image'

    @property
    def media_type(self) -> str:
        """`image/jpeg` or `image/png`, by the first bytes."""
        if self.data[:3] == b'\xff\xd8\xff':
            return 'image/jpeg'
        if self.data[:8] == b'\x89PNG\r\n\x1a\n':
            return 'image/png'
        raise InputError(f'{self.where}: wanted JPEG or PNG bytes, found {self.data[:8]!r}')

    def array(self) -> NDArray[Any]:
        """The pixels, (height, width, channels), checked against the declared shape."""
        pixels = decode_pixels(self.data, channels=self._stored_channels(), dtype=self.dtype, where=self.where)
        if self.dtype == 'float32':
            # TFDS stores a float image as the four bytes of each float in an RGBA image.
            pixels = np.ascontiguousarray(pixels).view('<f4')
        for wanted, found in zip(self.shape, pixels.shape, strict=True):
            if wanted is not None and wanted != found:
                raise InputError(f'{self.where}: image of shape {pixels.shape}, the features declare {self.shape}')
        return pixels

    def _stored_channels(self) -> int | None:
        return 4 if self.dtype == 'float32' else self.shape[-1]


def decode_pixels(data: bytes, *, channels: int | None, dtype: str, where: str) -> NDArray[Any]:
    """JPEG or PNG bytes as (height, width, channels) of uint8, or uint16 for 16-bit images."""
    header = jpeg_header(data) if channels == 3 and dtype == 'uint8' else None
    if header is not None and header[2] in (1, 3):
        decoded = _decode_jpeg(data)
        if decoded is not None:
            return decoded
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise SetupError(f'decoding images needs Pillow: {install_hint("vlm")}') from error
    if header is not None and header[2] == 3:
        try:
            # The decoder alone: opening the file through Pillow's plugin costs a quarter of the time.
            return np.asarray(Image.frombytes('RGB', (header[1], header[0]), data, 'jpeg', 'RGB', ''))
        except ValueError:
            pass  # damaged, or of a kind that only the plugin handles: it decides, and says why
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if dtype == 'uint16':
                pixels = np.asarray(opened).astype(np.uint16)
            else:
                mode = {1: 'L', 2: 'LA', 3: 'RGB', 4: 'RGBA'}.get(channels or len(opened.getbands()))
                pixels = np.asarray(opened if mode in (None, opened.mode) else opened.convert(mode))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InputError(f'{where}: the image does not decode ({error})') from error
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _decode_jpeg(data: bytes) -> NDArray[Any] | None:
    """A colour JPEG by simplejpeg, in less than half of Pillow's time and to the same bits; None where that can't."""
    decode = _jpeg_decoder()
    if decode is None:
        return None
    try:
        pixels: NDArray[Any] = decode(data, 'RGB')
    except ValueError:
        return None  # damaged, or of a kind that only Pillow handles: it decides, and says why
    return pixels


@functools.cache
def _jpeg_decoder() -> Callable[[bytes, str], NDArray[Any]] | None:
    try:
        found: Callable[[bytes, str], NDArray[Any]] = importlib.import_module('simplejpeg').decode_jpeg
    except ModuleNotFoundError:
        return None
    return found


def jpeg_header(data: bytes) -> tuple[int, int, int] | None:
    """Height, width and components of a JPEG, from its frame header; None for anything else."""
    if data[:2] != b'\xff\xd8':
        return None
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(data[place + i : place + i + 2], 'big') for i in (5, 7))
            return height, width, data[place + 9]
        place += 2 + int.from_bytes(data[place + 2 : place + 4], 'big')
    return None


def encode_image(pixels: NDArray[Any], *, form: str = 'png', quality: int = 95) -> bytes:
    """Pixels (height, width, 1 to 4 channels) of uint8 or uint16, or (height, width, 1) of float32, as PNG or JPEG."""
    from PIL import Image

    pixels = np.asarray(pixels)
    if pixels.ndim != 3:
        raise InputError(f'an image is (height, width, channels), found shape {pixels.shape}')
    if pixels.dtype == np.float32 and pixels.shape[2] == 1:
        pixels = np.ascontiguousarray(pixels.astype('<f4')).view(np.uint8)
    buffer = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.save(buffer, format=form, **({'quality': quality} if form == 'jpeg' else {}))
    return buffer.getvalue()


def decode_many(images: Iterable[EncodedImage], *, threads: int = 2, ahead: int = 4) -> Iterator[NDArray[Any]]:
    """Decode images in order on some threads; about `threads * ahead` batches of a few images wait at a time."""
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    if threads <= 1:
        for image in images:
            yield image.array()
        return
    source = iter(images)
    waiting: deque[Future[list[NDArray[Any]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        while batch := list(itertools.islice(source, BATCH_IMAGES)):
            waiting.append(pool.submit(_arrays, batch))
            if len(waiting) >= threads * ahead:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _arrays(batch: Sequence[EncodedImage]) -> list[NDArray[Any]]:
    return [image.array() for image in batch]
