"""Objects as they are: shapes from files, masks from segmenters, registration that refuses, and goals over poses."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.measure.geometry.solid_study import (
    DISTORTION,
    FIXED,
    Scene,
    checked_scene,
    draw_scene,
    measure,
    models,
    obj_of,
    png_of,
    shapes,
)

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.measure.geometry import Box, RgbdView
from robotrials.measure.geometry.box import FloatArray
from robotrials.measure.geometry.mask import (
    MASKS,
    ORACLE,
    from_run_lengths,
    pack_masks,
    raised_parts,
    segmenter,
    to_run_lengths,
    unpack_masks,
)
from robotrials.measure.geometry.predicate import Reference, joint_poses, margin, score_pose
from robotrials.measure.geometry.projection import read_projections
from robotrials.measure.geometry.register import Registration, locate_part, locate_solid, orientations
from robotrials.measure.geometry.solid import (
    PlacedSolid,
    SolidModel,
    box_model,
    cloud_model,
    pack_solid,
    place,
    read_solid,
    solid_from_bytes,
    unpack_solid,
)
from robotrials.measure.geometry.view import distorted, rectified
from robotrials.record import Camera, Episode, Outcome, Store, read_store
from robotrials.record.footage import (
    END,
    KNOWN,
    START,
    KnownBox,
    KnownJoint,
    KnownObject,
    KnownScene,
    PoseGoal,
    View,
    pack_views,
)
from robotrials.run.host import Host
from robotrials.run.plan import RecordingOptions
from robotrials.run.recording import ViewKeeper

# --- shapes from files


def _box_files() -> dict[str, bytes]:
    """The bracket's mesh in every spelling that is read."""
    vertices, faces = shapes()['bracket']
    corners = vertices[faces]
    header = f'element vertex {len(vertices)}\nproperty float x\nproperty float y\nproperty float z\n'
    header += f'element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n'
    rows = '\n'.join(' '.join(f'{x:.6f}' for x in v) for v in vertices)
    text = f'ply\nformat ascii 1.0\n{header}{rows}\n' + '\n'.join(f'3 {a} {b} {c}' for a, b, c in faces)
    files = {'obj': obj_of(vertices, faces).encode(), 'ascii.ply': text.encode()}
    for name, order in (('little', '<'), ('big', '>')):
        body = vertices.astype(f'{order}f4').tobytes()
        body += b''.join(struct.pack(f'{order}B3i', 3, *f) for f in faces)
        files[f'{name}.ply'] = f'ply\nformat binary_{name}_endian 1.0\n{header}'.encode() + body
    facets = b''.join(struct.pack('<12fH', 0, 0, 0, *c.ravel(), 0) for c in corners)
    files['binary.stl'] = bytes(80) + struct.pack('<I', len(faces)) + facets
    lines = ['solid x']
    for c in corners:
        lines += ['facet normal 0 0 0', 'outer loop', *('vertex ' + ' '.join(map(str, v)) for v in c), 'endloop']
    files['text.stl'] = '\n'.join([*lines, 'endsolid']).encode()
    return files


@pytest.mark.parametrize('name', list(_box_files()))
def test_every_spelling_of_a_mesh_gives_the_same_solid(name: str, tmp_path: Path) -> None:
    path = tmp_path / f'bracket.{name.rpartition(".")[2]}'
    path.write_bytes(_box_files()[name])
    model = read_solid(path)
    assert model.size == pytest.approx([0.1, 0.05, 0.07], abs=2e-4)
    solid = place(model, np.eye(4))
    assert solid.contains(np.array([[-0.04, 0, 0.02], [0.03, 0, -0.025]])).all()
    assert not solid.contains(np.array([[0.03, 0, 0.02]])).any()  # the angle that the bracket leaves free
    inward = solid.contains(solid.points - 0.004 * solid.normals).mean()
    assert inward > 0.9 > 0.2 > solid.contains(solid.points + 0.004 * solid.normals).mean()


