"""robotrials geometry: success and placements by the kept RGB-D views alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption
from robotrials.cli.source import AlphaOption, BaselineOption, StoreArgument, WhereOption

if TYPE_CHECKING:
    from robotrials.show.table import Table

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
    from robotrials.cli.output import check_form, print_card
    from robotrials.cli.source import open_analysis
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
    from robotrials.cli.output import analysis_progress
    from robotrials.cli.source import open_analysis
    from robotrials.errors import InputError
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
