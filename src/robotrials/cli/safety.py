"""`robotrials safety STORE` and `robotrials safety explain TASK`.

SafeVLA-Bench records as a format of `robotrials import`: `safety` reads them, and `formats` may not ask it to.
"""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.option import Group
from robotrials.cli.output import DetailsOption, FormatOption, print_card, print_table
from robotrials.cli.source import RegistryOption, ResamplesOption, SeedOption, WhereOption, open_analysis
from robotrials.errors import InputError
from robotrials.formats.imported import (
    CERTAIN,
    LIKELY,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    head_of,
    refuse_unused,
)

if TYPE_CHECKING:
    from robotrials.show.table import Table


DEFAULT_COMMAND = 'score'


class ScoreByDefault(Group):
    """What is no subcommand is a store to score, so that `robotrials safety STORE` needs no further word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ('--help', '-h'):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


safety_app = typer.Typer(
    cls=ScoreByDefault,
    no_args_is_help=True,
    help='Was it safe while it succeeded? Score recorded trajectories by safety specifications.\n\n'
    'Examples: `robotrials safety runs/may --per-spec`; `robotrials safety explain libero-goal/task_9`',
)

# Flag -> the named table that it prints.
TABLES = {
    'slip': 'safety-slip', 'per_task': 'safety-tasks', 'contingency': 'safety-contingency', 'margins': 'safety-margins',
    'per_spec': 'safety-specs', 'composition': 'safety-composition', 'unscored': 'safety-unscored',
    'witnesses': 'safety-witnesses', 'no_applicability': 'safety-saving', 'sensitivity': 'safety-sensitivity',
}  # fmt: skip


@safety_app.command(DEFAULT_COMMAND)
def score_store(
    store: Annotated[
        Path,
        typer.Argument(
            metavar='SOURCE', help='A store; or a file or folder, such as SafeVLA-Bench records.', show_default=False
        ),
    ],
    per_task: Annotated[bool, typer.Option('--per-task', help='SR and Safety of each task.')] = False,
    per_spec: Annotated[bool, typer.Option('--per-spec', help='Violation rate and severity of each spec.')] = False,
    slip: Annotated[bool, typer.Option('--slip', help="Slip as scored, and by the paper's height rule.")] = False,
    composition: Annotated[bool, typer.Option('--composition', help='Which specs unsafe successes violate.')] = False,
    contingency: Annotated[bool, typer.Option('--contingency', help='The 2x2 counts of success and safety.')] = False,
    margins: Annotated[bool, typer.Option('--margins', help='Mean worst margin and mean peak force.')] = False,
    sensitivity: Annotated[bool, typer.Option('--sensitivity', help='The same with other thresholds.')] = False,
    witnesses: Annotated[
        bool, typer.Option('--witnesses', help='Every violation: episode, time, clause, bodies.')
    ] = False,
    unscored: Annotated[bool, typer.Option('--unscored', help='Episodes that could not be scored, and why.')] = False,
    compare: Annotated[
        tuple[str, str] | None, typer.Option('--compare', help='Two policies: which one is safer?', show_default=False)
    ] = None,
    no_applicability: Annotated[
        bool, typer.Option('--no-applicability', help='Also score without the registry, and with body-frame tilt.')
    ] = False,
    gate: Annotated[str, typer.Option(help='How a gate enters a margin: boolean or literal.')] = 'boolean',
    severity: Annotated[str, typer.Option(help='Scale of VSI: ratio (Eq. 1) or anchored.')] = 'ratio',
    phases: Annotated[bool, typer.Option('--phases', help='Also score the specs that are scoped to a phase.')] = False,
    registry: RegistryOption = None,
    policy: Annotated[str, typer.Option(help='The policy of SafeVLA-Bench records, which name none.')] = '',
    json_: Annotated[bool, typer.Option('--json', help="Print SafeVLA-Bench's metrics JSON and nothing else.")] = False,
    clips: Annotated[
        Path | None, typer.Option(help='Write the list of violations for the run explorer (JSON).')
    ] = None,
    where: WhereOption = None,
    resamples: ResamplesOption = None,
    seed: SeedOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Score every episode and print success, safety, unsafe success and severity.

    Figures have names: `robotrials plot safety-pareto STORE -o safety.pdf`.

    Example: `robotrials safety runs/may --per-spec --sensitivity`
    """
    from robotrials.show.answer import safety_card
    from robotrials.show.catalog import ShowRequest, find_table
    from robotrials.show.safety import comparison_table
    from robotrials.verdict.analysis import present

    wanted = {
        'slip': slip, 'per_task': per_task, 'contingency': contingency, 'margins': margins, 'per_spec': per_spec,
        'composition': composition, 'unscored': unscored, 'witnesses': witnesses,
        'no_applicability': no_applicability, 'sensitivity': sensitivity,
    }  # fmt: skip
    analysis = open_analysis(
        store, where, given={'policy': policy} if policy else None, resamples=resamples, seed=seed, registry=registry,
        safety_gate=gate, safety_severity=severity, safety_phases=phases,
    )  # fmt: skip
    part = present(analysis.safety)
    if json_ or form == 'csv':  # which have no place for a note
        for caveat in analysis.safety_caveats:
            typer.echo(f'Note: {caveat}', err=True)
    if json_:
        from robotrials.measure.safety.safevla import metrics_document

        document = metrics_document(list(part.scores), registry=analysis.registry)
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    request = ShowRequest(subject=analysis)
    names = ['safety', *(['safety-means'] if any(len(m.benchmarks) > 1 for m in part.summary.means) else [])]
    names += [name for flag, name in TABLES.items() if wanted[flag]]
    is_asked = any(wanted.values()) or compare is not None
    if form == 'text' and is_asked and not details:
        names = names[-sum(wanted.values()) :] if any(wanted.values()) else []

    def tables() -> list[Table]:
        made = [table for name in names for table in find_table(name)(request)]
        if compare is not None:
            last = sum(map(bool, (no_applicability, sensitivity)))
            made.insert(len(made) - last, comparison_table(analysis.safety_comparison(*compare)))
        return made

    n_invalid = sum(not episode.is_valid for episode in analysis.episodes)
    if n_invalid:
        typer.echo(f'{n_invalid} INVALID episodes are not scored: they tested no policy', err=True)
    print_card(lambda: safety_card(analysis), tables, form, details=details or is_asked, analysis=analysis)
    if clips is not None:
        from robotrials.measure.safety.summary import write_clips

        typer.echo(f'wrote {write_clips(clips, part.scores)}', err=True)


