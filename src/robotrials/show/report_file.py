"""A report as a file, in the form that its ending says."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError, UnknownName
from robotrials.show.document import Document
from robotrials.show.file import check_target, write_file

if TYPE_CHECKING:
    from robotrials.verdict.analysis import Analysis

# Name -> (file suffix, the function that renders it).
FORMATS = {
    'html': ('.html', 'robotrials.show.page:render_html'),
    'md': ('.md', 'robotrials.show.markdown:render_markdown'),
    'latex': ('.tex', 'robotrials.show.latex:render_latex'),
    'json': ('.json', 'robotrials.show.document_json:render_json'),
}


def choose_format(form: str | None, path: Path | None) -> str:
    """The format asked for, else that of the file's suffix, else HTML."""
    if form is not None:
        if form not in FORMATS:
            raise UnknownName('report format', form, FORMATS)
        return form
    if path is None:
        return 'html'
    for name, (suffix, _) in FORMATS.items():
        if path.suffix.lower() == suffix:
            return name
    known = ', '.join(suffix for suffix, _ in FORMATS.values())
    raise InputError(f'{path}: wanted a file ending in one of {known}, or the name of a format')


def render_document(document: Document, form: str) -> str:
    """The document in one of FORMATS."""
    module, _, name = FORMATS[form][1].partition(':')
    render: Callable[[Document], str] = getattr(importlib.import_module(module), name)
    return render(document)


def write_report(analysis: Analysis, path: Path) -> Path:
    """Write the whole report of an analysis: .html, .md, .tex or .json by the ending."""
    from robotrials.show.report import trial_document

    form = choose_format(None, path)
    check_target(path)
    write_file(path, render_document(trial_document(analysis, folder=path.parent), form))
    return path
