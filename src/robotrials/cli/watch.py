"""robotrials watch: follow a running trial, and say when it may stop."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, print_card
from robotrials.cli.source import AlphaOption, PolicyOption, StoreArgument, WhereOption, log_look, open_analysis
from robotrials.errors import InputError, NotEstimable, UnknownName

if TYPE_CHECKING:
    from pathlib import Path

    from robotrials.verdict.analysis import Analysis
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning import ArmPair, WatchedTrial


def watch(
    store: StoreArgument,
    score: Annotated[
        str, typer.Option('--score', help='success, or promptness: time to success, 1 - min(T, tau)/tau.')
    ] = 'success',
    tau: Annotated[
        float | None,
        typer.Option(
            '--tau',
            help="For promptness, in seconds; default: as declared, otherwise each stratum's shortest time cap.",
        ),
    ] = None,
    paired: Annotated[bool, typer.Option('--paired', help='Compare episodes of the same scene in pairs.')] = False,
    stratum: Annotated[
        list[str] | None,
        typer.Option('--stratum', '-s', help='A stratum of the plan; repeatable; default: those seen so far.'),
    ] = None,
    policy: PolicyOption = None,
    alpha: AlphaOption = None,
    horizon: Annotated[
        int | None, typer.Option('--horizon', min=1, help='The maximum number of episodes per policy.')
    ] = None,
    smallest: Annotated[
        float | None,
        typer.Option('--smallest', help='The smallest difference that matters; allows stopping for futility.'),
    ] = None,
    every: Annotated[float, typer.Option('--every', min=0.1, help='Seconds between looks at the store.')] = 30.0,
    once: Annotated[bool, typer.Option('--once', help='Print the current state once, then stop.')] = False,
    looks: Annotated[bool, typer.Option('--looks', help='Also print every look so far.')] = False,
    where: WhereOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Follow a running trial: continue, one is better, or futile, with an interval that holds at every look.

    It ends when every pair is decided, when nobody is adding to the store (an import, or a trial that is closed or
    not running), or at once with `--once`. A repeated start state is one unit: its first run counts. In a blinded
    trial, codes stand in for names.

    Example: `robotrials watch runs/may --score promptness --tau 120 --horizon 50 --smallest 0.1 --once`
    """
    from robotrials.record.store import is_store
    from robotrials.show.answer import watch_card
    from robotrials.show.planning import looks_table, watch_table
    from robotrials.verdict.planning import WatchedScore

    if score not in set(WatchedScore):
        raise UnknownName('score', score, [s.value for s in WatchedScore])
    if not once and not is_store(store) and store.exists():
        raise InputError(f'{store}: not the store of a running trial, so nothing will be added to it; add --once')
    seen = -1
    while True:
        idle = '' if once else why_idle(store)  # asked before the look, so that the look misses nothing
        try:
            analysis = open_analysis(store, where, is_look=False, alpha=alpha)
            if len(analysis.episodes) != seen:
                is_first, seen = seen < 0, len(analysis.episodes)
                trial = analysis.planning.watched(
                    score=score, tau_s=tau, paired=paired, strata=stratum, horizon=horizon,
                    smallest_difference=smallest,
                )  # fmt: skip
                log_look(analysis)  # once for every new state of the trial, not for every glance at the folder
                pairs, contrasts = watched_pairs(trial, policy, analysis)
                card, tables = watch_card(trial, pairs, contrasts, analysis), [watch_table(trial, pairs, contrasts)]
                asked = [looks_table(trial, pairs)] if looks else []
                # What was used is said once, and by the card itself; after that only what is new.
                told = analysis if is_first and form != 'text' else None
                print_card(
                    lambda: card, lambda: tables, form,  # noqa: B023 - called at once
                    details=details, asked=asked, analysis=told,
                )  # fmt: skip
                if trial.may_stop:
                    return
        except (InputError, NotEstimable) as waiting:
            # A trial that has just begun has too little to compare; asked once, that is the answer.
            if once or idle or isinstance(waiting, UnknownName):
                raise
            typer.echo(f'waiting: {waiting}', err=True)
        if once:
            return
        if idle:
            typer.echo(f'{store}: {idle}, so there is nothing to wait for.', err=True)
            return
        time.sleep(every)


def why_idle(path: Path) -> str:
    """Why nobody is adding episodes to a store; '' while somebody may be."""
    from robotrials.record import read_store
    from robotrials.record.folder import Folder
    from robotrials.record.part import EntryKind
    from robotrials.record.store import is_store
    from robotrials.run.engine import has_runner

    if not is_store(path):
        return ''  # not yet
    store = read_store(path)
    closing = store.unblindings().by_trial.get(store.trial.trial_id)
    if closing is not None:
        return f'the trial was closed by {closing.by} at {closing.at}'
    runs = [entry.body for _, entry in store.ledger().entries if entry.kind is EntryKind.RUN]
    if runs:  # what the last one says of itself counts for runs on other machines
        return '' if has_runner(store.path) or runs[-1].get('event') != 'end' else 'no run of this trial is under way'
    names = Folder(store.path).names('provenance')
    is_import = bool(names) and all(store.provenance(name.removesuffix('.json')).imported for name in names)
    return 'its episodes were imported' if is_import else ''


def watched_pairs(
    trial: WatchedTrial, policies: list[str] | None, analysis: Analysis
) -> tuple[list[ArmPair], dict[tuple[str, str], Contrast]]:
    """Every pair, or those shown, and its estimate from all episodes; the correction is over all pairs."""
    from robotrials.verdict.analysis import present
    from robotrials.verdict.planning.analysis_plan import EndpointName

    for name in policies or ():
        if name not in analysis.every_policy:
            raise UnknownName('policy', name, analysis.every_policy)
    pairs = [p for p in trial.arms.pairs if not policies or {p.a, p.b} <= set(policies)]
    if not pairs:
        raise InputError(f'wanted at least two policies to watch, found {", ".join(policies or ())}')
    endpoint = EndpointName.SUCCESS if trial.score == 'success' else EndpointName.TIME
    ranked = present(analysis.frame).policies
    contrasts = {
        (p.a, p.b): replace(analysis.contrast(p.a, p.b, endpoint), p_look=p.adjusted_p_value)
        for p in pairs
        if p.a in ranked and p.b in ranked
    }
    return pairs, contrasts
