from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from mcap.reader import make_reader
from tests.formats.robot import HEIGHT, WIDTH, level, made_store

from robotrials.errors import InputError, UnknownName
from robotrials.formats.export import EXPORTERS, ExportOptions, load_exporter
from robotrials.record import Store, Unblinding
from robotrials.record.blinding import write_unblinding


def exported(store: Store, name: str, target: Path) -> Path:
    load_exporter(name).write(store, target, ExportOptions())
    return target


def test_rerun_opens_what_we_write(tmp_path: Path) -> None:
    from rerun.chunk import RrdReader

    store = made_store(tmp_path / 'store')
    folder = exported(store, 'rerun', tmp_path / 'out')
    recorded = {e.episode_id: (e, t) for e, t in store.trajectories()}
    assert {p.stem for p in folder.iterdir()} == recorded.keys()
    for path in folder.iterdir():
        episode, trajectory = recorded[path.stem]
        reader = RrdReader(path)
        assert [r.recording_id for r in reader.recordings()] == [f'{episode.episode_id}-0']
        chunks = list(reader.stream().to_chunks())
        rows: dict[str, int] = {}
        for chunk in chunks:
            rows[chunk.entity_path] = rows.get(chunk.entity_path, 0) + (0 if chunk.is_static else chunk.num_rows)
        steps = trajectory.n_steps
        assert rows['/signals/action_raw'] == rows['/world/ee'] == rows['/cameras/front'] == steps
        assert rows['/events'] == len(episode.events)
        action = next(c for c in chunks if c.entity_path == '/signals/action_raw').to_record_batch().to_pydict()
        values = next(v for k, v in action.items() if 'scalars' in k.lower())
        np.testing.assert_allclose(values, trajectory.action_raw)
        pose = next(c for c in chunks if c.entity_path == '/world/ee').to_record_batch().to_pydict()
        turn = next(v for k, v in pose.items() if 'quaternion' in k.lower())
        assert turn[0][0] == pytest.approx([0, 0, 0, 1])
        facts = next(c for c in chunks if c.entity_path == '/__properties/episode').to_record_batch().to_pydict()
        assert ['pi0'] in [v[0] for k, v in facts.items() if k.endswith('policy')]


@pytest.mark.parametrize('verb', ['verify', 'stats'])
def test_the_command_of_rerun_accepts_the_file(tmp_path: Path, verb: str) -> None:
    folder = exported(made_store(tmp_path / 'store', episodes=1), 'rerun', tmp_path / 'out')
    path = next(folder.iterdir())
    ran = subprocess.run(
        [sys.executable, '-m', 'rerun', 'rrd', verb, str(path)], capture_output=True, text=True, timeout=120,
        env={'HOME': str(tmp_path), 'RERUN_ANALYTICS': 'off', 'PATH': '/usr/bin:/bin'},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_mcap_holds_every_signal_and_the_episode(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store')
    folder = exported(store, 'mcap', tmp_path / 'out')
    for episode, trajectory in store.trajectories():
        with (folder / f'{episode.episode_id}.mcap').open('rb') as stream:
            reader = make_reader(stream)
            summary = reader.get_summary()
            assert summary is not None
            assert summary.statistics is not None
            schemas = {s.name for s in summary.schemas.values()}
            assert {'foxglove.FrameTransform', 'foxglove.CompressedVideo', 'foxglove.Log'} <= schemas
            facts = {m.name: m.metadata for m in reader.iter_metadata()}['trialist.episode']
            assert (facts['policy'], facts['outcome']) == (episode.policy, episode.outcome)
            messages: dict[str, list[dict[str, object]]] = {}
            for _, channel, message in reader.iter_messages():
                messages.setdefault(channel.topic, []).append(json.loads(message.data))
        actions = [m['values'] for m in messages['/signals/action_raw']]
        np.testing.assert_array_equal(np.array(actions, np.float32), trajectory.action_raw)
        assert len(messages['/tf']) == 2 * trajectory.n_steps
        assert messages['/contacts'][0] == {'contacts': [{'body': 'finger', 'other': 'cube', 'force_n': 2.0}]}
        assert [m['message'] for m in messages['/events']] == ['phase reach', 'phase lift']


def test_the_video_in_mcap_decodes_frame_by_frame(tmp_path: Path) -> None:
    """Foxglove feeds the messages to a decoder one after another; so does this."""
    import av

    store = made_store(tmp_path / 'store', episodes=1)
    folder = exported(store, 'mcap', tmp_path / 'out')
    decoder = av.CodecContext.create('h264', 'r')
    frames = []
    with next(folder.iterdir()).open('rb') as stream:
        for _, _, message in make_reader(stream).iter_messages(topics=['/cameras/front']):
            data = base64.b64decode(json.loads(message.data)['data'])
            assert data[:4] in (b'\x00\x00\x00\x01', b'\x00\x00\x01\x67')
            frames += decoder.decode(av.Packet(data))
    frames += decoder.decode(None)
    pictures = [f.to_ndarray(format='rgb24') for f in frames]
    assert [p.shape for p in pictures] == [(HEIGHT, WIDTH, 3)] * 12
    assert [float(p.mean()) for p in pictures] == pytest.approx([level(0, k) for k in range(12)], abs=3)


def content(target: Path) -> bytes:
    """Everything that an export says: its names, its bytes, and what is packed in them."""
    from rerun.chunk import RrdReader

    files = [target] if target.is_file() else [p for p in target.rglob('*') if p.is_file()]
    parts = [part for p in files for part in (p.name.encode(), p.read_bytes())]
    for path in files:
        if path.suffix == '.rrd':
            parts += [str(c.to_record_batch().to_pydict()).encode() for c in RrdReader(path).stream().to_chunks()]
        elif path.suffix == '.mcap':
            with path.open('rb') as stream:
                parts += [message.data for _, _, message in make_reader(stream).iter_messages()]
        elif path.suffix == '.parquet':
            parts.append(str(pq.read_table(path).to_pylist()).encode())
    return b''.join(parts)


@pytest.mark.parametrize('name', ['lerobot', 'rerun', 'mcap', 'table'])
def test_an_open_blinded_trial_shows_codes_alone(tmp_path: Path, name: str) -> None:
    """No byte of an export may name a policy before its trial is closed; after that it may."""
    store = made_store(tmp_path / 'store', policy='arm-7f3a', videos=name == 'lerobot')
    target = exported(store, name, tmp_path / ('out.csv' if name == 'table' else 'out'))
    assert b'arm-7f3a' in content(target)
    assert b'secret-policy' not in content(target)
    write_unblinding(
        store.path, Unblinding(trial_id='', by='kim', at='2026-01-01', policies={'arm-7f3a': 'secret-policy'})
    )
    target = exported(store, name, tmp_path / ('opened.csv' if name == 'table' else 'opened'))
    assert b'secret-policy' in content(target)


def test_a_target_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', episodes=1, videos=False)
    for name in EXPORTERS.names():
        target = tmp_path / ('there.csv' if name == 'table' else 'there')
        target.touch()
        with pytest.raises(InputError, match='is there already; give a new name'):
            exported(store, name, target)
        target.unlink()
    with pytest.raises(UnknownName, match="no export format named 'lerobt': did you mean 'lerobot'"):
        load_exporter('lerobt')


def test_selected_episodes_alone_are_written(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', videos=False)
    done = load_exporter('mcap').write(store, tmp_path / 'out', ExportOptions(where={'outcome': 'failure'}))
    assert done.episodes == len(list((tmp_path / 'out').iterdir())) == 1
