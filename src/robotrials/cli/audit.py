"""`robotrials audit`: does the benchmark score mean anything?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.audit_data import card_command, datasource_command, mix_command, overfit_command, shortcut_command
from robotrials.cli.audit_outcome import drop_command, paired_command, replay_command, traces_command
from robotrials.cli.output import DetailsOption, FormatOption, check_form, harmless, print_card, print_tables
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from robotrials.show.table import Table
    from robotrials.verdict.audit import Benchmark, Candidate

audit_app = typer.Typer(
    help='Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility.',
    no_args_is_help=True,
    rich_markup_mode='markdown',
)
AlphaOption = Annotated[str, typer.Option('--alpha', help='One-sided level, between 0 and 0.5.')]
FigureOption = Annotated[Path | None, typer.Option('--figure', help='Save the figure (svg, pdf or png).')]


@audit_app.command('topline')
def topline_command(
    scores: Annotated[list[str] | None, typer.Argument(help='The old and the new score, as printed.')] = None,
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='A preset, such as libero-spatial.')] = '',
    tasks: Annotated[int | None, typer.Option(help='T, the number of tasks.')] = None,
    samples: Annotated[int | None, typer.Option(help='S, the samples a task.')] = None,
    max_score: Annotated[int | None, typer.Option(help='R, the full score of one sample.')] = None,
    unit: Annotated[str, typer.Option(help='fraction, percent, score or count; the preset knows.')] = '',
    alpha: AlphaOption = '0.05',
    table: Annotated[bool, typer.Option('--table', help='Print how big a gap is needed over baselines.')] = False,
    baselines: Annotated[str, typer.Option(help='Baseline scores of --table, by commas.')] = '',
    figure: FigureOption = None,
    form: FormatOption = 'text',
) -> None:
    """What two published averages can say: impossible, inconclusive or significant.

    Example: `robotrials audit topline --benchmark libero-spatial 95.3 96.6`
    """
    from robotrials.show.audit import topline_card, topline_table
    from robotrials.verdict.audit import topline

    check_form(form)
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
    if form == 'text':
        typer.echo(harmless(topline_card(reading, title=preset.title, unit=preset.unit).text(), form), nl=False)
        if tables:
            typer.echo()
            print_tables(tables)
    else:
        print_tables([*tables, topline_table(reading, title=preset.title)], form)


@audit_app.command('leaderboard')
def leaderboard_command(
    file: Annotated[Path, typer.Argument(help='A vla-eval leaderboard file (JSON).')],
    benchmark: Annotated[list[str] | None, typer.Option('--benchmark', '-b', help='Only these; repeat it.')] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help='LIBERO suites to pool, such as libero-goal; repeat it.')
    ] = None,
    rule: Annotated[str, typer.Option(help='paper, chronology or both.')] = 'both',
    copied: Annotated[bool, typer.Option(help='Count scores that notes say a paper copied as its baselines.')] = True,
    realizable_only: Annotated[bool, typer.Option(help='Set aside scores that one pass cannot give.')] = False,
    alpha: AlphaOption = '0.05',
    set_aside: Annotated[bool, typer.Option('--set-aside', help='List the claims that cannot be judged.')] = False,
    csv: Annotated[Path | None, typer.Option(help='Write every comparison with its reason to this CSV.')] = None,
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

    check_form(form)
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
    if set_aside:
        tables.append(set_aside_table(audit.claims))
    printed = tables if details or form != 'text' else tables[5:]
    print_card(lambda: leaderboard_card(audit), lambda: printed, form, details=details or set_aside)
    if csv is not None:
        csv.write_text(render(claims_table(audit.claims), 'csv'), encoding='utf-8')
        typer.echo(f'{len(audit.claims)} comparisons written to {csv}', err=True)
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
    months: Annotated[bool, typer.Option('--months', help='Print the months too.')] = False,
    figure: FigureOption = None,
    form: FormatOption = 'text',
) -> None:
    """Who reports results on a benchmark, by month of first arXiv posting.

    Example: `robotrials audit citations candidates.csv --since 2023-07 --until 2026-03 --figure counts.svg`
    """
    from robotrials.show.leaderboard import funnel_table, month_table
    from robotrials.verdict.audit import citation_counts

    candidates = _candidates(tables or [], bibtex, benchmark, usage, leaderboard)
    counts = citation_counts(candidates, since=since, until=until)
    tables_shown = [funnel_table(counts)]
    if months:
        tables_shown.append(month_table(counts))
    print_tables(tables_shown, form)
    if figure is not None:
        from robotrials.show.figure import save_figure
        from robotrials.show.leaderboard import citation_plot
        from robotrials.show.plot_paper import paint_paper

        typer.echo(f'wrote {save_figure(paint_paper(citation_plot(counts)), figure)}', err=True)


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
    import dataclasses

    from robotrials.verdict.audit import Benchmark, Protocol, find_benchmark

    if not benchmark:
        missing = [name for name, value in (('--tasks', tasks), ('--samples', samples)) if value is None]
        if tasks is None or samples is None:
            raise InputError(f'wanted --benchmark, or --tasks and --samples; missing: {", ".join(missing)}')
        return Benchmark('given', 'Given protocol', Protocol(tasks, samples, max_score or 1), unit=unit or 'percent')
    preset = find_benchmark(benchmark)
    old = preset.protocol
    protocol = Protocol(
        old.tasks if tasks is None else tasks,
        old.samples if samples is None else samples,
        old.max_score if max_score is None else max_score,
    )
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
    from robotrials.show.audit import cutoff_table
    from robotrials.verdict.audit import cutoffs
    from robotrials.verdict.audit.topline import realize

    protocol = preset.protocol
    shape = {'tasks': protocol.tasks, 'samples': protocol.samples, 'max_score': protocol.max_score}
    if baselines:
        counts = [realize(s.strip(), unit=preset.unit, **shape).half_up for s in baselines.split(',')]
    else:
        shares = (*range(0, 90, 10), 90, 92, 94, 95, 96, 97, 98, 99)
        counts = sorted({protocol.most * share // 100 for share in shares})
    if figure is not None:
        from robotrials.show.audit import cutoff_plot
        from robotrials.show.figure import save_figure
        from robotrials.show.plot_paper import paint_paper

        step = max(1, protocol.most // 1000)
        drawn = cutoffs(range(0, protocol.most + 1, step), alpha=alpha, **shape)
        typer.echo(f'wrote {save_figure(paint_paper(cutoff_plot(drawn, preset)), figure)}', err=True)
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
) -> list[Candidate]:
    from robotrials.verdict.audit import (
        Usage,
        candidates_from_bibtex,
        candidates_from_leaderboard,
        read_candidates,
        read_leaderboard,
    )

    candidates = [candidate for path in tables for candidate in read_candidates(path)]
    if bibtex is not None:
        if not benchmark:
            raise InputError('a BibTeX file does not say which benchmark it is about; add --benchmark NAME')
        if usage not in set(Usage):
            raise UnknownName('usage class', usage, [u.value for u in Usage])
        candidates += candidates_from_bibtex(bibtex, benchmark=benchmark, usage=Usage(usage))
    if leaderboard is not None:
        candidates += candidates_from_leaderboard(read_leaderboard(leaderboard))
    if not candidates:
        raise InputError('wanted candidate tables, --bibtex or --leaderboard; found none')
    return candidates
