"""The options that every verb of an analysis shares, and the one way to open it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli import process
from robotrials.cli.output import analysis_progress, doing, say
from robotrials.errors import InputError, RecordError, UnknownName

if TYPE_CHECKING:
    from robotrials.formats.imported import ImportOptions
    from robotrials.record.store import OpenedSource
    from robotrials.run.ray_crew import RayOptions
    from robotrials.verdict.analysis import Analysis


StoreArgument = Annotated[
    Path,
    typer.Argument(metavar='SOURCE', help='A store, or any file or folder that `robotrials import` can read.'),
]
StorePath = Annotated[Path, typer.Argument(help='The folder of the store.', show_default=False)]
SeedOption = Annotated[
    int | None, typer.Option('--seed', min=0, help='Seed of every random draw; default: as declared.')
]
PolicyOption = Annotated[list[str] | None, typer.Option('--policy', '-p', help='Show only this policy; repeatable.')]
ReferenceOption = Annotated[
    str | None, typer.Option('--reference', '-r', help='The policy to measure against; default: the one marked.')
]
ResamplesOption = Annotated[
    int | None,
    typer.Option('--resamples', min=1, help='Resamples of a bootstrap or permutation; default: as declared.'),
]
TauOption = Annotated[
    float | None, typer.Option('--tau', help='Time up to which curves are compared (s); default: as declared.')
]
AlphaOption = Annotated[
    float | None, typer.Option('--alpha', help='Level of tests; intervals have level 1 - alpha; default: as declared.')
]
PrimaryOption = Annotated[
    str | None, typer.Option('--primary', help='time, success, throughput, score or safety; default: as declared.')
]
PairingOption = Annotated[
    str | None, typer.Option('--pairing', help='auto, paired or independent; default: as declared.')
]
BaselineOption = Annotated[
    str | None, typer.Option('--baseline', help='The condition under which policies are ranked; default: as declared.')
]


def check_method(method: str) -> str:
    """The name of a null method, or an error that suggests the near one."""
    from robotrials.measure.timing import NullMethod

    if method not in set(NullMethod):
        raise UnknownName('method', method, [m.value for m in NullMethod])
    return method


MethodOption = Annotated[
    str,
    typer.Option(
        '--method', callback=check_method, help='Null resampling: permutation, or pooled_bootstrap (as published).'
    ),
]
RegistryOption = Annotated[
    list[Path] | None, typer.Option('--registry', help='Your own safety registry file; repeatable.')
]
WhereOption = Annotated[
    list[str] | None, typer.Option('--where', '-w', help='Only episodes with FIELD=VALUE; repeatable.')
]


ANALYSIS_OPTIONS = {
    'reference': ReferenceOption, 'tau': TauOption, 'primary': PrimaryOption, 'pairing': PairingOption,
    'baseline': BaselineOption, 'alpha': AlphaOption, 'registry': RegistryOption, 'resamples': ResamplesOption,
    'seed': SeedOption, 'where': WhereOption,
}  # fmt: skip
AnalysisChanges = dict[str, Any]  # what the command line changes of an analysis, as `open_analysis` takes it
Command = Callable[..., None]


def takes_analysis(names: str) -> Callable[[Command], Command]:
    """Give a verb these options of an analysis, where its parameter `changes` stands, which gets all of them."""

    def decorate(verb: Command) -> Command:
        own = inspect.signature(verb, eval_str=True)
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ANALYSIS_OPTIONS[name])
            for name in names.split()
        ]
        parameters = [
            option
            for p in own.parameters.values()
            for option in (options if p.name == 'changes' else [p.replace(kind=inspect.Parameter.KEYWORD_ONLY)])
        ]

        @functools.wraps(verb)
        def call(**given: Any) -> None:
            changes = {option.name: given.pop(option.name) for option in options}
            verb(**given, changes=changes)

        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return decorate


def parse_where(conditions: list[str] | None) -> dict[str, list[object]]:
    """`['policy=act', 'policy=pi05', 'seed=3']` as a filter for `Store.episodes`."""
    from robotrials.record.episode import PARSERS, TEXT_FIELDS, parse_field

    where: dict[str, list[object]] = {}
    for condition in conditions or []:
        name, separator, value = condition.partition('=')
        if not separator:
            raise InputError(f'--where wants FIELD=VALUE, found {condition!r}')
        if name not in PARSERS:
            raise UnknownName('field of an episode', name, PARSERS)
        where.setdefault(name, []).append('' if not value and name in TEXT_FIELDS else parse_field(name, value))
    return where


def open_analysis(
    store: Path, where: list[str] | None = None, *, is_look: bool = True, given: Mapping[str, str] | None = None,
    **changes: Any,
) -> Analysis:  # fmt: skip
    """The analysis of a source as declared, with what the command line changed marked; progress goes to stderr.

    On an open trial this is an interim look: it is said, and written to the trial's log where that can be written.
    """
    from robotrials.cli.option import analysis_settings
    from robotrials.verdict.analysis import analyse

    named, matching = named_changes(**changes), parse_where(where) or None  # refused before anything is read
    named |= {name: value for name, value in analysis_settings().items() if name not in named}
    check_plan(named)
    source = open_named(store, given)
    doing(f'analysing {store}')
    analysis = analyse(source.store, where=matching, advance=analysis_progress(), title=source.name, **named)
    if is_look:
        log_look(analysis)
    return analysis


def check_plan(changes: Mapping[str, Any]) -> None:
    """Refuse values that no plan can have before anything is read; names that depend on the data come later."""
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

    single = {name: value for name, value in changes.items() if name in ('alpha', 'tau_s', 'resamples', 'seed')}
    dataclasses.replace(AnalysisPlan(), **single)


def open_named(source: Path, given: Mapping[str, str] | None = None) -> OpenedSource:
    """What a verb was given to ask: a store, or a file or folder whose reading is told in a line on stderr.

    Nothing is written but what goes with the process; `given` are fields that the source itself does not name.
    """
    from robotrials.record import read_store
    from robotrials.record.store import OpenedSource, is_store

    doing(f'reading {source}')
    if not given and is_store(source):  # who asks a store needs no reader of files
        spare_pandas()
        return OpenedSource(read_store(source), str(source))
    from robotrials.cli.output import and_ask
    from robotrials.formats.catalog import FORMATS
    from robotrials.formats.imported import ImportOptions

    if not FORMATS.installed():  # a reader of somebody else's may use pandas
        spare_pandas()
    opened = _open_offering(source, ImportOptions(defaults=given or {}), ' '.join(['robotrials', *sys.argv[1:]]))
    if opened.told:
        say(and_ask(opened.told, source))
    return opened


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas in a process of our own, where nobody else's code wants it."""
    if process.is_own:
        from robotrials.record import rows

        rows.spare_pandas()


