"""robotrials geometry: success and placements by the kept RGB-D views alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.output import DetailsOption, FormatOption, analysis_progress, print_card, print_tables
from robotrials.cli.source import AlphaOption, BaselineOption, StorePath, WhereOption, open_analysis
from robotrials.errors import InputError, RobotrialsError, UnknownName

if TYPE_CHECKING:
    from robotrials.measure.geometry.place import CameraSite
    from robotrials.record import Store
    from robotrials.record.footage import CameraPose, KnownScene
    from robotrials.show.table import Table
    from robotrials.verdict.analysis import Analysis

MOST_SCENES = 12  # of a store's episodes, that cameras are placed for

geometry_app = typer.Typer(help='Success and placements by cameras.', no_args_is_help=True)


@geometry_app.callback()
def geometry() -> None:
    """Success and placements by cameras."""


def check_keeps_views(source: Path) -> None:
    """Refuse what is not a store: a file is read without its views, and what is written about it would be lost."""
    from robotrials.record.store import is_store

    if is_store(source):
        return
    from robotrials.cli.output import and_ask
    from robotrials.formats.catalog import candidates
    from robotrials.formats.imported import ImportOptions, import_command

    if source.is_file() or (source.is_dir() and candidates(source)):
        problem = f'{source}: not a store; cameras judge by views, which are kept in a store'
        raise InputError(and_ask(f'{problem}\nTry: {import_command(source, ImportOptions())}', source))


def _store_of(analysis: Analysis) -> Store:
    store = analysis.selection.store
    assert store is not None
    return store


@geometry_app.command('score')
def score_store(
    store: StorePath,
    where: WhereOption = None,
    baseline: BaselineOption = None,
    alpha: AlphaOption = None,
    episodes: Annotated[bool, typer.Option('--episodes', help='Also print one row per episode.')] = False,
    fresh: Annotated[bool, typer.Option('--fresh', help='Score every view again, ignoring saved scores.')] = False,
    write: Annotated[bool, typer.Option('--write', help='Keep the scores with the episodes, for reports.')] = False,
    by: Annotated[str, typer.Option('--by', help='Who does this; for the log.')] = '',
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Score episodes from their kept RGB-D views, and compare with the host.

    The recorded outcomes stay as they are: saved scores go into a separate file, with the digest of the views they were
    made from, and reports use them as long as views and method are the same.

    Example: `robotrials geometry score runs/may --write --by mara`
    """
    from robotrials.measure.geometry.projection import Rescoring, write_projection
    from robotrials.show.catalog import ShowRequest
    from robotrials.show.geometry import camera_card, camera_episodes, cameras
    from robotrials.verdict.analysis import present

    check_keeps_views(store)
    analysis = open_analysis(store, where, baseline=baseline, alpha=alpha)
    if not analysis.plan.success.wants_cameras:
        analysis = open_analysis(store, where, is_look=False, baseline=baseline, alpha=alpha, success='both')
    analysis.rescoring = Rescoring.ALL if fresh else Rescoring.MISSING
    request = ShowRequest(subject=analysis)
    part = present(analysis.cameras)
    print_card(
        lambda: camera_card(part), lambda: cameras(request), form, details=details,
        asked=camera_episodes(request) if episodes else (), analysis=analysis,
    )  # fmt: skip
    if write:
        path = write_projection(_store_of(analysis), analysis.episodes, present(analysis.camera_scores), by=by)
        typer.echo(f'wrote {path}', err=True)


@geometry_app.command('segment')
def segment_views(
    store: StorePath,
    using: Annotated[
        str, typer.Option('--using', help='A folder of masks, command:COMMAND, or the http address of a segmenter.')
    ],
    where: WhereOption = None,
    by: Annotated[str, typer.Option('--by', help='Who does this; for the log.')] = '',
) -> None:
    """Ask a segmenter which pixels belong to each object, and keep its masks with the views.

    Only objects with a shape are segmented, by their names. A folder must contain VIEW.NAME.png; a command is run as
    COMMAND PICTURE.png NAME MASK.png; an address is sent {"image": PNG in base64, "prompt": NAME}. Later scores use the
    masks, so scoring the views again needs no segmenter.

    Example: `robotrials geometry segment runs/may --using http://127.0.0.1:8080/segment --by mara`
    """
    from robotrials.measure.geometry.projection import segment_store

    check_keeps_views(store)
    analysis = open_analysis(store, where, is_look=False)
    opened = _store_of(analysis)
    show = analysis_progress()
    n = segment_store(opened, analysis.episodes, using, by=by, advance=lambda i, total: show('segmenting', i, total))
    typer.echo(f'kept masks of {n} episodes; to score them, run: robotrials geometry score {opened.path}')


