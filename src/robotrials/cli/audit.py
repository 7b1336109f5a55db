"""`robotrials audit`: does the benchmark score mean anything?

`robotrials audit paired | drop | traces`: the verbs that read outcomes of runs.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.audit_data import card_command, datasource_command, mix_command, overfit_command, shortcut_command
from robotrials.cli.output import (
    DetailsOption,
    FigureOption,
    FormatOption,
    analysis_progress,
    print_card,
    print_tables,
    save_plot,
    say,
)
from robotrials.errors import InputError, NotEstimable, UnknownName

if TYPE_CHECKING:
    from robotrials.show.table import Table
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.audit import Benchmark, Drop, HarvestedPaper


COUNTS = re.compile(r'^(\d+)/(\d+)$')


def paired_command(
    old: Annotated[Path, typer.Argument(help='Outcomes of the old policy: a store, or a file or folder.')],
    new: Annotated[Path, typer.Argument(help='Outcomes of the new policy.')],
    old_policy: Annotated[str | None, typer.Option(help='The policy to take from the first store.')] = None,
    new_policy: Annotated[str | None, typer.Option(help='The policy to take from the second store.')] = None,
    condition: Annotated[str | None, typer.Option(help='The condition to take from the stores.')] = None,
    alpha: Annotated[float, typer.Option(help='Level: two-sided for the verdict, one-sided for named methods.')] = 0.05,
    seed: Annotated[int, typer.Option(help='Seed of the sign flips, where they are sampled.')] = 0,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Does the new policy succeed more often? CSV columns: task, sample, success (or score).

    Example: `robotrials audit paired old.csv new.csv`
    """
    import numpy as np

    from robotrials.show.audit import contrast_card, contrast_table, paired_table
    from robotrials.verdict.audit import compare_outcomes, read_outcomes
    from robotrials.verdict.audit.outcome import run_contrast

    names = (old_policy or old.stem, new_policy or new.stem)
    old, new = _run_path(old), _run_path(new)
    verdict = run_contrast(
        new, old, names=names[::-1], policies=(new_policy, old_policy), conditions=(condition, condition),
        level=1 - alpha,
    )  # fmt: skip
    tables = [contrast_table(verdict)]
    try:
        significance = compare_outcomes(
            read_outcomes(old, policy=old_policy, condition=condition),
            read_outcomes(new, policy=new_policy, condition=condition),
            rng=np.random.default_rng(seed),
        )
        tables.append(paired_table(significance, alpha=alpha, names=names))
    except (InputError, NotEstimable) as error:
        say(f"The paper's paired tests do not apply: {error}")
    print_card(lambda: contrast_card(verdict), lambda: tables, form, details=details)


