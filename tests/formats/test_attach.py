"""Telemetry and films of other recorders, joined to a console's episodes by their clocks, in one durable write."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.formats.robot import made_store
from tests.formats.test_positronic import RATE_HZ, ROUND, START_NS, ZONES, put_episode

from robotrials.errors import InputError
from robotrials.formats.attach import Span, _gaps, join_by_marks, join_clocks, join_in_order, plan_attachment
from robotrials.formats.export import ExportOptions, load_exporter
from robotrials.formats.video import encode_frames
from robotrials.old_name import LEROBOT_FILE
from robotrials.record import Episode, Event, EventKind, EventSource, Outcome, Store, Trajectory, read_store
from robotrials.record.addition import Attachment, attach
from robotrials.record.footage import film_times
from robotrials.record.trajectory import frame_times

START_S = START_NS / 1e9
STARTS_S = (0.0, 61.0, 150.0, 199.0)  # of the episodes; no two gaps alike
LENGTH_S = (2 * ROUND + 19) / RATE_HZ


def console_episodes(*, starts_s: tuple[float, ...] = STARTS_S) -> list[Episode]:
    """As the console writes them: a clock, counts, marks half a second after each release, and no trajectory."""
    return [
        Episode(
            policy='arm-a', task='pack', outcome=Outcome.SUCCESS, duration_s=LENGTH_S, trial_id='console', seed=number,
            started_at=dt.datetime.fromtimestamp(START_S + start_s, dt.UTC), items=2, items_placed=2, stratum='towel',
            events=[Event(t, EventKind.PLACEMENT, EventSource.OPERATOR) for t in (3.7, 7.7)],
        )
        for number, start_s in enumerate(starts_s)
    ]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = Store.create(tmp_path / 'store')
    for episode in console_episodes():
        made.append([episode])
    return tmp_path / 'store'


def put_telemetry(root: Path, *, ahead_s: float = 0.0, starts_s: tuple[float, ...] = STARTS_S) -> Path:
    """positronic's recordings of those episodes, by a clock that is ahead."""
    for number, start_s in enumerate(starts_s):
        folder = root / '000000000000' / f'{number:012d}'
        put_episode(folder, f'u{number}', rounds=2, late_ns=round((start_s + ahead_s) * 1e9))
    return root


def test_telemetry_is_joined_and_scored(store: Path, tmp_path: Path) -> None:
    before = list(read_store(store).episodes())
    text = robotrials('store', 'attach', store, put_telemetry(tmp_path / 'tele'))
    assert 'the recorded clocks agree' in text
    assert 'half of them from' in text
    assert '4 episodes have a trajectory now' in text
    opened = read_store(store)
    assert list(opened.episodes()) == before  # what was recorded stays as it was
    assert 'clean: 4 episodes, 8 events, 4 trajectories' in robotrials('store', 'verify', store)
    for episode, trajectory in opened.trajectories():
        assert trajectory.time_s[0] == pytest.approx(0.0, abs=1e-6)
        assert trajectory.time_s[-1] == pytest.approx(LENGTH_S, abs=1e-6)
        (camera,) = trajectory.scene.cameras
        film = opened.path / 'media' / camera.video
        np.testing.assert_allclose(film_times(film), frame_times(camera, trajectory), atol=1e-3)
        assert opened.trajectory(episode) is not None
    (tmp_path / 'zones.toml').write_text(ZONES)
    assessed = robotrials('annotate', 'assess', store, '--settings', tmp_path / 'zones.toml')
    assert 'precision' in assessed
    robotrials('store', 'compact', store)
    assert len(list(read_store(store).trajectories())) == 4


def test_a_wrong_clock_is_found_by_the_pattern_of_starts(store: Path, tmp_path: Path) -> None:
    text = robotrials('store', 'attach', store, put_telemetry(tmp_path / 'tele', ahead_s=3600.25))
    assert '+3600.250' in text
    assert 'estimated from the starts of 4 pairs' in text
    for _, trajectory in read_store(store).trajectories():
        assert trajectory.time_s[0] == pytest.approx(0.0, abs=1e-3)


