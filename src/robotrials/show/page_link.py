"""Addresses inside and out of a report's page: ids, definitions, and the episodes behind a claim."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

from robotrials.errors import InputError
from robotrials.show.chart.svg import escape
from robotrials.show.document import Document, EpisodeFilter

OWN_IDS = frozenset(
    {'main', 'contents', 'verdict', 'episodes', 'glossary', 'references', 'tip', 'theme', 'all-policies',
     'episode-data', 'episode-table', 'episode-command', 'episode-choose', 'episode-pager'}
)  # fmt: skip


def html_ids(keys: Iterable[str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """An id a key: the key itself where HTML and CSS allow it and it is free, else the nearest that is."""
    used = {*OWN_IDS, *taken}
    ids = {}
    for key in keys:
        plain = ''.join(ch if ch.isascii() and (ch.isalnum() or ch in '-_.') else '-' for ch in key) or 'x'
        candidate, number = plain, 2
        while candidate in used or f'{candidate}-title' in used:
            candidate, number = f'{plain}-{number}', number + 1
        used |= {candidate, f'{candidate}-title'}
        ids[key] = candidate
    return ids


def list_command(source: str, where: EpisodeFilter | None = None) -> str:
    """The shell command that lists the episodes meant."""
    parts = ['robotrials', 'store', 'ls', shlex.quote(source or 'STORE')]
    for field, values in (where or {}).items():
        for value in values:
            parts += ['--where', shlex.quote(f'{field}={value}')]
    return ' '.join(parts)


def check_explorer(url: str) -> str:
    """An address that a link may open: http or https only."""
    if url and urlsplit(url).scheme not in ('http', 'https'):
        raise InputError(f'explorer_url wants an http or https address, found {url!r}')
    return url


def explorer_address(document: Document, where: EpisodeFilter) -> str:
    """Where the explorer lists these episodes, of those that the document is about."""
    pairs = [(field, value) for field, values in {**document.selection, **where}.items() for value in values]
    joint = '&' if '?' in document.explorer_url else '?'
    return f'{document.explorer_url}{joint}{urlencode(pairs)}' if pairs else document.explorer_url


def mark_links(svg: str, document: Document) -> str:
    """A drawing whose marks lead to where the document's episodes are shown; nowhere if nothing shows them."""

    def turned(found: re.Match[str]) -> str:
        if not document.explorer_url:
            return ''
        return f' rel="noopener" href="{escape(explorer_address(document, json.loads(html.unescape(found[1]))))}"'

    own_list = has_episode_list(document) and not document.explorer_url
    return svg if own_list else re.sub(' href="#episodes" data-where="([^"]*)"', turned, svg)


def episode_link(document: Document, where: EpisodeFilter, inner: str, *, label: str = '') -> str:
    """A link to the episodes behind a claim: the explorer's where one runs, else this page's own list."""
    named = f' aria-label="{escape(label)}"' if label else ''
    command = escape(list_command(document.source, {**document.selection, **where}))
    if document.explorer_url:
        address = escape(explorer_address(document, where))
        return f'<a class="eps" href="{address}" rel="noopener" title="{command}"{named}>{inner}</a>'
    chosen = escape(json.dumps({field: list(values) for field, values in where.items()}, ensure_ascii=False))
    return f'<a class="eps" href="#episodes" data-where="{chosen}" title="{command}"{named}>{inner}</a>'


def has_episode_list(document: Document) -> bool:
    """Whether the page has a place for its episode links: a list, or the command that makes one."""
    return document.episodes is not None or bool(document.source)
