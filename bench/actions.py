"""Reading RLDS with 256x320 JPEG images decoded, and scoring: against TensorFlow Datasets where it is installed.

The peer's environment is bench/peers/tfds (made by tools/peer_tfds.sh) or ROBOTRIALS_TFDS_PYTHON. Each reader runs in a
process of its own, imports not timed; memory is that process's peak resident size, interpreter and libraries included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.measure import PEAK_MB, Result, against, seconds

ROOT = Path(__file__).resolve().parent.parent
TFDS_PYTHON = Path(os.environ.get('ROBOTRIALS_TFDS_PYTHON', ROOT / 'bench' / 'peers' / 'tfds' / 'bin' / 'python'))
EPISODES, STEPS = 24, 50

OURS = (
    PEAK_MB
    + """
import json, sys, time
from robotrials.formats.video import decode_many
from robotrials.formats.rlds import RldsDataset
def read():
    total = 0
    episodes = RldsDataset.open(sys.argv[1]).episodes('train')
    images = (image for episode in episodes for image in episode.images['image'])
    for image in decode_many(images, threads=int(sys.argv[2])):
        total += int(image[0, 0, 0])
    return total
read()
best = cpu = 1e9
for _ in range(5):
    t, c = time.perf_counter(), time.process_time(); read()
    best, cpu = min(best, time.perf_counter() - t), min(cpu, time.process_time() - c)
print(json.dumps([best, peak_mb(), cpu]))
"""
)

PEER = (
    PEAK_MB
    + """
import os
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['CUDA_VISIBLE_DEVICES'] = ''
import json, sys, time
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(sys.argv[1])
def read():
    total = 0
    for episode in builder.as_dataset(split='train'):
        for step in episode['steps']:
            total += int(step['observation']['image'].numpy()[0, 0, 0])
    return total
read()
best = cpu = 1e9
for _ in range(5):
    t, c = time.perf_counter(), time.process_time(); read()
    best, cpu = min(best, time.perf_counter() - t), min(cpu, time.process_time() - c)
print(json.dumps([best, peak_mb(), cpu]))
"""
)

BARE = """
import io, json, sys, time
import numpy as np
from PIL import Image
from robotrials.formats.rlds import RldsDataset
images = [i.data for e in RldsDataset.open(sys.argv[1]).episodes('train') for i in e.images['image']]
def read():
    return sum(int(np.asarray(Image.open(io.BytesIO(data)))[0, 0, 0]) for data in images)
read()
best = 1e9
for _ in range(5):
    t = time.perf_counter(); read(); best = min(best, time.perf_counter() - t)
