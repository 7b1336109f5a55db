"""Files that a verb leaves behind: there whole or not at all, and refused before the work when they cannot be."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError, UnknownName
from robotrials.record.folder import write_durably
from robotrials.show.document import Document

if TYPE_CHECKING:
    from robotrials.verdict.analysis import Analysis


def check_target(path: Path | str) -> Path:
    """The path, if a file can be put there; asked before long work, so that its result has a place to go."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f'{target}: a folder, wanted the name of a file; give one in it, such as {target / "result"}')
    home = next((p for p in target.absolute().parents if (p / 'trial.json').is_file()), None)
    if home is not None:
        raise InputError(
            f'{target}: inside the store {home}, which keeps nothing but its own files; give a path outside'
        )
    nearest = next(parent for parent in target.absolute().parents if parent.exists())
    if not nearest.is_dir():
        raise InputError(f'{target}: {nearest} is a file, wanted a folder to write into; give another path')
    if not os.access(target if target.exists() else nearest, os.W_OK):
        raise InputError(f'{target}: not allowed to write there; give another path')
    return target


def write_file(path: Path | str, content: str | bytes) -> Path:
    """Write a file in one step: a reader, or a full disk, never meets half of it."""
    target = check_target(path)
    given = content.encode() if isinstance(content, str) else content
    try:
        _put(target, given)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def _put(target: Path, given: bytes) -> None:
    if target.exists() and not target.is_file():  # a pipe or a device has no half
        target.write_bytes(given)
        return
    real = target.resolve()  # through a link, which stays one
    real.parent.mkdir(parents=True, exist_ok=True)
    write_durably(real, given)


# A report as a file, in the form that its ending says.

# Name -> (file suffix, the function that renders it).
FORMATS = {
    'html': ('.html', 'robotrials.show.page:render_html'),
    'md': ('.md', 'robotrials.show.markup:render_markdown'),
    'latex': ('.tex', 'robotrials.show.markup:render_latex'),
    'json': ('.json', 'robotrials.show.document:render_json'),
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
