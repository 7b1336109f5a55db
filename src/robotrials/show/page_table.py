"""Tables of a report's page: exact values beside rounded ones, links to definitions and episodes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from robotrials.show.chart.svg import escape
from robotrials.show.document import Document, EpisodeFilter, TableBlock
from robotrials.show.page_link import episode_link, has_episode_list, list_command
from robotrials.show.table import Cell, Column, Table, cell_text, is_numeric

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
    said = key + escape(cell_text(value, column.number_format))
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
    shown: Table,
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
    numeric = is_numeric(shown)
    linked = bool(episodes) and (has_episode_list(document) or bool(document.explorer_url))
    heads = [
        heading_html(c, numeric=n, definition_id=(definitions or {}).get(c.name, ''))
        for c, n in zip(shown.columns, numeric, strict=True)
    ]
    if linked:
        heads.append('<th scope="col">episodes</th>')
    links = [_row_link(document, where, row) for where, row in zip(episodes, shown.rows, strict=True)] if linked else []
    leads = _cell_links(shown, document, cells or {})
    rows = rows_html(
        shown, numeric, policy_column=policy_column, stratum_column=stratum_column, links=links, leads=leads
    )
    title = escape(shown.title)
    named = f' id="{anchor}"' if anchor else ''
    long = ' long' if len(shown.rows) > LONG_ROWS else ''
    note = f'<p class="note">{escape(shown.note)}</p>' if shown.note else ''
    caption = f'<caption><span>{title}</span></caption>' if title else ''
    return (
        f'<div class="scroll{long}" tabindex="0" role="region" aria-label="Table: {title or "without a title"}">'
        f'<table{named}>{caption}'
        f'<thead><tr>{"".join(heads)}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        f'<p class="swipe" aria-hidden="true">more columns to the right →</p>{note}'
    )


def _cell_links(
    shown: Table, document: Document, cells: Mapping[tuple[int, str], EpisodeFilter]
) -> dict[tuple[int, str], CellLink]:
    """How each of these cells is made a link; none where nothing shows episodes."""
    if not (has_episode_list(document) or document.explorer_url):
        return {}

    def link(row: int, column: str, where: EpisodeFilter) -> CellLink:
        label = f'list the episodes: {cell_text(shown.rows[row][0])}, {column}'
        return lambda said: episode_link(document, where, said, label=label)

    return {(row, column): link(row, column, where) for (row, column), where in cells.items()}


def _row_link(document: Document, where: EpisodeFilter | None, row: Sequence[Cell]) -> str:
    if where is None:
        return '<td></td>'
    words = ', '.join(v for values in where.values() for v in values) or cell_text(row[0] if row else None)
    return f'<td>{episode_link(document, where, "list", label=f"list the episodes: {words}")}</td>'


def rows_html(
    shown: Table,
    numeric: Sequence[bool],
    *,
    policy_column: str = '',
    stratum_column: str = '',
    links: Sequence[str] = (),
    leads: Mapping[tuple[int, str], CellLink] | None = None,
) -> list[str]:
    """The rows; one that belongs to a policy carries it, so that it can be switched off and coloured."""
    names = [c.name for c in shown.columns]
    policy_at = names.index(policy_column) if policy_column in names else -1
    stratum_at = names.index(stratum_column) if stratum_column in names else -1
    rows = []
    for number, row in enumerate(shown.rows):
        owned = ''
        if policy_at >= 0 and row[policy_at] is not None:
            owned += f' data-policy="{escape(row[policy_at])}"'
        if stratum_at >= 0 and row[stratum_at] is not None:
            owned += f' data-stratum="{escape(row[stratum_at])}"'
        cells = [
            cell_html(v, c, numeric=numeric[i], heads_row=i == 0,
                      key='<i class="key"></i>' if i == policy_at and v is not None else '',
                      link=(leads or {}).get((number, c.name)))
            for i, (v, c) in enumerate(zip(row, shown.columns, strict=True))
        ]  # fmt: skip
        rows.append(f'<tr{owned}>{"".join(cells)}{links[number] if links else ""}</tr>')
    return rows


def episodes_html(document: Document) -> str:
    """The list that claims link into: the first rows as they are, all of them as data for the script to page."""
    command = escape(list_command(document.source, document.selection))
    shown = document.episodes
    data = f'<script type="application/json" id="episode-data">{episode_data(document)}</script>'
    if shown is None:
        why = f': {document.unlisted:,} are too many for a page' if document.unlisted else ''
        explore = escape(f'robotrials explore {shlex.quote(document.source or "STORE")}')
        return (
            f'<p>This page holds no list of episodes{why}. A link to episodes names the command that lists them, and '
            f'<code>{explore}</code> shows each of them; all of them:</p>'
            f'<code class="command" id="episode-command">{command} --limit 0</code>{data}'
        )
    head = Table(shown.title, shown.columns, shown.rows[:STATIC_EPISODES], '')
    total = len(shown.rows)
    first = (
        f'The first {len(head.rows)} of {total:,} episodes.'
        if total > len(head.rows)
        else f'All {total:,} {"episode" if total == 1 else "episodes"}.'
    )
    names = [c.name for c in shown.columns]
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
    shown = document.episodes or Table('', (), (), '')
    columns = [_column_data(column, [row[i] for row in shown.rows]) for i, column in enumerate(shown.columns)]
    whole = json.dumps(
        {'source': document.source or 'STORE', 'selection': chosen, 'n': len(shown.rows), 'columns': columns},
        ensure_ascii=False, allow_nan=False, separators=(',', ':'),
    )  # fmt: skip
    return re.sub('[&<>\u2028\u2029]', lambda found: f'\\u{ord(found[0]):04x}', whole)


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
    codes = [texts.setdefault(None if v is None else cell_text(v, column.number_format), len(texts)) for v in values]
    if len(texts) == len(values):
        return {**data, 'texts': list(texts)}
    return {**data, 'texts': list(texts), 'codes': codes}
