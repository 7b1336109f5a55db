"""Before and after as tables and as a document."""

from __future__ import annotations

from collections.abc import Mapping

from robotrials import __version__
from robotrials.show.document import (
    Block,
    Document,
    Missing,
    Paragraph,
    Passage,
    Section,
    Words,
    paragraph,
    table_block,
    used_definitions,
)
from robotrials.show.phrase import capital, ends, glossary, listed, number, only_text, plural, policy_name
from robotrials.show.plot import Axis, GuideLine, Layer, Plot, Point, facets, policy_colors
from robotrials.show.plot_page import paint_page
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis.change import SMALLER_IS_BETTER, PolicyChange, Shift, StoreChange

# Metric -> its name, its unit, by what it is multiplied for people, its format, its definition.
SHOWN: dict[str, tuple[str, str, float, str, str]] = {
    'success': ('episode success', ' points', 100.0, '.1f', 'success'),
    'faster': ('done first', ' points', 100.0, '.1f', 'win'),
    'rmst_s': ('RMST', ' s', 1.0, '.2f', 'rmst'),
    'lost': ('items lost', ' items', 1.0, '.2f', 'win'),
    'hard_failure': ('hard failure', ' points', 100.0, '.1f', 'hard-failure'),
    'safety': ('safe episodes', ' points', 100.0, '.1f', 'safety'),
    'sbu': ('unsafe successes', ' points', 100.0, '.1f', 'sbu'),
    'vsi': ('violation severity', '', 1.0, '.3f', 'vsi'),
}
LEVEL_UNITS = {
    'success': '%', 'faster': '%', 'rmst_s': 's', 'lost': '', 'hard_failure': '%', 'safety': '%', 'sbu': '%', 'vsi': '',
}  # fmt: skip
WORKS = ('kaplan-meier', 'royston', 'holm')
COLUMN_DEFINITIONS = {'low': 'interval', 'high': 'interval', 'p (Holm)': 'holm', 'stratum': 'stratum', 'n': 'episode'}
FOLDED_ROWS = 24
CHARTED = ('success', 'rmst_s', 'safety')


def change_table(change: StoreChange) -> Table:
    """Means over the shared cells: before, after, and the change with its interval."""
    tested = sum(s.p_holm is not None for s in change.means)
    note = (
        f'Change is after minus before; intervals at {100 * (1 - change.alpha):g} %. Cells that both stores have count '
        f'equally. The {tested} claims (success, pace, lost items, safety) are corrected together; other rows are no '
        'claims.'
    )
    return table(
        'What changed', ['policy', *_columns()], [[s.policy, *_row(s, change)] for s in change.means], note=note
    )


def stratum_change_table(change: StoreChange) -> Table:
    """The same in each cell, corrected over all of them."""
    tested = sum(s.p_holm is not None for s in change.cells)
    note = f'The {tested} claims are corrected together.'
    rows = [[s.policy, s.cell, *_row(s, change)] for s in change.cells]
    return table('What changed in each stratum', ['policy', 'stratum', *_columns()], rows, note=note)


def _columns() -> list[str | Column]:
    return [
        'metric', 'verdict', Column('before', '.4g'), Column('after', '.4g'), Column('change', '+.3g'),
        Column('low', '+.3g'), Column('high', '+.3g'), Column('p (Holm)', '.2g'), Column('p', '.2g'), 'n before',
        'n after',
    ]  # fmt: skip


def _row(shift: Shift, change: StoreChange) -> list[Cell]:
    name, _, scale, _, _ = SHOWN[shift.metric]
    unit = LEVEL_UNITS[shift.metric]
    values = [None if v is None else scale * v for v in (shift.before, shift.after, shift.difference)]
    return [
        f'{name} ({unit})' if unit else name, verdict(shift, change.alpha), *values, *ends(shift.interval, scale),
        shift.p_holm, shift.p_value, shift.n_before, shift.n_after,
    ]  # fmt: skip


def verdict(shift: Shift, alpha: float) -> str:
    """Improved, worse, or unresolved; no test has been made of what has no p-value."""
    if shift.difference is None:
        return shift.note or 'not estimable'
    if shift.p_holm is None:
        return 'size of the change in pace' if shift.metric == 'rmst_s' else 'no claim'
    if not shift.is_resolved(alpha):
        return 'unresolved'
    return 'improved' if shift.is_improvement else 'worse'


