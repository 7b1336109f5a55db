"""The platform's pages in a real browser, with a real server, cell and clients: submit, watch, sort, look, stop."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import DESK_PX, PHONE_PX, Browser, Opened
from tests.patience import PATIENCE_MS
from tests.service.platform.lab import SETTINGS, Lab, lab_in, wait_for

pytest.importorskip('mujoco')
pytestmark = pytest.mark.platform

PLAN = """
title = 'one block'
benchmark = 'tabletop'
seed = 5
host = {use = 'tabletop', options = {state = 'privileged', stop_force_n = 400.0}}
tasks = ['single_block']
time_cap_s = 15.0
episodes_per_cell = 3
watchdog = {host_s = 600.0, policy_s = 300.0}

[analysis]
resamples = 200
"""

SLOW_PLAN = """
seed = 7
host = 'point-mass'
tasks = ['reach']
time_cap_s = 600.0
episodes_per_cell = 1
watchdog = {policy_s = 100.0}
"""
SLOW = ('--option', 'speed_m_s=0.01', '--option', 'think_s=0.05')


@contextlib.contextmanager
def window(browser: Browser, lab: Lab, *, width: int = DESK_PX, scheme: str = 'light') -> Iterator[Opened]:
    """A browser of its own: whatever it logs as an error or asks of another server is a problem."""
    context = browser.driven.new_context(viewport={'width': width, 'height': 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    opened = Opened(page)
    page.on('pageerror', lambda error: opened.problems.append(f'page error: {error}'))
    page.on('console', lambda m: opened.problems.append(m.text) if m.type == 'error' else None)
    page.on(
        'request', lambda r: None if r.url.startswith((lab.url, 'blob:', 'data:')) else opened.problems.append(r.url)
    )
    try:
        yield opened
    finally:
        context.close()


def sign_in(opened: Opened, lab: Lab, token: str) -> None:
    from playwright.sync_api import expect

    opened.page.goto(f'{lab.url}/sign-in')
    expect(opened.page.locator('#token')).to_be_focused()
    opened.page.keyboard.type(token)
    opened.page.keyboard.press('Enter')
    opened.page.wait_for_selector('text=sign out')


def look(opened: Opened, name: str, *, at: Any = None) -> None:
    """The page on desk and phone, light and dark: it fits, it can be read, and it is kept as a picture."""
    page = opened.page
    for width in (DESK_PX, PHONE_PX):
        page.set_viewport_size({'width': width, 'height': 900})
        for scheme in ('light', 'dark'):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            opened.check_fits()
            opened.check_contrast()
            opened.shot(f'platform-{name}-{width}-{scheme}')
    page.set_viewport_size({'width': DESK_PX, 'height': 900})
    page.emulate_media(color_scheme='light')


def test_submit_watch_sort_open_an_episode_and_stop_a_cell(tmp_path, browser):
    with lab_in(tmp_path, settings='public_leaderboards = true\ndrain_s = 300.0\n' + SETTINGS) as lab:
        declare_in_the_browser(browser, lab)
        lab.worker('cell-1')
        lab.worker('cell-2', host='point-mass')
        lab.benchmark('reach', SLOW_PLAN)
        submission = submit_and_watch(browser, lab)
        lab.client('hasty', 'block', policy='scripted', options=('--option', 'temper=hasty'))
        wait_for(lambda: lab.finished('hasty'), seconds=900, why='the second submission is finished')
        sort_in_public(browser, lab)
        open_an_episode(browser, lab, submission)
        stop_a_cell(browser, lab)


def declare_in_the_browser(browser: Browser, lab: Lab) -> None:
    with window(browser, lab) as opened:
        page = opened.page
        sign_in(opened, lab, lab.token('boss', 'admin', 'operator', 'reader'))
        page.click('text=administration')
        form = page.locator('form[action="/admin/benchmarks"]')
        form.locator('[name=name]').fill('block')
        form.locator('[name=plan]').fill(PLAN)
        form.locator('[name=reference]').fill('kim/careful')
        form.locator('button').click()
        page.wait_for_selector('section[aria-label="Benchmark block"]')
        tokens = page.locator('form[action="/admin/tokens"]')
        tokens.locator('[value=reader]').check()
        tokens.locator('button').click()
        text = page.locator('.secret').text_content() or ''
        assert text.startswith('tlt_')
        page.locator('.secret').evaluate('e => { e.textContent = "tlt_" + "x".repeat(43); }')  # kept out of the picture
        look(opened, 'admin')
        page.goto(f'{lab.url}/admin')
        assert text not in page.content()
        page.goto(f'{lab.url}/admin/audit?check=yes')
        assert 'The chain is intact' in page.content()
        look(opened, 'audit')


def submit_and_watch(browser: Browser, lab: Lab) -> str:
    with window(browser, lab) as opened:
        page = opened.page
        page.goto(f'{lab.url}/submissions')
        assert '/sign-in' in page.url
        look(opened, 'sign-in')
        sign_in(opened, lab, lab.token('kim', 'submitter', 'reader'))
        page.goto(f'{lab.url}/submissions')
        page.fill('#submit [name=name]', 'careful')
        page.keyboard.press('Enter')
        page.wait_for_url('**/submission/sub_*')
        submission = page.url
        assert 'robotrials submit block' in page.content()
        look(opened, 'submission-waiting')
        page.evaluate('window.isTheSame = true')
        lab.client('careful', 'block', policy='scripted', options=('--option', 'temper=careful'))
        page.wait_for_selector('text=/[1-3] of 3/', timeout=900_000)
        opened.shot('platform-submission-running')
        page.wait_for_selector('h2:has-text("How it fails")', timeout=900_000)
        page.wait_for_selector('html[data-drawn=yes]')
        assert page.evaluate('window.isTheSame'), 'results came without loading the page again'
        assert page.locator('.plot canvas').count() >= 1
        page.reload()
        page.wait_for_selector('html[data-drawn=yes]')
        look(opened, 'submission')
        page.goto(f'{lab.url}/submissions')
        look(opened, 'submissions')
    return submission


def sort_in_public(browser: Browser, lab: Lab) -> None:
    """An open benchmark's leaderboard, without signing in, sorted by keyboard alone."""
    with window(browser, lab) as opened:
        page = opened.page
        page.goto(lab.url)
        page.click('text=block')
        page.wait_for_url('**/benchmark/block')
        assert set(policies(page)) == {'kim/careful', 'kim/hasty'}
        page.keyboard.press('2')
        page.wait_for_url('**sort=policy')
        assert policies(page) == ['kim/careful', 'kim/hasty']
        page.keyboard.press('2')
        page.wait_for_url('**sort=-policy')
        assert policies(page) == ['kim/hasty', 'kim/careful']
        page.locator('[data-order]:has-text("SR")').focus()
        page.keyboard.press('Enter')
        page.wait_for_url('**sort=-success')
        assert page.locator('th[aria-sort=descending]').text_content().startswith('SR')
        look(opened, 'leaderboard')


