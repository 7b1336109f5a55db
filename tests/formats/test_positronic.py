"""positronic's recordings, whole: signals, films, outcomes, edits, the human reference, and what is scored."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import robotrials
from tests.formats.test_evaluation_code import refused, written
from tests.tool import tool

from robotrials.formats.catalog import open_source
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.video import encode_frames
from robotrials.record import EventKind, Outcome, read_store
from robotrials.record.footage import film_times
from robotrials.record.trajectory import frame_times
from robotrials.service.explorer.index import episode_data

RATE_HZ, START_NS = 10, 1_780_000_000_000_000_000
ROUND = 40  # steps from one release to the next
ZONES = """
[zones.source]
center_m = [0.4, -0.2]
size_m = [0.3, 0.3]
[zones.target]
center_m = [0.4, 0.2]
size_m = [0.3, 0.3]
"""


def put_signal(path: Path, times_ns: np.ndarray, values: np.ndarray | list[str], **timelines: np.ndarray) -> None:
    """As positronic 0.4 writes one: a column for each timeline, and a version in the schema."""
    columns = {f'ts.{name}': np.asarray(t, np.int64) for name, t in {'received.world': times_ns, **timelines}.items()}
    fields = [pa.field(name, pa.int64(), nullable=False) for name in columns]
    column = pa.array(list(values) if np.ndim(values) > 1 else values)
    schema = pa.schema([*fields, pa.field('value', column.type)], metadata={b'positronic.signal_version': b'2'})
    pq.write_table(pa.table([*map(pa.array, columns.values()), column], schema=schema), path)


def put_episode(folder: Path, uid: str, *, rounds: int, late_ns: int = 0, **facts: Any) -> None:
    """An episode of `rounds` placements, one every 4 s, and 2 s of nothing after them."""
    facts = {'task': 'pack', 'eval.object': 'towel', 'eval.total_items': 2, **facts}
    written(folder / 'static.json', {name.replace('__', '.'): value for name, value in facts.items()})
    written(folder / 'meta.json', {'uid': uid, 'created_ts_ns': START_NS + late_ns - 10**9, 'schema_version': 1})
    closed = np.tile(np.r_[np.zeros(12), np.ones(20), np.zeros(8)], rounds)
    steps = len(closed) + 20
    target = np.r_[closed, np.zeros(20)]
    phase = np.arange(steps) % ROUND
    pose = np.zeros((steps, 7))
    pose[:, 0], pose[:, 1], pose[:, 2], pose[:, 4] = 0.4, np.where(phase < 22, -0.2, 0.2), 0.2, 1.0
    world = 7 * 10**9 + np.arange(steps) * (10**9 // RATE_HZ)
    wall = {'received.wall': world - 7 * 10**9 + START_NS + late_ns}
    put_signal(folder / 'robot_state.ee_pose.parquet', world, pose, **wall)
    put_signal(folder / 'grip.parquet', world, 0.6 * np.convolve(target, np.ones(3) / 3)[:steps], **wall)
    put_signal(folder / 'target_grip.parquet', world[2:], target[2:], **{k: v[2:] for k, v in wall.items()})
    put_signal(folder / 'robot_command.pose.parquet', world[2:], pose[2:])
    put_signal(folder / 'progress.state.parquet', world[[30, 50]], ['contact', 'at-target'])
    shown = np.arange(0, steps, 7)
    frames = (np.full((16, 16, 3), int(step), np.uint8) for step in shown)
    encode_frames(frames, folder / 'image.wrist.mp4', fps=30)
    times = pa.table({'ts.received.world': pa.array(world[shown])})
    pq.write_table(times, folder / 'image.wrist.frames.parquet')


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """PhAIL's layout: rollouts of two models and teleoperation, in datasets of their own."""
    root = tmp_path / 'release' / 'v1.0' / 'dataset'
    outcomes = {'Success': 2, 'Fail': 1, 'Stalled': 1, 'Ran out of time': 1, 'Safety': 1, 'System': 0, 'Discarded': 0}
    for m, model in enumerate(('groot', 'act')):
        for number, (outcome, placed) in enumerate(outcomes.items()):
            put_episode(
                root / 'rollouts' / '000000000000' / f'{7 * m + number:012d}', f'{model}{number}', rounds=placed or 1,
                late_ns=(7 * m + number) * 60 * 10**9, model=model, variant='v1', eval__outcome=outcome,
                eval__successful_items=placed, eval__cap_per_item=30,
            )  # fmt: skip
    for number in range(3):
        put_episode(
            root / 'teleoperation' / '000000000000' / f'{number:012d}', f't{number}', rounds=2, model='teleop',
            variant='', eval__outcome='Success', eval__successful_items=2, late_ns=number * 60 * 10**9 + 10**13,
        )  # fmt: skip
    return tmp_path / 'release'


