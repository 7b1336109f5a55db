"""A report's section on episode success: an endpoint of its own, with its own tests, letters and needed N."""

from __future__ import annotations

from robotrials.show import report_chart as charts
from robotrials.show.document import Block, ChartBlock, Paragraph, Words, paragraph
from robotrials.show.phrase import ends, listed, number, policy_name
from robotrials.show.report_block import of_policies, shown_order, table_block
from robotrials.show.report_pairs import endpoint_blocks
from robotrials.show.report_ranking import letters_of, pooled_count
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame
from robotrials.verdict.analysis.success import Rates
from robotrials.verdict.analysis.two_stories import TwoStories
from robotrials.verdict.planning.analysis_plan import EndpointName

SUCCESS_DEFINITIONS = {
    'letters': 'letters', 'episode success (%)': 'success', 'low': 'interval', 'high': 'interval',
    'successes': 'success', 'episodes': 'episode', 'units': 'unit',
}  # fmt: skip


def success_blocks(analysis: Analysis, frame: ComparisonFrame, rates: Rates, colors: charts.Colors) -> list[Block]:
    """The rates of every policy, then every pair; the pairs are left to another section where success is primary."""
    shown = success_table(analysis, frame, rates)
    filters = [of_policies(frame, policy) for policy in shown_order(analysis, frame)]
    letters = letters_of(analysis, EndpointName.SUCCESS)
    blocks: list[Block] = [
        ChartBlock(charts.success_chart(rates, frame, shown_order(analysis, frame), letters, colors)),
        table_block('success-table', shown, SUCCESS_DEFINITIONS, episodes=filters),
    ]
    if not isinstance(analysis.stories, Absent):
        blocks += story_paragraphs(analysis.stories, analysis)
    if EndpointName.SUCCESS not in analysis.primary:
        blocks += endpoint_blocks(analysis, frame, EndpointName.SUCCESS)
    return blocks


def success_table(analysis: Analysis, frame: ComparisonFrame, rates: Rates) -> Table:
    letters = letters_of(analysis, EndpointName.SUCCESS)
    rows: list[tuple[Cell, ...]] = []
    for policy in shown_order(analysis, frame):
        rate = rates.macro[policy]
        value = None if rate.value is None else 100 * rate.value
        rows.append((
            policy, letters.get(policy), value, *ends(rate.interval, 100.0), *pooled_count(rates, policy), rate.n
        ))  # fmt: skip
    columns: list[str | Column] = ['policy', 'letters', Column('episode success (%)', '.1f'), Column('low', '.1f')]
    columns += [Column('high', '.1f'), 'successes', 'episodes', 'units']
    level = f'{100 * analysis.plan.level:g} %'
    kind = (
        'Wilson'
        if len(frame.strata) == 1 and all(r.n == pooled_count(rates, p)[1] for p, r in rates.macro.items())
        else 'jackknife-t with an allowance for what was not seen'
    )
    note = f'The mean over strata of equal weight; {level} intervals: {kind}. Units are {analysis.plan.unit}s.'
    if letters:
        note += ' Policies sharing a letter are not significantly different.'
    return without_empty(table('Episode success', columns, rows, note=note))


def story_paragraphs(stories: TwoStories, analysis: Analysis) -> list[Paragraph]:
    """A warning where operations done by tau and episode success tell different stories; nothing where they agree."""
    if not stories.is_divided or isinstance(analysis.times, Absent):
        return []
    tau = analysis.times.tau_text
    told = []
    if stories.apart:
        pieces: list[Words] = [Words('Warning: operations done by tau and episode success tell different stories: ')]
        for place, policy in enumerate(stories.apart):
            pieces += [Words('; ') if place else Words(''), *_shares(policy, stories, tau)]
        told.append(paragraph(*pieces, '.'))
    if stories.reversed:
        pairs = [f'{a} is ahead of {b} by operations done by tau, and behind by episode success'
                 for a, b in stories.reversed[:3]]  # fmt: skip
        more = f'; and {len(stories.reversed) - 3} more pairs' if len(stories.reversed) > 3 else ''
        told.append(paragraph(f'Warning: the two orders disagree: {"; ".join(pairs)}{more}.'))
    return told


def _shares(policy: str, stories: TwoStories, tau: str) -> list[Words]:
    done, success = stories.done[policy], stories.success[policy]
    return [
        *listed([policy_name(policy)]), Words(' has '),
        number(None if done.value is None else 100 * done.value, '.0f', 'curve', unit=' %'),
        Words(f' of operations done by {tau} and '),
        number(None if success.value is None else 100 * success.value, '.0f', 'success', unit=' %'),
        Words(' of episodes successful'),
    ]  # fmt: skip