@pytest.mark.parametrize('name', list(_box_files()))
def test_a_file_cut_anywhere_is_refused_or_read_and_never_crashes(name: str) -> None:
    content = _box_files()[name]
    for end in range(0, len(content), max(1, len(content) // 9)):
        with contextlib.suppress(InputError):
            solid_from_bytes(content[:end], suffix=f'.{name.rpartition(".")[2]}', name='cut')


@pytest.mark.parametrize(
    ('text', 'match'),
    [
        ('v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9', 'names vertex 8 of 3'),
        ('v 0 0\n', 'line 1: a vertex of 2 numbers'),
        ('v 0 0 0\nf 1 0 1', 'line 2: a face'),
        ('v 0 0 0\nv 0 0 0\nv 0 0 0\nf 1 2 3', 'without any surface'),
    ],
)
def test_a_broken_mesh_says_what_is_wrong(text: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        solid_from_bytes(text.encode(), suffix='.obj', name='thing')
    with pytest.raises(InputError, match=r'wanted a shape as \.obj'):
        solid_from_bytes(b'', suffix='.glb', name='thing')


def test_a_scan_without_a_floor_is_filled() -> None:
    mesh = models()['bottle']
    on_table = mesh.points[mesh.points[:, 2] > mesh.points[:, 2].min() + 0.02 * mesh.size[2]]
    scan = cloud_model('bottle', on_table)
    filled = place(scan, np.eye(4))
    assert filled.contains(np.zeros((1, 3)))[0]
    assert scan.inside.sum() / mesh.inside.sum() == pytest.approx(1, abs=0.15)
    outward = scan.normals @ np.array([1.0, 0, 0]) * np.sign(scan.points[:, 0])
    assert (outward[np.abs(scan.points[:, 0]) > 0.3 * scan.size[0]] > 0).mean() > 0.97


def test_a_packed_shape_comes_back_and_a_damaged_one_is_refused() -> None:
    model = models()['mug']
    text = pack_solid(model)
    back = unpack_solid(text)
    assert np.abs(back.points - model.points).max() < 1e-4 * model.size.max()
    assert (back.inside == model.inside).all()
    assert back.n_scales == 1
    for damaged in (text[:-8], text[:40] + 'AAAA' + text[44:], '', 'nonsense'):
        with pytest.raises(InputError, match='not a shape'):
            unpack_solid(damaged)


def test_symmetries_are_found() -> None:
    known = models()
    assert len(box_model('cube', (0.05, 0.05, 0.05)).symmetry) >= 24
    assert len(known['bottle'].symmetry) == 24  # any turn about its axis, in steps of 15 degrees
    assert len(known['mug'].symmetry) == 1


def test_a_lens_is_undone() -> None:
    v, u = np.mgrid[0:96, 0:128]
    rgb = np.stack([128 + 60 * np.sin(u / 9), 128 + 60 * np.cos(v / 7), 0 * u], axis=-1).astype(np.uint8)
    k = np.array([[100, 0, 63.5], [0, 100, 47.5], [0, 0, 1.0]])
    view = RgbdView('a', rgb, (1 + u / 100).astype(np.float32), k, np.eye(4))
    back = rectified(distorted(view, DISTORTION, intrinsics_px=k, shape=(96, 128)), DISTORTION)
    inner = np.s_[12:-12, 16:-16]
    assert np.abs(back.rgb[inner].astype(int) - rgb[inner]).max() < 25
    assert np.nanmax(np.abs(back.depth_m[inner] - view.depth_m[inner])) < 0.031
    assert rectified(view, (0.0,) * 5) is view


# --- masks from segmenters


def test_run_lengths_come_back_and_short_ones_are_refused() -> None:
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (5, 7), (40, 31)):
        mask = rng.random(shape) < 0.4
        told = to_run_lengths(mask)
        assert (from_run_lengths(told, where='x') == mask).all()
        letters = {'size': told['size'], 'counts': _letters(told['counts'])}
        assert (from_run_lengths(letters, where='x') == mask).all()
    with pytest.raises(RobotrialsError, match='fill 3 of'):
        from_run_lengths({'size': [2, 2], 'counts': [1, 2]}, where='x')
    packed = pack_masks({'mug': {'left': mask}}, by='test')
    assert (unpack_masks(packed, where='x')[0]['mug']['left'] == mask).all()
    with pytest.raises(StoreError, match='not the masks'):
        unpack_masks(packed[:-9], where='x')


def _letters(counts: list[int]) -> str:
    """COCO's rleToString: differences from the third on, five bits a letter."""
    text = ''
    for i, count in enumerate(counts):
        x = count - counts[i - 2] if i > 2 else count
        more = True
        while more:
            c = x & 0x1F
            x >>= 5
            more = (x != -1) if c & 0x10 else (x != 0)
            text += chr((c | 0x20 if more else c) + 48)
    return text


@pytest.fixture(scope='module')
def served() -> Iterator[tuple[str, list[object]]]:
    """An endpoint that answers with what is put into the list."""
    answers: list[object] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
            assert (base64.b64decode(asked['image'])[:4], asked['prompt']) == (b'\x89PNG', 'mug')
            body = json.dumps(answers[0]).encode()
            self.send_response(200 if answers[0] != 'broken' else 500)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}/segment?model=sam', answers
    server.shutdown()
    server.server_close()


def test_segmenters_of_every_kind_give_the_same_mask(tmp_path: Path, served: tuple[str, list[object]]) -> None:
    mask = np.zeros((6, 8), dtype=np.bool_)
    mask[2:5, 3:7] = True
    view = RgbdView('left', np.zeros((6, 8, 3), dtype=np.uint8), np.ones((6, 8), np.float32), np.eye(3), np.eye(4))
    (tmp_path / 'left.mug.png').write_bytes(png_of(mask))
    np.save(tmp_path / 'left.npy', mask)
    script = tmp_path / 'segment.py'
    script.write_text(f'import shutil, sys; shutil.copy({str(tmp_path / "left.mug.png")!r}, sys.argv[3])')
    assert (segmenter(str(tmp_path))(view, 'mug') == mask).all()
    assert (segmenter(str(tmp_path))(view, 'cup') == mask).all()  # VIEW.npy is for any words
    assert (segmenter(f'command:{sys.executable} {script}')(view, 'mug') == mask).all()
    url, answers = served
    png, runs = base64.b64encode(png_of(mask)).decode(), to_run_lengths(mask)
    worse = to_run_lengths(~mask)
    for told in (
        {'mask': png}, {'mask': f'data:image/png;base64,{png}'}, {'masks': [png]}, {'masks': [runs], 'scores': [1]},
        {'masks': [worse, runs], 'scores': [0.1, 0.9]}, [{'segmentation': worse, 'predicted_iou': 0.2},
        {'segmentation': runs, 'predicted_iou': 0.8}],
    ):  # fmt: skip
        answers[:] = [told]
        assert (segmenter(url)(view, 'mug') == mask).all(), told
    answers[:] = [{'masks': []}]
    assert not segmenter(url)(view, 'mug').any()


def test_a_segmenter_that_fails_is_no_mask(tmp_path: Path, served: tuple[str, list[object]]) -> None:
    view = RgbdView('left', np.zeros((6, 8, 3), dtype=np.uint8), np.ones((6, 8), np.float32), np.eye(3), np.eye(4))
    url, answers = served
    for told, match in (
        ('broken', 'HTTP 500'), ({'error': 'no'}, 'no mask in the answer'), ({'mask': 'AAAA'}, 'not a PNG'),
        ({'mask': base64.b64encode(png_of(np.zeros((3, 3), bool))).decode()}, r'wanted \(6, 8\)'),
    ):  # fmt: skip
        answers[:] = [told]
        with pytest.raises(RobotrialsError, match=match):
            segmenter(url)(view, 'mug')
    with pytest.raises(RobotrialsError, match='wrote no mask'):
        segmenter(f'command:{sys.executable} -c "raise SystemExit(3)"')(view, 'mug')
    with pytest.raises(RobotrialsError, match='no such command'):
        segmenter('command:/nowhere/segment')(view, 'mug')
    with pytest.raises(RobotrialsError, match='no mask of'):
        segmenter(str(tmp_path))(view, 'mug')
    with pytest.raises(RobotrialsError, match='no segmenter'):
        segmenter(str(tmp_path / 'nothing'))


# --- registration


@pytest.fixture(scope='module')
def scenes() -> list[Scene]:
    known = models()
    return [draw_scene(seed, known) for seed in (100, 101, 103)]


def test_orientations_are_spread_evenly() -> None:
    turns = orientations(160)
    assert np.allclose(turns @ np.swapaxes(turns, 1, 2), np.eye(3))
    assert np.allclose(np.linalg.det(turns), 1)
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(200, 3, 3)))[0]
    q *= np.sign(np.linalg.det(q))[:, None, None]
    nearest = np.degrees(np.arccos(np.clip((np.einsum('aij,bij->ab', q, turns).max(axis=1) - 1) / 2, -1, 1)))
    assert nearest.max() < 50


