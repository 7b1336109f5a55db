"""RGB-D of bags: kept like the views of the depth host, scored by the same verb; what is wrong is refused by name."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin
from scipy.spatial.transform import Rotation
from tests.formats.depth_bag import FRAME_NS, START_NS, Messages, Rows, driver_rows, millimetres, sdk_rows

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import ImportAccount, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.ros_signal import image
from robotrials.measure.geometry.hand_eye import fit_to_scene
from robotrials.measure.geometry.projection import score_kept
from robotrials.record import Camera, read_store
from robotrials.record.footage import (
    END,
    START,
    CameraPose,
    KeptViews,
    View,
    camera_poses_json,
    kept_views,
    read_camera_poses,
)

K = np.array([[60.0, 0, 31.5], [0, 60, 23.5], [0, 0, 1]])
SHAPE = (48, 64)
SAID = {'policy': 'act', 'task': 'stack', 'outcome': 'success'}


def pose(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> np.ndarray[Any, Any]:
    matrix = np.eye(4)
    matrix[:3, :3] = [[0, -1, 0], [-1, 0, 0], [0, 0, -1]]  # looks down
    matrix[:3, 3] = x, y, z
    return matrix


def steps_seen(camera: np.ndarray[Any, Any], k: np.ndarray[Any, Any], shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Depth (H, W) of a floor at z = 0 with a box of 0.2 m at x, y in 0..0.3, as a camera that looks down has it."""
    v, u = np.mgrid[0 : shape[0], 0 : shape[1]].astype(float)
    rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(shape)], axis=-1)
    height = camera[2, 3]
    top = camera[:3, 3] + (rays * (height - 0.2)) @ camera[:3, :3].T
    on_box = ((top[..., :2] > 0) & (top[..., :2] < 0.3)).all(axis=-1)
    return np.where(on_box, height - 0.2, height).astype(np.float32)


def view(name: str, matrix: np.ndarray[Any, Any], shade: int) -> View:
    rgb = np.full((*SHAPE, 3), shade, np.uint8)
    rgb[:10, :20] = (200, 10, 30)
    return View(rgb, steps_seen(matrix, K, SHAPE), Camera(name, K, matrix, SHAPE[1], SHAPE[0]), 0.0)


def scene(shade: int) -> dict[str, View]:
    return {'front': view('front', pose(z=1.0), shade), 'side': view('side', pose(x=0.1, z=1.2), shade)}


def imported(
    bag: Path, to: Path, *, columns: dict[str, str] | None = None, **settings: str
) -> tuple[KeptViews, ImportAccount]:
    source = open_source(bag, ImportOptions(defaults={**SAID, **settings}, columns=columns or {}))
    import_into(to, source)
    store = read_store(to)
    (episode,) = store.episodes()
    kept = kept_views(store.path / 'media', *episode.key)
    assert kept is not None, [str(e) for e in source.ledger.dropped]
    return kept, source.ledger


@pytest.mark.parametrize('form', ['mcap', 'sqlite3', 'ros1', 'compressed'])
def test_views_of_a_bag_are_kept_as_they_were_recorded(tmp_path: Path, form: str) -> None:
    ros = Messages(is_ros1=form == 'ros1')
    start, end = scene(90), scene(120)
    path = tmp_path / ('run.bag' if form == 'ros1' else 'run')
    storage = StoragePlugin.SQLITE3 if form == 'sqlite3' else StoragePlugin.MCAP
    ros.write(path, driver_rows(ros, start, end, is_compressed=form == 'compressed'), storage=storage)
    kept, ledger = imported(path, tmp_path / 'store')
    for name, truth, t_s in ((START, start, 0.0), (END, end, 5 * FRAME_NS / 1e9)):
        moment = kept.moment(name)
        assert set(moment) == {'front', 'side'}
        for camera, seen in moment.items():
            assert np.array_equal(seen.rgb, truth[camera].rgb)
            assert np.nanmax(np.abs(seen.depth_m - truth[camera].depth_m)) < 6e-4
            assert seen.camera.world_from_camera == pytest.approx(truth[camera].camera.world_from_camera, abs=1e-9)
            assert seen.camera.intrinsics_px == pytest.approx(K)
            assert seen.t_s == pytest.approx(t_s, abs=1e-9)
    assert not kept.names, 'only start and end unless more is asked for'
    assert any('--set known=' in hint for hint in ledger.hints)


