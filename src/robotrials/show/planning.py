"""Tables of planning: sample sizes against the field's habit, power, detection rates, sequential looks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError
from robotrials.show.answer import ALL, GLUE, Card
from robotrials.show.catalog import FigureRequest, ShowRequest, named
from robotrials.show.curve import whole_strata
from robotrials.show.pair_table import NEEDED_COLUMNS
from robotrials.show.phrase import endpoint_name
from robotrials.show.plot import THING_PALETTE, Axis, Curve, Facet, GuideLine, Layer, Note, Plot, Point, Sheet
from robotrials.show.table import Cell, Column, Table, mark, table
from robotrials.show.timing import scalar_name
from robotrials.verdict.analysis import Absent, present
from robotrials.verdict.analysis.planning import DETECTION_TRIALS, POWER_SIZES
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.planning import ArmPair, BridgePower, Decision, DetectionStudy, WatchedTrial, read_survey

if TYPE_CHECKING:
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning import (
        DesignCalibration,
        FieldPosition,
        PlanSize,
        RuleDesign,
        RulePower,
        SurveyedPaper,
    )


def metric_name(metric: str) -> str:
    """How a test is headed."""
    return {'ks': 'KS', 'rmst_s': 'RMST'}.get(metric) or scalar_name(metric)


def sizes_table(rows: Sequence[tuple[str, int | None, str]], *, title: str, note: str = '') -> Table:
    """Named sample sizes: what is claimed, how many, and of what."""
    return table(title, ['design', 'N', 'counts'], rows, note=note)


def plan_table(rows: Sequence[PlanSize], *, note: str = '') -> Table:
    """A whole plan by design, with the price of its comparisons."""
    rows_shown = [(r.design, r.comparisons, r.alpha_each, r.per_cell, r.per_policy, r.total) for r in rows]
    columns: list[str | Column] = [
        'design', 'comparisons', Column('alpha each', '.2g'), 'per cell', 'per policy', 'all rollouts',
    ]  # fmt: skip
    return table('The whole plan', columns, rows_shown, note=note)


def size_card(
    rows: Sequence[tuple[str, int | None, str]], plan: Sequence[PlanSize], *, rate: float, difference: float,
    discordance: float | None, n_cells: int, power: float, alpha: float, position: FieldPosition, claim: str = '',
) -> Card:  # fmt: skip
    """How many rollouts the plan asked for takes, paired or not; `rate` is that of the worse policy."""
    unpaired, paired = (next(r for r in plan if r.design.startswith(f'{word} difference')) for word in (
        'unpaired', 'paired'))  # fmt: skip
    each = f' ({unpaired.per_cell:,} in each of {n_cells} cells)' if n_cells > 1 else ''
    at = min(1.0, 2 * difference) if discordance is None else discordance
    verdict = (
        f'{100 * rate:g} % against {100 * (rate + difference):g} % takes {unpaired.per_policy:,} rollouts of each '
        f'policy{each}, or {paired.per_policy:,} on matched starts (discordance {at:g}).'
    )
    chosen = [
        (r.design.partition(' (')[0], f'{r.per_cell:,} per cell, {r.per_policy:,} per policy, {r.total:,} in all')
        for r in plan
    ]
    widths = [r for r in rows if r[0].startswith('Wilson')]
    return Card(
        title='Sample size', scope=f'power {power:g}, two-sided alpha {alpha:g}',
        verdict=(verdict, claim) if claim else (verdict,),
        rows=(*chosen, *((r[0].partition(',')[0], f'{_count(r)} (rate {r[0].rpartition(" ")[2]})') for r in widths)),
        notes=(f'McNemar, {position}.',), more=(ALL, '--survey'),
    )  # fmt: skip


def _count(row: tuple[str, int | None, str]) -> str:
    return '—' if row[1] is None else f'{row[1]:,} {"pairs" if row[2] == "pairs" else "rollouts"}'


def power_card(power: BridgePower, *, names: tuple[str, str], habit: FieldPosition | None) -> Card:
    """The episodes per cell that the macro-KS test needs, and its power at what was asked."""
    verdict = f'{power.needed.power:.0%} power needs {power.needed} episodes per cell.'.replace('%', ' %')
    rows = [
        (f'{n} per cell', f'{mark(float(p))} {100 * p:.0f} % power')
        for n, p in zip(power.per_cell.tolist(), power.power.tolist(), strict=True)
    ]
    return Card(
        title=f'{names[0]} vs {names[1]}', scope=f'macro-KS test of times, alpha {power.alpha:g}', verdict=(verdict,),
        rows=tuple(rows), notes=(f'{habit}.',) if habit is not None else (),
    )  # fmt: skip


def detection_card(study: DetectionStudy, *, target: float) -> Card:
    """The smallest N at which each test detects a pair often enough."""
    rows, last = [], max(r.per_cell for r in study.rows)
    reached = 0
    for a, b in study.pairs:
        parts = []
        for metric in study.metrics:
            n = _smallest(study, (a, b), metric, target)
            reached += n is not None
            parts.append(f'{metric_name(metric)} {n or f"not by {last}"}'.replace(' ', GLUE))
        rows.append((f'{a} vs {b}', ', '.join(parts)))
    total = len(study.pairs) * len(study.metrics)
    note = 'null: how often the test rejects when both arms are drawn from the two policies pooled.'
    return Card(
        title='Detection', scope=f'rate of {target:g}, up to {last} episodes per cell',
        verdict=(f'{reached} of {total} tests detect their pair by {last} episodes per cell.',), rows=tuple(rows),
        notes=(note,) if reached else (),
    )  # fmt: skip


@named(lambda _: read_survey(), wants=Input.NOTHING)
def survey_table(papers: Sequence[SurveyedPaper], position: FieldPosition | None = None) -> Table:
    """Rollouts per condition and statistics in recent papers, as PhAIL surveyed them."""
    rows = [(p.name, p.reported, p.n_low, p.n_high, p.statistics) for p in papers]
    note = '' if position is None else str(position)
    return table('What is usual', ['paper', 'rollouts per cell', 'low', 'high', 'statistics'], rows, note=note)


def power_table(
    power: BridgePower, *, names: tuple[str, str] = ('a', 'b'), habit: FieldPosition | None = None
) -> Table:
    """Power against episodes per cell, and the N that is needed."""
    rows = list(zip(power.per_cell.tolist(), power.power.tolist(), power.error.tolist(), strict=True))
    note = f'Needed for {power.needed.power:.0%} power: {power.needed} episodes per cell.'
    if power.null_effect is None:
        note += f' Macro KS of the assumed curves {power.effect:.3f}.'
    else:
        note += (
            f' Macro KS of the pilot {power.effect:.3f}, of which chance alone gives {power.null_effect:.3f}; '
            f'the difference was multiplied by {power.shrinkage:.2f}.'
        )
    note += f'\nDesign effect {power.design_effect:.2f}; alpha {power.alpha:g}; {power.n_bridges} simulated bridges.'
    if habit is not None:
        note += f'\n{habit}.'
    columns: list[str | Column] = ['episodes per cell', Column('power', '.3f'), Column('error', '.3f')]
    return table(f'Power of the macro-KS test: {names[0]} against {names[1]}', columns, rows, note=note)


def rule_power_table(
    powers: Sequence[RulePower], needed: Mapping[str, RulePower | None], *, names: tuple[str, str], design: RuleDesign,
    power: float, n_tests: int, alpha: float,
) -> Table:  # fmt: skip
    """Simulated power of the rule at some sizes, and the smallest size of each claim."""
    a, b = names
    claims = {'success': f'{a} succeeds more often', 'faster': f'{a} is faster', 'either': 'at least one of both'}
    rows: list[tuple[Cell, ...]] = [(r.per_cell, *(r.rate(c) for c in claims), r.rate('wrong')) for r in powers]
    sizes = '; '.join(
        f'{claim} {"not by 2,000" if (size := needed[name]) is None else f"from {size.per_cell}"}'
        for name, claim in claims.items()
    )
    p, q, first = (f'{100 * x:.0f} %' for x in (*design.success_rates, design.win_probability))
    starts = 'matched starts' if design.is_matched else 'independent arms'
    note = (
        f'Episodes of each policy per cell for {100 * power:g} % power: {sizes}.\n'
        f'{len(design.a)} cells, {starts}, followed to {design.tau_s:g} s: success {p} and {q}, {a} done first in '
        f'{first} of comparisons.\nA list of {n_tests} claims at alpha {alpha:g}, corrected by Holm; '
        f'{powers[0].n_trials:,} simulated trials of the rule itself at every size.'
    )
    columns: list[str | Column] = [
        'episodes per cell', *(Column(c, '.3f') for c in claims.values()), Column(f'any claim for {b}', '.3f'),
    ]  # fmt: skip
    return table(f'Power of the rule: {a} against {b}', columns, rows, note=note)


def needed_table(powers: Mapping[tuple[str, str], BridgePower]) -> Table:
    """Episodes per cell that each pair needs, and the power of what is planned (the first N of each)."""
    rows: list[tuple[Cell, ...]] = []
    for (a, b), power in powers.items():
        interval = power.needed.interval
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        rows.append((a, b, power.needed.n, low, high, float(power.power[0])))
    first = next(iter(powers.values()))
    columns: list[str | Column] = [
        'a', 'b', Column('N per cell', '.0f'), Column('low', '.0f'), Column('high', '.0f'),
        Column(f'power at {first.per_cell[0]}', '.2f'),
    ]  # fmt: skip
    note = (
        'Macro-KS test of one pair at alpha, uncorrected; from the pilot, less chance. ∞: nothing shows beyond chance.'
    )
    return table(f'Time to success: episodes per cell for {first.needed.power:.0%} power', columns, rows, note=note)


@named(lambda r: requested_study(r))
def detection_table(study: DetectionStudy) -> Table:
    """Detection rate of every test for every pair and number of episodes per cell, by subsampling the store."""
    rows = [
        (r.policy_a, r.policy_b, r.metric, r.per_cell, r.rate, *r.interval, r.null_rate, r.n_detected, r.n_trials)
        for r in study.rows
    ]
    columns: list[str | Column] = [
        'a', 'b', 'metric', 'N', Column('rate', '.3f'), Column('low', '.3f'), Column('high', '.3f'),
        Column('null rate', '.3f'), 'detected', 'trials',
    ]  # fmt: skip
    return table('Detection rates', columns, rows, note=_study_note(study))


@named(lambda r: requested_study(r, 'smallest-n'))
def smallest_table(study: DetectionStudy, *, target: float = 0.8) -> Table:
    """The smallest number of episodes per cell at which each test detects each pair 8 times in 10."""
    rows: list[tuple[Cell, ...]] = [
        (f'{a} vs. {b}', *(_smallest(study, (a, b), m, target) for m in study.metrics)) for a, b in study.pairs
    ]
    last = max(r.per_cell for r in study.rows)
    rows.append((f'mean rate at N = {last}', *(f'{study.mean_rate(m, last):.2f}' for m in study.metrics)))
    nulls = [np.mean([study.null_rates(pair, m)[last] for pair in study.pairs]) for m in study.metrics]
    rows.append((f'the same, null rate at N = {last}', *(f'{rate:.2f}' for rate in nulls)))
    note = f'A dash: not reached by N = {last}. {_study_note(study)}'
    return table(
        f'Smallest N with a detection rate of {target:g}', ['pair', *map(metric_name, study.metrics)], rows, note=note
    )


def _smallest(study: DetectionStudy, pair: tuple[str, str], metric: str, target: float) -> str | None:
    """The smallest N with its null rate: a test that also rejects there without an effect has found nothing."""
    n = study.smallest(pair, metric, target=target)
    return None if n is None else f'{n} (null {study.null_rates(pair, metric)[n]:.2f})'


def _study_note(study: DetectionStudy) -> str:
    return (
        'null: the same test when both arms are drawn from the two policies pooled, so that any rejection is noise of '
        'the pilots. '
        f'{study.rows[0].n_trials} trials of {study.n_resamples} resamples ({study.method}), p <= {study.alpha:g}; '
        f'KS and RMST up to {study.tau_s:g} s.'
    )


def design_table(fitted: DesignCalibration) -> Table:
    """Model against detection rate, where it was fitted and where it was not."""
    rows = [
        (name, n, rate, model, model - rate, 'fitted' if fit else 'judged') for name, n, rate, model, fit in fitted.rows
    ]
    judged = '' if fitted.judged_gap is None else f', {fitted.judged_gap:.3f} where judged'
    note = (
        f'Design effect {fitted.design_effect:.2f} fitted, {fitted.estimated:.2f} estimated from the episodes. '
        f'Largest gap {fitted.fitted_gap:.3f} where fitted{judged}.'
    )
    columns: list[str | Column] = [
        'pair', 'N', Column('rate', '.3f'), Column('model', '.3f'), Column('gap', '+.3f'), 'point',
    ]  # fmt: skip
    return table('Bridge model against detection rates', columns, rows, note=note)


SAID = {Decision.CONTINUE: 'continue', Decision.FUTILE: 'futile: stop without a winner'}


def _said(decision: Decision, a: str, b: str) -> str:
    return SAID.get(decision) or f'{a if decision is Decision.A_BETTER else b} better'


def watch_table(
    trial: WatchedTrial, pairs: Sequence[ArmPair] | None = None,
    contrasts: Mapping[tuple[str, str], Contrast] | None = None,
) -> Table:  # fmt: skip
    """What may be said of every pair (or of those shown) at this moment, beside the estimate from all episodes."""
    rows: list[tuple[Cell, ...]] = []
    for pair in trial.arms.pairs if pairs is None else pairs:
        looks = pair.comparison.looks
        last = looks[-1] if looks else None
        between: tuple[Cell, ...] = (None,) * 4
        if last is not None:
            between = (last.n_a, last.difference, last.interval.low, last.interval.high)
        contrast = (contrasts or {}).get((pair.a, pair.b))
        rows.append(
            (pair.a, pair.b, *between, pair.adjusted_p_value, _said(pair.decision, pair.a, pair.b),
             None if contrast is None else 100 * contrast.estimate)
        )  # fmt: skip
    counted = ', '.join(f'{name} {n}' for name, n in trial.n_episodes.items())
    what = 'episode success' if trial.score == 'success' else f'promptness at tau = {tau_text(trial.tau_s)}'
    note = (
        f'{what}; valid episodes: {counted}; {trial.n_invalid} invalid, {trial.n_waiting} waiting for a partner.\n'
        f'Policies sharing a letter are not significantly different: '
        + ', '.join(f'{n} {x}' for n, x in zip(trial.arms.order, trial.arms.letters, strict=True))
        + '. '
        + ('The trial may stop.' if trial.may_stop else 'Continue.')
    )
    if trial.n_repeats:
        note += f'\n{trial.n_repeats} repeats of start states were left out: the first run of each counts.'
    if not trial.is_ordered:
        note += '\nSome episodes do not say when they were started: taken in the order of their start states.'
    # The estimate that every other verb gives of these episodes; nothing may be stopped by it.
    estimate = 'all episodes: a - b (points)' if trial.score == 'success' else 'all episodes: a first (%)'
    columns: list[str | Column] = [
        'a', 'b', 'episodes each', Column('a - b', '+.3f'), Column('low', '+.3f'), Column('high', '+.3f'),
        Column('p (anytime, Holm)', '.3g'), 'decision', Column(estimate, '+.1f'),
    ]  # fmt: skip
    return table('The trial so far', columns, rows, note=note)


def tau_text(tau_s: float | Mapping[str, float] | None) -> str:
    taus = sorted(set(tau_s.values())) if isinstance(tau_s, Mapping) else [tau_s or 0.0]
    return f'{taus[0]:g} s' if len(taus) == 1 else f'{taus[0]:g} s to {taus[-1]:g} s by stratum'


def looks_table(trial: WatchedTrial, pairs: Sequence[ArmPair] | None = None) -> Table:
    """The confidence sequence of every pair (or of those shown) at every look."""
    listed = trial.arms.pairs if pairs is None else pairs
    rows: list[tuple[Cell, ...]] = [
        (p.a, p.b, k.n_a, k.difference, k.interval.low, k.interval.high, k.evidence_a, k.evidence_b,
         _said(k.decision, p.a, p.b))
        for p in listed
        for k in p.comparison.looks
    ]  # fmt: skip
    columns: list[str | Column] = [
        'a', 'b', 'episodes each', Column('a - b', '+.3f'), Column('low', '+.3f'), Column('high', '+.3f'),
        Column('e-value a better', '.3g'), Column('e-value b better', '.3g'), 'decision',
    ]  # fmt: skip
    alpha = trial.arms.pairs[0].comparison.alpha
    return table('Every look', columns, rows, note=f'Confidence sequences at 1 - {alpha:.3g} each; all hold together.')


# Pictures of planning: detection rates and power against N, a trial as it was watched (PhAIL, Figures 1b, 3).

TARGET = 0.8
RULE_COLOR = '#404040'  # a curve about a pair belongs to neither policy
KS_COLOR = '#C00000'
RATES = (-0.02, 1.04)
PER_CELL = Axis('episodes per cell N', (0.0, None))
PAIR_SHEET = Sheet(facet_in=(1.75, 1.9), most=3, shared='y')


def pairs_shown(request: FigureRequest, name: str) -> list[tuple[str, str]]:
    """Pairs of the policies shown; the others are neither drawn nor asked about."""
    whole_strata(request, name)
    kept = request.shown(present(request.analysis.frame).policies)
    pairs = [(a, b) for a, b in request.analysis.planning.pairs() if a in kept and b in kept]
    if not pairs:
        raise InputError(f'{name} needs two policies besides the reference')
    return pairs


def requested_study(request: FigureRequest, name: str = 'detection') -> DetectionStudy:
    """The detection study of the pairs shown; each pair's rates are its own, whoever else is shown."""
    pairs = pairs_shown(request, name)
    trials = min(DETECTION_TRIALS, request.analysis.plan.resamples)
    study = request.analysis.planning.detection(n_trials=trials)
    return replace(study, rows=tuple(r for r in study.rows if (r.policy_a, r.policy_b) in pairs))


