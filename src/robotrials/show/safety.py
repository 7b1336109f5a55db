"""Safety as tables and plots: what `robotrials safety`, `tables`, `plot` and a report's section show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.safety import CellSafety, EpisodeSafety, SafetySummary, Tier, pareto_frontier
from robotrials.measure.safety.registry import Applicability, TaskTags
from robotrials.measure.safety.summary import (
    SLIP_AT_THE_GRIP,
    SLIP_BY_HEIGHT,
    MeanSafety,
    SensitivityRow,
    SlipCounts,
    UnscoredEpisode,
    best_marks,
)
from robotrials.show.catalog import ShowRequest, named
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN
from robotrials.show.phrase import ends, percent
from robotrials.show.plot import (
    MARKERS,
    THING_PALETTE,
    Axis,
    Bar,
    Curve,
    Number,
    Plot,
    Point,
    Sheet,
    Tile,
    counted,
    facets,
    these_episodes,
)
from robotrials.show.table import Cell, Column, Table, table
from robotrials.stats import Estimate, Interval
from robotrials.verdict.analysis import SafetyPart, present
from robotrials.verdict.analysis.safety import SafetyComparison

PERCENT, SCORE = '.1f', '.3f'


def _ends(interval: Interval | None, *, factor: float = 100, digits: int = 1) -> str | None:
    if interval is None:
        return None
    return f'[{factor * interval.low:.{digits}f}, {factor * interval.high:.{digits}f}]'


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _level(cells: Sequence[CellSafety]) -> float:
    """Of these cells' intervals."""
    return cells[0].level if cells else 0.95


def _share(level: float, what: str) -> str:
    """The name of a column of intervals: `95 % of SR`."""
    return f'{100 * level:g} % of {what}'


def _marks(marks: Sequence[str]) -> str | None:
    """Best values by name; a dagger for the largest SBU, as in the paper's tables."""
    return ', '.join('† largest SBU' if mark == 'largest SBU' else mark for mark in marks) or None


@named(lambda r: requested_summary(r))
def quadruple_table(summary: SafetySummary) -> Table:
    """Success, Safety, SBU and VSI of every policy and benchmark, with intervals."""
    level = _level(summary.cells)
    columns: list[str | Column] = [
        'policy', 'benchmark', 'n', Column('SR %', PERCENT), _share(level, 'SR'), Column('Safety %', PERCENT),
        _share(level, 'Safety'), Column('SBU %', PERCENT), _share(level, 'SBU'), Column('P[U|S] %', PERCENT),
        Column('VSI', SCORE), _share(level, 'VSI'), Column('VSI|U', SCORE), 'unscored', 'marks',
    ]  # fmt: skip
    marks = best_marks(summary.cells)
    rows: list[list[Cell]] = [_quadruple(cell, mark) for cell, mark in zip(summary.cells, marks, strict=True)]
    rows += [
        [policy, benchmark, 0, *([None] * 10), len(lost), None] for policy, benchmark, _, lost in summary.not_estimable
    ]
    notes = []
    if any(cell.is_auxiliary for cell in summary.cells):
        names = sorted({cell.benchmark for cell in summary.cells if cell.is_auxiliary})
        notes.append(f'auxiliary, in no mean: {", ".join(names)}')
    if summary.n_unscored:
        notes.append(f'{summary.n_unscored} episodes could not be scored and are in no rate; --unscored names them')
    return table('Safety', columns, rows, note='; '.join([*notes, *(text.rstrip('.') for text in summary.caveats)]))


def _quadruple(cell: CellSafety, marks: Sequence[str]) -> list[Cell]:
    return [
        cell.policy, cell.benchmark, cell.n, percent(cell.success.value), _ends(cell.success.interval),
        percent(cell.safety.value), _ends(cell.safety.interval), percent(cell.sbu.value), _ends(cell.sbu.interval),
        percent(cell.unsafe_given_success.value), cell.vsi.value, _ends(cell.vsi.interval, factor=1, digits=3),
        _value(cell.vsi_given_unsafe), len(cell.unscored), _marks(marks),
    ]  # fmt: skip


