"""A document as one HTML page that needs nothing else: no network, no file beside it, and no script to be read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.document import (
    Block,
    Chart,
    Document,
    EpisodeFilter,
    Missing,
    Paragraph,
    Passage,
    TableBlock,
    Words,
)
from robotrials.show.phrase import (
    check_explorer,
    episode_link,
    escape,
    has_episode_list,
    html_ids,
    list_command,
    mark_links,
)
from robotrials.show.svg import Mark, policy_marks
from robotrials.show.table import CONTROL, Cell, Column, Table, format_cell, is_numeric

if TYPE_CHECKING:
    from jinja2 import Template


# Tables of a report's page: exact values beside rounded ones, links to definitions and episodes.

LONG_ROWS = 25
SHORT_LETTERS, LONG_LETTERS = 24, 30
STATIC_EPISODES = 100
CellLink = Callable[[str], str]  # what a cell says -> the same as a link


def is_number(value: Cell) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell_html(
    value: Cell, column: Column, *, numeric: bool, heads_row: bool, key: str = '', link: CellLink | None = None
) -> str:
    """One cell: numbers carry their exact value, the row's first word heads the row; `link` leads to its episodes."""
    said = key + escape(format_cell(value, column.number_format))
    said = said if link is None else link(said)
    kind = ' class="n"' if numeric else ' class="p"' if key else _text_class(value)
    if is_number(value):
        return f'<td{kind} data-value="{value!r}">{said}</td>'
    return f'<th scope="row"{kind}>{said}</th>' if heads_row and said else f'<td{kind}>{said}</td>'


def _text_class(value: Cell) -> str:
    """Short texts stay on one line, such as an interval; long ones get room to wrap in."""
    length = len(str(value or ''))
    return (
        '' if not length else ' class="s"' if length <= SHORT_LETTERS else ' class="l"' if length > LONG_LETTERS else ''
    )


def heading_html(column: Column, *, numeric: bool, definition_id: str) -> str:
    name = escape(column.name)
    inner = f'<a class="def" href="#{definition_id}">{name}</a>' if definition_id else name
    return f'<th scope="col" class="n">{inner}</th>' if numeric else f'<th scope="col">{inner}</th>'


def block_html(block: TableBlock, document: Document, ids: Mapping[str, str]) -> str:
    """A table of the report; folded away if it is long detail."""
    inner = table_html(
        block.table, document, definitions={c: ids[f'def:{d}'] for c, d in block.definitions.items()},
        episodes=block.episodes, policy_column=block.policy_column, stratum_column=block.stratum_column,
        cells=block.cells,
    )  # fmt: skip
    anchor = ids[block.key]
    if not block.is_folded:
        return f'<div class="tablebox" id="{anchor}">{inner}</div>'
    summary = f'{escape(block.table.title or block.key)} ({len(block.table.rows)} rows)'
    return (
        f'<details class="fold" id="{anchor}"><summary>{summary}</summary><div class="tablebox">{inner}</div></details>'
    )


def table_html(
    sheet: Table,
    document: Document,
    *,
    definitions: Mapping[str, str] | None = None,
    episodes: Sequence[EpisodeFilter | None] = (),
    policy_column: str = '',
    stratum_column: str = '',
    anchor: str = '',
    cells: Mapping[tuple[int, str], EpisodeFilter] | None = None,
) -> str:
    """A table in a box of its own that scrolls sideways; `definitions` are column name -> id."""
    numeric = is_numeric(sheet)
    linked = bool(episodes) and (has_episode_list(document) or bool(document.explorer_url))
    heads = [
        heading_html(c, numeric=n, definition_id=(definitions or {}).get(c.name, ''))
        for c, n in zip(sheet.columns, numeric, strict=True)
    ]
    if linked:
        heads.append('<th scope="col">episodes</th>')
    links = [_row_link(document, where, row) for where, row in zip(episodes, sheet.rows, strict=True)] if linked else []
    leads = _cell_links(sheet, document, cells or {})
    rows = rows_html(
        sheet, numeric, policy_column=policy_column, stratum_column=stratum_column, links=links, leads=leads
    )
    title = escape(sheet.title)
    named = f' id="{anchor}"' if anchor else ''
    long = ' long' if len(sheet.rows) > LONG_ROWS else ''
    note = f'<p class="note">{escape(sheet.note)}</p>' if sheet.note else ''
    caption = f'<caption><span>{title}</span></caption>' if title else ''
    return (
        f'<div class="scroll{long}" tabindex="0" role="region" aria-label="Table: {title or "without a title"}">'
        f'<table{named}>{caption}'
        f'<thead><tr>{"".join(heads)}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        f'<p class="swipe" aria-hidden="true">more columns to the right →</p>{note}'
    )


