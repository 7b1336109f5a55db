"""What an object is: a box, a mesh or a scanned cloud, as surface points with outward normals and an inside.

Meshes are read from OBJ, PLY and STL; clouds from PLY. Colours and textures are not needed: an object is known by its
shape, and which pixels are its own is said by masks.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou_pairs, box_symmetry, check_pose

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

N_SURFACE = 2500  # samples of a surface that a registration is made with
N_DENSE = 60_000  # samples that the inside is filled from
GRID = 56  # cells along the longest edge of the inside
LEAST_POINTS = 60
ALIKE_SHARE = 0.05  # of the longest edge, that a symmetric surface may be off
MOST_BYTES = 256 << 20
MOST_ELEMENTS = 5_000_000
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SolidModel:
    """An object's shape in its own frame, whose origin is the middle of its box.

    `n_scales` says what is not known of its size: 0 nothing, 1 the scale (a scan without a unit, say), 3 each edge.
    `size_range_m` then bounds the longest edge. `middle` is the origin in the coordinates of its file.
    """

    name: str
    points: FloatArray = field(repr=False)  # (N, 3) on the surface, evenly
    normals: FloatArray = field(repr=False)  # (N, 3) outward
    size: FloatArray  # (3,) edges of its box; metres, or any unit if the scale is not known
    inside: BoolArray = field(repr=False)  # (A, B, C) cells of its body, hollows included: a mug is a solid of its size
    middle: FloatArray = field(repr=False)
    n_scales: int = 0
    size_range_m: tuple[float, float] = (0.02, 0.5)

    @property
    def cell(self) -> float:
        """Edge of a cell of `inside`, in the units of `size`."""
        return float(self.size.max()) / GRID

    @cached_property
    def tree(self) -> cKDTree:
        """The samples, to be asked for the nearest."""
        from scipy.spatial import cKDTree

        return cKDTree(self.points)

    @cached_property
    def symmetry(self) -> FloatArray:
        """Rotations (K, 3, 3) that leave it alike, of those about its axes by 15 degrees and of a cube's."""
        turns = [np.eye(3)]
        steps = np.radians(np.arange(15, 360, 15))
        for a, b in ((0, 1), (1, 2), (2, 0)):
            for angle in steps:
                turn = np.eye(3)
                turn[[a, b], [a, b]] = math.cos(angle)
                turn[a, b], turn[b, a] = -math.sin(angle), math.sin(angle)
                turns.append(turn)
        turns += list(box_symmetry((1.0, 1.0, 1.0)).rotations)
        reach = ALIKE_SHARE * float(self.size.max())
        some = self.points[::5]
        alike = [t for t in turns if float(np.quantile(self.tree.query(some @ t.T)[0], 0.95)) <= reach]
        return np.unique(np.round(alike, 9) + 0.0, axis=0)


@dataclass(frozen=True, eq=False)
class PlacedSolid:
    """A model in the world: its pose (4x4, world from body) and its scales (3,)."""

    model: SolidModel
    world_from_body: FloatArray
    scale: FloatArray

    @cached_property
    def box(self) -> Box:
        """The box of the model, carried along: the one that box IoU and translational error are of."""
        return Box(self.world_from_body[:3, 3], self.model.size * self.scale, self.world_from_body[:3, :3])

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes of all poses that show the same solid: a bottle's box may be turned about its axis."""
        turn = self.world_from_body[:3, :3]
        return tuple(Box(self.box.center, self.box.size, turn @ r) for r in self.model.symmetry)

    def iou(self, target: Box) -> float:
        """Box IoU with a target, the largest over the poses that show the same solid."""
        return float(box_iou_pairs(self.boxes, [target] * len(self.boxes)).max())

    @cached_property
    def points(self) -> FloatArray:
        """The surface (N, 3) in the world."""
        placed: FloatArray = (self.model.points * self.scale) @ self.world_from_body[:3, :3].T
        placed += self.world_from_body[:3, 3]
        return placed

    @cached_property
    def normals(self) -> FloatArray:
        turned: FloatArray = (self.model.normals / self.scale) @ self.world_from_body[:3, :3].T
        turned /= np.linalg.norm(turned, axis=1)[:, None]
        return turned

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        return self.points.min(axis=0), self.points.max(axis=0)

    def contains(self, points: ArrayLike) -> BoolArray:
        """Which of the (N, 3) points lie in a filled cell."""
        local = ((np.asarray(points) - self.box.center) @ self.box.rotation) / self.scale
        grid = self.model.inside
        cell = np.floor(local / self.model.cell + np.array(grid.shape) / 2).astype(np.int64)
        valid = ((cell >= 0) & (cell < grid.shape)).all(axis=1)
        cell[~valid] = 0
        return np.asarray(grid[tuple(cell.T)] & valid)