def test_meshes_of_unknown_size_are_found_by_bad_cameras_and_other_shapes_are_refused(scenes: list[Scene]) -> None:
    known = models()
    names = list(known)
    for number, scene in enumerate(scenes):
        checked, masks = checked_scene(scene, number)
        found = measure(scene, checked, known[scene.shape], masks)
        assert not found.is_wrong, found
        assert not found.refusal, found
        assert (found.box_iou or 0) > 0.7
        assert (found.center_error_m or 1) < 0.008
        assert abs(found.size_error or 1) < 0.1
        other = names[(names.index(scene.shape) + 2) % len(names)]
        assert measure(scene, checked, known[other], masks).refusal


def test_without_masks_what_stands_out_of_the_scene_is_tried(scenes: list[Scene]) -> None:
    known = models()
    checked, _ = checked_scene(scenes[0], 0)
    parts = raised_parts(checked.views, checked.scene, tolerance_m=checked.tolerance_m)
    assert len(parts) >= 2  # the two objects, and rims of fixtures that noise has put above them
    found = measure(scenes[0], checked, known[scenes[0].shape], None)
    assert found.refusal or not found.is_wrong


def test_what_is_hidden_or_seen_through_is_refused(scenes: list[Scene]) -> None:
    """A mask of the table beside the object, and one of a corner of it alone, give no pose that is trusted."""
    known = models()
    scene = scenes[1]
    checked, masks = checked_scene(scene, 1)
    beside = {name: np.roll(mask, 60, axis=1) for name, mask in masks.items()}
    assert measure(scene, checked, known[scene.shape], beside).refusal
    corner = {}
    for name, mask in masks.items():
        rows, columns = np.nonzero(mask)
        part = np.zeros_like(mask)
        keep = (rows < np.quantile(rows, 0.3)) & (columns < np.quantile(columns, 0.5))
        part[rows[keep], columns[keep]] = True
        corner[name] = part
    assert measure(scene, checked, known[scene.shape], corner).refusal


