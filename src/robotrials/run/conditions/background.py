"""Background and table texture, and distractors: joined in the paper's text, two conditions here."""

from __future__ import annotations

import colorsys
import dataclasses
import enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.run.conditions.condition import (  # fmt: skip
    CONDITIONS,
    BoolArray,
    CameraFrame,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
)
from robotrials.value import dataclass

# Procedural textures, by seed: table cloths that repeat without a seam, and posters.

INK, PAPER = 0.12, 0.95
WEAVE = 0.05  # how far threads and folds darken or lighten a cloth


class Texture(enum.StrEnum):
    CHECKER = 'checker'
    STRIPES = 'stripes'
    BLOBS = 'blobs'
    PLAID = 'plaid'
    DOTS = 'dots'
    FLOWERS = 'flowers'


def cloth_colors(hue: float, saturation: float) -> FloatArray:
    """Ground, first and second colour (3, 3), 0..1: a pale ground, a strong print, a darker one of another hue."""
    colors = ((hue, 0.14 * saturation, 0.93), (hue, saturation, 0.68), ((hue + 0.38) % 1, 0.9 * saturation, 0.45))
    return np.array([colorsys.hsv_to_rgb(*color) for color in colors])


def cloth_tile(texture: str, colors: FloatArray, *, periods: int, px: int, rng: np.random.Generator) -> FloatArray:
    """One square tile (px, px, 3), 0..1, of a cloth with this many repeats along its side; it tiles without a seam."""
    y, x = np.mgrid[0:px, 0:px] / px
    u, v = x * periods, y * periods
    if texture == Texture.CHECKER:  # a gingham: threads of the print cross threads of the ground
        share = ((u % 1 < 0.5).astype(float) + (v % 1 < 0.5)) / 2
        cloth = colors[0] + share[..., None] * (colors[1] - colors[0])
    elif texture == Texture.STRIPES:
        at = u % 1
        cloth = colors[np.select([at < 0.42, (at > 0.62) & (at < 0.72)], [1, 2], 0)]
    elif texture == Texture.PLAID:
        bands = [np.select([t % 1 < 0.4, (t % 1 > 0.66) & (t % 1 < 0.74)], [1, 2], 0) for t in (u, v)]
        cloth = (colors[bands[0]] + colors[bands[1]]) / 2
    elif texture == Texture.DOTS:
        row = np.floor(v)
        offset = 0.5 * (row % 2) if periods % 2 == 0 else 0.0
        distance = np.hypot((u + offset) % 1 - 0.5, v % 1 - 0.5)
        cloth = np.where((distance < 0.27)[..., None], colors[1], colors[0])
    elif texture == Texture.FLOWERS:
        cloth = _flowers(u, v, colors, periods=periods, rng=rng)
    else:
        phases = rng.uniform(0, 2 * np.pi, (4, 2))
        field = sum(
            np.sin(2 * np.pi * (k + 1) * x * max(1, periods // 2) + p)
            * np.cos(2 * np.pi * (k + 1) * y * max(1, periods // 2) + q)
            / (k + 1)
            for k, (p, q) in enumerate(phases)
        )
        cloth = colors[np.digitize(field, [-0.35, 0.55])]
    woven: FloatArray = np.clip(cloth * _weave(x, y, px, rng)[..., None], 0.0, 1.0)
    return woven


def _flowers(u: FloatArray, v: FloatArray, colors: FloatArray, *, periods: int, rng: np.random.Generator) -> FloatArray:
    cell_u, cell_v = np.floor(u).astype(int) % periods, np.floor(v).astype(int) % periods
    turn = rng.uniform(0, 2 * np.pi, (periods, periods))[cell_v, cell_u]
    size = rng.uniform(0.26, 0.42, (periods, periods))[cell_v, cell_u]
    dx, dy = u % 1 - 0.5, v % 1 - 0.5
    radius, angle = np.hypot(dx, dy), np.arctan2(dy, dx)
    petal = size * (0.68 + 0.32 * np.cos(5 * (angle + turn)))
    flower = np.where((radius < petal)[..., None], colors[1], colors[0])
    cloth: FloatArray = np.where((radius < 0.3 * size)[..., None], colors[2], flower)
    return cloth


def _weave(x: FloatArray, y: FloatArray, px: int, rng: np.random.Generator) -> FloatArray:
    """Threads a few pixels wide and long soft folds."""
    threads = np.sin(2 * np.pi * x * (px // 4)) * np.sin(2 * np.pi * y * (px // 4))
    phase = rng.uniform(0, 2 * np.pi, 2)
    folds = np.sin(2 * np.pi * (x + y) + phase[0]) + np.sin(2 * np.pi * (2 * x - y) + phase[1])
    shade: FloatArray = 1.0 + WEAVE * (0.5 * threads + 0.5 * folds)
    return shade


def poster(colors: FloatArray, *, height_px: int, width_px: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A printed poster (H, W, 3): a framed picture of discs, bars or a gradient, a title and lines of text."""
    page = np.full((height_px, width_px, 3), PAPER)
    y, x = np.mgrid[0 : 1 : height_px * 1j, 0 : 1 : width_px * 1j]
    is_art = (x > 0.07) & (x < 0.93) & (y > 0.2) & (y < 0.74)
    page[is_art] = _art(x, y, colors, rng)[is_art]
    page[(x > 0.1) & (x < 0.1 + rng.uniform(0.5, 0.8)) & (y > 0.07) & (y < 0.14)] = INK
    for line in np.arange(0.8, 0.95, 0.05):
        page[(x > 0.1) & (x < 0.1 + rng.uniform(0.45, 0.8)) & (y > line) & (y < line + 0.018)] = 0.45
    sheet: NDArray[np.uint8] = np.rint(255 * np.clip(page, 0, 1)).astype(np.uint8)
    return sheet


def _art(x: FloatArray, y: FloatArray, colors: FloatArray, rng: np.random.Generator) -> FloatArray:
    art: FloatArray = colors[0] + ((y - 0.2) / 0.54)[..., None] * (colors[1] - colors[0])
    for k in range(int(rng.integers(3, 6))):
        shade = colors[1 + k % 2] * rng.uniform(0.6, 1.2)
        cx, cy, size = rng.uniform(0.15, 0.85), rng.uniform(0.28, 0.66), rng.uniform(0.05, 0.16)
        if rng.random() < 0.5:
            inside = np.hypot(x - cx, 1.4 * (y - cy)) < size
        else:
            inside = (np.abs(x - cx) < size) & (np.abs(y - cy) < 0.7 * size)
        art[inside] = shade
    return art


MOST_POSTERS = 4
TILE_PERIODS = 4
TILE_PX = 256


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Background(SingleCondition):
    """Another cloth on the table and posters around it; the severity is how far the cloth replaces the old look.

    A host lays the cloth and puts the posters up. Over frames there is only the cloth's print, and it needs to know
    which pixels are background: from the frame, or else those of the colours that fill the picture's rim, which is a
    guess.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('background',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB, Effect.DEPTH})

    severity: float
    seed: int
    texture: str
    hue: float  # of the print, 0..1
    saturation: float
    period: float  # of the print: as a share of a picture's height, or of 40 cm on a table
    strength: float  # 0 keeps the old look, 1 replaces it
    posters: int = 0  # how many; those of a lower severity stay

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Background:
        s, rng = check_severity('background', severity), generator('background', seed)
        return cls(
            severity=s,
            seed=seed,
            texture=str(rng.choice([t.value for t in Texture])),
            hue=float(rng.random()),
            saturation=float(rng.uniform(0.6, 0.95)),
            period=float(rng.uniform(0.1, 0.3)),
            strength=s * float(rng.uniform(0.85, 1.0)),
            posters=int(np.ceil(MOST_POSTERS * s)),
        )

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        if self.severity == 0:
            return frame
        mask = frame.background if frame.background is not None else rim_background(frame)
        mixed = (1 - self.strength) * frame.rgb + self.strength * self.pattern(*frame.rgb.shape[:2])
        rgb = np.where(mask[..., None], np.rint(mixed), frame.rgb).astype(np.uint8)
        return dataclasses.replace(frame, rgb=rgb)

    def pattern(self, height_px: int, width_px: int) -> FloatArray:
        """The print over a whole picture (H, W, 3), 0..255, turned by its own angle."""
        angle = float(generator('background', self.seed, 1).uniform(0, np.pi))
        y, x = np.mgrid[0:height_px, 0:width_px] / (self.period * height_px * TILE_PERIODS)
        u, v = x * np.cos(angle) + y * np.sin(angle), -x * np.sin(angle) + y * np.cos(angle)
        rows, columns = (np.floor(t % 1 * TILE_PX).astype(np.int64) for t in (v, u))
        print_: FloatArray = 255.0 * self.tile(TILE_PX)[rows, columns]
        return print_

    def tile(self, px: int) -> FloatArray:
        """A square of the cloth (px, px, 3), 0..1, `TILE_PERIODS` periods wide, that repeats without a seam."""
        rng = generator('background', self.seed, 2)
        return cloth_tile(self.texture, self.colors(), periods=TILE_PERIODS, px=px, rng=rng)

    def poster(self, index: int, *, height_px: int, width_px: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """One of its posters (H, W, 3), in colours of its own."""
        rng = generator('background', self.seed, 3, index)
        colors = cloth_colors(float(rng.random()), self.saturation)
        return poster(colors, height_px=height_px, width_px=width_px, rng=rng)

    def colors(self) -> FloatArray:
        """Ground, print and second print (3, 3), 0..1."""
        return cloth_colors(self.hue, self.saturation)


def rim_background(frame: CameraFrame, *, slack: int = 36) -> BoolArray:
    """Pixels in the colours that most of the picture's rim has: a guess at the background, made without any model."""
    rgb = frame.rgb.astype(np.int64)
    rim = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    coarse, count = np.unique(rim // 16, axis=0, return_counts=True)
    common = coarse[count >= 0.02 * len(rim)]
    if not len(common):
        return np.ones(rgb.shape[:2], dtype=np.bool_)
    mask = np.zeros(rgb.shape[:2], dtype=np.bool_)
    for color in common:
        mask |= np.abs(rgb - (color * 16 + 8)).max(axis=2) <= slack
    return mask


def table_background(frame: CameraFrame, *, table_z_m: float, slack_m: float = 0.006) -> BoolArray:
    """Pixels whose depth says that they are not above the table, or that have no depth; needs depth and calibration."""
    if frame.depth_m is None or frame.intrinsics_px is None or frame.world_from_camera is None:
        raise InputError(f'camera {frame.camera}: a table mask needs depth, intrinsics and pose; give a mask instead')
    k, pose = frame.intrinsics_px, frame.world_from_camera
    v, u = np.indices(frame.depth_m.shape)
    ray = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(u.shape)], axis=-1)
    with np.errstate(invalid='ignore'):
        height = (ray * frame.depth_m[..., None]) @ pose[2, :3] + pose[2, 3]
        mask: BoolArray = ~(height > table_z_m + slack_m)
    return mask


class Shared(enum.StrEnum):
    """What a distractor has in common with the target."""

    COLOR = 'color'
    SHAPE = 'shape'


@dataclass(frozen=True, slots=True)
class DistractorObject:
    """One object to be added: it has the target's colour or its shape, never both."""

    shape: str
    color_rgb: tuple[int, int, int]
    size_m: tuple[float, float, float]
    shared: Shared


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Distractor(SingleCondition):
    """Objects that share the colour or the shape of the target and are of no use to the task; a host adds them."""

    KINDS: ClassVar[tuple[str, ...]] = ('distractor',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB, Effect.DEPTH, Effect.OBJECTS})

    severity: float
    seed: int
    count: int

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Distractor:
        s = check_severity('distractor', severity)
        return cls(severity=s, seed=seed, count=int(np.ceil(4 * s)))

    def objects(
        self,
        target_color_rgb: tuple[int, int, int],
        target_shape: str,
        *,
        shapes: tuple[str, ...] = ('block', 'cylinder'),
        colors_rgb: tuple[tuple[int, int, int], ...] = ((200, 40, 35), (35, 70, 190), (40, 150, 60), (220, 190, 40)),
    ) -> tuple[DistractorObject, ...]:
        """The objects to add beside a target; `shapes` and `colors_rgb` are what the host has."""
        rng = generator('distractor', self.seed)
        other_shapes = [s for s in shapes if s != target_shape]
        other_colors = [c for c in colors_rgb if c != tuple(target_color_rgb)]
        if not other_shapes and not other_colors:
            raise InputError('a distractor needs a second shape or a second colour, found neither')
        objects = []
        for i in range(self.count):
            by_color = bool(other_shapes) and (i % 2 == 0 or not other_colors)
            size = tuple(float(v) for v in rng.uniform(0.03, 0.05, 3))
            shape = str(rng.choice(other_shapes)) if by_color else target_shape
            color = tuple(target_color_rgb) if by_color else other_colors[int(rng.integers(len(other_colors)))]
            shared = Shared.COLOR if by_color else Shared.SHAPE
            objects.append(DistractorObject(shape, (color[0], color[1], color[2]), (size[0], size[1], size[2]), shared))
        return tuple(objects)
