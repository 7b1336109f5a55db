"""Frames of a recorded video, decoded when looked at, through PyAV where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, install_hint


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
        try:
            av = importlib.import_module('av')
        except ModuleNotFoundError as error:
            raise SetupError(
                f'{self.path}: this camera is stored as video; decoding it needs PyAV: {install_hint("video")}. '
                'Actions and states are readable without it'
            ) from error
        if not self.path.exists():
            raise InputError(f'{self.path}: missing; the metadata name this video')
        half_frame_s = 0.5 / self.fps
        try:
            with av.open(str(self.path)) as container:
                stream = container.streams.video[0]
                check_decoder(self.path, stream)
                if self.start_s > 0:
                    container.seek(int(self.start_s / float(stream.time_base)), stream=stream)
                for frame in container.decode(stream):
                    if frame.time is None or frame.time >= self.start_s - half_frame_s:
                        yield np.asarray(frame.to_ndarray(format='rgb24'))
        except (av.error.FFmpegError, IndexError, OSError) as error:
            raise InputError(f'{self.path}: not readable as video ({error}); fetch it again') from error


def check_decoder(path: Path, stream: Any) -> None:
    """SetupError where this PyAV cannot decode the video, such as AV1 (LeRobot's default) without libdav1d."""
    if stream.codec_context is None:
        raise SetupError(
            f'{path}: its codec is not known to this PyAV. LeRobot writes AV1, which the wheels of PyAV 15 and later '
            f'decode with libdav1d: {install_hint("video")}; or encode it anew: ffmpeg -i IN.mp4 -c:v libx264 OUT.mp4'
        )