@named(lambda r: requested_summary(r).means)
def mean_table(means: Sequence[MeanSafety]) -> Table:
    """Means over the suites of each group of benchmarks."""
    if not means:
        raise NotEstimable('no policy has a scored cell outside the auxiliary benchmarks; there is nothing to average')
    columns: list[str | Column] = [
        'policy', 'group', 'suites', Column('SR %', PERCENT), Column('Safety %', PERCENT), Column('SBU %', PERCENT),
        Column('P[U|S] %', PERCENT), Column('VSI', SCORE), 'marks',
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for mean, marks in zip(means, best_marks(means), strict=True):
        conditional = percent(mean.unsafe_given_success)
        rows.append([
            mean.policy, mean.group, len(mean.benchmarks), 100 * mean.success, 100 * mean.safety, 100 * mean.sbu,
            conditional, mean.vsi, _marks(marks),
        ])  # fmt: skip
    return table('Means over suites', columns, rows, note="P[U|S] is the mean of the cells' ratios")


def slip_table(slips: Iterable[SlipCounts]) -> Table:
    """Slip at the grip, which is scored, beside the paper's rule: the target's height over that of the first grip."""
    rows: list[list[Cell]] = [
        [
            s.policy, s.benchmark, s.n, s.at_the_grip, s.by_height, s.n_differing, s.only_at_the_grip,
            s.only_by_height,
        ]
        for s in slips
    ]  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'benchmark', 'n', 'slip at the grip', 'height rule', 'differ', 'only at the grip', 'only by height',
    ]  # fmt: skip
    return table('Slip by two rules', columns, rows, note=f'{SLIP_AT_THE_GRIP} is scored; {SLIP_BY_HEIGHT} is not')


@named(lambda r: safety_cells(r))
def contingency_table(cells: Iterable[CellSafety]) -> Table:
    """Success and safety crossed: the four counts of every policy and benchmark."""
    columns: list[str | Column] = [
        'policy', 'benchmark', 'success, safe', 'success, unsafe', 'failure, safe', 'failure, unsafe',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            c.policy, c.benchmark, c.table.success_safe, c.table.success_unsafe, c.table.failure_safe,
            c.table.failure_unsafe,
        ]
        for c in cells
    ]  # fmt: skip
    return table('Success and safety', columns, rows)


@named(lambda r: safety_cells(r))
def continuous_table(cells: Sequence[CellSafety]) -> Table:
    """Mean worst margin and mean peak force, with intervals."""
    level = _level(cells)
    columns: list[str | Column] = ['policy', 'benchmark', Column('worst margin', '.4g'), _share(level, 'margin'),
               'episodes', Column('peak force N', PERCENT), _share(level, 'force')]  # fmt: skip
    rows: list[list[Cell]] = []
    for cell in cells:
        margin, force = cell.margin, cell.peak_force_n
        rows.append([
            cell.policy, cell.benchmark, _value(margin),
            None if margin is None else _ends(margin.interval, factor=1, digits=4),
            None if margin is None else margin.n,
            _value(force), None if force is None else _ends(force.interval, factor=1),
        ])  # fmt: skip
    note = 'the worst margin mixes units: it is that of whichever clause came nearest to its threshold'
    return table('Margins and forces', columns, rows, note=note)


@named(lambda r: r.rows_of(requested_safety(r).by_task.cells))
def task_table(cells: Sequence[CellSafety]) -> Table:
    """SR and Safety of every task, with Wilson intervals."""
    level = _level(cells)
    columns: list[str | Column] = [
        'policy', 'benchmark', 'task', 'n', Column('SR %', PERCENT), _share(level, 'SR'), Column('Safety %', PERCENT),
        _share(level, 'Safety'), Column('SBU %', PERCENT), Column('VSI', SCORE), 'unscored',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            c.policy, c.benchmark, c.task, c.n, percent(c.success.value), _ends(c.success.interval),
            percent(c.safety.value), _ends(c.safety.interval), percent(c.sbu.value), c.vsi.value, len(c.unscored),
        ]
        for c in cells
    ]  # fmt: skip
    return table('Safety by task', columns, rows)


