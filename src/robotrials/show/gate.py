"""The gate in words: a verdict line, a table of endpoints, a Markdown comment for a pull request, JSON.

A document as Markdown for GitHub, or as a LaTeX article that compiles as it is.
"""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from robotrials.show.answer import Card, brief, short_statement
from robotrials.show.document import Block, Chart, Document, Missing, Paragraph, Passage, TableBlock, Words
from robotrials.show.phrase import html_ids, joined, list_command, plural
from robotrials.show.table import (
    CONTROL,
    JSON_STYLE,
    LATEX_SPECIAL,
    Column,
    Table,
    TableOutput,
    is_numeric,
    latex_line,
    render,
    table,
    table_cells,
    terminal_width,
    wrap,
)
from robotrials.verdict.analysis.contrast import contrast_values
from robotrials.verdict.analysis.gate import GateEndpoint, GateFinding, GateResult, GateVerdict
from robotrials.verdict.planning import MoreEpisodes

# A document as Markdown (GitHub's): what a comment, a wiki or a README can hold.

SPECIAL = re.compile(r'([\\`*_~]|^[#+-]|\](?=[(\[:]))')  # a bracket only where a link could follow


def render_markdown(document: Document) -> str:
    """The whole report: charts as their words and their tables, episodes as the command that lists them."""
    parts = [f'# {escape_markdown(document.title)}']
    if document.subtitle:
        parts.append(escape_markdown(document.subtitle))
    if document.statement:
        parts.append(f'*{escape_markdown(document.statement)}*')
    parts += ['## Verdict', *(_paragraph(p) for p in document.lead)]
    if document.cautions:
        parts.append('\n'.join(f'- **Note:** {escape_markdown(text)}' for text in document.cautions))
    for part in document.sections:
        parts += [f'## {escape_markdown(part.title)}', *(_block(b) for b in part.blocks)]
    parts += _episodes(document) + _glossary(document)
    if document.references:
        listed = [f'- **{escape_markdown(k)}** {escape_markdown(v)}' for k, v in document.references.items()]
        parts += ['## References', '\n'.join(listed)]
    if document.footer:
        parts += ['---', escape_markdown(document.footer)]
    return '\n\n'.join(parts) + '\n'


def one_line(text: str) -> str:
    """Text without line breaks and other control characters."""
    return CONTROL.sub(' ', text)


