"""`robotrials power ...`: how many rollouts a claim needs, from formulas, from a pilot, or from assumed curves."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import (
    DetailsOption,
    FigureOption,
    FormatOption,
    print_analysis_table,
    print_card,
    print_table,
    progress_bar,
    save_plot,
)
from robotrials.cli.source import (
    AddressOption,
    AlphaOption,
    EngineOption,
    MethodOption,
    SeedOption,
    StoreArgument,
    TauOption,
    WhereOption,
    open_analysis,
    resampled_on,
)
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from robotrials.run import TrialPlan
    from robotrials.show.table import Table
    from robotrials.verdict.analysis import Analysis
    from robotrials.verdict.analysis.planning import AssumedPlanning, Planning
    from robotrials.verdict.planning import AssumedCurve


# robotrials power calibrate: does the test keep its level on your own data?


def calibrate(
    store: StoreArgument,
    method: MethodOption = 'permutation',
    setup: Annotated[
        list[str] | None, typer.Option('--setup', help='same_policy, reference or permutation; default: all three.')
    ] = None,
    label: Annotated[str | None, typer.Option('--label', help='Shuffle within strata crossed with this label.')] = None,
    trials: Annotated[int, typer.Option('--trials', min=1, help='Null data sets per row.')] = 500,
    resamples: Annotated[int, typer.Option('--resamples', min=1, help='Resamples of each test.')] = 500,
    tau: TauOption = None,
    seed: SeedOption = None,
    where: WhereOption = None,
    engine: EngineOption = 'local',
    address: AddressOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Rejection rates of the macro-KS test on null data made from the store's own episodes.

    Example: `robotrials power calibrate runs/may --label tote_side`
    """
    from robotrials.show.timing import calibration_card, calibration_table
    from robotrials.verdict.planning import NullSetup

    for name in setup or []:
        if name not in set(NullSetup):
            raise UnknownName('null setup', name, [s.value for s in NullSetup])
    analysis = open_analysis(store, where, tau=tau, seed=seed)
    with resampled_on(engine, address), progress_bar('null scenarios') as advance:
        calibration = analysis.planning.calibration(
            n_trials=trials, n_resamples=resamples, setups=tuple(setup or NullSetup), label=label,
            method=method, on_row=advance,
        )  # fmt: skip
    if form != 'text':
        print_analysis_table(analysis, calibration_table(calibration), form)
        return
    tables = [calibration_table(calibration)]
    print_card(lambda: calibration_card(calibration), lambda: tables, details=details, analysis=analysis)


BARNARD_MOST = 130  # larger tables take minutes to enumerate, and the z-test is accurate there

power_app = typer.Typer(no_args_is_help=True, help='How many rollouts a claim needs.')
power_app.command('calibrate')(calibrate)

PowerOption = Annotated[float, typer.Option('--power', help='The chance of detecting a true difference.')]
AlphaLevel = Annotated[float, typer.Option('--alpha', help='The chance of a false claim.')]
PilotTauOption = Annotated[
    float | None, typer.Option('--tau', help='Look for differences only up to here (s); default: as declared.')
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        '--assume',
        help='With no pilot, a policy as NAME:median=40,spread=0.8,ever=0.95 or NAME:curve.csv '
        '(columns t_s, chance); give two.',
    ),
]
StrataOption = Annotated[int, typer.Option('--strata', min=1, help='Number of strata of an assumed pair, all alike.')]
ItemsOption = Annotated[int, typer.Option('--operations', min=1, help='Operations per assumed episode.')]
CorrelationOption = Annotated[
    float, typer.Option('--correlation', help='Correlation between operations of an assumed episode, 0 to 1.')
]
WatchedOption = Annotated[
    float | None, typer.Option('--watched', help='Assumed operations that take longer are censored (s).')
]
SizesOption = Annotated[str, typer.Option('--n', help='Episodes per cell, such as 5,10,20 or 5:50:5.')]
OptionalStore = Annotated[Path | None, typer.Argument(metavar='[STORE]', help='A pilot: the folder of a store.')]


