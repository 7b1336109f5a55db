"""robotrials report: everything that is known of a trial, on one page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.source import (
    AnalysisChanges,
    StoreArgument,
    named_changes,
    open_analysis,
    open_named,
    parse_where,
    takes_analysis,
)
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.show.document import Document

DEFAULT_PAGE = Path('report.html')


@takes_analysis('primary tau reference alpha baseline pairing registry resamples seed where')
def report(
    store: StoreArgument,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='The file; default: report.html here.')] = None,
    form: Annotated[
        str | None, typer.Option('--format', '-f', help="html, md, latex or json; default: by the file's extension.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option('--before', help='An earlier store: report what changed since, in the same form.')
    ] = None,
    explorer: Annotated[
        str, typer.Option('--explorer', metavar='URL', help='The address of an explorer; links to episodes go there.')
    ] = '',
    *,
    changes: AnalysisChanges,
) -> None:
    """Write one self-contained page: the verdict on the primary endpoint, then everything it rests on.

    Example: `robotrials report runs/may -o may.html`
    """
    from robotrials.show.document import check_target, choose_format
    from robotrials.show.phrase import check_explorer
    from robotrials.show.report import trial_document

    chosen = choose_format(form, output)
    if output is not None or chosen == 'html':
        check_target(output or DEFAULT_PAGE)
    if explorer:
        check_explorer(explorer)
    if before is None:
        analysis = open_analysis(store, **changes)
        document = trial_document(analysis, explorer_url=explorer, folder=(output or DEFAULT_PAGE).parent)
    else:
        if changes['reference'] is not None or changes['primary'] is not None or explorer:
            raise InputError(
                '--before compares each policy with itself: it takes neither --reference, --primary nor --explorer'
            )
        from robotrials.show.change import change_document
        from robotrials.verdict.analysis import compare_stores

        matching, named = parse_where(changes.pop('where')) or None, named_changes(**changes)
        old, new = open_named(before), open_named(store)
        changed = compare_stores(old.store, new.store, where=matching, **named)
        document = change_document(dataclasses.replace(changed, before=old.name, after=new.name))
    write_document(document, chosen, output)


def write_document(document: Document, form: str, output: Path | None) -> None:
    """Write the document; without a file HTML goes to report.html, the others to the standard output."""
    from robotrials.cli.output import harmless, say
    from robotrials.show.document import render_document, write_file

    text = render_document(document, form)
    if output is None and form != 'html':
        typer.echo(harmless(text, form), nl=False)
        return
    path = output or DEFAULT_PAGE
    write_file(path, text)
    typer.echo(f'wrote {path} ({max(1, len(text.encode()) // 1000):,} kB)')
    if document.statement:
        say(document.statement, err=False)
    for sentence in document.lead:
        say(f'- {sentence.text}', err=False)
    for caution in document.cautions:
        say(f'- Note: {caution}', err=False)