def _cell_links(
    sheet: Table, document: Document, cells: Mapping[tuple[int, str], EpisodeFilter]
) -> dict[tuple[int, str], CellLink]:
    """How each of these cells is made a link; none where nothing shows episodes."""
    if not (has_episode_list(document) or document.explorer_url):
        return {}

    def link(row: int, column: str, where: EpisodeFilter) -> CellLink:
        label = f'list the episodes: {format_cell(sheet.rows[row][0])}, {column}'
        return lambda said: episode_link(document, where, said, label=label)

    return {(row, column): link(row, column, where) for (row, column), where in cells.items()}


def _row_link(document: Document, where: EpisodeFilter | None, row: Sequence[Cell]) -> str:
    if where is None:
        return '<td></td>'
    words = ', '.join(v for values in where.values() for v in values) or format_cell(row[0] if row else None)
    return f'<td>{episode_link(document, where, "list", label=f"list the episodes: {words}")}</td>'


def rows_html(
    sheet: Table,
    numeric: Sequence[bool],
    *,
    policy_column: str = '',
    stratum_column: str = '',
    links: Sequence[str] = (),
    leads: Mapping[tuple[int, str], CellLink] | None = None,
) -> list[str]:
    """The rows; one that belongs to a policy carries it, so that it can be switched off and coloured."""
    names = [c.name for c in sheet.columns]
    policy_at = names.index(policy_column) if policy_column in names else -1
    stratum_at = names.index(stratum_column) if stratum_column in names else -1
    rows = []
    for number, row in enumerate(sheet.rows):
        owned = ''
        if policy_at >= 0 and row[policy_at] is not None:
            owned += f' data-policy="{escape(row[policy_at])}"'
        if stratum_at >= 0 and row[stratum_at] is not None:
            owned += f' data-stratum="{escape(row[stratum_at])}"'
        cells = [
            cell_html(v, c, numeric=numeric[i], heads_row=i == 0,
                      key='<i class="key"></i>' if i == policy_at and v is not None else '',
                      link=(leads or {}).get((number, c.name)))
            for i, (v, c) in enumerate(zip(row, sheet.columns, strict=True))
        ]  # fmt: skip
        rows.append(f'<tr{owned}>{"".join(cells)}{links[number] if links else ""}</tr>')
    return rows