@power_app.command('size')
def size(
    rate: Annotated[float, typer.Option('--rate', help='The success rate of the worse policy, from 0 to 1.')] = 0.7,
    difference: Annotated[
        float, typer.Option('--difference', '-d', help="How much higher the better one's success rate is, from 0 to 1.")
    ] = 0.05,
    discordance: Annotated[
        float | None, typer.Option('--discordance', help='Fraction of scenes on which the policies disagree.')
    ] = None,
    policies: Annotated[int, typer.Option('--policies', min=2, help='Number of policies.')] = 2,
    tasks: Annotated[int, typer.Option('--tasks', min=1, help='Number of tasks.')] = 1,
    conditions: Annotated[int, typer.Option('--conditions', min=1, help='Number of conditions.')] = 1,
    overall: Annotated[
        bool, typer.Option('--overall', help='Compare means over cells, rather than cell by cell.')
    ] = False,
    reference: Annotated[
        bool, typer.Option('--against-reference', help='Compare each policy with one reference, rather than all pairs.')
    ] = False,
    power: PowerOption = 0.8,
    alpha: AlphaLevel = 0.05,
    survey: Annotated[
        bool, typer.Option('--survey', help='Also print the sample sizes of the surveyed papers.')
    ] = False,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            '--assume',
            help='Size "faster" too, by simulating the rule: a policy as NAME:median=40,spread=0.8,ever=0.95 or '
            'NAME:curve.csv; give two.',
        ),
    ] = None,
    tau: Annotated[float, typer.Option('--tau', help='With --assume: the time cap of an episode (s).')] = 120.0,
    matched: Annotated[
        bool, typer.Option('--matched', help='With --assume: both policies run the same starts.')
    ] = False,
    correlation: Annotated[
        float,
        typer.Option('--correlation', help='With --matched: correlation of the two policies on one start, 0 to 1.'),
    ] = 0.0,
    n: Annotated[str, typer.Option('--n', help='With --assume: episodes per cell, such as 5,10,20.')] = '5,10,20,40',
    seed: SeedOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Sample sizes for success rates: an interval, two policies (paired or not), non-inferiority, a whole plan.

    With two --assume it simulates the decision rule for success and speed.

    Example: `robotrials power size --rate 0.7 --difference 0.05 --policies 4 --tasks 10`

    Example: `robotrials power size --assume new:median=35 --assume old:median=45,ever=0.95 --tasks 4 --tau 120`
    """
    if assume:
        found_rule = assumed_rule_power(
            assume, tau=tau, strata=tasks * conditions, policies=policies, against_reference=reference,
            matched=matched, correlation=correlation, sizes=parse_sizes(n), power=power, alpha=alpha, seed=seed or 0,
        )  # fmt: skip
        print_table(found_rule, form)
        return
    from robotrials.show.planning import plan_table, size_card, sizes_table, survey_table
    from robotrials.verdict.planning import field_position, plan_sizes, read_survey

    check_shares(rate, difference)
    sizes = plan_sizes(
        rate, difference, discordance=min(1.0, 2 * difference) if discordance is None else discordance,
        policies=policies, tasks=tasks, conditions=conditions, claim='overall' if overall else 'per_cell',
        contrast='against_reference' if reference else 'all_pairs', power=power, alpha=alpha,
    )  # fmt: skip
    rows = single_sizes(rate, difference, discordance, power=power, alpha=alpha)
    title = f'One comparison: {100 * rate:g} % against {100 * (rate + difference):g} %'
    tables = [sizes_table(rows, title=title, note=f'Power {power:g}, two-sided alpha {alpha:g}.')]
    paired = next(r for r in sizes if 'paired difference (McNemar)' in r.design)
    position = field_position(paired.per_cell)
    tables.append(plan_table(sizes, note=f'McNemar, {position}.'))
    asked = [survey_table(read_survey(), position)] if survey else []
    who = f'{policies} policies, {"each with the reference" if reference else "every pair"}'
    where = ' on the mean over cells.' if overall else ' within every cell; --overall sizes for the mean over cells.'
    is_single = tasks * conditions == 1
    claim = f'Sized to compare {who}{"." if is_single else f",{where}"}' if policies > 2 or not is_single else ''
    card = size_card(
        rows, sizes, rate=rate, difference=difference, discordance=discordance, n_cells=tasks * conditions, power=power,
        alpha=alpha, position=position, claim=claim,
    )  # fmt: skip
    print_card(lambda: card, lambda: tables, form, details=details, asked=asked)


def check_shares(rate: float, difference: float) -> None:
    """Refuse rates in per cent, and a better policy above 100 %, with a command that works."""
    from robotrials.verdict.planning import better_rate

    p, d = rate / 100 if rate > 1 else rate, difference / 100 if difference >= 1 else difference
    if not (0 <= p <= 1 and 0 < d < 1):
        p, d = 0.7, 0.05
    command = f'Try: robotrials power size --rate {min(p, max(0.0, 1 - d)):.4g} -d {d:.4g}'
    if not (0 <= rate <= 1 and 0 < difference < 1):
        raise InputError(
            f'rates and differences are fractions from 0 to 1, found --rate {rate:g} and --difference {difference:g}\n'
            f'{command}'
        )
    try:
        better_rate(rate, difference)
    except InputError as error:
        raise InputError(f'{error}\n{command}') from None


def assumed_rule_power(
    assume: list[str], *, tau: float, strata: int, policies: int, against_reference: bool, matched: bool,
    correlation: float, sizes: list[int], power: float, alpha: float, seed: int,
) -> Table:  # fmt: skip
    """The rule simulated at some sizes, and the smallest size of each claim, in the one list of a trial's claims."""
    import numpy as np

    from robotrials.show.planning import rule_power_table
    from robotrials.verdict.planning import RuleDesign, curve_law, rule_power, rule_size

    named = dict(parse_assumption(text) for text in assume)
    if len(named) != 2 or len(assume) != 2:
        raise InputError('wanted two --assume with different names: --assume new:median=35 --assume old:median=45')
    (first, a), (second, b) = named.items()
    design = RuleDesign((curve_law(a),) * strata, (curve_law(b),) * strata, tau, matched, correlation)
    if design.win_probability < 0.5:  # the rule is told from the side of the faster one
        first, second = second, first
        design = RuleDesign(design.b, design.a, tau, matched, correlation)
    n_tests = 2 * (policies - 1 if against_reference else math.comb(policies, 2))
    at = [rule_power(design, k, rng=np.random.default_rng(seed), n_tests=n_tests, alpha=alpha) for k in sizes]
    needed = {
        claim: rule_size(
            design, rng=np.random.default_rng(seed), endpoint=claim, power=power, n_tests=n_tests, alpha=alpha
        )
        for claim in ('success', 'faster', 'either')
    }
    return rule_power_table(at, needed, names=(first, second), design=design, power=power, n_tests=n_tests, alpha=alpha)


