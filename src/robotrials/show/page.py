"""A document as one HTML page that needs nothing else: no network, no file beside it, and no script to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.chart.mark import Mark, policy_marks
from robotrials.show.chart.svg import escape
from robotrials.show.document import (
    Block,
    Chart,
    ChartBlock,
    Document,
    Missing,
    Paragraph,
    Passage,
    TableBlock,
    Words,
)
from robotrials.show.page_link import check_explorer, episode_link, has_episode_list, html_ids, mark_links
from robotrials.show.page_table import block_html, episodes_html, table_html
from robotrials.show.table import CONTROL

if TYPE_CHECKING:
    from jinja2 import Template

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
    keys = [s.key for s in document.sections] + [
        b.key if isinstance(b, TableBlock) else b.chart.key
        for s in document.sections
        for b in s.blocks
        if isinstance(b, TableBlock | ChartBlock)
    ]
    definitions = html_ids([f'def-{key}' for key in document.glossary])
    references = html_ids([f'ref-{key}' for key in document.references], taken=definitions.values())
    blocks = html_ids(keys, taken=[*definitions.values(), *references.values()])
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
        case ChartBlock():
            return _figure(block.chart, document, anchor=ids[block.chart.key], marks=marks)
        case Missing():
            reason, *remedy = (escape(text) for text in block.sentences)
            return (
                f'<div class="missing" role="note"><p><strong>{escape(block.heading)}</strong> {reason}</p>'
                f'{"".join(f"<p>{text}</p>" for text in remedy)}</div>'
            )
        case Passage():
            return _passage(block)


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


def _passage(block: Passage) -> str:
    body = f'<pre><code>{escape_lines(block.text)}</code></pre>' if block.language else (
        f'<p class="prose">{escape_lines(block.text)}</p>'
    )  # fmt: skip
    return (
        f'<div class="passage"><div class="bar"><span>{escape(block.label)}</span>'
        f'<button type="button" class="copy js-only">Copy</button></div>{body}</div>'
    )


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
        shown = f'#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}'
        if contrast(shown, ground) >= LEAST_CONTRAST[ground]:
            return shown
    return f'#{target:02x}{target:02x}{target:02x}'


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb` (WCAG 2)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
