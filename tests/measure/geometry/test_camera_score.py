"""Scores from cameras alone: calibrations found and corrected, what cannot be told left untold, files that last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('mujoco')
from tests.measure.geometry.camera_study import DEGREES, measure, noisy, study_host, study_row, taken, turned

from robotrials.measure.geometry import Box
from robotrials.measure.geometry.calibration import (
    CalibrationStanding,
    check_calibration,
    fit_edges,
    flattened,
    upright,
)
from robotrials.measure.geometry.camera_score import (
    ColourPatch,
    ViewCount,
    region_verdict,
    score_episode,
    static_scene,
    unscored,
)
from robotrials.measure.geometry.fit import refine_box, rotation_of
from robotrials.measure.geometry.mask import ObjectModel, StaticScene, color_masks, supported_masks
from robotrials.measure.geometry.projection import Rescoring, camera_scores, read_projections, write_projection
from robotrials.record import Outcome, Store
from robotrials.record.footage import END, START, KnownScene, View, pack_views
from robotrials.run.host import Setup
from robotrials.worlds.cell.host import TabletopHost


@pytest.fixture(scope='module')
def host() -> Iterator[TabletopHost]:
    cell = study_host()
    yield cell
    cell.close()


@pytest.fixture(scope='module')
def watched() -> Iterator[TabletopHost]:
    cell = TabletopHost(state='privileged', watchers=('front', 'side'))
    yield cell
    cell.close()


def test_closed_form_depth_is_the_renderers(host: TabletopHost) -> None:
    """Slab intersection of the known boxes against OpenGL's depth buffer, wherever nothing else stands."""
    host.reset('single_block', seed=4)
    scene = static_scene(host.known_scene())
    for view in taken(host):
        apart = np.abs(scene.depth(view) - view.depth_m)
        assert np.mean(apart < 1e-4) > 0.8
        assert np.median(apart) < 1e-5


def test_distances_of_a_scene_are_those_of_its_boxes() -> None:
    scene = StaticScene((Box((0, 0, 0), (1, 1, 1)), Box((3, 0, 0), (1, 1, 1))), floor_z_m=-2.0)
    points = np.array([[0, 0, 1.0], [3, 0, 0.75], [1.0, 0, 0], [9, 9, -1.5], [0, 0, 0.4]])
    distance, gradient = scene.distance(points)
    assert distance == pytest.approx([0.5, 0.25, 0.5, 0.5, -0.1])
    assert gradient[0] == pytest.approx([0, 0, 1])
    assert gradient[2] == pytest.approx([1, 0, 0])


@pytest.mark.parametrize('degrees', [1.0, 3.5])
def test_a_turned_camera_is_found_and_corrected(host: TabletopHost, degrees: float) -> None:
    host.reset('two_block', seed=11)
    scene = static_scene(host.known_scene())
    rng = np.random.default_rng(8)
    for view in taken(host):
        check = check_calibration(turned(noisy(view, 'default', rng), degrees, rng), scene)
        assert check.standing is CalibrationStanding.CORRECTED
        assert np.degrees(check.angle_rad) == pytest.approx(degrees, abs=0.45)
        left = check.view.base_from_camera[:3, :3] @ view.base_from_camera[:3, :3].T
        assert np.degrees(np.arccos((np.trace(left) - 1) / 2)) < 0.5


def test_a_sound_camera_raises_no_alarm_and_a_lost_one_is_refused(host: TabletopHost) -> None:
    host.reset('two_block', seed=12)
    scene = static_scene(host.known_scene())
    rng = np.random.default_rng(9)
    view = noisy(taken(host)[0], 'default', rng)
    assert check_calibration(view, scene).standing is CalibrationStanding.SOUND
    lost = check_calibration(turned(view, 25.0, rng), scene)
    assert lost.standing is CalibrationStanding.REFUSED
    assert 'camera front' in lost.reason


def test_a_print_of_the_objects_colour_is_not_the_object(host: TabletopHost) -> None:
    """Paint a patch of the table red: colour alone takes it, difference to the empty scene does not."""
    host.reset('single_block', seed=5)
    scene = static_scene(host.known_scene())
    view = taken(host)[0]
    rgb = view.rgb.copy()
    rgb[150:170, 20:50] = (204, 33, 31)
    painted = replace(view, rgb=rgb)
    model = ObjectModel('red_block', (204, 33, 31), (0.04, 0.04, 0.04))
    assert color_masks([painted], model)['front'][155:165, 25:45].all()
    kept = supported_masks([painted], model, scene, tolerance_m=0.006)['front']
    assert not kept[150:170, 20:50].any()
    assert kept.any()