def scope_table(change: StoreChange) -> Table:
    """Who was compared, on how much, and how."""
    rows: list[list[Cell]] = [
        [p.policy, p.policy_before, len(p.cell_names), p.n_before, p.n_after, p.n_invalid[0], p.n_invalid[1],
         p.design, _tau_text(p)]
        for p in change.policies
    ]  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'name before', 'cells', 'n before', 'n after', 'invalid before', 'invalid after', 'arms',
        'tau',
    ]  # fmt: skip
    return table('What was compared', columns, rows)


def _tau_text(policy: PolicyChange) -> str:
    taus = sorted(set(policy.taus_s.values()))
    if not taus:
        return ''
    return f'{taus[0]:g} s' if len(taus) == 1 else f'{taus[0]:g} s to {taus[-1]:g} s by cell'


def presence_table(change: StoreChange) -> Table:
    """Policies, strata and conditions that only one of the stores has."""
    rows: list[list[Cell]] = []
    for kind, names in (('appeared', change.appeared), ('disappeared', change.disappeared)):
        for field, singular in (('policies', 'policy'), ('strata', 'stratum'), ('conditions', 'condition')):
            rows += [[kind, singular, name] for name in getattr(names, field)]
    return table('What appeared and disappeared', ['', 'kind', 'name'], rows)


def change_tables(change: StoreChange) -> list[Table]:
    """All tables, for the terminal."""
    tables = [change_table(change), stratum_change_table(change), scope_table(change), presence_table(change)]
    return [sheet for sheet in tables if sheet.rows]


def change_document(change: StoreChange) -> Document:
    """The comparison of two stores in the form of a report."""
    colors = policy_colors(p.policy for p in change.policies)
    sections = (
        _change_section(change, colors),
        _stratum_section(change),
        _scope_section(change),
        _method_section(change),
    )
    lead = change_lead(change)
    known = glossary()
    blocks = [*lead, *(b for s in sections for b in s.blocks)]
    definitions = known.of(used_definitions(blocks))
    return Document(
        title='Before and after', subtitle=f'{change.before} → {change.after}{only_text(change.selection)}',
        lead=lead, sections=sections,
        glossary=definitions, references=known.cited(definitions.values(), also=WORKS), colors=colors,
        source=change.after, selection=change.selection,
        statement=change.statement, footer=f'robotrials {__version__}. {change.statement}',
    )  # fmt: skip


def change_lead(change: StoreChange) -> tuple[Paragraph, ...]:
    """What is beyond chance, what is not, and what cannot be said: three sentences."""
    better = [s for s in change.resolved if s.is_improvement]
    worse = [s for s in change.resolved if not s.is_improvement]
    n = sum(p.n_before + p.n_after for p in change.policies)
    head: list[Words] = [
        Words(f'{plural(len(change.policies), "policy")} compared on '),
        Words(plural(n, 'valid episode'), 'episode', None, n), Words(': '),
    ]  # fmt: skip
    if not change.resolved:
        return (paragraph(*head, 'nothing changed beyond chance.'), *_unresolved(change), *_limits(change))
    pieces: list[Words] = []
    for word, shifts in (('worse', worse), ('improved', better)):
        if shifts:
            pieces += [Words('; ') if pieces else Words(''), Words(f'{word}: '), *listed([_mention(s) for s in shifts])]
    return (paragraph(*head, *pieces, '.'), *_unresolved(change), *_limits(change))


def _mention(shift: Shift) -> Words:
    name, unit, scale, form, definition = SHOWN[shift.metric]
    gap = scale * (shift.difference or 0.0)
    ends = [f'{scale * end:+{form}}' for end in shift.interval or ()]
    span = f' [{", ".join(ends)}]' if ends else ''
    text = f'{shift.policy} on {name} ({gap:+{form}}{unit}{span})'
    return Words(text, definition, {'policy': (shift.policy,)}, gap)


def _unresolved(change: StoreChange) -> list[Paragraph]:
    """The widest thing that cannot be excluded: how far success may have moved where it is unresolved."""
    open_ = [
        s for s in change.means
        if s.metric == 'success' and s.p_holm is not None and not s.is_resolved(change.alpha) and s.interval is not None
    ]  # fmt: skip
    if not open_:
        return []
    widest = max(open_, key=lambda s: s.interval.width if s.interval else 0.0)
    assert widest.interval is not None
    low, high = (number(100 * end, '+.1f', 'interval') for end in widest.interval)
    return [
        paragraph(
            'Unresolved is not unchanged: the ', Words('episode success', 'success'), ' of ',
            policy_name(widest.policy),
            ' may have moved by anything from ', low, ' to ', high, ' points.',
        )
    ]  # fmt: skip


