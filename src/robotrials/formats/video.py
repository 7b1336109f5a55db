"""Pictures as recorded: images kept encoded until somebody looks, videos, and clips cut out of them."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, install_hint
from robotrials.record.footage import RATE_DENOMINATOR, load_av, write_h264

# Images as recorded: kept encoded until somebody looks, so that reading actions costs no pixels.

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
        # TFDS stores a float image as the four bytes of each float in an RGBA image.
        is_float = self.dtype == 'float32'
        channels = 4 if is_float else self.shape[-1]
        pixels = decode_pixels(self.data, channels=channels, dtype=self.dtype, where=self.where)
        pixels = np.ascontiguousarray(pixels).view('<f4') if is_float else pixels
        for wanted, size in zip(self.shape, pixels.shape, strict=True):
            if wanted is not None and wanted != size:
                raise InputError(f'{self.where}: image of shape {pixels.shape}, the features declare {self.shape}')
        return pixels


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
        decoder: Callable[[bytes, str], NDArray[Any]] = importlib.import_module('simplejpeg').decode_jpeg
    except ModuleNotFoundError:
        return None
    return decoder


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


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """One frame, not decoded yet."""

    frames: VideoFrames
    index: int

    def array(self) -> NDArray[Any]:
        """The pixels, (height, width, 3)."""
        return self.frames.decode(self.index)


class VideoFrames(Sequence[VideoFrame]):
    """The frames of one episode inside a video that may hold several; reading forward decodes each frame once."""

    def __init__(self, path: Path, start_s: float, fps: float, length: int) -> None:
        self.path = path
        self.start_s = start_s
        self.fps = fps
        self.length = length
        self._stream: Iterator[NDArray[Any]] | None = None
        self._next = 0
        self._last: tuple[int, NDArray[Any]] | None = None

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> VideoFrame: ...
    @overload
    def __getitem__(self, index: slice) -> list[VideoFrame]: ...
    def __getitem__(self, index: int | slice) -> VideoFrame | list[VideoFrame]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.length))]
        if not 0 <= index < self.length:
            raise IndexError(index)
        return VideoFrame(self, index)

    def decode(self, index: int) -> NDArray[Any]:
        """The pixels of one frame; going back starts the video over."""
        if self._last is not None and self._last[0] == index:
            return self._last[1]
        if self._stream is None or index < self._next:
            self._stream, self._next = self._decode(), 0
        frame = None
        while self._next <= index:
            frame = next(self._stream, None)
            if frame is None:
                raise InputError(f'{self.path}: the video ends after {self._next} of the {self.length} frames declared')
            self._next += 1
        assert frame is not None
        self._last = (index, frame)
        return frame

    def _decode(self) -> Iterator[NDArray[Any]]:
        half_frame_s = 0.5 / self.fps
        with opened_video(self.path, why='decoding a camera (actions and states are readable without it)') as container:
            stream = container.streams.video[0]
            if self.start_s > 0:
                container.seek(int(self.start_s / float(stream.time_base)), stream=stream)
            for frame in container.decode(stream):
                if frame.time is None or frame.time >= self.start_s - half_frame_s:
                    yield np.asarray(frame.to_ndarray(format='rgb24'))


def check_decoder(path: Path, stream: Any) -> None:
    """SetupError where this PyAV cannot decode the video, such as AV1 (LeRobot's default) without libdav1d."""
    if stream.codec_context is None:
        raise SetupError(
            f'{path}: its codec is not known to this PyAV. LeRobot writes AV1, which the wheels of PyAV 15 and later '
            f'decode with libdav1d: {install_hint("video")}; or encode it anew: ffmpeg -i IN.mp4 -c:v libx264 OUT.mp4'
        )


# One camera of one episode as a video file of its own: cut out of a longer video, or encoded from images.
# A cut copies the encoded frames as they are wherever the episode begins with a frame that needs no other; otherwise,
# and for images, frames are encoded as H.264 at a quality where the loss is not seen.

ENCODER_OPTIONS = {'crf': '18', 'preset': 'veryfast', 'bf': '0', 'g': '10'}
TICKS_PER_S = 90_000


@dataclass(frozen=True, slots=True)
class VideoClip:
    """`length` frames from `start_s` on of a video that may hold several episodes."""

    path: Path
    start_s: float
    fps: float
    length: int

    def write(self, target: Path) -> None:
        """Write the clip as an MP4 file that starts at 0 s."""
        with opened_video(self.path) as source:
            packets = self._packets(source)
            if packets is not None:
                _copy_packets(source.streams.video[0], packets, target)
                return
        frames = VideoFrames(self.path, self.start_s, self.fps, self.length)
        encode_frames((frames.decode(i) for i in range(self.length)), target, fps=self.fps)

    def _packets(self, source: Any) -> list[Any] | None:
        """The clip's packets in decoding order; None where it cannot be cut without decoding."""
        stream = source.streams.video[0]
        if self.start_s > 0:
            source.seek(int(self.start_s / float(stream.time_base)), stream=stream)
        first_s, end_s = self.start_s - 0.5 / self.fps, self.start_s + (self.length - 0.5) / self.fps
        packets: list[Any] = []
        for packet in source.demux(stream):
            if packet.pts is None:
                continue
            time_s = float(packet.pts * packet.time_base)
            if first_s <= time_s < end_s:
                packets.append(packet)
            elif packets and time_s >= end_s + 1.0:
                break
        if len(packets) < self.length:
            raise InputError(
                f'{self.path}: the video ends after {len(packets)} of the {self.length} frames declared from '
                f'{self.start_s:g} s on; it is cut short: fetch it again'
            )
        is_clean = packets[0].is_keyframe and packets[0].pts == min(p.pts for p in packets)
        return packets if is_clean and len(packets) == self.length else None


@dataclass(frozen=True, slots=True, eq=False)
class FrameClip:
    """Recorded images that become a video."""

    frames: Sequence[EncodedImage | VideoFrame | NDArray[Any]]
    fps: float

    def write(self, target: Path) -> None:
        """Encode the images as an MP4 file."""
        encode_frames((f if isinstance(f, np.ndarray) else f.array() for f in self.frames), target, fps=self.fps)


@dataclass(frozen=True, slots=True)
class TimedClip:
    """A whole video whose frames were shown at `times_s`, whatever rate its file says."""

    path: Path
    times_s: tuple[float, ...]

    def write(self, target: Path) -> None:
        """Copy the encoded frames, each with its own time: players then need no table beside the film."""
        ticks = _ticks(self.times_s)
        with opened_video(self.path) as source:
            stream = source.streams.video[0]
            packets = [packet for packet in source.demux(stream) if packet.pts is not None]
            if len(packets) != len(ticks):
                raise InputError(f'{self.path}: {len(packets)} frames, and {len(ticks)} times of frames beside it')
            place = {pts: number for number, pts in enumerate(sorted(p.pts for p in packets))}
            presented = [ticks[place[packet.pts]] for packet in packets]
            late = max(early - tick for early, tick in zip(ticks, presented, strict=True))  # of reordered frames
            for packet, tick, early in zip(packets, presented, ticks, strict=True):
                packet.time_base = Fraction(1, TICKS_PER_S)
                packet.pts, packet.dts = tick, early - late
            _mux(stream, packets, target)


Clip = VideoClip | FrameClip | TimedClip


def _ticks(times_s: Sequence[float]) -> list[int]:
    """Times as ticks from 0, each after the one before; frames from before the episode come first, at its start."""
    ticks: list[int] = []
    for time_s in times_s:
        ticks.append(max(round(time_s * TICKS_PER_S), ticks[-1] + 1 if ticks else 0))
    return ticks


@contextmanager
def opened_video(path: Path, *, why: str = 'cutting an episode out of a video') -> Iterator[Any]:
    """An open container with a video stream; whatever the file breaks is named by its path, a missing PyAV by `why`."""
    av = load_av(f'{path}: {why}')
    if not path.exists():
        raise InputError(f'{path}: missing; the metadata name this video')
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(f'{path}: no video in it')
            check_decoder(path, container.streams.video[0])
            yield container
    except (av.error.FFmpegError, OSError, UnicodeDecodeError) as error:  # tags are text, or should be
        raise InputError(f'{path}: not readable as video ({error}); fetch it again') from error


def _copy_packets(stream: Any, packets: Sequence[Any], target: Path) -> None:
    offset = packets[0].pts
    for packet in packets:
        packet.pts -= offset
        if packet.dts is not None:
            packet.dts -= offset
    _mux(stream, packets, target)


def _mux(stream: Any, packets: Sequence[Any], target: Path) -> None:
    av = load_av('writing a video')
    with av.open(str(target), 'w', format='mp4') as sink:
        # Opaque: packets are copied as they are. Otherwise an encoder of the decoder's name is looked for, and AV1's
        # decoder, libdav1d, has none.
        copied = sink.add_stream_from_template(stream, opaque=True)
        for packet in packets:
            packet.stream = copied
            sink.mux(packet)


def encode_frames(
    frames: Iterable[NDArray[Any]], target: Path, *, fps: float, times_s: Sequence[float] | None = None
) -> int:
    """Encode (height, width, 1 or 3) uint8 frames as H.264 in MP4, at `fps` or at `times_s`; gives how many."""
    rate = Fraction(fps).limit_denominator(RATE_DENOMINATOR)
    tick_s = 1 / rate if times_s is None else Fraction(1, TICKS_PER_S)
    ticks = itertools.count() if times_s is None else iter(_ticks(times_s))
    stamped = ((next(ticks), _rgb(pixels)) for pixels in frames)
    count = write_h264(stamped, target, rate=rate, tick_s=tick_s, quality=ENCODER_OPTIONS)
    if not count:
        raise InputError(f'{target.name}: no frames to encode')
    return count


def _rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise InputError(f'a frame of {pixels.dtype} {pixels.shape}; wanted uint8 (height, width, 1, 3 or 4)')
    rgb = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    return np.ascontiguousarray(rgb)


def transcode(path: Path, target: Path) -> int:
    """Encode a video anew, without reordered frames; gives how many frames it has."""
    with opened_video(path) as container:
        stream = container.streams.video[0]
        fps = float(stream.average_rate or 30)
        frames = (frame.to_ndarray(format='rgb24') for frame in container.decode(stream))
        return encode_frames(frames, target, fps=fps)