class _WatchedHost(Host):
    """A host whose views bring the masks of its simulation along."""

    spec = None  # type: ignore[assignment]
    reset = step = outcome = None  # type: ignore[assignment]
    has_views = True  # type: ignore[assignment]

    def views(self, *, is_over: bool = False) -> dict[str, View]:
        rgb, depth = np.zeros((4, 5, 3), dtype=np.uint8), np.ones((4, 5), dtype=np.float32)
        camera = Camera('left', np.eye(3), np.eye(4), 5, 4)
        return {'left': View(rgb, depth, camera, 0.0, {'mug': rgb[..., 0] == (0 if is_over else 1)})}

    def known_scene(self) -> KnownScene:
        return KnownScene(objects=())


def test_a_simulations_own_masks_are_kept_of_the_end_and_say_whose_they_are() -> None:
    keeper = ViewKeeper(_WatchedHost(), RecordingOptions())
    keeper.begin()
    assert MASKS not in keeper.media
    keeper.end()
    masks, by = unpack_masks(keeper.media[MASKS], where='x')
    assert by == ORACLE
    assert masks['mug']['left'].all()


# --- goals over poses


def _standing(error_m: float = 0.003) -> Registration:
    pose = np.eye(4)
    pose[2, 3] = 0.06
    solid = place(box_model('carton', (0.07, 0.04, 0.12)), pose)
    return Registration(solid, 0.001, 1, 1, 0, 0, 0.5, 1, error_m, 0.03, 0.0, 3)