def requested_powers(request: FigureRequest, name: str = 'power') -> dict[tuple[str, str], BridgePower]:
    """Power of every pair shown."""
    planning = request.analysis.planning
    return {(a, b): planning.power(a, b, per_cell=POWER_SIZES) for a, b in pairs_shown(request, name)}


@named(requested_study)
def detection_plot(study: DetectionStudy, *, target: float = TARGET) -> Plot:
    """Detection rate of every test against episodes per cell, for every pair, by subsampling the store.

    One facet per pair, one line per test with Monte-Carlo intervals, and a pale one of its matched null.
    """
    colors = dict(zip(study.metrics, (KS_COLOR, *(c for c in THING_PALETTE if c != '#CC6677')), strict=False))
    dashes = dict(zip(study.metrics, ('-', '--', '-.', ':') * len(study.metrics), strict=False))
    drawn = []
    for pair in study.pairs:
        curves: list[Layer] = [GuideLine(y=target)]
        for metric in study.metrics:
            rows = [r for r in study.rows if (r.policy_a, r.policy_b) == pair and r.metric == metric]
            at = [r.per_cell for r in rows]
            color, dash = colors[metric], dashes[metric]
            curves += [
                Curve('', at, [r.rate for r in rows], [r.interval.low for r in rows], [r.interval.high for r in rows],
                      name=metric_name(metric), has_whiskers=True, width=1.6 if metric == 'ks' else 1.0, color=color,
                      dash=dash),
                Curve('', at, [r.null_rate for r in rows], width=0.7, alpha=0.45, is_listed=False, color=color,
                      dash=dash),
            ]  # fmt: skip
        drawn.append(Facet(f'{pair[0]} vs. {pair[1]}', tuple(curves)))
    return Plot('detection', 'Detection rate', tuple(drawn), PER_CELL, Axis('detection rate', RATES), sheet=PAIR_SHEET)