def single_sizes(
    rate: float, difference: float, discordance: float | None, *, power: float, alpha: float
) -> list[tuple[str, int | None, str]]:
    """Every formula's answer for one comparison; None where it cannot be computed."""
    from robotrials.verdict.planning import (
        barnard_sample_size,
        better_rate,
        margin_size,
        mcnemar_rollouts,
        mcnemar_sample_size,
        paired_margin_size,
        pairs_size,
        success_size,
        two_proportion_sample_size,
        wilson_sample_size,
    )

    better = better_rate(rate, difference)
    each, pairs, of_both = 'rollouts of each policy', 'pairs', 'rollouts of both policies'
    widths = [(p, wilson_sample_size(difference, p, level=1 - alpha)) for p in dict.fromkeys((0.5, rate))]
    by_z = two_proportion_sample_size(rate, better, power=power, alpha=alpha)
    exact = barnard_sample_size(rate, better, power=power, alpha=alpha) if by_z <= BARNARD_MOST else None
    rows: list[tuple[str, int | None, str]] = [
        *((f'Wilson interval of ±{difference:g}, at a rate of {p:g}', n, each) for p, n in widths),
        ('unpaired, by the rule', success_size(rate, better, power=power, alpha=alpha), each),
        ('unpaired, formula of two proportions (z)', by_z, each),
        ("unpaired, Barnard's exact test" + ('' if exact else f': over {BARNARD_MOST}, take z'), exact, each),
        (f'unpaired, not worse by {difference:g}, by the rule',
         margin_size(rate, rate, margin=difference, power=power, alpha=alpha), each),
    ]  # fmt: skip
    for psi in [2 * difference, 5 * difference] if discordance is None else [discordance]:
        if not difference <= psi <= 1:
            continue
        rows += [
            (f'paired, by the rule at discordance {psi:g}',
             pairs_size(difference, psi, power=power, alpha=alpha), pairs),
            (f'paired, formula of Connor at discordance {psi:g}',
             mcnemar_sample_size(difference, psi, power, alpha), pairs),
            (f'paired, formula of Connor at discordance {psi:g}',
             mcnemar_rollouts(difference, psi, power, alpha), of_both),
            (f'paired, not worse by {difference:g}, by the rule at discordance {psi:g}',
             paired_margin_size(0.0, psi, margin=difference, power=power, alpha=alpha), pairs),
        ]  # fmt: skip
    return rows


