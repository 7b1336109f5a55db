"""What a verb's options are to its reader: flags of its own, options that verbs share, and settings.

A verb declares every option in its signature, with a type and a help text. What is asked for every day stays a flag.
An option that many verbs take (`--format`, `--where`, `--output`) means the same in all of them. The rest are
settings, given as `--set NAME=VALUE`: `robotrials compare runs/may --set alpha=0.1 --set pairing=paired`. Tables that
a verb can add are named likewise: `--show per-spec`. A setting or table may also be written as a flag of its name
(`--alpha 0.1`, `--per-spec`), as scripts of earlier releases do.
"""

from __future__ import annotations

import contextlib
import gettext
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from robotrials import __version__
from robotrials.cli.output import plain, say_error, told_while_working
from robotrials.errors import InputError, RobotrialsError, UnknownName

if TYPE_CHECKING:
    from robotrials.record import Store

COMMON = ('--format', '--where', '--output', '--figure', '--details', '--per-task', '--methods')
SETTINGS = frozenset({
    # of an analysis
    '--alpha', '--baseline', '--pairing', '--primary', '--registry', '--resamples', '--seed', '--gate', '--severity',
    '--phases', '--no-applicability', '--setup', '--method', '--level', '--tolerance',
    # of a simulation
    '--assume', '--strata', '--operations', '--correlation', '--watched', '--metric', '--trials', '--fit', '--threads',
    '--design-effect', '--debias', '--bridges', '--survey', '--discordance', '--jitter', '--overall', '--conditions',
    '--against-reference', '--power', '--horizon', '--smallest', '--paired', '--matched', '--looks',
    # of the machines that do the work
    '--engine', '--address', '--resource', '--policy-servers', '--shard', '--worker-log', '--measure', '--episode-s',
    '--inference-s', '--inferences', '--most-workers', '--batch-speedup', '--worker-price', '--server-price',
    '--v-max', '--a-max', '--workspace', '--reset-check', '--batch', '--batch-wait-s', '--device', '--arms', '--host',
    # of how recordings are joined, drawn and replayed
    '--offset-s', '--in-order', '--redraw', '--fresh', '--rerun', '--closed-loop', '--known', '--calibration', '--rgbd',
    '--world', '--depth-unit-m',
    # of where cameras go, and where they stand
    '--distance', '--fovy', '--mount', '--target',
    # of a figure or a printed table
    '--style', '--width', '--height', '--font', '--font-size', '--label', '--tex-label', '--figure-format', '--size',
    # of an audit
    '--max-score', '--unit', '--baselines', '--rule', '--copied', '--realizable-only', '--set-aside', '--since',
    '--until', '--months', '--usage', '--full-score', '--discordant', '--time-cap', '--steps', '--protocol', '--margin',
    '--expert', '--reported', '--distance-mm', '--grid', '--learner', '--control', '--contrast',
    # of scoring recorded actions
    '--floating-only', '--feature', '--convert', '--limit', '--in-pretraining', '--invalid', '--share', '--test-split',
    '--space', '--space-out', '--inverse', '--published',
})  # fmt: skip
TABLES = frozenset({
    '--per-spec', '--slip', '--composition', '--contingency', '--margins', '--sensitivity',
    '--witnesses', '--unscored',
})  # fmt: skip
KEPT = {
    'gate': ('--baseline', '--alpha'), 'geometry score': ('--baseline',), 'demo': ('--seed',),
    'audit card': ('--reported',), 'actions convert': ('--space',), 'power size': ('--power',),
}  # fmt: skip
SPELLINGS = {'--out': '--output', '--to': '--output', '-t': '--output', '--csv': '--output'}  # of earlier releases
ONCE_OPTIONS = {'--dataset': 'dataset', '-d': 'dataset'}  # of earlier releases: arguments today
PLAN_NAMES = {'tau': 'tau_s', 'registry': 'safety_registry', 'gate': 'safety_gate', 'severity': 'safety_severity',
              'phases': 'safety_phases'}  # fmt: skip
UNCUT = 1000  # characters, more than any first sentence has
PLAN_ONLY = ('compound', 'correction', 'failure', 'secondary', 'stratify_by', 'success', 'unit')
_plan_settings: ContextVar[dict[str, str]] = ContextVar('plan settings')  # of the verb that runs