@safety_app.command('explain')
def explain_task(
    task: Annotated[
        str, typer.Argument(help='BENCHMARK/TASK, or a task that only one benchmark has.', show_default=False)
    ],
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='The benchmark, if not in TASK.')] = '',
    reported: Annotated[
        bool, typer.Option('--all', help='Include report-only and phase specs, and the sources of thresholds.')
    ] = False,
    registry: RegistryOption = None,
    form: FormatOption = 'text',
) -> None:
    """Print why each safety family is or is not active on a task.

    Example: `robotrials safety explain libero-goal/task_9`
    """
    from robotrials.measure.safety import Tier, load_registry
    from robotrials.show.safety import explain_table

    known = load_registry(*(registry or []))
    name, entry = known.find(task, benchmark)
    tiers = (Tier.SAFE, Tier.PHASE, Tier.REPORT) if reported else (Tier.SAFE,)
    decisions = known.explain(name, entry, tiers=tiers)
    caveats = known.caveats([name])
    print_table(explain_table(known.entry(name, entry), decisions, sources=reported, caveats=caveats), form)


SUFFIXES = ('.json', '.jsonl', '.npz')
MOST_LOOKED_AT = 20


class SafevlaFormat:
    """Trajectory and metrics records of SafeVLA-Bench's Appendix B."""

    name = 'safevla'
    summary = 'SafeVLA-Bench trajectory or metrics records: .json, .jsonl, .npz, or a folder of them'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            files = _files(path)
            return LIKELY if files and all(map(_is_record, files)) else None
        return CERTAIN if path.suffix in SUFFIXES and path.is_file() and _is_record(path) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        from robotrials.measure.safety.safevla import read_safevla

        refuse_unused(options, name='SafeVLA-Bench records', takes=('columns',))
        if options.columns or options.defaults.keys() - {'policy'}:
            unused = ', '.join([*options.columns, *(options.defaults.keys() - {'policy'})])
            raise InputError(
                f'{path}: SafeVLA-Bench records take --set policy=NAME and no other mapping, found {unused}'
            )
        ledger = ImportAccount()

        def recordings() -> Iterator[Recording]:
            policy = options.defaults.get('policy', '')
            for episode, trajectory in read_safevla(path, policy=policy, source=options.source):
                ledger.keep('episodes with their trajectories' if trajectory is not None else 'episodes as metrics')
                yield Recording(episode, trajectory)

        return Imported(
            format=self.name,
            sources=tuple(sorted(p for p in path.rglob('*') if p.suffix in SUFFIXES)) if path.is_dir() else (path,),
            recordings=recordings,
            ledger=ledger,
        )


def _is_record(path: Path) -> bool:
    from robotrials.measure.safety.safevla import RECORD_FIELDS, is_safevla

    if path.suffix != '.npz':
        # The whole file is parsed only where its beginning speaks for it.
        return b'"episode_id"' in head_of(path) and is_safevla(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix('.npy') for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        return False
    return names >= set(RECORD_FIELDS) or ({'episode_id', 'success'} <= names and is_safevla(path))


def _files(folder: Path) -> list[Path]:
    """Some of the files that would be read, from whichever depth they lie at."""
    records = (p for p in folder.rglob('*') if p.suffix in SUFFIXES)
    return list(itertools.islice(records, MOST_LOOKED_AT))


SAFEVLA = SafevlaFormat()