def views_of(host: TabletopHost) -> dict[str, View]:
    return dict(host.views(is_over=True))


def test_an_untouched_block_is_no_success_and_says_where_it_is(watched: TabletopHost) -> None:
    watched.reset('single_block', seed=21)
    score = score_episode(watched.views(), views_of(watched), watched.known_scene())
    assert score.success is False
    assert score.confidence >= 0.5
    assert score.iou == pytest.approx(0.0, abs=0.05)


def test_a_block_on_its_target_is_a_success(watched: TabletopHost) -> None:
    watched.reset('single_block', seed=22)
    known = watched.known_scene()
    moved = replace(known.goals[0], box=known.objects[0].start)
    score = score_episode(watched.views(), views_of(watched), replace(known, goals=(moved,)))
    assert score.success is True
    assert score.iou is not None
    assert score.iou > 0.7  # of where it was drawn; it slid a little with the stage


def test_what_cannot_be_seen_is_unscored_and_no_failure(watched: TabletopHost) -> None:
    watched.reset('single_block', seed=23)
    blind = {n: View(v.rgb, np.full_like(v.depth_m, np.nan), v.camera, v.t_s) for n, v in watched.views().items()}
    score = score_episode(blind, blind, watched.known_scene())
    assert score.success is None
    assert 'camera front' in score.reason
    nothing = score_episode(blind, blind, KnownScene(objects=()))
    assert nothing.success is None
    assert 'stands fixed' in nothing.reason


def shown(inside: int, outside: int = 0, *, hidden: float = 0.0, beyond_m: float = -0.1) -> ViewCount:
    pieces = [ColourPatch(1.1, 1.0, beyond_m)] * inside + [ColourPatch(0.9, 0.0, 0.1)] * outside
    return ViewCount('a view', tuple(pieces), hidden, 0.7)


@pytest.mark.parametrize(
    ('views', 'reached'),
    [([shown(3), shown(3)], True), ([shown(3), shown(2)], True), ([shown(2), shown(3)], None),
     ([shown(2), shown(3), shown(3)], True), ([shown(2, 1), shown(2)], False), ([shown(2, 1), shown(3)], None),
     ([shown(2), shown(2)], False), ([shown(2)], None), ([shown(2), shown(1)], None),
     ([shown(2, 2), shown(2, 1)], False), ([shown(3, 1), shown(3)], None), ([shown(2), shown(2), shown(3)], None),
     ([shown(3, hidden=0.3), shown(2, 1), shown(2, 1)], False)],
)  # fmt: skip
def test_views_that_account_for_every_object_decide(views: list[ViewCount], reached: bool | None) -> None:
    """The steepest first: what one view shows of three objects inside and elsewhere, and what may be said of it."""
    score = region_verdict(views, 3, 'objects')
    assert score.reached is reached
    if reached is None:
        assert 'of 3' in score.reason


@pytest.mark.parametrize(
    ('views', 'why'),
    [([], 'at the start'), ([shown(3, hidden=0.4)], '40 % of the region is hidden'),
     ([shown(3, beyond_m=0.002)], 'border')],
)  # fmt: skip
def test_a_region_that_no_view_can_count_says_why(views: list[ViewCount], why: str) -> None:
    score = region_verdict(views, 3, 'objects')
    assert score.reached is None
    assert why in score.reason


def test_objects_that_touch_show_one_piece_of_twice_the_size() -> None:
    pair = ViewCount('a view', (ColourPatch(1.8, 1.0, -0.1), ColourPatch(1.1, 1.0, -0.05)), 0.0, 0.7)
    astride = ViewCount('a view', (ColourPatch(2.1, 0.5, 0.0), ColourPatch(1.1, 1.0, -0.05)), 0.0, 0.7)
    assert (pair.n_inside, pair.n_outside) == (3, 0)
    assert (astride.n_inside, astride.n_outside) == (2, 1)


