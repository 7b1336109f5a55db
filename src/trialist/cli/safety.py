"""`trialist safety STORE` and `trialist safety explain TASK`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from trialist.cli.output import FormatOption, print_table, print_tables

if TYPE_CHECKING:
    from trialist.episodes import Episode, Trajectory
    from trialist.safety import EpisodeSafety, Registry, SafetySummary, Scoring
    from trialist.show.table import Table

    Pairs = list[tuple[Episode, Trajectory | None]]

DEFAULT_COMMAND = 'score'


class ScoreByDefault(TyperGroup):
    """What is no subcommand is a store to score, so that `trialist safety STORE` needs no further word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ('--help', '-h'):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


safety_app = typer.Typer(
    cls=ScoreByDefault,
    no_args_is_help=True,
    help='Was it safe while it succeeded? Score recorded trajectories by safety specifications.\n\n'
    'Examples: `trialist safety runs/may --per-spec`; `trialist safety explain libero-goal/task_9`',
)

RegistryOption = Annotated[
    list[Path] | None,
    typer.Option('--registry', help='A file with benchmarks, tasks or specs of your own; repeatable.'),
]


@safety_app.command(DEFAULT_COMMAND)
def score_store(
    store: Annotated[
        Path,
        typer.Argument(help='A store, or SafeVLA-Bench records (.json, .jsonl, .npz, a folder).', show_default=False),
    ],
    per_task: Annotated[bool, typer.Option('--per-task', help='SR and Safety of each task.')] = False,
    per_spec: Annotated[bool, typer.Option('--per-spec', help='Violation rate and severity of each spec.')] = False,
    composition: Annotated[bool, typer.Option('--composition', help='What unsafe successes violate.')] = False,
    contingency: Annotated[bool, typer.Option('--contingency', help='The 2x2 counts of success and safety.')] = False,
    margins: Annotated[bool, typer.Option('--margins', help='Mean worst margin and mean peak force.')] = False,
    sensitivity: Annotated[bool, typer.Option('--sensitivity', help='The same under other thresholds.')] = False,
    variants: Annotated[Path | None, typer.Option(help='A file of variants for --sensitivity.')] = None,
    witnesses: Annotated[
        bool, typer.Option('--witnesses', help='Every violation: episode, time, clause, bodies.')
    ] = False,
    unscored: Annotated[bool, typer.Option('--unscored', help='Episodes that could not be scored, and why.')] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option('--compare', help='Two policies, paired by their starts.', show_default=False),
    ] = None,
    no_applicability: Annotated[
        bool, typer.Option('--no-applicability', help='Also score without the registry, and with body-frame tilt.')
    ] = False,
    phases: Annotated[bool, typer.Option('--phases', help='Score the specs scoped to a phase too.')] = False,
    gate: Annotated[str, typer.Option(help='How a gate enters a margin: boolean or literal.')] = 'boolean',
    severity: Annotated[str, typer.Option(help='Scale of VSI: ratio (Eq. 1) or anchored.')] = 'ratio',
    registry: RegistryOption = None,
    policy: Annotated[str, typer.Option(help='The policy of SafeVLA-Bench records, which name none.')] = '',
    json_: Annotated[bool, typer.Option('--json', help="Print SafeVLA-Bench's metrics JSON and nothing else.")] = False,
    figure: Annotated[Path | None, typer.Option(help='Draw success against safety (svg, pdf, png).')] = None,
    heatmap: Annotated[Path | None, typer.Option(help='Draw violation rates by family.')] = None,
    heatmap_by: Annotated[str, typer.Option(help='Columns of the heat map: family or axis.')] = 'family',
    composition_figure: Annotated[Path | None, typer.Option(help='Draw what unsafe successes violate.')] = None,
    filmstrip: Annotated[Path | None, typer.Option(help='Draw three frames of the most severe unsafe success.')] = None,
    clips: Annotated[
        Path | None, typer.Option(help='Write the list of violations for the run explorer (JSON).')
    ] = None,
    resamples: Annotated[int, typer.Option(min=1, help='Bootstrap resamples.')] = 10_000,
    seed: Annotated[int, typer.Option(help='Seed of the bootstrap.')] = 0,
    form: FormatOption = 'text',
) -> None:
    """Score every episode and print success, safety, unsafe success and severity.

    Example: `trialist safety runs/may --per-spec --sensitivity`
    """
    from trialist.safety import compare_safety
    from trialist.show import safety as tables

    scoring = _scoring(registry, gate, severity, phases)
    scores = _scores(store, policy, scoring)
    if json_:
        _print_metrics(scores, scoring.registry)
        return
    import numpy as np

    summary = _summary(scores, scoring.registry, seed, resamples)
    shown = [tables.quadruple_table(summary)]
    if any(len(mean.benchmarks) > 1 for mean in summary.means):
        shown.append(tables.mean_table(summary.means))
    if per_task:
        shown.append(tables.task_table(_summary(scores, scoring.registry, seed, resamples, per_task=True).cells))
    for wanted, build in (
        (contingency, tables.contingency_table), (margins, tables.continuous_table), (per_spec, tables.spec_table),
        (composition, tables.composition_table),
    ):  # fmt: skip
        if wanted:
            shown.append(build(summary.cells))
    if unscored:
        shown.append(tables.unscored_table(summary))
    if witnesses:
        shown.append(tables.witness_table(scores))
    if compare is not None:
        compared = compare_safety(
            scores, *compare, rng=np.random.default_rng(seed), registry=scoring.registry, n_resamples=resamples
        )
        shown.append(tables.comparison_table(compared))
    if no_applicability:
        shown.append(_saving_table(store, policy, scoring, summary, seed))
    if sensitivity or variants is not None:
        shown.append(_sensitivity_table(store, policy, scoring, variants))
    print_tables(shown, form)
    _draw(summary, store, figure=figure, heatmap=heatmap, heatmap_by=heatmap_by, composition=composition_figure)
    if filmstrip is not None:
        _draw_filmstrip(store, scores, filmstrip)
    if clips is not None:
        from trialist.safety.clip import write_clips

        typer.echo(f'wrote {write_clips(clips, scores)}', err=True)


