"""Run inside vla-eval's own environment: it evaluates a dummy server on a dummy benchmark and records it.

python vla_eval_peer.py OUTPUT_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import vla_eval
from vla_eval.benchmarks.base import StepBenchmark, StepResult
from vla_eval.model_servers.predict import PredictModelServer

STEPS = 6


class CountingBenchmark(StepBenchmark):
    """Two tasks; even initial states succeed after four steps, odd ones run out, and one breaks the simulator."""

    def get_tasks(self):
        return [{'name': 'push'}, {'name': 'pull'}]

    def reset(self, task):
        self._start, self._name, self._count = task.get('episode_idx', 0), task['name'], 0
        if self._name == 'pull' and self._start == 3:
            raise RuntimeError('the simulator broke')
        return {'x': 0.0}

    def step(self, action):
        self._count += 1
        success = self._start % 2 == 0 and self._count >= 4
        self._recorder.record_step(reward=float(success), done=success, action=action['actions'].tolist())
        return StepResult({'x': float(self._count)}, float(success), success, {'success': success})

    def make_obs(self, raw_obs, task):
        return {'states': np.array([raw_obs['x']], dtype=np.float32), 'task_description': task['name']}

    def get_step_result(self, step_result):
        return {'success': bool(step_result.info.get('success', False))}

    def get_action_spec(self):
        return {}

    def get_observation_spec(self):
        return {}

    def get_metadata(self):
        return {'max_steps': STEPS}


class StillServer(PredictModelServer):
    """Always the same action."""

    def predict(self, obs, ctx):
        return {'actions': np.zeros(7, dtype=np.float32)}

    def get_action_spec(self):
        return {}

    def get_observation_spec(self):
        return {}


def main() -> None:
    folder = Path(sys.argv[1])
    sys.modules['vla_eval_peer'] = sys.modules['__main__']
    config = {
        'output_dir': str(folder),
        'benchmarks': [
            {
                'benchmark': 'vla_eval_peer:CountingBenchmark',
                'name': 'counting',
                'mode': 'sync',
                'episodes_per_task': 4,
                'max_steps': STEPS,
                'recording': {'record_step': True, 'record_video': False},
            }
        ],
    }
    results = vla_eval.evaluate(StillServer(), config)
    print(json.dumps({'version': vla_eval.__version__, 'results': len(results)}))


if __name__ == '__main__':
    main()
