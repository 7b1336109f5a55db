"""A model server of vla-eval's that plays actions back: FILE with one list for each instruction, CHUNK, whole chunks?

Harnesses that step through chunks by themselves are answered with whole ones ("chunks"); vla-eval's own asks after
every step and is answered with one ("steps"), which its base class takes from the chunk that it keeps.
"""

import sys

import numpy as np
import vla_eval
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.specs import GRIPPER_CLOSE_POS, IMAGE_RGB, LANGUAGE, POSITION_DELTA, ROTATION_AA

FILE, CHUNK, MANNER = sys.argv[1], int(sys.argv[2]), sys.argv[3]


ACTIONS, ASKED = dict(np.load(FILE)), {}  # by instruction; by session


class Playback(PredictModelServer):
    def get_action_spec(self):
        return {'position': POSITION_DELTA, 'rotation': ROTATION_AA, 'gripper': GRIPPER_CLOSE_POS}

    def get_observation_spec(self):
        return {'agentview': IMAGE_RGB, 'language': LANGUAGE}

    async def on_episode_start(self, config, ctx):
        ASKED[ctx.session_id] = 0
        await super().on_episode_start(config, ctx)

    def predict(self, obs, ctx):
        assert obs['images']['agentview'].ndim == 3
        played = ACTIONS[obs['task_description']]
        steps = ASKED[ctx.session_id] * CHUNK + np.arange(CHUNK)
        ASKED[ctx.session_id] += 1
        return {'actions': played[np.minimum(steps, len(played) - 1)]}


serving = vla_eval.serve_background(Playback(chunk_size=CHUNK if MANNER == 'steps' else None))
print(serving.url, flush=True)
sys.stdin.read()
