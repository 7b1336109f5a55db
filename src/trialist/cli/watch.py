"""trialist watch: follow a running trial, and say when it may stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.output import FormatOption, print_tables
from trialist.cli.source import StoreArgument, WhereOption

if TYPE_CHECKING:
    from trialist.episodes import Episode


def watch(
    store: StoreArgument,
    score: Annotated[
        str, typer.Option('--score', help='success, or promptness: time-to-success, 1 - min(T, tau)/tau.')
    ] = 'success',
    tau: Annotated[
        float | None, typer.Option('--tau', help='For promptness, in seconds; default: the shortest time cap.')
    ] = None,
    paired: Annotated[bool, typer.Option('--paired', help='Compare episodes of the same scene.')] = False,
    stratum: Annotated[
        list[str] | None, typer.Option('--stratum', '-s', help="The plan's strata, repeat; default: those seen.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option('--policy', '-p', help='Only these policies; repeat. The marked reference is left out otherwise.'),
    ] = None,
    alpha: Annotated[float, typer.Option('--alpha', help='The chance of any false claim, over all looks.')] = 0.05,
    horizon: Annotated[int | None, typer.Option('--horizon', min=1, help='The most episodes of each policy.')] = None,
    smallest: Annotated[
        float | None, typer.Option('--smallest', help='The smallest difference that matters; lets it be futile.')
    ] = None,
    every: Annotated[float, typer.Option('--every', min=0.1, help='Seconds between looks at the store.')] = 30.0,
    once: Annotated[bool, typer.Option('--once', help='Say what may be said now, and end.')] = False,
    looks: Annotated[bool, typer.Option('--looks', help='Also print every look so far.')] = False,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Follow a running trial: continue, one is better, or futile, with an interval that holds at every look.

    It ends when every pair is decided, or at once with `--once`. Blinded codes are names like any other.

    Example: `trialist watch runs/may --score promptness --tau 120 --horizon 50 --smallest 0.1 --once`
    """
    import time

    from trialist.cli.source import read_episodes
    from trialist.errors import InputError, UnknownName
    from trialist.planning import WatchedScore, watch_trial
    from trialist.show.planning import looks_table, watch_table

    if score not in set(WatchedScore):
        raise UnknownName('score', score, [s.value for s in WatchedScore])
    seen = -1
    while True:
        try:
            episodes = compared_episodes(read_episodes(store, where, tell=seen < 0), policy)
            if len(episodes) != seen:
                seen = len(episodes)
                found = watch_trial(
                    episodes, score=score, tau_s=tau or shortest_cap_s(episodes, score), paired=paired,
                    strata=stratum, alpha=alpha, horizon=horizon, smallest_difference=smallest,
                )  # fmt: skip
                print_tables([watch_table(found), *([looks_table(found)] if looks else [])], form)
                if found.may_stop:
                    return
        except InputError as waiting:
            # A trial that has just begun has too little to compare; asked once, that is the answer.
            if once or isinstance(waiting, UnknownName):
                raise
            typer.echo(f'waiting: {waiting}', err=True)
        if once:
            return
        time.sleep(every)


def compared_episodes(episodes: list[Episode], policies: list[str] | None) -> list[Episode]:
    """Those of the policies asked for; else all but the reference's, if two others are there."""
    if policies:
        return [e for e in episodes if e.policy in policies]
    others = [e for e in episodes if not e.is_reference]
    return others if len({e.policy for e in others}) > 1 else episodes


def shortest_cap_s(episodes: list[Episode], score: str) -> float | None:
    """The tau that every episode was, or could have been, watched to."""
    from trialist.errors import InputError

    if score == 'success':
        return None
    valid = [e for e in episodes if e.is_valid]
    caps = [e.time_cap_s for e in valid if e.time_cap_s is not None]
    if not caps or len(caps) < len(valid):
        raise InputError('some episodes do not say their time cap; give --tau')
    return min(caps)