def episodes_html(document: Document) -> str:
    """The list that claims link into: the first rows as they are, all of them as data for the script to page."""
    command = escape(list_command(document.source, document.selection))
    episodes = document.episodes
    data = f'<script type="application/json" id="episode-data">{episode_data(document)}</script>'
    if episodes is None:
        why = f': {document.unlisted:,} are too many for a page' if document.unlisted else ''
        explore = escape(f'robotrials explore {shlex.quote(document.source or "STORE")}')
        return (
            f'<p>This page holds no list of episodes{why}. A link to episodes names the command that lists them, and '
            f'<code>{explore}</code> shows each of them; all of them:</p>'
            f'<code class="command" id="episode-command">{command} --limit 0</code>{data}'
        )
    head = Table(episodes.title, episodes.columns, episodes.rows[:STATIC_EPISODES], '')
    total = len(episodes.rows)
    first = (
        f'The first {len(head.rows)} of {total:,} episodes.'
        if total > len(head.rows)
        else f'All {total:,} {"episode" if total == 1 else "episodes"}.'
    )
    names = [c.name for c in episodes.columns]
    policy = 'policy' if 'policy' in names else ''
    return (
        '<p>The episodes that the numbers above are made of. A link named <em>episodes</em> or <em>list</em> narrows'
        ' this list to the episodes behind that number. On the command line, the same list is</p>'
        f'<code class="command" id="episode-command">{command} --limit 0</code>'
        '<p class="mini">and one policy in one stratum is '
        f'<code>{command} --where policy=NAME --where stratum=NAME</code>.</p>'
        '<div class="choose js-only" id="episode-choose"></div>'
        f'<p class="note" id="episode-count" aria-live="polite">{first}</p>'
        f'{table_html(head, document, policy_column=policy, anchor="episode-table")}'
        f'<div class="pager js-only" id="episode-pager"></div>{data}'
    )


def episode_data(document: Document) -> str:
    """The list by columns, as JSON that is safe in a <script>: texts as codes into a list, numbers as they are."""
    chosen = {field: list(values) for field, values in document.selection.items()}
    episodes = document.episodes or Table('', (), (), '')
    columns = [_column_data(column, [row[i] for row in episodes.rows]) for i, column in enumerate(episodes.columns)]
    whole = json.dumps(
        {'source': document.source or 'STORE', 'selection': chosen, 'n': len(episodes.rows), 'columns': columns},
        ensure_ascii=False, allow_nan=False, separators=(',', ':'),
    )  # fmt: skip
    return re.sub('[&<>\u2028\u2029]', lambda match: f'\\u{ord(match[0]):04x}', whole)


def _column_data(column: Column, values: Sequence[Cell]) -> dict[str, object]:
    digits = re.fullmatch(r'\.(\d+)f', column.number_format)
    data: dict[str, object] = {'name': column.name}
    if digits:
        data['digits'] = int(digits[1])
    if all(v is None or (is_number(v) and abs(float(v)) < float('inf')) for v in values) and any(
        map(is_number, values)
    ):
        return {**data, 'numbers': list(values)}
    texts: dict[str | None, int] = {}
    codes = [texts.setdefault(None if v is None else format_cell(v, column.number_format), len(texts)) for v in values]
    if len(texts) == len(values):
        return {**data, 'texts': list(texts)}
    return {**data, 'texts': list(texts), 'codes': codes}


LIGHT_CARD = '#ffffff'
DARK_CARD = '#1a1e23'
# Of a mark against what lies under it; WCAG 1.4.11 asks for 3, and thin lines on dark want more.
LEAST_CONTRAST = {LIGHT_CARD: 3.0, DARK_CARD: 4.5}
# Before the first paint: that there is a script, and the colours chosen the last time.
EARLY_SCRIPT = (
    "document.documentElement.classList.add('js');"
    "try{var t=localStorage.getItem('trialist-theme');if(t)document.documentElement.dataset.theme=t}catch(e){}"
)


def render_html(document: Document) -> str:
    """The whole report as one self-contained page.

    Every number keeps its exact value in `data-value`, every column with a definition links to it, and every claim with
    episodes links to them. Without a script all of it can be read; with one it can be sorted, filtered and switched.
    """
    from markupsafe import Markup

    check_explorer(document.explorer_url)
    ids = _ids(document)
    marks = policy_marks(document.colors)
    return _template().render(
        document=document, css=Markup(_css(document.colors)), early=Markup(EARLY_SCRIPT), js=Markup(_asset('page.js')),
        lead=[Markup(_words(p, document, ids)) for p in document.lead],
        sections=list(_sections(document, ids, marks)),
        chips=[{'policy': p, 'swatch': Markup(swatch(mark))} for p, mark in marks.items()],
        has_episodes=has_episode_list(document),
        episodes=Markup(episodes_html(document) if has_episode_list(document) else ''),
        glossary=[
            {'id': ids[f'def:{key}'], 'title': d.title, 'text': d.text, 'formula': d.formula, 'source': d.source,
             'source_id': ids.get(f'ref:{d.source}', '')}
            for key, d in document.glossary.items()
        ],
        references=[{'id': ids[f'ref:{k}'], 'key': k, 'text': text} for k, text in document.references.items()],
    )  # fmt: skip