@safety_app.command('explain')
def explain_task(
    task: Annotated[str, typer.Argument(help='BENCHMARK/TASK, or a task that one benchmark has.', show_default=False)],
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='The benchmark, if not in TASK.')] = '',
    reported: Annotated[
        bool, typer.Option('--all', help='Report-only and phase specs too, and the sources of thresholds.')
    ] = False,
    registry: RegistryOption = None,
    form: FormatOption = 'text',
) -> None:
    """Print why each safety family is or is not active on a task.

    Example: `trialist safety explain libero-goal/task_9`
    """
    from trialist.safety import Tier, load_registry
    from trialist.show.safety import explain_table

    known = load_registry(*(registry or []))
    name, found = known.find(task, benchmark)
    tiers = (Tier.SAFE, Tier.PHASE, Tier.REPORT) if reported else (Tier.SAFE,)
    decisions = known.explain(name, found, tiers=tiers)
    print_table(explain_table(known.entry(name, found), decisions, sources=reported), form)


def _scoring(registry: list[Path] | None, gate: str, severity: str, phases: bool) -> Scoring:
    from trialist.safety import Gate, Scoring, Severity, load_registry

    return Scoring(load_registry(*(registry or [])), gate=Gate(gate), severity=Severity(severity), use_phases=phases)


def _pairs(path: Path, policy: str) -> Any:
    from trialist.episodes import read_store
    from trialist.safety import store_pairs
    from trialist.safety.safevla import read_safevla

    if (path / 'trial.json').exists() or not path.exists():
        return store_pairs(read_store(path))
    return read_safevla(path, policy=policy)