def test_moments_between_are_kept_at_the_rate_that_was_asked_for(tmp_path: Path) -> None:
    ros = Messages()
    bag = ros.write(tmp_path / 'run', driver_rows(ros, scene(90), scene(120), frames=31))
    kept, _ = imported(bag, tmp_path / 'store', rgbd='5')
    assert len(kept.names) == 4, kept.names
    assert kept.moment(kept.names[0])['front'].t_s == pytest.approx(0.2, abs=0.04)


def test_images_without_a_partner_are_counted_and_make_no_view(tmp_path: Path) -> None:
    ros = Messages()
    rows = driver_rows(ros, scene(90), scene(120), frames=6)
    lost = [START_NS + i * FRAME_NS + 4_000_000 for i in (0, 5)]
    rows = [row for row in rows if not ('/side/aligned' in row[0] and row[2] in lost)]
    kept, ledger = imported(ros.write(tmp_path / 'run', rows), tmp_path / 'store')
    (dropped,) = (e for e in ledger.dropped if 'colour images of side' in e.what)
    assert (dropped.count, dropped.why) == (2, 'no depth image within 0.034 s')
    assert kept.moment(START)['side'].t_s == pytest.approx(FRAME_NS / 1e9)
    assert kept.moment(END)['front'].t_s == pytest.approx(4 * FRAME_NS / 1e9)


def test_depth_that_is_late_throughout_is_refused_by_its_topics(tmp_path: Path) -> None:
    ros = Messages()
    rows = [r for r in driver_rows(ros, scene(90), scene(120), frames=2) if '/aligned' not in r[0]]
    rows += [(t, n, at + 10 * FRAME_NS, m) for t, n, at, m in _late(ros) if '/aligned' in t]
    bag = ros.write(tmp_path / 'run', rows)
    with pytest.raises(
        InputError, match=r'no colour image on /front/color/image_raw has a depth image .* within 0.034'
    ):
        imported(bag, tmp_path / 'store', rgbd='ends', world='base_link')


def _late(ros: Messages) -> Rows:
    rows = []
    for topic, kind, at, message in driver_rows(ros, scene(90), scene(120), frames=2):
        if '/aligned' in topic:
            message.header.stamp.nanosec += 10 * FRAME_NS
        rows.append((topic, kind, at, message))
    return rows


def test_a_camera_that_nothing_places_is_named_and_a_calibration_file_places_it(tmp_path: Path) -> None:
    ros = Messages()
    bag = ros.write(tmp_path / 'run', driver_rows(ros, scene(90), scene(120), has_tf=False))
    source = open_source(bag, ImportOptions(defaults=SAID))
    import_into(tmp_path / 'without', source)
    assert any('where camera front stood is not in the bag' in e.why for e in source.ledger.dropped)
    cameras = tmp_path / 'cameras.json'
    poses = {n: CameraPose(world_from_camera=tuple(pose(z=z).ravel())) for n, z in (('front', 1.0), ('side', 1.5))}
    cameras.write_text(camera_poses_json(poses))
    kept, _ = imported(bag, tmp_path / 'store', calibration=str(cameras))
    assert kept.moment(END)['side'].camera.world_from_camera == pytest.approx(pose(z=1.5))
    cameras.write_text(camera_poses_json({'elsewhere': poses['front']}))
    with pytest.raises(InputError, match=r'no camera in .* named'):
        imported(bag, tmp_path / 'other', calibration=str(cameras))
    cameras.write_text(json.dumps({'cameras': {'front': {'world_from_camera': [1.0] * 16}}}))
    with pytest.raises(InputError, match='not a rotation'):
        imported(bag, tmp_path / 'other', calibration=str(cameras))


