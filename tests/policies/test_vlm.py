"""A vision-language model in closed loop: what it is shown, and what becomes of what it says."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.servers import FaultyHttp

from robotrials.errors import AnswerError, InputError, RigError
from robotrials.policies.vlm import VlmPolicy
from robotrials.run import Setup, check_policy
from robotrials.testing.policy import PointMassHost

OPTIONS: dict[str, Any] = {
    'model': 'a-model',
    'observation': {'images': {'top view': 'top'}, 'state': {'x y goal_x goal_y': [0, 4]}, 'prompt': 'task'},
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 1},
    'answer_timeout_s': 5.0,
    'retries': 0,
}


def said(text: str, **choice: Any) -> str:
    message = {'role': 'assistant', 'content': text}
    return json.dumps(
        {
            'choices': [{'message': message, 'finish_reason': 'stop', **choice}],
            'usage': {'prompt_tokens': 7, 'completion_tokens': 3},
        }
    )


def seek(body: bytes) -> str:
    """A model that reads the state from the words it is shown, and walks to the goal."""
    numbers = re.search(r'goal_y: \[([^\]]*)\]', json.dumps(json.loads(body)))
    assert numbers is not None
    state = [float(word) for word in numbers[1].split(',')]
    gap = np.array(state[2:4]) - np.array(state[:2])
    step = gap / max(1.0, float(np.hypot(*gap)) / 0.08)
    return said(f'[{step[0]:.6f}, {step[1]:.6f}, 0.0]')


def test_a_model_runs_an_episode_and_is_shown_what_the_mapping_says() -> None:
    bodies: list[Any] = []

    def answer(body: bytes) -> str:
        bodies.append(json.loads(body))
        return seek(body)

    with FaultyHttp(answer) as serving:
        policy = VlmPolicy(url=f'{serving.url}/v1', notes='The table is 4 m wide.', **OPTIONS)
        check_policy(policy, host=PointMassHost(camera_px=6), task='reach', deterministic=True)
        assert policy.facts['questions'] == len(bodies)
        policy.close()
    user = bodies[0]['messages'][-1]['content']
    texts = ' '.join(part['text'] for part in user if part['type'] == 'text')
    assert 'An action is a list of 3 numbers' in texts
    assert 'The table is 4 m wide.' in texts
    (picture,) = [part['image_url']['url'] for part in user if part['type'] == 'image_url']
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture.partition(',')[2]))))
    assert shown.shape == (6, 6, 3)
    assert shown.max() == 255


def ask(serving: FaultyHttp, **changes: Any) -> Any:
    policy = VlmPolicy(url=f'{serving.url}/v1', **{**OPTIONS, **changes})
    host = PointMassHost(camera_px=6)
    policy.fit(host.spec)
    return policy.start(Setup(task='t', seed=0, instruction='go'), seed=0).act(host.reset('reach', seed=0)).actions


def test_a_chunk_is_one_list_per_line() -> None:
    with FaultyHttp(lambda body: said('```\n[1, 2, 3]\n[4, 5, 6],\n```')) as serving:
        found = ask(serving, action={**OPTIONS['action'], 'chunk_length': 2})
    np.testing.assert_array_equal(found, [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ('text', 'choice', 'told'),
    [
        ('I would move left.', {}, 'no action'),
        ('Sure! [1, 2, 3]', {}, 'no action'),
        ('[1, 2]', {}, '2 numbers, wanted 3'),
        ('[1, 2, NaN]', {}, 'no action'),
        ('', {}, 'no action: empty'),
        ('[0.1, 0.2', {'finish_reason': 'length'}, 'no action: cut_off'),
    ],
)
def test_what_is_no_action_is_the_models_fault(text: str, choice: dict[str, Any], told: str) -> None:
    with FaultyHttp(lambda body: said(text, **choice)) as serving, pytest.raises(AnswerError, match=told):
        ask(serving)


def test_a_list_in_other_words_is_taken_if_the_plan_says_so() -> None:
    with FaultyHttp(lambda body: said('Sure! [1, 2, 3]')) as serving:
        np.testing.assert_array_equal(ask(serving, lenient=True), [[1, 2, 3]])


def test_a_broken_way_is_the_rigs_fault() -> None:
    with FaultyHttp(lambda body: 'overloaded', status=503) as serving, pytest.raises(RigError):
        ask(serving)
    with FaultyHttp(lambda body: 'x', fault='dying') as serving, pytest.raises(RigError):
        ask(serving)
    with pytest.raises(InputError, match='order has no effect'):
        VlmPolicy(url='http://x/v1', **{**OPTIONS, 'action': {**OPTIONS['action'], 'order': [0, 1, 2]}})
