"""The page as text: whole, well-formed, linked, and with the exact numbers in it."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from tests.show.gallery import POLICIES, gallery

from robotrials.errors import InputError
from robotrials.show.document import Document, TableBlock, Words, paragraph, section
from robotrials.show.page import contrast, css_string, render_html
from robotrials.show.phrase import html_ids, list_command
from robotrials.show.table import table

VOID = {'meta', 'link', 'br', 'hr', 'img', 'input'}


class Reader(HTMLParser):
    """Elements, ids, links and cells of a page; fails on tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f'</{tag}> closes nothing'
        assert self.open[-1] == tag, f'</{tag}> inside <{self.open[-1]}>'
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ('script', 'style'):
            self.text[self.open[-1]] = self.text.get(self.open[-1], '') + data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@pytest.fixture(scope='module')
def document() -> Document:
    return gallery()


@pytest.fixture(scope='module')
def page(document: Document) -> str:
    return render_html(document)


def test_page_is_well_formed_with_unique_ids_and_no_dead_links(page: str) -> None:
    tags = read(page).tags
    ids = [a['id'] for _, a in tags if a.get('id')]
    assert len(ids) == len(set(ids))
    links = [a['href'] or '' for t, a in tags if t == 'a']
    assert len(links) > 30
    assert {link[1:] for link in links if link.startswith('#')} <= set(ids)
    assert all(link.startswith('#') for link in links)
    named = [a[k] or '' for _, a in tags for k in ('aria-labelledby', 'aria-describedby') if a.get(k)]
    assert set(named) <= set(ids)


def test_page_needs_nothing_else(page: str) -> None:
    for tag, attributes in read(page).tags:
        assert tag not in ('link', 'img', 'iframe', 'object', 'base')
        assert 'src' not in attributes
        assert not any(name.startswith('on') for name in attributes)
    assert 'http://' not in re.sub(r'http://www.w3.org/\d+/\w+', '', page)
    assert 'https://' not in page
    assert "default-src 'none'" in page


def test_every_figure_has_a_table_words_and_named_drawings(page: str, document: Document) -> None:
    figures = re.findall(r'<figure .*?</figure>', page, flags=re.DOTALL)
    assert len(figures) == 6
    for figure in figures:
        assert '<table' in figure
        assert '<p class="words">' in figure
        assert figure.count('role="img"') == figure.count('<svg class="chart') >= 1


