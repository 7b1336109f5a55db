"""`robotrials close`: end a trial and open its codes, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.output import FormatOption, print_table
from robotrials.cli.plan import PlanPath
from robotrials.cli.run import StoreOption, default_store


def close(
    trial: PlanPath,
    store: StoreOption = None,
    by: Annotated[str, typer.Option(help='Who opens the codes; on record.', show_default='the user name')] = '',
    why: Annotated[str, typer.Option(help='A reason to put on record; an early closing wants one.')] = '',
    early: Annotated[bool, typer.Option('--early', help='Close although episodes are missing.')] = False,
    allocation: Annotated[
        Path | None, typer.Option(help="For a sealed trial: the statistician's allocation.json.")
    ] = None,
    form: FormatOption = 'text',
) -> None:
    """Unblind a finished trial: from now on its store shows policies by name. It can be done once.

    Example: `robotrials close trial.toml --by kim`
    """
    import getpass

    from robotrials.record import read_store
    from robotrials.run import close_trial, read_plan
    from robotrials.run.blinding import read_allocation
    from robotrials.show.table import table

    declared = read_plan(trial)
    folder = default_store(declared.hash) if store is None else store
    arms = close_trial(
        declared, folder, by=by or getpass.getuser(), why=why, early=early,
        allocation=read_allocation(allocation) if allocation is not None else None,
    )  # fmt: skip
    rows = [
        [
            a.code,
            a.policy,
            'yes' if a.is_reference else '',
            a.n_valid,
            a.n_invalid,
            a.n_interrupted,
            a.n_given_up,
            a.n_missing,
        ]
        for a in arms
    ]
    columns = ['code', 'policy', 'reference', 'valid', 'invalid attempts', 'interrupted', 'given up', 'never run']
    note = 'Unequal invalid attempts deserve a question: a policy that breaks the rig is not scored for it.'
    print_table(table(f'{folder} is closed', columns, rows, note=note), form)
    opened = read_store(folder)
    for leak in opened.unblindings().by_trial[declared.hash].leakage:
        typer.echo(f'leakage to the operator, from {leak.source}: {leak}', err=form != 'text')
    typer.echo(f'head {opened.head()} (note it: it stands for the whole record)', err=form != 'text')