def test_goals_hold_or_not_and_are_untold_where_it_is_too_near() -> None:
    found = {'carton': _standing()}

    def asked(kind: str, **told: object) -> bool | None:
        return score_pose(PoseGoal(object='carton', kind=kind, **told), found).reached  # type: ignore[arg-type]

    def box(x: float, z: float, size: tuple[float, float, float]) -> KnownBox:
        return KnownBox(name='place', center_m=(x, 0.0, z), size_m=size)

    assert asked('upright') is True
    assert asked('upright', axis=(1.0, 0.0, 0.0)) is False
    assert asked('upright', limit=0.01) is None  # it may lean by more than that
    assert asked('on', place=box(0, -0.02, (0.3, 0.3, 0.04))) is True
    assert asked('on', place=box(0.4, -0.02, (0.3, 0.3, 0.04))) is False
    assert asked('on', place=box(0.15, -0.02, (0.3, 0.3, 0.04))) is None  # its middle is over the edge
    assert asked('in', place=box(0, 0.05, (0.2, 0.2, 0.2))) is True
    assert asked('in', place=box(0, 0.0, (0.2, 0.2, 0.06))) is False
    assert asked('within', place=box(0.05, 0.06, (0.1, 0.1, 0.1)), limit=0.08) is True
    assert asked('within', place=box(0.05, 0.06, (0.1, 0.1, 0.1)), limit=0.02) is False
    assert asked('within', place=box(0.05, 0.06, (0.1, 0.1, 0.1)), limit=0.051) is None
    with pytest.raises(InputError, match='wants a place, or another object'):
        PoseGoal(object='carton', kind='in')
    with pytest.raises(InputError, match="kind is 'under'"):
        PoseGoal(object='carton', kind='under', other='box')


