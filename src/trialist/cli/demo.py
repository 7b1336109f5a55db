"""`trialist demo`: from nothing to a verdict, with no robot and no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.output import print_tables

if TYPE_CHECKING:
    from trialist.episodes import Store


def demo(
    to: Annotated[Path, typer.Option('--to', help='Where to put the store and the figure; made new.')] = Path(
        'demo-store'
    ),
    seed: Annotated[int, typer.Option(help='Another seed draws another cohort.')] = 0,
) -> None:
    """Write a store of simulated rollouts, verify it, count it, score it, and compare the two closest policies.

    Example: `trialist demo --to /tmp/demo`
    """
    import shutil

    from trialist.cli.compare import compare
    from trialist.cli.plot import plot
    from trialist.cli.score import score
    from trialist.episodes.verify import verify_store
    from trialist.errors import InputError
    from trialist.show.record import count_tables

    if to.exists():
        if not (to / 'trial.json').exists() or 'simulated' not in (to / 'trial.json').read_text(encoding='utf-8'):
            raise InputError(f'{to}: is there and is not an earlier demo; give another folder with --to')
        shutil.rmtree(to)
    store = write_cohort(to, seed)
    typer.echo(f'Simulated rollouts, shaped like a published cohort: no robot moved. Written to {to}/\n')
    checked = verify_store(to)
    typer.echo(f'store verify: {"clean" if checked.is_clean else "DAMAGED"}, {checked.n_episodes} episodes\n')
    print_tables(count_tables(store.episodes(), n_dropped=0))
    score(to)
    for pair in (('groot', 'openpi'), ('groot', 'act')):
        compare(to, *pair)
    figure = to / 'media' / 'cdf.png'
    plot('cdf', to, output=figure)
    typer.echo(f'\nThe record is {to}/, the picture {figure}. Next: trialist store ls {to}, trialist score {to} --all')


def write_cohort(path: Path, seed: int) -> Store:
    """A store with a simulated cohort and where it came from."""
    import numpy as np

    from trialist.episodes import Store, collect_provenance
    from trialist.testing.cohort import paper_like_cohort

    store = Store.create(path, trial_id=f'simulated-{seed}', title='simulated cohort')
    origin = store.write_provenance(collect_provenance())
    cohort = paper_like_cohort(np.random.default_rng(seed))
    store.append([e.replace(trial_id=f'simulated-{seed}', provenance_id=origin, episode_id='') for e in cohort])
    return store
