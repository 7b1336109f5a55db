"""What a source leaves open, put to whoever sits at the terminal: its questions, and remedies that are run on "y"."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from robotrials.formats.imported import FixableError, ImportOptions, Question


def is_terminal() -> bool:
    """Whether somebody can be asked; what is printed may go elsewhere, questions go to stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(questions: Sequence[Question]) -> dict[str, str]:
    """The answers of whoever sits there."""
    from robotrials.cli.output import say, shown_otherwise

    answers = {}
    with shown_otherwise():
        for question in questions:
            say(question.text)
            shown = f'{question.key} [{"/".join(question.choices)}]'
            answers[question.key] = typer.prompt(shown, default=question.assumed, err=True)
    return answers


def accepted(error: FixableError) -> ImportOptions:
    """The options of a remedy that is offered and taken; whoever declines ends the verb."""
    typer.secho(str(error), err=True)
    if not _confirmed('Run it?'):
        raise typer.Exit(2) from error
    return error.options


def _confirmed(question: str) -> bool:
    from robotrials.cli.output import shown_otherwise

    with shown_otherwise():
        return typer.confirm(question, default=False, err=True)


def offer_mapping(source: Path, options: ImportOptions) -> None:
    """Keep how a source was read in a file beside it, where every verb finds it."""
    from robotrials.formats.catalog import open_source
    from robotrials.formats.intake import mapping_beside, write_mapping

    beside = mapping_beside(source)
    imported = open_source(source, options)
    if imported.resolved is None:
        return
    if _confirmed(f'Save this as {beside}, so that {source} is always read so?'):
        write_mapping(beside, imported)


def asked_again(error: FixableError, source: Path) -> str:
    """The commands that import the source as its remedy says, and ask the store what this process was asked."""
    from robotrials.formats.imported import import_command, store_name

    words = list(sys.argv[1:])
    place = next((i for i, word in enumerate(words) if word == str(source)), None)
    if place is None:
        return str(error)
    words[place] = store_name(source)
    return f'{error.problem}\nTry: {import_command(source, error.options)} && {shlex.join(["robotrials", *words])}'
