from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.build import FPS, make_lerobot, rollout

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import Imported, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.lerobot import EVA_FACTS, LEROBOT
from robotrials.formats.video import VideoFrames, encode_frames
from robotrials.record import EventKind, Outcome, Store, read_store

DEMONSTRATIONS = {'policy': 'human', 'outcome': 'success'}


def opened(path: Path, **options: Any) -> Imported:
    return open_source(path, ImportOptions(**{'defaults': DEMONSTRATIONS, **options}))


def imported(path: Path, to: Path, **options: Any) -> Store:
    import_into(to, opened(path, **options))
    return read_store(to)


def edit_info(root: Path, **changes: Any) -> None:
    path = root / 'meta' / 'info.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def add_column(root: Path, name: str, values: Any, feature: dict[str, Any] | None) -> None:
    """Give every data file a column; `values` makes it from a file's table."""
    for path in sorted((root / 'data').rglob('*.parquet')):
        table = pq.read_table(path)
        pq.write_table(table.append_column(name, values(table)), path)
    info = json.loads((root / 'meta' / 'info.json').read_text())
    if feature is not None:
        edit_info(root, features={**info['features'], name: feature})


def add_success(root: Path, failed: tuple[int, ...] = ()) -> None:
    """`next.success` from the second last frame on, but for the episodes that failed."""

    def flags(table: pa.Table) -> pa.Array:
        episode, frame = (table[n].to_numpy() for n in ('episode_index', 'frame_index'))
        last = np.array([frame[episode == e].max() for e in episode])
        return pa.array((frame >= last - 1) & ~np.isin(episode, failed))

    add_column(root, 'next.success', flags, {'dtype': 'bool', 'shape': [1], 'names': None})


@pytest.mark.parametrize('version', ['v2.0', 'v2.1', 'v3.0'])
def test_a_foreign_dataset_becomes_episodes(tmp_path: Path, version: str) -> None:
    root = make_lerobot(tmp_path / 'toy', version)
    store = imported(root, tmp_path / 'store')
    found = sorted(store.trajectories(), key=lambda pair: int(pair[0].labels['episode_index']))
    assert len(found) == 10
    for number, (episode, trajectory) in enumerate(found):
        made = rollout(number, 8 + number % 5)
        assert episode.task == ['push left', 'push right'][number % 2]
        assert episode.outcome is Outcome.SUCCESS
        assert (episode.seed, episode.instance) == (None, None)  # the start state is not recorded
        assert episode.steps == trajectory.n_steps
        assert episode.duration_s == trajectory.n_steps / FPS
        assert trajectory.action_raw is not None
        np.testing.assert_array_equal(trajectory.action_raw[:, 3], made['grip'])
        np.testing.assert_array_equal(trajectory.extra['observation.state'], made['state'].astype(np.float32))
        camera = trajectory.scene.cameras[0]
        assert (camera.name, camera.width_px, camera.height_px) == ('image', 32, 24)
        assert camera.intrinsics_px is None
        frames = VideoFrames(store.path / 'media' / camera.video, 0.0, FPS, trajectory.n_steps)
        assert frames[trajectory.n_steps - 1].array().shape == (24, 32, 3)
    provenance = store.provenance(found[0][0].provenance_id)
    assert provenance.imported is not None
    assert len(provenance.imported.sha256) == 64
    assert '10 camera videos: encoded from images as H.264, which is not lossless' in provenance.imported.kept


