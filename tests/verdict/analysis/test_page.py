"""Reports of every kind of store, opened in a real browser."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.browser import Browser
from tests.cli.command import robotrials
from tests.cli.test_import_safevla import records
from tests.show.parsed import parse_page
from tests.verdict.analysis.stores import changed_store, item_store, suite_store, timed_store

from robotrials.record import Store

STORES: dict[str, Callable[[Path], Store]] = {
    'timed': timed_store, 'items': item_store, 'changed': changed_store, 'suites': suite_store
}  # fmt: skip


def written(store: Path, to: Path, *options: object) -> Path:
    robotrials('report', store, '-o', to, '--resamples', 100, *options)
    return to


@pytest.mark.parametrize('name', STORES)
def test_reports_fit_and_read(browser: Browser, tmp_path: Path, name: str) -> None:
    STORES[name](tmp_path / 's')
    browser.check(written(tmp_path / 's', tmp_path / f'{name}.html'), name=f'report-{name}')


def test_a_report_of_a_bare_table_fits_and_reads(browser: Browser, tmp_path: Path) -> None:
    """A CSV with just success and duration."""
    rng = np.random.default_rng(0)
    with (tmp_path / 'runs.csv').open('w', newline='') as stream:
        rows = csv.writer(stream)
        rows.writerow(['model', 'success', 'duration'])
        rows.writerows(
            [f'model {k}', int(rng.random() < 0.4 + 0.2 * k), round(rng.uniform(5, 40), 1)]
            for k in (0, 1, 2)
            for _ in range(15)
        )
    robotrials('import', tmp_path / 'runs.csv', '--to', tmp_path / 's', '--map', 'policy=model', '--set', 'task=pick')
    browser.check(written(tmp_path / 's', tmp_path / 'table.html'), name='report-table')


def test_a_report_of_safety_records_fits_and_reads(browser: Browser, tmp_path: Path) -> None:
    """SafeVLA-Bench records of two policies, imported."""
    for policy in ('pi0', 'act'):
        (tmp_path / f'{policy}.json').write_text(json.dumps(records(6)))
        robotrials('import', tmp_path / f'{policy}.json', '--to', tmp_path / 's', '--set', f'policy={policy}')
    path = written(tmp_path / 's', tmp_path / 'safety.html')
    browser.check(path, name='report-safety')
    assert parse_page(path.read_text()).tables['safety-quadruple'].column('policy') == ['act', 'pi0']


@pytest.mark.platform
def test_a_report_of_the_demo_fits_and_reads(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip('mujoco')
    told = robotrials('demo', '--to', tmp_path / 'demo', '--episodes', 1)
    assert 'report.html' in told
    browser.check(tmp_path / 'demo' / 'report.html', name='report-demo')
    page = parse_page((tmp_path / 'demo' / 'report.html').read_text())
    assert page.tables['ranking-table'].column('episodes') == [4] * 6
    assert len(page.tables['safety-quadruple'].rows) == 6


def test_a_report_without_script_shows_its_figures(browser: Browser, tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=6)
    path = written(tmp_path / 's', tmp_path / 'r.html')
    with browser.open(path, width=360, script=False) as opened:
        drawn, closed = opened.page.locator('svg.chart:visible'), opened.page.locator('details.appendix:has(figure)')
        assert drawn.count() == opened.page.locator('figure:visible').count() == 3
        for _ in range(closed.count()):  # an appendix opens without script
            opened.page.locator('details.appendix:not([open]):has(figure) > summary').first.click()
        assert drawn.count() == opened.page.locator('figure').count() == 5
        assert not opened.page.locator('select:visible').count()


def test_switching_a_policy_off_hides_it_in_every_figure_and_table(browser: Browser, tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=6)
    with browser.open(written(tmp_path / 's', tmp_path / 'r.html')) as opened:
        marks = opened.page.locator('main [data-policy="slow"]:visible')
        before = marks.count()
        assert before > 5
        opened.page.get_by_role('button', name='slow', exact=True).first.click()
        assert opened.page.locator('main svg [data-policy="slow"]:visible').count() == 0
        assert opened.problems == []


@pytest.mark.parametrize(('form', 'suffix'), [('md', 'md'), ('latex', 'tex'), ('json', 'json')])
def test_other_forms_are_printed_or_written(tmp_path: Path, form: str, suffix: str) -> None:
    timed_store(tmp_path / 's', n=4)
    printed = robotrials('report', tmp_path / 's', '--format', form, '--resamples', 50)
    robotrials('report', tmp_path / 's', '-o', tmp_path / f'r.{suffix}', '--resamples', 50)
    assert (tmp_path / f'r.{suffix}').read_text() == printed
    assert 'slow' in printed


def test_json_holds_the_exact_numbers_of_the_page(tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=4)
    page = parse_page(written(tmp_path / 's', tmp_path / 'r.html').read_text())
    document = json.loads(written(tmp_path / 's', tmp_path / 'r.json').read_text())
    (ranking,) = (s for s in document['sections'] if s['key'] == 'ranking')
    (shown,) = (b for b in ranking['blocks'] if b.get('key') == 'ranking-table')
    rows = shown['table']['rows'] if 'table' in shown else shown['rows']
    assert [row['RMST (s)'] for row in rows] == page.tables['ranking-table'].column('RMST (s)')


def test_an_unknown_form_or_suffix_is_named(tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=2)
    assert "did you mean 'html'" in robotrials('report', tmp_path / 's', '--format', 'htm', code=2)
    assert '.html, .md, .tex, .json' in robotrials('report', tmp_path / 's', '-o', tmp_path / 'r.docx', code=2)
    assert not (tmp_path / 'r.docx').exists()


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=4)
    first, again = (written(tmp_path / 's', tmp_path / f'{k}.html').read_bytes() for k in (1, 2))
    assert first == again


def test_before_and_after_is_a_page_of_the_same_form(browser: Browser, tmp_path: Path) -> None:
    for name, seed in (('before', 1), ('after', 2)):
        timed_store(tmp_path / name, n=10, seed=seed)
    path = written(tmp_path / 'after', tmp_path / 'change.html', '--before', tmp_path / 'before')
    browser.check(path, name='report-change')
    assert 'Before and after' in path.read_text()
