"""Snapshots of prompts that cover every field, and the views that JAT and OpenVLA need."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.formats.video import EncodedImage, encode_image
from robotrials.measure.actions import (
    ActionSpace,
    Dimension,
    DimensionKind,
    RecordedEpisode,
    RecordedObservation,
    build_prompt,
)
from robotrials.measure.actions.prediction import four_channels, jat_view, openvla_image, primary_image, state_vector
from robotrials.measure.actions.split import action_statistics
from robotrials.measure.actions.vlm import WorkedExample, check_shots, prompt_messages
from robotrials.wire.chat import ChatImage

SPACE = ActionSpace(
    (
        Dimension('world_vector[0]', DimensionKind.POSITION, 'm', -0.1, 0.1, 'forward motion of the gripper'),
        Dimension('grip', DimensionKind.GRIPPER),
        Dimension('mystery'),
    )
)
TRAINING = [
    RecordedEpisode(dataset='d', split='train', index=0, actions=np.array([[0.0, 0, -1], [0.1, 1, 5]])),
    RecordedEpisode(dataset='d', split='train', index=1, actions=np.array([[-0.05, 1, 0.123456789]])),
]
PNG = encode_image(np.zeros((2, 2, 3), dtype=np.uint8))
OBSERVATION = RecordedObservation(
    {'state': np.array([0.5, -0.25]), 'natural': np.array([1.0])},
    {'image': EncodedImage(PNG, (2, 2, 3)), 'wrist_image': EncodedImage(PNG, (2, 2, 3))},
)


def test_a_full_prompt() -> None:
    shot = WorkedExample(
        'd/train/0', RecordedObservation({'state': np.array([0.0, 1.0])}), 'open the door', np.array([0.1, 1.0, 5.0])
    )
    prompt = build_prompt(
        OBSERVATION, 'close the drawer', space=SPACE, statistics=action_statistics(TRAINING), environment='a kitchen',
        task='drawers', shots=[shot],
    )  # fmt: skip
    assert prompt.text == (
        'You control a robot. You are shown one moment and name the next action.\n\n'
        'Environment: a kitchen\n'
        'Task: drawers\n\n'
        'The action is a list of 3 numbers:\n'
        '1. world_vector[0]: forward motion of the gripper in m; from -0.1 to 0.1; '
        'in training: min -0.05, max 0.1, mean 0.01667\n'
        '2. grip: gripper; in training: min 0, max 1, mean 0.6667\n'
        '3. mystery; in training: min -1, max 5, mean 1.374\n\n'
        'Example 1:\n'
        'Instruction: open the door\n'
        'Observation:\n'
        '- state: [0, 1]\n\n'
        'Action: [0.1, 1, 5]\n\n'
        'Now:\n'
        'Instruction: close the drawer\n'
        'Observation:\n'
        '- natural: [1]\n'
        '- state: [0.5, -0.25]\n\n'
        f'<image/png, {len(PNG)} bytes>\n\n'
        'Answer with the action alone: one list of 3 numbers in square brackets, and no other text.'
    )


def test_a_bare_prompt_makes_nothing_up() -> None:
    prompt = build_prompt(RecordedObservation(), '', space=SPACE)
    assert prompt.text == (
        'You control a robot. You are shown one moment and name the next action.\n\n'
        'The action is a list of 3 numbers:\n'
        '1. world_vector[0]: forward motion of the gripper in m; from -0.1 to 0.1\n'
        '2. grip: gripper\n'
        '3. mystery\n\n'
        'Answer with the action alone: one list of 3 numbers in square brackets, and no other text.'
    )


def test_messages_carry_the_recorded_bytes_of_the_primary_image() -> None:
    system, user = prompt_messages(build_prompt(OBSERVATION, 'go', space=SPACE))
    assert system.role == 'system'
    images = [part.url for part in user.parts if isinstance(part, ChatImage)]
    assert images == ['data:image/png;base64,' + base64.b64encode(PNG).decode()]


@pytest.mark.parametrize('scale', [1.0, 255.0])
def test_numbers_that_lie_like_pixels_are_an_image_and_never_text(scale: float) -> None:
    pixels = np.linspace(0, scale, 12 * 16 * 3).reshape(12, 16, 3)
    seen = RecordedObservation({'image': pixels, 'depth': pixels[..., 0], 'state': np.array([0.5])})
    prompt = build_prompt(seen, 'go', space=SPACE)
    assert len(prompt.text) < 400
    (image,) = [part for part in prompt.parts if isinstance(part, ChatImage)]
    shown = EncodedImage(image.data).array()
    np.testing.assert_allclose(shown / 255.0, pixels / scale, atol=0.003)
    assert '- state: [0.5]' in prompt.text


def test_float_images_among_the_images_are_encoded_and_long_vectors_are_not_spelt_out() -> None:
    seen = RecordedObservation({'tactile': np.zeros(4096)}, {'image': np.full((9, 9, 3), 0.5, dtype=np.float32)})
    prompt = build_prompt(seen, 'go', space=SPACE)
    assert '- tactile: 4096 numbers, not shown' in prompt.text
    assert '<image/png' in prompt.text


def test_another_image_can_be_named_and_an_unknown_one_is_not_found() -> None:
    assert '<image/png' in build_prompt(OBSERVATION, 'go', space=SPACE, image='wrist_image').text
    with pytest.raises(UnknownName, match="did you mean 'wrist_image'"):
        build_prompt(OBSERVATION, 'go', space=SPACE, image='wrist_imag')


def test_pixel_images_are_sent_as_png() -> None:
    raw = RecordedObservation({}, {'image': np.zeros((2, 2, 3), dtype=np.uint8)})
    assert '<image/png' in build_prompt(raw, 'go', space=SPACE).text


def test_statistics_and_examples_of_evaluated_episodes_are_refused() -> None:
    shot = WorkedExample('d/train/0', RecordedObservation(), '', np.zeros(3))
    check_shots([shot], ['d/test/0'], action_statistics(TRAINING))
    with pytest.raises(InputError, match='the worked example from d/train/0 is of an evaluated episode'):
        check_shots([shot], ['d/train/0'], None)
    with pytest.raises(InputError, match='statistics'):
        check_shots([], ['d/train/1'], action_statistics(TRAINING))


def test_statistics_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match='statistics of 3 dimensions for an action space of 1'):
        build_prompt(RecordedObservation(), '', space=SPACE.select([0]), statistics=action_statistics(TRAINING))


def test_statistics_by_hand_and_in_one_pass() -> None:
    rng = np.random.default_rng(0)
    episodes = [
        RecordedEpisode(dataset='d', split='train', index=i, actions=rng.normal(5, 2, (40 + i, 2))) for i in range(20)
    ]
    found = action_statistics(episodes)
    joined = np.concatenate([e.actions for e in episodes])
    np.testing.assert_allclose(found.mean, joined.mean(axis=0))
    np.testing.assert_allclose(found.deviation, joined.std(axis=0))
    np.testing.assert_allclose(found.q01, np.quantile(joined, 0.01, axis=0))
    np.testing.assert_allclose(found.q99, np.quantile(joined, 0.99, axis=0))
    assert (found.minimum == joined.min(axis=0)).all()
    assert found.n_timesteps == len(joined)
    with pytest.raises(InputError, match='no training episodes'):
        action_statistics([])


def test_the_reservoir_keeps_a_fair_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.measure.actions.split.RESERVOIR_ROWS', 400)
    values = np.arange(4000, dtype=float).reshape(40, 100, 1)
    episodes = [RecordedEpisode(dataset='d', split='t', index=i, actions=v) for i, v in enumerate(values)]
    found = action_statistics(episodes)
    assert found.q01[0] == pytest.approx(40, abs=60)
    assert found.q99[0] == pytest.approx(3960, abs=60)


# --- views


def test_the_primary_image_is_the_one_called_image() -> None:
    pixel = np.zeros((1, 1, 3), dtype=np.uint8)
    assert primary_image(RecordedObservation({}, {'wrist_image': pixel, 'image': pixel})) == 'image'
    assert primary_image(RecordedObservation({}, {'front_image': pixel, 'image_side': pixel})) == 'front_image'
    assert primary_image(RecordedObservation({}, {'agentview_rgb': pixel})) is None
    assert primary_image(RecordedObservation({}, {'frontright_fisheye_image': pixel})) is None


def test_openvla_gets_the_papers_exceptions_because_it_needs_an_image() -> None:
    """Section 4.1: conq hose and viola name their images otherwise; they were used for OpenVLA alone."""
    pixel = np.zeros((1, 1, 3), dtype=np.uint8)
    hose = RecordedObservation({}, {'back_fisheye_image': pixel, 'frontright_fisheye_image': pixel})
    assert openvla_image(hose, 'conq_hose_manipulation') == 'frontright_fisheye_image'
    viola = RecordedObservation({}, {'agentview_rgb': pixel, 'eye_in_hand_rgb': pixel})
    assert openvla_image(viola, 'viola') == 'agentview_rgb'
    with pytest.raises(InputError, match='needs an image'):
        openvla_image(RecordedObservation(), 'x')


def test_four_channels_by_hand() -> None:
    rgb = np.array([[[1, 2, 3]]])
    assert four_channels(rgb).tolist() == [[[1, 2, 3, 1]]]
    assert four_channels(np.array([[[7, 8]]])).tolist() == [[[7, 8, 7, 8]]]
    assert four_channels(np.array([[[1, 2, 3, 4]]])).tolist() == [[[1, 2, 3, 4]]]
    with pytest.raises(InputError, match='no rule'):
        four_channels(np.zeros((1, 1, 1)))


def test_states_are_joined_by_name_and_absent_ones_are_a_dummy() -> None:
    assert state_vector(RecordedObservation({'b': np.array([3.0]), 'a': np.array([[1.0, 2.0]])})).tolist() == [1, 2, 3]
    assert state_vector(RecordedObservation(), dummy_size=4).tolist() == [0, 0, 0, 0]
    state, image = jat_view(OBSERVATION)
    assert state.tolist() == [1.0, 0.5, -0.25]
    assert image is not None
    assert image.shape == (2, 2, 4)
    assert jat_view(RecordedObservation())[1] is None
