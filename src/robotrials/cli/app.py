"""The root command, and the one place where an error becomes a line on the terminal.

A verb's module is imported, and its options read, only when that verb is asked for: `robotrials --help` needs just the
names and summaries of the table below.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import typer

from robotrials import __version__
from robotrials.cli.option import Group, Stages, verb_class
from robotrials.cli.output import say_error, told_while_working
from robotrials.errors import RobotrialsError

if TYPE_CHECKING:
    from robotrials.record import Store

MOST_TOLD = 5
# Verbs that somebody waits for; the others say themselves how far they are, and episodes have an alarm of their own.
WAITED_FOR = frozenset({
    'import', 'doctor', 'annotate', 'store', 'export', 'compare', 'score', 'safety', 'robustness', 'geometry', 'power',
    'gate', 'actions', 'report', 'plot', 'tables',
})  # fmt: skip

# By the stage of a trial: verb -> where it lives, and what it is for.
STAGES: dict[str, dict[str, tuple[str, str]]] = {
    'Bring in results': {
        'import': ('robotrials.cli.importing:import_source', 'Import rollouts from many formats.'),
        'doctor': ('robotrials.cli.doctor:doctor', 'Describe a file or store, and point out problems.'),
        'annotate': ('robotrials.cli.annotate:annotate_app', 'Detect and review event times in recordings.'),
        'store': ('robotrials.cli.store:store_app', 'Inspect, check and correct a store.'),
        'export': ('robotrials.cli.importing:export', 'Write a store in another format.'),
    },
    'Run a trial': {
        'demo': ('robotrials.cli.demo:demo', 'Run a blinded trial in the embedded cell, and score it.'),
        'power': ('robotrials.cli.power:power_app', 'Work out how many rollouts a claim needs.'),
        'plan': ('robotrials.cli.plan:plan', 'Check a declared trial: size, time, cost.'),
        'seal': ('robotrials.cli.close:seal', 'Blind a trial: one file for each role.'),
        'run': ('robotrials.cli.run:run', 'Run a trial, or resume it.'),
        'console': ('robotrials.cli.console:console', 'Run a real robot: assignments, clock, counts, stop.'),
        'watch': ('robotrials.cli.watch:watch', 'Say when a running trial may stop.'),
        'close': ('robotrials.cli.close:close', 'Unblind a trial, once.'),
        'policies': ('robotrials.cli.policies:policies_app', 'List, check and serve policies.'),
        'env': ('robotrials.cli.env:env_app', 'Create and check isolated environments.'),
    },
    'Analyse': {
        'compare': ('robotrials.cli.compare:compare', 'Compare two policies, or all pairs.'),
        'score': ('robotrials.cli.compare:score', 'Score every policy by time to success.'),
        'safety': ('robotrials.cli.safety:safety_app', 'Was it safe while it succeeded?'),
        'robustness': ('robotrials.cli.robustness:robustness', 'Measure what a changed world costs each policy.'),
        'gate': ('robotrials.cli.gate:gate', 'Test whether a candidate is no worse than the baseline.'),
        'geometry': ('robotrials.cli.geometry:geometry_app', 'Judge success and placements from cameras alone.'),
        'audit': ('robotrials.cli.audit:audit_app', 'Does the benchmark score mean anything?'),
        'actions': ('robotrials.cli.actions:actions_app', 'Score models on recorded actions.'),
    },
    'Show': {
        'report': ('robotrials.cli.report:report', 'Write one page with everything known about a trial.'),
        'tables': ('robotrials.cli.named:tables', 'Print a named table from a store.'),
        'plot': ('robotrials.cli.named:plot', 'Draw a named figure from a store.'),
        'explore': ('robotrials.cli.explore:explore', 'Explore episodes in a browser, frame by frame.'),
    },
    'Serve': {
        'serve': ('robotrials.cli.serve:serve_app', 'Run a benchmark as a service.'),
        'worker': ('robotrials.cli.worker:worker', 'Run a cell around the clock for a platform.'),
        'submit': ('robotrials.cli.submit:submit', 'Submit a policy to a platform for evaluation.'),
    },
}  # fmt: skip
VERBS = {name: verb for stage in STAGES.values() for name, verb in stage.items()}
MOVED = {'calibrate': ('power', 'calibrate')}  # a verb of earlier releases -> where it is now


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'robotrials {__version__}')
        raise typer.Exit


def root(
    version: bool = typer.Option(False, '--version', callback=_print_version, is_eager=True, help='Print the version.'),
    skip_damaged: bool = typer.Option(
        False, '--skip-damaged', help='Skip whatever is damaged in a store, and say what.'
    ),
    board: str = typer.Option(
        '', '--board', help='Look at an open blinded trial by arm, as a member of its board; the look is logged.'
    ),
    board_key: str = typer.Option('', '--board-key', help="With --board, for a sealed trial: the trial's arms.json."),
) -> None:
    """Two-arm trials for robot arms."""
    if skip_damaged or board or 'robotrials.record.store' in sys.modules:
        from robotrials.record.store import read_as

        read_as(
            skip_damaged=skip_damaged, board=board, board_key=board_key, on_open=_log_board_look if board else None
        )  # fmt: skip


def build_app(loaded: Collection[str], named: Collection[str]) -> typer.Typer:
    """The command line with these verbs; those that are not loaded are only named."""
    app = typer.Typer(
        name='robotrials',
        help='Two-arm trials for robot arms: declare, run, score and report robot-policy evaluations.',
        no_args_is_help=True,
        cls=Stages,
        add_completion=True,
        rich_markup_mode=None,  # the rich help costs more than everything else that --help imports
        pretty_exceptions_enable=False,
    )
    Stages.moved = MOVED
    Stages.stages = {stage: tuple(verbs) for stage, verbs in STAGES.items()}
    app.callback()(root)
    for name in named:
        target, summary = VERBS[name]
        if name not in loaded:
            app.command(name, short_help=summary)(_named_only)
            continue
        module, _, attribute = target.partition(':')
        verb: Any = getattr(importlib.import_module(module), attribute)
        if isinstance(verb, typer.Typer):
            for command in verb.registered_commands:
                command.cls = verb_class(f'{name} {command.name}')
            if not isinstance(verb.info.cls, type):
                verb.info.cls = Group
            app.add_typer(verb, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary, cls=verb_class(name))(verb)
    return app


def _named_only() -> None:
    raise AssertionError('a verb that was not loaded was run')


def full_app() -> typer.Typer:
    """The command line with every verb loaded."""
    return build_app(VERBS, VERBS)


def _log_board_look(store: Store) -> None:
    """Whoever looks at an open trial by arm is on record before anything is shown, or sees nothing."""
    from robotrials.errors import StoreError
    from robotrials.record.blinding import is_concealed_plan

    if not store.is_blinded:
        return
    if is_concealed_plan(store.trial) and not store.board_key:
        raise StoreError(
            f'{store.path}: what stands for an arm changes with every episode of this trial; whoever has its arms.json '
            f'looks by arm with: robotrials --board {store.board} --board-key arms.json ...'
        )
    verb = ' '.join(word for word in sys.argv[1:] if not word.startswith('-'))
    if not store.log_look(verb[:200], by=store.board, role='board', seen='an open trial, by arm'):
        raise StoreError(f'{store.path}: a look by the board is logged, but this store cannot be written to')


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


def _tell_unkept() -> None:
    """Say on stderr why the next question will take as long as this one."""
    projection = sys.modules.get('robotrials.record.projection')
    for reason in sorted(projection.unkept) if projection is not None else ():
        advice = 'To keep scores, set ROBOTRIALS_CACHE to a folder that only you can write to.'
        typer.echo(plain(f'Scores were not kept for next time: {reason}. {advice}'), err=True)
    if projection is not None:
        projection.unkept.clear()


def _read_as_usual() -> None:
    """What this verb asked for is not for whoever calls the next in the same process."""
    if 'robotrials.record.store' in sys.modules:
        from robotrials.record.store import read_as

        read_as()


def plain(text: str) -> str:
    """`text` without characters that would steer a terminal."""
    return ''.join(c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text)


def _asked_verb() -> str:
    """The verb on the command line, or on the line that a shell wants completed."""
    import os

    words = os.environ.get('COMP_WORDS', '').split() if '_ROBOTRIALS_COMPLETE' in os.environ else sys.argv
    return next((MOVED[word][0] if word in MOVED else word for word in words[1:] if word in VERBS or word in MOVED), '')


def main() -> None:
    """Run the command line; our own errors are one clear line and exit code 2, anything else is a traceback."""
    asked = _asked_verb()
    try:
        try:
            with told_while_working(asked) if asked in WAITED_FOR else contextlib.nullcontext():
                # The others are for the help, and for whoever mistypes.
                build_app({asked}, [asked] if sys.argv[1:2] == [asked] else VERBS)()
        finally:
            _tell_missing()
            _tell_unkept()
            _read_as_usual()
    except SystemExit as stop:
        # The parser of the command line has said what is wrong; without any word it has printed the help.
        if sys.argv[1:] and hasattr(stop.__context__, 'format_message'):
            from robotrials.cli.output import command_instead

            typer.echo(plain(command_instead(stop.__context__, sys.argv[1:], VERBS)), err=True)
        raise
    except RobotrialsError as error:
        say_error(plain(f'Error: {error}'))
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        say_error(plain(f'Error: {error.filename}: {error.strerror}'))
        sys.exit(2)
