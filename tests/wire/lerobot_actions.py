"""Run in LeRobot's environment: actions as its own classes pickle them for its policy server, as JSON."""

import base64
import json
import pickle
import sys

import torch
from lerobot.async_inference.helpers import TimedAction

chunk = torch.arange(12, dtype=torch.float32).reshape(4, 3) * 0.1 - 0.3
actions = [TimedAction(timestamp=1.5 + i / 30, timestep=7 + i, action=row) for i, row in enumerate(chunk)]
json.dump(
    {
        'pickle': base64.b64encode(pickle.dumps(actions)).decode(),
        'timesteps': [entry.timestep for entry in actions],
        'timestamps': [entry.timestamp for entry in actions],
        'actions': chunk.tolist(),
    },
    sys.stdout,
)
