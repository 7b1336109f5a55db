"""One camera of one episode as a video file of its own: cut out of a longer video, or encoded from images.

A cut copies the encoded frames as they are wherever the episode begins with a frame that needs no other; otherwise, and
for images, frames are encoded as H.264 at a quality where the loss is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.image import EncodedImage
from robotrials.formats.video import VideoFrame, VideoFrames, check_decoder
from robotrials.record.film import load_av

ENCODER = 'libx264'
ENCODER_OPTIONS = {'crf': '18', 'preset': 'veryfast', 'bf': '0', 'g': '10'}
RATE_DENOMINATOR = 1000
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
            shown = [ticks[place[packet.pts]] for packet in packets]
            late = max(early - tick for early, tick in zip(ticks, shown, strict=True))  # of reordered frames
            for packet, tick, early in zip(packets, shown, ticks, strict=True):
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
def opened_video(path: Path) -> Iterator[Any]:
    """An open container with a video stream; whatever the file breaks is named by its path."""
    av = load_av(f'{path}: cutting an episode out of a video')
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


def count_frames(path: Path) -> int:
    """How many frames a video has, counted without decoding them."""
    with opened_video(path) as container:
        return sum(1 for packet in container.demux(container.streams.video[0]) if packet.pts is not None)


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
    av = load_av('encoding a video')
    count = 0
    rate = Fraction(fps).limit_denominator(RATE_DENOMINATOR)
    ticks = None if times_s is None else _ticks(times_s)
    with av.open(str(target), 'w', format='mp4') as sink:
        stream: Any = None
        for pixels in frames:
            rgb = _rgb(pixels)
            if stream is None:
                stream = sink.add_stream(ENCODER, rate=rate, options=ENCODER_OPTIONS)
                stream.height, stream.width = rgb.shape[:2]
                if ticks is not None:
                    stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
                # Chroma of odd sizes cannot be halved.
                stream.pix_fmt = 'yuv420p' if rgb.shape[0] % 2 == 0 and rgb.shape[1] % 2 == 0 else 'yuv444p'
            elif rgb.shape[:2] != (stream.height, stream.width):
                raise InputError(f'frame {count} is {rgb.shape[:2]}, the ones before {(stream.height, stream.width)}')
            frame = av.VideoFrame.from_ndarray(rgb, format='rgb24')
            if ticks is None:
                frame.pts, frame.time_base = count, 1 / rate
            else:
                frame.pts, frame.time_base = ticks[count], Fraction(1, TICKS_PER_S)
            sink.mux(stream.encode(frame))
            count += 1
        if stream is None:
            raise InputError(f'{target.name}: no frames to encode')
        sink.mux(stream.encode())
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
