"""RoboArena's wire, with openpi's own encoder on the server's side; text after a reset is no error."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import ask, policy_of, roboarena_server
from tests.servers import FaultyWebSocket

from robotrials.errors import InputError, RemoteError
from robotrials.wire import pack

# The framing of RoboArena's server: openpi's codec, a configuration first, `endpoint` in every question.
REAL_CODEC = """
import numpy as np, traceback
from openpi_client import msgpack_numpy
from websockets.sync.server import serve

def handle(connection):
    packer = msgpack_numpy.Packer()
    connection.send(packer.pack({'image_resolution': (8, 8), 'needs_wrist_camera': True, 'n_external_cameras': 1,
                                 'needs_stereo_camera': False, 'needs_session_id': True,
                                 'action_space': 'joint_position'}))
    resets = []
    for frame in connection:
        question = msgpack_numpy.unpackb(frame)
        endpoint = question.pop('endpoint')
        if endpoint == 'reset':
            resets.append(question['session_id'])
            connection.send('reset successful')
            continue
        if question['prompt'] == 'fail':
            connection.send('Traceback: no such prompt')
            connection.close(1011)
            return
        assert question['session_id'] == resets[-1]
        row = np.concatenate([question['observation/joint_position'], question['observation/gripper_position']])
        connection.send(packer.pack(np.tile(row.astype(np.float32), (5, 1))))

with serve(handle, '127.0.0.1', 0, compression=None, max_size=None) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
"""


def test_a_server_with_its_codec_is_reset_asked_and_its_errors_are_its_own(openpi_python: Path) -> None:
    from robotrials.run import Setup

    serving = subprocess.Popen([str(openpi_python), '-c', REAL_CODEC], stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        policy = policy_of('roboarena', f'ws://127.0.0.1:{int(serving.stdout.readline())}')
        np.testing.assert_allclose(ask(policy).actions, np.tile(np.linspace(0, 1, 8), (2, 1)), atol=1e-6)
        np.testing.assert_allclose(ask(policy).actions[0], np.linspace(0, 1, 8), atol=1e-6)
        from tests.policies.wires import observation

        with pytest.raises(RemoteError, match='no such prompt'):
            policy.start(Setup(task='t', seed=0, instruction='fail'), seed=0).act(observation())
        policy.close()
    finally:
        serving.kill()
        serving.communicate(timeout=PATIENCE_S)


def test_text_after_a_reset_that_is_not_the_word_is_an_error() -> None:
    config = {'image_resolution': None, 'n_external_cameras': 1, 'action_space': 'joint_position'}
    with FaultyWebSocket(lambda q: 'Traceback: no policy', greeting=(pack(config),)) as serving:
        policy = policy_of('roboarena', serving.url)
        with pytest.raises(RemoteError, match='reset failed:\nTraceback: no policy'):
            ask(policy)
        policy.close()


@pytest.mark.parametrize(
    ('config', 'told'),
    [
        ({'image_resolution': [224, 224], 'action_space': 'joint_position'}, r'the server wants \(224, 224\)'),
        ({'n_external_cameras': 2, 'action_space': 'joint_position'}, '1 external cameras, the server wants 2'),
        ({'needs_stereo_camera': True, 'action_space': 'joint_position'}, 'right pictures'),
        ({'action_space': 'cartesian_position'}, 'acts in cartesian_position'),
        ({'action_space': 'telepathy'}, "action_space is 'telepathy'"),
    ],
)
def test_the_servers_configuration_is_held_against_the_mapping(config: dict[str, Any], told: str) -> None:
    with FaultyWebSocket(lambda q: None, greeting=(pack(config),)) as serving, pytest.raises(InputError, match=told):
        policy_of('roboarena', serving.url)
    with roboarena_server() as serving:
        policy_of('roboarena', serving.url).close()
