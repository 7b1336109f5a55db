"""`robotrials seal`: make the three files of a trial in which nobody who runs it can know who is who."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.plan import PlanPath
from robotrials.errors import InputError


def seal(
    trial: PlanPath,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='A folder for the three files.')] = None,
    arms: Annotated[Path | None, typer.Option(help='With --which: arms.json, on the account of the machine.')] = None,
    which: Annotated[
        str, typer.Option(help='Of a sealed trial: what the console says of an assignment; prints the arm to load.')
    ] = '',
) -> None:
    """Seal a declared trial: a random secret, codes for its policies, and one file for each role.

    The statistician runs it, keeps allocation.json, puts arms.json on the machine that runs the trial, and gives
    operator.json to the operator. `robotrials close` opens the trial with allocation.json.

    What stands for an arm changes with every episode. Beside a robot, the script that loads policies asks who is meant
    with `robotrials seal sealed/operator.json --arms sealed/arms.json --which ep-3f2a91`.

    Example: `robotrials seal trial.toml -o sealed/`
    """
    from robotrials.run import read_plan
    from robotrials.run.blinding import read_arms, seal_trial

    if which:
        if arms is None:
            raise InputError('who is meant is in arms.json: give it with --arms')
        import dataclasses
        import json

        plan = read_plan(trial)
        code, entry = read_arms(plan, arms).entry_of(plan, which)
        typer.echo(json.dumps({'arm': code, **dataclasses.asdict(entry)}, default=str))
        return
    if output is None:
        raise InputError(f'where are the three files to go? robotrials seal {trial} -o sealed/')
    sealed = seal_trial(read_plan(trial), output)
    typer.echo(f'{output / "allocation.json"}: for the statistician alone; without it the trial cannot be opened')
    typer.echo(f'{output / "arms.json"}: for the machine that runs the trial; its options may tell who is who')
    typer.echo(f'{output / "operator.json"}: for the operator')
    typer.echo(f'trial {sealed.operator_plan.hash}, arms {", ".join(sorted(sealed.codes.values()))}')
