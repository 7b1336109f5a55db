"""Films: small H.264 files with an exact time for every frame, and the states they can be drawn from again.

A frame's presentation time is that of the state it shows. The same frames give the same bytes: one thread, and nothing
of the encoder, the machine or the day in the file.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, StoreError, install_hint
from robotrials.record.rgbd import UNREADABLE

FloatArray = NDArray[np.floating[Any]]
STATES_FILE = 'states.npz'  # beside the films
MOST_STATES_BYTES = 1 << 30
GROUP = 10  # frames from one that needs no other to the next: what a player decodes to show any frame
QUALITY = {'crf': '25', 'preset': 'veryfast', 'bf': '0', 'g': str(GROUP), 'threads': '1', 'sc_threshold': '0'}
CONTAINER = {'movflags': '+faststart', 'fflags': '+bitexact'}
RATE_DENOMINATOR = 1000


@dataclass(frozen=True, slots=True, eq=False)
class FilmStates:
    """What a film can be drawn from: the simulator's states at some control steps of an episode, and its set-up."""

    steps: NDArray[np.int64]  # (N,), 0 is the reset
    states: FloatArray  # (N, S), in the host's own layout
    setup: str = ''  # as JSON: what the host was told

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, steps=self.steps, states=self.states, setup=np.array(self.setup))
        return buffer.getvalue()


def read_states(path: Path) -> FilmStates:
    """The states of an episode's `states.npz`."""
    try:
        content = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(content) as archive:  # what is read is checked before it is unpacked
            n_bytes = sum(info.file_size for info in archive.infolist())
        if n_bytes > MOST_STATES_BYTES:
            raise ValueError(f'{n_bytes} bytes unpacked, wanted at most {MOST_STATES_BYTES}')
        content.seek(0)
        with np.load(content, allow_pickle=False) as kept:
            states = FilmStates(kept['steps'], kept['states'], str(kept['setup']))
        steps, n = states.steps, len(states.states)
        if steps.dtype.kind != 'i' or steps.shape != (n,) or not n or states.states.ndim != 2:
            raise ValueError(f'{steps.shape} steps of {steps.dtype} and {states.states.shape} states')
        if steps[0] < 0 or np.any(np.diff(steps) <= 0) or states.states.dtype.kind != 'f':
            raise ValueError('wanted rising steps from 0 on, and states of numbers')
        return states
    except (OSError, KeyError, TypeError, MemoryError, *UNREADABLE) as error:
        raise StoreError(f'{path}: not readable as states of an episode ({error})') from error


def encode_film(frames: Iterable[NDArray[np.uint8]], steps: Sequence[int], *, control_rate_hz: float) -> bytes:
    """MP4 (H.264, 4:2:0, ready to be streamed) of (H, W, 3) frames, each shown at the time of its control step."""
    av = load_av('filming')
    rate = Fraction(control_rate_hz).limit_denominator(RATE_DENOMINATOR)
    with tempfile.TemporaryDirectory() as folder:  # the index goes to the front once all is written: a file is needed
        target = Path(folder) / 'film.mp4'
        with av.open(str(target), 'w', format='mp4', options=CONTAINER) as sink:
            stream: Any = None
            for step, pixels in zip(steps, frames, strict=True):
                if stream is None:
                    stream = sink.add_stream('libx264', rate=rate, options=QUALITY)
                    stream.height, stream.width, stream.pix_fmt = *pixels.shape[:2], 'yuv420p'
                    stream.time_base = stream.codec_context.time_base = 1 / rate
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format='rgb24')
                frame.pts, frame.time_base = int(step), 1 / rate
                sink.mux(stream.encode(frame))
            if stream is None:
                raise InputError('a film without frames')
            sink.mux(stream.encode())
        return target.read_bytes()


def film_times(path: Path | str) -> FloatArray:
    """The time in seconds of every frame of a film, by its presentation times; nothing is decoded."""
    av = load_av(f'{path}: reading a film')
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            base = Fraction(stream.time_base)
            stamps = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
    except (av.error.FFmpegError, OSError, IndexError, UnicodeDecodeError) as error:
        raise StoreError(f'{path}: not readable as a film ({error})') from error
    return np.array([float(stamp * base) for stamp in stamps])


def has_av() -> bool:
    """Whether films can be written and read here."""
    return importlib.util.find_spec('av') is not None


def load_av(why: str) -> Any:
    """PyAV, or an error that says what needs it."""
    try:
        return importlib.import_module('av')
    except ModuleNotFoundError as error:
        raise SetupError(f'{why} needs PyAV: {install_hint("video")}') from error