def test_a_camera_on_the_gripper_is_where_the_gripper_was(tmp_path: Path) -> None:
    ros = Messages()
    rows = driver_rows(ros, {'wrist': view('wrist', pose(), 90)}, {'wrist': view('wrist', pose(), 90)}, has_tf=False)
    for i in range(7):
        at = START_NS + i * FRAME_NS
        rows.append(('/tf', 'tf2_msgs/msg/TFMessage', at, ros.tf('tool0', 'base', pose(x=0.1 * i, z=0.5), at)))
    cameras = tmp_path / 'cameras.json'
    mount = np.eye(4)
    mount[0, 3] = 0.05
    cameras.write_text(camera_poses_json({'wrist': CameraPose(gripper_from_camera=tuple(mount.ravel()))}))
    kept, _ = imported(ros.write(tmp_path / 'run', rows), tmp_path / 'store', calibration=str(cameras))
    for name, i in ((START, 0), (END, 5)):
        seen = kept.moment(name)['wrist'].camera.world_from_camera
        assert seen == pytest.approx(pose(x=0.1 * i, z=0.5) @ mount, abs=1e-6)


# --- recordings of cameras alone

COLOR_K = np.array([[90.0, 0, 47.5], [0, 90, 35.5], [0, 0, 1]])
COLOR_SHAPE = (72, 96)
BESIDE = np.eye(4)
BESIDE[0, 3] = -0.02  # colour stands 2 cm to the right of depth


def color_view() -> tuple[View, np.ndarray[Any, Any]]:
    """What the colour camera sees, its depth for comparison, and what the depth camera beside it measures."""
    depth_pose = pose(x=0.15, y=0.15, z=1.0)
    color_pose = depth_pose @ np.linalg.inv(BESIDE)
    truth = steps_seen(color_pose, COLOR_K, COLOR_SHAPE)
    rgb = np.repeat((100 * truth).astype(np.uint8)[..., None], 3, axis=2)
    camera = Camera('device_0', COLOR_K, color_pose, COLOR_SHAPE[1], COLOR_SHAPE[0])
    return View(rgb, truth, camera, 0.0), steps_seen(depth_pose, K, SHAPE)


def _check_laid_on_color(seen: View, truth: View) -> None:
    """Depth lies on colour: within its steps but at the box's edges, and nothing of the floor shows through its top."""
    known = np.isfinite(seen.depth_m)
    assert known.mean() > 0.6
    off = np.abs(seen.depth_m - truth.depth_m)
    assert np.nanmedian(off) < 2e-4
    assert (off[known] < 1e-3).mean() > 0.94
    assert np.array_equal(seen.rgb, truth.rgb)


@pytest.mark.parametrize(
    ('option', 'appended'),
    [('Depth Units', 0.0), ('Depth_Units', 0.0), ('', 0.0001)],
    ids=['option', 'spelled', 'image'],
)
def test_a_file_of_realsenses_sdk_is_laid_on_colour_in_its_own_unit(
    tmp_path: Path, option: str, appended: float
) -> None:
    ros = Messages(is_ros1=True)
    truth, depth_m = color_view()
    rows = sdk_rows(ros, truth, depth_m=depth_m, depth_k=K, color_from_depth=BESIDE, option=option,
                    frame='1' if appended else '')  # fmt: skip
    bag = ros.write(tmp_path / 'camera.bag', rows, unit_m=appended)
    cameras = tmp_path / 'cameras.json'
    assert truth.camera.world_from_camera is not None
    cameras.write_text(
        camera_poses_json({'device_0': CameraPose(world_from_camera=tuple(truth.camera.world_from_camera.ravel()))})
    )
    kept, ledger = imported(bag, tmp_path / 'store', calibration=str(cameras))
    _check_laid_on_color(kept.moment(START)['device_0'], truth)
    assert any('times are log times' in note for note in ledger.notes)
    (episode,) = read_store(tmp_path / 'store').episodes()
    assert episode.steps == 4
    assert not any('/device_0' in e.what for e in ledger.dropped), 'nothing of the layout is left over'


