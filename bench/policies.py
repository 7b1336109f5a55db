"""What an action costs over each wire: robotrials's client against the wire's own reference client, on one server."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against, attempts

QUESTIONS = 10  # a turn; ours and theirs take turns, so that both meet the same machine
TURNS = 30
ROOT = Path(__file__).resolve().parent.parent
TARGET = 1 / 1.2
STATE = {'observation/state': [0, 8]}

# Common to every client: the same two pictures, smooth as rendered ones are.
PICTURES = """
import json, sys, time
import numpy as np
x, y = np.meshgrid(np.arange(224), np.arange(224))
image = np.stack([x, y, (x + y) // 2], axis=-1).astype(np.uint8)
wrist = np.ascontiguousarray(image[::-1])
state = np.zeros(8, np.float32)

def timed(ask):
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            started = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - started)
        print(json.dumps(taken), flush=True)
"""

OPENPI_SERVER = """
import numpy as np, sys
from tests.servers import OpenPiServer
actions = np.zeros((10, 7), np.float32)
server = OpenPiServer(lambda question: {'actions': actions})
print(server.url, flush=True)
sys.stdin.read()
"""

OPENPI_CLIENT = """
from openpi_client.websocket_client_policy import WebsocketClientPolicy
host, port = sys.argv[1].removeprefix('ws://').split(':')
client = WebsocketClientPolicy(host, int(port))
seen = {'observation/image': image, 'observation/wrist_image': wrist, 'observation/state': state, 'prompt': 'go'}
timed(lambda: client.infer(seen))
"""

# Framing servers and the reference clients' way of asking them: openpi's codec over the websockets package.
ROBOARENA_SERVER = """
import numpy as np, sys, threading
from websockets.sync.server import serve
from robotrials.wire import pack, unpack
config = {'image_resolution': (224, 224), 'needs_wrist_camera': True, 'n_external_cameras': 1,
          'needs_stereo_camera': False, 'needs_session_id': True, 'action_space': 'cartesian_velocity'}
answer = pack(np.zeros((10, 7), np.float32))
def handle(connection):
    connection.send(pack(config))
    for frame in connection:
        connection.send('reset successful' if unpack(frame)['endpoint'] == 'reset' else answer)
with serve(handle, '127.0.0.1', 0, compression=None, max_size=None) as server:
    print('ws://127.0.0.1:%d' % server.socket.getsockname()[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
"""

ROBOARENA_CLIENT = """
import websockets.sync.client
from openpi_client import msgpack_numpy
connection = websockets.sync.client.connect(sys.argv[1], compression=None, max_size=None)
packer = msgpack_numpy.Packer()
msgpack_numpy.unpackb(connection.recv())
def ask():
    connection.send(packer.pack({'observation/exterior_image_0_left': image, 'observation/wrist_image_left': wrist,
                                 'observation/state': state, 'prompt': 'go', 'endpoint': 'infer',
                                 'session_id': 'x' * 36}))
    return msgpack_numpy.unpackb(connection.recv())
timed(ask)
"""

POSITRONIC_SERVER = """
import numpy as np, sys, threading
from websockets.sync.server import serve
from robotrials.wire import pack, unpack
row = {'robot_command': {'type': 'joint_pos', 'positions': np.zeros(7)}, 'target_grip': 0.0}
answer = pack({'result': [{**row, 'timestamp': 0.05 * i} for i in range(10)]})
def handle(connection):
    connection.send(pack({'status': 'ready', 'meta': {}}))
    for frame in connection:
        unpack(frame)
        connection.send(answer)
with serve(handle, '127.0.0.1', 0, compression=None, max_size=None) as server:
    print('ws://127.0.0.1:%d' % server.socket.getsockname()[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
"""

POSITRONIC_CLIENT = """
import websockets.sync.client
from openpi_client import msgpack_numpy
connection = websockets.sync.client.connect(sys.argv[1] + '/api/v1/session', compression=None, max_size=None)
packer = msgpack_numpy.Packer()
msgpack_numpy.unpackb(connection.recv())
def ask():
    connection.send(packer.pack({'image.exterior': image, 'image.wrist': wrist, 'robot_state.q': state[:7],
                                 'grip': state[7:], 'task': 'go'}))
    return msgpack_numpy.unpackb(connection.recv())
timed(ask)
"""

VLA_EVAL_SERVER = """
import sys
import numpy as np
import vla_eval
from vla_eval.model_servers.predict import PredictModelServer
class Zeros(PredictModelServer):
    def predict(self, obs, ctx):
        return {'actions': np.zeros(7, np.float32)}
running = vla_eval.serve_background(Zeros())
running = running.__enter__() if hasattr(running, '__enter__') else running
print(getattr(running, 'url', None) or running, flush=True)
sys.stdin.read()
"""

VLA_EVAL_CLIENT = """
import asyncio
from vla_eval.connection import Connection
async def main():
    async with Connection(sys.argv[1]) as connection:
        await connection.start_episode({'task': {'name': 'go'}})
        for line in sys.stdin:
            taken = []
            for _ in range(int(line)):
                started = time.perf_counter()
                await connection.act({'images': {'a': image, 'b': wrist}, 'states': state, 'task_description': 'go'})
                taken.append(time.perf_counter() - started)
            print(json.dumps(taken), flush=True)
asyncio.run(main())
"""

GROOT_SERVER = """
import numpy as np, sys, threading
import zmq
from robotrials.wire.array import pack_groot, unpack_groot
socket = zmq.Context.instance().socket(zmq.REP)
port = socket.bind_to_random_port('tcp://127.0.0.1')
answer = pack_groot([{'arm': np.zeros((1, 10, 7), np.float32), 'gripper': np.zeros((1, 10, 1), np.float32)}, {}])
keys = {'video': ['a', 'b'], 'state': ['all'], 'action': ['arm', 'gripper']}
config = pack_groot({
    k: {'delta_indices': list(range(10)) if k == 'action' else [0], 'modality_keys': v} for k, v in keys.items()
})
def work():
    while True:
        endpoint = unpack_groot(socket.recv())['endpoint']
        socket.send({'get_action': answer, 'get_modality_config': config}.get(endpoint) or pack_groot({'status': 'ok'}))
threading.Thread(target=work, daemon=True).start()
print(f'tcp://127.0.0.1:{port}', flush=True)
sys.stdin.read()
"""

# As GR00T's own client asks: a REQ socket, numpy.save into memory, msgpack.
GROOT_CLIENT = """
import io, msgpack, zmq
def encode(value):
    output = io.BytesIO()
    np.save(output, value, allow_pickle=False)
    return {'__ndarray_class__': True, 'as_npy': output.getvalue()}
def decode(value):
    return np.load(io.BytesIO(value['as_npy']), allow_pickle=False) if '__ndarray_class__' in value else value
socket = zmq.Context.instance().socket(zmq.REQ)
socket.setsockopt(zmq.LINGER, 0)
socket.connect(sys.argv[1])
def ask():
    seen = {'video': {'a': image[None, None], 'b': wrist[None, None]}, 'state': {'all': state[None, None]},
            'language': {'task': [['go']]}}
    request = {'endpoint': 'get_action', 'data': {'observation': seen, 'options': None}}
    socket.send(msgpack.packb(request, default=encode))
    return msgpack.unpackb(socket.recv(), object_hook=decode)
timed(ask)
"""

OPENVLA_SERVER = """
import sys
import numpy as np
from tests.servers import FaultyHttp
from robotrials.wire.array import pack_json, unpack_json
answer = pack_json(np.zeros((8, 7)))
def act(body):
    unpack_json(body)
    return answer
server = FaultyHttp(act)
print(server.url, flush=True)
sys.stdin.read()
"""

# As OpenVLA's scripts ask: requests.post(json=...) with json_numpy patched in.
OPENVLA_CLIENT = """
import json_numpy, requests
json_numpy.patch()
session = requests.Session()
seen = {'full_image': image, 'wrist_image': wrist, 'state': state, 'instruction': 'go'}
timed(lambda: json_numpy.loads(session.post(sys.argv[1] + '/act', json=seen).text))
"""

SE3 = {
    'control_mode': 'se3',
    'target': 'delta',
    'frame': 'base',
    'rotation': 'axis_angle',
    'gripper': 'closed_is_plus_one',
}
JOINTS = {
    'control_mode': 'joint_position',
    'target': 'absolute',
    'frame': 'joint',
    'n_joints': 7,
    'gripper': 'closed_is_one',
}


@dataclass(frozen=True)
class Wire:
    """One wire: a server, its reference client, where each runs, and our policy's mapping."""

    name: str
    peer: str
    policy: str
    server: str
    client: str
    client_in: str  # a peer environment, or '' for ours
    server_in: str
    convention: dict[str, Any]
    images: tuple[str, str]
    state: dict[str, list[int]]
    prompt: str
    steps: int = 10


WIRES = (
    Wire('openpi', 'openpi-client 0.1.2', 'openpi:OpenPiPolicy', OPENPI_SERVER, OPENPI_CLIENT, 'openpi', '', SE3,
         ('observation/image', 'observation/wrist_image'), STATE, 'prompt'),
    Wire('roboarena', "openpi's codec over websockets, as RoboArena's client", 'openpi:RoboArenaPolicy',
         ROBOARENA_SERVER, ROBOARENA_CLIENT, 'openpi', '', SE3,
         ('observation/exterior_image_0_left', 'observation/wrist_image_left'), STATE, 'prompt'),
    Wire('positronic', "openpi's codec over websockets, as positronic's client", 'positronic:PositronicPolicy',
         POSITRONIC_SERVER, POSITRONIC_CLIENT, 'openpi', '', JOINTS, ('image.exterior', 'image.wrist'),
         {'robot_state.q': [0, 7], 'grip': [7, 8]}, 'task'),
    Wire('vla-eval', 'vla-eval 0.8.0 Connection', 'vla_eval:VlaEvalPolicy', VLA_EVAL_SERVER, VLA_EVAL_CLIENT,
         'vla-eval', 'vla-eval', SE3, ('images.a', 'images.b'), {'states': [0, 8]}, 'task_description', 1),
    Wire('groot', "pyzmq REQ with numpy.save, as GR00T's client", 'groot:GrootPolicy', GROOT_SERVER, GROOT_CLIENT, '',
         '', JOINTS, ('video.a', 'video.b'), {'state.all': [0, 8]}, 'language.task'),
    Wire('openvla', 'requests with json-numpy 2.1.1', 'openvla:OpenVlaPolicy', OPENVLA_SERVER, OPENVLA_CLIENT,
         'openvla', '', SE3, ('full_image', 'wrist_image'), {'state': [0, 8]}, 'instruction', 8),
)  # fmt: skip


def run() -> Iterator[Result]:
    yield from attempts(partial(_rows, wire) for wire in WIRES)


def _rows(wire: Wire) -> list[Result]:
    return [_measured(wire)]


def _measured(wire: Wire) -> Result:
    theirs: list[float] = []
    ours: list[float] = []
    with (
        _serving(_python(wire.server_in), wire.server) as url,
        _asking(_python(wire.client_in), wire.client, url) as reference,
        _ours(wire, url) as session,
    ):
        for turn in range(TURNS + 1):
            pair = reference(), session()
            if turn:  # the first is for warming up
                theirs += pair[0]
                ours += pair[1]
    work = f'{TURNS * QUESTIONS} questions each, in turns, two 224 x 224 images; lower quartile of a round trip'
    return against(
        f'policies/{wire.name} wire', ours_s=_quartile(ours), peer=wire.peer, peer_s=_quartile(theirs),
        target=TARGET, work=work,
    )  # fmt: skip


def _quartile(taken: list[float]) -> float:
    """What a round trip takes when the machine is not busy with something else."""
    return statistics.quantiles(taken, n=4)[0]


@contextmanager
def _serving(python: str, server: str) -> Iterator[str]:
    serving = subprocess.Popen(
        [python, '-W', 'ignore', '-c', server], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
    finally:
        serving.kill()
        serving.communicate()


@contextmanager
def _asking(python: str, client: str, url: str) -> Iterator[Callable[[], list[float]]]:
    asking = subprocess.Popen(
        [python, '-W', 'ignore', '-c', PICTURES + client, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask() -> list[float]:
        assert asking.stdin is not None
        assert asking.stdout is not None
        asking.stdin.write(f'{QUESTIONS}\n')
        asking.stdin.flush()
        taken: list[float] = json.loads(asking.stdout.readline())
        return taken

    try:
        yield ask
    finally:
        asking.kill()
        asking.communicate()


@contextmanager
def _ours(wire: Wire, url: str) -> Iterator[Callable[[], list[float]]]:
    from robotrials.run import ActionConvention, HostSpec, Observation, Setup

    module, _, name = wire.policy.partition(':')
    made = getattr(importlib.import_module(f'robotrials.policies.{module}'), name)
    policy = made(
        url=url,
        observation={
            'images': dict(zip(wire.images, ('a', 'b'), strict=True)),
            'state': wire.state,
            'prompt': wire.prompt,
        },
        action={'convention': wire.convention, 'chunk_length': wire.steps},
    )
    host = HostSpec(
        name='bench', action=ActionConvention(**wire.convention), control_rate_hz=20.0, state_width=8,
        images={'a': (224, 224), 'b': (224, 224)},
    )  # fmt: skip
    policy.fit(host)
    scope: dict[str, Any] = {}
    exec(PICTURES, scope)
    seen = Observation(0.0, np.zeros(8), {'a': scope['image'], 'b': scope['wrist']})
    session = policy.start(Setup(task='go', seed=0, instruction='go'), seed=0)

    def ask() -> list[float]:
        taken = []
        for _ in range(QUESTIONS):
            started = time.perf_counter()
            session.act(seen)
            taken.append(time.perf_counter() - started)
        return taken

    try:
        yield ask
    finally:
        policy.close()


def _python(peer: str) -> str:
    if not peer:
        return sys.executable
    spec = importlib.util.spec_from_file_location('peer_environments', ROOT / 'tools' / 'peer_environments.py')
    if spec is None or spec.loader is None:
        raise RuntimeError('tools/peer_environments.py is missing')
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return str(tool.make_peer(peer))