def test_a_session_recorded_in_one_go_is_cut(store: Path, tmp_path: Path) -> None:
    """One film and one recording of the whole session: each episode gets its own piece."""
    video = tmp_path / 'overview.mp4'
    frames = (np.full((16, 16, 3), min(k, 255), np.uint8) for k in range(240))
    encode_frames(frames, tmp_path / 'plain.mp4', fps=1)
    with av.open(str(tmp_path / 'plain.mp4')) as source, av.open(str(video), 'w') as sink:
        sink.metadata['creation_time'] = dt.datetime.fromtimestamp(START_S - 20, dt.UTC).isoformat()
        copied = sink.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = copied
                sink.mux(packet)
    robotrials('store', 'attach', store, put_telemetry(tmp_path / 'tele'), video)
    for number, (_, trajectory) in enumerate(read_store(store).trajectories()):
        names = {c.name: c for c in trajectory.scene.cameras}
        assert set(names) == {'wrist', 'overview'}
        shown_s = film_times(store / 'media' / names['overview'].video)
        # 9.9 s at one frame per second, and the frame before: what was seen at the start
        assert names['overview'].video_steps == (0, *range(1, 100, 10)), number
        assert len(shown_s) == 11


def test_nothing_is_attached_twice_or_to_a_closed_trial(store: Path, tmp_path: Path) -> None:
    tele = put_telemetry(tmp_path / 'tele')
    dry = robotrials('store', 'attach', store, tele, '--dry-run')
    assert 'trajectory now' not in dry
    assert not list(read_store(store).trajectories())
    robotrials('store', 'attach', store, tele)
    before = sorted(p for p in store.rglob('*') if p.is_file())
    assert 'has a trajectory already; nothing was attached' in robotrials('store', 'attach', store, tele, code=2)
    assert sorted(p for p in store.rglob('*') if p.is_file()) == before


def test_what_recordings_lack_is_said_by_episode(store: Path, tmp_path: Path) -> None:
    """Two recorders ran in the second episode, one died in the third, and one skipped seconds of the fourth."""
    tele = put_telemetry(tmp_path / 'tele', starts_s=STARTS_S[:2])
    folder = tele / '000000000000'
    put_episode(folder / '000000000008', 'again', rounds=2, late_ns=round((STARTS_S[1] - 0.5) * 1e9))
    put_episode(folder / '000000000009', 'died', rounds=1, late_ns=round(STARTS_S[2] * 1e9))
    ids = [e.episode_id for e in read_store(store).episodes()]
    text = ' '.join(robotrials('store', 'attach', store, tele).split())
    assert f'{ids[1]}/0: two recordings overlap it; the one that has more of it was taken' in text
    assert re.search(f'{ids[2]}/0: no telemetry: the most that one recording has of it is [4-6][0-9]%', text), text
    assert ids[3] not in text, 'after all recordings: of another day'
    assert '2 episodes have a trajectory now' in text


def test_a_gap_in_telemetry_is_said_with_its_times() -> None:
    (episode,) = console_episodes(starts_s=(0.0,))
    time_s = np.concatenate([np.arange(0, 3, 0.1), np.arange(6.5, LENGTH_S, 0.1)])
    assert list(_gaps(episode, time_s)) == [f'{episode.episode_id}/0: no telemetry from 2.9 to 6.5 s']
    assert list(_gaps(episode, np.arange(0, LENGTH_S, 0.5))) == []


def test_an_attachment_that_breaks_leaves_nothing(store: Path) -> None:
    opened = Store.open(store)
    first, trajectory = next(opened.episodes()), Trajectory(time_s=np.arange(3) / 10)

    def broken(target: Path) -> None:
        raise InputError('the disk of the camera was full')

    attachments = [Attachment(first.key, trajectory, {'x/film.mp4': broken})]
    with pytest.raises(InputError, match='the disk of the camera'):
        attach(opened, attachments, keys=[first.key], body={})
    assert not list(read_store(store).trajectories())
    assert 'clean: 4 episodes, 8 events, 0 trajectories' in robotrials('store', 'verify', store)


def test_films_of_an_attachment_that_broke_do_not_stand_in_the_way(store: Path, tmp_path: Path) -> None:
    opened = Store.open(store)
    first, second, *_ = opened.episodes()
    trajectory = Trajectory(time_s=np.arange(3) / 10)

    def broken(target: Path) -> None:
        raise InputError('cut off')

    def attached(*films: Callable[[Path], object]) -> int:
        rows = [
            Attachment(e.key, trajectory, {f'{e.key[0]}-0/film.mp4': f})
            for e, f in zip((first, second), films, strict=True)
        ]
        return attach(Store.open(store), rows, keys=[first.key, second.key], body={})

    with pytest.raises(InputError, match='cut off'):
        attached(lambda target: target.write_bytes(b'blurred'), broken)
    assert attached(lambda target: target.write_bytes(b'sharp'), lambda target: target.write_bytes(b'too')) == 2
    assert read_store(store).file(f'media/{first.key[0]}-0/film.mp4').read_bytes() == b'sharp'


