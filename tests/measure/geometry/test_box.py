from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry import (
    Box,
    box_from_pose,
    box_iou,
    box_iou_pairs,
    rotation_from_quaternion,
    volumetric_iou,
)


def about(axis: int, angle_rad: float) -> np.ndarray:
    q = np.zeros(4)
    q[0], q[1 + axis] = math.cos(angle_rad / 2), math.sin(angle_rad / 2)
    return rotation_from_quaternion(q)


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    return rotation_from_quaternion(rng.normal(size=4))


def random_box(rng: np.random.Generator, spread: float = 0.3) -> Box:
    return Box(rng.normal(size=3) * spread, rng.uniform(0.1, 1.0, 3), random_rotation(rng))


def manifold_iou(a: Box, b: Box) -> float:
    manifold = pytest.importorskip('manifold3d').Manifold
    solids = [manifold.cube(x.size, True).transform(np.hstack([x.rotation, x.center[:, None]])) for x in (a, b)]
    shared = (solids[0] ^ solids[1]).volume()
    return shared / (a.volume + b.volume - shared)


UNIT = Box((0, 0, 0), (1, 1, 1), np.eye(3))


def test_shifted_cubes() -> None:
    assert box_iou(UNIT, Box((0.5, 0, 0), (1, 1, 1), np.eye(3))) == pytest.approx(1 / 3, abs=1e-15)


def test_a_cube_turned_by_45_degrees_is_an_octagon() -> None:
    octagon = 2 * (math.sqrt(2) - 1)
    assert box_iou(UNIT, Box((0, 0, 0), (1, 1, 1), about(2, math.pi / 4))) == pytest.approx(
        octagon / (2 - octagon), abs=1e-14
    )


def test_equal_boxes_have_iou_one() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        box = random_box(rng)
        assert box_iou(box, box) == pytest.approx(1.0, abs=1e-12)


def test_touching_boxes_share_nothing() -> None:
    assert box_iou(UNIT, Box((1, 0, 0), (1, 1, 1), np.eye(3))) == 0.0
    corner = Box((0.5 + math.sqrt(2) / 2, 0, 0), (1, 1, 1), about(2, math.pi / 4))
    assert box_iou(UNIT, corner) == pytest.approx(0.0, abs=1e-15)


def test_a_nested_box_has_the_ratio_of_the_volumes() -> None:
    inner = Box((0.05, -0.02, 0.01), (0.3, 0.2, 0.1), about(0, 0.7))
    assert box_iou(UNIT, inner) == pytest.approx(0.006, abs=1e-15)


def test_a_flat_box_shares_no_volume() -> None:
    flat = Box((0, 0, 0), (1, 1, 0), np.eye(3))
    assert box_iou(UNIT, flat) == 0.0
    assert box_iou(flat, UNIT) == 0.0


def test_two_flat_boxes_are_not_estimable() -> None:
    flat = Box((0, 0, 0), (1, 1, 0), np.eye(3))
    with pytest.raises(NotEstimable, match='0/0'):
        box_iou(flat, flat)
    assert np.isnan(box_iou_pairs([flat], [flat])[0])


@pytest.mark.parametrize('exponent', range(-17, -1))
def test_a_tiny_tilt_of_a_coincident_cube_changes_iou_by_its_own_size(exponent: int) -> None:
    """A unit square turned by a loses four corner triangles, 2 sin a cos a / (1 + sin a + cos a)^2 in all."""
    angle = 10.0**exponent
    overlap = 1 - 2 * math.sin(angle) * math.cos(angle) / (1 + math.sin(angle) + math.cos(angle)) ** 2
    for axis in range(3):
        turned = Box((0, 0, 0), (1, 1, 1), about(axis, angle))
        assert box_iou(UNIT, turned) == pytest.approx(overlap / (2 - overlap), abs=1e-12)