@pytest.fixture(scope='module')
def bins() -> Iterator[TabletopHost]:
    cell = TabletopHost(state='privileged', watchers=('front', 'side', 'gallery'), watcher_noise='default')
    yield cell
    cell.close()


APART = ((0.45, -0.22, 0.1), (0.55, -0.15, 0.9), (0.42, -0.12, 2.0))


@pytest.mark.parametrize('stratum', ['block', 'spoon', 'battery', 'scissors'])
@pytest.mark.parametrize(
    ('places', 'reached'),
    [(APART, True), ((APART[0], APART[1], (0.42, -0.02, 1.6)), False), ((APART[0], APART[1], (0.5, 0.2, 0.5)), False),
     ((APART[0], APART[1], (0.5, 2.0, 0.0)), False)],
    ids=['inside', 'beside the wall', 'in the source', 'gone'],
)  # fmt: skip
def test_a_bin_is_counted_as_it_is(
    bins: TabletopHost, stratum: str, places: tuple[tuple[float, float, float], ...], reached: bool
) -> None:
    """Objects laid by hand into the bin, just beside its wall, into the source bin, and off the table."""
    bins.prepare(Setup(task='bin_to_bin', seed=31, stratum=stratum, items=3))
    bins.reset('bin_to_bin', seed=31)
    known, before = bins.known_scene(), bins.views()
    lay(bins, places)
    score = score_episode(before, views_of(bins), known)
    assert score.success is reached, score.reason


def test_blocks_that_touch_in_the_bin_are_counted_by_their_size(bins: TabletopHost) -> None:
    bins.prepare(Setup(task='bin_to_bin', seed=32, stratum='block', items=3))
    bins.reset('bin_to_bin', seed=32)
    known, before = bins.known_scene(), bins.views()
    lay(bins, ((0.45, -0.2, 0.0), (0.4865, -0.2, 0.0), (0.57, -0.1, 0.4)))
    assert score_episode(before, views_of(bins), known).success is True
    lay(bins, ((0.45, -0.2, 0.0), (0.4865, -0.2, 0.0), (0.3, -0.4, 0.4)))
    assert score_episode(before, views_of(bins), known).success is False


def lay(host: TabletopHost, places: tuple[tuple[float, float, float], ...]) -> None:
    """Put the items at (x, y, yaw), each on what is below it: a bin's floor, the table, or the floor of the room."""
    start = host._begun()
    for (name, address), (x, y, yaw) in zip(start.scene.item_qpos.items(), places, strict=True):
        half = start.layout.scene.item_types[name].half_height_m
        base = -0.75 if y > 1 else 0.016 if 0.05 < y < 0.31 else 0.004 if -0.31 < y < -0.05 and x > 0.35 else 0.0
        pose = [x, y, base + half, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]
        start.data.qpos[address : address + 7] = pose


