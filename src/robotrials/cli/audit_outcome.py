"""`robotrials audit paired | drop | traces`: the verbs that read outcomes of runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, analysis_progress, check_form, print_card, say
from robotrials.errors import InputError, NotEstimable

if TYPE_CHECKING:
    from robotrials.show.table import Table
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.audit import Drop

COUNTS = re.compile(r'^(\d+)/(\d+)$')


def paired_command(
    old: Annotated[Path, typer.Argument(help='Outcomes of the old policy: a store, or a file or folder.')],
    new: Annotated[Path, typer.Argument(help='Outcomes of the new policy.')],
    old_policy: Annotated[str | None, typer.Option(help='The policy to take from the first store.')] = None,
    new_policy: Annotated[str | None, typer.Option(help='The policy to take from the second store.')] = None,
    condition: Annotated[str | None, typer.Option(help='The condition to take from the stores.')] = None,
    alpha: Annotated[float, typer.Option(help='Level: two-sided of the verdict, one-sided of named methods.')] = 0.05,
    seed: Annotated[int, typer.Option(help='Seed of the sign flips, where they are drawn.')] = 0,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Does the new policy succeed more often? CSV columns: task, sample, success (or score).

    Example: `robotrials audit paired old.csv new.csv`
    """
    import numpy as np

    from robotrials.show.audit import contrast_card, contrast_table, paired_table
    from robotrials.verdict.analysis.outcome_contrast import run_contrast
    from robotrials.verdict.audit import compare_outcomes, read_outcomes

    check_form(form)
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
        Path | None, typer.Option(help='A CSV with columns label, calibration, altered (counts) and maybe discordant.')
    ] = None,
    paired: Annotated[bool, typer.Option('--paired', help='Both ran the same (task, sample) sequences.')] = False,
    discordant: Annotated[int | None, typer.Option(help='Shared sequences on which two counts differ.')] = None,
    full_score: Annotated[int | None, typer.Option(help='Score by full chains, such as 5 for CALVIN.')] = None,
    policy: Annotated[str | None, typer.Option(help='The policy to take from stores.')] = None,
    calibration_condition: Annotated[str | None, typer.Option(help='Its condition in the first store.')] = None,
    altered_condition: Annotated[str | None, typer.Option(help='Its condition in the second store.')] = None,
    level: Annotated[float, typer.Option(help='Two-sided level of the intervals.')] = 0.95,
    label: Annotated[str, typer.Option(help='What the row is called.')] = '',
    figure: Annotated[Path | None, typer.Option('--figure', help='Save a forest plot (svg, pdf or png).')] = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """How much is lost when the test is altered or drawn afresh; drop = calibration - altered.

    Example: `robotrials audit drop 172/288 90/288 --label "stacked support"`
    """
    from robotrials.show.audit import contrast_card, contrast_table, drop_card, drop_table
    from robotrials.verdict.analysis.outcome_contrast import run_contrast
    from robotrials.verdict.audit import drop
    from robotrials.verdict.planning.analysis_plan import Pairing

    check_form(form)
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
        contrast = run_contrast(
            *paths, names=_run_names(calibration, altered), policies=(policy, policy),
            conditions=(calibration_condition, altered_condition), level=level, full_score=full_score,
            pairing=Pairing.PAIRED if paired else Pairing.AUTO,
        )  # fmt: skip
        verdict = [contrast_table(contrast)]
        drops = _paper_drop(
            paths, policy=policy, conditions=(calibration_condition, altered_condition), paired=paired,
            full_score=full_score, level=level, label=label or f'{Path(calibration).stem} - {Path(altered).stem}',
        )  # fmt: skip
    tables = [*verdict, *([drop_table(drops)] if drops else [])]
    card = contrast_card(contrast) if contrast is not None else drop_card(drops)
    print_card(lambda: card, lambda: tables, form, details=details)
    if figure is not None and drops:
        from robotrials.show.audit import drop_plot
        from robotrials.show.figure import save_figure
        from robotrials.show.plot_paper import paint_paper

        typer.echo(f'wrote {save_figure(paint_paper(drop_plot(drops)), figure)}', err=True)


