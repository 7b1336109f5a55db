"""robotrials geometry: success and placements by the kept RGB-D views alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.output import DetailsOption, FormatOption, analysis_progress, check_form, print_card, print_tables
from robotrials.cli.source import AlphaOption, BaselineOption, StoreArgument, WhereOption, open_analysis
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.measure.geometry.place import CameraSite
    from robotrials.record.media import KnownScene
    from robotrials.show.table import Table

MOST_SCENES = 12  # of a store's episodes, that cameras are placed for

geometry_app = typer.Typer(help='Success and placements by cameras.', no_args_is_help=True)


@geometry_app.callback()
def geometry() -> None:
    """Success and placements by cameras."""


@geometry_app.command('score')
def score_store(
    store: StoreArgument,
    where: WhereOption = None,
    baseline: BaselineOption = None,
    alpha: AlphaOption = None,
    episodes: Annotated[bool, typer.Option('--episodes', help='Every episode in a row, too.')] = False,
    fresh: Annotated[bool, typer.Option('--fresh', help='Score every view anew, whatever was written before.')] = False,
    write: Annotated[bool, typer.Option('--write', help='Keep the scores beside the episodes, for reports.')] = False,
    by: Annotated[str, typer.Option('--by', help='Who keeps them; for the log.')] = '',
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Score episodes from the RGB-D views that were kept with them, and compare with the host.

    The recorded outcomes stay as they are: a written score is a file of its own, with the digest of the views that it
    was made from, and reports use it as long as views and method are the same.

    Example: `robotrials geometry score runs/may --write --by mara`
    """
    from robotrials.measure.geometry.projection import Rescoring, write_projection
    from robotrials.show.geometry import camera_card, camera_episodes, cameras
    from robotrials.show.request import ShowRequest
    from robotrials.verdict.analysis import present

    check_form(form)
    analysis = open_analysis(store, where, baseline=baseline, alpha=alpha)
    if not analysis.plan.success.wants_cameras:
        analysis = open_analysis(store, where, is_look=False, baseline=baseline, alpha=alpha, success='both')
    analysis.rescoring = Rescoring.ALL if fresh else Rescoring.MISSING
    request = ShowRequest(subject=analysis)
    whole = details or form != 'text'

    def tables() -> list[Table]:
        return [*(cameras(request) if whole else ()), *(camera_episodes(request) if episodes else ())]

    part = present(analysis.cameras)
    print_card(lambda: camera_card(part), tables, form, details=details or episodes, analysis=analysis)
    opened = analysis.selection.store
    if write and opened is not None:
        path = write_projection(opened, analysis.episodes, present(analysis.camera_scores), by=by)
        typer.echo(f'wrote {path}', err=True)


@geometry_app.command('segment')
def segment_views(
    store: StoreArgument,
    using: Annotated[
        str, typer.Option('--using', help='A folder of masks, command:COMMAND, or the http address of a segmenter.')
    ],
    where: WhereOption = None,
    by: Annotated[str, typer.Option('--by', help='Who keeps them; for the log.')] = '',
) -> None:
    """Ask a segmenter which pixels are each object's, and keep its masks beside the views.

    Only objects that have a shape are asked for, by their names. A folder has VIEW.NAME.png; a command is run as
    COMMAND PICTURE.png NAME MASK.png; an address is sent {"image": PNG in base64, "prompt": NAME}. Scores made
    afterwards use the masks, and whoever scores the views again needs no segmenter.

    Example: `robotrials geometry segment runs/may --using http://127.0.0.1:8080/segment --by mara`
    """
    from robotrials.measure.geometry.projection import segment_store

    analysis = open_analysis(store, where, is_look=False)
    opened = analysis.selection.store
    if opened is None:
        raise InputError(
            f'{store}: masks are kept in a store, and this is none; run: robotrials import {store} -o STORE'
        )
    show = analysis_progress()
    n = segment_store(opened, analysis.episodes, using, by=by, advance=lambda i, total: show('segmenting', i, total))
    typer.echo(f'kept masks of {n} episodes; to score them, run: robotrials geometry score {opened.path}')


@geometry_app.command('place')
def place(
    source: Annotated[Path, typer.Argument(help='A store that kept views, or the file of a scene (known.json).')],
    cameras: Annotated[int, typer.Option('--cameras', help='How many cameras to place.', min=1, max=8)] = 3,
    distance: Annotated[list[float] | None, typer.Option('--distance', help='From the work, in metres.')] = None,
    fovy: Annotated[float, typer.Option('--fovy', help='Vertical field of view, in degrees.')] = 45.0,
    seed: Annotated[int, typer.Option('--seed', help='Of the arrangements that are drawn.')] = 0,
    form: FormatOption = 'text',
) -> None:
    """Where to put cameras so that they see most of the objects, wherever the task puts them.

    Objects are looked at where they start, at their goals and in drawn arrangements inside a bin; what stands fixed
    and the other objects hide them. Of a store, the cameras that took its views are measured in the same way.

    Example: `robotrials geometry place runs/may --cameras 3 --set distance=0.9`
    """
    import math

    import numpy as np

    from robotrials.measure.geometry.place import Coverage, coverage, place_cameras
    from robotrials.show.table import Column, table

    check_form(form)
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


def _aim(ahead: Any) -> tuple[float, float]:
    import math

    return math.degrees(math.atan2(ahead[1], ahead[0])) % 360, math.degrees(math.asin(-ahead[2]))


def _scenes(source: Path) -> tuple[list[KnownScene], list[CameraSite]]:
    """What is known of the scenes of a store's first episodes and where its cameras stand, or one scene's file."""
    from robotrials.measure.geometry.place import site_of
    from robotrials.record import read_store
    from robotrials.record.media import START, kept_views, read_known

    if source.is_file():
        return [read_known(source.read_bytes(), where=str(source))], []
    store = read_store(source)
    kept = [kept_views(store.path / 'media', *e.key) for e in store.episodes() if e.is_valid]
    whole = [k for k in kept if k is not None and k.has_ends][:MOST_SCENES]
    if not whole:
        raise InputError(f'{source}: no episode kept RGB-D views; give the file of a scene (known.json) instead')
    standing = [site_of(name, view) for name, view in whole[0].moment(START).items()]
    return [k.known() for k in whole], standing
