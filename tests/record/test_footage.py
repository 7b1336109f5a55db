"""Films: exact times, the same bytes for the same frames, and files that browsers can seek in."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.record.footage import GROUP, FilmStates, encode_film, film_times, read_states

STEPS = (0, 4, 8, 11, 12, 20, 24, 28, 32, 36, 40, 44, 48, 49)


def frames(count: int) -> list[NDArray[np.uint8]]:
    made = np.full((count, 48, 64, 3), 60, dtype=np.uint8)
    for number in range(count):
        made[number, 10:20, 3 * number : 3 * number + 12] = (220, 120, 20)
    return list(made)


def film(steps: Sequence[int] = STEPS, rate_hz: float = 20.0) -> bytes:
    return encode_film(frames(len(steps)), steps, control_rate_hz=rate_hz)


@pytest.mark.parametrize('rate_hz', [20.0, 15.0, 12.5, 7.0, 500.0, 30000 / 1001])
def test_every_frame_has_the_time_of_its_step(tmp_path: Path, rate_hz: float) -> None:
    path = tmp_path / 'f.mp4'
    path.write_bytes(film(rate_hz=rate_hz))
    exact = [float(step / Fraction(rate_hz).limit_denominator(1000)) for step in STEPS]
    np.testing.assert_allclose(film_times(path), exact, rtol=0, atol=1e-12)
    with av.open(str(path)) as container:
        shown = [frame.time for frame in container.decode(video=0)]
    np.testing.assert_allclose(shown, exact, rtol=0, atol=1e-12)


def test_the_frames_are_those_that_were_given() -> None:
    with av.open(io.BytesIO(film())) as container:
        decoded = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)]
    for given, shown in zip(frames(len(STEPS)), decoded, strict=True):
        assert np.abs(given.astype(int) - shown).mean() < 4


def test_the_same_frames_are_the_same_bytes_and_say_nothing_else() -> None:
    made = film()
    assert made == film()
    with av.open(io.BytesIO(made)) as container:
        told = {**container.metadata, **container.streams.video[0].metadata}
    assert set(told) <= {'major_brand', 'minor_version', 'compatible_brands', 'language', 'handler_name', 'vendor_id'}
    assert b'Lavf' not in made


def test_a_browser_can_start_at_once_and_step() -> None:
    made = film()
    assert made.index(b'moov') < made.index(b'mdat')
    with av.open(io.BytesIO(made)) as container:
        stream = container.streams.video[0]
        assert (stream.codec.canonical_name, stream.pix_fmt) == ('h264', 'yuv420p')
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
    whole = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    assert whole[0] == 0
    assert max(np.diff([*whole, len(packets)])) <= GROUP
    assert all(packet.pts == packet.dts for packet in packets)


def test_no_frames_and_no_film_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='without frames'):
        film(())
    (tmp_path / 'f.mp4').write_bytes(b'no film')
    for path in (tmp_path / 'f.mp4', tmp_path / 'none.mp4'):
        with pytest.raises(StoreError, match=path.name):
            film_times(path)


def test_states_come_back_bit_for_bit(tmp_path: Path) -> None:
    states = np.random.default_rng(1).normal(size=(5, 7))
    kept = FilmStates(np.arange(5), states, '{"task": "é"}')
    path = tmp_path / 'states.npz'
    path.write_bytes(kept.to_bytes())
    found = read_states(path)
    assert found.states.tobytes() == states.tobytes()
    assert (found.steps.tolist(), found.setup) == ([0, 1, 2, 3, 4], kept.setup)
    assert kept.to_bytes() == found.to_bytes()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match='not readable as states'):
        read_states(path)


@pytest.mark.parametrize(
    'kept',
    [
        {'steps': np.array([-1, 2]), 'states': np.zeros((2, 3))},
        {'steps': np.array([1, 1]), 'states': np.zeros((2, 3))},
        {'steps': np.array([0.0, 1.0]), 'states': np.zeros((2, 3))},
        {'steps': np.arange(2), 'states': np.zeros(2)},
        {'steps': np.arange(0), 'states': np.zeros((0, 3))},
        {'steps': np.arange(2), 'states': np.array([['a'], ['b']])},
    ],
)
def test_states_that_are_none_are_refused(tmp_path: Path, kept: dict[str, np.ndarray]) -> None:
    path = tmp_path / 'states.npz'
    np.savez_compressed(path, setup=np.array(''), **kept)
    with pytest.raises(StoreError, match='not readable as states'):
        read_states(path)


def test_states_are_measured_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'states.npz'
    path.write_bytes(FilmStates(np.arange(2), np.zeros((2, 100_000))).to_bytes())
    assert len(read_states(path).steps) == 2
    monkeypatch.setattr('robotrials.record.footage.MOST_STATES_BYTES', 1_000_000)
    with pytest.raises(StoreError, match='bytes unpacked, wanted at most'):
        read_states(path)