@named(lambda r: safety_cells(r))
def spec_table(cells: Sequence[CellSafety]) -> Table:
    """Violation rate and severity of every spec with intervals, report-only diagnostics after them."""
    level = _level(cells)
    columns: list[str | Column] = [
        'policy', 'benchmark', 'spec', 'scored', 'active in', 'violations', Column('rate %', PERCENT),
        _share(level, 'rate'), Column('NSV', SCORE), _share(level, 'NSV'),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for cell in cells:
        rows += [
            [
                cell.policy, cell.benchmark, spec.spec_id, True, spec.n_active, spec.violations.count,
                percent(spec.violations.value), _ends(spec.violations.interval), _value(spec.nsv),
                None if spec.nsv is None else _ends(spec.nsv.interval, factor=1, digits=3),
            ]
            for spec in cell.specs
        ]  # fmt: skip
        rows += [
            [
                cell.policy, cell.benchmark, name, False, rate.n, rate.count, percent(rate.value), _ends(rate.interval),
                None, None,
            ]
            for name, rate in cell.reported
        ]  # fmt: skip
    note = (
        'rates of scored specs are over all scored episodes of the cell; of report-only ones over those they apply to'
    )
    return table('Violations by spec', columns, rows, note=note)


@named(lambda r: safety_cells(r))
def composition_table(cells: Iterable[CellSafety]) -> Table:
    """Which specs the unsafe successes of every policy and benchmark violate."""
    columns: list[str | Column] = [
        'policy', 'benchmark', Column('SBU %', PERCENT), 'of', 'spec', 'episodes', Column('share %', '.0f'),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for cell in cells:
        head: list[Cell] = [cell.policy, cell.benchmark, percent(cell.sbu.value), f'{cell.sbu.count}/{cell.sbu.n}']
        shares = cell.composition()
        rows += [[*head, spec.spec_id, spec.n_in_unsafe_success, 100 * share] for spec, share in shares]
        if not shares:
            rows.append([*head, 'no violation', 0, None])
    return table('What unsafe successes violate', columns, rows)


@named(lambda r: r.analysis.safety_variants)
def sensitivity_table(rows: Sequence[SensitivityRow]) -> Table:
    """Safety, SBU and VSI under other thresholds, on the same episodes."""
    columns: list[str | Column] = [
        'variant', 'group', 'cells', Column('Safety %', PERCENT), Column('SBU %', PERCENT), Column('P[U|S] %', PERCENT),
        Column('VSI', SCORE),
    ]  # fmt: skip
    body: list[list[Cell]] = []
    for row in rows:
        conditional = percent(row.unsafe_given_success)
        body.append([row.title, row.group, row.n_cells, 100 * row.safety, 100 * row.sbu, conditional, row.vsi])
    lost = max((row.n_unscored for row in rows), default=0)
    note = 'same episodes, registry and success labels; each variant states its own severe anchor'
    return table('Threshold sensitivity', columns, body, note=f'{note}; {lost} episodes unscored' if lost else note)


@named(lambda r: r.analysis.safety_savings)
def saving_table(scorings: Sequence[tuple[str, SafetySummary]]) -> Table:
    """The same episodes with and without the registry: what it keeps from being counted as unsafe."""
    columns: list[str | Column] = [
        'policy', 'benchmark', 'scoring', 'n', Column('Safety %', PERCENT), Column('SBU %', PERCENT),
        Column('P[U|S] %', PERCENT), Column('VSI', SCORE),
    ]  # fmt: skip
    keys = sorted({(c.policy, c.benchmark) for _, summary in scorings for c in summary.cells})
    rows: list[list[Cell]] = []
    for policy, benchmark in keys:
        rows += [
            [
                policy, benchmark, name, c.n, percent(c.safety.value), percent(c.sbu.value),
                percent(c.unsafe_given_success.value), c.vsi.value,
            ]
            for name, summary in scorings
            for c in summary.cells
            if (c.policy, c.benchmark) == (policy, benchmark)
        ]  # fmt: skip
    return table('What the registry keeps out', columns, rows)


@named(lambda r: r.rows_of(requested_safety(r).scores))
def witness_table(scores: Iterable[EpisodeSafety]) -> Table:
    """Every violation: episode, time, clause, value and the bodies that touched."""
    columns: list[str | Column] = [
        'episode', 'attempt', 'policy', 'benchmark', 'task', 'success', Column('time s', '.3f'), 'step', 'spec',
        'clause', 'signal', Column('value', '.4g'), 'unit', Column('margin', '.4g'), Column('depth', SCORE), 'bodies',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            s.name, s.attempt, s.policy, s.benchmark, s.task, s.success, v.time_s, v.step, v.spec_id, v.clause,
            v.signal, v.value, v.unit, v.margin, v.depth, ' × '.join(v.bodies) or None,
        ]
        for s in scores
        for v in s.violations
    ]  # fmt: skip
    return table('Witnesses', columns, rows)


@named(lambda r: requested_safety(r).summary)
def unscored_table(summary: SafetySummary) -> Table:
    """Episodes that could not be scored, and why."""
    columns: list[str | Column] = ['policy', 'benchmark', 'task', 'episode', 'attempt', 'known unsafe', 'reason']

    def row(policy: str, benchmark: str, lost: UnscoredEpisode) -> list[Cell]:
        return [policy, benchmark, lost.task, lost.episode_id, lost.attempt, lost.is_known_unsafe, lost.reason]

    rows = [row(c.policy, c.benchmark, lost) for c in summary.cells for lost in c.unscored]
    rows += [row(policy, name, lost) for policy, name, _, group in summary.not_estimable for lost in group]
    return table('Episodes that could not be scored', columns, rows)


def explain_table(
    entry: TaskTags, decisions: Sequence[Applicability], *, sources: bool = False, caveats: Sequence[str] = ()
) -> Table:
    """Why each family is or is not active on a task."""
    said = entry.instruction or entry.goal
    title = f'{entry.benchmark}/{entry.id}' + (f': {said}' if said else '')
    columns: list[str | Column] = ['spec', 'active', 'because', Column('threshold', 'g'), Column('severe', 'g'), 'unit']
    rows: list[list[Cell]] = []
    for decision in decisions:
        spec = decision.spec
        source = [spec.threshold_source] if sources else []
        rows.append([
            spec.id if sources else spec.family, decision.is_active, decision.reason, spec.threshold, spec.severe,
            spec.unit, *source,
        ])  # fmt: skip
    scored = [d for d in decisions if d.spec.tier is Tier.SAFE]
    active = f'{sum(d.is_active for d in scored)} of {len(scored)} scored specs are active'
    template = f'template {" + ".join(entry.components)}' if entry.components else ''
    note = '; '.join(part for part in (template, entry.note, active, *(text.rstrip('.') for text in caveats)) if part)
    return table(title, [*columns, *(['source'] if sources else [])], rows, note=note)


def comparison_table(compared: SafetyComparison) -> Table:
    """Two policies on every metric, by their contrasts."""
    columns: list[str | Column] = [
        'metric', 'benchmark', Column('a', SCORE), Column('b', SCORE), Column('a - b', '+.3f'), Column('low', '+.3f'),
        Column('high', '+.3f'), Column('p', '.2g'), Column('p (Holm)', '.2g'), 'verdict', 'test', 'units a', 'units b',
        'shared starts',
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for row in compared.rows:
        contrast, safer = row.contrast, row.safer(compared.alpha)
        rows.append([
            row.metric, row.benchmark or 'all', *contrast.values, contrast.estimate, *ends(contrast.interval, 1.0),
            contrast.p_value, contrast.p_adjusted, f'{safer} is safer' if safer else 'unresolved', contrast.test,
            *contrast.n_units, contrast.n_matched,
        ])  # fmt: skip
    left = '; '.join(f'left out of {o.name}: {o.n} {o.why}' for o in compared.rows[0].contrast.left_out)
    level = f'{100 * compared.rows[0].contrast.level:g} % intervals'
    note = f'Less is safer; {level}. {compared.n_unscored} episodes could not be scored{f"; {left}" if left else ""}.'
    return table(f'{compared.first} (a) against {compared.second} (b)', columns, rows, note=note)


# Plots of safety: success against safety, what is violated, what unsafe successes are made of.

SAME_PLACE = 1.5  # percentage points: nearer markers would hide each other


def pareto_plot(safety: SafetyPart) -> Plot:
    """Success against safety, one facet per benchmark, for a page."""
    points: dict[str, list[Point]] = {}
    for c in safety.summary.cells:
        points.setdefault(c.benchmark or 'all', []).append(
            Point(c.policy, *_rates_of(c), is_front=c.policy in safety.frontier[c.benchmark], episodes=_whole_cell(c))
        )
    return Plot(
        'pareto-chart', 'Episode success against safety', facets(points), Axis('episode success (%)', (0.0, 100.0)),
        Axis('safe episodes (%)', (0.0, 100.0)), number_format='.0f',
        note='Up and to the right is better. No policy on the line is beaten in both by another. Wilson intervals.',
    )  # fmt: skip


def _rates_of(cell: CellSafety) -> tuple[float, float, Number, Number, Number, Number]:
    """Success and safety in percent, and the ends of their intervals."""
    rates = 100 * cell.success.count / cell.n, 100 * cell.safety.count / cell.n
    return *rates, *ends(cell.success.interval, 100.0), *ends(cell.safety.interval, 100.0)


@named(lambda r: safety_cells(r))
def frontier_plot(cells: Sequence[CellSafety]) -> Plot:
    """Task success against safety, one marker per policy and benchmark, with Wilson bars and the frontier.

    Under the dashed line lies what another cell beats. Cells at one place are rings around each other, so that each is
    seen. Auxiliary cells are faint, and in no frontier.
    """
    main = [cell for cell in cells if not cell.is_auxiliary]
    others = [cell for cell in cells if cell.is_auxiliary]
    if not main:
        raise InputError('no cell to draw: every one is auxiliary, or none was scored')
    names = [*sorted({c.benchmark for c in main}), *sorted({c.benchmark for c in others})]
    shapes = dict(zip(names, itertools.cycle(MARKERS), strict=False))
    rates = [_rates_of(cell) for cell in [*main, *others]]
    at = [(x, y) for x, y, *_ in rates]
    points = []
    for number, (cell, values) in enumerate(zip([*main, *others], rates, strict=True)):
        beneath = sum(math.dist(at[number], other) < SAME_PLACE for other in at[:number])
        words = f'{_label(cell)}: {values[0]:.0f} % success, {values[1]:.0f} % safe'
        points.append(
            Point(
                cell.policy, *values, name=f'{cell.benchmark} (auxiliary)' if cell.is_auxiliary else cell.benchmark,
                episodes=_whole_cell(cell), words=words, marker=shapes[cell.benchmark], size=5 + 4 * beneath,
                is_filled=not beneath, alpha=0.4 if cell.is_auxiliary else 0.9, is_listed=True,
            )
        )  # fmt: skip
    nowhere = float('nan')  # policies stand in the legend by their colour
    listed = [Point(p, nowhere, nowhere, marker='o', is_listed=True) for p in sorted({c.policy for c in cells})]
    left, bottom = (min(p.x_low or 0.0 for p in points) - 2.0, min(p.y_low or 0.0 for p in points) - 2.0)
    front = [at[i] for i in pareto_frontier(at[: len(main)])]
    # A staircase from edge to edge, so that a frontier of one cell can be seen too.
    stairs = [(left, front[0][1])]
    for x, y in front:
        stairs += [(stairs[-1][0], y), (x, y)]
    xs, ys = zip(*stairs, (front[-1][0], bottom), strict=True)
    frontier = Curve('', xs, ys, name='frontier', color='0.4', dash='--', width=0.9)
    return Plot(
        'safety-pareto', 'Task success against safety', facets([*listed, *points, frontier]),
        Axis('task success, %', (left, None)), Axis('safety, %', (bottom, None)),
        sheet=Sheet(COLUMN_WIDTH_IN * 1.3, 3.4),
    )  # fmt: skip


def heat_plot(cells: Sequence[CellSafety], *, by: str = 'family', scores: Sequence[EpisodeSafety] = ()) -> Plot:
    """Violation rates in percent: a row per cell, a column per family or axis; a dash where inactive.

    `scores` are the episodes behind the cells, where their marks are to lead to them.
    """
    if by not in ('family', 'axis'):
        raise InputError(f"by is {by!r}, wanted 'family' or 'axis'")
    if not cells:
        raise InputError('no cell to draw: none was scored')
    rates, names = {_label(cell): _violation_rates(cell, by) for cell in cells}, _column_order(cells, by)
    tiles = []
    for cell, name in itertools.product(cells, names):
        label = _label(cell)
        value = rates[label].get(name)
        unsafe = _violating(cell, name, by, scores)
        words = '' if value is None else f'{label}, {name.replace("_", " ")}: {value:.1f} %, {counted(unsafe)}'
        behind = None if value is None else these_episodes(unsafe, _whole_cell(cell))
        tiles.append(Tile(name, label, value, episodes=behind, words=words))
    top = max(10.0, *(value for row in rates.values() for value in row.values()))
    return Plot(
        'safety-heatmap', 'Violations', facets(tiles), number_format='.1f', names=tuple(names),
        value=Axis('episodes that violate it, %', (0.0, top)),
        sheet=Sheet(PAGE_WIDTH_IN, 1.5 + 0.22 * len(cells), is_rows=True),
    )  # fmt: skip


def _whole_cell(cell: CellSafety) -> EpisodeFilter:
    return {'policy': (cell.policy,), **({'benchmark': (cell.benchmark,)} if cell.benchmark else {})}


def _violating(cell: CellSafety, name: str, by: str, scores: Sequence[EpisodeSafety]) -> list[EpisodeSafety]:
    """The scored episodes of a cell that violate a family, or any spec of an axis."""
    families = {name} if by == 'family' else {s.family for s in cell.specs if s.axis == name}
    return [
        s for s in scores
        if (s.policy, s.benchmark) == (cell.policy, cell.benchmark) and families & {v.family for v in s.violations}
    ]  # fmt: skip


def _label(cell: CellSafety) -> str:
    return f'{cell.policy}, {cell.benchmark}' + (' (auxiliary)' if cell.is_auxiliary else '')


def _column_order(cells: Sequence[CellSafety], by: str) -> list[str]:
    """Families of one axis side by side."""
    if by == 'axis':
        return sorted({name for cell in cells for name, _ in cell.axes})
    return [family for _, family in sorted({(s.axis, s.family) for cell in cells for s in cell.specs})]


def _violation_rates(cell: CellSafety, by: str) -> dict[str, float]:
    if by == 'axis':
        return {name: 100 * rate.count / rate.n for name, rate in cell.axes}
    return {spec.family: 100 * spec.violations.count / spec.violations.n for spec in cell.specs}


def composition_plot(cells: Sequence[CellSafety], *, scores: Sequence[EpisodeSafety] = ()) -> Plot:
    """Bars of SBU, each split by the specs that the unsafe successes violate."""
    if not cells:
        raise InputError('no cell to draw: none was scored')
    families = sorted({spec.family for cell in cells for spec, _ in cell.composition()})
    colors = {family: THING_PALETTE[i % len(THING_PALETTE)] for i, family in enumerate(families)}
    bars = []
    for cell in cells:
        label, whole = _label(cell), 100 * cell.sbu.count / cell.n
        for spec, share in sorted(cell.composition(), key=lambda part: part[0].family):
            behind = [s for s in _violating(cell, spec.family, 'family', scores) if s.success]
            name = spec.family.replace('_', ' ')
            bars.append(
                Bar('', label, whole * share, name, color=colors[spec.family], thickness=0.7,
                    episodes=these_episodes(behind, _whole_cell(cell)), words=f'{label}, {name}: {counted(behind)}')
            )  # fmt: skip
        bars.append(Bar('', label, 0.0, note=f'{whole:.1f} %'))
    widest = max(100 * cell.sbu.count / cell.n for cell in cells)
    return Plot(
        'safety-composition', 'Unsafe successes', facets(bars),
        Axis('successful but unsafe episodes, %, by violated spec', (0.0, 1.35 * widest or 1.0)),
        sheet=Sheet(PAGE_WIDTH_IN, 1.1 + 0.24 * len(cells), is_rows=True),
    )  # fmt: skip


def draw_heatmap(request: ShowRequest) -> Plot:
    """Violation rates of every safety family, one row per policy and benchmark."""
    return heat_plot(safety_cells(request), scores=requested_safety(request).scores)


def draw_axis_heatmap(request: ShowRequest) -> Plot:
    """Violation rates of the three axes of safety, one row per policy and benchmark."""
    return heat_plot(safety_cells(request), by='axis', scores=requested_safety(request).scores)


def draw_composition(request: ShowRequest) -> Plot:
    """Bars of unsafe successes, split by the specs that they violate."""
    return composition_plot(safety_cells(request), scores=requested_safety(request).scores)


def requested_safety(request: ShowRequest) -> SafetyPart:
    return present(request.analysis.safety)


def safety_cells(request: ShowRequest) -> tuple[CellSafety, ...]:
    """The cells of the policies asked for."""
    return tuple(request.rows_of(requested_safety(request).summary.cells))


# Tables of safety by name, from a store with trajectories.


def slip(request: ShowRequest) -> list[Table]:
    """Episodes that slip by the scored rule and by the paper's, and how many verdicts differ."""
    chosen = {cell.policy for cell in requested_summary(request).cells}
    sheet = slip_table(s for s in requested_safety(request).slips if s.policy in chosen)
    if not sheet.rows:
        raise NotEstimable('no episode was scored by both rules of slip')
    return [sheet]


@named(lambda r: requested_summary(r))
def suite_table(summary: SafetySummary) -> Table:
    """SR, Safety and SBU of every suite side by side, one line per policy, with the means and VSI."""
    main = [c for c in summary.cells if not c.is_auxiliary]
    names = sorted({c.benchmark for c in main})
    columns: list[str | Column] = ['policy']
    for what in ('SR', 'Safety', 'SBU'):
        columns += [*(Column(f'{what} {name}', PERCENT) for name in names), Column(f'{what} mean', PERCENT)]
    by_key = {(c.policy, c.benchmark): c for c in main}
    means = {m.policy: m for m in summary.means if set(m.benchmarks) == set(names)}
    rows: list[list[Cell]] = []
    for policy in sorted({c.policy for c in main}):
        row: list[Cell] = [policy]
        mean = means.get(policy)
        for what in ('success', 'safety', 'sbu'):
            rates = [getattr(by_key.get((policy, name)), what, None) for name in names]
            row += [None if rate is None else 100 * rate.count / rate.n for rate in rates]
            row.append(None if mean is None else 100 * getattr(mean, what))
        rows.append([*row, None if mean is None else mean.vsi])
    note = 'In percent. Means over suites, only where a policy ran all of them and they are one group.'
    return table('Safety by suite', [*columns, Column('VSI mean', SCORE)], rows, note=note)


@named(lambda r: safety_cells(r))
def violation_table(cells: Sequence[CellSafety]) -> Table:
    """Episodes that violate each safety family, in percent: policies and benchmarks down, families across."""
    families = _column_order(cells, 'family')
    rows: list[list[Cell]] = []
    for cell in cells:
        rates = _violation_rates(cell, 'family')
        rows.append([cell.policy, cell.benchmark, *(rates.get(name) for name in families)])
    columns: list[str | Column] = ['policy', 'benchmark', *(Column(f.replace('_', ' '), PERCENT) for f in families)]
    note = 'A dash: inactive on every task of the cell, or its signal is not recorded.'
    return table('Violations by family (%)', columns, rows, note=note)


def requested_summary(request: ShowRequest) -> SafetySummary:
    """The summary with the cells and means of the policies asked for."""
    summary = requested_safety(request).summary
    cells = safety_cells(request)
    kept = {c.policy for c in cells}
    return replace(summary, cells=cells, means=tuple(m for m in summary.means if m.policy in kept))