def traces_command(
    run_a: Annotated[Path, typer.Argument(help='The first run: a store.')],
    run_b: Annotated[Path, typer.Argument(help='The second run of the same plan.')],
    control: Annotated[Path | None, typer.Option(help='A repeat of the first run on the same machine.')] = None,
    closed_loop: Annotated[
        bool | None, typer.Option('--closed-loop/--open-loop', help='Whether the policy answered its own observations.')
    ] = None,
    name: Annotated[str, typer.Option(help='The stack, such as "LIBERO / OpenVLA-OFT".')] = '',
    contrast: Annotated[str, typer.Option(help='What differs; read from the provenance if not given.')] = '',
    episodes: Annotated[bool, typer.Option('--episodes', help="Print every episode's first divergences.")] = False,
    figure: Annotated[
        Path | None, typer.Option('--figure', help='Save growth curves of the first divergent episode.')
    ] = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Compare two recorded runs of one plan step by step, and grade how far they reproduce.

    Example: `robotrials audit traces runs/epyc runs/xeon --control runs/epyc-again --closed-loop`
    """
    from robotrials.show.divergence import (
        channel_table,
        divergence_table,
        grade_table,
        metadata_table,
        trace_card,
        trace_table,
    )
    from robotrials.verdict.audit import compare_traces

    check_form(form)
    comparison = compare_traces(run_a, run_b, control=control, closed_loop=closed_loop, name=name, contrast=contrast)
    tables = [trace_table([comparison]), channel_table(comparison), grade_table(comparison), metadata_table(comparison)]
    if episodes:
        tables.append(divergence_table(comparison))
    printed = tables if details or form != 'text' else tables[4:]
    print_card(lambda: trace_card(comparison), lambda: printed, form, details=details or episodes)
    if figure is not None:
        from robotrials.show.divergence import growth_plot
        from robotrials.show.figure import save_figure
        from robotrials.show.plot_paper import paint_paper

        drawn = next((t for t in comparison.traces if t.first and t.growth), next(iter(comparison.traces), None))
        if drawn is None or not drawn.growth:
            raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
        typer.echo(f'wrote {save_figure(paint_paper(growth_plot(drawn)), figure)}', err=True)


def replay_command(
    store: Annotated[Path, typer.Argument(help='A recorded run: a store with trajectories.')],
    policy: Annotated[list[str] | None, typer.Option(help='Only episodes of this policy; may be repeated.')] = None,
    most: Annotated[int | None, typer.Option(min=1, help='At most so many episodes.')] = None,
    host: Annotated[str, typer.Option(help="The host, by name; that of the run's plan if not given.")] = '',
    episodes: Annotated[bool, typer.Option('--episodes', help="Print every episode's first divergences.")] = False,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Carry recorded actions out again on the run's host, and grade whether the world does the same.

    It is an open-loop replay: it says how far the simulator is deterministic here, and nothing of a policy.

    Example: `robotrials audit replay runs/may --most 5`
    """
    from robotrials.record import read_store
    from robotrials.run.component import open_host
    from robotrials.show.divergence import channel_table, divergence_table, grade_table, trace_card, trace_table
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
    tables += [divergence_table(comparison)] if episodes else []
    printed = tables if details or form != 'text' else tables[3:]
    print_card(lambda: trace_card(comparison), lambda: printed, form, details=details or episodes)


def _run_path(path: Path) -> Path:
    """Where the run can be read: a store, a list of one run (task, sample, success), or what holds episodes, opened."""
    from robotrials.cli.source import open_named
    from robotrials.record.opened import is_store

    return path if is_store(path) or not path.exists() or _is_list(path) else open_named(path).store.path


def _is_list(path: Path) -> bool:
    import csv

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


def _run_names(first: str, second: str) -> tuple[str, str]:
    names = Path(first).stem, Path(second).stem
    return names if names[0] != names[1] else ('calibration', 'altered')


def _counts(text: str, where: str) -> tuple[int, int]:

    match = COUNTS.match(text.strip())
    if match is None:
        raise InputError(f'{where} is {text!r}, wanted counts such as 60/288')
    return int(match.group(1)), int(match.group(2))


def _drops_of_rows(path: Path, level: float) -> list[Drop]:
    import csv

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