class Verb(TyperCommand):
    """A command whose `params` are its arguments and own flags; what it shares with others and its settings are beside
    them, and parsed with them.
    """

    kept: tuple[str, ...] = ()  # flags, although other verbs have a setting of that name

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        has_set = any('--set' in p.opts for p in self.params)
        self._asks_analysis = any(p.name == 'pairing' for p in self.params)
        self.common: list[Any] = []
        self.settings: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        own: list[Any] = []
        for p in self.params:
            flag = p.opts[0]
            if flag in COMMON:
                self.common.append(p)
            elif flag in TABLES:
                self.tables[flag.removeprefix('--')] = p
            elif flag in SETTINGS and flag not in self.kept and not has_set and not p.required:
                name = flag.removeprefix('--').replace('-', '_')
                self.settings[PLAN_NAMES.get(name, name) if self._asks_analysis else name] = p
            else:
                own.append(p)
        self.params = own

    def get_params(self, ctx: Any) -> list[Any]:
        """Everything that is parsed."""
        asked = [*super().get_params(ctx), *self.settings.values(), *self.tables.values(), *self.common]
        return spare_coercion(asked)

    def flags(self, ctx: Any) -> set[str]:
        """Every spelling of an option that its help shows, and of its settings and tables."""
        options = [p for p in self.get_params(ctx) if p.param_type_name == 'option']
        return {flag for p in options for flag in (*p.opts, *p.secondary_opts)}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write `--set` and `--show` as the options that they name, then parse."""
        _plan_settings.set({})
        return super().parse_args(ctx, list(self._written_out(ctx, args)))

    def _written_out(self, ctx: Any, args: Sequence[str]) -> Iterator[str]:
        words = iter(args)
        known = self.flags(ctx)
        arguments = {p.name for p in self.params if p.param_type_name == 'argument'}
        for word in words:
            flag, equals, value = word.partition('=')
            if flag not in known and ONCE_OPTIONS.get(flag) in arguments:
                if equals:
                    yield value
                continue
            if flag not in known and SPELLINGS.get(flag) in known:
                word = f'{SPELLINGS[flag]}{equals}{value}'
            if word == '--':
                yield from (word, *words)
            elif flag == '--set' and (self.settings or self._asks_analysis):
                yield from self._setting(ctx, value if equals else next(words, ''))
            elif flag == '--show' and self.tables:
                for name in (value if equals else next(words, '')).split(','):
                    if name not in self.tables:
                        raise UnknownName('table to show', name, sorted(self.tables))
                    yield f'--{name}'
            else:
                yield word

    def _setting(self, ctx: Any, text: str) -> Iterator[str]:
        name, equals, value = text.partition('=')
        name = name.strip().replace('-', '_')
        if not equals or not name:
            raise InputError(f"--set is given as NAME=VALUE, such as --set {next(iter(self.settings), 'alpha')}=...; "
                             f'found {text!r}')  # fmt: skip
        by_flag = {p.opts[0].removeprefix('--').replace('-', '_'): p for p in self.get_params(ctx)
                   if p.param_type_name == 'option'}  # fmt: skip
        parameter = self.settings.get(name) or by_flag.get(name) or by_flag.get(name.removesuffix('_s'))
        if parameter is None:
            if self._asks_analysis and name in PLAN_ONLY:
                _plan_settings.get()[name] = value
                return
            raise UnknownName('setting', name, sorted({*self.settings, *(PLAN_ONLY if self._asks_analysis else ())}))
        if not parameter.is_flag:
            yield f'{parameter.opts[0]}={value}'
        elif value.lower() in ('true', 'yes', '1', 'on'):
            yield parameter.opts[0]
        elif value.lower() not in ('false', 'no', '0', 'off'):
            raise InputError(f'--set {name} is {value!r}, wanted true or false')
        elif parameter.secondary_opts:
            yield parameter.secondary_opts[0]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments in capitals, as everywhere in the help."""
        return [
            piece.translate({ord('{'): None, ord('}'): None}).upper() for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, own and shared flags, then settings and tables."""
        own = [*super().get_params(ctx), *self.common]
        by_kind = {kind: [(_plain_head(record[0]), record[1]) for p in own
                          if p.param_type_name == kind and (record := p.get_help_record(ctx))]
                   for kind in ('argument', 'option')}  # fmt: skip
        for title, rows in (
            ('Arguments', by_kind['argument']), ('Options', by_kind['option']),
            ('Settings, given as --set NAME=VALUE', [(n, _meaning(p, ctx)) for n, p in sorted(self.settings.items())]),
            ('Tables to add, given as --show NAME', [(n, _meaning(p, ctx)) for n, p in sorted(self.tables.items())]),
        ):  # fmt: skip
            if rows:
                with formatter.section(gettext.gettext(title)):
                    formatter.write_dl(rows)


def _plain_head(head: str) -> str:
    """`STORE <path>` and `--where <str>`: no Python types, and arguments in capitals."""
    head = re.sub(r'<(?:list\[)?(\w+)(?:\]| range)?>', lambda kind: f'<{kind[1].lower()}>', head)
    name, _, kind = head.partition(' ')
    return head if head.startswith('-') else f'{name.upper()} {kind}'.rstrip()


def verb_class(name: str) -> type[Verb]:
    """The class of a verb's command, by its full name, such as 'audit card'."""
    return type('Verb', (Verb,), {'kept': KEPT.get(name, ())})


class Group(TyperGroup):
    """A verb of several commands. Its help says the whole first sentence of each: a summary that is cut says little."""

    def get_params(self, ctx: Any) -> list[Any]:
        return spare_coercion(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section('Commands'):
            formatter.write_dl([(name, c.get_short_help_str(UNCUT)) for name, c in self.commands.items()])


class Stages(Group):
    """The root command: its verbs grouped by the stage of a trial."""

    stages: ClassVar[dict[str, tuple[str, ...]]] = {}
    moved: ClassVar[dict[str, tuple[str, str]]] = {}  # verbs of earlier releases

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take the place of a verb that has moved."""
        return super().resolve_command(ctx, [*self.moved.get(args[0], (args[0],)), *args[1:]])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One section for each stage."""
        for stage, names in self.stages.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            with formatter.section(stage):
                formatter.write_dl([(name, c.get_short_help_str(formatter.width - 16)) for name, c in commands])


CHECKS = ('parser', 'click_type', 'exists', 'writable', 'resolve_path', 'allow_dash', 'path_type')


class AsGiven:
    """A text, a path, or nothing, as it was given: newer releases of typer have pydantic look at each of them, and
    importing it takes longer than a verb's answer. What has to be parsed or refused is left to typer.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        wanted = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if wanted is str and isinstance(value, str):
            return value
        if wanted is Path and isinstance(value, str) and (os.access(value, os.R_OK) or not os.path.lexists(value)):
            return Path(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def spare_coercion(parameters: list[Any]) -> list[Any]:
    """Take parameters without a parser or a check of their own as they are given, where typer has that seam."""
    for parameter in parameters:
        information = getattr(getattr(parameter, 'type_descriptor', None), 'parameter_info', None)
        is_checked = any(getattr(information, check, None) for check in CHECKS)
        if getattr(parameter, '_runtime_param', True) is None and not is_checked:
            parameter._runtime_param = AsGiven()
    return parameters


def analysis_settings() -> dict[str, Any]:
    """Fields of the analysis plan that the running verb was given by `--set` and has no parameter for."""
    return dict(_plan_settings.get({}))


def _meaning(parameter: TyperOption, ctx: Any) -> str:
    record = parameter.get_help_record(ctx)
    return record[1] if record else ''


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


def _asked_verb() -> str:
    """The verb on the command line, or on the line that a shell wants completed."""
    import os

    words = sys.argv
    if '_ROBOTRIALS_COMPLETE' in os.environ:  # bash says the line in the first, zsh, fish and PowerShell in the other
        words = (os.environ.get('COMP_WORDS') or os.environ.get('_TYPER_COMPLETE_ARGS', '')).split()
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
        say_error(f'Error: {error}')
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        say_error(f'Error: {error.filename}: {error.strerror}')
        sys.exit(2)