def test_headings_step_down_one_at_a_time(page: str) -> None:
    levels = [int(t[1]) for t, _ in read(page).tags if re.fullmatch('h[1-6]', t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_scopes(page: str) -> None:
    for shown in re.findall(r'<table.*?</table>', page, flags=re.DOTALL):
        assert '<caption>' in shown
        heads = re.findall(r'<th\b[^>]*>', shown)
        assert heads
        assert all('scope=' in head for head in heads)


def test_numbers_keep_their_exact_value(page: str, document: Document) -> None:
    block = document.sections[0].blocks[0]
    assert isinstance(block, TableBlock)
    [shown] = re.findall(r'<div class="tablebox" id="ranking">.*?</table>', page, flags=re.DOTALL)
    found = [float(v) for v in re.findall(r'<td[^>]* data-value="([^"]*)"', shown)]
    wanted = [float(v) for row in block.table.rows for v in row if isinstance(v, int | float)]
    assert found == wanted
    assert 'data-value="31.23333333333333"' in page


def test_headings_and_words_link_to_definitions(page: str) -> None:
    assert '<a class="def" href="#def-uph">units per hour</a>' in page
    assert '<a class="def" href="#def-success">success rate</a>' in page


def test_claims_link_to_the_explorer_where_one_runs(document: Document) -> None:
    odd = dataclasses.replace(
        document,
        explorer_url='http://127.0.0.1:8000/episodes',
        lead=(paragraph(Words('x', episodes={'policy': ('a&b c',), 'stratum': ('é',)})),),
    )
    page = render_html(odd)
    assert 'href="http://127.0.0.1:8000/episodes?policy=a%26b+c&amp;stratum=%C3%A9"' in page
    assert 'data-where' not in re.sub(r'<script>.*?</script>', '', page, flags=re.DOTALL)


@pytest.mark.parametrize('url', ['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x', '//x'])
def test_explorer_of_another_kind_is_refused(document: Document, url: str) -> None:
    with pytest.raises(InputError, match='http'):
        render_html(dataclasses.replace(document, explorer_url=url))


def test_colour_that_is_none_is_refused(document: Document) -> None:
    with pytest.raises(InputError, match='#rrggbb'):
        render_html(dataclasses.replace(document, colors={**document.colors, 'act': 'red;}</style>'}))


def test_episodes_are_data_not_rows(document: Document) -> None:
    page = render_html(gallery(n_episodes=2000))
    assert page.count('<tr') < 600
    [text] = re.findall(r'<script type="application/json" id="episode-data">(.*?)</script>', page, flags=re.DOTALL)
    data = json.loads(text)
    assert data['n'] == 2000
    columns = {c['name']: c for c in data['columns']}
    assert columns['policy']['texts'][columns['policy']['codes'][7]] == POLICIES[7 % 5]
    full = gallery(n_episodes=2000).episodes
    assert full is not None
    assert columns['duration_s']['numbers'] == [row[4] for row in full.rows]
    assert columns['force_n']['numbers'][0] is None


def test_episode_data_can_not_end_the_script() -> None:
    name = '</script><script>alert(1)</script><!--'
    page = render_html(gallery((name, 'b')))
    assert '</script><script>alert' not in page
    [text] = re.findall(r'id="episode-data">(.*?)</script>', page, flags=re.DOTALL)
    assert name in json.loads(text)['columns'][1]['texts']


def test_document_with_almost_nothing_renders() -> None:
    bare = Document('t', '', (), (), {}, {}, {})
    reader = read(render_html(bare))
    assert ('section', 'verdict') in [(t, a.get('id')) for t, a in reader.tags]
    assert not any(a.get('id') == 'episodes' for _, a in reader.tags)


def test_keys_that_the_page_uses_itself_give_way() -> None:
    shown = table('x', ['a'], [[1]])
    parts = (section('episodes', 'E', [TableBlock('main', shown)]), section('a b', 'S', [TableBlock('a-b', shown)]))
    made = Document('t', '', (), parts, {}, {}, {}, source='s')
    ids = [a['id'] for _, a in read(render_html(made)).tags if a.get('id')]
    assert len(ids) == len(set(ids))


def test_ids_are_safe_and_unique() -> None:
    ids = html_ids(['a b', 'a-b', '<x>', '', 'main', 'ok'])
    assert ids['ok'] == 'ok'
    assert len(set(ids.values())) == 6
    assert all(re.fullmatch(r'[\w.-]+', made, flags=re.ASCII) for made in ids.values())


def test_css_string_holds_no_character_that_ends_it() -> None:
    assert css_string('a"b\\</style>') == 'a\\22 b\\5c \\3c \\2f style\\3e '


def test_command_quotes_what_the_shell_would_read() -> None:
    command = list_command('my runs', {'policy': ("a'b",), 'seed': ('3',)})
    assert command == """robotrials store ls 'my runs' --where 'policy=a'"'"'b' --where seed=3"""


def test_contrast_is_wcags() -> None:
    assert contrast('#000000', '#ffffff') == pytest.approx(21)
    assert contrast('#777777', '#ffffff') == pytest.approx(4.48, abs=0.005)


def test_ten_thousand_episodes_stay_under_five_megabytes() -> None:
    tasks = tuple(f'pick up the object number {i} and place it' for i in range(40))
    page = render_html(gallery(tuple(f'policy_{i}' for i in range(8)), tasks, n_episodes=10_000, n_steps=31))
    assert len(page.encode()) < 5_000_000
