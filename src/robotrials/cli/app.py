"""The root command, and the one place where an error becomes a line on the terminal.

A verb's module is imported, and its options read, only when that verb is asked for: `robotrials --help` needs just the
names and summaries of the table below.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from robotrials import __version__
from robotrials.errors import RobotrialsError

if TYPE_CHECKING:
    from robotrials.record import Store

MOST_TOLD = 5

# Verb -> where it lives, and what it is for; in the order of a trial.
VERBS: dict[str, tuple[str, str]] = {
    'demo': ('robotrials.cli.demo:demo', 'Run a blinded trial in the embedded cell, and score it.'),
    'plan': ('robotrials.cli.plan:plan', 'Say what a declared trial amounts to.'),
    'seal': ('robotrials.cli.seal:seal', 'Blind a trial: one file for each role.'),
    'run': ('robotrials.cli.run:run', 'Run a trial, or resume it.'),
    'console': ('robotrials.cli.console:console', 'Run a real robot: assignments, clock, counts, stop.'),
    'watch': ('robotrials.cli.watch:watch', 'Say when a running trial may stop.'),
    'close': ('robotrials.cli.close:close', 'Unblind a trial, once.'),
    'policies': ('robotrials.cli.policies:policies_app', 'Look at policies, check them, serve them.'),
    'env': ('robotrials.cli.env:env_app', 'Make and check isolated environments.'),
    'serve': ('robotrials.cli.serve:serve_app', 'Run a benchmark as a service.'),
    'worker': ('robotrials.cli.worker:worker', 'Run a cell around the clock for a platform.'),
    'submit': ('robotrials.cli.submit:submit', 'Have a policy evaluated by a platform.'),
    'import': ('robotrials.cli.importing:import_source', 'Import rollouts, whoever wrote them.'),
    'doctor': ('robotrials.cli.doctor:doctor', 'Say what a file or store looks like.'),
    'export': ('robotrials.cli.exporting:export', 'Write a store in another format.'),
    'store': ('robotrials.cli.store:store_app', 'Look at a store, check it, correct it.'),
    'score': ('robotrials.cli.score:score', 'Score every policy by time to success.'),
    'compare': ('robotrials.cli.compare:compare', 'Compare two policies, or all pairs.'),
    'calibrate': ('robotrials.cli.calibrate:calibrate', 'Check the test on your own data.'),
    'power': ('robotrials.cli.power:power_app', 'How many rollouts, and what they can tell.'),
    'annotate': ('robotrials.cli.annotate:annotate_app', 'Time what happened, afterwards.'),
    'safety': ('robotrials.cli.safety:safety_app', 'Was it safe while it succeeded?'),
    'geometry': ('robotrials.cli.geometry:geometry_app', 'Did the object really get there, by the cameras?'),
    'robustness': ('robotrials.cli.robustness:robustness', 'What a changed world costs each policy.'),
    'gate': ('robotrials.cli.gate:gate', 'No worse than the baseline? An exit code says so.'),
    'audit': ('robotrials.cli.audit:audit_app', 'Does the benchmark score mean anything?'),
    'actions': ('robotrials.cli.actions:actions_app', 'Score models on recorded actions.'),
    'explore': ('robotrials.cli.explore:explore', 'Look at episodes in a browser, to the frame.'),
    'report': ('robotrials.cli.report:report', 'Write one page with all that is known of a trial.'),
    'plot': ('robotrials.cli.plot:plot', 'Draw a named figure from a store.'),
    'tables': ('robotrials.cli.tables:tables', 'Print a named table from a store.'),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'robotrials {__version__}')
        raise typer.Exit


def root(
    version: bool = typer.Option(False, '--version', callback=_print_version, is_eager=True, help='Print the version.'),
    skip_damaged: bool = typer.Option(
        False, '--skip-damaged', help='Leave out what is damaged in a store, and say so.'
    ),
    board: str = typer.Option('', '--board', help='Look at an open blinded trial by arm, as its board; it is logged.'),
    board_key: str = typer.Option('', '--board-key', help='For --board and a sealed trial: its arms.json.'),
) -> None:
    """Two-arm trials for robot arms."""
    if skip_damaged or board or 'robotrials.record.store' in sys.modules:
        from robotrials.record.store import read_as

        read_as(
            skip_damaged=skip_damaged, board=board, board_key=board_key, on_open=_log_board_look if board else None
        )  # fmt: skip


def build_app(load: Callable[[str], bool]) -> typer.Typer:
    """The command line with the verbs that `load` accepts; the others are only named."""
    app = typer.Typer(
        name='robotrials',
        help='Two-arm trials for robot arms: declare, run, score and report robot-policy evaluations.',
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # the rich help costs more than everything else that --help imports
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    for name, (target, summary) in VERBS.items():
        if not load(name):
            app.command(name, short_help=summary)(_named_only)
            continue
        module, _, attribute = target.partition(':')
        verb: Any = getattr(importlib.import_module(module), attribute)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(verb)
    return app


def _named_only() -> None:
    raise AssertionError('a verb that was not loaded was run')


def full_app() -> typer.Typer:
    """The command line with every verb loaded."""
    return build_app(lambda name: True)


def _log_board_look(store: Store) -> None:
    """Whoever looks at an open trial by arm is on record before anything is shown, or sees nothing."""
    from robotrials.errors import StoreError
    from robotrials.record.blinded import is_concealed_plan

    if not store.is_blinded:
        return
    if is_concealed_plan(store.trial) and not store.board_key:
        raise StoreError(
            f'{store.path}: what stands for an arm changes with every episode of this trial; whoever has its arms.json '
            f'looks by arm with: robotrials --board {store.board} --board-key arms.json ...'
        )
    verb = ' '.join(word for word in sys.argv[1:] if not word.startswith('-'))
    if not store.log_look(verb[:200], by=store.board, role='board', seen='an open trial, by arm'):
        raise StoreError(f'{store.path}: a look of the board is logged, and this store cannot be written to')


def _tell_missing() -> None:
    """Say on stderr what the stores that were read lack: no output may look whole that is not."""
    store_module = sys.modules.get('robotrials.record.store')
    if store_module is None:
        return
    for store in store_module.opened_stores():
        try:
            findings = store.missing()
        except (RobotrialsError, OSError):
            continue
        for finding in findings[:MOST_TOLD]:
            typer.secho(plain(f'missing: {finding.path}: {finding.detail}'), fg='red', err=True)
        if len(findings) > MOST_TOLD:
            more = len(findings) - MOST_TOLD
            typer.secho(f'missing: {more} more in {store.path}; robotrials store verify lists them', fg='red', err=True)


def _read_as_usual() -> None:
    """What this verb asked for is not for whoever calls the next in the same process."""
    if 'robotrials.record.store' in sys.modules:
        from robotrials.record.store import read_as

        read_as()


def plain(text: str) -> str:
    """`text` without characters that would steer a terminal."""
    return ''.join(c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text)


def main() -> None:
    """Run the command line; our own errors are one clear line and exit code 2, anything else is a traceback."""
    asked = next((word for word in sys.argv[1:] if word in VERBS), '')
    try:
        try:
            build_app(lambda name: name == asked)()
        finally:
            _tell_missing()
            _read_as_usual()
    except RobotrialsError as error:
        typer.secho(plain(f'Error: {error}'), fg='red', err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        typer.secho(plain(f'Error: {error.filename}: {error.strerror}'), fg='red', err=True)
        sys.exit(2)
