"""`robotrials robustness STORE`: what changed conditions cost, and whether the instruction was heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, print_analysis, print_card, say
from robotrials.cli.source import AnalysisChanges, PolicyOption, StoreArgument, open_analysis, takes_analysis
from robotrials.errors import NotEstimable, UnknownName

if TYPE_CHECKING:
    from robotrials.show.table import Table

# Part -> the named table that shows it.
PARTS = {
    'splits': 'splits-by-condition', 'estimates': 'splits-estimates', 'drops': 'condition-drops', 'doses': 'doses',
    'starts': 'start-states', 'compound': 'compound', 'swap': 'swap', 'spatial': 'spatial',
}  # fmt: skip


@takes_analysis('baseline alpha where resamples seed')
def robustness(
    store: StoreArgument,
    show: Annotated[
        list[str] | None, typer.Option('--show', help=f'Only these parts, repeatable: {", ".join(PARTS)}.')
    ] = None,
    policy: PolicyOption = None,
    *,
    changes: AnalysisChanges,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Does a policy survive a changed world? `--details` has RADAR's tables, drops, doses, compounds, the swap test.

    Each part is also a named table, and some are figures: `robotrials plot condition-drops STORE -o drops.pdf`.

    Example: `robotrials robustness runs/may --show drops`
    """
    from robotrials.show.answer import robustness_card
    from robotrials.show.catalog import ShowRequest, find_table

    for part in show or ():
        if part not in PARTS:
            raise UnknownName('part of the robustness report', part, PARTS)
    analysis = open_analysis(store, **changes)
    request = ShowRequest(subject=analysis, policies=tuple(policy or ()))
    request.shown(())

    def tables() -> list[Table]:
        made: list[Table] = []
        for part in show or PARTS:
            try:
                made += find_table(PARTS[part])(request)
            except NotEstimable as error:
                # Asked for by name it is an error; in the whole report the data simply do not have it.
                if show:
                    raise
                say(f'{part}: {error}')
        return made

    if show:
        print_analysis(analysis, tables(), form)
        return
    policies_shown = tuple(policy or ())
    print_card(lambda: robustness_card(analysis, policies_shown), tables, form, details=details, analysis=analysis)