def _ids(document: Document) -> dict[str, str]:
    """An id for every section, table, chart, definition (`def:KEY`) and reference (`ref:KEY`)."""
    definitions = html_ids([f'def-{key}' for key in document.glossary])
    references = html_ids([f'ref-{key}' for key in document.references], taken=definitions.values())
    blocks = html_ids(document.keys, taken=[*definitions.values(), *references.values()])
    return {
        **blocks,
        **{f'def:{k}': definitions[f'def-{k}'] for k in document.glossary},
        **{f'ref:{k}': references[f'ref-{k}'] for k in document.references},
    }


def _sections(document: Document, ids: Mapping[str, str], marks: Mapping[str, Mark]) -> Iterator[dict[str, object]]:
    from markupsafe import Markup

    for part in document.sections:
        blocks = [Markup(_block(b, document, ids=ids, marks=marks)) for b in part.blocks]
        yield {'id': ids[part.key], 'title': part.title, 'blocks': blocks, 'is_folded': part.is_folded}


def _block(block: Block, document: Document, *, ids: Mapping[str, str], marks: Mapping[str, Mark]) -> str:
    match block:
        case Paragraph():
            return f'<p>{_words(block, document, ids)}</p>'
        case TableBlock():
            return block_html(block, document, ids)
        case Chart():
            return _figure(block, document, anchor=ids[block.key], marks=marks)
        case Missing():
            reason, *remedy = (escape(text) for text in block.sentences)
            return (
                f'<div class="missing" role="note"><p><strong>{escape(block.heading)}</strong> {reason}</p>'
                f'{"".join(f"<p>{text}</p>" for text in remedy)}</div>'
            )
        case Passage():
            body = f'<pre><code>{escape_lines(block.text)}</code></pre>' if block.language else (
                f'<p class="prose">{escape_lines(block.text)}</p>'
            )  # fmt: skip
            return (
                f'<div class="passage"><div class="bar"><span>{escape(block.label)}</span>'
                f'<button type="button" class="copy js-only">Copy</button></div>{body}</div>'
            )


def _words(block: Paragraph, document: Document, ids: Mapping[str, str]) -> str:
    return ''.join(_piece(piece, document, ids) for piece in block.pieces)


def _piece(piece: Words, document: Document, ids: Mapping[str, str]) -> str:
    said = escape(piece.text)
    if piece.value is not None:
        said = f'<data value="{piece.value!r}" data-value="{piece.value!r}">{said}</data>'
    reachable = piece.episodes is not None and (has_episode_list(document) or bool(document.explorer_url))
    if piece.definition:
        said = f'<a class="def" href="#{ids[f"def:{piece.definition}"]}">{said}</a>'
        if reachable and piece.episodes is not None:
            link = episode_link(document, piece.episodes, 'episodes', label=f'episodes behind {piece.text.strip()}')
            said += f' <span class="mini">({link})</span>'
    elif reachable and piece.episodes is not None:
        said = episode_link(document, piece.episodes, said)
    return said


def swatch(mark: Mark) -> str:
    """A policy's dash and marker, small, for legends."""
    dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ''
    return (
        '<svg class="swatch" viewBox="0 0 26 12" aria-hidden="true">'
        f'<line x1="0" y1="6" x2="26" y2="6"{dash}/>'
        f'<path transform="translate(13 6) scale(.9)" d="{mark.marker}"/></svg>'
    )