def drop_command(
    calibration: Annotated[str, typer.Argument(help='Counts such as 60/288, a CSV, or a store.')] = '',
    altered: Annotated[str, typer.Argument(help='The altered or fresh test, in the same form.')] = '',
    rows: Annotated[
        Path | None,
        typer.Option(help='A CSV with columns label, calibration, altered (counts) and optionally discordant.'),
    ] = None,
    paired: Annotated[bool, typer.Option('--paired', help='Both ran the same (task, sample) sequences.')] = False,
    discordant: Annotated[int | None, typer.Option(help='Shared sequences on which two counts differ.')] = None,
    full_score: Annotated[
        int | None, typer.Option(help='Score by full chains of this length, such as 5 for CALVIN.')
    ] = None,
    policy: Annotated[str | None, typer.Option(help='The policy to take from stores.')] = None,
    calibration_condition: Annotated[str | None, typer.Option(help='Its condition in the first store.')] = None,
    altered_condition: Annotated[str | None, typer.Option(help='Its condition in the second store.')] = None,
    level: Annotated[float, typer.Option(help='Two-sided level of the intervals.')] = 0.95,
    label: Annotated[str, typer.Option(help='The name of the row.')] = '',
    figure: Annotated[Path | None, typer.Option('--figure', help='Save a forest plot (svg, pdf or png).')] = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """How much is lost when the test is altered or drawn afresh; drop = calibration - altered.

    Example: `robotrials audit drop 172/288 90/288 --label "stacked support"`
    """
    from robotrials.show.audit import contrast_card, contrast_table, drop_card, drop_plot, drop_table
    from robotrials.verdict.audit import drop
    from robotrials.verdict.audit.outcome import run_contrast
    from robotrials.verdict.planning.analysis_plan import Pairing

    verdict: list[Table] = []
    contrast: Contrast | None = None
    if rows is not None:
        drops = _drops_of_rows(rows, level)
    elif not (calibration and altered):
        raise InputError('wanted the calibration and the altered test (60/288 28/288, two CSVs or stores), or --rows')
    elif COUNTS.match(calibration) and COUNTS.match(altered):
        first, second = _counts(calibration, 'calibration'), _counts(altered, 'altered')
        drops = [drop(first, second, discordant=discordant, level=level, label=label)]
    else:
        paths = _run_path(Path(calibration)), _run_path(Path(altered))
        stems = Path(calibration).stem, Path(altered).stem
        contrast = run_contrast(
            *paths, names=stems if stems[0] != stems[1] else ('calibration', 'altered'), policies=(policy, policy),
            conditions=(calibration_condition, altered_condition), level=level, full_score=full_score,
            pairing=Pairing.PAIRED if paired else Pairing.AUTO,
        )  # fmt: skip
        verdict = [contrast_table(contrast)]
        drops = _paper_drop(
            paths, policy=policy, conditions=(calibration_condition, altered_condition), paired=paired,
            full_score=full_score, level=level, label=label or ' - '.join(stems),
        )  # fmt: skip
    tables = [*verdict, *([drop_table(drops)] if drops else [])]
    card = contrast_card(contrast) if contrast is not None else drop_card(drops)
    print_card(lambda: card, lambda: tables, form, details=details)
    save_plot(figure if drops else None, lambda: drop_plot(drops))


def traces_command(
    run_a: Annotated[Path, typer.Argument(help='The first run: a store.')],
    run_b: Annotated[Path, typer.Argument(help='The second run of the same plan.')],
    control: Annotated[Path | None, typer.Option(help='A repeat of the first run on the same machine.')] = None,
    closed_loop: Annotated[
        bool | None, typer.Option('--closed-loop/--open-loop', help='The policy acted on its own observations.')
    ] = None,
    name: Annotated[str, typer.Option(help='The stack, such as "LIBERO / OpenVLA-OFT".')] = '',
    contrast: Annotated[
        str, typer.Option(help='What differs between the runs; default: read from the provenance.')
    ] = '',
    episodes: Annotated[bool, typer.Option('--episodes', help="Print every episode's first divergences.")] = False,
    figure: Annotated[
        Path | None, typer.Option('--figure', help='Save growth curves of the first divergent episode.')
    ] = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Compare two recorded runs of one plan step by step, and grade how closely they reproduce.

    Example: `robotrials audit traces runs/epyc runs/xeon --control runs/epyc-again --closed-loop`
    """
    from robotrials.show.audit import (
        channel_table,
        divergence_table,
        grade_table,
        growth_plot,
        metadata_table,
        trace_card,
        trace_table,
    )
    from robotrials.verdict.audit import compare_traces

    comparison = compare_traces(run_a, run_b, control=control, closed_loop=closed_loop, name=name, contrast=contrast)
    tables = [trace_table([comparison]), channel_table(comparison), grade_table(comparison), metadata_table(comparison)]
    asked = [divergence_table(comparison)] if episodes else []
    print_card(lambda: trace_card(comparison), lambda: tables, form, details=details, asked=asked)
    if figure is not None:
        drawn = next((t for t in comparison.traces if t.first and t.growth), next(iter(comparison.traces), None))
        if drawn is None or not drawn.growth:
            raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
        save_plot(figure, lambda: growth_plot(drawn))


def replay_command(
    store: Annotated[Path, typer.Argument(help='A recorded run: a store with trajectories.')],
    policy: Annotated[list[str] | None, typer.Option(help='Only episodes of this policy; repeatable.')] = None,
    most: Annotated[int | None, typer.Option(min=1, help='Maximum number of episodes.')] = None,
    host: Annotated[str, typer.Option(help="The host, by name; default: that of the run's plan.")] = '',
    episodes: Annotated[bool, typer.Option('--episodes', help="Print every episode's first divergences.")] = False,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Replay recorded actions on the run's host, and grade whether the world responds identically.

    It is an open-loop replay: it says how deterministic the simulator is here, and nothing about a policy.

    Example: `robotrials audit replay runs/may --most 5`
    """
    from robotrials.record import read_store
    from robotrials.run.component import open_host
    from robotrials.show.audit import channel_table, divergence_table, grade_table, trace_card, trace_table
    from robotrials.verdict.audit import compare_traces
    from robotrials.worlds.replay import carry_out_again, recorded_host

    run = read_store(store)
    opened = open_host(recorded_host(run, use=host))
    advance, total = analysis_progress(), most or run.count()
    try:
        replayed = carry_out_again(
            run, opened, policies=policy, most=most, progress=lambda done: advance('episodes', done, total)
        )
        pairs = list(replayed)
    finally:
        opened.close()
    kept = {episode.episode_id for episode, _ in pairs}
    recorded = [(e, t) for e, t in run.trajectories() if e.episode_id in kept]
    comparison = compare_traces(recorded, pairs, closed_loop=False, name=str(store), contrast='carried out again')
    tables = [trace_table([comparison]), channel_table(comparison), grade_table(comparison)]
    asked = [divergence_table(comparison)] if episodes else []
    print_card(lambda: trace_card(comparison), lambda: tables, form, details=details, asked=asked)


def _run_path(path: Path) -> Path:
    """Where the run can be read: a store, a list of one run (task, sample, success), or what holds episodes, opened."""
    from robotrials.cli.source import open_named
    from robotrials.record.store import is_store

    return path if is_store(path) or not path.exists() or _is_list(path) else open_named(path).store.path


def _is_list(path: Path) -> bool:
    from robotrials.formats.guess import SYNONYMS
    from robotrials.verdict.audit.outcome import SAMPLE_COLUMNS, SCORE_COLUMNS

    if path.suffix.lower() != '.csv' or not path.is_file():
        return False
    with path.open(newline='', encoding='utf-8-sig', errors='replace') as stream:
        header = {name.strip().lower() for name in next(csv.reader(stream), [])}
    is_of_one_run = header.isdisjoint(SYNONYMS['policy'])
    return is_of_one_run and not header.isdisjoint(SAMPLE_COLUMNS) and not header.isdisjoint(SCORE_COLUMNS)


def _paper_drop(
    paths: tuple[Path, Path], *, policy: str | None, conditions: tuple[str | None, str | None], paired: bool,
    full_score: int | None, level: float, label: str,
) -> list[Drop]:  # fmt: skip
    """The paper's own interval of two runs, by its named method; none where runs cannot be told apart by sample."""
    from robotrials.verdict.audit import drop_of_outcomes, read_outcomes

    runs = [read_outcomes(p, policy=policy, condition=c) for p, c in zip(paths, conditions, strict=True)]
    try:
        paper_drop = drop_of_outcomes(
            runs[0], runs[1], paired=paired, full_score=full_score, level=level, label=label,
        )  # fmt: skip
    except InputError as error:
        typer.echo(f'No interval by the named method: {error}', err=True)
        return []
    if paper_drop.unmatched:
        named = ', '.join('/'.join(filter(None, key)) for key in paper_drop.unmatched[:5])
        typer.echo(f'{len(paper_drop.unmatched)} sequences without a partner left out of it: {named}', err=True)
    return [paper_drop]


def _counts(text: str, where: str) -> tuple[int, int]:
    match = COUNTS.match(text.strip())
    if match is None:
        raise InputError(f'{where} is {text!r}, wanted counts such as 60/288')
    return int(match.group(1)), int(match.group(2))


def _drops_of_rows(path: Path, level: float) -> list[Drop]:
    from robotrials.verdict.audit import drop

    if not path.exists():
        raise InputError(f'{path}: no such file; wanted a CSV with columns label, calibration, altered')
    with path.open(newline='', encoding='utf-8-sig') as file:
        reader = csv.DictReader(file)
        missing = {'label', 'calibration', 'altered'} - set(reader.fieldnames or [])
        if missing:
            raise InputError(f'{path}: no column {", ".join(sorted(missing))}; wanted label, calibration, altered')
        drops = []
        for row in reader:
            where = f'{path} line {reader.line_num}'
            first, second = (_counts(row[name], f'{where}, {name}') for name in ('calibration', 'altered'))
            shared = (row.get('discordant') or '').strip()
            try:
                differing = int(shared) if shared else None
                drops.append(drop(first, second, discordant=differing, level=level, label=row['label']))
            except ValueError as error:
                raise InputError(f'{where}: {error}') from error
    if not drops:
        raise InputError(f'{path}: no rows below the header')
    return drops


audit_app = typer.Typer(
    help='Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility.',
    no_args_is_help=True,
    rich_markup_mode='markdown',
)
AlphaOption = Annotated[str, typer.Option('--alpha', help='One-sided level, between 0 and 0.5.')]


@audit_app.command('topline')
def topline_command(
    scores: Annotated[list[str] | None, typer.Argument(help='The old and the new score, as printed.')] = None,
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='A preset, such as libero-spatial.')] = '',
    tasks: Annotated[int | None, typer.Option(help='T, the number of tasks.')] = None,
    samples: Annotated[int | None, typer.Option(help='S, the samples per task.')] = None,
    max_score: Annotated[int | None, typer.Option(help='R, the full score of one sample.')] = None,
    unit: Annotated[str, typer.Option(help='fraction, percent, score or count; the preset knows.')] = '',
    alpha: AlphaOption = '0.05',
    table: Annotated[bool, typer.Option('--table', help='Print how large a gap is needed over each baseline.')] = False,
    baselines: Annotated[str, typer.Option(help='Baseline scores for --table, separated by commas.')] = '',
    figure: FigureOption = None,
    form: FormatOption = 'text',
) -> None:
    """What two published averages can say: impossible, inconclusive or significant.

    Example: `robotrials audit topline --benchmark libero-spatial 95.3 96.6`
    """
    from robotrials.show.audit import topline_card, topline_table
    from robotrials.verdict.audit import topline

    preset = _preset(benchmark, tasks, samples, max_score, unit)
    tables = []
    if table or figure is not None:
        tables.append(_cutoff_table(preset, alpha, baselines, figure))
    if not scores:
        if not (table or figure):
            raise InputError('wanted two scores, the old and the new one, or --table')
        print_tables(tables, form)
        return
    if len(scores) != 2:
        raise InputError(f'wanted two scores, the old and the new one; found {len(scores)}')
    if not unit:
        _check_scale(scores, preset)
    protocol = preset.protocol
    reading = topline(
        scores[0], scores[1], tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score, alpha=alpha,
        unit=preset.unit,
    )  # fmt: skip
    if form != 'text':
        tables.append(topline_table(reading, title=preset.title))
    print_card(lambda: topline_card(reading, title=preset.title, unit=preset.unit), lambda: (), form, asked=tables)