@geometry_app.command('place')
def place(
    source: Annotated[Path, typer.Argument(help='A store that kept views, or the file of a scene (known.json).')],
    cameras: Annotated[int, typer.Option('--cameras', help='How many cameras to place.', min=1, max=8)] = 3,
    distance: Annotated[
        list[float] | None, typer.Option('--distance', help='Distance from the workspace, in metres.')
    ] = None,
    fovy: Annotated[float, typer.Option('--fovy', help='Vertical field of view, in degrees.')] = 45.0,
    seed: Annotated[int, typer.Option('--seed', help='Seed of the drawn arrangements.')] = 0,
    form: FormatOption = 'text',
) -> None:
    """Find camera positions that see most of the objects, wherever the task puts them.

    Objects are considered where they start, at their goals and in random arrangements inside a bin, with occlusion by
    fixed structures and other objects. For a store, the cameras that took its views are evaluated in the same way.

    Example: `robotrials geometry place runs/may --cameras 3 --set distance=0.9`
    """
    import numpy as np

    from robotrials.measure.geometry.place import Coverage, coverage, place_cameras
    from robotrials.show.table import Column, table

    known, standing = _scenes(source)
    rng = np.random.default_rng(seed)
    sites, covered, layouts, scene = place_cameras(
        known, cameras, rng=rng, distances_m=tuple(distance or (0.9, 1.2)), fovy_rad=math.radians(fovy)
    )
    rows: list[tuple[str, Coverage]] = [('placed', covered)]
    if standing:
        rows.insert(0, (f'as it is: {", ".join(s.name for s in standing)}', coverage(standing, layouts, scene)))
    share = '.1f'
    print_tables(
        [
            table(
                'What cameras see of the objects', ['cameras', *(Column(n, share) for n in (
                    'seen (%)', 'seen by two (%)', 'least of one object (%)', 'objects hardly seen (%)'))],
                [(n, 100 * c.seen, 100 * c.seen_twice, 100 * c.worst, 100 * c.hidden) for n, c in rows],
                note=f'{len(layouts)} arrangements; hardly seen is less than a quarter of an object',
            ),
            table(
                'Where to put them', ['camera', *(Column(n, '.3f') for n in ('x (m)', 'y (m)', 'z (m)')),
                *(Column(n, '.0f') for n in ('azimuth (deg)', 'down (deg)'))],
                [(f'camera {k}', *(float(v) for v in s.position_m), *_aim(s.world_from_camera[:3, 2]))
                 for k, s in enumerate(sites, start=1)],
                note='azimuth is the way it looks, from x towards y; down is below the level',
            ),
        ],
        form,
    )  # fmt: skip


@geometry_app.command('calibrate')
def calibrate(
    source: Annotated[Path, typer.Argument(help='A store with a recorded calibration, or a file of poses (JSON).')],
    camera: Annotated[str, typer.Argument(help='The name of the camera.')],
    mount: Annotated[str, typer.Option('--mount', help='What the camera is mounted on: world or gripper.')] = 'world',
    target: Annotated[
        str, typer.Option('--target', help="The store's signal with the target's pose as seen by the camera.")
    ] = '',
    out: Annotated[Path, typer.Option('--output', '-o', help='The file of camera poses to write or add to.')] = Path(
        'cameras.json'
    ),
    form: FormatOption = 'text',
) -> None:
    """Find a camera's pose, with its standard error, from a moving arm or from fixed structures in its views.

    A file has {"poses": [{"world_from_gripper": [16 numbers], "camera_from_target": [16 numbers]}, ...]}. With
    --target, the steps of a store's episodes are the poses: ee_pose, and the target as x y z qx qy qz qw. Without it,
    the kept views of a store are fitted to known fixed structures. The depth host and the import of bags read the
    resulting file.

    Example: `robotrials geometry calibrate runs/calibration front --target target --output cameras.json`
    """
    from robotrials.record.folder import write_durably
    from robotrials.record.footage import camera_poses_json, read_camera_poses

    if mount not in ('world', 'gripper'):
        raise InputError(f"--mount is {mount!r}, wanted 'world' or 'gripper'")
    known = read_camera_poses(out) if out.exists() else {}
    is_file = source.is_file()
    if target or is_file:
        pose, table = _by_hand_eye(source, camera, target, on_gripper=mount == 'gripper')
    elif mount == 'gripper':
        raise InputError('a camera on the gripper is calibrated by a target; say which signal has its pose: --target')
    else:
        pose, table = _by_scene(source, camera)
    write_durably(out, camera_poses_json({**known, camera: pose}).encode())
    print_tables([table], form)
    typer.echo(f'wrote {camera} to {out}', err=True)


def _by_hand_eye(source: Path, camera: str, target: str, *, on_gripper: bool) -> tuple[CameraPose, Table]:
    from robotrials.measure.geometry.hand_eye import read_poses, recorded_poses, solve_hand_eye
    from robotrials.record import read_store
    from robotrials.record.footage import CameraPose

    arm, seen = read_poses(source) if source.is_file() else recorded_poses(read_store(source), target)
    fit = solve_hand_eye(arm, seen, on_gripper=on_gripper)
    numbers = tuple(map(float, fit.camera.ravel()))
    pose = CameraPose(
        world_from_camera=() if on_gripper else numbers, gripper_from_camera=numbers if on_gripper else (),
        error_m=fit.error_m, error_rad=fit.error_rad, n_poses=fit.n_poses,
    )  # fmt: skip
    rows = [
        ('poses', float(fit.n_poses), ''), ('left out as seen wrong', float(fit.n_left_out), ''),
        ('residual (deg)', math.degrees(fit.residual_rad), 'rms'), ('residual (mm)', 1000 * fit.residual_m, 'rms'),
    ]  # fmt: skip
    return pose, _calibration_table(camera, 'gripper' if on_gripper else 'world', fit.camera, pose, rows)


