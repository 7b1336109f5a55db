from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from robotrials.errors import InputError
from robotrials.formats.catalog import detect, open_source
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.video import VideoFrames
from robotrials.record import Outcome, Store, read_store

TYPES = get_typestore(Stores.ROS2_HUMBLE)
TYPES.register(get_types_from_msg('float64 position\nfloat64 max_effort\n', 'control_msgs/msg/GripperCommand'))
GRIPPER = 'control_msgs/msg/GripperCommand'
START_NS = 1_700_000_000_000_000_000
STEP_NS = 50_000_000
LOG_DELAY_NS = 4_000_000
STEPS = 20


def kind(name: str) -> Any:
    return TYPES.types[name]


def header(stamp_ns: int, frame: str = '') -> Any:
    stamp = kind('builtin_interfaces/msg/Time')(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
    return kind('std_msgs/msg/Header')(stamp=stamp, frame_id=frame)


def vector(name: str, *numbers: float) -> Any:
    return kind(f'geometry_msgs/msg/{name}')(*numbers)


def joint_state(i: int, stamp_ns: int, *, names: tuple[str, ...] = ('a', 'b')) -> Any:
    position = {'a': float(i), 'b': -float(i)}
    return kind('sensor_msgs/msg/JointState')(
        header=header(stamp_ns), name=list(names), position=np.array([position[n] for n in names]),
        velocity=np.zeros(0), effort=np.full(len(names), 2.5),
    )  # fmt: skip


def transform(child: str, parent: str, stamp_ns: int, *, x: float = 0.0, quarter_turn: bool = False) -> Any:
    half = np.sqrt(0.5)
    turn = (0.0, 0.0, half, half) if quarter_turn else (0.0, 0.0, 0.0, 1.0)
    moved = kind('geometry_msgs/msg/Transform')(vector('Vector3', x, 0.0, 0.0), vector('Quaternion', *turn))
    return kind('geometry_msgs/msg/TransformStamped')(header(stamp_ns, parent), child, moved)


def picture(i: int, stamp_ns: int) -> Any:
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[..., 2] = 10 * i  # red, since colours come as BGR
    return kind('sensor_msgs/msg/Image')(
        header=header(stamp_ns), height=32, width=48, encoding='bgr8', is_bigendian=0, step=144, data=pixels.ravel()
    )


def compressed(i: int, stamp_ns: int) -> Any:
    buffer = io.BytesIO()
    Image.fromarray(np.full((32, 48, 3), 10 * i, np.uint8)).save(buffer, format='PNG')
    data = np.frombuffer(buffer.getvalue(), np.uint8)
    return kind('sensor_msgs/msg/CompressedImage')(header=header(stamp_ns), format='png', data=data)


def wrench(i: int, stamp_ns: int) -> Any:
    inner = kind('geometry_msgs/msg/Wrench')(vector('Vector3', float(i), 0.0, 0.0), vector('Vector3', 0.0, 0.0, 1.0))
    return kind('geometry_msgs/msg/WrenchStamped')(header(stamp_ns), inner)


def camera_info(stamp_ns: int) -> Any:
    roi = kind('sensor_msgs/msg/RegionOfInterest')(0, 0, 0, 0, False)
    k = np.array([60.0, 0, 24, 0, 60, 16, 0, 0, 1])
    return kind('sensor_msgs/msg/CameraInfo')(
        header(stamp_ns), 32, 48, 'plumb_bob', np.zeros(5), k, np.eye(3).ravel(), np.zeros(12), 0, 0, roi
    )


Messages = list[tuple[str, str, int, Any]]


def arm_messages() -> Messages:
    """A robot of two joints: a tool that hangs from a turned link, a wrist sensor, a gripper, two cameras."""
    fixed = tf(transform('link', 'base', START_NS, x=1.0, quarter_turn=True))
    rows: Messages = [('/tf_static', 'tf2_msgs/msg/TFMessage', START_NS, fixed)]
    for i in range(STEPS):
        at = START_NS + i * STEP_NS
        rows += [
            ('/joint_states', 'sensor_msgs/msg/JointState', at, joint_state(i, at)),
            ('/tf', 'tf2_msgs/msg/TFMessage', at, tf(transform('tool0', 'link', at, x=0.1 * i))),
            ('/wrist/wrench', 'geometry_msgs/msg/WrenchStamped', at, wrench(i, at)),
            ('/gripper/command', GRIPPER, at, kind(GRIPPER)(i / 100, 5.0)),
            ('/policy/action', 'std_msgs/msg/Float64MultiArray', at, numbers(np.array([i, i + 1.0, 0.0]))),
            ('/cam/image_raw', 'sensor_msgs/msg/Image', at, picture(i, at)),
            ('/hand/image/compressed', 'sensor_msgs/msg/CompressedImage', at, compressed(i, at)),
            ('/cam/camera_info', 'sensor_msgs/msg/CameraInfo', at, camera_info(at)),
            ('/diagnostics', 'std_msgs/msg/String', at, kind('std_msgs/msg/String')('fine')),
        ]  # fmt: skip
    return rows


def tf(*transforms: Any) -> Any:
    return kind('tf2_msgs/msg/TFMessage')(list(transforms))


def numbers(values: np.ndarray) -> Any:
    layout = kind('std_msgs/msg/MultiArrayLayout')([], 0)
    return kind('std_msgs/msg/Float64MultiArray')(layout, values)


def write_bag(
    path: Path, rows: Messages, *, storage: StoragePlugin = StoragePlugin.MCAP, custom: dict[str, str] | None = None
) -> Path:
    with Writer(path, version=9, storage_plugin=storage) as writer:
        for key, value in (custom or {}).items():
            writer.set_custom_data(key, value)
        connections: dict[str, Any] = {}
        for topic, name, at, message in rows:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=TYPES)
            writer.write(connections[topic], at + LOG_DELAY_NS, TYPES.serialize_cdr(message, name))
    return path