def test_goals_about_an_anchor_move_with_what_they_belong_to() -> None:
    tray = replace(_standing(), solid=place(box_model('tray', (0.2, 0.2, 0.02)), _at(0.3, 0.0, -0.01)))
    found: dict[str, Registration | str] = {'carton': _standing(), 'tray': tray}

    def asked(kind: str, **told: object) -> bool | None:
        return score_pose(PoseGoal(object='carton', kind=kind, **told), found).reached  # type: ignore[arg-type]

    def place_at(x: float) -> KnownBox:
        return KnownBox(name='spot', center_m=(x, 0.0, 0.06), size_m=(0.1, 0.1, 0.1))

    assert asked('at', place=place_at(0.0)) is True
    assert asked('at', place=place_at(0.2)) is False
    assert asked('at', place=place_at(0.05)) is None, 'the anchor is on the border'
    upper = replace(place_at(0.0), center_m=(0.0, 0.0, 0.1))
    assert asked('at', place=upper, anchor_m=(0.0, 0.0, 0.03)) is None, 'a box upside down looks the same'
    assert asked('at', place=place_at(0.0), other='tray') is False, 'in the coordinates of the tray, 30 cm away'
    assert asked('at', place=place_at(-0.3), other='tray') is None, 'a square tray may be turned'
    assert asked('over', other='tray', limit=0.03) is False
    found['tray'] = replace(tray, solid=place(tray.solid.model, _at(0.01, 0.0, -0.01)))
    assert asked('over', other='tray', limit=0.03) is True
    assert asked('touching', other='tray') is True
    found['tray'] = replace(tray, solid=place(tray.solid.model, _at(0.01, 0.0, -0.06)))
    assert asked('over', other='tray', limit=0.03) is False, '5 cm above it, and held by nothing'
    found['tray'] = replace(tray, refusal='hidden')
    assert asked('over', other='tray', limit=0.03) is None
    with pytest.raises(InputError, match='at wants a place'):
        PoseGoal(object='carton', kind='at', other='tray')
    with pytest.raises(InputError, match='over wants another object'):
        PoseGoal(object='carton', kind='over', place=place_at(0.0), limit=0.1)


def _at(x: float, y: float, z: float) -> FloatArray:
    pose = np.eye(4)
    pose[:3, 3] = x, y, z
    return pose


def test_what_stands_fixed_is_touched_by_its_name() -> None:
    goal = PoseGoal(object='carton', kind='touching', other='stove')
    near, far = Box((0, 0, -0.05), (0.3, 0.3, 0.1)), Box((0, 0, -0.15), (0.3, 0.3, 0.1))
    assert score_pose(goal, {'carton': _standing()}, {'stove': [far, near]}).reached is True
    assert score_pose(goal, {'carton': _standing()}, {'stove': [far]}).reached is False
    unknown = score_pose(goal, {'carton': _standing()}, {'rack': [near]})
    assert unknown.reached is None
    assert 'stove' in unknown.reason


def test_a_part_is_found_along_its_joint_and_told_only_away_from_the_limit() -> None:
    known = models()
    scene = draw_scene(100, known)
    checked, masks = checked_scene(scene, 0)
    true, size = scene.truth.box, tuple(scene.truth.box.size.tolist())
    model = read_scaled(scene.truth)
    joint = KnownJoint(is_hinge=False, axis=(1.0, 0.0, 0.0), point_m=(0.0, 0.0, 0.0), low=0.0, high=0.2, start=0.0)
    closed = KnownBox(
        name='part', center_m=tuple((true.center - [0.12, 0, 0]).tolist()), size_m=size,
        rotation=tuple(true.rotation.ravel().tolist()),
    )  # fmt: skip
    part = KnownObject(name='part', start=closed, is_box=False, joint=joint)
    drawer = locate_part(checked, model, joint_poses(part, joint), masks=masks)
    assert drawer.joint is not None
    value, low, high = drawer.joint
    assert value == pytest.approx(0.12, abs=0.006)
    assert low < value < high < low + 0.04

    def asked(kind: str, limit: float) -> bool | None:
        return score_pose(PoseGoal(object='part', kind=kind, limit=limit), {'part': drawer}).reached

    assert asked('above', 0.05) is True
    assert asked('below', 0.05) is False
    assert asked('below', value) is None
    assert score_pose(PoseGoal(object='part', kind='above', limit=0.1), {'part': _standing()}).reached is None
    hinge = replace(joint, is_hinge=True, axis=(0.0, 0.0, 1.0), point_m=closed.center_m, high=3.2)
    half_turn = joint_poses(replace(part, joint=hinge), hinge)[3.2]
    assert half_turn[:3, 3] == pytest.approx(closed.center_m), 'a hinge through the middle moves it nowhere'


def read_scaled(truth: PlacedSolid) -> SolidModel:
    """A model of known size."""
    return replace(truth.model, points=truth.model.points * truth.scale, size=truth.box.size, n_scales=0)