def _figure(chart: Chart, document: Document, *, anchor: str, marks: Mapping[str, Mark]) -> str:
    columns = [c.name for c in chart.table.columns]
    numbers = table_html(chart.table, document, policy_column='policy' if 'policy' in columns else '')
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ''
    return (
        f'<figure class="figure" id="{anchor}"><figcaption><h3>{escape(chart.title)}</h3></figcaption>'
        f'{_legend(chart, marks)}<div class="panels">{_panels(chart, document)}</div>{note}'
        '<details class="numbers"><summary>This figure in words and numbers</summary>'
        f'<p class="words">{escape(chart.alt)}</p>{numbers}</details></figure>'
    )


def _legend(chart: Chart, marks: Mapping[str, Mark]) -> str:
    items = [
        f'<li data-policy="{escape(p)}">{swatch(marks[p])}<span>{escape(p)}</span></li>'
        for p in chart.policies
        if p in marks
    ]
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ''


def _panels(chart: Chart, document: Document) -> str:
    """The first panel in the open; the others folded away until a script lets the reader switch."""
    many = len(chart.panels) > 1
    drawn = []
    for panel in chart.panels:
        name = escape(panel.label)
        head = f'<h4>{name}</h4>' if many and name else ''
        drawn.append(f'<div class="panel" data-label="{name}">{head}{mark_links(panel.svg, document)}</div>')
    if not many:
        return ''.join(drawn)
    more = f'<details class="more"><summary>{len(drawn) - 1} more panels</summary>{"".join(drawn[1:])}</details>'
    return drawn[0] + more


def escape_lines(text: str) -> str:
    """Like `escape`, but line breaks and tabs stay."""
    return '\n'.join('\t'.join(escape(part) for part in line.split('\t')) for line in text.splitlines())


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset('page.html.j2'))


@cache
def _asset(name: str) -> str:
    return resources.files('robotrials.show').joinpath('template', name).read_text(encoding='utf-8')


def _css(colors: Mapping[str, str]) -> str:
    light = ''.join(f'[data-policy="{css_string(p)}"]{{--c:{_against(c, LIGHT_CARD)}}}' for p, c in colors.items())
    dark = {p: '#ffffff' if c == '#000000' else _against(c, DARK_CARD) for p, c in colors.items()}
    auto = ''.join(f':root:not([data-theme=light]) [data-policy="{css_string(p)}"]{{--c:{c}}}' for p, c in dark.items())
    chosen = ''.join(f':root[data-theme=dark] [data-policy="{css_string(p)}"]{{--c:{c}}}' for p, c in dark.items())
    sheet = _asset('page.css').replace('DARK', _asset('dark.css'))
    policies = f'{light}@media screen and (prefers-color-scheme:dark){{{auto}}}@media screen{{{chosen}}}'
    return f'{sheet}[data-policy]{{--c:var(--soft)}}{policies}'


def css_string(text: str) -> str:
    """The inside of a CSS string: all but plain letters and digits by code, so that no text can end it."""
    plain = CONTROL.sub(' ', text)  # as `escape` writes it into the attribute
    return ''.join(ch if ch.isascii() and ch.isalnum() else f'\\{ord(ch):x} ' for ch in plain)


def _against(color: str, ground: str) -> str:
    """The colour, moved towards black or white until it stands out from the ground."""
    if not re.fullmatch('#[0-9a-fA-F]{6}', color):
        raise InputError(f'a policy colour wants #rrggbb, found {color!r}')
    target = 0 if luminance(ground) > 0.5 else 255
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    for step in range(20):
        mixed = [round(c + (target - c) * step / 20) for c in (red, green, blue)]
        color_text = f'#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}'
        if contrast(color_text, ground) >= LEAST_CONTRAST[ground]:
            return color_text
    return f'#{target:02x}{target:02x}{target:02x}'


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb` (WCAG 2)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, other: str) -> float:
    """WCAG 2 contrast ratio, from 1 to 21."""
    dark, light = sorted((luminance(first), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