def test_a_release_comes_whole(release: Path, tmp_path: Path) -> None:
    store = read_store(import_into(tmp_path / 'store', open_source(release, ImportOptions())) and tmp_path / 'store')
    episodes = list(store.episodes())
    assert Counter(e.policy for e in episodes) == {'groot': 7, 'act': 7, 'teleop': 3}
    assert {e.policy for e in episodes if e.is_reference} == {'teleop'}
    by_uid = {e.labels['positronic_uid']: e for e in episodes}
    assert [by_uid[f'act{k}'].outcome.value for k in range(7)] == [
        'success', 'failure', 'failure', 'timeout', 'safety_stop', 'invalid', 'invalid',
    ]  # fmt: skip
    assert (by_uid['act2'].reason, by_uid['act5'].reason, by_uid['act5'].items_placed) == ('Stalled', 'System', None)
    assert by_uid['act0'].duration_s == pytest.approx((2 * ROUND + 19) / RATE_HZ)
    assert by_uid['act0'].time_cap_s == 60.0
    assert by_uid['t1'].started_at is not None
    assert by_uid['t1'].started_at.timestamp() == pytest.approx(START_NS / 1e9 + 60 + 1e4, abs=0.001)
    phases = [(e.t_s, e.name) for e in by_uid['act0'].events if e.kind is EventKind.PHASE]
    assert phases == [(pytest.approx(3.0), 'contact'), (pytest.approx(5.0), 'at-target')]
    for episode, trajectory in store.trajectories():
        assert trajectory.gripper_command is not None
        assert np.isnan(trajectory.gripper_command[:2]).all()  # before the first command
        assert set(trajectory.gripper_command[2:]) == {0.0, 1.0}  # 0 is closed
        (camera,) = trajectory.scene.cameras
        shown_s = frame_times(camera, trajectory)
        np.testing.assert_allclose(film_times(store.path / 'media' / camera.video), shown_s, atol=1e-3)
        assert episode_data(store, episode)['missing'] == []


def test_human_relative_throughput_comes_out_of_a_release(release: Path, tmp_path: Path) -> None:
    store, zones = tmp_path / 'store', tmp_path / 'zones.toml'
    zones.write_text(ZONES)
    robotrials('import', release, '--to', store)
    assert 'annotate detect' in robotrials('score', store, '--details')  # counted and not timed: what to do
    detected = robotrials('annotate', 'detect', store, '--settings', zones)
    assert 'auto-validated' in detected
    assert 'waiting' not in detected
    scored = robotrials('score', store, '--details')
    assert 'HRT is relative to teleop' in scored
    # Releases at 3.2 s and 7.2 s: a mean of 3.6 s per operation.
    assert re.search(r'teleop .* 3\.[5-8] ', scored), scored


def test_the_edit_log_of_an_episode_wins(release: Path) -> None:
    """positronic writes corrections beside the episode; a log of the dataset applies before it."""
    rollouts = release / 'v1.0' / 'dataset' / 'rollouts'
    edit = {'op': 'set_static', 'v': 1, 'ep': 'groot0'}
    written(rollouts / 'edits.jsonl', json.dumps({**edit, 'data': {'eval.outcome': 'Fail'}}))
    own = rollouts / '000000000000' / '000000000000' / 'edits.jsonl'
    written(own, json.dumps({**edit, 'data': {'eval.outcome': 'Safety', 'eval.successful_items': 1}}))
    episodes = {e.labels['positronic_uid']: e for e in open_source(release, ImportOptions()).episodes()}
    assert (episodes['groot0'].outcome, episodes['groot0'].items_placed) == (Outcome.SAFETY_STOP, 1)