def place(model: SolidModel, world_from_body: ArrayLike, *, scale: ArrayLike = 1.0) -> PlacedSolid:
    """The model at a pose; a scale for each axis or one for all."""
    factors = np.broadcast_to(np.asarray(scale, dtype=np.float64), 3).copy()
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise InputError(f'{model.name}: scale must be > 0, found {factors.tolist()}')
    return PlacedSolid(model, check_pose('world_from_body', world_from_body), factors)


def box_model(name: str, size_m: ArrayLike | None = None) -> SolidModel:
    """A plain box; without edges all three are unknown."""
    edges = np.array((0.05, 0.05, 0.05) if size_m is None else size_m, dtype=np.float64)
    signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    return mesh_model(name, signs * edges, faces, n_scales=3 if size_m is None else 0)


def mesh_model(name: str, vertices: FloatArray, faces: IntArray, *, n_scales: int = 0) -> SolidModel:
    """A model of a mesh: vertices (V, 3), triangles (F, 3). It need not be watertight, and may be wound either way."""
    corners = np.asarray(vertices, dtype=np.float64)[np.asarray(faces)]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(across, axis=1) / 2
    if not (area > 0).any() or not np.isfinite(corners).all():
        raise InputError(f'{name}: a mesh without any surface ({len(faces)} triangles)')
    # A fixed stream: the same file gives the same samples, and so the same score, wherever it is read.
    rng = np.random.default_rng(7)
    picked = np.searchsorted(np.cumsum(area), rng.random(N_DENSE) * area.sum()).clip(0, len(area) - 1)
    a, b = np.sqrt(rng.random(N_DENSE))[:, None], rng.random(N_DENSE)[:, None]
    c = corners[picked]
    dense = (1 - a) * c[:, 0] + a * (1 - b) * c[:, 1] + a * b * c[:, 2]
    normals = across[picked] / np.maximum(2 * area[picked], 1e-30)[:, None]
    return _model(name, dense, normals, n_scales)


def cloud_model(name: str, points: FloatArray, *, normals: FloatArray | None = None, n_scales: int = 0) -> SolidModel:
    """A model of a scanned cloud (N, 3); normals are measured where they are not given.

    A turntable scan, z up, is enough: the floor it stood on may be missing.
    """
    given = np.asarray(points, dtype=np.float64)
    if len(given) < LEAST_POINTS or not np.isfinite(given).all():
        raise InputError(f'{name}: a cloud of {len(given)} points, wanted at least {LEAST_POINTS} finite ones')
    if normals is None:
        from scipy.spatial import cKDTree

        around = given[cKDTree(given).query(given, k=min(14, len(given)))[1]]
        spread = around - around.mean(axis=1, keepdims=True)
        normals = np.linalg.eigh(np.einsum('nki,nkj->nij', spread, spread))[1][:, :, 0]
    return _model(name, given, np.asarray(normals, dtype=np.float64), n_scales, is_cloud=True)


def _model(name: str, dense: FloatArray, normals: FloatArray, n_scales: int, *, is_cloud: bool = False) -> SolidModel:
    """Samples spread evenly, the filled inside, and normals that point out of it."""
    low, high = dense.min(axis=0), dense.max(axis=0)
    size = high - low
    if n_scales not in (0, 1, 3) or not size.max() > 0:
        raise InputError(f'{name}: edges {size.tolist()} and {n_scales} unknown scales, wanted 0, 1 or 3')
    middle = (low + high) / 2
    centred = dense - middle
    matter, body, shape = _filled(centred, size, is_cloud=is_cloud)
    from scipy.ndimage import gaussian_filter

    smooth: FloatArray = gaussian_filter(matter.astype(np.float64), 1.5)
    soft = np.stack([np.gradient(smooth, axis=k) for k in range(3)], axis=-1)
    cell = np.floor(centred / (size.max() / GRID) + shape / 2).astype(np.int64).clip(0, shape - 1)
    inward = soft[tuple(cell.T)]
    outward = np.where((np.einsum('nd,nd->n', inward, normals) > 0)[:, None], -normals, normals)
    kept = _spread(centred, N_SURFACE)
    return SolidModel(name, centred[kept], outward[kept], size, body, middle, n_scales)


