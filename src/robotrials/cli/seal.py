"""`robotrials seal`: make the three files of a trial in which nobody who runs it can know who is who."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.plan import PlanPath


def seal(
    trial: PlanPath,
    output: Annotated[Path, typer.Option('--output', '-o', help='A folder for the three files.')],
) -> None:
    """Seal a declared trial: a random secret, codes for its policies, and one file for each role.

    The statistician runs it, keeps allocation.json, puts arms.json on the machine that runs the trial, and gives
    operator.json to the operator. `robotrials close` opens the trial with allocation.json.

    Example: `robotrials seal trial.toml -o sealed/`
    """
    from robotrials.run import read_plan
    from robotrials.run.sealing import seal_trial

    sealed = seal_trial(read_plan(trial), output)
    typer.echo(f'{output / "allocation.json"}: for the statistician alone; without it the trial cannot be opened')
    typer.echo(f'{output / "arms.json"}: for the machine that runs the trial; its options may tell who is who')
    typer.echo(f'{output / "operator.json"}: for the operator')
    typer.echo(f'trial {sealed.operator_plan.hash}, arms {", ".join(sorted(sealed.codes.values()))}')
