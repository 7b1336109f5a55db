"""What a verb's options are to its reader: flags of its own, options that verbs share, and settings.

A verb declares every option in its signature, with a type and a help text. What is asked for every day stays a flag.
An option that many verbs take (`--format`, `--where`, `--output`) means the same in all of them. The rest are
settings, given as `--set NAME=VALUE`: `robotrials compare runs/may --set alpha=0.1 --set pairing=paired`. Tables that
a verb can add are named likewise: `--show per-spec`. A setting or table may also be written as a flag of its name
(`--alpha 0.1`, `--per-spec`), as scripts of earlier releases do.
"""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup, TyperOption

from robotrials.errors import InputError, UnknownName

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
        for word in words:
            flag, equals, value = word.partition('=')
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


def count_options(command: Any) -> int:
    """Options that a reader meets: a verb's own flags, and what verbs share once."""
    shared: set[str] = set()

    def walk(c: Any) -> int:
        own: int = sum(p.param_type_name == 'option' for p in c.params)
        shared.update(p.opts[0] for p in getattr(c, 'common', ()))
        return own + sum(walk(child) for child in getattr(c, 'commands', {}).values())

    return walk(command) + len(shared)


def _meaning(parameter: TyperOption, ctx: Any) -> str:
    record = parameter.get_help_record(ctx)
    return record[1] if record else ''
