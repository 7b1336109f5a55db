"""The page in a real browser: it fits, it can be read, and its controls do what they say."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser import DESK_PX, PHONE_PX, Browser
from tests.patience import PATIENCE_S
from tests.show.gallery import POLICIES, STRATA, gallery

from robotrials.show.page import render_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    '<script>document.title="owned"</script>',
    '<img src=x onerror="document.title=\'owned\'">',
    '"><svg onload=alert(1)>',
    "'; document.title='owned'; '",
    'a' * 100,
    'π₀.₅ 中文 "quoted" & more',
    '</style><script>document.title="owned"</script>',
    '{{ 7 * 7 }} {% raw %}',
)


@pytest.fixture(scope='module')
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('page') / 'gallery.html'
    path.write_text(render_html(gallery()), encoding='utf-8')
    return path


def test_page_fits_and_reads_on_phone_and_desk_in_both_modes(browser: Browser, page_file: Path) -> None:
    browser.check(page_file, name='gallery')


def test_unfolded_page_fits_and_reads_too(browser: Browser, page_file: Path) -> None:
    for width, scheme in ((PHONE_PX, 'dark'), (DESK_PX, 'light')):
        with browser.open(page_file, width=width, scheme=scheme) as opened:
            opened.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
            opened.check_fits()
            opened.check_contrast()
            opened.shot(f'gallery-unfolded-{width}-{scheme}')


def test_chart_text_is_readable_on_a_phone(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, width=PHONE_PX) as opened:
        sizes = opened.page.evaluate(
            """Array.from(document.querySelectorAll('svg.chart text, svg.chart .lab, svg.chart .turned'))
               .filter(e => e.checkVisibility()).map(e => parseFloat(getComputedStyle(e).fontSize))"""
        )
        assert len(sizes) > 50
        assert min(sizes) >= 10


def test_hostile_names_do_nothing_but_show(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / 'hostile.html'
    document = dataclasses.replace(gallery(HOSTILE, tuple(reversed(HOSTILE)), source='a "b"; rm'), title=HOSTILE[1])
    path.write_text(render_html(document), encoding='utf-8')
    with browser.open(path, width=PHONE_PX) as opened:
        page = opened.page
        for chip in page.locator('.chip[data-policy]').all():
            chip.click()
        page.click('#all-policies')
        page.locator('#ranking a.eps').nth(1).click()
        assert page.title() == HOSTILE[1]
        assert page.locator('img, [onerror], [onload]').count() == 0
        assert page.locator('#ranking tbody th').nth(0).inner_text() == HOSTILE[0]
        assert page.locator('#episode-table tbody tr').first.locator('td').first.inner_text() == HOSTILE[1]
        opened.check_fits()


def test_every_policy_has_its_colour_whatever_its_name(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / 'hostile.html'
    document = gallery(HOSTILE)
    path.write_text(render_html(document), encoding='utf-8')
    with browser.open(path) as opened:
        colours = opened.page.evaluate(
            """Array.from(document.querySelectorAll('.chip[data-policy]'))
               .map(e => getComputedStyle(e).getPropertyValue('--c').trim())"""
        )
        assert len(set(colours)) == len(HOSTILE)


def ranking_names(page: object) -> list[str]:
    return page.locator('#ranking tbody th').all_inner_texts()  # type: ignore[attr-defined, no-any-return]


def test_heading_sorts_up_then_down_then_back_with_absent_last(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        before = ranking_names(page)
        head = page.locator('#ranking thead th').nth(1)
        button = head.locator('button')
        button.click()
        assert head.get_attribute('aria-sort') == 'ascending'
        assert ranking_names(page) == ['pi05', 'diffusion', 'act', 'teleop', 'smolvla']
        button.click()
        assert head.get_attribute('aria-sort') == 'descending'
        assert ranking_names(page) == ['teleop', 'act', 'diffusion', 'pi05', 'smolvla']
        button.click()
        assert head.get_attribute('aria-sort') == 'none'
        assert ranking_names(page) == before
        opened.check_fits()


def test_heading_with_a_definition_still_links_to_it(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        opened.page.click('#ranking thead a.def >> nth=0')
        opened.page.wait_for_url('**#def-uph')


def test_filter_keeps_rows_with_all_the_words(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        page.click('#cells summary')
        page.fill('#cells input[type=search]', 'act pour')
        shown = page.locator('#cells tbody tr:visible')
        assert shown.count() == 1
        assert shown.first.get_attribute('data-policy') == 'act'
        assert '1 of 20' in page.inner_text('#cells .filter')


def test_switching_a_policy_off_hides_it_in_every_figure_and_table(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        marked = '[data-policy="act"]:not(.chip)'
        for figure in ('cdf', 'forest', 'pareto', 'modes', 'grid', 'dose'):
            assert page.locator(f'#{figure} svg {marked}').count() > 0
        page.click('.chip[data-policy="act"]')
        assert page.get_attribute('.chip[data-policy="act"]', 'aria-pressed') == 'false'
        assert page.locator(f'{marked}:visible').count() == 0
        assert page.locator('#ranking tbody tr:visible').count() == len(POLICIES) - 1
        page.click('#all-policies')
        assert page.locator(f'#ranking {marked}:visible').count() == 1


def test_panel_selector_shows_one_stratum(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        shown = page.locator('#cdf .panel:visible')
        assert shown.count() == 1
        page.select_option('#cdf select', label=STRATA[2])
        assert shown.get_attribute('data-label') == STRATA[2]
        page.click('#cdf button[aria-label="Next panel"]')
        assert shown.get_attribute('data-label') == STRATA[3]


def test_tooltip_by_pointer_and_by_keys(browser: Browser, page_file: Path) -> None:
    from playwright.sync_api import expect

    with browser.open(page_file) as opened:
        page = opened.page
        tip = page.locator('#tip')
        page.locator('#forest g.mark[data-policy="act"]:not(.words) path.dot').first.hover()
        expect(tip).to_have_text('act 0.85 [0.74, 0.91] ab')
        page.mouse.move(1, 1)
        expect(tip).to_be_hidden()
        page.focus('#grid svg.chart')
        page.keyboard.press('ArrowRight')
        expect(tip).to_have_text(re.compile('^teleop, pick cube: success rate 0[.]'))
        page.keyboard.press('Escape')
        expect(tip).to_be_hidden()


def test_curve_is_read_at_the_pointer(browser: Browser, page_file: Path) -> None:
    chart = gallery().sections[0].blocks[2]  # type: ignore[union-attr]
    at = [c.name for c in chart.table.columns].index('at the end')
    end = {row[1]: row[at] for row in chart.table.rows if row[0] == 'all strata'}
    with browser.open(page_file) as opened:
        page = opened.page
        page.locator('#cdf svg.chart').first.scroll_into_view_if_needed()
        box = page.locator('#cdf svg.chart').first.bounding_box()
        assert box is not None
        told, ends_s = '', time.monotonic() + PATIENCE_S
        while not told and time.monotonic() < ends_s:  # a page that is still settling takes the cross away again
            for from_right in (30, 19):
                page.mouse.move(box['x'] + box['width'] - from_right, box['y'] + 100)
            told = page.evaluate("document.querySelectorAll('#cdf .cross').length === 1 ? tip.innerText : ''")
        assert told
        lines = told.splitlines()
        assert lines[0].startswith('time (s): ')
        for name, value in end.items():
            said = next(line for line in lines if line.startswith(f'{name} ≈'))
            assert abs(float(said.split()[2]) - float(str(value))) < 0.011


def test_link_narrows_the_episodes_and_tells_the_command(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        assert not page.is_visible('#episode-table')  # folded, until a reader opens it or a link leads into it
        assert '260 episodes' in (page.text_content('#episode-count') or '')
        assert page.locator('#episode-table tbody tr').count() == 50
        page.locator('#ranking a.eps').nth(1).click()
        assert page.is_visible('#episode-table')
        assert page.inner_text('#episode-count') == '52 of 260 episodes'
        assert 'robotrials store ls runs/may --where policy=act' in page.inner_text('#episode-command')
        page.click('#episode-pager >> text=Later')
        assert page.locator('#episode-table tbody tr').count() == 2
        page.select_option('#episode-choose select >> nth=1', label='pour water')
        assert page.inner_text('#episode-count') == '13 of 260 episodes'
        page.click('#episode-table thead th >> nth=5')
        forces = page.locator('#episode-table tbody tr td:nth-child(6)').all_inner_texts()
        known = [float(f) for f in forces if f != '—']
        assert known == sorted(known)
        assert forces[: len(known)] == [f for f in forces if f != '—']
        page.click('#episode-choose >> text=All episodes')
        assert '260 episodes' in page.inner_text('#episode-count')


def test_link_tells_the_command_where_no_list_is(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / 'many.html'
    path.write_text(render_html(dataclasses.replace(gallery(), episodes=None, unlisted=1_000_000)), encoding='utf-8')
    with browser.open(path) as opened:
        page = opened.page
        assert '1,000,000 are too many for a page' in (page.text_content('#episodes') or '')
        assert page.text_content('#episode-command') == 'robotrials store ls runs/may --limit 0'
        page.locator('#ranking a.eps').nth(1).click()
        assert page.inner_text('#episode-command') == 'robotrials store ls runs/may --where policy=act --limit 0'


def test_copy_takes_the_passage_as_it_is(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as opened:
        page = opened.page
        page.evaluate(
            """Object.defineProperty(navigator, 'clipboard',
               {value: {writeText: t => { window.copied = t; return Promise.resolve(); }}})"""
        )
        copy = page.locator('.passage .copy').nth(1)
        copy.evaluate(
            """e => { window.said = [];
               new MutationObserver(() => window.said.push(e.textContent)).observe(e, {childList: true}); }"""
        )
        copy.click()
        page.wait_for_function("window.said.includes('Copied')")
        assert page.evaluate('window.copied') == 'robotrials report runs/may -o report.html\n# then open it'


def background(page: Page) -> str:
    return str(page.evaluate('getComputedStyle(document.body).backgroundColor'))


def test_colours_can_be_chosen_and_are_kept(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, scheme='dark') as opened:
        page = opened.page
        dark = background(page)
        page.click('#theme')
        light = background(page)
        assert dark != light
        opened.check_contrast()
        assert page.evaluate("localStorage.getItem('trialist-theme')") == 'light'
        # Whether the browser itself keeps it over a reload is not ours: on a busy machine it has lost it.
        page.add_init_script("localStorage.setItem('trialist-theme', 'light')")
        page.reload()
        assert background(page) == light
        page.click('#theme')
        assert background(page) == dark
        assert page.evaluate("localStorage.getItem('trialist-theme')") == 'dark'


def test_reference_is_black_on_light_and_white_on_dark(browser: Browser, page_file: Path) -> None:
    seen = {}
    for scheme in ('light', 'dark'):
        with browser.open(page_file, scheme=scheme) as opened:
            seen[scheme] = opened.page.evaluate(
                "getComputedStyle(document.querySelector('#cdf [data-policy=teleop] .curve')).stroke"
            )
    assert seen == {'light': 'rgb(0, 0, 0)', 'dark': 'rgb(255, 255, 255)'}


def test_without_a_script_everything_is_there(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, width=PHONE_PX, script=False) as opened:
        page = opened.page
        assert page.locator('.js-only:visible').count() == 0
        assert page.locator('#cdf svg.chart:visible').count() == 1
        assert page.locator('#cdf details.more svg.chart').count() == len(STRATA)
        assert page.locator('#episode-table tbody tr').count() == 100
        for part in ('episodes', 'glossary', 'references'):
            page.click(f'#{part} > details.appendix > summary')  # as a reader opens it: the browser does it alone
        assert 'first 100 of 260' in page.inner_text('#episode-count')
        assert page.locator('#glossary dt').last.is_visible()
        assert page.locator('#references li').last.is_visible()
        assert page.locator('#forest g.mark title').count() > 0
        page.click('#cdf details.more summary')
        assert page.locator('#cdf svg.chart:visible').count() == 1 + len(STRATA)
        page.locator('#ranking a.eps').first.click()
        page.wait_for_url('**#episodes')
        opened.shot('gallery-no-script')


def test_print_leaves_out_what_is_folded_and_every_control(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, media='print', scheme='dark') as opened:
        page = opened.page
        for control in ('.policies', '.toc', '.theme', '.copy', '.filter', '.tools', '.arrow'):
            assert page.locator(f'{control}:visible').count() == 0, control
        assert not page.locator('#cells tbody tr').first.is_visible()  # folded on the page, and said to be so on paper
        assert page.locator('#glossary dt').last.is_visible()  # what the text names is explained on paper too
        assert page.locator('#references li').last.is_visible()
        assert not page.is_visible('#episode-table')
        said = "getComputedStyle(document.querySelector('#episodes summary'), '::after').content"
        assert 'not printed' in page.evaluate(said)
        heads = page.locator('#ranking thead th')
        assert heads.all_inner_texts() == ['policy', 'units per hour', 'low', 'high', 'letters', 'episodes', 'episodes']
        assert page.evaluate('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)'
        assert (
            page.evaluate("getComputedStyle(document.querySelector('[data-policy=teleop] .curve')).stroke")
            == 'rgb(0, 0, 0)'
        )
        opened.check_contrast()


def test_long_lists_of_policies_and_no_policies_fit(browser: Browser, tmp_path: Path) -> None:
    for name, policies, strata in (
        ('many', tuple(f'policy number {i}' for i in range(20)), STRATA),
        ('one', ('act',), ('t',)),
    ):
        path = tmp_path / f'{name}.html'
        path.write_text(render_html(gallery(policies, strata, n_episodes=1)), encoding='utf-8')
        with browser.open(path, width=PHONE_PX) as opened:
            opened.check_fits()
            opened.shot(f'gallery-{name}')


def test_checks_of_pages_can_fail(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / 'bad.html'
    words = ''.join(f'<p style="color:#999">{n} grey on white</p>' for n in range(6))
    path.write_text(f'<div style="width:900px">wide</div>{words}<img src="http://127.0.0.1:9/x.png">', encoding='utf-8')
    with browser.open(path, width=PHONE_PX) as opened:
        with pytest.raises(AssertionError, match='px wide'):
            opened.check_fits()
        with pytest.raises(AssertionError):
            opened.check_contrast()
        assert any('asked for' in problem for problem in opened.problems)