@pytest.mark.parametrize('scale', [1e-4, 1.0, 1e4])
def test_a_tilt_costs_no_more_than_the_tilt(scale: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        a = random_box(rng)
        a = Box(a.center * scale, a.size * scale, a.rotation)
        tilt = 10.0 ** rng.uniform(-16, -3)
        axis = rng.normal(size=3)
        q = np.concatenate([[1.0], tilt / 2 * axis / np.linalg.norm(axis)])
        near = Box(a.center, a.size, a.rotation @ rotation_from_quaternion(q))
        slope = float(a.size.max() / a.size.min())
        assert 1 - 4 * slope * tilt - 1e-12 <= box_iou(a, near) <= 1.0


def test_thousands_of_random_pairs_agree_with_a_mesh_boolean() -> None:
    rng = np.random.default_rng(3)
    first, second = [], []
    for i in range(3000):
        a = random_box(rng)
        kind = i % 6
        if kind < 3:
            b = random_box(rng)
        elif kind == 3:  # one face in the same plane
            b = Box(a.center + a.rotation @ [0.3 * a.size[0], 0, 0], a.size * [1, 0.5, 1], a.rotation)
        elif kind == 4:  # nested, turned
            b = Box(a.center, a.size * 0.3, random_rotation(rng))
        elif i % 12 == 5:  # thin
            b = Box(a.center + rng.normal(size=3) * 0.05, a.size * [1, 1, 1e-3], random_rotation(rng))
        else:  # tilted by less than can be seen
            q = np.concatenate([[1.0], rng.normal(size=3) * 1e-7])
            b = Box(a.center, a.size, a.rotation @ rotation_from_quaternion(q))
        first.append(a)
        second.append(b)
    ours = box_iou_pairs(first, second)
    theirs = np.array([manifold_iou(a, b) for a, b in zip(first, second, strict=True)])
    assert np.abs(ours - theirs).max() <= 1e-9


@given(st.integers(0, 2**32 - 1))
def test_iou_is_symmetric_bounded_and_invariant_under_rigid_motion(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_box(rng), random_box(rng)
    iou = box_iou(a, b)
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = random_rotation(rng), rng.normal(size=3)
    assert 0 <= iou <= 1
    assert iou == box_iou(b, a)
    assert box_iou(a.moved(motion), b.moved(motion)) == pytest.approx(iou, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-300, 1e-18, 1e-16, 1e-12, 1e-9, 1e-7]))
def test_iou_is_continuous_at_coincidence(seed: int, step: float) -> None:
    """Moving one of two equal boxes by `step` along its own edges costs exactly that share of them."""
    rng = np.random.default_rng(seed)
    a = random_box(rng)
    shift = rng.integers(-1, 2, 3) * step
    moved = Box(a.center + a.rotation @ shift, a.size, a.rotation)
    shared = float(np.prod(a.size - np.abs(shift)))
    assert box_iou(a, moved) == pytest.approx(shared / (2 * a.volume - shared), abs=1e-12)


def test_every_half_turn_of_a_cube_is_the_same_cube() -> None:
    for quarter in range(4):
        for axis in range(3):
            assert box_iou(UNIT, Box((0, 0, 0), (1, 1, 1), about(axis, quarter * math.pi / 2))) == pytest.approx(
                1.0, abs=1e-14
            )


def test_batches_and_single_calls_agree() -> None:
    rng = np.random.default_rng(4)
    first, second = [random_box(rng) for _ in range(50)], [random_box(rng) for _ in range(50)]
    assert box_iou_pairs(first, second).tolist() == [box_iou(a, b) for a, b in zip(first, second, strict=True)]
    assert box_iou_pairs([], []).shape == (0,)


def test_counting_voxels_comes_near_the_exact_value() -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        a, b = random_box(rng, 0.1), random_box(rng, 0.1)
        assert volumetric_iou(a, b, voxel_m=0.01) == pytest.approx(box_iou(a, b), abs=0.02)


@pytest.mark.parametrize(
    ('center', 'size', 'rotation', 'match'),
    [
        ((0, 0), (1, 1, 1), np.eye(3), 'center'),
        ((0, 0, math.nan), (1, 1, 1), np.eye(3), 'center'),
        ((0, 0, 0), (1, -1, 1), np.eye(3), 'edge lengths'),
        ((0, 0, 0), (1, 1, 1), np.diag([1, 1, -1]), 'determinant'),
        ((0, 0, 0), (1, 1, 1), 2 * np.eye(3), 'rotation'),
        ((0, 0, 0), (1, 1, 1), np.eye(4), '3x3'),
    ],
)
def test_what_is_not_a_box_is_refused(center: object, size: object, rotation: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Box(center, size, rotation)


def test_single_precision_rotations_are_brought_back() -> None:
    turn = random_rotation(np.random.default_rng(6)).astype(np.float32)
    box = Box((0, 0, 0), (1, 1, 1), turn)
    assert np.abs(box.rotation @ box.rotation.T - np.eye(3)).max() < 1e-14


def test_a_pose_gives_the_box_there() -> None:
    box = box_from_pose((1, 2, 3, math.cos(0.2), 0, 0, math.sin(0.2)), (0.1, 0.2, 0.3))
    assert np.allclose(box.rotation, about(2, 0.4))
    assert np.allclose(box.bounds[0][2], 2.85)
