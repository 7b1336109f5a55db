"""What an action costs over openpi's wire: trialist's client against openpi's own, on one and the same server."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against

QUESTIONS = 200
WARM = 20
ROOT = Path(__file__).resolve().parent.parent

SERVER = """
import numpy as np, sys, time
from trialist.testing.openpi_server import OpenPiServer
actions = np.zeros((10, 7), np.float32)
server = OpenPiServer(lambda question: {'actions': actions})
print(server.port, flush=True)
sys.stdin.read()
"""

CLIENT = """
import json, statistics, sys, time
import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy
client = WebsocketClientPolicy('127.0.0.1', int(sys.argv[1]))
image = np.zeros((224, 224, 3), np.uint8)
question = {'observation/image': image, 'observation/wrist_image': image, 'observation/state': np.zeros(8)}
question['prompt'] = 'go'
taken = []
for _ in range(int(sys.argv[2])):
    started = time.perf_counter()
    client.infer(question)
    taken.append(time.perf_counter() - started)
print(json.dumps(taken))
"""


def run() -> list[Result]:
    python = _peer()
    serving = subprocess.Popen([sys.executable, '-c', SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        port = int(serving.stdout.readline())
        theirs: list[float] = []
        ours: list[float] = []
        for _ in range(3):  # in turns, so that both meet the same machine
            command = [str(python), '-W', 'ignore', '-c', CLIENT, str(port), str(QUESTIONS)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            theirs += json.loads(ran.stdout)[WARM:]
            ours += _ours(port)[WARM:]
    finally:
        serving.kill()
        serving.communicate()
    work = f'{3 * (QUESTIONS - WARM)} questions each, two 224 x 224 images; median seconds of a round trip'
    return [
        against(
            'policies/openpi wire',
            ours_s=statistics.median(ours),
            peer='openpi-client 0.1.2',
            peer_s=statistics.median(theirs),
            target=1 / 1.2,
            work=work,
        )
    ]


def _ours(port: int) -> list[float]:
    from trialist.policies.openpi import OpenPiPolicy
    from trialist.run import Observation, Setup

    policy = OpenPiPolicy(
        url=f'ws://127.0.0.1:{port}',
        convention={
            'control_mode': 'se3', 'target': 'delta', 'frame': 'base', 'rotation': 'axis_angle',
            'gripper': 'closed_is_plus_one',
        },
        chunk_length=10,
        images={'observation/image': 'a', 'observation/wrist_image': 'b'},
        state={'observation/state': [0, 8]},
    )  # fmt: skip
    image: Any = np.zeros((224, 224, 3), np.uint8)
    seen = Observation(0.0, np.zeros(8), {'a': image, 'b': image})
    session = policy.start(Setup(task='go', seed=0, instruction='go'), seed=0)
    taken = []
    for _ in range(QUESTIONS):
        started = time.perf_counter()
        session.act(seen)
        taken.append(time.perf_counter() - started)
    policy.close()
    return taken


def _peer() -> Path:
    spec = importlib.util.spec_from_file_location('peer_environments', ROOT / 'tools' / 'peer_environments.py')
    if spec is None or spec.loader is None:
        raise RuntimeError('tools/peer_environments.py is missing')
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    python: Path = tool.make_peer('openpi')
    return python
