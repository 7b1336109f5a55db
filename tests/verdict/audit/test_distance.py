"""Distances between training and test starts, against brute force and hand-made cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError, NotEstimable
from robotrials.verdict.audit.datasource import (
    StartStates,
    embed_pixels,
    embed_random,
    nearest_image,
    nearest_start,
    state_distance,
    yaw_distance,
)


def starts(*rows, turns=(4, 4)):
    """Two objects a row: (x, y, yaw in degrees) of each."""
    values = np.array(rows, dtype=float)
    position = np.concatenate([values[..., :2], np.zeros((*values.shape[:2], 1))], axis=-1)
    return StartStates(('block', 'goal'), position, np.radians(values[..., 2]), turns)


def test_a_start_is_as_far_as_the_object_that_differs_most():
    train = starts([(0, 0, 0), (0, 0, 0)])
    test = starts([(0.03, 0.04, 0), (0, 0.01, 0)])
    metres, radians = state_distance(train, test)
    assert metres == pytest.approx(0.05)
    assert radians == pytest.approx(0.0)


def test_a_quarter_turn_of_a_cube_is_no_distance_and_of_a_cup_it_is():
    assert yaw_distance(np.array(math.pi / 2), np.array(0.0), 4) == pytest.approx(0.0)
    assert yaw_distance(np.array(math.pi / 2), np.array(0.0), 1) == pytest.approx(math.pi / 2)
    assert yaw_distance(np.array(1.0), np.array(0.0), 0) == 0.0


@given(a=st.floats(-20, 20), b=st.floats(-20, 20), turns=st.integers(1, 6))
def test_yaw_distance_is_the_least_over_all_turns(a, b, turns):
    around = [abs(math.remainder(a - b + 2 * math.pi * k / turns, 2 * math.pi)) for k in range(turns)]
    assert yaw_distance(np.array(a), np.array(b), turns) == pytest.approx(min(around), abs=1e-9)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), n_train=st.integers(1, 8), n_test=st.integers(1, 8))
def test_the_nearest_start_agrees_with_a_plain_loop(seed, n_train, n_test):
    rng = np.random.default_rng(seed)
    train, test = (starts(*rng.uniform(-1, 1, (n, 2, 3)), turns=(4, 1)) for n in (n_train, n_test))
    found = nearest_start(train, test, tolerance_m=0.5, tolerance_rad=1.0)
    leaked = 0
    for i in range(n_test):
        gaps = [max(math.dist(test.position_m[i, k], train.position_m[j, k]) for k in range(2)) for j in range(n_train)]
        assert found.position_m[i] == pytest.approx(min(gaps))
        turned = [
            max(float(yaw_distance(test.yaw_rad[i, k], train.yaw_rad[j, k], turns)) for k, turns in enumerate((4, 1)))
            for j in range(n_train)
        ]
        leaked += any(g <= 0.5 and t <= 1.0 for g, t in zip(gaps, turned, strict=True))
    assert found.n_leaked == leaked


def test_leakage_needs_place_and_turn_and_counts_duplicates_apart():
    test = starts([(0, 0, 0), (1, 0, 0)], [(0.5, 0, 0), (1, 0, 0)], [(0.9, 0, 0), (1, 0, 0)])
    train = starts([(0, 0, 0), (1, 0, 0)], [(0.502, 0, 10), (1, 0, 0)], [(0.901, 0, 40), (1, 0, 0)])
    found = nearest_start(train, test, tolerance_m=0.005, tolerance_rad=math.radians(15))
    assert (found.n_same, found.n_leaked, len(found.position_m)) == (1, 2, 3)


def test_no_training_start_raises_and_is_no_distance():
    empty = StartStates(('block', 'goal'), np.zeros((0, 2, 3)), np.zeros((0, 2)), (4, 4))
    with pytest.raises(NotEstimable, match='0 training'):
        nearest_start(empty, starts([(0, 0, 0), (0, 0, 0)]))


def test_other_objects_are_refused():
    with pytest.raises(InputError, match='wanted the same'):
        nearest_start(starts([(0, 0, 0), (0, 0, 0)]), starts([(0, 0, 0), (0, 0, 0)], turns=(1, 4)))


@pytest.mark.parametrize('embed', [embed_pixels, embed_random])
def test_a_picture_is_nearest_to_itself_and_farther_the_more_it_is_moved(embed):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 60, (64, 64, 3), dtype=np.uint8)

    def with_block(x):
        image = base.copy()
        image[24:40, x : x + 12] = (220, 40, 40)
        return image

    test = embed(np.stack([with_block(10), with_block(40)]))
    gaps = [nearest_image(embed(with_block(x)[None]), test[:2])[0] for x in (10, 13, 20)]
    assert gaps[0] == pytest.approx(0.0, abs=1e-6)
    assert gaps[0] < gaps[1] < gaps[2]


def test_images_that_are_all_the_same_have_no_scale():
    same = embed_pixels(np.zeros((3, 16, 16, 3), dtype=np.uint8))
    with pytest.raises(NotEstimable, match='no spread'):
        nearest_image(same, same)
