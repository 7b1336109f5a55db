"""robotrials close and robotrials seal: who may know which arm is which, and from when.

`robotrials close`: end a trial and open its codes, once.

`robotrials seal`: make the three files of a trial in which nobody who runs it can know who is who.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.output import FormatOption, print_table
from robotrials.cli.plan import PlanPath
from robotrials.cli.run import StoreOption, default_store
from robotrials.errors import InputError


def close(
    trial: PlanPath,
    store: StoreOption = None,
    by: Annotated[str, typer.Option(help='Who reveals the codes; goes on record.', show_default='the user name')] = '',
    why: Annotated[str, typer.Option(help='A reason to put on record; required for an early closing.')] = '',
    early: Annotated[bool, typer.Option('--early', help='Close even though episodes are missing.')] = False,
    allocation: Annotated[
        Path | None, typer.Option(help="For a sealed trial: the statistician's allocation.json.")
    ] = None,
    form: FormatOption = 'text',
) -> None:
    """Unblind a finished trial: from now on its store shows policies by name. It can be done once.

    Example: `robotrials close trial.toml --by kim`
    """
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


def seal(
    trial: PlanPath,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='A folder for the three files.')] = None,
    arms: Annotated[Path | None, typer.Option(help="With --which: arms.json, on the machine's account.")] = None,
    which: Annotated[
        str, typer.Option(help='In a sealed trial: the code that the console shows; prints the arm to load.')
    ] = '',
) -> None:
    """Seal a declared trial: a random secret, codes for its policies, and one file for each role.

    The statistician runs this, keeps allocation.json, puts arms.json on the machine that runs the trial, and gives
    operator.json to the operator. `robotrials close` unblinds the trial with allocation.json.

    The label for an arm changes with every episode. At a real robot, the script that loads policies asks which arm is
    meant with `robotrials seal sealed/operator.json --arms sealed/arms.json --which ep-3f2a91`.

    Example: `robotrials seal trial.toml -o sealed/`
    """
    from robotrials.run import read_plan
    from robotrials.run.blinding import read_arms, seal_trial

    if which:
        if arms is None:
            raise InputError('arms.json says which arm is meant: give it with --arms')
        plan = read_plan(trial)
        code, entry = read_arms(plan, arms).entry_of(plan, which)
        typer.echo(json.dumps({'arm': code, **dataclasses.asdict(entry)}, default=str))
        return
    if output is None:
        raise InputError(f'no folder for the three files; try: robotrials seal {trial} -o sealed/')
    sealed = seal_trial(read_plan(trial), output)
    typer.echo(f'{output / "allocation.json"}: for the statistician alone; without it the trial cannot be opened')
    typer.echo(
        f'{output / "arms.json"}: for the machine that runs the trial; its options may reveal which arm is which'
    )
    typer.echo(f'{output / "operator.json"}: for the operator')
    typer.echo(f'trial {sealed.operator_plan.hash}, arms {", ".join(sorted(sealed.codes.values()))}')
