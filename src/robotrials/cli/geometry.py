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
