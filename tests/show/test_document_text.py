"""A document as Markdown, LaTeX and JSON: nothing lost, nothing that the words could break."""

from __future__ import annotations

import json
import math
import re

from tests.show.gallery import STRATA, gallery

from robotrials.show.document import Document, Passage, TableBlock, Words, paragraph, render_json, section
from robotrials.show.gate import escape_markdown, latex_text, render_latex, render_markdown
from robotrials.show.table import render, table

HOSTILE = (
    '<script>alert(1)</script>',
    r'\end{document} \input{/etc/passwd} $x$ 100% #1 {a} ~^_&',
    '[odd](http://x.invalid) *bold* _it_ `code` | pipe',
    '*starred',
    'π₀.₅ 中文 é “quoted” 🤖',
)


def test_json_holds_every_block_with_exact_numbers() -> None:
    document = gallery()
    told = json.loads(render_json(document))
    assert [s['key'] for s in told['sections']] == [s.key for s in document.sections]
    ranking = told['sections'][0]['blocks'][0]
    block = document.sections[0].blocks[0]
    assert isinstance(block, TableBlock)
    assert [row['units per hour'] for row in ranking['rows']] == [row[1] for row in block.table.rows]
    assert ranking['rows'][-1]['units per hour'] is None
    assert ranking['episodes'][1] == {'policy': ['act']}
    assert told['lead'][0]['pieces'][1]['value'] == 31.23333333333333
    charts = [b for s in told['sections'] for b in s['blocks'] if b['kind'] == 'chart']
    assert len(charts) == 6
    assert all(c['table']['rows'] and c['alt'] for c in charts)
    [missing] = [b for s in told['sections'] for b in s['blocks'] if b['kind'] == 'missing']
    assert missing['reason'].startswith('No episode')
    assert len(told['episodes']['rows']) == 260


def test_json_spells_out_what_it_can_not_hold() -> None:
    shown = TableBlock('k', table('t', ['a'], [[math.inf], [math.nan]]))
    made = Document('t', '', (paragraph(Words('x', value=math.inf)),), (section('s', 'S', [shown]),), {}, {}, {})
    told = json.loads(render_json(made))
    assert told['sections'][0]['blocks'][0]['rows'] == [{'a': 'inf'}, {'a': None}]
    assert told['lead'][0]['pieces'][0]['value'] == 'inf'


def test_markdown_has_the_verdict_first_and_every_section() -> None:
    text = render_markdown(gallery())
    heads = re.findall(r'^## (.*)$', text, flags=re.MULTILINE)
    assert heads == ['Verdict', 'Ranking', 'Figures', 'Per-task tables', 'Data quality', 'Methods', 'Episodes',
                     'Definitions', 'References']  # fmt: skip
    assert '| act | 31.2 | 28.2 | 35.2 | b | 25 |' in text
    assert '```sh\nrobotrials store ls runs/may --limit 0\n```' in text


def test_markdown_shows_hostile_names_as_they_are() -> None:
    text = render_markdown(gallery(HOSTILE, HOSTILE))
    assert '<script' not in text
    assert not re.search(r'(?<!\\)\]\(', text)
    rows = [line for line in text.splitlines() if line.startswith('| ')]
    for line in rows:
        assert re.sub(r'\\\\|\\\|', '', line).count('|') > 2
    assert escape_markdown('a\nb') == 'a b'


def test_markdown_fence_is_longer_than_any_in_the_text() -> None:
    made = Document('t', '', (), (section('s', 'S', [Passage('```\nx\n```', language='sh')]),), {}, {}, {})
    assert '````sh\n```\nx\n```\n````' in render_markdown(made)


def test_latex_escapes_every_special_character() -> None:
    assert latex_text(r'\ { } $ & # _ % ~ ^') == (
        r'\textbackslash{} \{ \} \$ \& \# \_ \% \textasciitilde{} \textasciicircum{}'
    )
    assert latex_text('中') == r'\otherchar{4E2D}{中}'
    assert latex_text('e\u0301') == 'é'


def test_latex_row_that_starts_with_a_bracket_is_no_argument() -> None:
    shown = table('t', ['a', 'b'], [['x', 1], ['[0, 1]', 2], ['*', 3]])
    lines = render(shown, 'latex').splitlines()
    assert '{}[0, 1] & 2 \\\\' in lines
    assert '{}* & 3 \\\\' in lines


def test_latex_environments_and_braces_balance() -> None:
    text = render_latex(gallery(HOSTILE, STRATA))
    body = re.sub(r'\\[{}\\]', '', text)
    assert body.count('{') == body.count('}')
    for name in set(re.findall(r'\\begin\{(\w+)\}', body)) - {'lrbox'}:
        assert body.count(rf'\begin{{{name}}}') == body.count(rf'\end{{{name}}}'), name
    links = set(re.findall(r'\\hyperlink\{([^}]*)\}', body))
    assert links <= set(re.findall(r'\\hypertarget\{([^}]*)\}', body))
    labels = re.findall(r'\\label\{([^}]*)\}', body)
    assert len(labels) == len(set(labels))
