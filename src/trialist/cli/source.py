"""How verbs take episodes from a store: filters on the command line, one way of reading them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.store import WhereOption, parse_where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trialist.episodes import Episode
    from trialist.show.policy_look import PolicyLook
    from trialist.timing import Cohort

__all__ = [
    'MethodOption', 'ReferenceOption', 'ResamplesOption', 'SeedOption', 'StoreArgument', 'TauOption', 'WhereOption',
    'check_method', 'note_follow_up', 'read_episodes', 'store_looks',
]  # fmt: skip

StoreArgument = Annotated[Path, typer.Argument(metavar='STORE', help='The folder of the store.')]
SeedOption = Annotated[int, typer.Option('--seed', min=0, help='Seed of every random draw: same seed, same numbers.')]
ReferenceOption = Annotated[
    str | None, typer.Option('--reference', '-r', help='The policy to measure against; default: the one marked.')
]
ResamplesOption = Annotated[int, typer.Option('--resamples', min=1, help='Resamples of a bootstrap or permutation.')]
TauOption = Annotated[float, typer.Option('--tau', help='Cap of restricted means, in seconds.')]
MethodOption = Annotated[
    str,
    typer.Option('--method', help='Null resampling: permutation, pooled_bootstrap (as published) or paired_swap.'),
]


def read_episodes(store: Path, where: list[str] | None = None, *, tell: bool = True) -> list[Episode]:
    """The store's episodes that match; an empty selection is an error that says what was asked.

    With `tell`, a line on stderr names the conditions when several are taken together.
    """
    from trialist.episodes import read_store
    from trialist.errors import InputError

    found = list(read_store(store).episodes(where=parse_where(where) or None))
    if not found:
        asked = ' '.join(where or [])
        raise InputError(f'{store}: no episode' + (f' matches {asked}' if asked else ' in this store'))
    conditions = sorted({e.condition for e in found})
    if tell and len(conditions) > 1:
        named = ', '.join(conditions[:8]) + (', ...' if len(conditions) > 8 else '')
        told = f'{len(conditions)} conditions are taken together: {named}; --where condition=NAME takes one'
        typer.echo(told, err=True)
    return found


def store_looks(store: Path) -> dict[str, PolicyLook]:
    """How each policy of the whole store is drawn, whichever part of it is shown."""
    from trialist.episodes import read_store
    from trialist.show.policy_look import policy_looks
    from trialist.show.request import known_policies

    everyone, marked = known_policies(tuple(read_store(store).episodes(events=False)))
    return policy_looks(everyone, reference=marked)


def note_follow_up(found: Iterable[Cohort], tau_s: float) -> None:
    """Say on stderr whose curves end before `tau_s`: what lies beyond was not seen."""
    short = {c.policy: c.followed_to_s for c in found if c.followed_to_s < tau_s}
    if short:
        shown = ', '.join(f'{name} {end_s:g} s' for name, end_s in short.items())
        typer.echo(
            f'watched for less than tau = {tau_s:g} s: {shown}. Beyond, a curve is held flat, as if nothing more would '
            f'have succeeded; --tau {min(short.values()):g} keeps to what was seen',
            err=True,
        )


def check_method(method: str) -> str:
    """The name of a null method, or an error that suggests the near one."""
    from trialist.errors import UnknownName
    from trialist.timing import NullMethod

    if method not in set(NullMethod):
        raise UnknownName('method', method, [m.value for m in NullMethod])
    return method
