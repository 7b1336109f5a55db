"""What a camera sees of spheres, directly and through others, against points drawn on them."""

from __future__ import annotations

import numpy as np

from robotrials.worlds.libero.lean import Sight

N_SPHERES, N_POINTS = 400, 300


def test_a_sphere_with_a_visible_point_is_met() -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    sight = Sight(np.array([0.3, -0.2, 1.0]), axes, np.array([0.6, 0.4]))
    centres_m, radii_m = rng.uniform(-2, 2, (N_SPHERES, 3)), rng.uniform(0.01, 0.5, N_SPHERES)
    directions = rng.normal(size=(N_SPHERES, N_POINTS, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    points_m = centres_m[:, None] + radii_m[:, None, None] * directions
    own_m = (points_m - sight.eye_m) @ axes
    is_visible = (own_m[..., 2] > 0) & (np.abs(own_m[..., :2]) <= own_m[..., 2:] * sight.slopes).all(axis=2)
    meets = sight.meets(centres_m, radii_m)
    assert meets[is_visible.any(axis=1)].all()
    assert not meets.all()

    window_m, window_radius_m = sight.eye_m + 0.8 * axes[:, 2], 0.2
    rays = points_m - sight.eye_m
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    along_m = rays @ (window_m - sight.eye_m)
    is_through = (along_m > 0) & (0.8**2 - along_m**2 <= window_radius_m**2)
    meets_through = sight.meets_through(window_m, window_radius_m, centres_m, radii_m)
    assert meets_through[is_through.any(axis=1)].all()
    assert not meets_through.all()


def test_an_endless_or_surrounding_sphere_is_always_met() -> None:
    sight = Sight(np.zeros(3), np.eye(3), np.array([0.5, 0.5]))
    behind_m = np.array([[0.0, 0.0, -1.0]])
    for radius_m in (np.inf, 1.5):
        radii_m = np.array([radius_m])
        assert sight.meets(behind_m, radii_m).all()
        assert sight.meets_through(np.array([0.0, 0.0, 1.0]), 0.1, behind_m, radii_m).all()
        assert sight.meets_through(behind_m[0], radius_m, np.array([[0.0, 0.0, 1.0]]), np.array([0.1])).all()
