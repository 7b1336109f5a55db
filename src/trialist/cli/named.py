"""What `trialist plot NAME` and `trialist tables NAME` share: the words after the name, read into a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trialist.show.request import Input, ShowRequest
    from trialist.show.table import Table

SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar='SOURCE...', help='What it is made from: a store, for most; --list says what else.'),
]
PolicyOption = Annotated[list[str] | None, typer.Option('--policy', '-p', help='Only these policies; repeat.')]
StratumOption = Annotated[list[str] | None, typer.Option('--stratum', '-s', help='Only these strata; repeat.')]
ListOption = Annotated[bool, typer.Option('--list', help='List the names and stop.')]


def named_request(
    name: str,
    wanted: Input,
    sources: list[str] | None,
    *,
    where: list[str] | None,
    policy: list[str] | None,
    stratum: list[str] | None,
    reference: str | None,
    tau: float,
    resamples: int,
    seed: int,
    label: str | None = None,
    conditions_apart: bool = False,
) -> ShowRequest:
    """The request for a name that takes this kind of input; the wrong kind is an error that says which is wanted."""
    from trialist.cli.source import read_episodes
    from trialist.episodes import read_store
    from trialist.errors import InputError
    from trialist.show.request import Input, ShowRequest, check_sources, known_policies

    given = tuple(sources or ())
    check_sources(name, wanted, given)
    if where and wanted is not Input.STORE:
        raise InputError(f'{name} takes no store of episodes, so --where can not choose any')
    shared = {
        'sources': given, 'policies': tuple(policy or ()), 'strata': tuple(stratum or ()), 'reference': reference,
        'tau_s': tau, 'n_resamples': resamples, 'seed': seed, 'label': label,
    }  # fmt: skip
    if wanted is not Input.STORE:
        return ShowRequest(**shared)  # type: ignore[arg-type]
    store = Path(given[0])
    episodes = tuple(read_episodes(store, where, tell=not conditions_apart))
    everyone, marked = known_policies(tuple(read_store(store).episodes(events=False)) if where else episodes)
    return ShowRequest(episodes=episodes, store=store, known_policies=everyone, known_reference=marked, **shared)  # type: ignore[arg-type]


def list_table(title: str, rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """Names with what they show, the papers' figures or tables of that layout, and what they are made from."""
    from trialist.show.table import table

    return table(title, ['name', 'what it shows', 'layout of', 'made from'], rows)
