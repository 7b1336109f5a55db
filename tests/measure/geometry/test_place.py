"""Where to put cameras: what they see is counted right, and places that are computed see more than poor ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.measure.geometry import Box
from robotrials.measure.geometry.mask import StaticScene
from robotrials.measure.geometry.place import coverage, layouts_of, place_cameras, sites_around
from robotrials.record.footage import KnownBox, KnownObject, KnownScene, RegionGoal

TABLE = KnownBox(name='table', center_m=(0.0, 0.0, -0.02), size_m=(1.0, 1.0, 0.04))
WALLS = tuple(
    KnownBox(name=f'wall {k}', center_m=(x, y, 0.05), size_m=(sx, sy, 0.1))
    for k, (x, y, sx, sy) in enumerate(
        [(0.12, 0.0, 0.01, 0.24), (-0.12, 0.0, 0.01, 0.24), (0.0, 0.12, 0.24, 0.01), (0.0, -0.12, 0.24, 0.01)]
    )
)


def scene(*, has_bin: bool = True) -> KnownScene:
    start = KnownBox(name='start', center_m=(0.3, 0.0, 0.02), size_m=(0.04, 0.04, 0.04))
    objects = tuple(KnownObject(name=f'o{k}', start=start, color_rgb=(200, 0, 0)) for k in range(2))
    return KnownScene(
        objects=objects, fixed=(TABLE, *(WALLS if has_bin else ())),
        region=RegionGoal(objects=('o0', 'o1'), low_m=(-0.1, -0.1, 0.0), high_m=(0.1, 0.1, 0.1)),
    )  # fmt: skip


def sites(elevation_deg: float) -> list[object]:
    every = sites_around(np.zeros(3), distances_m=(1.0,), height_px=240, width_px=320, fovy_rad=math.radians(45))
    return [s for s in every if s.name.split('/')[1] == f'{elevation_deg:.0f}']


def test_a_cube_alone_shows_what_faces_the_camera() -> None:
    """From 40 degrees above and straight ahead: the top and one side of five, and a wall before it hides the side."""
    cube, table = Box((0, 0, 0.02), (0.04, 0.04, 0.04)), StaticScene((Box((0, 0, -0.02), (1, 1, 0.04)),))
    ahead = next(s for s in sites(40) if s.name.startswith('0/'))  # type: ignore[attr-defined]
    assert coverage([ahead], [[cube]], table).seen == pytest.approx(2 / 5)
    wall = Box((0.05, 0, 0.02), (0.01, 0.2, 0.04))
    hidden = coverage([ahead], [[cube]], StaticScene((*table.boxes, wall)))
    assert 1 / 5 <= hidden.seen < 2 / 5
    other = coverage([ahead], [[cube, Box((0.05, 0, 0.02), (0.04, 0.04, 0.04))]], table)
    assert other.seen < 2 / 5 + 1e-9
    assert other.seen_twice == 0
    far = next(s for s in sites(40) if s.name.startswith('180/'))  # type: ignore[attr-defined]
    both = coverage([ahead, far], [[cube]], table)
    assert both.seen == pytest.approx(3 / 5)
    assert both.seen_twice == pytest.approx(1 / 5)  # the top
    assert coverage([ahead], [[Box((3, 0, 0.02), (0.04, 0.04, 0.04))]], table).hidden == 1  # out of the picture


def test_arrangements_lie_in_the_region_and_the_seed_changes_them() -> None:
    first, again, other = (layouts_of(scene(), rng=np.random.default_rng(s)) for s in (1, 1, 2))
    assert len(first) > 10
    for box in (b for layout in first[1:] for b in layout):
        assert (np.abs(box.center[:2]) <= 0.1).all()
    assert np.allclose([b.center for b in first[3]], [b.center for b in again[3]])
    assert not np.allclose([b.center for b in first[3]], [b.center for b in other[3]])


def test_computed_places_see_more_than_any_one_ring_of_flat_ones() -> None:
    found, covered, layouts, fixed = place_cameras([scene()], 3, rng=np.random.default_rng(0), distances_m=(1.0,))
    flat = [s for s in sites(25) if s.name.split('/')[0] in ('0', '120', '240')]  # type: ignore[attr-defined]
    poor = coverage(flat, layouts, fixed)
    assert len(found) == 3
    assert covered.seen > poor.seen + 0.05
    assert covered.seen_twice >= poor.seen_twice
    assert covered.hidden <= poor.hidden
    with pytest.raises(InputError, match='stands fixed'):
        place_cameras([KnownScene(objects=scene().objects)], 3, rng=np.random.default_rng(0))


def test_the_verb_places_cameras_for_the_file_of_a_scene(tmp_path: Path) -> None:
    path = tmp_path / 'known.json'
    path.write_text(scene().as_json())
    done = subprocess.run(
        [sys.executable, '-m', 'robotrials', 'geometry', 'place', str(path), '--cameras', '2', '--format', 'json'],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert 'Where to put them' in json.dumps(told)
    empty = tmp_path / 'empty.json'
    empty.write_text('{}')
    failed = subprocess.run(
        [sys.executable, '-m', 'robotrials', 'geometry', 'place', str(empty)], capture_output=True, text=True
    )
    assert failed.returncode != 0
    assert 'objects' in failed.stderr
