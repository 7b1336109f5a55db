"""What a stereo depth camera does to depth: noise, steps and bias in disparity, and holes where it sees nothing.

Depth is z = f B / d of a disparity d in pixels, so that an error in disparity becomes one that grows with the square of
the range. The numbers are those of a reference camera (`FOCAL_PX`, `BASELINE_M`: about a RealSense D435 at 640 x 480)
whatever the size of the picture, so that a small picture of the same scene is as noisy in metres.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

FOCAL_PX = 385.0
BASELINE_M = 0.05
EDGE_STEP_PX = 0.4  # of disparity between neighbours that makes an edge


@dataclass(frozen=True, slots=True)
class StereoNoise:
    """How bad a stereo camera is; zero everywhere changes nothing. Lengths in the picture are shares of its height."""

    noise_px: float  # standard deviation of disparity, anew in every frame
    bias_px: float  # standard deviation over units of a unit's own offset and of its smooth warp
    quantum_px: float  # step of the disparity
    holes: float  # share of pixels without depth, in patches
    edge: float = 0.0  # how far holes reach from an edge in depth
    noise_length: float = 0.012  # over which noise is correlated
    bias_length: float = 0.25  # over which a unit's warp is
    has_shadow: bool = False  # holes where only one of the two lenses sees the surface

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f'stereo noise: {field.name} must be finite and not negative, found {value!r}')
        if self.holes >= 1:
            raise InputError(f'stereo noise: holes must be a share below 1, found {self.holes}')

    def scaled(self, factor: float) -> StereoNoise:
        """The same camera, worse or better by a factor."""
        grown = ('noise_px', 'bias_px', 'quantum_px', 'holes', 'edge')
        return replace(self, **{name: getattr(self, name) * factor for name in grown})


STEREO_NOISE: Mapping[str, StereoNoise] = {
    'mild': StereoNoise(noise_px=0.03, bias_px=0.02, quantum_px=1 / 32, holes=0.005, edge=0.004, has_shadow=True),
    'default': StereoNoise(noise_px=0.08, bias_px=0.06, quantum_px=1 / 16, holes=0.02, edge=0.006, has_shadow=True),
    'heavy': StereoNoise(noise_px=0.2, bias_px=0.15, quantum_px=1 / 8, holes=0.06, edge=0.012, has_shadow=True),
}


def stereo_depth(
    depth_m: FloatArray,
    noise: StereoNoise,
    *,
    focal_px: float,
    unit: np.random.Generator,
    frame: np.random.Generator,
) -> FloatArray:
    """Depth (H, W) along z as a stereo camera with a right-hand second lens would report it; NaN where it has none.

    `focal_px` is the picture's own. `unit` draws what a camera unit keeps (give the same stream for all its frames),
    `frame` what is new in every picture.
    """
    if depth_m.ndim != 2 or not focal_px > 0:
        raise InputError(f'stereo depth wants depth (H, W) and a focal length > 0, found {depth_m.shape}, {focal_px}')
    height = depth_m.shape[0]
    is_known = np.isfinite(depth_m) & (depth_m > 0)
    near = np.where(is_known, depth_m, np.inf).astype(np.float64)
    disparity = FOCAL_PX * BASELINE_M / near  # 0 where nothing was measured
    lost = ~is_known
    if noise.has_shadow:
        lost |= _seen_by_one_lens(disparity * (focal_px / FOCAL_PX))
    if noise.edge > 0:
        lost |= _near_edges(disparity, reach_px=noise.edge * height)
    if noise.holes > 0:
        lost |= _patches(depth_m.shape, noise.holes, length_px=2 * noise.noise_length * height, rng=frame)
    measured = disparity
    if noise.bias_px > 0:
        warp = smooth_field(depth_m.shape, length_px=noise.bias_length * height, rng=unit)
        measured = measured + noise.bias_px * (unit.standard_normal() + warp)
    if noise.noise_px > 0:
        field = smooth_field(depth_m.shape, length_px=noise.noise_length * height, rng=frame)
        measured = measured + noise.noise_px * field
    if noise.quantum_px > 0:
        measured = np.rint(measured / noise.quantum_px) * noise.quantum_px
    lost |= measured <= 0
    reported = np.full(depth_m.shape, np.nan)
    np.divide(FOCAL_PX * BASELINE_M, measured, out=reported, where=~lost)
    return reported.astype(depth_m.dtype)


def smooth_field(shape: tuple[int, ...], *, length_px: float, rng: np.random.Generator) -> FloatArray:
    """A Gaussian random field (H, W) of mean 0 and variance 1, correlated as exp(-r^2 / 4 length^2)."""
    rows, columns = shape
    white = rng.standard_normal((rows, columns))
    ky, kx = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None, :]
    kernel = np.exp(-2 * (np.pi * length_px) ** 2 * (ky**2 + kx**2))
    # The mean square of the whole (two-sided) kernel is the variance that it leaves of white noise.
    power = (np.exp(-((2 * np.pi * length_px) ** 2) * np.fft.fftfreq(n) ** 2).mean() for n in (rows, columns))
    field: FloatArray = np.fft.irfft2(np.fft.rfft2(white) * kernel, s=(rows, columns)) / np.sqrt(np.prod(list(power)))
    return field


def _seen_by_one_lens(disparity_px: FloatArray) -> BoolArray:
    """Pixels that something nearer, further right, hides from the second lens."""
    columns = np.arange(disparity_px.shape[1])
    in_second = columns - disparity_px
    nearest_right = np.minimum.accumulate(in_second[:, ::-1], axis=1)[:, ::-1]
    hidden: BoolArray = in_second > nearest_right + 1e-6
    return hidden


def _near_edges(disparity: FloatArray, *, reach_px: float) -> BoolArray:
    edges = np.zeros(disparity.shape, dtype=np.bool_)
    for axis in (0, 1):
        jump = np.abs(np.diff(disparity, axis=axis)) > EDGE_STEP_PX
        low, high = (slice(None), slice(-1)), (slice(None), slice(1, None))
        edges[low if axis else low[::-1]] |= jump
        edges[high if axis else high[::-1]] |= jump
    for _ in range(int(np.rint(reach_px)) - 1):
        grown = edges.copy()
        grown[1:] |= edges[:-1]
        grown[:-1] |= edges[1:]
        grown[:, 1:] |= edges[:, :-1]
        grown[:, :-1] |= edges[:, 1:]
        edges = grown
    return edges


def _patches(shape: tuple[int, ...], share: float, *, length_px: float, rng: np.random.Generator) -> BoolArray:
    field = smooth_field(shape, length_px=length_px, rng=rng)
    lost: BoolArray = field < np.quantile(field, share)
    return lost