def _filled(points: FloatArray, size: FloatArray, *, is_cloud: bool) -> tuple[BoolArray, BoolArray, IntArray]:
    """Cells of the matter and of the body, and the shape of their grid.

    The matter is what the slices along two axes enclose, the body what those along any one do: a mug's hollow belongs
    to its body alone, and a scan without a floor still has both.
    """
    from scipy.ndimage import binary_dilation, binary_erosion, binary_fill_holes

    cell = float(size.max()) / GRID
    reach = _gap_cells(points, cell) if is_cloud else 0
    shape = (np.ceil(size / cell).astype(np.int64) + 4) // 2 * 2
    margin = reach + 1
    index = np.floor(points / cell + shape / 2).astype(np.int64).clip(0, shape - 1) + margin
    shell = np.zeros(tuple(shape + 2 * margin), dtype=np.bool_)
    shell[tuple(index.T)] = True
    if is_cloud:  # gaps between its points are closed, and the floor that it stood on while it was scanned
        shell = binary_dilation(shell, iterations=reach)
        low = int(np.flatnonzero(shell.any(axis=(0, 1)))[0])
        floor: BoolArray = np.logical_or.reduce(shell[:, :, low : low + 3], axis=2)
        shell[:, :, low] = binary_fill_holes(floor)
    votes = np.zeros(shell.shape, dtype=np.int64)
    for axis in range(3):
        slices: list[BoolArray] = [np.take(shell, [k], axis=axis).squeeze(axis) for k in range(shell.shape[axis])]
        filled = [binary_fill_holes(cells) for cells in slices]
        votes += np.moveaxis(np.array(filled), 0, axis)
    matter, body = shell | (votes >= 2), shell | (votes >= 1)
    if reach:
        matter, body = (binary_erosion(cells, iterations=reach) for cells in (matter, body))
    inner = np.s_[margin:-margin, margin:-margin, margin:-margin]
    return matter[inner], body[inner], shape