def _limits(change: StoreChange) -> list[Paragraph]:
    gone = sum(out.n for p in change.policies for out in p.left_out)
    parts = []
    if gone:
        parts.append(f'{plural(gone, "episode")} {"is" if gone == 1 else "are"} left out, as the scope says')
    if change.incomparable:
        parts.append(f'{", ".join(change.incomparable)} cannot be compared')
    absent = sorted({p.no_safety for p in change.policies if p.no_safety})
    if absent:
        parts.append(f'safety cannot be compared ({absent[0]})')
    caveats = dict.fromkeys(text for p in change.policies for text in p.safety_caveats)
    return [*([paragraph(capital('; '.join(parts)) + '.')] if parts else []), *map(paragraph, caveats)]


def change_plot(change: StoreChange, metric: str) -> Plot:
    """The change of one number of every policy, with its interval: in the mean over cells, and in each cell."""
    name, unit, scale, form, _ = SHOWN[metric]
    rows: dict[str, list[Layer]] = {}
    for shift in (*change.means, *change.cells):
        if shift.metric != metric or shift.difference is None:
            continue
        row = Point(shift.policy, scale * shift.difference, None, *ends(shift.interval, scale))
        rows.setdefault(shift.cell or 'all strata', [GuideLine(x=0.0)]).append(row)
    better = 'less is better' if metric in SMALLER_IS_BETTER else 'more is better'
    return Plot(
        f'change-{metric}', f'Change in {name}', facets(rows), Axis(f'after - before,{unit or " score"} ({better})'),
        number_format=f'+{form}',
    )  # fmt: skip


def _change_section(change: StoreChange, colors: Mapping[str, str]) -> Section:
    drawn = [m for m in CHARTED if any(s.metric == m and s.difference is not None for s in change.means)]
    blocks: list[Block] = [paint_page(change_plot(change, metric), colors) for metric in drawn]
    blocks.append(table_block('change-table', change_table(change), COLUMN_DEFINITIONS, stratum='stratum'))
    for policy in change.policies:
        if policy.no_safety:
            remedy = 'record trajectories in both, and name the tasks in a safety registry'
            blocks.append(Missing(f'Safety of {policy.policy}', policy.no_safety, remedy))
    blocks += [Missing(name, why) for name, why in change.incomparable.items()]
    return Section('change', 'What changed', tuple(blocks))


def _stratum_section(change: StoreChange) -> Section:
    sheet = stratum_change_table(change)
    is_long = len(sheet.rows) > FOLDED_ROWS
    block = table_block('strata-table', sheet, COLUMN_DEFINITIONS, stratum='stratum', is_folded=is_long)
    return Section('strata', 'In each stratum', (block,))


def _scope_section(change: StoreChange) -> Section:
    blocks: list[Block] = [table_block('scope-table', scope_table(change), COLUMN_DEFINITIONS, stratum='stratum')]
    for policy in change.policies:
        blocks += [paragraph(f'Left out of {out.name}: {out.n} {out.why}.') for out in policy.left_out]
    presence = presence_table(change)
    if presence.rows:
        blocks.append(table_block('presence-table', presence, COLUMN_DEFINITIONS, stratum='stratum'))
    else:
        blocks.append(paragraph('Both stores have the same policies, strata and conditions.'))
    return Section('scope', 'What was compared', tuple(blocks))


def _method_section(change: StoreChange) -> Section:
    text = (
        'Each policy was compared with itself on the cells (stratum and condition) that both stores hold, every cell '
        'with the same weight, by the same contrasts as policies of one store: rates by the test that the design '
        'allows, times by the probability to be done first, with the change of the restricted mean as its size. Hard '
        'failures are tested by the jackknife over units with an allowance for failures not yet seen. Holm corrects '
        f'over all policies and metrics, and separately over all strata. {change.statement}'
    )
    plans = [h[:12] or 'none' for h in change.plan_hashes]
    return Section(
        'methods', 'Methods', (Passage(text, '', 'Methods'), paragraph(f'Plans: {plans[0]} before, {plans[1]} after.'))
    )