@audit_app.command('leaderboard')
def leaderboard_command(
    file: Annotated[Path, typer.Argument(help='A vla-eval leaderboard file (JSON).')],
    benchmark: Annotated[
        list[str] | None, typer.Option('--benchmark', '-b', help='Only this benchmark; repeatable.')
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help='A LIBERO suite to pool, such as libero-goal; repeatable.')
    ] = None,
    rule: Annotated[str, typer.Option(help='paper, chronology or both.')] = 'both',
    copied: Annotated[
        bool, typer.Option(help='Count scores that, according to notes, a paper copied as its baselines.')
    ] = True,
    realizable_only: Annotated[bool, typer.Option(help='Set aside scores that a single pass cannot give.')] = False,
    alpha: AlphaOption = '0.05',
    set_aside: Annotated[bool, typer.Option('--set-aside', help='List the claims that cannot be judged.')] = False,
    csv_path: Annotated[
        Path | None, typer.Option('--csv', help='Write every comparison with its reason to this CSV.')
    ] = None,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Audit a whole leaderboard: which claimed gains are provably significant?

    Example: `robotrials audit leaderboard leaderboard.json --csv claims.csv --figure pies.svg`
    """
    from robotrials.show.leaderboard import (
        claims_table,
        count_table,
        coverage_table,
        leaderboard_card,
        obstacle_table,
        rounding_table,
        set_aside_table,
        share_table,
    )
    from robotrials.show.table import render
    from robotrials.verdict.audit import Rule, audit_leaderboard, read_leaderboard
    from robotrials.verdict.audit.leaderboard import FAMILIES, LIBERO_SUITES

    if rule not in ('both', *Rule):
        raise UnknownName('rule', rule, ['both', *(r.value for r in Rule)])
    audit = audit_leaderboard(
        read_leaderboard(file),
        families=[_family(name) for name in benchmark] if benchmark else tuple(FAMILIES),
        libero_suites=[_suite(name) for name in suite] if suite else LIBERO_SUITES,
        rules=tuple(Rule) if rule == 'both' else (Rule(rule),),
        copied_baselines=copied,
        require_realizable=realizable_only,
        alpha=alpha,
    )
    tables = [printed(audit) for printed in (count_table, share_table, rounding_table, coverage_table, obstacle_table)]
    asked = [set_aside_table(audit.claims)] if set_aside else []
    print_card(lambda: leaderboard_card(audit), lambda: tables, form, details=details, asked=asked)
    if csv_path is not None:
        csv_path.write_text(render(claims_table(audit.claims), 'csv'), encoding='utf-8')
        typer.echo(f'{len(audit.claims)} comparisons written to {csv_path}', err=True)
    if figure is not None:
        from robotrials.show.figure import save_figure
        from robotrials.show.leaderboard import share_pies

        typer.echo(f'wrote {save_figure(share_pies(audit), figure)}', err=True)


@audit_app.command('citations')
def citations_command(
    tables: Annotated[list[Path] | None, typer.Argument(help='Candidate tables (CSV or JSONL).')] = None,
    bibtex: Annotated[Path | None, typer.Option(help='A BibTeX file of candidates for --benchmark.')] = None,
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='The benchmark of the BibTeX entries.')] = '',
    usage: Annotated[str, typer.Option(help='The usage class of the BibTeX entries.')] = 'term-only-not-counted',
    leaderboard: Annotated[Path | None, typer.Option(help='A vla-eval leaderboard file.')] = None,
    since: Annotated[str, typer.Option(help='First month, YYYY-MM.')] = '',
    until: Annotated[str, typer.Option(help='Last month, YYYY-MM.')] = '',
    months: Annotated[bool, typer.Option('--months', help='Also print the months.')] = False,
    figure: FigureOption = None,
    form: FormatOption = 'text',
) -> None:
    """Count who reports results on a benchmark, by month of first arXiv posting.

    Example: `robotrials audit citations candidates.csv --since 2023-07 --until 2026-03 --figure counts.svg`
    """
    from robotrials.show.leaderboard import citation_plot, funnel_table, month_table
    from robotrials.verdict.audit import citation_counts

    candidates = _candidates(tables or [], bibtex, benchmark, usage, leaderboard)
    counts = citation_counts(candidates, since=since, until=until)
    tables_shown = [funnel_table(counts)]
    if months:
        tables_shown.append(month_table(counts))
    print_tables(tables_shown, form)
    save_plot(figure, lambda: citation_plot(counts))


audit_app.command('paired')(paired_command)
audit_app.command('drop')(drop_command)
audit_app.command('traces')(traces_command)
audit_app.command('replay')(replay_command)
audit_app.command('shortcut')(shortcut_command)
audit_app.command('datasource')(datasource_command)
audit_app.command('overfit')(overfit_command)
audit_app.command('mix')(mix_command)
audit_app.command('card')(card_command)


def _preset(benchmark: str, tasks: int | None, samples: int | None, max_score: int | None, unit: str) -> Benchmark:
    """The preset with what was overridden, or one made of the numbers given."""
    from robotrials.verdict.audit import Benchmark, Protocol, find_benchmark

    if not benchmark:
        missing = [name for name, value in (('--tasks', tasks), ('--samples', samples)) if value is None]
        if tasks is None or samples is None:
            raise InputError(f'wanted --benchmark, or --tasks and --samples; missing: {", ".join(missing)}')
        return Benchmark('given', 'Given protocol', Protocol(tasks, samples, max_score or 1), unit=unit or 'percent')
    preset = find_benchmark(benchmark)
    given = {'tasks': tasks, 'samples': samples, 'max_score': max_score}
    protocol = dataclasses.replace(preset.protocol, **{name: n for name, n in given.items() if n is not None})
    return dataclasses.replace(preset, protocol=protocol, unit=unit or preset.unit)


def _check_scale(scores: list[str], preset: Benchmark) -> None:
    """Two scores of at most 1 where percentages are the custom are most likely fractions: ask, don't guess."""
    from robotrials.verdict.audit.envelope import exact

    values = [exact(score, 'score') for score in scores]
    if preset.unit == 'percent' and max(values) <= 1 and max(values) > 0:
        raise InputError(
            f'{scores[0]} and {scores[1]} look like fractions, and {preset.title} is read in percent; say --unit '
            f'fraction, or --unit percent if they are percentages'
        )