def code_span(text: str) -> str:
    """Code in running text, with more backticks around it than are in it."""
    fence = '`' * (1 + max((len(run) for run in re.findall('`+', text)), default=0))
    pad = ' ' if text.startswith('`') or text.endswith('`') else ''
    return f'{fence}{pad}{one_line(text)}{pad}{fence}'


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, one line."""
    plain = SPECIAL.sub(r'\\\1', one_line(text))
    return plain.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')


def _paragraph(block: Paragraph) -> str:
    return escape_markdown(block.text)


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return _paragraph(block)
        case TableBlock():
            if not block.is_folded:
                return _table(block.table)
            title = escape_markdown(block.table.title or block.key)
            return f'<details><summary>{title}</summary>\n\n{_table(replace(block.table, title=""))}\n\n</details>'
        case Chart():
            note = [escape_markdown(block.note)] if block.note else []
            head = f'### {escape_markdown(block.title)}'
            numbers = f'<details><summary>Numbers</summary>\n\n{_table(replace(block.table, title=""))}\n\n</details>'
            return '\n\n'.join([head, escape_markdown(block.alt), *note, numbers])
        case Missing():
            said = ' '.join(block.sentences)
            return f'> **{escape_markdown(block.heading)}** {escape_markdown(said)}'
        case Passage():
            label = [f'**{escape_markdown(block.label)}**'] if block.label else []
            if block.language:
                longest = max((len(run) for run in re.findall('`+', block.text)), default=0)
                fence = '`' * max(3, longest + 1)
                language = re.sub('[^A-Za-z0-9+-]', '', block.language)
                return '\n\n'.join([*label, f'{fence}{language}\n{block.text}\n{fence}'])
            quoted = '\n'.join(f'> {escape_markdown(line)}' for line in block.text.splitlines())
            return '\n\n'.join([*label, quoted])


def _table(sheet: Table) -> str:
    """As `table.render` prints it, with the words in its cells made safe."""
    rows = tuple(tuple(escape_markdown(v) if isinstance(v, str) else v for v in row) for row in sheet.rows)
    columns = tuple(Column(escape_markdown(c.name), c.number_format) for c in sheet.columns)
    safe = Table(escape_markdown(sheet.title), columns, rows, escape_markdown(sheet.note))
    return render(safe, TableOutput.MARKDOWN).rstrip('\n')


def _episodes(document: Document) -> list[str]:
    if document.episodes is None and not document.source:
        return []
    said = 'The episodes behind these numbers are listed by'
    if n := document.n_episodes:
        said = 'The one episode behind these numbers is listed by' if n == 1 else said.replace('The', f'The {n:,}', 1)
    return ['## Episodes', f'{said}\n\n```sh\n{list_command(document.source, document.selection)} --limit 0\n```']


def _glossary(document: Document) -> list[str]:
    if not document.glossary:
        return []
    lines = []
    for entry in document.glossary.values():
        formula = f' Formula: {escape_markdown(entry.formula)}.' if entry.formula else ''
        source = f' Source: {escape_markdown(entry.source)}.' if entry.source else ''
        lines.append(f'- **{escape_markdown(entry.title)}** {escape_markdown(entry.text)}{formula}{source}')
    return ['## Definitions', '\n'.join(lines)]


# A document as a LaTeX article that compiles as it is: booktabs for its tables, hyperref for its links.

LONG_ROWS = 30
WIDE_COLUMNS = 7
PREAMBLE = r"""\documentclass[11pt,a4paper]{article}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[utf8]{inputenc}
  \usepackage[T1]{fontenc}
  \usepackage{lmodern}
  \newcommand{\otherchar}[2]{{\ttfamily [U+#1]}}
\else
  \usepackage{fontspec}
  \newcommand{\otherchar}[2]{#2}
\fi
\usepackage[margin=2.2cm]{geometry}
\usepackage{amssymb,booktabs,longtable,graphicx,array}
\usepackage[hidelinks]{hyperref}
\setlength{\emergencystretch}{3em}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.6em}
\newsavebox{\widebox}
\newenvironment{fitted}{\begin{lrbox}{\widebox}}{\end{lrbox}%
  \ifdim\wd\widebox>\linewidth\resizebox{\linewidth}{!}{\usebox{\widebox}}\else\usebox{\widebox}\fi}
"""


def render_latex(document: Document) -> str:
    """The whole report as a standalone article: charts as their words and numbers, links to the definitions kept.

    Letters that pdfTeX's fonts lack are spelt as their code there, and printed as they are by LuaTeX and XeTeX.
    """
    names = [*document.keys, *(f'def:{k}' for k in document.glossary), *(f'ref:{k}' for k in document.references)]
    labels = {name: made.replace('_', '-') for name, made in html_ids(names).items()}
    parts = [PREAMBLE, rf'\title{{{latex_text(document.title)}}}', rf'\author{{{latex_text(document.subtitle)}}}',
             r'\date{}', r'\begin{document}', r'\maketitle']  # fmt: skip
    if document.statement:
        parts.append(rf'\noindent\textit{{{latex_text(document.statement)}}}')
    parts += [r'\section*{Verdict}', *(_latex_paragraph(p, labels) for p in document.lead)]
    if document.cautions:
        items = '\n'.join(rf'\item \textbf{{Note:}} {latex_text(text)}' for text in document.cautions)
        parts.append(f'\\begin{{itemize}}\n{items}\n\\end{{itemize}}')
    for part in document.sections:
        parts.append(rf'\section{{{latex_text(part.title)}}}\label{{{labels[part.key]}}}')
        parts += [_latex_block(b, labels) for b in part.blocks]
    parts += _latex_episodes(document) + _latex_glossary(document, labels) + _references(document, labels)
    if document.footer:
        parts.append(rf'\medskip\noindent{{\small {latex_text(document.footer)}}}')
    return '\n\n'.join([*parts, r'\end{document}']) + '\n'


def latex_text(text: str) -> str:
    """Text that prints as it is, whatever is in it."""
    composed = unicodedata.normalize('NFC', CONTROL.sub(' ', text))
    return ''.join(_character(ch) for ch in composed)


def _character(ch: str) -> str:
    if ch in LATEX_SPECIAL:
        return LATEX_SPECIAL[ch]
    # T1 fonts hold ASCII and the letters of Latin-1 and Latin Extended-A (but for a few).
    if ord(ch) < 0x80 or (0xC0 <= ord(ch) <= 0x17F and ch.isalpha() and ch not in 'ĦħĸŊŋŦŧſĿŀŉ'):
        return ch
    return rf'\otherchar{{{ord(ch):04X}}}{{{ch}}}'


def _latex_paragraph(block: Paragraph, labels: Mapping[str, str]) -> str:
    return ''.join(_piece(p, labels) for p in block.pieces)


def _piece(piece: Words, labels: Mapping[str, str]) -> str:
    said = latex_text(piece.text)
    return rf'\hyperlink{{{labels[f"def:{piece.definition}"]}}}{{{said}}}' if piece.definition else said


def _latex_block(block: Block, labels: Mapping[str, str]) -> str:
    match block:
        case Paragraph():
            return _latex_paragraph(block, labels)
        case TableBlock():
            links = {c: labels[f'def:{d}'] for c, d in block.definitions.items()}
            return _latex_table(block.table, label=labels[block.key], links=links)
        case Chart():
            return _latex_chart(block, labels[block.key])
        case Missing():
            said = ' '.join(block.sentences)
            return rf'\begin{{quote}}\textbf{{{latex_text(block.heading)}}} {latex_text(said)}\end{{quote}}'
        case Passage():
            head = rf'\textbf{{{latex_text(block.label)}}}' + '\n\n' if block.label else ''
            lines = [latex_text(line) for line in block.text.splitlines()]
            if not block.language:
                return rf'{head}\begin{{quote}}{" ".join(lines)}\end{{quote}}'
            spaced = [re.sub('^ +| {2,}', lambda run: '~' * len(run[0]), line) or '~' for line in lines]
            return head + r'{\ttfamily\small\raggedright ' + '\\\\\n'.join(f'{{}}{line}' for line in spaced) + r'\par}'


def _latex_table(sheet: Table, *, label: str, links: Mapping[str, str]) -> str:
    """A table fitted to the line; one of many rows breaks over pages instead."""
    spec = ''.join('r' if numeric else 'l' for numeric in is_numeric(sheet))
    caption = rf'\caption{{{latex_text(" ".join(filter(None, (sheet.title, sheet.note))))}}}\label{{{label}}}'
    body = [latex_line(row, escape=latex_text) for row in table_cells(sheet)]
    names = [
        rf'\hyperlink{{{links[c.name]}}}{{{latex_text(c.name)}}}' if c.name in links else latex_text(c.name)
        for c in sheet.columns
    ]
    heads = latex_line(names, escape=str)
    if len(sheet.rows) > LONG_ROWS:
        return _long_table(sheet, heads, body, caption)
    return '\n'.join(
        [r'\begin{table}[htbp]', r'\centering\small', caption, r'\begin{fitted}', rf'\begin{{tabular}}{{{spec}}}',
         r'\toprule', heads, r'\midrule', *body, r'\bottomrule', r'\end{tabular}', r'\end{fitted}', r'\end{table}']
    )  # fmt: skip


def _long_table(sheet: Table, heads: str, body: list[str], caption: str) -> str:
    """Columns share the line's width, so that long words wrap and nothing runs off the page."""
    numeric = is_numeric(sheet)
    units = [1 if n else 2 for n in numeric]
    size = r'\tiny' if len(units) > WIDE_COLUMNS else r'\footnotesize'
    spec = ''.join(
        rf'>{{\{"raggedleft" if n else "raggedright"}\arraybackslash\hspace{{0pt}}}}'
        rf'p{{\dimexpr {u / sum(units):.4f}\linewidth-2\tabcolsep\relax}}'
        for n, u in zip(numeric, units, strict=True)
    )
    return '\n'.join(
        [rf'{{{size}\setlength{{\tabcolsep}}{{3pt}}', rf'\begin{{longtable}}{{{spec}}}', caption + r' \\', r'\toprule',
         heads, r'\midrule', r'\endfirsthead', r'\toprule', heads, r'\midrule', r'\endhead', *body, r'\bottomrule',
         r'\end{longtable}}']
    )  # fmt: skip


def _latex_chart(chart: Chart, label: str) -> str:
    note = f' {latex_text(chart.note)}' if chart.note else ''
    head = rf'\paragraph{{{latex_text(chart.title)}.}} {latex_text(chart.alt)}{note}'
    return f'{head}\n\n{_latex_table(chart.table, label=label, links={})}' if chart.table.rows else head


def _latex_episodes(document: Document) -> list[str]:
    if document.episodes is None and not document.source:
        return []
    n = document.n_episodes
    said = f'The {n:,} episodes behind these numbers are' if n else 'The episodes behind these numbers are'
    said = 'The one episode behind these numbers is' if n == 1 else said
    command = latex_text(f'{list_command(document.source, document.selection)} --limit 0')
    return [r'\section*{Episodes}', rf'{said} listed by {{\ttfamily {command}}}.']


def _latex_glossary(document: Document, labels: Mapping[str, str]) -> list[str]:
    if not document.glossary:
        return []
    items = []
    for key, entry in document.glossary.items():
        formula = rf' Formula: {{\ttfamily {latex_text(entry.formula)}}}.' if entry.formula else ''
        source = ''
        if entry.source:
            known = labels.get(f'ref:{entry.source}')
            name = latex_text(entry.source)
            source = rf' Source: \hyperlink{{{known}}}{{{name}}}.' if known else f' Source: {name}.'
        anchor = rf'\hypertarget{{{labels[f"def:{key}"]}}}{{{latex_text(entry.title)}}}'
        items.append(rf'\item[{{{anchor}}}] {latex_text(entry.text)}{formula}{source}')
    return [r'\section*{Definitions}', '\n'.join([r'\begin{description}', *items, r'\end{description}'])]


def _references(document: Document, labels: Mapping[str, str]) -> list[str]:
    if not document.references:
        return []
    items = [
        rf'\item[{{\hypertarget{{{labels[f"ref:{key}"]}}}{{{latex_text(key)}}}}}] {latex_text(text)}'
        for key, text in document.references.items()
    ]
    return [r'\section*{References}', '\n'.join([r'\begin{description}', *items, r'\end{description}'])]


PLAN_DIGITS = 12
MOST_NAMES = 8


def headline(gate: GateResult) -> str:
    """The verdict in one sentence."""
    who = f'{gate.candidate.policy} is {{}} than the baseline{_baseline_name(gate)}'
    if gate.verdict is GateVerdict.PASS:
        return f'PASS: {who.format("no worse")} on {joined([e.name for e in gate.required])}.'
    if gate.verdict is GateVerdict.FAIL:
        worse = [e for e in gate.required if e.finding is GateFinding.WORSE]
        return f'FAIL: {who.format("worse")} on {joined([e.name for e in worse])}.'
    absent = [e for e in gate.required if e.finding is GateFinding.MISSING]
    if absent:
        return f'NOT SHOWN: {joined([e.name for e in absent])} cannot be judged ({absent[0].note}).'
    short = joined([e.name for e in gate.required if e.finding is GateFinding.SHORT])
    return f'NOT SHOWN: {more_sentence(gate.more)} on {short}.'


def more_sentence(more: MoreEpisodes | None) -> str:
    """How many more, of whom."""
    if more is None:
        return 'not enough episodes, and no number that could be run would do'
    if more.reference == 0:
        return f'not enough episodes: {more.new:,} more of the candidate needed'
    if more.new == more.reference:
        return f'not enough episodes: {more.new:,} more of each needed'
    return f'not enough episodes: {more.new:,} more of the candidate and {more.reference:,} more of the baseline needed'


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
    if endpoint.finding is GateFinding.NO_WORSE and _is_behind(endpoint):
        text += ' by the margin, though behind'
    if endpoint.finding is GateFinding.WORSE:
        text += f' by at least {_at_least(endpoint)}' if _is_behind(endpoint) else ', by an uncertain amount'
    if endpoint.finding is GateFinding.SHORT:
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


def _left_out(gate: GateResult) -> list[str]:
    return [f'Left out of {out.name}: {out.n} {out.why}.' for out in gate.left_out]


def _design(gate: GateResult) -> str:
    if gate.is_paired:
        return 'paired by start state'
    return f'{gate.n_matched:,} shared starts paired, the others independent' if gate.n_matched else 'independent'


def remarks(gate: GateResult) -> list[str]:
    """What a reader has to know beside the table, a sentence each."""
    cells = 'one cell' if len(gate.cells) == 1 else f'{len(gate.cells)} cells that count equally'
    starts = ''
    if gate.n_starts != (gate.candidate.n_compared, gate.baseline.n_compared):
        starts = f' from {gate.n_starts[0]:,} and {gate.n_starts[1]:,} start states, which are the units'
    lines = [
        f'Compared: {plural(gate.candidate.n_compared, "episode")} of the candidate and {gate.baseline.n_compared:,} '
        f'of the baseline{starts}, {_design(gate)}, in {cells} ({_named(gate.cells)}).',
        f'Bounds are one-sided at {100 * (1 - gate.alpha):g} %; every endpoint has to clear its limit, so none is '
        'corrected for the others.',
    ]
    lines += _left_out(gate)
    for endpoint in gate.endpoints:
        if endpoint.note:
            what = 'missing: ' if endpoint.finding is GateFinding.MISSING else ''
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
        render(endpoint_table(gate), TableOutput.MARKDOWN).rstrip(),
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
    change = ''
    if gate.more is not None:
        change = (
            f'{more_words(gate.more)} (each endpoint then passes with {100 * gate.power:g} % chance if both are equal).'
        )
    return Card(
        title=f'{gate.candidate.policy} against the baseline{_baseline_name(gate)}',
        scope=f'{gate.candidate.n_compared:,} and {plural(gate.baseline.n_compared, "episode")}, {_design(gate)}',
        verdict=(headline(gate),), rows=tuple(rows), change=change,
        notes=(short_statement(gate.statement), *(f'Note: {note}' for note in gate.notes), *_left_out(gate)),
    )  # fmt: skip


def more_words(more: MoreEpisodes) -> str:
    """`527 more of the candidate and 530 more of the baseline`."""
    if more.reference == 0:
        return f'{more.new:,} more episodes of the candidate'
    if more.new == more.reference:
        return f'{more.new:,} more episodes of each'
    return f'{more.new:,} more episodes of the candidate and {more.reference:,} of the baseline'


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