@named(requested_powers)
def power_plot(powers: Mapping[tuple[str, str], BridgePower]) -> Plot:
    """Power of the macro-KS test against episodes per cell, by the bridge model; the N for 0.8 and its interval.

    One facet per pair; the bar under the curve is that interval.
    """
    drawn = []
    for names, power in powers.items():
        needed, right = power.needed, float(power.per_cell.max()) * 1.05
        layers: list[Layer] = [
            GuideLine(y=needed.power),
            Curve('', power.per_cell.tolist(), power.power.tolist(), has_whiskers=True, color=RULE_COLOR,
                  is_listed=False),
        ]  # fmt: skip
        if needed.interval is not None and needed.interval.low < right:
            ends = [needed.interval.low, min(needed.interval.high, right)]
            layers.append(Curve('', ends, [0.03, 0.03], color='0.4', width=3, is_listed=False))
            if needed.interval.high > right:
                layers.append(Point('', right, 0.03, color='0.4', marker='>'))
        if needed.n < right:
            layers.append(
                Curve('', [needed.n] * 2, [0.0, needed.power], color='0.4', width=0.8, dash=':', is_listed=False)
            )
        size = '∞' if math.isinf(needed.n) else f'{needed.n:.0f}'
        axis = Axis(PER_CELL.label, (0.0, right))
        drawn.append(Facet(f'{names[0]} vs. {names[1]}\nN = {size}', tuple(layers), axis, Axis('power', RATES)))
    return Plot('power', 'Power', tuple(drawn), sheet=PAIR_SHEET)