def test_importing_again_adds_nothing(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    first = import_into(tmp_path / 'store', opened(root))
    again = import_into(tmp_path / 'store', opened(root))
    assert (first.added, again.added, again.already_there) == (10, 0, 10)


def test_named_numbers_are_mapped_and_the_rest_is_kept_whole(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    options = {'columns': {'gripper_command': 'action[3]', 'joint_position_rad': 'observation.state[0:2]'},
               'answers': {'cameras': 'leave'}}  # fmt: skip
    _, trajectory = next(imported(root, tmp_path / 'store', **options).trajectories())
    assert trajectory.gripper_command is not None
    assert trajectory.joint_position_rad is not None
    assert trajectory.joint_position_rad.shape[1] == 2
    assert trajectory.extra['observation.state'].shape[1] == 3
    assert trajectory.scene.cameras == ()
    with pytest.raises(UnknownName, match=r"no column \(for gripper_command\) named 'acton': did you mean 'action'"):
        opened(root, columns={'gripper_command': 'acton'})
    with pytest.raises(InputError, match=r'action\[9\] wanted, action has 4 numbers'):
        list(opened(root, columns={'gripper_command': 'action[9]'}).recordings())
    with pytest.raises(UnknownName, match='signal of a trajectory'):
        opened(root, columns={'grip': 'action[3]'})


def test_libero_state_names_give_a_pose(tmp_path: Path) -> None:
    """The published LIBERO datasets name x, y, z, an axis-angle vector and two fingers."""
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    names = ['x', 'y', 'z', 'axis_angle1', 'axis_angle2', 'axis_angle3', 'gripper', 'gripper']

    def state(table: pa.Table) -> pa.Array:
        row = [0.1, 0.2, 0.3, 0.0, 0.0, np.pi / 2, 0.04, -0.04]
        return pa.FixedSizeListArray.from_arrays(np.tile(np.array(row, np.float32), table.num_rows), 8)

    add_column(root, 'observation.pose', state, {'dtype': 'float32', 'shape': [8], 'names': {'motors': names}})
    _, trajectory = next(imported(root, tmp_path / 'store', answers={'cameras': 'leave'}).trajectories())
    assert trajectory.ee_pose is not None
    half = np.sqrt(0.5)
    np.testing.assert_allclose(trajectory.ee_pose[0], [0.1, 0.2, 0.3, half, 0, 0, half], atol=1e-6)


def test_success_flags_become_outcomes_and_times(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    add_success(root, failed=(1, 4))
    store = imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers={'cameras': 'leave'})
    found = {int(e.labels['episode_index']): e for e in store.episodes()}
    assert [n for n, e in found.items() if e.outcome is Outcome.FAILURE] == [1, 4]
    assert found[0].success is True
    assert [(e.kind, e.t_s) for e in found[0].events] == [(EventKind.PLACEMENT, pytest.approx(7 / FPS))]
    assert found[0].duration_s == 8 / FPS


def test_an_episode_cut_before_its_end_is_a_timeout(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    add_success(root, failed=(1,))
    done = {'dtype': 'bool', 'shape': [1], 'names': None}
    add_column(root, 'next.done', lambda table: pa.array(np.zeros(table.num_rows, dtype=bool)), done)
    store = imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers={'cameras': 'leave'})
    outcomes = {e.labels['episode_index']: e.outcome for e in store.episodes()}
    assert outcomes['1'] is Outcome.TIMEOUT


def test_who_and_how_it_went_are_asked_for(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    with pytest.raises(InputError, match='does not say which policy drove the robot; wanted --set policy=NAME'):
        imported(root, tmp_path / 'store', defaults={})
    with pytest.raises(InputError, match='does not say whether this rollout succeeded'):
        imported(root, tmp_path / 'store', defaults={'policy': 'act'})
    assert not (tmp_path / 'store').exists()


LANGUAGE = pa.list_(pa.struct([('role', pa.string()), ('content', pa.string()), ('style', pa.string()),
                               ('timestamp', pa.float64())]))  # fmt: skip


def test_language_becomes_phases(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    spoken = (('reach', 'subtask', 0.0), ('push', 'subtask', 0.4), ('think', 'plan', 0.0))
    rows = [{'role': 'assistant', 'content': text, 'style': style, 'timestamp': t} for text, style, t in spoken]
    add_column(root, 'language_persistent', lambda t: pa.array([rows] * t.num_rows, LANGUAGE), None)
    episode = next(imported(root, tmp_path / 'store', answers={'cameras': 'leave'}).episodes())
    assert [(e.t_s, e.kind, e.name) for e in episode.events] == [
        (0.0, EventKind.PHASE, 'reach'), (0.4, EventKind.PHASE, 'push')
    ]  # fmt: skip


def test_subtask_numbers_become_phases(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    pq.write_table(
        pa.table({'subtask_index': pa.array([0, 1]), 'subtask': pa.array(['reach', 'push'])}),
        root / 'meta' / 'subtasks.parquet',
    )
    add_column(
        root,
        'subtask_index',
        lambda t: pa.array((t['frame_index'].to_numpy() >= 3).astype(np.int64)),
        {'dtype': 'int64', 'shape': [1], 'names': None},
    )
    episode = next(imported(root, tmp_path / 'store', answers={'cameras': 'leave'}).episodes())
    assert [(e.t_s, e.name) for e in episode.events] == [(0.0, 'reach'), (pytest.approx(0.3), 'push')]


def with_shared_video(root: Path, *, frames: int | None = None) -> None:
    """All episodes' frames in one video, as v3.0 has it; frame k of episode n is 20 n + 2 k bright."""
    rows = pq.read_table(root / 'meta' / 'episodes' / 'chunk-000' / 'file-000.parquet').to_pylist()
    key, start, pixels = 'observation.images.top', 0.0, []
    for row in rows:
        end = start + row['length'] / FPS
        place = {'chunk_index': 0, 'file_index': 7, 'from_timestamp': start, 'to_timestamp': end}
        row |= {f'videos/{key}/{name}': value for name, value in place.items()}
        pixels += [np.full((48, 64, 3), 20 * row['episode_index'] + 2 * k, np.uint8) for k in range(row['length'])]
        start = end
    pq.write_table(pa.Table.from_pylist(rows), root / 'meta' / 'episodes' / 'chunk-000' / 'file-000.parquet')
    video = root / 'films' / key / 'file-007.mp4'
    video.parent.mkdir(parents=True)
    encode_frames(pixels[:frames], video, fps=FPS)
    info = json.loads((root / 'meta' / 'info.json').read_text())
    feature = {'dtype': 'video', 'shape': [48, 64, 3], 'names': ['height', 'width', 'channels']}
    edit_info(
        root, features={**info['features'], key: feature}, video_path='films/{video_key}/file-{file_index:03d}.mp4'
    )


def test_an_episode_is_cut_out_of_a_shared_video(tmp_path: Path) -> None:
    """The template of info.json says where the video is; file 7 holds every episode."""
    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=4)
    with_shared_video(root)
    store = imported(root, tmp_path / 'store')
    for episode, trajectory in store.trajectories():
        number = int(episode.labels['episode_index'])
        camera = next(c for c in trajectory.scene.cameras if c.name == 'top')
        frames = VideoFrames(store.path / 'media' / camera.video, 0.0, FPS, trajectory.n_steps)
        levels = [float(frames[k].array().mean()) for k in range(trajectory.n_steps)]
        assert levels == pytest.approx([20 * number + 2 * k for k in range(trajectory.n_steps)], abs=3)


AV1 = {'crf': '30', 'g': '2', 'preset': '12', 'svtav1-params': 'lp=1'}  # as LeRobot encodes: SVT-AV1, groups of two


def as_av1(video: Path) -> None:
    """Encode a video anew in LeRobot's default codec."""
    import av

    anew = video.with_suffix('.av1.mp4')
    with av.open(str(video)) as source, av.open(str(anew), 'w') as sink:
        stream = sink.add_stream('libsvtav1', rate=FPS, options=AV1)
        stream.width, stream.height, stream.pix_fmt = 64, 64, 'yuv420p'  # the encoder's smallest
        for frame in source.decode(video=0):
            sink.mux(stream.encode(frame.reformat(64, 64, 'yuv420p')))
        sink.mux(stream.encode())
    anew.replace(video)


def test_an_episode_is_cut_out_of_av1(tmp_path: Path) -> None:
    """LeRobot's default: an episode that begins with a key frame is copied as it is, another is encoded anew."""
    import av

    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=4)
    with_shared_video(root)
    as_av1(next((root / 'films').rglob('*.mp4')))
    store = imported(root, tmp_path / 'store')
    codecs = set()
    for episode, trajectory in store.trajectories():
        number = int(episode.labels['episode_index'])
        camera = next(c for c in trajectory.scene.cameras if c.name == 'top')
        path = store.path / 'media' / camera.video
        with av.open(str(path)) as container:
            codecs.add(container.streams.video[0].codec.canonical_name)
        frames = VideoFrames(path, 0.0, FPS, trajectory.n_steps)
        levels = [float(frames[k].array().mean()) for k in range(trajectory.n_steps)]
        assert levels == pytest.approx([20 * number + 2 * k for k in range(trajectory.n_steps)], abs=4)
    assert codecs == {'av1', 'h264'}


def test_a_codec_that_pyav_lacks_is_told_in_words(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=2)
    with_shared_video(root)
    video = next((root / 'films').rglob('*.mp4'))
    as_av1(video)
    video.write_bytes(video.read_bytes().replace(b'av01', b'xv01'))  # no PyAV knows this one
    with pytest.raises(SetupError, match=r"file-007\.mp4: its codec is not known .* pip install 'robotrials\[video\]'"):
        imported(root, tmp_path / 'store')


def test_a_truncated_video_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=4)
    with_shared_video(root, frames=30)
    store = imported(make_lerobot(tmp_path / 'before', 'v3.0', episodes=2), tmp_path / 'store')
    media = sorted(p for p in (store.path / 'media').rglob('*'))
    with pytest.raises(
        InputError, match=r'file-007.mp4: the video ends after 3 of the 11 frames declared from 2.7 s on'
    ):
        imported(root, tmp_path / 'store')
    assert len(list(read_store(tmp_path / 'store').episodes())) == 2
    assert sorted(p for p in (store.path / 'media').rglob('*')) == media


def test_a_video_that_is_not_one_is_named(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=2)
    with_shared_video(root)
    video = next((root / 'films').rglob('*.mp4'))
    video.write_bytes(video.read_bytes()[:200])
    with pytest.raises(InputError, match=r'file-007\.mp4: not readable as video'):
        imported(root, tmp_path / 'store')
    video.unlink()
    with pytest.raises(InputError, match=r'file-007\.mp4: missing; the metadata name this video'):
        imported(root, tmp_path / 'store')
    assert not (tmp_path / 'store').exists()


@pytest.mark.parametrize('version', ['v2.1', 'v3.0'])
def test_a_missing_data_file_is_named(tmp_path: Path, version: str) -> None:
    root = make_lerobot(tmp_path / 'toy', version)
    path = sorted((root / 'data').rglob('*.parquet'))[1]
    path.unlink()
    with pytest.raises(InputError, match=rf'{path.name}: missing; the metadata put episodes there'):
        imported(root, tmp_path / 'store')
    assert not (tmp_path / 'store').exists()


def test_a_truncated_data_file_is_named(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    path = sorted((root / 'data').rglob('*.parquet'))[1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=rf'{path.name}: not readable as Parquet'):
        imported(root, tmp_path / 'store')


def spoil(root: Path) -> Path:
    path = sorted((root / 'data').rglob('*.parquet'))[0]
    table = pq.read_table(path)
    state = table['observation.state'].combine_chunks().flatten().to_numpy(zero_copy_only=False).copy()
    state[8 * 3 + 2 * 3 + 1] = np.nan  # episode 1, frame 2, number 1
    at = table.column_names.index('observation.state')
    pq.write_table(table.set_column(at, 'observation.state', pa.FixedSizeListArray.from_arrays(state, 3)), path)
    return path


def test_nan_is_named_by_episode_step_and_number(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    path = spoil(root)
    with pytest.raises(
        InputError, match=rf'{path.name}: episode 1: observation.state is nan at step 2, number 1; wanted finite'
    ):
        imported(root, tmp_path / 'store')
    store = imported(root, tmp_path / 'store', answers={'nan': 'keep', 'cameras': 'leave'})
    spoilt = next(t for e, t in store.trajectories() if e.labels['episode_index'] == '1')
    assert np.isnan(spoilt.extra['observation.state'][2, 1])


def test_what_is_wrong_with_the_metadata_is_named(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    edit_info(root, total_episodes=12)
    with pytest.raises(InputError, match='total_episodes is 12, the metadata have rows for 10 episodes'):
        opened(root)
    edit_info(root, total_episodes=10, fps=0)
    with pytest.raises(InputError, match='fps is 0, wanted frames per second > 0'):
        opened(root)
    edit_info(root, fps=10, codebase_version='v4.0')
    with pytest.raises(InputError, match=r"codebase_version is 'v4.0'; robotrials reads v2.0, v2.1, v3.0"):
        opened(root)


def test_a_declared_column_that_is_missing_and_one_that_is_not_declared(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    add_column(root, 'battery', lambda t: pa.array(np.ones(t.num_rows)), None)
    source = opened(root)
    assert 'column battery: meta/info.json does not declare it' in [str(e) for e in source.ledger.dropped]
    info = json.loads((root / 'meta' / 'info.json').read_text())
    edit_info(root, features={**info['features'], 'torque': {'dtype': 'float32', 'shape': [2], 'names': None}})
    with pytest.raises(InputError, match=r"no column 'torque', which meta/info\.json declares"):
        imported(root, tmp_path / 'store')


def evaluation(tmp_path: Path, successes: list[bool], recorded: int) -> Path:
    """What `lerobot-eval --eval.recording=true` leaves behind of one LIBERO task."""
    output = tmp_path / 'eval'
    root = output / 'recordings' / 'libero_spatial_3'
    root.parent.mkdir(parents=True)
    make_lerobot(root, 'v3.0', episodes=recorded)
    add_success(root)
    entry = {'task_group': 'libero_spatial', 'task_id': 3, 'metrics': {'successes': successes, 'sum_rewards': []}}
    text = json.dumps({'per_task': [entry], 'overall': {'pc_success': float('nan')}})  # bare NaN, as LeRobot writes it
    (output / 'eval_info.json').write_text(text)
    return root


def test_recordings_of_successes_alone_are_refused_as_a_rate(tmp_path: Path) -> None:
    root = evaluation(tmp_path, [True, False] * 5, recorded=5)
    with pytest.raises(
        InputError, match=r'5 recorded episodes .*eval_info.json counts 10 rollouts.*nothing was imported'
    ):
        imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers={'cameras': 'leave', 'rollouts': 'all'})
    assert not (tmp_path / 'store').exists()


def test_complete_recordings_are_taken(tmp_path: Path) -> None:
    root = evaluation(tmp_path, [True] * 5, recorded=5)
    store = imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers={'cameras': 'leave'})
    assert len(list(store.episodes())) == 5


def test_successes_alone_without_a_count_are_asked_about(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    add_success(root)
    with pytest.raises(InputError, match=r'all 10 recorded episodes succeeded, and no eval_info\.json says'):
        imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers={'cameras': 'leave'})
    answers = {'cameras': 'leave', 'rollouts': 'all'}
    assert len(list(imported(root, tmp_path / 'store', defaults={'policy': 'act'}, answers=answers).episodes())) == 10


def test_metadata_of_episodes_may_lie_in_several_files(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    folder = root / 'meta' / 'episodes'
    table = pq.read_table(folder / 'chunk-000' / 'file-000.parquet')
    (folder / 'chunk-001').mkdir()
    pq.write_table(table.slice(6), folder / 'chunk-001' / 'file-003.parquet')
    pq.write_table(table.slice(0, 6), folder / 'chunk-000' / 'file-000.parquet')
    shutil.move(root / 'data' / 'chunk-000' / 'file-002.parquet', root / 'data' / 'chunk-000' / 'file-009.parquet')
    rows = table.slice(6).to_pylist()
    for row in rows:
        row['data/file_index'] = {2: 9}.get(row['data/file_index'], row['data/file_index'])
    pq.write_table(pa.Table.from_pylist(rows), folder / 'chunk-001' / 'file-003.parquet')
    store = imported(root, tmp_path / 'store', answers={'cameras': 'leave'})
    assert sorted(int(e.labels['episode_index']) for e in store.episodes()) == list(range(10))


# --- evaluations whose outcomes stand beside the frames


def eva(root: Path, rows: dict[int, dict[str, Any]]) -> Path:
    """A dataset as EVA-CLIENT records one: v2.1, with its scores and its quality control in meta/episodes.jsonl."""
    make_lerobot(root, 'v2.1', episodes=len(rows))
    path = root / 'meta' / 'episodes.jsonl'
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(''.join(json.dumps({**line, **rows[line['episode_index']]}) + '\n' for line in lines))
    return root


SCORED = {'quality': 'green', 'qc_verdict': '', 'max_score': 4, 'trial': 1, 'scored_at': '2026-05-01T10:00:00'}


def test_scores_of_eva_client_become_outcomes_and_red_episodes_are_invalid(tmp_path: Path) -> None:
    issue = {'severity': 'red', 'code': 'missing_camera', 'detail': 'cam_high missing in frame 3'}
    folder = tmp_path / 'runs'
    eva(folder / 'push', {
        0: {**SCORED, 'score': 4, 'milestones': {'grasp': True, 'place': True}},
        1: {**SCORED, 'score': 2, 'note': 'dropped it', 'milestones': {'grasp': True, 'place': False}},
        2: {**SCORED, 'score': 4, 'quality': 'red', 'quality_issues': [issue]},
        3: {**SCORED, 'score': 4, 'qc_verdict': 'fail', 'qc_note': 'wrong scene'},
    })  # fmt: skip
    store = imported(folder, tmp_path / 'store', defaults={'policy': 'pi0'})
    rows = {int(e.labels['episode_index']): e for e in store.episodes()}
    assert [rows[i].outcome for i in range(4)] == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.INVALID, Outcome.INVALID]
    assert (rows[1].score, rows[1].max_score, rows[1].reason) == (2.0, 4.0, 'dropped it')
    assert rows[1].labels['milestone place'] == 'False'
    assert rows[2].reason == 'cam_high missing in frame 3'
    assert rows[3].reason == 'wrong scene'
    for _, trajectory in store.trajectories():
        assert (store.path / 'media' / trajectory.scene.cameras[0].video).is_file()


def test_episodes_are_searched_for_scores_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of them: of 1,000 episodes that took half the time to import them."""
    searched = []

    class Facts(tuple[str, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            searched.append(self)
            return super().__iter__()

    monkeypatch.setattr('robotrials.formats.lerobot.EVA_FACTS', Facts(EVA_FACTS))
    root = make_lerobot(tmp_path / 'push', 'v3.0', episodes=4)
    options = ImportOptions(defaults=DEMONSTRATIONS, answers={'cameras': 'leave'})
    assert len(list(LEROBOT.read(root, options).recordings())) == 4
    assert len(searched) == 4


def test_an_episode_that_nobody_scored_is_asked_about(tmp_path: Path) -> None:
    root = eva(tmp_path / 'push', {0: {**SCORED, 'score': 4}, 1: {**SCORED, 'score': None}})
    with pytest.raises(InputError, match=r'episode 1 has no score.*--answer unscored=invalid'):
        imported(root, tmp_path / 'store', defaults={'policy': 'pi0'})
    answers = {'unscored': 'invalid', 'cameras': 'leave'}
    store = imported(root, tmp_path / 'store', defaults={'policy': 'pi0'}, answers=answers)
    assert sorted(e.outcome for e in store.episodes()) == [Outcome.INVALID, Outcome.SUCCESS]
    bad = eva(tmp_path / 'bad', {0: {**SCORED, 'score': 5}})
    with pytest.raises(InputError, match='score 5 of 4'):
        imported(bad, tmp_path / 'other', defaults={'policy': 'pi0'})


def test_evaluations_come_in_by_the_verb(tmp_path: Path) -> None:
    eva(tmp_path / 'runs' / 'push', {0: {**SCORED, 'score': 4}, 1: {**SCORED, 'score': 1, 'quality': 'red'}})
    make_lerobot(tmp_path / 'eval_act', 'v3.0', episodes=2)
    (tmp_path / 'results.csv').write_text('episode_index,outcome\n0,success\n1,failure\n')
    for source, said, wanted in (
        ('runs', [], {'success', 'invalid'}),
        ('eval_act', ['--set', 'results=results.csv'], {'success', 'failure'}),
    ):
        command = [sys.executable, '-m', 'robotrials.cli', 'import', source, '--to', f'{source}-store']
        told = subprocess.run([*command, '--set', 'policy=act', *said], cwd=tmp_path, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        store = read_store(tmp_path / f'{source}-store')
        assert {e.outcome.value for e in store.episodes()} == wanted
        assert all((store.path / 'media' / t.scene.cameras[0].video).is_file() for _, t in store.trajectories())


def test_a_table_says_how_a_recorded_evaluation_went(tmp_path: Path) -> None:
    """`lerobot-record --policy` keeps frames and films, and no outcome: the operator's table has them."""
    root = make_lerobot(tmp_path / 'eval_act', 'v3.0', episodes=3)
    with_shared_video(root)
    with pytest.raises(InputError, match='--set results='):
        imported(root, tmp_path / 'store', defaults={'policy': 'act'})
    table = tmp_path / 'results.csv'
    table.write_text('episode_index,outcome,reason\n0,success,\n1,failure,missed\n2,timeout,\n')
    store = imported(root, tmp_path / 'store', defaults={'policy': 'act', 'results': str(table)})
    rows = {int(e.labels['episode_index']): e for e in store.episodes()}
    assert [rows[i].outcome.value for i in range(3)] == ['success', 'failure', 'timeout']
    assert rows[1].reason == 'missed'
    assert all(e.duration_s for e in rows.values())
    for text, match in (
        ('episode_index,outcome\n0,success\n1,failure\n', 'no row of episode 2'),
        ('episode_index,outcome\n0,success\n0,failure\n', 'a second time'),
        ('episode_index,outcome\n0,success\n1,failure\n2,failure\n9,success\n', 'episode 9 is not in'),
        ('episode_index,outcome\n0,\n', 'wanted episode_index and outcome'),
    ):
        table.write_text(text)
        with pytest.raises(InputError, match=match):
            imported(root, tmp_path / 'other', defaults={'policy': 'act', 'results': str(table)})
