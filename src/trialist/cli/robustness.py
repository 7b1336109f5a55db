"""`trialist robustness STORE`: what changed conditions cost, and whether the instruction was heard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trialist.cli.output import FormatOption, print_table
from trialist.cli.store import WhereOption, parse_where

OTHER = {'condition': 'policy', 'policy': 'condition'}  # a table each, when lines are one of the two
PARTS = ('splits', 'estimates', 'drops', 'doses', 'compound', 'swap', 'spatial')


def robustness(
    store: Annotated[Path, typer.Argument(help='The folder of the store.', show_default=False)],
    show: Annotated[
        list[str] | None, typer.Option('--show', help=f'Only these parts, repeatable: {", ".join(PARTS)}.')
    ] = None,
    by: Annotated[str, typer.Option(help='Lines of the split table: condition, policy or both.')] = 'both',
    baseline: Annotated[str, typer.Option(help='The condition that drops are counted from.')] = 'nominal',
    compound: Annotated[str, typer.Option(help='The compound condition.')] = 'chaos',
    where: WhereOption = None,
    resamples: Annotated[int, typer.Option(help='Bootstrap and permutation resamples.')] = 2000,
    seed: Annotated[int, typer.Option(help='Seed of the resampling.')] = 0,
    figures: Annotated[
        Path | None, typer.Option('--figures', help='A folder for drops.svg, doses.svg and starts.svg.')
    ] = None,
    form: FormatOption = 'text',
) -> None:
    """Does a policy survive a changed world? Tables in RADAR's layout, drops, doses, compounds, swap test.

    Example: `trialist robustness runs/may --show drops --figures out/`
    """
    import numpy as np

    from trialist import robustness as room
    from trialist.episodes import read_store
    from trialist.errors import NotEstimable, UnknownName
    from trialist.show import robustness as shown

    for part in show or ():
        if part not in PARTS:
            raise UnknownName('part of the robustness report', part, PARTS)
    if by not in ('condition', 'policy', 'both'):
        raise UnknownName('layout', by, ('condition', 'policy', 'both'))
    wanted = tuple(show or PARTS)
    opened = read_store(store)
    episodes = [e for e in opened.episodes(where=parse_where(where)) if e.is_valid and not e.is_reference]
    trials = room.condition_trials(episodes, baseline=baseline)
    rng = np.random.default_rng(seed)
    kept: dict[str, object] = {}

    def splits() -> None:
        rows = room.condition_rows(room.by_severity(trials), n_resamples=1, rng=rng)
        for name in dict.fromkeys(getattr(r, other) for r in rows) if (other := OTHER.get(by)) else ('',):
            some = [r for r in rows if not other or getattr(r, other) == name]
            print_table(shown.split_table(some, by=by, title=f'Placement, {other} {name}' if other else ''), form)

    def estimates() -> None:
        print_table(
            shown.estimate_table(room.condition_rows(room.by_severity(trials), n_resamples=resamples, rng=rng)), form
        )

    def drops() -> None:
        kept['drops'] = found = room.drops_from_baseline(trials, baseline=baseline, n_resamples=resamples, rng=rng)
        print_table(shown.drop_table(found), form)

    def doses() -> None:
        kept['doses'] = found = room.dose_responses(trials, baseline=baseline)
        if not found:
            raise NotEstimable('no condition was run at two severities; a dose-response needs a ladder')
        print_table(shown.dose_table(found), form)

    def joined() -> None:
        found = room.compound_effects(trials, compound=compound, baseline=baseline, n_resamples=resamples, rng=rng)
        print_table(shown.compound_table(found), form)

    def swap() -> None:
        rows = [room.swap_trial(e, opened.trajectory(e)) for e in episodes if e.condition == baseline]
        found = room.swap_tests([r for r in rows if r is not None], n_resamples=resamples, rng=rng)
        print_table(shown.swap_table(found), form)

    def spatial() -> None:
        rows = [room.start_trial(e, opened.trajectory(e)) for e in episodes if e.condition in (baseline, 'layout')]
        kept['starts'] = known = [r for r in rows if r is not None]
        print_table(shown.spatial_table(room.spatial_sensitivities(known, n_resamples=resamples, rng=rng)), form)

    parts = dict(zip(PARTS, (splits, estimates, drops, doses, joined, swap, spatial), strict=True))
    for name in wanted:
        try:
            parts[name]()
        except (NotEstimable, UnknownName) as error:
            # Asked for by name it is an error; in the whole report the data simply don't have it.
            if show:
                raise
            typer.echo(f'{name}: {error}', err=True)
    if figures is not None:
        _draw(figures, kept, store)


def _draw(folder: Path, kept: dict[str, object], store: Path) -> None:
    from trialist.cli.source import store_looks
    from trialist.show import robustness_figure
    from trialist.show.figure import save_figure

    drawers = {
        'drops': robustness_figure.drop_figure,
        'doses': robustness_figure.dose_figure,
        'starts': robustness_figure.start_figure,
    }
    looks = store_looks(store)
    for name, rows in kept.items():
        if rows:
            path = save_figure(drawers[name](rows, looks=looks), folder / f'{name}.svg')  # type: ignore[operator]
            typer.echo(f'{path}', err=True)
