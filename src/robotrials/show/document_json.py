"""A document as JSON: for programs, with every number exact."""

from __future__ import annotations

import json

from robotrials.show.document import Block, ChartBlock, Document, EpisodeFilter, Missing, Paragraph, Passage, TableBlock
from robotrials.show.table import JSON_STYLE, json_cell, table_document


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
        {
            'text': p.text,
            'value': json_cell(p.value),
            'definition': p.definition or None,
            'episodes': _where(p.episodes),
        }
        for p in block.pieces
        if p.value is not None or p.definition or p.episodes is not None
    ]
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
        case ChartBlock():
            chart = block.chart
            return {
                'kind': 'chart', 'key': chart.key, 'title': chart.title, 'alt': chart.alt, 'note': chart.note or None,
                'panels': [p.label for p in chart.panels], 'table': table_document(chart.table),
            }  # fmt: skip
        case Missing():
            return {'kind': 'missing', 'what': block.what, 'reason': block.reason, 'remedy': block.remedy or None}
        case Passage():
            return {
                'kind': 'passage', 'label': block.label or None, 'language': block.language or None, 'text': block.text,
            }  # fmt: skip
