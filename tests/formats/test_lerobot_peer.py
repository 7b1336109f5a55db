"""Round trips through LeRobot itself, in its own environment, and through Rerun's reader of LeRobot folders."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.robot import level, made_store
from tests.tool import tool

from robotrials.formats.catalog import open_source
from robotrials.formats.dataset import open_dataset
from robotrials.formats.export import ExportOptions, load_exporter
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.record import Outcome, read_store

SCRIPT = Path(__file__).with_name('lerobot_peer.py')


@pytest.fixture(scope='module')
def lerobot() -> Path:
    python: Path = tool('peer_environments').make_peer('lerobot')
    return python


def ask(python: Path, *words: object, cache: Path) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(('PYTHON', 'HF_'))}
    environment |= {'HF_HOME': str(cache), 'HF_LEROBOT_HOME': str(cache / 'lerobot')}
    ran = subprocess.run(
        [str(python), str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return answer


@pytest.mark.peers
@pytest.mark.parametrize(('name', 'verb'), [('lerobot', 'read'), ('lerobot-v2.1', 'upgrade')])
def test_lerobot_reads_what_we_write(tmp_path: Path, lerobot: Path, name: str, verb: str) -> None:
    """v3.0 directly; v2.1 through LeRobot's own converter, since LeRobot 0.4 reads v3.0 alone."""
    store = made_store(tmp_path / 'store')
    load_exporter(name).write(store, tmp_path / 'out', ExportOptions())
    seen = ask(lerobot, verb, tmp_path / 'out', cache=tmp_path / 'cache')
    assert seen['fps'] == 20
    recorded = list(store.trajectories())
    assert len(seen['episodes']) == len(recorded)
    for number, (found, (episode, trajectory)) in enumerate(zip(seen['episodes'], recorded, strict=True)):
        assert found['length'] == trajectory.n_steps
        assert found['task'] == episode.instruction
        np.testing.assert_allclose(found['action'], trajectory.action_raw, rtol=1e-6)
        np.testing.assert_allclose(np.array(found['state'])[:, :7], trajectory.ee_pose, rtol=1e-6)
        assert any(found['success']) == episode.is_success
        for seen_frame, frame in zip(found['brightness'], (0, trajectory.n_steps - 1), strict=True):
            assert seen_frame['observation.images.front'] == pytest.approx(level(number, frame), abs=3)
    actions = np.concatenate([t.action_raw for _, t in recorded])  # type: ignore[arg-type]
    np.testing.assert_allclose(seen['stats']['action']['mean'], actions.mean(axis=0), atol=1e-5)
    assert np.shape(seen['stats']['observation.images.front']['mean']) == (3, 1, 1)


@pytest.mark.peers
def test_we_read_what_lerobot_writes(tmp_path: Path, lerobot: Path) -> None:
    """Three episodes that share one data file and one video file."""
    ask(lerobot, 'write', tmp_path / 'made', cache=tmp_path / 'cache')
    options = ImportOptions(defaults={'policy': 'act'})
    imported = open_source(tmp_path / 'made', options)
    assert imported.format == 'lerobot'
    import_into(tmp_path / 'store', imported)
    store = read_store(tmp_path / 'store')
    found = sorted(store.trajectories(), key=lambda pair: int(pair[0].labels['episode_index']))
    assert [e.outcome for e, _ in found] == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.SUCCESS]
    assert [e.duration_s for e, _ in found] == [0.6, 0.9, 0.7]
    assert [e.task for e, _ in found] == ['task 0', 'task 1', 'task 0']
    for number, (_, trajectory) in enumerate(found):
        assert trajectory.action_raw is not None
        assert trajectory.action_raw.tolist() == [[number, k] for k in range(trajectory.n_steps)]
        assert trajectory.extra['observation.state'].shape == (trajectory.n_steps, 3)
        assert trajectory.scene.cameras[0].name == 'top'
    for number, episode in enumerate(open_dataset(tmp_path / 'made').episodes('train')):
        for frame in (0, 3, 5):
            brightness = float(episode.observation(frame).image('top').mean())
            assert brightness == pytest.approx(40 * number + 5 * frame, abs=4)
    from robotrials.formats.video import VideoFrames

    for number, (_, trajectory) in enumerate(found):
        video = store.path / 'media' / trajectory.scene.cameras[0].video
        cut = VideoFrames(video, 0.0, 10.0, trajectory.n_steps)
        levels = [float(cut[k].array().mean()) for k in range(trajectory.n_steps)]
        assert levels == pytest.approx([40 * number + 5 * k for k in range(trajectory.n_steps)], abs=4)


@pytest.mark.parametrize('name', ['lerobot', 'lerobot-v2.1'])
def test_rerun_reads_the_dataset_we_write(tmp_path: Path, name: str) -> None:
    """A reader of LeRobot folders that shares no code with LeRobot."""
    from rerun.experimental import LeRobotReader

    store = made_store(tmp_path / 'store')
    load_exporter(name).write(store, tmp_path / 'out', ExportOptions())
    reader = LeRobotReader(tmp_path / 'out')
    assert reader.version == ('v3' if name == 'lerobot' else 'v2')
    recorded = list(store.trajectories())
    assert list(reader.episodes()) == list(range(len(recorded)))
    for number, (_, trajectory) in enumerate(recorded):
        rows: dict[str, int] = {}
        for chunk in reader.stream(number).to_chunks():
            if not chunk.is_static:
                rows[chunk.entity_path] = rows.get(chunk.entity_path, 0) + chunk.num_rows
        assert rows['/action'] == rows['/observation.state'] == trajectory.n_steps
        assert rows['/observation.images.front'] >= trajectory.n_steps


@pytest.mark.peers
def test_lerobot_trains_on_what_we_write(tmp_path: Path, lerobot: Path) -> None:
    """Ten steps of LeRobot's own ACT, on frames, statistics and actions of an export, bring its loss down."""
    load_exporter('lerobot').write(made_store(tmp_path / 'store'), tmp_path / 'out', ExportOptions())
    seen = ask(lerobot, 'train', tmp_path / 'out', cache=tmp_path / 'cache')
    assert seen['cameras'] == ['observation.images.front']
    assert len(seen['losses']) == 10
    assert np.isfinite(seen['losses']).all()
    assert seen['losses'][-1] < seen['losses'][0]  # on one batch, without dropout
