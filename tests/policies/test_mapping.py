"""Mappings: what the policy sees, and what its numbers become."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as Oracle
from tests.patience import PATIENCE_S

from robotrials.errors import AnswerError, InputError
from robotrials.policies.mapping import (
    Fit,
    ImageEntry,
    ImageLayout,
    Pixels,
    prepare_image,
    preset_names,
    read_mapping,
    resize,
)
from robotrials.policies.observe import Converter, Observer, convert_rotation, from_matrix, to_matrix
from robotrials.policies.served import Ensemble
from robotrials.run import ActionConvention, HostSpec, Observation, Rotation

LAYOUT = ('x_m', 'y_m', 'z_m', 'qw', 'qx', 'qy', 'qz', 'grip')
SE3: dict[str, Any] = {
    'control_mode': 'se3', 'target': 'delta', 'frame': 'base', 'rotation': 'axis_angle',
    'gripper': 'closed_is_plus_one',
}  # fmt: skip
JOINT: dict[str, Any] = {'control_mode': 'joint_position', 'target': 'absolute', 'frame': 'joint', 'n_joints': 3}
FORMATS = [form for form in Rotation if form is not Rotation.NONE]
VECTORS = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3)


def host_of(convention: dict[str, Any], **changes: Any) -> HostSpec:
    values: dict[str, Any] = {
        'name': 'arm', 'control_rate_hz': 10.0, 'state_width': 8, 'state_layout': LAYOUT,
        'images': {'front': (12, 20), 'wrist': (8, 8)}, **changes,
    }  # fmt: skip
    return HostSpec(action=ActionConvention(**convention), **values)


def converter(action: dict[str, Any], host: HostSpec) -> Converter:
    return Converter(read_mapping(action=action).action, host)


def seen(state: Any = None) -> Observation:
    given = np.array([0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0, 0.5]) if state is None else np.asarray(state, dtype=float)
    return Observation(
        0.0, given, {'front': np.arange(720, dtype=np.uint8).reshape(12, 20, 3), 'wrist': np.zeros((8, 8, 3), np.uint8)}
    )


# --- rotations


@given(VECTORS, st.sampled_from(FORMATS))
def test_every_rotation_format_comes_back_and_agrees_with_scipy(vector: list[float], form: Rotation) -> None:
    matrix = Oracle.from_rotvec(vector).as_matrix()
    np.testing.assert_allclose(to_matrix(np.array(vector), Rotation.AXIS_ANGLE), matrix, atol=1e-9)
    written = from_matrix(matrix, form)
    np.testing.assert_allclose(to_matrix(written, form), matrix, atol=1e-7)


@given(VECTORS)
def test_formats_are_scipys(vector: list[float]) -> None:
    oracle = Oracle.from_rotvec(vector)
    found = convert_rotation(np.array(vector), Rotation.AXIS_ANGLE, Rotation.QUATERNION_XYZW)
    np.testing.assert_allclose(found, oracle.as_quat(canonical=True), atol=1e-7)
    euler = np.array([0.3, -0.4, 0.5])
    np.testing.assert_allclose(
        to_matrix(euler, Rotation.EULER_XYZ), Oracle.from_euler('xyz', euler).as_matrix(), atol=1e-12
    )


def test_a_rotation_without_a_direction_is_the_policys_fault() -> None:
    with pytest.raises(AnswerError, match='without a direction'):
        to_matrix(np.zeros((2, 4)), Rotation.QUATERNION_WXYZ)


# --- pictures


def test_padding_is_openpis_to_the_pixel(openpi_python: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = {
        f'{h}x{w}': rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(180, 320), (480, 640), (333, 97)]
    }
    np.savez(tmp_path / 'in.npz', **pictures)
    script = (
        'import sys, numpy as np\nfrom openpi_client import image_tools\n'
        'given = np.load(sys.argv[1])\n'
        'np.savez(sys.argv[2], **{k: image_tools.resize_with_pad(given[k], 224, 224) for k in given})'
    )
    subprocess.run(
        [str(openpi_python), '-c', script, str(tmp_path / 'in.npz'), str(tmp_path / 'out.npz')],
        check=True,
        timeout=PATIENCE_S,
    )
    theirs = np.load(tmp_path / 'out.npz')
    for name, picture in pictures.items():
        assert np.abs(resize(picture, (224, 224)).astype(int) - theirs[name].astype(int)).max() <= 1, name


def test_a_picture_is_turned_then_resized_then_laid_out() -> None:
    image = seen().images['front']
    turned = prepare_image(image, ImageEntry(camera='front', rotate_deg=180))
    np.testing.assert_array_equal(turned, image[::-1, ::-1])
    entry = ImageEntry(
        camera='front', rotate_deg=90, layout=ImageLayout.CHANNEL_HEIGHT_WIDTH, pixels=Pixels.UNIT, is_bgr=True
    )
    laid = prepare_image(image, entry)
    assert laid.shape == entry.shape(12, 20) == (3, 20, 12)
    assert laid.dtype == np.float32
    np.testing.assert_allclose(laid[0], np.rot90(image)[:, :, 2] / np.float32(255))
    assert resize(image, (6, 6), fit=Fit.CROP).shape == (6, 6, 3)
    assert not resize(image, (20, 20), fit=Fit.PAD)[0].any(), 'black bars above and below'


# --- what the policy is shown


def test_the_state_is_cut_by_name_converted_and_normalised(tmp_path: Path) -> None:
    statistics = tmp_path / 'norm_stats.json'
    statistics.write_text(json.dumps({'norm_stats': {'state': {'q01': [-1.0] * 7, 'q99': [1.0] * 7}}}))
    mapping = read_mapping(
        observation={
            'state': {
                'state': {
                    'parts': [
                        {'names': ['x_m', 'y_m', 'z_m'], 'scale': 2.0},
                        {'take': [3, 7], 'rotation': 'quaternion_wxyz', 'to_rotation': 'axis_angle'},
                        {'names': ['grip'], 'gripper': 'open_is_one', 'to_gripper': 'closed_is_plus_one'},
                    ],
                    'normalize': {'method': 'range', 'file': str(statistics), 'key': 'state'},
                },
                'pad': [{'fill': [0.0, 7.0]}],
            },
            'prompt': 'text',
            'prompt_template': 'Task: {instruction}.',
        },
        action={'convention': SE3},
    )
    turn = Oracle.from_rotvec([0.0, 0.0, 0.5])
    state = [0.1, 0.2, 0.3, *turn.as_quat()[[3, 0, 1, 2]], 0.25]
    asked = Observer(mapping.observation, host_of(SE3)).question(seen(state), 'stack')
    np.testing.assert_allclose(asked['state'], [0.2, 0.4, 0.6, 0.0, 0.0, 0.5, 0.5], atol=1e-5)
    assert asked['state'].dtype == np.float32
    np.testing.assert_array_equal(asked['pad'], [0.0, 7.0])
    assert asked['text'] == 'Task: stack.'


def test_every_mistake_of_an_observation_mapping_is_listed() -> None:
    mapping = read_mapping(
        observation={
            'images': {'a': 'frnt'},
            'state': {
                'b': ['x_n'],
                'c': [0, 20],
                'd': [{'take': [0, 3], 'rotation': 'quaternion_wxyz', 'to_rotation': 'axis_angle'}],
            },
        },
        action={'convention': SE3},
    )
    with pytest.raises(InputError) as caught:
        Observer(mapping.observation, host_of(SE3))
    for told in ("did you mean 'front'", "did you mean 'x_m'", 'beyond the 8 numbers', 'wanted 4'):
        assert told in str(caught.value)


# --- what its actions become


def test_the_first_numbers_of_the_first_steps_are_taken_in_order() -> None:
    answer = np.arange(50 * 32, dtype=np.float32).reshape(50, 32)
    plain = converter({'convention': SE3, 'chunk_length': 20}, host_of(SE3)).convert(answer, seen())
    np.testing.assert_array_equal(plain, answer[:20, :7])
    swapped = converter({'convention': SE3, 'chunk_length': 1, 'order': [1, 0, 2, 3, 4, 5, 31]}, host_of(SE3))
    np.testing.assert_array_equal(swapped.convert(answer, seen()), [[1, 0, 2, 3, 4, 5, 31]])
    with pytest.raises(AnswerError, match=r'wanted at least \(20, 7\)'):
        converter({'convention': SE3, 'chunk_length': 20}, host_of(SE3)).convert(answer[:19], seen())


def test_openvlas_gripper_becomes_liberos() -> None:
    action = {'convention': {**SE3, 'gripper': 'open_is_one'}, 'chunk_length': 3, 'gripper_threshold': 0.5}
    answer = np.zeros((3, 7))
    answer[:, 6] = [0.0, 0.9, 0.5]
    np.testing.assert_array_equal(converter(action, host_of(SE3)).convert(answer, seen())[:, 6], [1.0, -1.0, -1.0])


def test_a_gripper_in_metres_is_mapped_by_its_ends() -> None:
    action = {'convention': SE3, 'gripper_range': [0.0, 0.08]}
    answer = np.zeros((1, 7))
    answer[0, 6] = 0.02
    np.testing.assert_allclose(converter(action, host_of(SE3)).convert(answer, seen())[0, 6], 0.5)


def test_statistics_scale_and_clip_are_applied_in_that_order() -> None:
    action = {
        'convention': {**JOINT, 'target': 'delta'}, 'unnormalize': {'mean': [1.0] * 3, 'std': [2.0] * 3},
        'clip': [-4.0, 4.0], 'scale': [0.5],
    }  # fmt: skip
    host = host_of({**JOINT, 'target': 'delta'})
    found = converter(action, host).convert(np.array([[0.0, 1.0, 9.0]]), seen())
    np.testing.assert_allclose(found, [[0.5, 1.5, 2.0]], atol=1e-5)


def test_joint_velocities_become_targets_and_back() -> None:
    velocity = {**JOINT, 'control_mode': 'joint_velocity'}
    pose = [{'take': [0, 3]}]
    to_target = converter({'convention': velocity, 'chunk_length': 2, 'pose': pose}, host_of(JOINT))
    np.testing.assert_allclose(to_target.convert(np.ones((2, 3)), seen()), [[0.2, 0.3, 0.4], [0.3, 0.4, 0.5]])
    back = converter({'convention': JOINT, 'chunk_length': 2, 'pose': pose}, host_of(velocity))
    np.testing.assert_allclose(back.convert(np.array([[0.2, 0.3, 0.4], [0.3, 0.4, 0.5]]), seen()), np.ones((2, 3)))


@pytest.mark.parametrize('frame', ['base', 'tool'])
def test_pose_targets_become_deltas_and_back(frame: str) -> None:
    absolute = {**SE3, 'frame': frame, 'target': 'absolute', 'rotation': 'quaternion_xyzw'}
    delta = {**SE3, 'frame': frame}
    pose = [{'take': [0, 3]}, {'take': [3, 7], 'rotation': 'quaternion_wxyz', 'to_rotation': 'axis_angle'}]
    state = [0.1, 0.2, 0.3, *Oracle.from_rotvec([0.2, -0.1, 0.4]).as_quat()[[3, 0, 1, 2]], 0.5]
    deltas = np.array([[0.01, 0.02, 0.0, 0.1, 0.0, 0.2, 1.0], [0.0, -0.02, 0.03, 0.0, 0.3, 0.0, -1.0]])
    out = converter({'convention': delta, 'chunk_length': 2, 'pose': pose}, host_of(absolute)).convert(
        deltas, seen(state)
    )
    again = converter({'convention': absolute, 'chunk_length': 2, 'pose': pose}, host_of(delta)).convert(
        out, seen(state)
    )
    np.testing.assert_allclose(again, deltas, atol=1e-9)
    if frame == 'base':
        np.testing.assert_allclose(out[1, :3], [0.11, 0.20, 0.33])


def test_deltas_from_the_start_of_a_chunk_become_steps() -> None:
    action = {'convention': {**JOINT, 'target': 'delta'}, 'chunk_length': 3, 'delta_from': 'start'}
    host = host_of({**JOINT, 'target': 'delta'})
    found = converter(action, host).convert(np.array([[1.0, 0, 0], [3.0, 0, 0], [6.0, 0, 0]]), seen())
    np.testing.assert_allclose(found[:, 0], [1.0, 2.0, 3.0])


def test_axes_turn_places_and_rotations_alike() -> None:
    action = {'convention': SE3, 'axes': ['y', '-x', 'z']}
    found = converter(action, host_of(SE3)).convert(np.array([[1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.0]]), seen())
    np.testing.assert_allclose(found[0, :6], [2.0, -1.0, 3.0, 0.2, -0.1, 0.3], atol=1e-12)
    with pytest.raises(InputError, match='a reflection'):
        converter({'convention': SE3, 'axes': ['y', 'x', 'z']}, host_of(SE3))


@pytest.mark.parametrize(
    ('action', 'host', 'told'),
    [
        ({'convention': SE3}, JOINT, 'control_mode: the host has joint_position, the policy se3'),
        ({'convention': {**SE3, 'frame': 'tool'}}, SE3, 'frame: the host has base, the policy tool'),
        ({'convention': {**SE3, 'target': 'absolute'}}, SE3, 'must say which numbers of the state are the pose'),
        ({'convention': SE3}, {**SE3, 'gripper': 'none'}, r"drop = \['gripper'\]"),
        ({'convention': {**SE3, 'gripper': 'none'}}, SE3, 'gripper: the host has closed_is_plus_one, the policy none'),
        ({'convention': {**JOINT, 'n_joints': 6}}, JOINT, 'n_joints: the host has 3, the policy 6'),
        ({'convention': SE3, 'control_rate_hz': 15.0}, SE3, 'control_rate_hz: the host has 10, the policy 15'),
    ],
)
def test_what_cannot_be_converted_is_refused_before_the_first_episode(action: Any, host: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        converter(action, host_of(host))


def test_ensembling_weighs_the_oldest_most() -> None:
    ensemble = Ensemble(decay=0.5)
    chunks = [np.array([[float(10 * k + i)] for i in range(3)]) for k in range(4)]
    found = [float(ensemble.add(chunk)[0]) for chunk in chunks]
    weights = np.exp(-0.5 * np.arange(3))
    expected = [
        0.0,
        np.average([1, 10], weights=weights[:2]),
        np.average([2, 11, 20], weights=weights),
        np.average([12, 21, 30], weights=weights),
    ]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize('name', preset_names())
def test_every_preset_reads_and_a_bare_camera_name_keeps_the_rest(name: str) -> None:
    mapping = read_mapping(preset=name)
    for key, image in mapping.observation.images.items():
        again = read_mapping(preset=name, observation={'images': {key: 'mine'}}).observation.images[key]
        assert again.camera == 'mine'
        assert again.size_px == image.size_px


def test_the_libero_preset_shows_and_takes_what_openpis_script_does() -> None:
    """openpi, examples/libero/main.py: pictures turned by 180 degrees and padded to 224, state of 8, actions of 7."""
    mapping = read_mapping(preset='openpi-libero')
    host = host_of(SE3, images={'agentview': (256, 256), 'wrist': (256, 256)})
    image = np.arange(256 * 256 * 3, dtype=np.uint8).reshape(256, 256, 3)
    asked = Observer(mapping.observation, host).question(
        Observation(0.0, np.arange(8.0), {'agentview': image, 'wrist': image}), 'go'
    )
    np.testing.assert_array_equal(
        asked['observation/image'], resize(np.ascontiguousarray(image[::-1, ::-1]), (224, 224))
    )
    assert list(asked) == ['observation/image', 'observation/wrist_image', 'observation/state', 'prompt']
    answer = np.random.default_rng(0).normal(size=(10, 32))
    np.testing.assert_array_equal(Converter(mapping.action, host).convert(answer, seen()), answer[:, :7])
