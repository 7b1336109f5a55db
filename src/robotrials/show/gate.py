"""The gate in words: a verdict line, a table of endpoints, a Markdown comment for a pull request, JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from robotrials.show.card import Card, brief, short_statement
from robotrials.show.markup import code_span, escape_markdown, one_line
from robotrials.show.phrase import joined, plural
from robotrials.show.table import JSON_STYLE, Table, TableFormat, render, table
from robotrials.show.terminal import terminal_width, wrap
from robotrials.verdict.analysis.contrast import contrast_values
from robotrials.verdict.analysis.gate import Finding, GateEndpoint, GateResult, GateVerdict
from robotrials.verdict.planning import MoreEpisodes

PLAN_DIGITS = 12
MOST_NAMES = 8


def headline(gate: GateResult) -> str:
    """The verdict in one sentence."""
    who = f'{gate.candidate.policy} is {{}} than the baseline{_baseline_name(gate)}'
    if gate.verdict is GateVerdict.PASS:
        return f'PASS: {who.format("no worse")} on {joined([e.name for e in gate.required])}.'
    if gate.verdict is GateVerdict.FAIL:
        worse = [e for e in gate.required if e.finding is Finding.WORSE]
        return f'FAIL: {who.format("worse")} on {joined([e.name for e in worse])}.'
    absent = [e for e in gate.required if e.finding is Finding.MISSING]
    if absent:
        return f'NOT SHOWN: {joined([e.name for e in absent])} cannot be judged ({absent[0].note}).'
    short = joined([e.name for e in gate.required if e.finding is Finding.SHORT])
    return f'NOT SHOWN: {more_sentence(gate.more)} on {short}.'


def more_sentence(more: MoreEpisodes | None) -> str:
    """How many more, of whom."""
    if more is None:
        return 'not enough episodes, and no number that could be run would do'
    if more.reference == 0:
        return f'not enough episodes: {more.new} more of the candidate needed'
    if more.new == more.reference:
        return f'not enough episodes: {more.new} more of each needed'
    return f'not enough episodes: {more.new} more of the candidate and {more.reference} more of the baseline needed'


def _baseline_name(gate: GateResult) -> str:
    return '' if gate.baseline.policy == gate.candidate.policy else f' {gate.baseline.policy}'


def endpoint_table(gate: GateResult) -> Table:
    """One row per endpoint: both sides, the difference, the bound that decides, the limit it must clear."""
    columns = ['endpoint', 'candidate', 'baseline', 'difference', 'bound', 'limit', 'finding']
    return table('', columns, [_row(e) for e in gate.endpoints])


def _row(endpoint: GateEndpoint) -> list[str | None]:
    name = f'{endpoint.name}: {endpoint.measure}'
    finding = finding_text(endpoint)
    if endpoint.estimate is None or endpoint.new is None or endpoint.reference is None:
        return [name, None, None, None, None, change_text(endpoint, endpoint.limit), finding]
    sides = [
        f'{value:.1f} s' if endpoint.is_ratio else f'{100 * value:.1f} %'
        for value in (endpoint.new, endpoint.reference)
    ]
    return [
        name, *sides, change_text(endpoint, endpoint.estimate), change_text(endpoint, endpoint.bound),
        change_text(endpoint, endpoint.limit), finding,
    ]  # fmt: skip


def finding_text(endpoint: GateEndpoint) -> str:
    """The finding, with what qualifies it."""
    text = str(endpoint.finding)
    if endpoint.finding is Finding.NO_WORSE and _is_behind(endpoint):
        text += ' by the margin, though behind'
    if endpoint.finding is Finding.WORSE:
        text += f' by at least {_at_least(endpoint)}' if _is_behind(endpoint) else ', by an uncertain amount'
    if endpoint.finding is Finding.SHORT:
        text = more_sentence(endpoint.more)
    return text if endpoint.is_required else f'{text} (not required)'


def _at_least(endpoint: GateEndpoint) -> str:
    """The near end of what an endpoint is worse by."""
    if endpoint.is_ratio:
        return f'{100 * ((endpoint.low or 1.0) - 1):.1f} %'
    return f'{-100 * (endpoint.high or 0.0):.1f} points'


def _is_behind(endpoint: GateEndpoint) -> bool:
    """Shown to be behind the baseline, although by less than the margin."""
    if endpoint.low is None or endpoint.high is None:
        return False
    return endpoint.low > 1 if endpoint.is_ratio else endpoint.high < 0


def change_text(endpoint: GateEndpoint, value: float | None) -> str | None:
    """A difference in points, or a ratio as a share: +3.0 points, -10.0 %."""
    if value is None:
        return None
    if endpoint.is_ratio:
        return '∞' if value == float('inf') else f'{100 * (value - 1):+.1f} %'
    return f'{100 * value:+.1f} points'


def remarks(gate: GateResult) -> list[str]:
    """What a reader has to know beside the table, a sentence each."""
    shared = f'{gate.n_matched} shared starts paired, the others independent' if gate.n_matched else 'independent'
    kind = 'paired by start state' if gate.is_paired else shared
    cells = 'one cell' if len(gate.cells) == 1 else f'{len(gate.cells)} cells that count equally'
    starts = ''
    if gate.n_starts != (gate.candidate.n_compared, gate.baseline.n_compared):
        starts = f' from {gate.n_starts[0]:,} and {gate.n_starts[1]:,} start states, which are the units'
    lines = [
        f'Compared: {plural(gate.candidate.n_compared, "episode")} of the candidate and {gate.baseline.n_compared:,} '
        f'of the baseline{starts}, {kind}, in {cells} ({_named(gate.cells)}).',
        f'Bounds are one-sided at {100 * (1 - gate.alpha):g} %; every endpoint has to clear its limit, so none is '
        'corrected for the others.',
    ]
    lines += [f'Left out of {out.name}: {out.n} {out.why}.' for out in gate.left_out]
    for endpoint in gate.endpoints:
        if endpoint.note:
            what = 'missing: ' if endpoint.finding is Finding.MISSING else ''
            lines.append(f'{endpoint.name.capitalize()}: {what}{endpoint.note}.')
    if gate.more is not None:
        lines.append(
            f'More episodes are spread evenly over the cells, up to {gate.more.per_cell} per cell: each endpoint then '
            f'passes with {100 * gate.power:g} % chance, if the two policies are equal.'
        )
    return [*lines, *gate.notes]


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return '; '.join(names[:MOST_NAMES]) + (f'; and {rest} more' if rest > 0 else '')


def origins(gate: GateResult) -> list[str]:
    """Where each side comes from: store, policy, plan."""
    return [
        f'{who}: {arm.policy} in {arm.store}, '
        + (f'plan {arm.plan_hash[:PLAN_DIGITS]}' if arm.plan_hash else f'no plan, store {arm.store_id[:PLAN_DIGITS]}')
        for who, arm in (('candidate', gate.candidate), ('baseline', gate.baseline))
    ]


def gate_comment(gate: GateResult, *, command: str = '') -> str:
    """A short Markdown comment for a pull request."""
    lines = [
        f'**robotrials gate: {escape_markdown(headline(gate))}**',
        '',
        render(endpoint_table(gate), TableFormat.MARKDOWN).rstrip(),
        '',
    ]
    lines += [f'- {escape_markdown(line)}' for line in (gate.statement, *remarks(gate))]
    lines += [f'- {escape_markdown(line[0].upper() + line[1:])}.' for line in origins(gate)]
    if command:
        lines.append(f'- Reproduce: {code_span(command)}')
    return '\n'.join(lines) + '\n'


def gate_card(gate: GateResult) -> Card:
    """The verdict, and of every endpoint both sides, the bound and the limit that it must clear."""
    rows = []
    for endpoint in gate.endpoints:
        _, new, old, difference, bound, limit, finding = _row(endpoint)
        if new is None:
            rows.append((endpoint.name, brief(f'{finding}; {endpoint.note}' if endpoint.note else str(finding))))
        else:
            numbers = f'{new} against {old}, {difference}; bound {bound or "not known"}, limit {limit}'
            rows.append((endpoint.name, f'{finding}\n{numbers}'))
    kind = 'paired by start state' if gate.is_paired else 'independent'
    change = ''
    if gate.more is not None:
        change = (
            f'{more_words(gate.more)} (each endpoint then passes with {100 * gate.power:g} % chance if both are equal).'
        )
    return Card(
        title=f'{gate.candidate.policy} against the baseline{_baseline_name(gate)}',
        scope=f'{gate.candidate.n_compared:,} and {plural(gate.baseline.n_compared, "episode")}, {kind}',
        verdict=(headline(gate),), rows=tuple(rows), change=change, notes=(short_statement(gate.statement),),
    )  # fmt: skip


def more_words(more: MoreEpisodes) -> str:
    """`527 more of the candidate and 530 more of the baseline`."""
    if more.reference == 0:
        return f'{more.new} more episodes of the candidate'
    if more.new == more.reference:
        return f'{more.new} more episodes of each'
    return f'{more.new} more episodes of the candidate and {more.reference} of the baseline'


def gate_text(gate: GateResult, *, command: str = '') -> str:
    """The same for a terminal: the card, the table, and what a reader has to know beside them."""
    width = terminal_width()
    lines = [gate_card(gate).text(), render(endpoint_table(gate)).rstrip(), '']
    said = [gate.statement, *remarks(gate), *(f'{line[0].upper()}{line[1:]}.' for line in origins(gate))]
    lines += [text for line in said for text in wrap(one_line(line), width, then='  ')]
    return '\n'.join([*lines, *([f'Reproduce: {command}'] if command else [])]) + '\n'


def gate_json(gate: GateResult, *, command: str = '') -> str:
    """The verdict and all its numbers in full precision; an infinite bound is 'inf'."""
    more = gate.more
    document = {
        'verdict': str(gate.verdict),
        'exit_code': gate.exit_code,
        'headline': headline(gate),
        'analysis': gate.statement,
        'more_episodes': None if more is None else {**dataclasses.asdict(more), 'total': more.total},
        'endpoints': [_endpoint_values(e) for e in gate.endpoints],
        'candidate': dataclasses.asdict(gate.candidate),
        'baseline': dataclasses.asdict(gate.baseline),
        'cells': gate.cells,
        'left_out': [dataclasses.asdict(out) for out in gate.left_out],
        'is_paired': gate.is_paired,
        'n_matched': gate.n_matched,
        'n_starts': gate.n_starts,
        'alpha': gate.alpha,
        'alpha_worse': gate.alpha_worse,
        'power': gate.power,
        'notes': gate.notes,
        'command': command or None,
    }
    return json.dumps(document, **JSON_STYLE) + '\n'


def _endpoint_values(endpoint: GateEndpoint) -> dict[str, object]:
    fields = [f.name for f in dataclasses.fields(endpoint) if f.name not in ('contrast', 'more')]
    values: dict[str, object] = {name: getattr(endpoint, name) for name in fields} | {
        'limit': endpoint.limit, 'finding': str(endpoint.finding), 'p_value': endpoint.p_value,
        'more': None if endpoint.more is None else dataclasses.asdict(endpoint.more),
        'contrast': None if endpoint.contrast is None else contrast_values(endpoint.contrast),
    }  # fmt: skip
    return {k: 'inf' if v == float('inf') else v for k, v in values.items()}