def _cutoff_table(preset: Benchmark, alpha: str, baselines: str, figure: Path | None) -> Table:
    from robotrials.show.audit import cutoff_plot, cutoff_table
    from robotrials.verdict.audit import cutoffs
    from robotrials.verdict.audit.topline import realize

    protocol = preset.protocol
    shape = {'tasks': protocol.tasks, 'samples': protocol.samples, 'max_score': protocol.max_score}
    if baselines:
        counts = [realize(s.strip(), unit=preset.unit, **shape).half_up for s in baselines.split(',')]
    else:
        shares = (*range(0, 90, 10), 90, 92, 94, 95, 96, 97, 98, 99)
        counts = sorted({protocol.most * share // 100 for share in shares})
    every = range(0, protocol.most + 1, max(1, protocol.most // 1000))
    save_plot(figure, lambda: cutoff_plot(cutoffs(every, alpha=alpha, **shape), preset))
    return cutoff_table(cutoffs(counts, alpha=alpha, **shape), preset, alpha=float(alpha))


def _family(name: str) -> str:
    from robotrials.verdict.audit.leaderboard import FAMILIES

    wanted = ''.join(ch for ch in name.lower() if ch.isalnum())
    for family, title in FAMILIES.items():
        if wanted in {''.join(ch for ch in text.lower() if ch.isalnum()) for text in (family, title)}:
            return family
    return name


def _suite(name: str) -> str:
    plain = name.lower().replace('-', '_')
    return {'libero_long': 'libero_10', 'libero_average': 'overall', 'average': 'overall'}.get(plain, plain)


def _candidates(
    tables: list[Path], bibtex: Path | None, benchmark: str, usage: str, leaderboard: Path | None
) -> list[HarvestedPaper]:
    from robotrials.verdict.audit import (
        BenchmarkUsage,
        candidates_from_bibtex,
        candidates_from_leaderboard,
        read_candidates,
        read_leaderboard,
    )

    candidates = [candidate for path in tables for candidate in read_candidates(path)]
    if bibtex is not None:
        if not benchmark:
            raise InputError('a BibTeX file does not say which benchmark it is about; add --benchmark NAME')
        if usage not in set(BenchmarkUsage):
            raise UnknownName('usage class', usage, [u.value for u in BenchmarkUsage])
        candidates += candidates_from_bibtex(bibtex, benchmark=benchmark, usage=BenchmarkUsage(usage))
    if leaderboard is not None:
        candidates += candidates_from_leaderboard(read_leaderboard(leaderboard))
    if not candidates:
        raise InputError('wanted candidate tables, --bibtex or --leaderboard; found none')
    return candidates
