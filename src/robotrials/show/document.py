"""A document: what a report says, before it is HTML, Markdown, LaTeX or JSON.

A `Document` is a lead, then sections of blocks (paragraphs, tables, charts, things that are missing and why), a
glossary that numbers link to, and the episodes that claims link to. It holds finished numbers and words; the modules
that render it compute nothing.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError, UnknownName
from robotrials.record.folder import write_durably
from robotrials.show.table import JSON_STYLE, Table, json_cell, table_document
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.verdict.analysis import Absent, Analysis

# Which episodes are meant: field -> values, as `robotrials store ls --where FIELD=VALUE` takes them.
EpisodeFilter = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Words:
    """A run of text that may link to a definition (a key of the glossary) and to the episodes behind it."""

    text: str
    definition: str = ''
    episodes: EpisodeFilter | None = None
    value: float | None = None  # the exact number that the text rounds


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text, in pieces."""

    pieces: tuple[Words, ...]

    @property
    def text(self) -> str:
        return ''.join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with, for each column that has one, its definition, and for each row the episodes it is made of."""

    key: str  # unique in the document; an HTML id
    table: Table
    definitions: Mapping[str, str] = field(default_factory=dict)  # column name -> glossary key
    episodes: tuple[EpisodeFilter | None, ...] = ()  # one per row, or empty
    policy_column: str = ''  # the column that names the row's policy, for its colour and for switching it off
    stratum_column: str = ''
    is_folded: bool = False  # long detail: closed until it is opened
    cells: Mapping[tuple[int, str], EpisodeFilter] = field(default_factory=dict)  # (row, column) -> behind that number

    def __post_init__(self) -> None:
        names = {column.name for column in self.table.columns}
        for name in [
            *self.definitions,
            *(column for _, column in self.cells),
            *filter(None, (self.policy_column, self.stratum_column)),
        ]:
            if name not in names:
                raise InputError(f'{self.key}: no column {name!r} in the table; it has {", ".join(sorted(names))}')
        if self.episodes and len(self.episodes) != len(self.table.rows):
            raise InputError(f'{self.key}: {len(self.episodes)} filters for {len(self.table.rows)} rows')


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing of a chart: all strata together, or one of them."""

    label: str
    svg: str  # one <svg> element without scripts; marks carry data-policy and a <title>


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure in one or several panels, with its words for those who cannot see it and its numbers as a table."""

    key: str
    title: str
    alt: str
    panels: tuple[Panel, ...]
    table: Table
    note: str = ''
    policies: tuple[str, ...] = ()  # who is told apart by colour, dash and marker: the legend under the title


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that this store cannot tell, why, and what would change that."""

    what: str
    reason: str
    remedy: str = ''

    @property
    def heading(self) -> str:
        return self.what if self.what.endswith(('?', ':')) else f'{self.what}:'

    @property
    def sentences(self) -> tuple[str, ...]:
        """The reason, and what to do if there is something, as whole sentences."""
        parts = [self.reason, f'To get this: {self.remedy}' if self.remedy else '']
        return tuple(text if text.endswith('.') else f'{text}.' for text in parts if text)


@dataclass(frozen=True, slots=True)
class Passage:
    """Text to copy as it is: a methods paragraph, a plan, a command."""

    text: str
    language: str = ''  # '' is prose, else a code block
    label: str = ''


Block = Paragraph | TableBlock | Chart | Missing | Passage


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    title: str
    blocks: tuple[Block, ...]
    is_folded: bool = False  # an appendix: closed until it is opened, and not printed