def test_a_realsense_file_comes_in_by_the_verb(tmp_path: Path) -> None:
    ros = Messages(is_ros1=True)
    truth, depth_m = color_view()
    rows = sdk_rows(ros, truth, depth_m=depth_m, depth_k=K, color_from_depth=BESIDE, frame='1')
    ros.write(tmp_path / 'camera.bag', rows, unit_m=0.0001)
    pose_numbers = tuple(np.asarray(truth.camera.world_from_camera).ravel())
    (tmp_path / 'cameras.json').write_text(camera_poses_json({'device_0': CameraPose(world_from_camera=pose_numbers)}))
    said = [w for n, v in {**SAID, 'calibration': 'cameras.json'}.items() for w in ('--set', f'{n}={v}')]
    told = run(tmp_path, 'import', 'camera.bag', '--to', 'store', *said)
    assert 'RGB-D of device_0' in told
    assert 'depth in steps of 0.0001 m' in told


def test_orbbecs_driver_without_registration_is_laid_on_colour_by_tf(tmp_path: Path) -> None:
    ros = Messages()
    truth, depth_m = color_view()
    frames = {'color': 'camera_color_optical_frame', 'depth': 'camera_depth_optical_frame'}
    assert truth.camera.world_from_camera is not None
    link = pose(x=0.15, y=0.15, z=1.0)
    rows: Rows = [
        ('/tf_static', 'tf2_msgs/msg/TFMessage', START_NS, ros.tf('camera_link', 'base_link', link)),
        ('/tf_static', 'tf2_msgs/msg/TFMessage', START_NS, ros.tf(frames['depth'], 'camera_link', np.eye(4))),
        ('/tf_static', 'tf2_msgs/msg/TFMessage', START_NS,
         ros.tf(frames['color'], 'camera_link', np.linalg.inv(BESIDE))),
        ('/camera/color/camera_info', 'sensor_msgs/msg/CameraInfo', START_NS, ros.info(COLOR_K, COLOR_SHAPE)),
        ('/camera/depth/camera_info', 'sensor_msgs/msg/CameraInfo', START_NS, ros.info(K, SHAPE)),
    ]  # fmt: skip
    for i in range(4):
        at = START_NS + i * FRAME_NS
        rows.append(('/camera/color/image_raw', 'sensor_msgs/msg/Image', at,
                     ros.image(truth.rgb, 'rgb8', at, frames['color'])))  # fmt: skip
        rows.append(('/camera/depth/image_raw', 'sensor_msgs/msg/Image', at,
                     ros.image(millimetres(depth_m), '16UC1', at, frames['depth'])))  # fmt: skip
    kept, _ = imported(ros.write(tmp_path / 'run', rows), tmp_path / 'store')
    seen = kept.moment(END)['camera']
    _check_laid_on_color(seen, truth)
    assert seen.camera.world_from_camera == pytest.approx(truth.camera.world_from_camera, abs=1e-9)
    bare = [row for row in rows if row[0] != '/tf_static']
    with pytest.raises(InputError, match='is not aligned to /camera/color/image_raw'):
        imported(ros.write(tmp_path / 'bare', bare), tmp_path / 'none', world='base_link')


def test_a_file_of_orbbecs_own_sdk_is_named_with_what_to_record_instead(tmp_path: Path) -> None:
    ros = Messages(is_ros1=True)
    image_type = 'sensor_msgs/msg/Image'
    message = ros.image(np.zeros(SHAPE, '<u2'), 'mono16', 1, '')
    rows: Rows = [(f'/cam/sensor_{n}/frameType_{n}', image_type, START_NS, message) for n in (2, 3)]
    with pytest.raises(InputError, match=r"Orbbec's own SDK.*ros2 bag record"):
        imported(ros.write(tmp_path / 'orbbec.bag', rows), tmp_path / 'store')


# --- hostile files


def _changed(change: Callable[[str, Any], Any]) -> Rows:
    ros = Messages()
    return [(t, n, at, change(t, m) or m) for t, n, at, m in driver_rows(ros, scene(90), scene(120), frames=2)]


def _encoding(topic: str, message: Any) -> None:
    if topic == '/front/aligned_depth_to_color/image_raw':
        message.encoding = 'yuv422'


def _flat(topic: str, message: Any) -> None:
    if topic == '/front/color/camera_info':
        message.k[:] = 0