def _open_offering(source: Path, options: ImportOptions, command: str) -> OpenedSource:
    """Open a file or folder; a remedy that is known is offered on a terminal, and printed to be pasted elsewhere."""
    from robotrials.cli.output import accepted, ask, asked_again, can_be_asked, is_terminal, offer_mapping
    from robotrials.formats.imported import FixableError
    from robotrials.formats.intake import open_for_asking

    wanted = options
    while True:
        try:
            opened = open_for_asking(source, wanted, command=command, ask=ask if is_terminal() else None)
        except FixableError as error:
            if not can_be_asked(error, source):
                raise RecordError(error.problem) from error
            if not is_terminal() or error.options == wanted:
                raise RecordError(asked_again(error, source)) from error
            wanted = accepted(error)
        else:
            if wanted != options:
                offer_mapping(source, wanted)
            return opened


def log_look(analysis: Analysis) -> None:
    """Put a look at an open trial on record; a store that cannot be written to still answers, and says so."""
    from robotrials.verdict.analysis.quality import interim_looks

    store = analysis.selection.store
    if store is None or not interim_looks(analysis.selection).is_open:
        return
    changed = {name: str(getattr(analysis.plan, name)) for name in analysis.declared.changed}
    seen = ', '.join(e.value for e in analysis.primary)
    if not store.log_look(' '.join(sys.argv[1:2]), options=changed, seen=seen):
        typer.echo('This look could not be written to the log of the trial: it is unlogged.', err=True)