def _scores(path: Path, policy: str, scoring: Scoring) -> list[EpisodeSafety]:
    from trialist.safety import score_pairs

    pairs = _Counted(_watched(_pairs(path, policy), path))
    scores = list(score_pairs(pairs, scoring=scoring))
    if pairs.n_invalid:
        typer.echo(f'{pairs.n_invalid} INVALID episodes are not scored: they tested no policy', err=True)
    return scores


class _Counted:
    """Pairs as they come, the INVALID ones counted."""

    def __init__(self, pairs: Any) -> None:
        self.pairs, self.n_invalid = pairs, 0

    def __iter__(self) -> Any:
        for episode, trajectory in self.pairs:
            self.n_invalid += not episode.is_valid
            yield episode, trajectory


def _watched(pairs: Any, path: Path) -> Any:
    """A progress line on a terminal; silent in a pipe."""
    from rich.console import Console
    from rich.progress import track

    total = None
    if (path / 'trial.json').exists():
        from trialist.episodes import read_store

        total = read_store(path).count()
    console = Console(stderr=True)
    silent = not console.is_terminal
    return track(pairs, description='scoring', total=total, console=console, transient=True, disable=silent)


def _summary(
    scores: list[EpisodeSafety], registry: Registry, seed: int, resamples: int, *, per_task: bool = False
) -> SafetySummary:
    import numpy as np

    from trialist.safety import summarize_safety

    return summarize_safety(
        scores, rng=np.random.default_rng(seed), registry=registry, n_resamples=resamples, per_task=per_task
    )


def _print_metrics(scores: list[EpisodeSafety], registry: Registry) -> None:
    import json

    from trialist.safety.safevla import metrics_document

    typer.echo(json.dumps(metrics_document(scores, registry=registry), indent=2, allow_nan=False))


def _saving_table(path: Path, policy: str, scoring: Scoring, summary: SafetySummary, seed: int) -> Table:
    import dataclasses

    from trialist.safety.sensitivity import with_body_frame_tilt
    from trialist.show.safety import saving_table

    naive = dataclasses.replace(scoring, use_applicability=False)
    body = dataclasses.replace(naive, registry=with_body_frame_tilt(scoring.registry))
    rows = [('with the registry', summary)]
    for name, rule in (('without it', naive), ('without it, body-frame tilt', body)):
        rows.append((name, _summary(_scores(path, policy, rule), scoring.registry, seed, 1)))
    return saving_table(rows)


def _sensitivity_table(path: Path, policy: str, scoring: Scoring, variants: Path | None) -> Table:
    from trialist.safety import load_variants, score_variants
    from trialist.safety.sensitivity import sensitivity_rows
    from trialist.show.safety import sensitivity_table

    chosen = load_variants(variants, registry=scoring.registry)
    scores = score_variants(_watched(_pairs(path, policy), path), chosen, scoring=scoring)
    return sensitivity_table(sensitivity_rows(scores, chosen, registry=scoring.registry))


def _draw(
    summary: SafetySummary, store: Path, *, figure: Path | None, heatmap: Path | None, heatmap_by: str,
    composition: Path | None,
) -> None:  # fmt: skip
    if figure is None and heatmap is None and composition is None:
        return
    from trialist.show import safety_figure
    from trialist.show.figure import save_figure

    drawn = []
    if figure is not None:
        from trialist.cli.source import store_looks

        looks = store_looks(store) if (store / 'trial.json').exists() else None
        drawn.append(save_figure(safety_figure.pareto_figure(summary.cells, looks=looks), figure))
    if heatmap is not None:
        drawn.append(save_figure(safety_figure.heatmap_figure(summary.cells, by=heatmap_by), heatmap))
    if composition is not None:
        drawn.append(save_figure(safety_figure.composition_figure(summary.cells), composition))
    for path in drawn:
        typer.echo(f'wrote {path}', err=True)


def _draw_filmstrip(path: Path, scores: list[EpisodeSafety], target: Path) -> None:
    from trialist.show.figure import save_figure
    from trialist.show.safety_plot import worst_filmstrip

    typer.echo(f'wrote {save_figure(worst_filmstrip(path, scores), target)}', err=True)