def _huge(topic: str, message: Any) -> None:
    if topic == '/front/aligned_depth_to_color/image_raw':
        message.height = message.width = 2**31


def _cut(topic: str, message: Any) -> None:
    if topic == '/front/aligned_depth_to_color/image_raw':
        message.data = message.data[:-100]


def _floats(topic: str, message: Any) -> Any:
    """Millimetres in a format whose unit is the metre."""
    if topic != '/front/aligned_depth_to_color/image_raw':
        return None
    pixels = message.data.view('<u2').reshape(SHAPE).astype('<f4')
    return Messages().image(pixels, '32FC1', START_NS, message.header.frame_id)


@pytest.mark.parametrize(
    ('change', 'match'),
    [
        (_encoding, "encoding 'yuv422'"), (_flat, 'not calibrated'), (_huge, '2147483648 x 2147483648'),
        (_cut, 'cut short'), (_floats, 'median of .* m, wanted 0.01 to 100'),
    ],
)  # fmt: skip
def test_views_that_cannot_be_right_are_refused_and_nothing_is_imported(
    tmp_path: Path, change: Callable[[str, Any], Any], match: str
) -> None:
    bag = Messages().write(tmp_path / 'run', _changed(change))
    with pytest.raises(InputError, match=match):
        imported(bag, tmp_path / 'store', world='base_link')
    assert not (tmp_path / 'store' / 'trial.json').exists() or not list(read_store(tmp_path / 'store').episodes())


def test_images_that_make_no_views_are_left_out_where_nobody_asked_for_views(tmp_path: Path) -> None:
    bag = Messages().write(tmp_path / 'run', _changed(_encoding))
    source = open_source(bag, ImportOptions(defaults=SAID))
    import_into(tmp_path / 'store', source)
    assert any("encoding 'yuv422'" in e.why for e in source.ledger.dropped)
    assert len(list(read_store(tmp_path / 'store').trajectories())) == 1


def test_a_depth_image_of_floats_that_was_compressed_is_in_metres() -> None:
    """compressed_depth_image_transport keeps floats as steps of inverse depth: 1 / (a / z + b)."""
    import io
    import struct

    from PIL import Image

    metres = np.linspace(0.5, 4.0, 48, dtype=np.float32).reshape(6, 8)
    a, b = 100.0 * 101.0, 1.0 - 101.0
    steps = np.round(a / metres + b).astype(np.uint16)
    stream = io.BytesIO()
    Image.fromarray(steps).save(stream, format='PNG')
    content = struct.pack('<iff', 1, a, b) + stream.getvalue()
    seen = image({'format': '32FC1; compressedDepth png', 'data': content})
    assert seen == pytest.approx(metres, rel=1e-3)


def test_a_bag_that_was_cut_off_gives_what_is_whole_of_it(tmp_path: Path) -> None:
    ros = Messages()
    bag = ros.write(tmp_path / 'run', driver_rows(ros, scene(90), scene(120), frames=100))
    (file,) = bag.glob('*.mcap')
    lone = tmp_path / 'cut.mcap'
    lone.write_bytes(file.read_bytes()[: int(0.7 * file.stat().st_size)])
    kept, ledger = imported(lone, tmp_path / 'store')
    assert any('was cut off' in note for note in ledger.notes)
    assert 0 < kept.moment(END)['front'].t_s < 99 * FRAME_NS / 1e9
    (tmp_path / 'cut.bag').write_bytes(b'#ROSBAG V2.0\n' + bytes(100))
    with pytest.raises(InputError, match='not readable as a ROS bag'):
        imported(tmp_path / 'cut.bag', tmp_path / 'other')


TASK = 'single_block'