def _by_scene(source: Path, camera: str) -> tuple[CameraPose, Table]:
    from robotrials.measure.geometry.hand_eye import fit_to_scene
    from robotrials.record import read_store
    from robotrials.record.footage import START, CameraPose, kept_views

    store = read_store(source)
    kept = (kept_views(store.path / 'media', *e.key) for e in store.episodes() if e.is_valid)
    whole = [k for k in kept if k is not None and k.has_ends][:MOST_SCENES]
    views = [(k.moment(START), k.known()) for k in whole]
    if not views:
        raise InputError(
            f'{source}: no episode kept RGB-D views with what is known of their scene; for a recording of an arm and a '
            'target, name the signal of its pose: --target SIGNAL'
        )
    if camera not in views[0][0]:
        raise UnknownName(f'camera of {source}', camera, views[0][0])
    fit = fit_to_scene([(moment[camera], known) for moment, known in views if camera in moment])
    pose = CameraPose(
        world_from_camera=tuple(map(float, fit.camera.ravel())), error_m=fit.error_m, error_rad=fit.error_rad,
        n_poses=fit.n_views,
    )  # fmt: skip
    rows = [('views', float(fit.n_views), ''), ('views refused', float(fit.n_refused), ''),
            ('moved (deg)', math.degrees(fit.moved_rad), 'from the pose it was recorded with'),
            ('moved (mm)', 1000 * fit.moved_m, '')]  # fmt: skip
    return pose, _calibration_table(camera, 'world', fit.camera, pose, rows)


def _calibration_table(
    camera: str, parent: str, matrix: Any, pose: CameraPose, rows: list[tuple[str, float, str]]
) -> Table:
    from robotrials.show.table import Column, table

    x, y, z = (1000 * float(v) for v in matrix[:3, 3])
    rows = [
        (f'x in {parent} (mm)', x, ''), (f'y in {parent} (mm)', y, ''), (f'z in {parent} (mm)', z, ''),
        ('standard error (mm)', 1000 * (pose.error_m or 0.0), 'of its place'),
        ('standard error (deg)', math.degrees(pose.error_rad or 0.0), 'of its turn'), *rows,
    ]  # fmt: skip
    return table(
        f'Camera {camera}', ['quantity', Column('value', '.3f'), 'note'], [(n, v, note or None) for n, v, note in rows]
    )


@geometry_app.command('reset')
def reset(
    store: StorePath,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Check from the first kept views whether each episode began as planned, and what moved, turned or is missing.

    This is the check that the depth host makes before an episode, for recordings that were imported without it. Nothing
    is changed: to set such an episode aside, use `robotrials store edit`.

    Example: `robotrials geometry reset runs/may`
    """
    from robotrials.record.footage import START, kept_views
    from robotrials.show.table import table
    from robotrials.worlds.depth import reset_fault

    check_keeps_views(store)
    analysis = open_analysis(store, where, is_look=False)
    opened = _store_of(analysis)
    show, rows = analysis_progress(), []
    episodes = [e for e in analysis.episodes if e.is_valid]
    for number, episode in enumerate(episodes, start=1):
        kept = kept_views(opened.path / 'media', *episode.key)
        if kept is None or not kept.has_ends:
            fault = 'not checked: no RGB-D views with what is known of the scene were kept'
        else:
            try:
                fault = reset_fault(kept.moment(START), kept.known()) or 'as planned'
            except RobotrialsError as error:
                fault = f'not checked: {error}'
        rows.append((episode.episode_id[:12], episode.policy, episode.task, fault))
        show('looking', number, len(episodes))
    print_tables([table('Resets by cameras', ['episode', 'policy', 'task', 'reset'], rows)], form)


def _aim(ahead: Any) -> tuple[float, float]:
    return math.degrees(math.atan2(ahead[1], ahead[0])) % 360, math.degrees(math.asin(-ahead[2]))


def _scenes(source: Path) -> tuple[list[KnownScene], list[CameraSite]]:
    """What is known of the scenes of a store's first episodes and where its cameras stand, or one scene's file."""
    from robotrials.measure.geometry.place import site_of
    from robotrials.record import read_store
    from robotrials.record.footage import START, kept_views, read_known

    if source.is_file():
        return [read_known(source.read_bytes(), where=str(source))], []
    store = read_store(source)
    kept = [kept_views(store.path / 'media', *e.key) for e in store.episodes() if e.is_valid]
    whole = [k for k in kept if k is not None and k.has_ends][:MOST_SCENES]
    if not whole:
        raise InputError(f'{source}: no episode kept RGB-D views; give the file of a scene (known.json) instead')
    standing = [site_of(name, view) for name, view in whole[0].moment(START).items()]
    return [k.known() for k in whole], standing