@dataclass(frozen=True, slots=True)
class Definition:
    """What a number means: in words, its formula, and where it comes from."""

    title: str
    text: str
    formula: str = ''
    source: str = ''  # a key of the document's references


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. `colors` fixes one colour per policy; `episodes` is the list that claims link into."""

    title: str
    subtitle: str
    lead: tuple[Paragraph, ...]
    sections: tuple[Section, ...]
    glossary: Mapping[str, Definition]
    references: Mapping[str, str]  # key -> full citation
    colors: Mapping[str, str]  # policy -> #rrggbb
    reference_policy: str = ''
    episodes: Table | None = None
    unlisted: int = 0  # episodes that are too many for a list, which the document then does not have
    source: str = ''  # the store's folder, for commands that list episodes
    selection: EpisodeFilter = field(default_factory=dict)  # what of the store it is about; empty for all of it
    explorer_url: str = ''  # where a server shows episodes, when one runs
    footer: str = ''
    statement: str = ''  # what analysis was used, and whether it is the declared one: at the top of every format
    cautions: tuple[str, ...] = ()  # what a reader must know before the numbers

    def __post_init__(self) -> None:
        keys = self.keys
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            raise InputError(f'{self.title}: keys that stand twice: {", ".join(doubled)}')
        for key in self.used_definitions():
            if key not in self.glossary:
                raise InputError(f'{self.title}: {key!r} is linked to and not in the glossary')

    @property
    def keys(self) -> list[str]:
        """The keys of the sections, then of their tables and charts."""
        blocks = [b.key for s in self.sections for b in s.blocks if isinstance(b, TableBlock | Chart)]
        return [*(s.key for s in self.sections), *blocks]

    @property
    def n_episodes(self) -> int:
        """How many episodes the numbers rest on, as far as the document says."""
        return self.unlisted if self.episodes is None else len(self.episodes.rows)

    def used_definitions(self) -> tuple[str, ...]:
        """The glossary keys that the text and tables link to, in order of first use."""
        return used_definitions([*self.lead, *(b for s in self.sections for b in s.blocks)])


def used_definitions(blocks: Iterable[Block]) -> tuple[str, ...]:
    """The glossary keys that these blocks link to, in order of first use."""
    used: dict[str, None] = {}
    for block in blocks:
        if isinstance(block, Paragraph):
            used.update(dict.fromkeys(p.definition for p in block.pieces if p.definition))
        elif isinstance(block, TableBlock):
            used.update(dict.fromkeys(block.definitions.values()))
    return tuple(used)


def paragraph(*pieces: Words | str) -> Paragraph:
    """A paragraph from words and plain strings."""
    return Paragraph(tuple(p if isinstance(p, Words) else Words(p) for p in pieces))


def section(key: str, title: str, blocks: Sequence[Block]) -> Section:
    return Section(key, title, tuple(blocks))


def missing(what: str, absent: Absent) -> Missing:
    return Missing(what, absent.reason, absent.remedy)


def table_block(
    key: str, sheet: Table, definitions: Mapping[str, str], *, episodes: Sequence[EpisodeFilter | None] = (),
    stratum: str = '', is_folded: bool = False, cells: Mapping[tuple[int, str], EpisodeFilter] | None = None,
) -> TableBlock:  # fmt: skip
    """A block that keeps only the definitions of columns that the table has."""
    names = {c.name for c in sheet.columns}
    return TableBlock(
        key, sheet, {k: v for k, v in definitions.items() if k in names}, tuple(episodes),
        'policy' if 'policy' in names else '', stratum if stratum in names else '', is_folded, cells or {},
    )  # fmt: skip


# A document as JSON: for programs, with every number exact.


def render_json(document: Document) -> str:
    """Sections of blocks; each block says its `kind`. Absent values are null, infinite ones 'inf' and '-inf'."""
    return json.dumps(document_json(document), **JSON_STYLE) + '\n'


def document_json(document: Document) -> dict[str, object]:
    return {
        'title': document.title,
        'subtitle': document.subtitle or None,
        'analysis': document.statement or None,
        'cautions': list(document.cautions),
        'lead': [_paragraph(p) for p in document.lead],
        'sections': [
            {'key': s.key, 'title': s.title, 'blocks': [_block(b) for b in s.blocks]} for s in document.sections
        ],
        'glossary': {
            key: {'title': d.title, 'text': d.text, 'formula': d.formula or None, 'source': d.source or None}
            for key, d in document.glossary.items()
        },
        'references': dict(document.references),
        'colors': dict(document.colors),
        'reference_policy': document.reference_policy or None,
        'episodes': None if document.episodes is None else table_document(document.episodes),
        'unlisted_episodes': document.unlisted or None,
        'source': document.source or None,
        'selection': {name: list(values) for name, values in document.selection.items()} or None,
        'explorer_url': document.explorer_url or None,
        'footer': document.footer or None,
    }


def _paragraph(block: Paragraph) -> dict[str, object]:
    """The text, and those of its pieces that carry an exact value, a definition or episodes."""
    pieces = [
        {'text': p.text, 'value': json_cell(p.value), 'definition': p.definition or None,
         'episodes': _where(p.episodes)}
        for p in block.pieces
        if p.value is not None or p.definition or p.episodes is not None
    ]  # fmt: skip
    return {'kind': 'paragraph', 'text': block.text, 'pieces': pieces}


def _where(episodes: EpisodeFilter | None) -> dict[str, list[str]] | None:
    return None if episodes is None else {field: list(values) for field, values in episodes.items()}


def _block(block: Block) -> dict[str, object]:
    match block:
        case Paragraph():
            return _paragraph(block)
        case TableBlock():
            return {
                'kind': 'table', 'key': block.key, **table_document(block.table),
                'definitions': dict(block.definitions), 'episodes': [_where(e) for e in block.episodes] or None,
            }  # fmt: skip
        case Chart():
            return {
                'kind': 'chart', 'key': block.key, 'title': block.title, 'alt': block.alt, 'note': block.note or None,
                'panels': [p.label for p in block.panels], 'table': table_document(block.table),
            }  # fmt: skip
        case Missing():
            return {'kind': 'missing', 'what': block.what, 'reason': block.reason, 'remedy': block.remedy or None}
        case Passage():
            return {
                'kind': 'passage', 'label': block.label or None, 'language': block.language or None, 'text': block.text,
            }  # fmt: skip


# A document, or anything else that is shown, as a file.


def check_target(path: Path | str) -> Path:
    """The path, if a file can be put there; asked before long work, so that its result has a place to go."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f'{target}: a folder, wanted the name of a file; give one in it, such as {target / "result"}')
    home = next((p for p in target.absolute().parents if (p / 'trial.json').is_file()), None)
    if home is not None:
        raise InputError(
            f'{target}: inside the store {home}, which keeps nothing but its own files; give a path outside'
        )
    nearest = next(parent for parent in target.absolute().parents if parent.exists())
    if not nearest.is_dir():
        raise InputError(f'{target}: {nearest} is a file, wanted a folder to write into; give another path')
    if not os.access(target if target.exists() else nearest, os.W_OK):
        raise InputError(f'{target}: not allowed to write there; give another path')
    return target


