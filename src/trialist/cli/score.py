"""trialist score: how fast and how reliably each policy works."""

from __future__ import annotations

from typing import Annotated

import typer

from trialist.cli.output import FormatOption, print_tables
from trialist.cli.source import ReferenceOption, ResamplesOption, SeedOption, StoreArgument, TauOption, WhereOption


def score(
    store: StoreArgument,
    reference: ReferenceOption = None,
    tau: TauOption = 240.0,
    budget: Annotated[float | None, typer.Option('--budget', help='Time budget for UPH, completion, MTBF.')] = None,
    resamples: ResamplesOption = 1000,
    seed: SeedOption = 0,
    bca: Annotated[bool, typer.Option('--bca', help='Print BCa intervals in the headline, not percentile.')] = False,
    every: Annotated[bool, typer.Option('--all', help='Also print every scalar, macro and in each stratum.')] = False,
    failures: Annotated[
        bool, typer.Option('--failures', help='Also print how episodes and operations failed.')
    ] = False,
    label: Annotated[
        str | None, typer.Option('--label', help='Also print completion by a label; a=b: whether two labels agree.')
    ] = None,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Score every policy: RMST, HRT against the reference, intervention rate, episodes.

    Example: `trialist score runs/may --all --label camera_side=tote_side`
    """
    import numpy as np

    from trialist.cli.source import note_follow_up, read_episodes
    from trialist.errors import NotEstimable
    from trialist.show import timing as show
    from trialist.timing import Scale, auc, cohorts, failure_modes, find_reference, hrt, score_cohort, sensitivity_table

    found = cohorts(read_episodes(store, where))
    scored = {name: c for name, c in found.items() if c.cells}
    for name in found.keys() - scored.keys():
        typer.echo(f'{name}: not estimable, none of its {len(found[name].episodes)} episodes is valid', err=True)
    if not scored:
        raise NotEstimable(f'{store}: no policy has a valid episode')
    anchor = find_reference(scored, reference)
    rng = np.random.default_rng(seed)
    scale = Scale(tau_s=tau, episode_tau_s=budget)
    scores = [score_cohort(c, scale=scale, n_resamples=resamples, rng=rng) for c in scored.values()]
    relative, areas = {}, {}
    note_follow_up(scored.values(), tau)
    for name, cohort in scored.items():
        if anchor is not None and name != anchor.policy:
            both = cohort.cells, anchor.cells
            if not both[0].keys() & both[1].keys():
                typer.echo(f'{name}: no HRT, it shares no stratum with {anchor.policy}', err=True)
                continue
            relative[name] = hrt(*both, tau_s=tau, n_resamples=resamples, rng=rng, missing='drop')
            areas[name] = auc(*both, tau_s=tau, n_resamples=resamples, rng=rng, missing='drop')
    tables = [
        show.headline_table(
            scores, relative, tau_s=tau, n_resamples=resamples, reference=anchor.policy if anchor else None,
            interval='bca' if bca else 'percentile',
        )
    ]  # fmt: skip
    if every:
        for one in scores:
            tables += [show.scalar_table(one, scope=scope) for scope in ('macro', 'pooled')]
            tables += [show.scalar_table(one, stratum=stratum) for stratum in one.cells]
        if relative:
            tables.append(show.relative_table('HRT (fraction)', relative))
            tables.append(show.relative_table('AUC = P(T < T reference)', areas))
    if failures:
        tables += show.failure_tables([failure_modes(c, tau_s=tau) for c in scored.values()])
    if label is not None:
        tables.append(show.label_table(sensitivity_table(scored, label=label, rng=rng)))
    print_tables(tables, form)