def named_changes(
    *, tau: float | None = None, reference: str | None = None, resamples: int | None = None, seed: int | None = None,
    alpha: float | None = None, primary: str | None = None, pairing: str | None = None, baseline: str | None = None,
    registry: list[Path] | None = None, safety_gate: str | None = None, safety_severity: str | None = None,
    safety_phases: bool | None = None, success: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Options of the command line as fields of the plan; what was not given stays out."""
    from robotrials.verdict.planning.analysis_plan import EndpointName, Pairing

    known = [e.value for e in EndpointName]
    if primary is not None and primary not in known:
        raise UnknownName('endpoint', primary, known)
    if pairing is not None and pairing not in [p.value for p in Pairing]:
        raise UnknownName('pairing', pairing, [p.value for p in Pairing])
    given = {
        'tau_s': tau, 'reference': reference, 'resamples': resamples, 'seed': seed, 'alpha': alpha,
        'primary': None if primary is None else (EndpointName(primary),),
        'pairing': None if pairing is None else Pairing(pairing), 'baseline': baseline,
        'safety_registry': None if not registry else tuple(map(str, registry)), 'safety_gate': safety_gate,
        'safety_severity': safety_severity, 'safety_phases': safety_phases, 'success': success,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def tell_analysis(analysis: Analysis, *, of_safety: bool = False) -> None:
    """Say on stderr what was used, and what a reader must know before the numbers."""
    from robotrials.verdict.analysis import Absent

    say(analysis.statement)
    frame = analysis.frame
    if not isinstance(frame, Absent) and frame.n_conditions > 1 and frame.condition:
        others = f'{frame.n_conditions - 1} more in the store: robotrials robustness compares them'
        say(f'Note: policies are ranked by the episodes of condition {frame.condition} ({others}).')
    for caution in (*analysis.cautions, *(analysis.safety_caveats if of_safety else ())):
        say(f'Note: {caution}')


# Where work is done: on this machine, or on a Ray cluster.


ENGINES = ('local', 'ray')
EngineOption = Annotated[
    str, typer.Option('--engine', help='local, or ray: large resampling on a Ray cluster, with the same numbers.')
]
AddressOption = Annotated[
    str | None,
    typer.Option('--address', help='For --engine ray: the cluster, such as auto.', show_default='this machine'),
]


def ray_options(
    engine: str, address: str | None, resources: list[str] | None = None, *, policy_servers: int = 0
) -> RayOptions | None:
    """What the options of an engine say; None for the local one."""
    if engine not in ENGINES:
        raise UnknownName('engine', engine, ENGINES)
    if engine == 'local':
        if address is not None or resources or policy_servers:
            raise InputError('--address, --resource and --policy-servers are for a Ray cluster; add --engine ray')
        return None
    from robotrials.run.ray_crew import RayOptions

    amounts = {'CPU': 1.0, 'GPU': 0.0}
    for text in resources or ():
        name, _, amount = text.partition('=')
        try:
            amounts[name] = float(amount)
        except ValueError:
            raise InputError(f'--resource is {text!r}, wanted NAME=AMOUNT, such as robot_cell=1') from None
    cpus, gpus = amounts.pop('CPU'), amounts.pop('GPU')
    if policy_servers:  # the policy's share of a GPU is where the policy is
        return RayOptions(address, cpus=cpus, resources=amounts, policy_servers=policy_servers, server_gpus=gpus)
    return RayOptions(address, cpus=cpus, gpus=gpus, resources=amounts)


@contextmanager
def resampled_on(engine: str, address: str | None) -> Iterator[None]:
    """Within it, large resampling is done on the engine asked for."""
    options = ray_options(engine, address)
    if options is None:
        yield
        return
    from robotrials.measure.timing.resample import farmed
    from robotrials.run.ray_crew import ray_cluster

    with ray_cluster(options) as ray, farmed(ray):
        yield