def watched_pairs(request: FigureRequest) -> tuple[WatchedTrial, list[ArmPair]]:
    """The trial as watched, and the pairs of policies shown."""
    trial = request.analysis.planning.watched()
    kept = request.shown(trial.n_episodes)
    return trial, [p for p in trial.arms.pairs if p.a in kept and p.b in kept]


def draw_sequential(request: FigureRequest) -> Plot:
    """The confidence sequence of every pair's difference in episode success, look after look, and where it decided."""
    whole_strata(request, 'sequential')
    _, pairs = watched_pairs(request)
    if not pairs:
        raise InputError('sequential needs two policies besides the reference')
    drawn = tuple(Facet(f'a {pair.a}, b {pair.b}', tuple(_look_layers(pair))) for pair in pairs)
    axes = Axis('episodes each'), Axis('a - b', (-1.0, 1.05))
    return Plot('sequential', 'The trial as watched', drawn, *axes, sheet=PAIR_SHEET)


def _look_layers(pair: ArmPair) -> list[Layer]:
    looks = pair.comparison.looks
    at = [k.n_a for k in looks]
    low, high = [k.interval.low for k in looks], [k.interval.high for k in looks]
    layers: list[Layer] = [
        GuideLine(y=0.0),
        Curve('', at, [k.difference for k in looks], low, high, is_step=True, color=RULE_COLOR, is_listed=False),
    ]
    stopped = pair.comparison.stopped_at
    if stopped is not None:
        is_late = stopped.n_a > 0.5 * max(at)
        layers += [
            GuideLine(x=stopped.n_a, color=KS_COLOR, dash='-', width=1.0),
            Note(stopped.decision.value.replace('_', ' '), stopped.n_a, 0.98, color=KS_COLOR,
                 align=('right' if is_late else 'left', 'top'), shift_pt=-2 if is_late else 2),
        ]  # fmt: skip
    return layers