def test_a_dataset_without_a_clock_is_attached_in_order_if_that_is_said(tmp_path: Path) -> None:
    """LeRobot records no time of day: refused, unless its recordings are said to be the episodes, in their order."""
    made = made_store(tmp_path / 'recorded')
    load_exporter('lerobot').write(made, tmp_path / 'dataset', ExportOptions())
    (tmp_path / 'dataset' / 'meta' / LEROBOT_FILE).unlink()  # as LeRobot itself writes one
    console = Store.create(tmp_path / 'console')
    recorded = list(made.trajectories())
    for number, (episode, _) in enumerate(recorded):
        began = dt.datetime.fromtimestamp(START_S + 60 * number, dt.UTC)
        console.append([Episode(policy='arm-b', task='stack', outcome=Outcome.FAILURE, duration_s=episode.duration_s,
                                seed=number, started_at=began)])  # fmt: skip
    message = robotrials('store', 'attach', console.path, tmp_path / 'dataset', code=2)
    assert 'does not record when a recording began' in message
    robotrials('store', 'attach', console.path, tmp_path / 'dataset', '--in-order')
    joined = list(read_store(console.path).trajectories())
    assert len(joined) == len(recorded)
    for (_, found), (_, before) in zip(joined, recorded, strict=True):
        np.testing.assert_allclose(found.action_raw, before.action_raw, rtol=1e-6)
        assert [c.name for c in found.scene.cameras] == ['front']


def spans(starts_s: list[float], length_s: float = 30.0) -> list[Span]:
    return [Span(1e9 + s, 1e9 + s + length_s) for s in starts_s]


def test_offset_and_drift_are_recovered() -> None:
    """40 episodes over four hours; their clock is 7,200 s ahead and gains 40 ppm; starts scatter by 0.2 s."""
    rng = np.random.default_rng(7)
    starts = np.cumsum(rng.uniform(200, 500, 40))
    theirs = [s * (1 + 40e-6) + 7200 + rng.normal(0, 0.05) for s in starts]
    join = join_clocks(spans(starts.tolist()), spans(theirs))
    assert join.pairs == tuple(range(40))
    middle = 1e9 + float(np.median(starts))
    assert join.theirs(middle) - middle == pytest.approx(7200 + 40e-6 * np.median(starts), abs=0.3)
    assert join.drift == pytest.approx(40e-6, abs=10e-6)


def test_a_recorder_that_is_started_before_the_clock_is_set_right_by_the_marks() -> None:
    """Their clock is 3,600 s ahead, recordings begin 1.5 s before the clock and end 0.5 s after it."""
    rng = np.random.default_rng(3)
    starts = np.cumsum(rng.uniform(40, 90, 8))
    ours, theirs = spans(starts.tolist()), spans((starts + 3598.5).tolist(), length_s=32.0)
    join = join_clocks(ours, theirs)
    assert join.offset_s == pytest.approx(3599.5)  # between 1.5 s before the clock and 0.5 s after it
    assert 'within 1.00 s as each holds its episode' in join.how
    lags = [[0.5 - 0.5 + rng.normal(0, 0.05) - 6.0 * k for k in (-1, 0, 1)] for _ in range(16)]
    better = join_by_marks(join, ours, theirs, lags_s=lags)
    assert better.offset_s == pytest.approx(3600.0, abs=0.1)
    assert 'set by 16 marks, taken as 0.5 s after releases' in better.how
    # Too few marks, or marks that fit two lags, leave it as it was.
    assert join_by_marks(join, ours, theirs, lags_s=lags[:4]) is join
    assert join_by_marks(join, ours, theirs, lags_s=[[0.5, -1.5]] * 16) is join
    # Marks of somebody who looked away for two seconds: a recording would not hold its episode.
    assert join_by_marks(join, ours, theirs, lags_s=[[2.0]] * 16) is join


def test_episodes_at_regular_times_are_ambiguous() -> None:
    regular = [60.0 * k for k in range(12)]
    with pytest.raises(InputError, match='ambiguous'):
        join_clocks(spans(regular), spans([s + 600_000 / 60 for s in regular]))
    # and somebody who measured it may say so
    shift = 600_000 / 60
    assert join_clocks(spans(regular), spans([s + shift for s in regular]), offset_s=shift).pairs == tuple(range(12))


def test_recordings_that_meet_some_episodes_by_accident_do_not_agree() -> None:
    """Nine short episodes in a row, and a clock 37 s ahead: two of them lie inside the recordings of others."""
    rng = np.random.default_rng(5)
    lengths = rng.uniform(5, 16, 9)
    starts = np.cumsum(lengths + rng.uniform(2, 6, 9)) - lengths
    ours = [Span(1e9 + s, 1e9 + s + n) for s, n in zip(starts, lengths, strict=True)]
    theirs = [Span(o.start_s + 36.25, o.end_s + 38.25) for o in ours]
    join = join_clocks(ours, theirs)
    assert join.pairs == tuple(range(9))
    assert join.offset_s == pytest.approx(37.25, abs=0.01)


