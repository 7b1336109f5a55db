from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.measure.geometry import STEREO_NOISE, StereoNoise, stereo_depth
from robotrials.measure.geometry.view import BASELINE_M, FOCAL_PX, smooth_field

NONE = StereoNoise(noise_px=0, bias_px=0, quantum_px=0, holes=0)


def measure(depth: np.ndarray, noise: StereoNoise, *, unit: int = 1, frame: int = 2) -> np.ndarray:
    rng = np.random.default_rng
    return np.asarray(stereo_depth(depth, noise, focal_px=290.0, unit=rng([9, unit]), frame=rng([8, frame])))


def plane(depth_m: float, shape: tuple[int, int] = (96, 128)) -> np.ndarray:
    return np.full(shape, depth_m)


def test_a_perfect_camera_changes_nothing_and_missing_depth_stays_missing() -> None:
    depth = plane(1.0)
    depth[3, 4], depth[5, 6], depth[7, 8] = np.nan, np.inf, 0.0
    measured = measure(depth, NONE)
    lost = np.isnan(measured)
    assert lost.sum() == 3
    assert measured[~lost] == pytest.approx(1.0, abs=1e-12)


def test_disparity_comes_in_steps() -> None:
    """Every reported depth is f B over a whole number of steps."""
    slope = np.linspace(0.5, 2.0, 128)[None, :].repeat(96, axis=0)
    steps = FOCAL_PX * BASELINE_M / measure(slope, STEREO_NOISE['heavy']) * 8
    known = np.isfinite(steps)
    assert np.abs(steps[known] - np.rint(steps[known])).max() < 1e-9


def test_errors_grow_with_the_square_of_the_range() -> None:
    noise = StereoNoise(noise_px=0.05, bias_px=0.03, quantum_px=0, holes=0)
    spread = [
        np.std([measure(plane(z, (32, 32)), noise, unit=k, frame=k)[5, 5] - z for k in range(300)]) for z in (0.5, 1.5)
    ]
    expected = 0.5**2 / (FOCAL_PX * BASELINE_M) * np.hypot(0.05, 0.03 * np.sqrt(2))
    assert spread[0] == pytest.approx(expected, rel=0.12)
    assert spread[1] / spread[0] == pytest.approx(9.0, rel=0.15)


def test_a_unit_keeps_its_bias_and_a_frame_has_its_own_noise() -> None:
    noise = StereoNoise(noise_px=0.02, bias_px=0.1, quantum_px=0, holes=0)
    first, again = (measure(plane(1.0), noise, unit=1, frame=f) for f in (1, 2))
    other = measure(plane(1.0), noise, unit=2, frame=1)
    assert not np.array_equal(first, again)
    assert np.array_equal(first, measure(plane(1.0), noise, unit=1, frame=1))
    smoothed = [np.mean([measure(plane(1.0), noise, unit=u, frame=f) for f in range(40)], axis=0) for u in (1, 2)]
    assert np.std(smoothed[0] - smoothed[1]) > 5 * np.std(first - again) / np.sqrt(40)
    assert abs(np.mean(first) - np.mean(other)) > abs(np.mean(first) - np.mean(again))


def test_noise_is_correlated_over_its_length_and_no_further() -> None:
    fields = np.array([smooth_field((64, 64), length_px=3.0, rng=np.random.default_rng(k)) for k in range(300)])
    at = [float(np.mean(fields[:, 10, 10] * fields[:, 10, 10 + r])) for r in (0, 3, 6, 20)]
    assert at == pytest.approx([np.exp(-(r**2) / (4 * 3.0**2)) for r in (0, 3, 6, 20)], abs=0.15)
    assert np.mean(fields**2) == pytest.approx(1.0, rel=0.02)


def test_holes_lie_at_edges_and_beside_what_is_near() -> None:
    """A near square: the strip of the far plane to its left that the second lens does not see is lost, as wide as the
    two disparities differ; nothing far from the square is."""
    depth = plane(1.2)
    depth[30:60, 50:80] = 0.8
    lost = np.isnan(measure(depth, StereoNoise(noise_px=0, bias_px=0, quantum_px=0, holes=0, has_shadow=True)))
    width = 290 * BASELINE_M * (1 / 0.8 - 1 / 1.2)
    assert lost[45, 30:50].sum() == pytest.approx(width, abs=1)
    assert not lost[45, 50:].any()
    assert not lost[:30].any()
    edges = np.isnan(measure(depth, StereoNoise(noise_px=0, bias_px=0, quantum_px=0, holes=0, edge=0.02)))
    assert edges[[45, 45, 30], [79, 80, 60]].all()
    assert not edges[45, 65]
    assert not edges[5, 5]


@given(st.integers(0, 10_000))
def test_the_presets_are_ordered_in_error_and_in_holes(seed: int) -> None:
    depth = plane(1.1)
    depth[30:60, 50:80] = 1.0
    measured = [measure(depth, STEREO_NOISE[name], unit=seed, frame=seed) for name in ('mild', 'default', 'heavy')]
    errors = [float(np.sqrt(np.nanmean((m - depth) ** 2))) for m in measured]
    holes = [float(np.isnan(m).mean()) for m in measured]
    assert errors == sorted(errors)
    assert holes == sorted(holes)


def test_the_error_in_metres_does_not_depend_on_the_pictures_size() -> None:
    def spread(height: int) -> float:
        noise, rng = STEREO_NOISE['default'], np.random.default_rng
        shape, focal = (height, height), height * 1.2
        errors = [
            stereo_depth(np.ones(shape), noise, focal_px=focal, unit=rng(k), frame=rng([k, 1])) - 1 for k in range(120)
        ]
        return float(np.nanstd(errors))

    assert spread(48) == pytest.approx(spread(96), rel=0.15)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match='noise_px'):
        StereoNoise(noise_px=-1, bias_px=0, quantum_px=0, holes=0)
    with pytest.raises(InputError, match='below 1'):
        StereoNoise(noise_px=0, bias_px=0, quantum_px=0, holes=1)
    with pytest.raises(InputError, match='focal length'):
        stereo_depth(plane(1.0), NONE, focal_px=0.0, unit=np.random.default_rng(0), frame=np.random.default_rng(0))