@power_app.command('bridge')
def bridge(
    store: OptionalStore = None,
    a: Annotated[str | None, typer.Argument(metavar='[A]', help='A policy of the store.')] = None,
    b: Annotated[str | None, typer.Argument(metavar='[B]', help='Another.')] = None,
    assume: AssumeOption = None,
    strata: StrataOption = 1,
    operations: ItemsOption = 1,
    correlation: CorrelationOption = 0.0,
    watched: WatchedOption = None,
    n: SizesOption = '5,10,15,20,25,30,40,50,75,100',
    tau: PilotTauOption = None,
    power: PowerOption = 0.8,
    alpha: AlphaOption = None,
    design_effect: Annotated[
        float | None, typer.Option('--design-effect', help='Use this value instead of estimating it from the episodes.')
    ] = None,
    debias: Annotated[
        str,
        typer.Option(
            '--debias', help="deconvolve, subtract or none: how to remove chance from the pilot's difference."
        ),
    ] = 'deconvolve',
    method: MethodOption = 'permutation',
    bridges: Annotated[int, typer.Option('--bridges', min=100, help='Simulated bridges.')] = 4000,
    seed: SeedOption = None,
    where: WhereOption = None,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Power of the macro-KS test of time-to-success, by the Brownian-bridge model: from a pilot or assumed curves.

    Example: `robotrials power bridge --assume new:median=35 --assume old:median=45,ever=0.95 --strata 4 --operations 4`
    """
    from robotrials.show.planning import power_card, power_plot, power_table
    from robotrials.verdict.planning import field_position

    pilot, analysis = open_pilot(
        store, assume, where, strata=strata, operations=operations, correlation=correlation, watched=watched, tau=tau,
        seed=seed, alpha=alpha,
    )  # fmt: skip
    names = pick_two(pilot.cells, a, b)
    reached = pilot.power(
        *names, per_cell=parse_sizes(n), power=power, design_effect=design_effect, debias=debias,
        method=method, n_bridges=bridges,
    )  # fmt: skip
    needed = reached.needed.n
    habit = field_position(int(needed)) if math.isfinite(needed) else None
    table = power_table(reached, names=names, habit=habit)
    if form == 'text':
        print_card(
            lambda: power_card(reached, names=names, habit=habit), lambda: [table], details=details, analysis=analysis
        )
    else:
        print_table(table, form) if analysis is None else print_analysis_table(analysis, table, form)
    if figure is not None and not reached.per_cell.size:
        raise InputError('a figure of power needs some --n')
    save_plot(figure, lambda: power_plot({names: reached}), err=False)


@power_app.command('detect')
def detect(
    store: OptionalStore = None,
    pair: Annotated[list[str] | None, typer.Option('--pair', help='Only the pair A:B; repeatable.')] = None,
    assume: AssumeOption = None,
    strata: StrataOption = 1,
    operations: ItemsOption = 1,
    correlation: CorrelationOption = 0.0,
    watched: WatchedOption = None,
    n: SizesOption = '5,10,15,20,25,30',
    metric: Annotated[
        list[str] | None, typer.Option('--metric', help='ks, rmst_s or chance_<t>s; default: ks, rmst_s, F(30), F(60).')
    ] = None,
    tau: PilotTauOption = None,
    trials: Annotated[int, typer.Option('--trials', min=1, help='Simulated trials for each pair and N.')] = 300,
    resamples: Annotated[int, typer.Option('--resamples', min=1, help='Resamples of each test.')] = 200,
    target: Annotated[float, typer.Option('--power', help='The detection rate to reach.')] = 0.8,
    alpha: AlphaOption = None,
    method: MethodOption = 'permutation',
    fit: Annotated[
        str | None, typer.Option('--fit', help='Fit the bridge model at these N, check it at the others.')
    ] = None,
    seed: SeedOption = None,
    threads: Annotated[int | None, typer.Option('--threads', min=1, help='Default: every core.')] = None,
    where: WhereOption = None,
    output: Annotated[
        Path | None, typer.Option('--output', '-o', help='Write every (pair, metric, N, rate) here.')
    ] = None,
    figure: FigureOption = None,
    engine: EngineOption = 'local',
    address: AddressOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """How often each test detects a difference at each N, in subsamples of a pilot or draws from assumed curves.

    Example: `robotrials power detect runs/may --pair groot:act -o detection.csv --figure detection.pdf`
    """
    from robotrials.show.planning import design_table, detection_card, detection_plot, detection_table, smallest_table
    from robotrials.show.table import render
    from robotrials.verdict.planning.power import METRICS

    pilot, analysis = open_pilot(
        store, assume, where, strata=strata, operations=operations, correlation=correlation, watched=watched, tau=tau,
        seed=seed, alpha=alpha,
    )  # fmt: skip
    pairs = None if pair is None else [(text.partition(':')[0], text.partition(':')[2]) for text in pair]
    with resampled_on(engine, address), progress_bar('pairs x N') as advance:
        study = pilot.detection(
            per_cell=parse_sizes(n), pairs=pairs, metrics=tuple(metric or METRICS), n_trials=trials,
            n_resamples=resamples, method=method, threads=threads, on_row=advance,
        )  # fmt: skip
    tables = [smallest_table(study, target=target)]
    if output is None or form != 'text':
        tables.append(detection_table(study))
    if output is not None:
        output.write_text(render(detection_table(study), 'csv'), encoding='utf-8')
        typer.echo(f'wrote {output}', err=True)
    if fit is not None:
        tables.append(design_table(pilot.design(study, fit_on=parse_sizes(fit), method=method)))
    print_card(
        lambda: detection_card(study, target=target), lambda: tables, form, details=details or fit is not None,
        analysis=analysis,
    )  # fmt: skip
    save_plot(figure, lambda: detection_plot(study, target=target))


def parse_sizes(text: str) -> list[int]:
    """`5,10,20` or `5:50:5` (its end included) as numbers of episodes."""
    try:
        if ':' in text:
            start, stop, step = (int(part) for part in text.split(':'))
            return list(range(start, stop + 1, step))
        return [int(part) for part in text.split(',') if part]
    except ValueError:
        raise InputError(f'wanted numbers such as 5,10,20 or 5:50:5, found {text!r}') from None


def open_pilot(
    store: Path | None, assume: list[str] | None, where: list[str] | None, *, strata: int, operations: int,
    correlation: float, watched: float | None, tau: float | None = None, seed: int | None = None,
    alpha: float | None = None,
) -> tuple[Planning | AssumedPlanning, Analysis | None]:  # fmt: skip
    """What power is worked out from: the analysis of a store, or assumed curves with a seed and no analysis."""
    from robotrials.verdict.analysis.planning import AssumedPlanning
    from robotrials.verdict.planning import AssumedCell

    if (store is None) == (not assume):
        raise InputError('wanted either a STORE to plan from, or two --assume')
    if store is not None:
        analysis = open_analysis(store, where, tau=tau, seed=seed, alpha=alpha)
        return analysis.planning, analysis
    named = dict(parse_assumption(text) for text in assume or [])
    if len(named) < 2:
        raise InputError('wanted two --assume with different names: --assume new:median=35 --assume old:median=45')
    cells = {
        name: {f'stratum {k + 1}': AssumedCell(curve, operations, correlation, watched) for k in range(strata)}
        for name, curve in named.items()
    }
    return AssumedPlanning(cells, seed=seed or 0, tau_s=tau, alpha=alpha or 0.05), None


def parse_assumption(text: str) -> tuple[str, AssumedCurve]:
    """NAME:median=40,spread=0.8,ever=0.95 or NAME:curve.csv as a name and an AssumedCurve."""
    import numpy as np

    from robotrials.verdict.planning import AssumedCurve, lognormal_curve

    name, separator, rest = text.partition(':')
    if not (name and separator and rest):
        raise InputError(f'--assume wants NAME:median=40,spread=0.8,ever=0.95 or NAME:curve.csv, found {text!r}')
    if '=' not in rest:
        path = Path(rest)
        if not path.exists():
            raise InputError(f'{path}: no such file; --assume wants NAME:median=40 or NAME:curve.csv')
        with path.open(newline='', encoding='utf-8') as stream:
            rows = list(csv.DictReader(stream))
        try:
            points = [(float(row['t_s']), float(row['chance'])) for row in rows]
        except (KeyError, TypeError, ValueError):
            raise InputError(f'{path}: wanted the columns t_s and chance, all numbers') from None
        return name, AssumedCurve(np.array([p[0] for p in points]), np.array([p[1] for p in points]))
    given: dict[str, float] = {}
    for part in rest.split(','):
        key, _, value = part.partition('=')
        if key not in ('median', 'spread', 'ever'):
            raise UnknownName('part of an assumption', key, ['median', 'spread', 'ever'])
        try:
            given[key] = float(value)
        except ValueError:
            raise InputError(f'--assume {text}: {key} is {value!r}, wanted a number') from None
    if 'median' not in given:
        raise InputError(f'--assume {text}: wanted a median in seconds, as median=40')
    return name, lognormal_curve(given['median'], spread=given.get('spread', 0.8), ceiling=given.get('ever', 1.0))


def pick_two(cells: Mapping[str, object], a: str | None, b: str | None) -> tuple[str, str]:
    """The two policies asked for, or the only two there are."""
    if a is None and b is None and len(cells) == 2:
        first, second = cells
        return first, second
    if a is None or b is None:
        raise InputError(f'wanted two policies to compare, named after the store; there are {", ".join(cells)}')
    for name in (a, b):
        if name not in cells:
            raise UnknownName('policy', name, cells)
    return a, b


def print_plan_power(
    plan: TrialPlan, *, power: float, rate: float, difference: float, discordance: float | None, pilot: Path | None,
    form: str,
) -> None:  # fmt: skip
    """What a declared trial needs for the power asked, against what it has and what is usual."""
    from robotrials.show.planning import plan_table
    from robotrials.verdict.planning import field_position, plan_sizes

    target = plan.power
    if target is not None:
        rate, difference = target.success_rate or rate, target.difference
        discordance = target.discordance if discordance is None else discordance
    sizes = plan_sizes(
        rate, difference, discordance=min(1.0, 2 * difference) if discordance is None else discordance,
        policies=len(plan.policies), tasks=len(plan.cells()), claim='overall',
        contrast='against_reference' if plan.reference else 'all_pairs', power=power,
    )  # fmt: skip
    has = plan.episodes_in_a_cell() * plan.repeats
    note = (
        f'{100 * rate:g} % against {100 * (rate + difference):g} %, mean over {len(plan.cells())} cells, '
        f'power {power:g}. The plan has {has} per cell: {field_position(has)}.'
    )
    print_table(plan_table(sizes, note=note), form)
    if pilot is not None:
        _print_pilot_power(pilot, power=power, has=has, form=form)


def _print_pilot_power(pilot: Path, *, power: float, has: int, form: str) -> None:
    """Episodes per cell for the macro-KS test of every pair of the pilot."""
    from robotrials.show.planning import needed_table

    planning = open_analysis(pilot).planning
    powers = {(a, b): planning.power(a, b, per_cell=[has], power=power) for a, b in planning.pairs()}
    print_table(needed_table(powers), form)