def write_file(path: Path | str, content: str | bytes) -> Path:
    """Write a file in one step: a reader, or a full disk, never meets half of it."""
    target = check_target(path)
    given = content.encode() if isinstance(content, str) else content
    try:
        _put(target, given)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def _put(target: Path, given: bytes) -> None:
    if target.exists() and not target.is_file():  # a pipe or a device has no half
        target.write_bytes(given)
        return
    real = target.resolve()  # through a link, which stays one
    real.parent.mkdir(parents=True, exist_ok=True)
    write_durably(real, given)


# A report as a file, in the form that its ending says.

# Name -> (file suffix, the function that renders it).
FORMATS = {
    'html': ('.html', 'robotrials.show.page:render_html'),
    'md': ('.md', 'robotrials.show.gate:render_markdown'),
    'latex': ('.tex', 'robotrials.show.gate:render_latex'),
    'json': ('.json', 'robotrials.show.document:render_json'),
}


def choose_format(form: str | None, path: Path | None) -> str:
    """The format asked for, else that of the file's suffix, else HTML."""
    if form is not None:
        if form not in FORMATS:
            raise UnknownName('report format', form, FORMATS)
        return form
    if path is None:
        return 'html'
    for name, (suffix, _) in FORMATS.items():
        if path.suffix.lower() == suffix:
            return name
    known = ', '.join(suffix for suffix, _ in FORMATS.values())
    raise InputError(f'{path}: wanted a file ending in one of {known}, or the name of a format')


def render_document(document: Document, form: str) -> str:
    """The document in one of FORMATS."""
    module, _, name = FORMATS[form][1].partition(':')
    render: Callable[[Document], str] = getattr(importlib.import_module(module), name)
    return render(document)


def write_report(analysis: Analysis, path: Path) -> Path:
    """Write the whole report of an analysis: .html, .md, .tex or .json by the ending."""
    from robotrials.show.report import trial_document

    form = choose_format(None, path)
    check_target(path)
    write_file(path, render_document(trial_document(analysis, folder=path.parent), form))
    return path