def test_one_pair_does_not_give_an_offset() -> None:
    with pytest.raises(InputError, match='too few to believe it'):
        join_clocks(spans([0.0]), spans([3600.0]))
    with pytest.raises(InputError, match='no recording is about as long'):
        join_clocks(spans([0.0]), spans([3600.0], length_s=300))


def test_recordings_without_a_clock_are_joined_in_order_only_if_asked() -> None:
    assert join_in_order(spans([0.0, 90.0]), spans([0.0, 0.0])).pairs == (0, 1)
    with pytest.raises(InputError, match='3 recordings for 2 episodes'):
        join_in_order(spans([0.0, 90.0]), spans([0.0, 0.0, 0.0]))
    with pytest.raises(InputError, match='their order does not tell'):
        join_in_order(spans([0.0]), spans([0.0], length_s=50))


VIEWED = ((0.0, 3.0), (4.6, 2.4), (9.1, 2.0))  # starts and lengths of three episodes, in seconds


def session_bag(path: Path, *, start_s: float, length_s: float = 12.0) -> Path:
    """One bag of a whole session: an arm at 20 Hz, and an RGB-D camera at 5 Hz whose picture says when it was taken."""
    from tests.formats.depth_bag import Messages, Rows, millimetres
    from tests.formats.test_rgbd import SHAPE, K, pose

    ros = Messages()
    first = round(start_s * 1e9)
    frame = 'front_color_optical_frame'
    rows: Rows = [
        ('/tf_static', 'tf2_msgs/msg/TFMessage', first, ros.tf(frame, 'base_link', pose(z=1.0), first)),
        ('/front/color/camera_info', 'sensor_msgs/msg/CameraInfo', first, ros.info(K, SHAPE, frame=frame)),
    ]
    for i in range(int(20 * length_s)):
        at = first + i * 50_000_000
        rows.append(('/joint_states', 'sensor_msgs/msg/JointState', at, ros.joints(i, at)))
        if i % 4 == 0:
            rgb = np.full((*SHAPE, 3), i, np.uint8)
            depth = millimetres(np.full(SHAPE, 1.0))
            for topic, pixels, form in (('color', rgb, 'rgb8'), ('aligned_depth_to_color', depth, '16UC1')):
                message = ros.image(pixels, form, at, frame)
                rows.append((f'/front/{topic}/image_raw', 'sensor_msgs/msg/Image', at, message))
    return ros.write(path, rows)


def test_depth_cameras_of_a_session_become_views_of_each_episode(tmp_path: Path) -> None:
    """A console's episodes and one bag of the whole session: every episode gets its own first and last view."""
    from robotrials.record.footage import END, START, KnownScene, kept_views

    made = Store.create(tmp_path / 'store')
    for number, (start_s, length_s) in enumerate(VIEWED):
        began = dt.datetime.fromtimestamp(START_S + start_s, dt.UTC)
        made.append([Episode(policy='a', task='pack', outcome=Outcome.SUCCESS, duration_s=length_s, seed=number,
                             trial_id='console', started_at=began)])  # fmt: skip
        (tmp_path / f'pack-{number}.json').write_text(KnownScene(objects=(), floor_z_m=float(number)).as_json())
    bag = session_bag(tmp_path / 'session', start_s=START_S - 0.5)
    settings = ['--set', f'known={tmp_path}/{{task}}-{{seed}}.json', '--set', 'rgbd=5']
    assert '3 episodes have a trajectory now' in robotrials('store', 'attach', tmp_path / 'store', bag, *settings)
    assert 'clean' in robotrials('store', 'verify', tmp_path / 'store')
    opened = read_store(tmp_path / 'store')
    for episode in opened.episodes():
        start_s, length_s = VIEWED[episode.seed or 0]
        kept = kept_views(opened.path / 'media', *episode.key)
        assert kept is not None
        assert kept.has_ends
        assert kept.known().floor_z_m == episode.seed
        first, last = kept.moment(START)['front'], kept.moment(END)['front']
        assert 0 <= first.t_s <= 0.25
        assert length_s - 0.25 <= last.t_s <= length_s
        for seen in (first, last):
            assert seen.rgb[0, 0, 0] / 20 == pytest.approx(0.5 + start_s + seen.t_s, abs=1e-3), 'of its own time'
        assert len(kept.names) == pytest.approx(5 * length_s - 2, abs=1.5)
    with pytest.raises(InputError, match='no setting of an attachment'):
        plan_attachment(opened, [bag], settings={'policy': 'x'})
