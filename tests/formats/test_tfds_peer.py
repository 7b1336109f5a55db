"""TensorFlow Datasets as the oracle, where it is installed: what it writes we read, what we write it reads.

`tools/peer_tfds.sh` makes the environment. Without it these tests are skipped, and say so.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import REPOSITORY
from tests.formats.build import make_rlds

from robotrials.formats.rlds import RldsDataset
from robotrials.formats.video import EncodedImage

PYTHON = Path(os.environ.get('ROBOTRIALS_TFDS_PYTHON', REPOSITORY / 'bench' / 'peers' / 'tfds' / 'bin' / 'python'))
PEER = Path(__file__).with_name('tfds_peer.py')

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason='optional: no TensorFlow Datasets environment; tools/peer_tfds.sh makes one'
)


def peer(*arguments: object) -> None:
    ran = subprocess.run(
        [str(PYTHON), str(PEER), *map(str, arguments)], capture_output=True, text=True, check=False, cwd=PEER.parent,
        timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]


def step_of(value: Any, t: int) -> Any:
    return {k: step_of(v, t) for k, v in value.items()} if isinstance(value, dict) else value[t]


def check(found: Any, wanted: dict[str, np.ndarray], path: str) -> int:
    """Compare a nested value with the peer's arrays; gives how many leaves were compared."""
    if isinstance(found, dict):
        return sum(check(child, wanted, f'{path}/{key}') for key, child in found.items())
    expected = wanted[path]
    if isinstance(found, EncodedImage):
        pixels = found.array()
        if found.media_type == 'image/jpeg':
            # TensorFlow decodes JPEG with another inverse transform; on a smooth image it is within a few levels.
            assert np.abs(pixels.astype(int) - expected.astype(int)).max() <= 6
        else:
            np.testing.assert_array_equal(pixels, expected)
        return 1
    if expected.dtype.kind == 'S':
        texts = np.asarray(found if isinstance(found, list) else [found])
        assert [t.encode() for t in texts.tolist()] == np.atleast_1d(expected).tolist()
        return 1
    np.testing.assert_array_equal(np.asarray(found), expected)
    return 1


def compare(dataset: RldsDataset, dumped: Path) -> int:
    wanted = dict(np.load(dumped))
    compared = 0
    for split in dataset.splits:
        for index, example in dataset.examples(split):
            steps = example.pop('steps')
            length = len(steps['is_first'])
            compared += sum(check(step_of(steps, t), wanted, f'{split}/{index}/{t}') for t in range(length))
            compared += check(example, wanted, f'{split}/{index}')
    assert compared == len(wanted)
    return compared


def test_what_tfds_writes_we_read(tmp_path: Path) -> None:
    peer('write', tmp_path / 'data')
    root = tmp_path / 'data' / 'peer' / '0.1.0'
    peer('dump', root, tmp_path / 'dump.npz')
    dataset = RldsDataset.open(root)
    assert dataset.splits == {'train': 5, 'test': 2}
    assert compare(dataset, tmp_path / 'dump.npz') > 500
    episode = next(dataset.episodes('test'))
    assert episode.instruction().startswith('tue')
    assert dataset.space.names[0] == 'open_gripper'


def test_what_we_write_tfds_reads(tmp_path: Path) -> None:
    root = make_rlds(tmp_path / 'data', train=4, test=2, shards=2)
    peer('dump', root, tmp_path / 'dump.npz')
    assert compare(RldsDataset.open(root), tmp_path / 'dump.npz') > 200
