from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robotrials.errors import InputError
from robotrials.formats.space import ActionSpace, Dimension, DimensionKind
from robotrials.measure.actions.prediction import (
    BinaryGripper,
    Chain,
    Conversion,
    LinearMap,
    Reorder,
    Select,
    TernaryGripper,
    continuous_gripper,
    drop_terminate,
    normalize,
    torque_gripper,
    unnormalize,
)

SIZE = 4
numbers = st.floats(-50, 50)
batches = hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(SIZE)), elements=numbers)


@st.composite
def linear_maps(draw: st.DrawFn) -> LinearMap:
    count = draw(st.integers(1, SIZE))
    indices = tuple(sorted(draw(st.permutations(range(SIZE)))[:count]))
    low = tuple(draw(st.floats(-5, 5)) for _ in indices)
    new_low = tuple(draw(st.floats(-5, 5)) for _ in indices)
    widths = st.floats(0.1, 10)
    return LinearMap(
        indices, low, tuple(a + draw(widths) for a in low), new_low, tuple(a + draw(widths) for a in new_low)
    )


reorders = st.builds(
    lambda order, sign: Reorder(tuple(order), tuple(sign)),
    st.permutations(range(SIZE)),
    st.lists(st.sampled_from([1, -1]), min_size=SIZE, max_size=SIZE),
)
invertible = st.lists(st.one_of(linear_maps(), reorders), max_size=4).map(lambda s: Chain(tuple(s)))


@given(invertible, batches)
def test_an_invertible_chain_turns_back(chain: Chain, actions: np.ndarray) -> None:
    back = chain.inverse
    assert back is not None
    np.testing.assert_allclose(back(chain(actions)), actions, rtol=1e-7, atol=1e-6)


@given(invertible, invertible, batches)
def test_conversions_compose(first: Chain, second: Chain, actions: np.ndarray) -> None:
    np.testing.assert_allclose(Chain((first, second))(actions), second(first(actions)))


@given(invertible, batches)
def test_one_action_is_a_batch_of_one_and_the_input_is_untouched(chain: Chain, actions: np.ndarray) -> None:
    before = actions.copy()
    np.testing.assert_array_equal(chain(actions)[0], chain(actions[0]))
    np.testing.assert_array_equal(actions, before)


@given(batches)
def test_discretising_twice_changes_nothing_more(actions: np.ndarray) -> None:
    binary = BinaryGripper(1)
    once = binary(actions)
    np.testing.assert_array_equal(binary(once), once)
    assert set(np.unique(once[:, 1])) <= {0.0, 1.0}
    assert set(np.unique(TernaryGripper(1)(actions)[:, 1])) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize('step', [BinaryGripper(0), TernaryGripper(0), Select((0, 1))])
def test_what_loses_numbers_has_no_inverse(step: Conversion) -> None:
    assert step.inverse is None
    assert Chain((Reorder((1, 0)), step)).inverse is None


def test_the_papers_thresholds() -> None:
    """Section 4.1: binary at 0.5; below 0.05 is -1, above 0.95 is 1, [0.05, 0.95] is 0."""
    values = np.array([[0.0], [0.049], [0.05], [0.4999], [0.5], [0.95], [0.951], [1.0]])
    assert BinaryGripper(0)(values)[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert TernaryGripper(0)(values)[:, 0].tolist() == [-1, -1, 0, 0, 0, 0, 1, 1]


def test_continuous_and_torque_grippers_by_hand() -> None:
    assert continuous_gripper(0)(np.array([0.0, 7.0])).tolist() == [-1.0, 7.0]
    assert continuous_gripper(0, low=2.0, high=6.0)(np.array([3.0])).tolist() == [-0.5]
    np.testing.assert_allclose(torque_gripper(0, torque_low=-3.0, torque_high=1.0)(np.array([0.25])), [-2.0])


def test_unnormalising_by_percentiles_by_hand() -> None:
    """unnormalized = 0.5 (normalized + 1) (high - low) + low, and a masked dimension stays."""
    back = unnormalize([0.0, -2.0, 5.0], [10.0, 2.0, 6.0], mask=[True, True, False])
    np.testing.assert_allclose(back(np.array([-1.0, 0.5, 0.3])), [0.0, 1.0, 0.3])
    forward = normalize([0.0, -2.0, 5.0], [10.0, 2.0, 6.0], mask=[True, True, False])
    np.testing.assert_allclose(forward(np.array([0.0, 1.0, 0.3])), [-1.0, 0.5, 0.3])


def test_a_constant_dimension_must_be_masked() -> None:
    with pytest.raises(InputError, match='mask it'):
        unnormalize([0.0, 1.0], [1.0, 1.0])


def test_spaces_follow_their_conversions() -> None:
    space = ActionSpace(
        (
            Dimension('grip', DimensionKind.GRIPPER, low=0, high=1),
            Dimension('stop', DimensionKind.TERMINATE),
            Dimension('x', DimensionKind.POSITION, low=-1, high=2),
        )
    )
    dropped = drop_terminate(space)
    assert dropped.indices == (0, 2)
    chain = Chain((dropped, continuous_gripper(0), Reorder((1, 0), (-1, 1))))
    after = chain.space(space)
    assert after.names == ('x', 'grip')
    assert [(d.low, d.high) for d in after.dimensions] == [(-2, 1), (-1, 1)]
    np.testing.assert_allclose(chain(np.array([1.0, 9.0, 0.5])), [-0.5, 1.0])


def test_a_dimension_that_is_not_there_raises() -> None:
    with pytest.raises(InputError, match='no dimension 5'):
        BinaryGripper(5)(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r'wanted each of 0\.\.1 once'):
        Reorder((0, 0))
