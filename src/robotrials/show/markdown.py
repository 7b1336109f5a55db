"""A document as Markdown (GitHub's): what a comment, a wiki or a README can hold."""

from __future__ import annotations

import re
from dataclasses import replace

from robotrials.show.document import (
    Block,
    Chart,
    ChartBlock,
    Document,
    Missing,
    Paragraph,
    Passage,
    TableBlock,
)
from robotrials.show.page_link import list_command
from robotrials.show.table import CONTROL, Column, Table, TableFormat, render

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
            return _folded(block) if block.is_folded else _table(block.table)
        case ChartBlock():
            return _chart(block.chart)
        case Missing():
            said = ' '.join(block.sentences)
            return f'> **{escape_markdown(block.heading)}** {escape_markdown(said)}'
        case Passage():
            return _passage(block)


def _table(shown: Table) -> str:
    """As `table.render` prints it, with the words in its cells made safe."""
    rows = tuple(tuple(escape_markdown(v) if isinstance(v, str) else v for v in row) for row in shown.rows)
    columns = tuple(Column(escape_markdown(c.name), c.number_format) for c in shown.columns)
    safe = Table(escape_markdown(shown.title), columns, rows, escape_markdown(shown.note))
    return render(safe, TableFormat.MARKDOWN).rstrip('\n')


def _folded(block: TableBlock) -> str:
    title = escape_markdown(block.table.title or block.key)
    return f'<details><summary>{title}</summary>\n\n{_table(replace(block.table, title=""))}\n\n</details>'


def _chart(chart: Chart) -> str:
    note = [escape_markdown(chart.note)] if chart.note else []
    head = f'### {escape_markdown(chart.title)}'
    numbers = f'<details><summary>Numbers</summary>\n\n{_table(replace(chart.table, title=""))}\n\n</details>'
    return '\n\n'.join([head, escape_markdown(chart.alt), *note, numbers])


def _passage(block: Passage) -> str:
    label = [f'**{escape_markdown(block.label)}**'] if block.label else []
    if block.language:
        longest = max((len(run) for run in re.findall('`+', block.text)), default=0)
        fence = '`' * max(3, longest + 1)
        language = re.sub('[^A-Za-z0-9+-]', '', block.language)
        return '\n\n'.join([*label, f'{fence}{language}\n{block.text}\n{fence}'])
    quoted = '\n'.join(f'> {escape_markdown(line)}' for line in block.text.splitlines())
    return '\n\n'.join([*label, quoted])


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