# Tables of planning by name: detection rates, needed sizes, the trial as watched, the field's habit.


def needed(request: ShowRequest) -> list[Table]:
    """What every pair needs for 80 % power of the test of each endpoint, and of the macro-KS test, from this pilot."""
    comparisons = present(request.analysis.pairs)
    pairs = pairs_shown(request, 'needed-n')
    n_strata = max(1, len(present(request.analysis.frame).strata))
    rows: list[tuple[Cell, ...]] = []
    for name, endpoint in comparisons.endpoints.items():
        if isinstance(endpoint, Absent):
            continue
        for a, b in pairs:
            pair = endpoint.pair(a, b)
            own = (None, None, None) if pair.needed is None else (pair.needed.n, pair.needed.low, pair.needed.high)
            rows.append((endpoint_name(name), a, b, pair.unit, sum(pair.n_units) / 2 / n_strata, *own))
    columns: list[str | Column] = ['endpoint', 'a', 'b', 'unit', Column('N now', '.3g'), *NEEDED_COLUMNS]
    note = (
        'Units per cell for 80 % power at the level of the first step of the correction over pairs, if the difference '
        'is what was observed; N low and N high are what the ends of its interval would need. ∞: the data show no '
        'difference.'
    )
    tables = [table('Needed for a verdict', columns, rows, note=note)]
    if not isinstance(request.analysis.times, Absent):
        tables.append(needed_table(requested_powers(request, 'needed-n')))
    return tables


def sequential(request: ShowRequest) -> list[Table]:
    """What an anytime-valid test of episode success may say of every pair now."""
    trial, pairs = watched_pairs(request)
    return [watch_table(trial, pairs)]
