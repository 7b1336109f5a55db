"""The drift gate's own parts: what counts as working, a recipe with a newer release, and rows that are kept."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tests.tool import ROOT, tool


@pytest.fixture(scope='module')
def drift() -> ModuleType:
    sys.path.insert(0, str(ROOT / 'tools'))
    try:
        return tool('drift')
    finally:
        sys.path.remove(str(ROOT / 'tools'))


CASE = '<testsuites><testsuite>{}</testsuite></testsuites>'


@pytest.mark.parametrize(
    ('cases', 'said'),
    [
        ('<testcase name="a"/><testcase name="b"/>', 'works (2 tests)'),
        ('<testcase name="a"/><testcase name="b"><failure/></testcase>', 'FAILS: 1 of 2: b'),
        ('<testcase name="a"><error/></testcase>', 'FAILS: 1 of 1: a'),
        ('<testcase name="a"/><testcase name="b"><skipped/></testcase>', 'FAILS: 1 of 2 tests could not run'),
        ('', 'FAILS: 0 of 0 tests could not run'),
    ],
)
def test_what_did_not_run_does_not_work(drift: ModuleType, cases: str, said: str) -> None:
    assert drift.verdict(CASE.format(cases)) == said


def test_a_recipe_gets_the_newest_release_and_loses_what_held_the_old(drift: ModuleType) -> None:
    recipe = (
        'requirements = [\n  "gymnasium==1.4.0",\n  "gymnasium-robotics==1.4.2",\n]\nconstraints = [\n  "a==1",\n]\n'
    )
    found = tomllib.loads(drift.renewed(recipe, 'gymnasium-robotics', '9.0'))
    assert found == {'requirements': ['gymnasium==1.4.0', 'gymnasium-robotics==9.0']}
    for peer in drift.ALL:
        assert peer.pinned
        assert all((ROOT / test.partition('::')[0]).is_file() for test in peer.tests)


def test_rows_of_the_last_run_are_kept_and_peers_without_one_say_so(drift: ModuleType, tmp_path: Path) -> None:
    row = ('vla-eval', 'server', '0.8.0', '0.8.0', '2026-11-18', 'works (3 tests)')
    page = drift.page({'vla-eval': row})
    assert drift.kept_rows(page)['vla-eval'] == row
    assert '| hf-libero | episodes, bit by bit as its own loop | - | - | - | not tried yet |' in page