print(json.dumps([best, 0, 0]))
"""


def write_dataset(folder: Path) -> Path:
    """Episodes of textured 256x320 frames, about 20 kB each as JPEG."""
    from robotrials.formats.feature import Feature
    from robotrials.formats.rlds import write_rlds

    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:256, 0:320]
    waves = [np.sin(rows / a + columns / b) for a, b in ((9, 31), (23, 11), (5, 7))]
    step = {
        'observation': Feature(
            'dict', {'image': Feature('image', dtype='uint8', shape=(256, 320, 3), encoding='jpeg')}
        ),
        'action': Feature('tensor', dtype='float32', shape=(7,)),
    }
    features = Feature('dict', {'steps': Feature('sequence', inner=Feature('dict', step), is_dataset=True)})

    def example(number: int) -> dict[str, object]:
        frames = [
            np.clip(128 + 50 * np.stack([np.roll(w, 3 * t + number, 1) for w in waves], -1)
                    + rng.normal(0, 1.5, (256, 320, 3)), 0, 255).astype(np.uint8)
            for t in range(STEPS)
        ]  # fmt: skip
        return {'steps': {'observation': {'image': frames}, 'action': rng.random((STEPS, 7), dtype=np.float32)}}

    return write_rlds(folder, {'train': map(example, range(EPISODES))}, name='bench', features=features, shards=2)


def reader(python: Path | str, code: str, *arguments: object) -> tuple[float, float, float]:
    environment = {**os.environ, 'PYTHONPATH': str(ROOT / 'src')} if code is not PEER else dict(os.environ)
    ran = subprocess.run(
        [str(python), '-c', code, *map(str, arguments)], capture_output=True, text=True, check=True, env=environment
    )
    best, peak, cpu = json.loads(ran.stdout.strip().splitlines()[-1])
    return float(best), float(peak), float(cpu)


def scoring() -> Result:
    """Ten thousand timesteps scored with every interval, against a loop over resamples in plain numpy."""
    from robotrials.measure.actions import PredictedEpisode, summarize_actions
    from robotrials.measure.actions.metric import (
        absolute_errors,
        action_errors,
        amse,
        amse_by_episode,
        max_over_median,
        namse,
        quantile_filtered,
        share_beyond_medians,
    )
    from robotrials.stats import resample_counts

    rng = np.random.default_rng(0)
    run = []
    for number in range(100):
        target = rng.normal(size=(100, 7))
        predicted = target + rng.normal(0, 0.3, target.shape)
        run.append(PredictedEpisode(episode_id=str(number), predicted=predicted, target=target))
    squared = [action_errors(e.predicted, e.target) for e in run]
    absolute = [absolute_errors(e.predicted, e.target) for e in run]

    by_dimension = [(e.predicted - e.target) ** 2 for e in run]
    thirds = np.arange(100) * 3 // 100

    def loop(resamples: int) -> None:
        for row in resample_counts(100, n_resamples=resamples, rng=np.random.default_rng(0)):
            drawn = np.repeat(np.arange(100), row)
            s, a = [squared[i] for i in drawn], [absolute[i] for i in drawn]
            joined = np.concatenate(a)
            amse(s), amse_by_episode(s), namse(np.concatenate(s)), amse(a), amse_by_episode(a), namse(joined)
            quantile_filtered(joined), max_over_median(joined), share_beyond_medians(joined)
            np.concatenate([by_dimension[i] for i in drawn]).mean(axis=0)
            for phase in range(3):
                np.concatenate([e[thirds == phase] for e in s]).mean()

    ours = seconds(lambda: summarize_actions(run, n_resamples=1000), repeats=2)
    peer = seconds(lambda: loop(50), repeats=2) * 20
    work = '10,000 timesteps, 19 measures x 1,000 episode draws; the loop does 50 draws x 20'
    return against('actions/summary', ours_s=ours, peer='a numpy loop over draws', peer_s=peer, target=1.0, work=work)


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = write_dataset(Path(folder))
        size = sum(p.stat().st_size for p in root.glob('*.tfrecord*'))
        work = f'{EPISODES} episodes x {STEPS} frames of 256x320 JPEG, {size / 1e6:.0f} MB, decoded'
        threads = os.cpu_count() or 1
        ours_s, ours_mb, ours_cpu = reader(sys.executable, OURS, root, threads)
        single_s, _, _ = reader(sys.executable, OURS, root, 1)
        bare_s, _, _ = reader(sys.executable, BARE, root)
        results = [
            against('actions/rlds_overhead', ours_s=single_s, peer='bare Pillow decode, one thread', peer_s=bare_s,
                    target=0.7, work=f'{work}; ours reads, checks and parses as well'),
            scoring(),
        ]  # fmt: skip
        if TFDS_PYTHON.exists():
            peer_s, peer_mb, peer_cpu = reader(TFDS_PYTHON, PEER, root)
            spent = f'{work}; CPU {ours_cpu:.2f} s against {peer_cpu:.2f} s'
            results.append(
                against(
                    'actions/rlds_read',
                    ours_s=ours_s,
                    peer='TensorFlow Datasets',
                    peer_s=peer_s,
                    target=2.0,
                    work=spent,
                )
            )
            results.append(
                against('actions/rlds_memory', ours_s=ours_mb * 2**20, peer='TensorFlow Datasets',
                        peer_s=peer_mb * 2**20, target=5.0, work=f'{work}; peak memory', unit='B')
            )  # fmt: skip
        else:
            print(f'not measured: RLDS against TensorFlow Datasets; no {TFDS_PYTHON}, make it with tools/peer_tfds.sh')
        return results
