"""trialist report: everything that is known of a trial, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.source import ReferenceOption, SeedOption, StoreArgument, WhereOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from trialist.show.document import Document

# Name -> (file suffix, the function that renders it).
FORMATS = {
    'html': ('.html', 'trialist.show.page:render_html'),
    'md': ('.md', 'trialist.show.markdown:render_markdown'),
    'latex': ('.tex', 'trialist.show.latex:render_latex'),
    'json': ('.json', 'trialist.show.document_json:render_json'),
}

DEFAULT_PAGE = Path('report.html')


def report(
    store: StoreArgument,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='The file; default: report.html here.')] = None,
    form: Annotated[
        str | None, typer.Option('--format', '-f', help="html, md, latex or json; default: by the file's suffix.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option('--before', help='An earlier store: report what changed since, in the same form.')
    ] = None,
    tau: Annotated[
        float | None, typer.Option('--tau', help='Cap of restricted means (s); default: as long as all was watched.')
    ] = None,
    reference: ReferenceOption = None,
    alpha: Annotated[float, typer.Option('--alpha', help='Level of tests; intervals are at 1 - alpha.')] = 0.05,
    baseline: Annotated[str, typer.Option('--baseline', help='The condition that policies are ranked by.')] = 'nominal',
    registry: Annotated[
        list[Path] | None, typer.Option('--registry', help='A file with safety tasks of your own; repeatable.')
    ] = None,
    explorer: Annotated[
        str, typer.Option('--explorer', metavar='URL', help='Where a server shows episodes; links go there.')
    ] = '',
    resamples: Annotated[int, typer.Option('--resamples', min=1, help='Resamples of bootstraps and tests.')] = 1000,
    seed: SeedOption = 0,
    where: WhereOption = None,
) -> None:
    """Write one self-contained page: the verdict in three sentences, then everything it rests on.

    Example: `trialist report runs/may -o may.html`
    """
    from trialist.analysis import ReportOptions, build_report
    from trialist.cli.store import parse_where
    from trialist.episodes import read_store
    from trialist.errors import InputError
    from trialist.safety import load_registry
    from trialist.show.file import check_target
    from trialist.show.page_link import check_explorer
    from trialist.show.report import trial_document

    chosen = choose_format(form, output)
    if output is not None or chosen == 'html':
        check_target(output or DEFAULT_PAGE)
    if explorer:
        check_explorer(explorer)
    options = ReportOptions(
        tau_s=tau, reference=reference, alpha=alpha, baseline=baseline, n_resamples=resamples, seed=seed,
        registry=load_registry(*registry) if registry else None,
    )  # fmt: skip
    matching = parse_where(where) or None
    if before is not None:
        if reference is not None or explorer:
            raise InputError('--before compares each policy with itself: it takes neither --reference nor --explorer')
        from trialist.analysis.change import compare_stores
        from trialist.show.change import change_document

        document = change_document(compare_stores(read_store(before), read_store(store), options, where=matching))
    else:
        document = trial_document(build_report(read_store(store), options, where=matching), explorer_url=explorer)
    write_document(document, chosen, output)


def choose_format(form: str | None, output: Path | None) -> str:
    """The format asked for, else that of the file's suffix, else HTML."""
    from trialist.errors import InputError, UnknownName

    if form is not None:
        if form not in FORMATS:
            raise UnknownName('report format', form, FORMATS)
        return form
    if output is None:
        return 'html'
    for name, (suffix, _) in FORMATS.items():
        if output.suffix.lower() == suffix:
            return name
    known = ', '.join(suffix for suffix, _ in FORMATS.values())
    raise InputError(f'{output}: wanted a file ending in one of {known}, or --format')


def write_document(document: Document, form: str, output: Path | None) -> None:
    """Write the document; without a file HTML goes to report.html, the others to the standard output."""
    import importlib

    from trialist.show.file import write_file

    _, target = FORMATS[form]
    module, _, name = target.partition(':')
    render: Callable[[Document], str] = getattr(importlib.import_module(module), name)
    text = render(document)
    if output is None and form != 'html':
        typer.echo(text, nl=False)
        return
    path = output or DEFAULT_PAGE
    write_file(path, text)
    typer.echo(f'wrote {path} ({len(text.encode()) / 1e6:.1f} MB)')
    for sentence in document.lead:
        typer.echo(f'- {sentence.text}')