def _gap_cells(points: FloatArray, cell: float) -> int:
    """How many cells a cloud's points must be thickened by to close up."""
    from scipy.spatial import cKDTree

    spacings = np.asarray(cKDTree(points).query(points[:: max(1, len(points) // 500)], k=5)[0])[:, 4]
    return max(1, math.ceil(float(np.quantile(spacings, 0.9)) / cell))


def _spread(points: FloatArray, n: int) -> IntArray:
    """Indices of about n points, one to a cell of a size that gives so many."""
    rng = np.random.default_rng(7)
    order = rng.permutation(len(points))
    low, high = 1e-4, 1.0
    extent = float(np.ptp(points, axis=0).max())
    kept = order
    for _ in range(24):
        middle = math.sqrt(low * high)
        cell = np.floor(points[order] / (middle * extent)).astype(np.int64)
        cell -= cell.min(axis=0)
        kept = np.unique((cell[:, 0] << 40) + (cell[:, 1] << 20) + cell[:, 2], return_index=True)[1]
        low, high = (middle, high) if len(kept) > n else (low, middle)
    return np.sort(order[kept[:n]])


# A model as text, to be kept with what is known of a scene: samples in steps of 1/32000 of the longest edge, and cells.


def pack_solid(model: SolidModel) -> str:
    """The model as base64; about 20 kB."""
    step = float(model.size.max()) / 32000
    head = json.dumps({
        'name': model.name, 'size': model.size.tolist(), 'n_scales': model.n_scales, 'range': model.size_range_m,
        'middle': model.middle.tolist(), 'n': len(model.points), 'cells': model.inside.shape,
    })  # fmt: skip
    parts = (
        np.rint(model.points / step).astype('<i2').tobytes(), np.rint(127 * model.normals).astype(np.int8).tobytes(),
        np.packbits(model.inside).tobytes(),
    )  # fmt: skip
    return base64.b64encode(zlib.compress(head.encode() + b'\n' + b''.join(parts), 9)).decode()


def unpack_solid(text: str) -> SolidModel:
    """The same back; InputError where it is none."""
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(text, validate=True), 4 << 20)
        head, _, body = content.partition(b'\n')
        head_values = json.loads(head)
        n, cells = int(head_values['n']), tuple(int(c) for c in head_values['cells'])
        if (
            not unpacking.eof
            or len(cells) != 3
            or not 0 < n <= 100_000
            or len(body) != 9 * n + -(-math.prod(cells) // 8)
        ):
            raise ValueError(f'{len(body)} bytes for {n} samples and {cells} cells')
        size = np.array(head_values['size'], dtype=np.float64)
        points = np.frombuffer(body, '<i2', 3 * n).reshape(n, 3) * (float(size.max()) / 32000)
        normals = np.frombuffer(body, np.int8, 3 * n, offset=6 * n).reshape(n, 3) / 127.0
        bits = np.unpackbits(np.frombuffer(body, np.uint8, offset=9 * n), count=math.prod(cells))
        low, high = (float(v) for v in head_values['range'])
        normals /= np.maximum(np.linalg.norm(normals, axis=1), 1e-9)[:, None]
        return SolidModel(
            str(head_values['name']), points, normals, size, bits.reshape(cells).astype(np.bool_),
            np.array(head_values['middle'], dtype=np.float64), int(head_values['n_scales']), (low, high),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError) as error:
        raise InputError(f'not a shape as pack_solid writes it ({error})') from error


# Files of shapes: read with every count checked against the file before anything is built.

_PLY_TYPES = {
    'char': 'i1', 'int8': 'i1', 'uchar': 'u1', 'uint8': 'u1', 'short': 'i2', 'int16': 'i2', 'ushort': 'u2',
    'uint16': 'u2', 'int': 'i4', 'int32': 'i4', 'uint': 'u4', 'uint32': 'u4', 'float': 'f4', 'float32': 'f4',
    'double': 'f8', 'float64': 'f8',
}  # fmt: skip


def read_solid(path: Path | str, *, name: str = '', n_scales: int = 0, unit_m: float = 1.0) -> SolidModel:
    """A model from an OBJ, PLY or STL file; a PLY without faces is a cloud. `unit_m` is its unit: 0.001 for mm."""
    file = Path(path)
    try:
        n_bytes = file.stat().st_size
        content = file.read_bytes() if n_bytes <= MOST_BYTES else b''
    except OSError as error:
        raise InputError(f'{file}: cannot be read ({error.strerror})') from error
    if n_bytes > MOST_BYTES:
        raise InputError(f'{file}: {n_bytes} bytes, wanted at most {MOST_BYTES}; thin the mesh out first')
    return solid_from_bytes(content, suffix=file.suffix, name=name or file.stem, n_scales=n_scales, unit_m=unit_m)


def solid_from_bytes(
    content: bytes, *, suffix: str, name: str, n_scales: int = 0, unit_m: float = 1.0
) -> SolidModel:  # fmt: skip
    """The same from a file's bytes."""
    readers = {'.obj': _read_obj, '.ply': _read_ply, '.stl': _read_stl}
    reader = readers.get(suffix.lower())
    if reader is None:
        raise InputError(f'{name}{suffix}: wanted a shape as .obj, .ply or .stl')
    if not (math.isfinite(unit_m) and unit_m > 0):
        raise InputError(f'{name}: unit_m must be a length > 0, found {unit_m}')
    try:
        vertices, faces, normals = reader(content)
    except (ValueError, IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise InputError(f'{name}{suffix}: not readable as {suffix[1:].upper()} ({error})') from error
    if len(faces) and (faces.min() < 0 or faces.max() >= len(vertices)):
        raise InputError(f'{name}{suffix}: a face names vertex {int(faces.max())} of {len(vertices)}')
    vertices = vertices * unit_m
    if len(faces):
        return mesh_model(name, vertices, faces, n_scales=n_scales)
    return cloud_model(name, vertices, normals=normals, n_scales=n_scales)


_Shape = tuple[FloatArray, IntArray, FloatArray | None]


def _fan(polygon: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(polygon[0], polygon[k], polygon[k + 1]) for k in range(1, len(polygon) - 1)]


def _read_obj(content: bytes) -> _Shape:
    vertices: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    for number, line in enumerate(content.decode('utf-8', errors='replace').splitlines(), start=1):
        word, *rest = line.split('#', 1)[0].split() or ['']
        if word == 'v':
            if len(rest) < 3:
                raise ValueError(f'line {number}: a vertex of {len(rest)} numbers')
            vertices.append([float(v) for v in rest[:3]])
        elif word == 'f':
            polygon = [int(corner.split('/')[0]) for corner in rest]
            if len(polygon) < 3 or 0 in polygon:
                raise ValueError(f'line {number}: a face of corners {polygon}')
            faces += _fan([i - 1 if i > 0 else len(vertices) + i for i in polygon])
    return np.array(vertices).reshape(-1, 3), np.array(faces, dtype=np.int64).reshape(-1, 3), None


def _read_stl(content: bytes) -> _Shape:
    n = int.from_bytes(content[80:84], 'little') if len(content) >= 84 else -1
    if len(content) == 84 + 50 * n:
        rows = np.frombuffer(content, dtype=[('f', '<f4', 12), ('a', '<u2')], offset=84)
        corners = rows['f'][:, 3:].reshape(-1, 3).astype(np.float64)
    else:
        text = content.decode('utf-8', errors='strict')
        lines = [line.split()[1:4] for line in text.splitlines() if line.strip().startswith('vertex')]
        if not text.lstrip().startswith('solid') or not lines or len(lines) % 3:
            raise ValueError(f'{len(content)} bytes: neither text nor the length of {n} triangles')
        corners = np.array(lines, dtype=np.float64)
    return corners, np.arange(len(corners), dtype=np.int64).reshape(-1, 3), None


def _read_ply(content: bytes) -> _Shape:
    end = content.find(b'end_header')
    if not content.startswith(b'ply') or end < 0:
        raise ValueError('no header of PLY')
    start = content.index(b'\n', end) + 1
    header = [line.split() for line in content[:end].decode('ascii').splitlines()]
    form = next((words[1] for words in header if words[:1] == ['format']), '')
    if form not in ('ascii', 'binary_little_endian', 'binary_big_endian'):
        raise ValueError(f'format {form!r}')
    elements: list[tuple[str, int, list[list[str]]]] = []
    for words in header:
        if words[:1] == ['element']:
            elements.append((words[1], int(words[2]), []))
        elif words[:1] == ['property']:
            elements[-1][2].append(words[1:])
    body = _PlyBody(content, start, form)
    vertices: FloatArray = np.empty((0, 3))
    faces: list[tuple[int, int, int]] = []
    normals: FloatArray | None = None
    for name, count, properties in elements:
        if not 0 <= count <= MOST_ELEMENTS:
            raise ValueError(f'{count} of {name}, wanted at most {MOST_ELEMENTS}')
        if name == 'vertex':
            columns = [p[1] for p in properties]
            table = body.table(count, [p[0] for p in properties])
            vertices = table[:, [columns.index(c) for c in 'xyz']]
            if all(c in columns for c in ('nx', 'ny', 'nz')):
                normals = table[:, [columns.index(c) for c in ('nx', 'ny', 'nz')]]
        else:
            for _ in range(count):
                row = [body.values(p) for p in properties]
                if name == 'face':
                    which = next(k for k, p in enumerate(properties) if p[0] == 'list')
                    faces += _fan([int(v) for v in row[which]])
    return vertices, np.array(faces, dtype=np.int64).reshape(-1, 3), normals


class _PlyBody:
    """The values behind a PLY header, in order; text or binary."""

    def __init__(self, content: bytes, start: int, form: str) -> None:
        self._content, self._at = content, start
        self._order = {'binary_little_endian': '<', 'binary_big_endian': '>'}.get(form, '')
        self._words = iter(content[start:].split()) if not self._order else iter(())

    def table(self, count: int, kinds: Sequence[str]) -> FloatArray:
        """Rows of scalars (count, len(kinds))."""
        if 'list' in kinds:
            raise ValueError('vertices with lists')
        if not self._order:
            rows = [[self._word() for _ in kinds] for _ in range(count)]
            return np.array(rows, dtype=np.float64).reshape(count, len(kinds))
        row = np.dtype([(f'c{k}', self._order + _PLY_TYPES[kind]) for k, kind in enumerate(kinds)])
        if self._at + count * row.itemsize > len(self._content):
            raise ValueError(f'{count} rows of {row.itemsize} bytes do not fit into the file')
        read = np.frombuffer(self._content, dtype=row, count=count, offset=self._at)
        self._at += count * row.itemsize
        return np.stack([read[f'c{k}'].astype(np.float64) for k in range(len(kinds))], axis=1)

    def values(self, declared: Sequence[str]) -> list[float]:
        """One property of one row: a scalar, or a list with its count before it."""
        if declared[0] != 'list':
            return [self._scalar(declared[0])]
        count = int(self._scalar(declared[1]))
        if not 0 <= count <= 64:
            raise ValueError(f'a list of {count} values')
        return [self._scalar(declared[2]) for _ in range(count)]

    def _scalar(self, kind: str) -> float:
        if not self._order:
            return self._word()
        kept = np.dtype(self._order + _PLY_TYPES[kind])
        if self._at + kept.itemsize > len(self._content):
            raise ValueError('cut short')
        value = float(np.frombuffer(self._content, dtype=kept, count=1, offset=self._at)[0])
        self._at += kept.itemsize
        return value

    def _word(self) -> float:
        word = next(self._words, None)
        if word is None:
            raise ValueError('cut short')
        return float(word)
