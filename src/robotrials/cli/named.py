"""What `robotrials plot NAME` and `robotrials tables NAME` share: the words after the name, read into a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robotrials.show.request import ShowRequest
    from robotrials.show.table import Table
    from robotrials.verdict.analysis.subject import Input

SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar='SOURCE...', help='What it is made from: a store, for most; --list says what else.'),
]
PolicyOption = Annotated[list[str] | None, typer.Option('--policy', '-p', help='Show only these policies; repeat.')]
StratumOption = Annotated[list[str] | None, typer.Option('--stratum', '-s', help='Show only these strata; repeat.')]
ListOption = Annotated[bool, typer.Option('--list', help='List the names and stop.')]


def named_request(
    name: str, wanted: Input, sources: list[str] | None, *, where: list[str] | None, policy: list[str] | None,
    stratum: list[str] | None, label: str | None = None, **changes: Any,
) -> ShowRequest:  # fmt: skip
    """The request for a name that takes this kind of input; the wrong kind is an error that says which is wanted."""
    from robotrials.cli.source import open_analysis
    from robotrials.errors import InputError
    from robotrials.show.request import ShowRequest, check_sources
    from robotrials.verdict.analysis.subject import Input, read_subject

    given = tuple(sources or ())
    check_sources(name, wanted, given)
    subject: object
    if wanted is Input.STORE:
        subject = open_analysis(Path(given[0]), where, **changes)
    else:
        if where:
            raise InputError(f'{name} takes no store of episodes, so --where cannot choose any')
        drawn = {'n_resamples': changes.get('resamples'), 'seed': changes.get('seed')}
        subject = read_subject(wanted, given, **{key: value for key, value in drawn.items() if value is not None})
    return ShowRequest(
        subject=subject, policies=tuple(policy or ()), strata=tuple(stratum or ()), label=label
    )  # fmt: skip


def refuse_source_as_name(name: str, verb: str, usual: str) -> None:
    """Raise where a file stands in the place of a name: it comes second."""
    import shlex

    from robotrials.errors import InputError

    if Path(name).exists():
        raise InputError(
            f'{name} is a source, and a name comes before it (robotrials {verb} --list)\n'
            f'Try: {shlex.join(["robotrials", verb, usual, name])}'
        )


def list_table(title: str, rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """Names with what they show, the papers' figures or tables of that layout, and what they are made from."""
    from robotrials.show.table import table

    return table(title, ['name', 'what it shows', 'layout of', 'made from'], rows)