def test_an_episode_that_nobody_scored_is_asked_about(release: Path, tmp_path: Path) -> None:
    folder = release / 'v1.0' / 'dataset' / 'rollouts' / '000000000000' / '000000000000'
    put_episode(folder, 'groot0', rounds=1, model='groot', variant='v1', eval__outcome='UNSCORED')
    message = refused(release, 'positronic', tmp_path)
    assert 'nobody scored this episode' in message
    assert '--blank invalid' in message
    episodes = {e.labels['positronic_uid']: e for e in open_source(release, ImportOptions(blank='invalid')).episodes()}
    assert (episodes['groot0'].outcome, episodes['groot0'].reason) == (Outcome.INVALID, 'nobody scored it')


def test_two_checkpoints_of_a_model_are_two_policies(release: Path) -> None:
    folder = release / 'v1.0' / 'dataset' / 'rollouts' / '000000000000' / '000000000000'
    facts = {'inference.policy.type': 'remote', 'inference.policy.server.type': 'groot', 'task': 'pack',
             'inference.policy.server.checkpoint_path': 'c/groot/checkpoint-9000', 'eval.success': True}  # fmt: skip
    written(folder / 'static.json', facts)
    policies = Counter(e.policy for e in open_source(release, ImportOptions()).episodes())
    assert policies == {'groot v1': 6, 'groot 9000': 1, 'act': 7, 'teleop': 3}


@pytest.mark.parametrize('what', ['cut', 'order', 'frames', 'film'])
def test_a_broken_signal_is_named_and_nothing_is_kept(release: Path, tmp_path: Path, what: str) -> None:
    folder = release / 'v1.0' / 'dataset' / 'rollouts' / '000000000000' / '000000000001'
    if what == 'cut':
        (folder / 'grip.parquet').write_bytes((folder / 'grip.parquet').read_bytes()[:200])
    elif what == 'order':
        put_signal(folder / 'grip.parquet', np.array([10**10, 9 * 10**9]), np.array([0.0, 1.0]))
    elif what == 'frames':
        pq.write_table(pa.table({'ts.received.world': [7 * 10**9]}), folder / 'image.wrist.frames.parquet')
    else:
        (folder / 'image.wrist.mp4').unlink()
    message = refused(release, 'positronic', tmp_path)
    assert ('image.wrist.mp4' if what in ('frames', 'film') else 'grip.parquet') in message


@pytest.mark.peers
@pytest.mark.drift
def test_what_positronic_itself_writes(tmp_path: Path) -> None:
    """A release by positronic's own writer and edit log: counts, durations and the edit are what positronic reads."""
    python = tool('peer_environments').make_peer('positronic')
    script = Path(__file__).with_name('positronic_peer.py')
    environment = {k: v for k, v in os.environ.items() if not k.startswith('PYTHON')}
    command = [str(python), str(script), str(tmp_path / 'release'), '6']
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    robotrials('import', tmp_path / 'release', '--to', tmp_path / 'store')
    episodes = {e.labels['positronic_uid']: e for e in read_store(tmp_path / 'store').episodes()}
    assert len(episodes) == sum(told['counts'].values())
    assert episodes[told['edited']].outcome is Outcome.TIMEOUT
    for uid, duration_s in told['teleop_durations_s'].items():
        # Ours begins with the sensors, positronic's own bounds with the first command, one sample later.
        assert episodes[uid].duration_s == pytest.approx(duration_s + 1 / 15, abs=1e-6)
    (tmp_path / 'zones.toml').write_text(ZONES.replace('0.4,', '0.45,'))
    detected = robotrials('annotate', 'detect', tmp_path / 'store', '--settings', tmp_path / 'zones.toml')
    assert 'waiting for review          1' in detected  # the one that was edited: the operator says 2 of 3
    queue = robotrials('annotate', 'queue', tmp_path / 'store')
    robotrials('store', 'edit', tmp_path / 'store', episodes[told['edited']].episode_id, 'drop', '--why', 'unreviewed')
    assert episodes[told['edited']].episode_id in queue
    assert 'HRT is relative to teleop' in robotrials('score', tmp_path / 'store', '--details')
