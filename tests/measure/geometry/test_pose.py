from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.measure.geometry import (
    CONE,
    CYLINDER,
    NO_SYMMETRY,
    SPHERE,
    Box,
    Symmetry,
    alignment_angle,
    alignment_error,
    box_pose_error,
    box_symmetry,
    cyclic,
    dihedral,
    pose_error,
    rotation_from_quaternion,
)  # fmt: skip


def turn(axis: int, angle_rad: float) -> np.ndarray:
    q = np.zeros(4)
    q[0], q[1 + axis] = math.cos(angle_rad / 2), math.sin(angle_rad / 2)
    return rotation_from_quaternion(q)


@pytest.mark.parametrize(('size', 'order'), [((1, 2, 3), 4), ((1, 1, 2), 8), ((2, 1, 1), 8), ((1, 1, 1), 24)])
def test_a_box_has_as_many_symmetries_as_equal_edges_allow(size: tuple[float, ...], order: int) -> None:
    group = box_symmetry(size).rotations
    assert len(group) == order
    assert all(np.allclose(np.abs(r) @ size, size) for r in group)
    products = {tuple(np.round(a @ b, 6).ravel() + 0.0) for a in group for b in group}
    assert len(products) == order  # closed: it is a group


@given(st.integers(0, 2**32 - 1))
def test_the_frobenius_norm_is_that_of_equation_3_minimised_over_the_group(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rotation_from_quaternion(rng.normal(size=4)), rotation_from_quaternion(rng.normal(size=4))
    for group in (NO_SYMMETRY, cyclic(3), dihedral(4), box_symmetry((1, 1, 1))):
        brute = min(np.linalg.norm(a @ s - b) for s in group.rotations)
        assert alignment_error(a, b, symmetry=group) == pytest.approx(brute, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_a_turning_symmetry_is_the_limit_of_ever_finer_turns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rotation_from_quaternion(rng.normal(size=4)), rotation_from_quaternion(rng.normal(size=4))
    for fine, limit in ((cyclic(720), CONE), (dihedral(720), CYLINDER)):
        brute = alignment_angle(a, b, symmetry=fine)
        assert alignment_angle(a, b, symmetry=limit) <= brute + 1e-12
        assert alignment_angle(a, b, symmetry=limit) == pytest.approx(brute, abs=0.01)
    assert alignment_angle(a, b, symmetry=SPHERE) == 0.0


def test_tiny_angles_are_kept() -> None:
    assert alignment_angle(turn(1, 1e-9), np.eye(3)) == pytest.approx(1e-9, rel=1e-6)


def test_a_half_turn_is_pi() -> None:
    assert alignment_angle(turn(0, math.pi), np.eye(3)) == pytest.approx(math.pi)
    assert alignment_error(turn(0, math.pi), np.eye(3)) == pytest.approx(2 * math.sqrt(2))


def test_without_symmetry_a_cube_turned_by_90_degrees_is_off_and_with_it_is_not() -> None:
    a, b = Box((0, 0, 0), (1, 1, 1), turn(2, math.pi / 2)), Box((0, 0, 0.1), (1, 1, 1), np.eye(3))
    assert box_pose_error(a, b, symmetry=NO_SYMMETRY).angle_rad == pytest.approx(math.pi / 2)
    assert box_pose_error(a, b).angle_rad == pytest.approx(0, abs=1e-12)
    assert box_pose_error(a, b).translation_m == pytest.approx(0.1)


def test_pose_error_takes_motions() -> None:
    pose = np.eye(4)
    pose[:3, 3] = (3, 4, 0)
    error = pose_error(pose, np.eye(4))
    assert (error.translation_m, error.angle_rad, error.frobenius) == (5.0, 0.0, 0.0)


def test_what_is_not_a_group_of_rotations_is_refused() -> None:
    with pytest.raises(InputError, match=r'\(K, 3, 3\)'):
        Symmetry('broken', np.eye(3))
    with pytest.raises(InputError, match='order'):
        cyclic(0)