def policies(page: Any) -> list[str]:
    return [text.split()[0] for text in page.locator('.board tbody th').all_text_contents()]


def open_an_episode(browser: Browser, lab: Lab, submission: str) -> None:
    from playwright.sync_api import expect

    with window(browser, lab) as opened:
        page = opened.page
        sign_in(opened, lab, lab.token('kim'))
        page.goto(submission)
        page.locator('a[href*="/explore/episode/"]').first.click()
        page.wait_for_selector('html[data-ready=yes]')
        assert page.url.startswith(submission)
        clock = page.locator('[data-clock]')
        expect(clock).to_have_text(re.compile(r'^0\.00 s of [1-9]'))
        page.keyboard.press('End')
        expect(clock).to_have_text(re.compile(r'^([1-9][\d.]*) s of \1'))
        assert page.locator('.lane').count() >= 1
        opened.check_fits()
        opened.shot('platform-episode')
        page.click('text=back to the submission')
        page.wait_for_url(submission)


def stop_a_cell(browser: Browser, lab: Lab) -> None:
    """One key stops the cell in mid-episode; one button lets it go on."""
    from playwright.sync_api import expect

    with window(browser, lab) as opened:
        page = opened.page
        sign_in(opened, lab, lab.token('olga', 'operator'))
        page.goto(f'{lab.url}/cells')
        lab.client('slow-mover', 'reach', policy='seek', options=SLOW)
        page.wait_for_selector('.facts >> text=/step [1-9]/')
        assert 'slow-mover' not in page.content()
        look(opened, 'cells')
        page.wait_for_selector('.facts >> text=/step [1-9]/')
        page.keyboard.press('k')  # the last one
        assert page.evaluate('document.activeElement.getAttribute("aria-label")') == 'Cell cell-2'
        page.keyboard.press('s')
        page.wait_for_selector('[data-state=out_of_service]')
        opened.shot('platform-cells-stopped')
        assert {name: cell['wanted'] for name, cell in lab.cells().items()} == {'cell-1': 'run', 'cell-2': 'stop'}
        with page.expect_navigation():
            page.click('button[aria-label="resume cell-2"]')
        expect(page.locator('[data-state=idle], [data-state=busy]')).to_have_count(2)
        opened.check_fits()
        lab.stop('server')  # a page that listens does not hold up its end
        assert '"event": "stopped"' in lab.log('server')