def test_a_refused_pose_leaves_its_goals_unscored_with_the_reason() -> None:
    goal = PoseGoal(object='carton', kind='upright')
    score = score_pose(goal, {'carton': replace(_standing(), refusal='the views see through 20 % of it')})
    assert score.reached is None
    assert 'see through' in score.reason
    assert 'not known' in score_pose(goal, {}).reason
    assert margin('upright', _standing().solid, goal, Reference()) == pytest.approx(np.radians(15))


# --- a store, by the verbs


@pytest.fixture(scope='module')
def solid_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two episodes that ended with the same object on the table: it was to be there in the first alone."""
    folder = tmp_path_factory.mktemp('solids')
    known = models()
    scene = draw_scene(100, known)
    checked, masks = checked_scene(scene, 0)
    for name, mask in masks.items():
        (folder / f'{name}.{scene.shape}.png').write_bytes(png_of(mask))
    views = {
        v.name: View(v.rgb, v.depth_m.astype(np.float32), Camera(v.name, v.intrinsics_px, v.base_from_camera,
                     v.rgb.shape[1], v.rgb.shape[0]), 0.0) for v in checked.views
    }  # fmt: skip
    center = scene.truth.box.center
    fixed = tuple(
        KnownBox(name=f'f{k}', center_m=tuple(b.center.tolist()), size_m=tuple(b.size.tolist()))
        for k, b in enumerate(FIXED)
    )
    shape = pack_solid(known[scene.shape])
    store = Store.create(folder / 'store', trial_id='solids')
    for number, x in enumerate((float(center[0]), float(center[0]) + 0.3)):
        near = KnownBox(name='mat', center_m=(x, float(center[1]), float(center[2])), size_m=(0.1, 0.1, 0.1))
        told = KnownScene(
            objects=(KnownObject(name=scene.shape, start=fixed[0], is_box=False, shape=shape),),
            poses=(PoseGoal(object=scene.shape, kind='within', place=near, limit=0.05),), fixed=fixed, floor_z_m=-0.7,
        )  # fmt: skip
        episode = Episode(
            trial_id='solids', episode_id=f'e{number}', policy='p', benchmark='b', task='stand', duration_s=3.0,
            outcome=Outcome.SUCCESS if number == 0 else Outcome.FAILURE, success=number == 0, instance=number,
        )  # fmt: skip
        own = f'episodes/{episode.episode_id}-{episode.attempt}'
        files = {KNOWN: told.as_json().encode(), START: pack_views(views), END: pack_views(views)}
        store.append([episode], media={f'{own}/{name}': content for name, content in files.items()})
    return folder / 'store', folder


def test_a_store_is_segmented_once_and_scored_by_anyone(solid_store: tuple[Path, Path]) -> None:
    store, masks = solid_store

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, '-m', 'robotrials', *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert 'kept masks of 2 episodes' in run('geometry', 'segment', str(store), '--using', str(masks), '--by', 'test')
    assert 'kept masks of 0 episodes' in run('geometry', 'segment', str(store), '--using', str(masks))
    run('geometry', 'score', str(store), '--write', '--by', 'test')
    run('store', 'verify', str(store))
    opened = read_store(store)
    scores = read_projections(opened)
    assert {key[0]: score.success for key, score in scores.items()} == {'e0': True, 'e1': False}
    for score in scores.values():
        assert score.goals[0].size_m is not None
        assert 0 < (score.goals[0].error_m or 0) < 0.01
        assert 0 < (score.goals[0].error_size or 0) < 0.1


def test_locating_without_any_view_says_why(scenes: list[Scene]) -> None:
    checked, masks = checked_scene(scenes[0], 0)
    nothing = replace(checked, views=())
    with pytest.raises(RobotrialsError):
        locate_solid(nothing, models()[scenes[0].shape], masks=masks)