def test_a_projection_is_used_as_long_as_its_views_are_the_same(
    watched: TabletopHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robotrials.measure.geometry import projection
    from robotrials.record import Episode

    monkeypatch.setenv('ROBOTRIALS_CACHE', str(tmp_path / 'cache'))

    watched.reset('single_block', seed=24)
    files = {
        'rgbd/known.json': watched.known_scene().as_json().encode(), START: pack_views(watched.views()),
        END: pack_views(views_of(watched)),
    }  # fmt: skip
    store = Store.create(tmp_path / 'store')
    episode = Episode(policy='a', task='single_block', outcome=Outcome.TIMEOUT, duration_s=1.0, success=False, seed=1)
    other = Episode(policy='a', task='single_block', outcome=Outcome.TIMEOUT, duration_s=1.0, success=False, seed=2)
    media = {f'episodes/{episode.episode_id}-0/{name}': content for name, content in files.items()}
    store.append([episode, other], media=media)
    scores = camera_scores(store, [episode, other])
    assert scores[episode.key].success is False
    assert scores[other.key].reason == 'no RGB-D was kept'
    with monkeypatch.context() as context:  # kept in the user's cache, while the bytes of its views are the same
        context.setattr(projection, 'score_episode', lambda *_, **__: unscored('worked out again'))
        assert camera_scores(store, [episode, other]) == scores
        assert camera_scores(store, [episode], rescoring=Rescoring.ALL)[episode.key].reason == 'worked out again'
        view = store.path / 'media' / f'episodes/{episode.episode_id}-0' / END
        content = view.read_bytes()
        view.chmod(0o644)
        view.write_bytes(content + b' ')
        assert camera_scores(store, [episode])[episode.key].reason == 'worked out again'
        view.write_bytes(content)
    camera_scores(store, [episode], rescoring=Rescoring.ALL)
    write_projection(store, [episode, other], scores, by='me')
    known = read_projections(store)
    assert list(known.values()).count(scores[episode.key]) == 1
    assert camera_scores(store, [episode, other]) == scores
    assert [e.success for e in store.episodes()] == [False, False]


@pytest.mark.parametrize(('lean_deg', 'stands'), [(0, True), (5, True), (16, False), (25, False)])
def test_a_box_stands_unless_it_clearly_leans(lean_deg: float, stands: bool) -> None:
    """Three faces of a cube with 2 mm of noise: a lean that noise could make is taken away, a clear one stays."""
    rng = np.random.default_rng(4)
    turn = rotation_of(np.radians([lean_deg, 0, 0])) @ rotation_of(np.array([0, 0, 0.5]))
    local = rng.uniform(-0.5, 0.5, (300, 3))
    local[np.arange(300), rng.choice(3, 300)] = 0.5
    points = 0.04 * local @ turn.T + rng.normal(0, 0.002, (300, 3))
    leaning = refine_box(points, Box((0, 0, 0), (0.04, 0.04, 0.04), turn), tolerance_m=0.009)
    box = upright(leaning, points, tolerance_m=0.009)
    assert (box is leaning) is not stands
    assert not stands or np.abs(box.rotation[2]).max() == pytest.approx(1)


def test_edges_find_a_turn_that_a_plane_does_not_show(host: TabletopHost) -> None:
    """About the table's normal, without any depth noise: the plane stays where it is, its edges do not."""
    host.reset('single_block', seed=6)
    scene = static_scene(host.known_scene())
    view = taken(host)[0]
    pose = view.base_from_camera.copy()
    pose[:3, :3] = rotation_of(np.radians([0, 0, 0.4])) @ pose[:3, :3]
    turn = fit_edges(replace(view, base_from_camera=pose), scene)
    assert turn is not None
    left = turn @ pose[:3, :3] @ view.base_from_camera[:3, :3].T
    assert np.degrees(np.arccos(np.clip((np.trace(left) - 1) / 2, -1, 1))) < 0.1


def test_a_picture_without_edges_is_left_to_its_depth(host: TabletopHost) -> None:
    host.reset('single_block', seed=6)
    scene = static_scene(host.known_scene())
    view = taken(host)[0]
    assert fit_edges(replace(view, rgb=np.full_like(view.rgb, 120)), scene) is None


def test_a_smooth_error_of_depth_is_taken_away(host: TabletopHost) -> None:
    """A warp of disparity over the whole picture: what is left on the table is a fraction of it."""
    host.reset('single_block', seed=7)
    scene = static_scene(host.known_scene())
    view = taken(host)[0]
    across = np.linspace(0, np.pi, view.depth_m.shape[1])[None, :]
    warped = replace(view, depth_m=(1 / (1 / view.depth_m + 0.005 * np.sin(across))).astype(np.float32))
    on_table = np.abs(scene.depth(view) - view.depth_m) < 1e-4
    before, after = (np.abs(v.depth_m - view.depth_m)[on_table] for v in (warped, flattened(warped, scene)))
    assert np.median(after) < 0.2 * np.median(before)


@pytest.mark.study
@pytest.mark.parametrize('noise', ['white', 'default'])
@pytest.mark.parametrize('degrees', DEGREES)
def test_no_wrong_box_is_trusted_up_to_two_degrees(host: TabletopHost, noise: str, degrees: float) -> None:
    """Fifty of the blocks of the table in docs/concepts/reconstruction-accuracy.md; `tools/camera_table.py` does all.

    Beyond two degrees wrong ones are only counted.
    """
    found = [f for seed in range(20000, 20017) for f in measure(host, seed, noise=noise, degrees=degrees)]
    print(noise, degrees, study_row(found))
    assert len(found) >= 50
    assert sum(f.is_trusted for f in found) >= 0.8 * len(found)
    if degrees <= 2:
        assert not [f for f in found if f.is_trusted and f.is_wrong]