def cell_bags(folder: Path, *, moved: bool = False) -> None:
    """A bag of the cell's own views in which the block ends at its goal, and one in which it began elsewhere."""
    from robotrials.worlds.cell import TabletopHost
    from robotrials.worlds.cell.scene import load_mujoco

    cell = TabletopHost(cameras=[], watchers=('front', 'side', 'gallery'), watcher_noise='default')
    cell.reset(TASK, seed=3)
    begun, mujoco = cell._begun(), load_mujoco()
    (folder / 'known.json').write_text(cell.known_scene().as_json())
    (goal,) = begun.layout.goals
    at = begun.scene.item_qpos[goal.item]
    first = begun.data.qpos[at : at + 7].copy()

    def seen(pose: np.ndarray[Any, Any], *, is_over: bool) -> dict[str, View]:
        begun.data.qpos[at : at + 7] = pose
        mujoco.mj_forward(begun.scene.model, begun.data)
        return dict(cell.views(is_over=is_over))

    ros, end = Messages(), seen(goal.pose, is_over=True)
    (folder / 'bags').mkdir()
    ros.write(folder / 'bags' / 'planned', driver_rows(ros, seen(first, is_over=False), end, frames=2))
    if moved:
        elsewhere = seen(first + np.array([0.05, 0, 0, 0, 0, 0, 0]), is_over=False)
        ros.write(folder / 'bags' / 'moved', driver_rows(ros, elsewhere, end, frames=2))
    cell.close()


def run(folder: Path, *arguments: object) -> str:
    command = [sys.executable, '-m', 'robotrials.cli', *map(str, arguments)]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return ' '.join(told.stdout.split())


SETTINGS = [w for n, v in {**SAID, 'task': TASK, 'known': 'known.json'}.items() for w in ('--set', f'{n}={v}')]


def test_what_a_bag_shows_is_scored_by_the_verb(tmp_path: Path) -> None:
    """The cell's own views go into a bag; the import is one command, and the score finds the block in its place."""
    cell_bags(tmp_path)
    assert 'moments of RGB-D' in run(tmp_path, 'import', 'bags/planned', '--to', 'store', *SETTINGS)
    (scored,) = json.loads(run(tmp_path, 'geometry', 'score', 'store', '--format', 'json', '--episodes'))[-1]['rows']
    assert scored['cameras'] == 'success', scored


@pytest.mark.platform
def test_resets_are_checked_and_cameras_placed_by_the_views_of_bags(tmp_path: Path) -> None:
    cell_bags(tmp_path, moved=True)
    run(tmp_path, 'import', 'bags', '--to', 'store', *SETTINGS)
    rows = json.loads(run(tmp_path, 'geometry', 'reset', 'store', '--format', 'json'))[0]['rows']
    faults = sorted(row['reset'] for row in rows)
    assert faults[0] == 'as planned', faults
    assert faults[1].startswith('reset: red_block moved by'), faults
    run(tmp_path, 'geometry', 'calibrate', 'store', 'front')
    placed = read_camera_poses(tmp_path / 'cameras.json')['front']
    store = read_store(tmp_path / 'store')
    kept = kept_views(store.path / 'media', *next(iter(store.episodes())).key)
    assert kept is not None
    truth = kept.moment(START)['front'].camera.world_from_camera
    assert truth is not None
    assert placed.matrix[:3, 3] == pytest.approx(truth[:3, 3], abs=0.01)
    assert placed.error_rad is not None
    assert placed.error_rad < np.radians(0.3)
    turned = np.eye(4)
    turned[:3, :3] = Rotation.from_rotvec(np.radians([1.0, -1.5, 0.5])).as_matrix()
    fit = fit_to_scene(
        [(_recalibrated(kept.moment(name)['front'], truth @ turned), kept.known()) for name in (START, END)]
    )
    left = np.linalg.inv(truth) @ fit.camera
    assert np.linalg.norm(Rotation.from_matrix(left[:3, :3]).as_rotvec()) < np.radians(0.3), 'of 1.9 degrees'
    assert np.degrees(fit.moved_rad) == pytest.approx(1.87, abs=0.3)


def _recalibrated(seen: View, pose: np.ndarray[Any, Any]) -> View:
    return dataclasses.replace(seen, camera=dataclasses.replace(seen.camera, world_from_camera=pose))


def test_views_without_a_known_scene_say_why_they_are_unscored(tmp_path: Path) -> None:
    ros = Messages()
    kept, _ = imported(
        ros.write(tmp_path / 'run', driver_rows(ros, scene(90), scene(120), frames=2)), tmp_path / 'store'
    )
    assert '--set known=' in score_kept(kept).reason
