"""How verbs print: one table option for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trialist.show.table import Table

FormatOption = Annotated[
    str, typer.Option('--format', '-f', help='How to print tables: text, json, csv, markdown or latex.')
]


def print_table(shown: Table, form: str = 'text') -> None:
    """Print a table in the asked form; an unknown form names the known ones."""
    from trialist.errors import UnknownName
    from trialist.show.table import TableFormat, render

    if form not in set(TableFormat):
        raise UnknownName('table format', form, [f.value for f in TableFormat])
    typer.echo(render(shown, form), nl=False)
