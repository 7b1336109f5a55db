"""The root command, and the one place where an error becomes a line on the terminal."""

from __future__ import annotations

import sys

import typer

from trialist import __version__
from trialist.cli.actions import actions_app
from trialist.cli.audit import audit_app
from trialist.cli.calibrate import calibrate
from trialist.cli.close import close
from trialist.cli.compare import compare
from trialist.cli.demo import demo
from trialist.cli.importing import import_table
from trialist.cli.plan import plan
from trialist.cli.plot import plot
from trialist.cli.power import power_app
from trialist.cli.robustness import robustness
from trialist.cli.run import run
from trialist.cli.safety import safety_app
from trialist.cli.score import score
from trialist.cli.store import store_app
from trialist.cli.watch import watch
from trialist.errors import TrialistError

app = typer.Typer(
    name='trialist',
    help='Two-arm trials for robot arms: declare, run, score and report robot-policy evaluations.',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # the rich help costs more than everything else that --help imports
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'trialist {__version__}')
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, '--version', callback=_print_version, is_eager=True, help='Print the version.'),
) -> None:
    """Two-arm trials for robot arms."""


# One line a verb, in the order of a trial.
app.command('demo')(demo)
app.command('plan')(plan)
app.command('run')(run)
app.command('close')(close)
app.command('import')(import_table)
app.add_typer(store_app, name='store')
app.add_typer(actions_app, name='actions')
app.add_typer(safety_app, name='safety')
app.command('robustness')(robustness)
app.add_typer(audit_app, name='audit')
app.add_typer(power_app, name='power')
app.command('watch')(watch)
app.command('score')(score)
app.command('compare')(compare)
app.command('calibrate')(calibrate)
app.command('plot')(plot)


def main() -> None:
    """Run the command line; our own errors are one clear line and exit code 2, anything else is a traceback."""
    try:
        app()
    except TrialistError as error:
        typer.secho(f'{type(error).__name__}: {error}', fg='red', err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        typer.secho(f'{type(error).__name__}: {error.filename}: {error.strerror}', fg='red', err=True)
        sys.exit(2)