SAID = {'policy': 'act', 'task': 'stack', 'outcome': 'success'}


def imported(path: Path, to: Path, **options: Any) -> Store:
    import_into(to, open_source(path, ImportOptions(**{'defaults': SAID, **options})))
    return read_store(to)


@pytest.mark.parametrize('storage', [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_a_bag_becomes_an_episode(tmp_path: Path, storage: StoragePlugin) -> None:
    bag = write_bag(tmp_path / 'bag', arm_messages(), storage=storage)
    assert detect(bag).name == 'ros'
    store = imported(bag, tmp_path / 'store', columns={'action_raw': '/policy/action.data[0:2]'})
    ((episode, trajectory),) = store.trajectories()
    assert episode.outcome is Outcome.SUCCESS
    assert episode.duration_s == pytest.approx(STEPS * STEP_NS / 1e9)
    assert trajectory.n_steps == STEPS
    np.testing.assert_allclose(np.diff(trajectory.time_s), STEP_NS / 1e9)
    for name in ('joint_position_rad', 'joint_torque_nm', 'action_raw', 'gripper_command', 'ee_pose'):
        assert getattr(trajectory, name) is not None, name
    assert trajectory.joint_position_rad is not None
    np.testing.assert_array_equal(trajectory.joint_position_rad[:, 0], np.arange(STEPS))
    assert trajectory.action_raw is not None
    np.testing.assert_array_equal(trajectory.action_raw[:, 1], np.arange(STEPS) + 1)
    np.testing.assert_array_equal(trajectory.extra['wrist.wrench'][:, 0], np.arange(STEPS))
    assert trajectory.ee_pose is not None  # the link is turned by a quarter: its x is the base's y
    np.testing.assert_allclose(trajectory.ee_pose[:, :3], [[1.0, 0.1 * i, 0.0] for i in range(STEPS)], atol=1e-12)
    record = store.provenance(episode.provenance_id).imported
    assert record is not None
    assert 'times are log times: gripper_command has no header stamps' in record.notes
    assert 'ee_pose: tf, tool0 in base' in record.notes
    assert 'joints, in order: a, b' in record.notes
    assert any(line.startswith('20 messages on /diagnostics (std_msgs/msg/String)') for line in record.dropped)


def test_cameras_become_videos_with_a_frame_per_step(tmp_path: Path) -> None:
    store = imported(write_bag(tmp_path / 'bag', arm_messages()), tmp_path / 'store')
    ((_, trajectory),) = store.trajectories()
    cameras = {camera.name: camera for camera in trajectory.scene.cameras}
    assert cameras.keys() == {'cam.image_raw', 'hand.image.compressed'}
    raw = cameras['cam.image_raw']
    assert raw.intrinsics_px is not None
    assert raw.intrinsics_px[0, 0] == 60.0
    assert cameras['hand.image.compressed'].intrinsics_px is None
    frames = VideoFrames(store.path / 'media' / raw.video, 0.0, 20.0, STEPS)
    last = frames[STEPS - 1].array()
    assert last[..., 0].mean() == pytest.approx(10 * (STEPS - 1), abs=8)
    assert last[..., 2].mean() < 20


def test_what_the_recorder_said_is_taken(tmp_path: Path) -> None:
    custom = {'policy': 'pi0', 'task': 'pour', 'outcome': 'timeout', 'operator': 'kim', 'lab': 'north'}
    for number in range(2):
        rows = [r for r in arm_messages() if r[0] == '/joint_states']
        write_bag(tmp_path / 'bags' / f'run_{number}', rows, custom=custom)
    store = imported(tmp_path / 'bags', tmp_path / 'store', defaults={})
    found = list(store.episodes())
    assert [(e.policy, e.task, e.outcome, e.operator) for e in found] == [('pi0', 'pour', Outcome.TIMEOUT, 'kim')] * 2
    assert [e.labels for e in found] == [{'bag': f'run_{n}', 'lab': 'north'} for n in range(2)]


def test_stamps_that_go_back_or_belong_to_another_clock_are_not_used(tmp_path: Path) -> None:
    rows = [r for r in arm_messages() if r[0] == '/joint_states']
    back = [(t, k, at, joint_state(i, at if i != 7 else at - 3 * STEP_NS)) for i, (t, k, at, _) in enumerate(rows)]
    other = [(t, k, at, joint_state(i, i * STEP_NS + 10**9)) for i, (t, k, at, _) in enumerate(rows)]
    for name, changed, said in (
        (
            'back',
            back,
            'joint_position_rad has a header stamp, of message 7, that is not after the one before',
        ),
        ('other', other, 's off its log times, by another clock'),
    ):
        store = imported(write_bag(tmp_path / name, changed), tmp_path / f'store-{name}')
        ((episode, trajectory),) = store.trajectories()
        np.testing.assert_allclose(np.diff(trajectory.time_s), STEP_NS / 1e9)
        record = store.provenance(episode.provenance_id).imported
        assert record is not None
        assert any(said in note for note in record.notes)


def test_steps_begin_when_every_topic_has_spoken(tmp_path: Path) -> None:
    rows = [
        r
        for r in arm_messages()
        if r[0] == '/joint_states' or (r[0] == '/wrist/wrench' and r[2] >= START_NS + 5 * STEP_NS)
    ]
    store = imported(write_bag(tmp_path / 'bag', rows), tmp_path / 'store')
    ((episode, trajectory),) = store.trajectories()
    assert trajectory.n_steps == STEPS - 5
    record = store.provenance(episode.provenance_id).imported
    assert record is not None
    assert '5 steps: before every topic had its first message' in record.dropped


def test_the_oracle_reads_the_same_messages(tmp_path: Path) -> None:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    bag = write_bag(tmp_path / 'bag', arm_messages())
    ((_, trajectory),) = imported(bag, tmp_path / 'store').trajectories()
    with next(bag.glob('*.mcap')).open('rb') as stream:
        reader = make_reader(stream, decoder_factories=[DecoderFactory()])
        read = [decoded[3] for decoded in reader.iter_decoded_messages(topics=['/joint_states'])]
    assert trajectory.joint_position_rad is not None
    np.testing.assert_array_equal(trajectory.joint_position_rad, [m.position for m in read])


def mcap_file(path: Path) -> Path:
    """A lone MCAP file by the ROS 2 writer of mcap, in small chunks, as a recorder would leave it."""
    from mcap_ros2.writer import Writer as Ros2Writer

    definition = 'float64 data\n'
    with path.open('wb') as stream:
        writer = Ros2Writer(stream, chunk_size=200)
        schema = writer.register_msgdef('std_msgs/msg/Float64', definition)
        for i in range(100):
            at = START_NS + i * STEP_NS
            writer.write_message('/gripper/width', schema, {'data': i / 100}, log_time=at, publish_time=at, sequence=i)
        writer.finish()
    return path


def test_a_file_cut_off_by_a_crash_gives_what_is_whole(tmp_path: Path) -> None:
    path = mcap_file(tmp_path / 'run.mcap')
    ((_, whole),) = imported(path, tmp_path / 'whole').trajectories()
    assert whole.n_steps == 100
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    store = imported(path, tmp_path / 'cut')
    ((episode, trajectory),) = store.trajectories()
    assert 10 < trajectory.n_steps < 100
    assert trajectory.gripper_position is not None
    np.testing.assert_allclose(trajectory.gripper_position, np.arange(trajectory.n_steps) / 100)
    record = store.provenance(episode.provenance_id).imported
    assert record is not None
    assert any(f'its {trajectory.n_steps} whole messages were read' in note for note in record.notes)


def test_header_stamps_are_the_times_where_every_topic_has_them(tmp_path: Path) -> None:
    rows = [r for r in arm_messages() if r[0] in ('/joint_states', '/wrist/wrench')]
    late = [(t, k, at + (i % 3) * 7_000_000, m) for i, (t, k, at, m) in enumerate(rows)]
    store = imported(write_bag(tmp_path / 'bag', late), tmp_path / 'store')
    ((episode, trajectory),) = store.trajectories()
    np.testing.assert_allclose(np.diff(trajectory.time_s), STEP_NS / 1e9)
    record = store.provenance(episode.provenance_id).imported
    assert record is not None
    assert 'times are header stamps' in record.notes


def test_messages_that_the_metadata_promise_and_the_bag_lacks_are_named(tmp_path: Path) -> None:
    bag = write_bag(
        tmp_path / 'bag', [r for r in arm_messages() if r[0] == '/joint_states'], storage=StoragePlugin.SQLITE3
    )
    with sqlite3.connect(next(bag.glob('*.db3'))) as database:
        database.execute('DELETE FROM messages WHERE id > 15')
    database.close()
    with pytest.raises(InputError, match=r'bag: 15 messages on /joint_states, and its metadata say 20; not whole'):
        imported(bag, tmp_path / 'store')


def only(*topics: str) -> Callable[[Messages], Messages]:
    return lambda rows: [r for r in rows if r[0] in topics]


def other_joints(rows: Messages) -> Messages:
    rows = only('/joint_states')(rows)
    at = rows[4][2]
    message = joint_state(0, at, names=('a',))
    return [*rows[:4], ('/joint_states', rows[4][1], at, message), *rows[5:]]


def nan_joint(rows: Messages) -> Messages:
    rows = only('/joint_states')(rows)
    rows[3][3].position[1] = np.nan
    return rows


def two_states(rows: Messages) -> Messages:
    rows = only('/joint_states')(rows)
    return [(topic, k, at, m) for _, k, at, m in rows for topic in ('/left/joints', '/right/joints')]


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (only('/diagnostics'), r'no topic that a trajectory could be made of: /diagnostics \(std_msgs/msg/String\)'),
        (other_joints, r'/joint_states: joints a after a, b; wanted the same'),
        (nan_joint, r'joint_position_rad is nan at step 3, number 1'),
        (two_states, r'/left/joints, /right/joints could be joint_position_rad; say which with --map'),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_imported(
    tmp_path: Path, change: Callable[[Messages], Messages], message: str
) -> None:
    bag = write_bag(tmp_path / 'bag', change(arm_messages()))
    with pytest.raises(InputError, match=message):
        imported(bag, tmp_path / 'store')
    assert not (tmp_path / 'store').exists()


def test_missing_files_and_foreign_ones_are_named(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', only('/joint_states')(arm_messages()))
    with pytest.raises(InputError, match=r'no topic /acton \(for action_raw\); found /joint_states'):
        imported(bag, tmp_path / 'store', columns={'action_raw': '/acton'})
    with pytest.raises(InputError, match=r"no field 'velocities' in 'velocities'; found header, name, position"):
        imported(bag, tmp_path / 'store', columns={'extra/v': '/joint_states.velocities'})
    next(bag.glob('*.mcap')).unlink()
    with pytest.raises(InputError, match='not readable as a ROS bag'):
        imported(bag, tmp_path / 'store')
    (tmp_path / 'no.mcap').write_bytes(b'not mcap at all')
    with pytest.raises(InputError, match=r'no.mcap: not readable as a ROS bag'):
        imported(tmp_path / 'no.mcap', tmp_path / 'store')
