from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.formats.space import (
    ActionSpace,
    Dimension,
    DimensionKind,
    flatten_action,
    parse_action_type,
    read_space,
)
from robotrials.measure.actions.split import load_datasets


def test_sorted_keys_then_row_major() -> None:
    action = {'b': np.array([[[1, 2], [3, 4]]], dtype=np.float32), 'a': {'y': np.array([9.0]), 'x': np.array([8.0])}}
    flat, space = flatten_action(action)
    assert flat.tolist() == [[8, 9, 1, 2, 3, 4]]
    assert space.names == ('a/x', 'a/y', 'b[0]', 'b[1]', 'b[2]', 'b[3]')


def test_floating_only_leaves_out_booleans_and_integers_as_the_paper_does() -> None:
    """RT-1 is 10D in Table 3 because its integer terminate vector is left out; so is Bridge's boolean gripper."""
    rt1 = {
        'base_displacement_vector': np.zeros((1, 2), np.float32),
        'base_displacement_vertical_rotation': np.zeros((1, 1), np.float32),
        'gripper_closedness_action': np.zeros((1, 1), np.float32),
        'rotation_delta': np.zeros((1, 3), np.float32),
        'terminate_episode': np.zeros((1, 3), np.int32),
        'world_vector': np.zeros((1, 3), np.float32),
    }
    assert flatten_action(rt1, floating_only=True)[1].size == 10
    assert flatten_action(rt1)[1].size == 13
    bridge = {
        'open_gripper': np.zeros(1, bool),
        'rotation_delta': np.zeros((1, 3), np.float32),
        'terminate_episode': np.zeros(1, np.float32),
        'world_vector': np.zeros((1, 3), np.float32),
    }
    space = flatten_action(bridge, floating_only=True)[1]
    assert space.size == 7
    assert not space.indices(DimensionKind.GRIPPER)


def test_an_action_without_numbers_raises() -> None:
    with pytest.raises(InputError, match='no floating-point part'):
        flatten_action({'a': np.zeros((1, 2), np.int32)}, floating_only=True)


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        ('world_vector[0]', 'position'), ('rotation_delta[2]', 'angle'), ('gripper_closedness_action', 'gripper'),
        ('terminate_episode', 'terminate'), ('x', 'position'), ('joint_3', 'angle'),
        ('angular_velocity[0]', 'angular_velocity'),
        ('linear_velocity[1]', 'velocity'), ('gripper_torque', 'torque'), ('mystery', 'unknown'),
    ],
)  # fmt: skip
def test_kinds_are_guessed_from_names(name: str, kind: str) -> None:
    assert ActionSpace.from_names([name]).dimensions[0].kind == kind


def test_the_papers_notation_is_parsed_for_every_readable_cell() -> None:
    readable = [d for d in load_datasets().values() if d.action_type]
    for dataset in readable:
        space = dataset.space
        if dataset.action_type in ('2D', '14D (dual arm 7D control)'):
            assert space is None
        else:
            assert space is not None
            assert space.size == int(str(dataset.action_type).partition('D')[0])


def test_a_count_that_does_not_add_up_raises() -> None:
    with pytest.raises(InputError, match='names 7 dimensions, and says 8'):
        parse_action_type('8D (3 pos, 3 ang, 1 grip)')


def test_a_dimension_checks_its_range_and_kind() -> None:
    with pytest.raises(InputError, match='wanted low < high'):
        Dimension('x', low=1.0, high=1.0)
    with pytest.raises(UnknownName, match="did you mean 'gripper'"):
        Dimension('x', 'griper')  # type: ignore[arg-type]
    with pytest.raises(InputError, match='more than once'):
        ActionSpace.from_names(['a', 'a'])


def test_an_unknown_range_is_named() -> None:
    with pytest.raises(InputError, match='the range of y is unknown'):
        ActionSpace((Dimension('x', low=0, high=1), Dimension('y'))).ranges()


def test_a_space_file_round_trips(tmp_path: Path) -> None:
    space = ActionSpace((Dimension('x', DimensionKind.POSITION, 'm', -1.0, 1.0, 'forward'), Dimension('grip')))
    (tmp_path / 'space.json').write_text(json.dumps(space.as_json()))
    assert read_space(tmp_path / 'space.json') == space
    (tmp_path / 'space.json').write_text('[{"nam": "x"}]')
    with pytest.raises(InputError, match=r'space.json: dimension 0'):
        read_space(tmp_path / 'space.json')
