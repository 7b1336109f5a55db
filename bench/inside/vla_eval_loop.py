"""vla-eval's own harness and its own LIBERO benchmark, in LIBERO's environment: one episode of each task.

ASSETS, PACKAGES (vla-eval's site-packages, after LIBERO's own), URL of the model server, SUITE, CAP, SIDE in pixels,
SHARD and SHARDS (which part of the episodes is run here, as by `vla-eval run --shard-id --num-shards`), and the tasks'
numbers.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

from robotrials.worlds.arm.signal import mend_rendering
from robotrials.worlds.libero.host import open_benchmark
from robotrials.worlds.libero.suite import find_suite

ASSETS, PACKAGES, URL, SUITE, CAP, SIDE, SHARD, SHARDS, *NUMBERS = sys.argv[1:]
sys.path.append(PACKAGES)

from pathlib import Path  # noqa: E402

open_benchmark(find_suite(SUITE).name, Path(ASSETS))  # before any import of it: LIBERO would ask where its files are
import anyio  # noqa: E402
import libero.libero.envs  # noqa: E402, F401 - imported before the clock starts
import torch  # noqa: E402, F401
from vla_eval.benchmarks.libero import benchmark  # noqa: E402
from vla_eval.orchestrator import Orchestrator  # noqa: E402

mend_rendering()
benchmark.LIBERO_ENV_RESOLUTION = int(SIDE)
known = benchmark.LIBEROBenchmark(suite=find_suite(SUITE).name).get_tasks()
names = [known[int(number)]['name'] for number in NUMBERS]
config = {
    'server': {'url': URL},
    'benchmarks': [{
        'benchmark': 'vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark', 'episodes_per_task': 1,
        'max_steps': int(CAP), 'tasks': names,
        'params': {'suite': find_suite(SUITE).name, 'seed': 0, 'send_wrist_image': True},
    }],
}  # fmt: skip
began_s, began_cpu_s = time.perf_counter(), time.process_time()
with tempfile.TemporaryDirectory() as folder:  # for its progress, which it writes even if nothing is to be kept
    config['output_dir'] = folder
    sharding = {'shard_id': int(SHARD), 'num_shards': int(SHARDS)} if int(SHARDS) > 1 else {}
    ran = anyio.run(Orchestrator(config, no_save=True, **sharding).run)
took = {'wall_s': time.perf_counter() - began_s, 'cpu_s': time.process_time() - began_cpu_s}
episodes = [
    {'suite': SUITE, 'task': task['task'], 'success': bool(e['metrics']['success']), 'steps': e.get('steps'),
     'fault': e.get('failure_detail', '')}
    for task in ran[0]['tasks'] for e in task['episodes']
]  # fmt: skip
print('RESULT' + json.dumps({'episodes': episodes, **took}))
