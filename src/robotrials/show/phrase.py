"""Numbers and names in running text: each keeps its exact value, its definition and the episodes behind it."""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from robotrials.errors import InputError, UnknownName
from robotrials.show.document import Definition, Document, EpisodeFilter, Words
from robotrials.show.table import CONTROL, cell_text
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.stats import Interval


def number(
    value: float | None, form: str, definition: str, *, unit: str = '', episodes: EpisodeFilter | None = None
) -> Words:
    """A number in a sentence; an absent one is a dash."""
    text = cell_text(value, form) + (unit if value is not None and math.isfinite(value) else '')
    return Words(text, definition, episodes, value)


def with_interval(
    value: float | None, interval: Interval | None, form: str, definition: str, *, unit: str = '', scale: float = 1.0,
    episodes: EpisodeFilter | None = None,
) -> list[Words]:  # fmt: skip
    """`14.2 s [13.1, 15.0]`, the value and both ends each with its exact number."""
    scaled = None if value is None else scale * value
    pieces = [number(scaled, form, definition, unit=unit, episodes=episodes)]
    if interval is not None:
        low, high = (number(scale * end, form, 'interval') for end in interval)
        pieces += [Words(' ['), low, Words(', '), high, Words(']')]
    return pieces


def policy_name(name: str) -> Words:
    """A policy, linked to its episodes."""
    return Words(name, episodes={'policy': (name,)})


def listed(names: Sequence[Words], *, joint: str = 'and') -> list[Words]:
    """`a, b and c`."""
    pieces: list[Words] = []
    for place, name in enumerate(names):
        if place:
            pieces.append(Words(f' {joint} ' if place == len(names) - 1 else ', '))
        pieces.append(name)
    return pieces


IRREGULAR = {'policy': 'policies', 'stratum': 'strata'}


def plural(n: int, noun: str) -> str:
    """`1 pair`, `3 pairs`, `2 policies`."""
    return f'{n:,} {noun if n == 1 else IRREGULAR.get(noun, f"{noun}s")}'


def joined(names: Sequence[str]) -> str:
    """`a, b and c`; nothing of nothing."""
    return f'{", ".join(names[:-1])} and {names[-1]}' if len(names) > 1 else ''.join(names)


def capital(text: str) -> str:
    """The text with a capital first letter and the rest as it is."""
    return text[:1].upper() + text[1:]


def only_text(selection: EpisodeFilter) -> str:
    """` · only policy a or b` behind a title; nothing where nothing was chosen."""
    words = ', '.join(f'{field} {" or ".join(values)}' for field, values in selection.items())
    return f' · only {words}' if words else ''


def ends(interval: Interval | None, scale: float = 1.0) -> tuple[float | None, float | None]:
    """Both ends of an interval for two cells of a table."""
    return (None, None) if interval is None else (interval.low * scale, interval.high * scale)


# What the numbers of a report mean, and the works that they come from; the words are in `data/glossary.toml`.


@dataclass(frozen=True, slots=True)
class Glossary:
    """Definitions by key, and the full citations that they name."""

    definitions: Mapping[str, Definition]
    references: Mapping[str, str]

    def of(self, keys: Iterable[str]) -> dict[str, Definition]:
        """The definitions of these keys, by title."""
        chosen = {}
        for key in keys:
            if key not in self.definitions:
                raise UnknownName('definition', key, self.definitions)
            chosen[key] = self.definitions[key]
        return dict(sorted(chosen.items(), key=lambda item: item[1].title.lower()))

    def cited(self, definitions: Iterable[Definition], *, also: Iterable[str] = ()) -> dict[str, str]:
        """The citations behind some definitions, and of further works, in the order of the list of references."""
        wanted = {d.source for d in definitions} | set(also)
        return {key: text for key, text in self.references.items() if key in wanted}


@functools.cache
def glossary() -> Glossary:
    import tomllib
    from importlib import resources

    from robotrials.show.document import Definition

    text = (resources.files('robotrials.show') / 'data' / 'glossary.toml').read_text(encoding='utf-8')
    values = tomllib.loads(text)
    return Glossary({k: Definition(**v) for k, v in values['definitions'].items()}, values['references'])


# Addresses inside and out of a report's page: ids, definitions, and the episodes behind a claim.

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


def escape(text: object) -> str:
    """Text that is safe in an element and in a quoted attribute; control characters become spaces."""
    import html

    return html.escape(CONTROL.sub(' ', str(text)), quote=True)


def mark_links(svg: str, document: Document) -> str:
    """A drawing whose marks lead to where the document's episodes are shown; nowhere if nothing shows them."""
    import html

    def turned(match: re.Match[str]) -> str:
        if not document.explorer_url:
            return ''
        return f' rel="noopener" href="{escape(explorer_address(document, json.loads(html.unescape(match[1]))))}"'

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
