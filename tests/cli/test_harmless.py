"""What is printed steers no terminal and runs in no spreadsheet."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import robotrials

from robotrials.cli.output import harmless, without_formulas
from robotrials.record import Episode, Store


def test_names_from_a_store_reach_the_terminal_without_control_characters(tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append(
        [Episode(policy='\x1b]0;owned\x07evil\x1b[2J', task='t\u202e', outcome='success', duration_s=1.0)]
    )
    printed = robotrials('store', 'ls', tmp_path / 's') + robotrials('store', 'tables', tmp_path / 's')
    assert 'evil' in printed
    assert not any(c in printed for c in '\x1b\x07\u202e')
    told = robotrials('store', 'ls', tmp_path / '\x1b[31m', code=2)
    assert '\x1b[31m/' not in told
    sentences = robotrials('report', tmp_path / 's', '-o', tmp_path / 'r.html')
    latex = robotrials('tables', 'counts', tmp_path / 's', '--format', 'latex')
    for said in (sentences, latex):
        assert 'evil' in said
        assert not any(c in said for c in '\x1b\x07\u202e')


def test_json_with_names_that_are_not_printable_is_read_back(tmp_path: Path) -> None:
    names = ('no\xa0break', 'soft\xadhyphen \U000e0001')
    episodes = [Episode(policy=p, task='t', seed=k, outcome='success') for p in names for k in range(2)]
    Store.create(tmp_path / 's').append(episodes)
    printed = robotrials('tables', 'counts', tmp_path / 's', '--format', 'json')
    assert {row['policy'] for row in json.loads(printed[printed.index('[\n') :])[0]['rows']} == set(names)
    assert '\xad' not in printed


def test_a_table_in_a_file_has_no_formulas_either(tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append([Episode(policy='=cmd|x', task='t', outcome='success')])
    robotrials('tables', 'counts', tmp_path / 's', '--format', 'csv', '-o', tmp_path / 't.csv')
    assert "\n'=cmd|x," in (tmp_path / 't.csv').read_text(encoding='utf-8')


def test_a_table_in_markdown_has_no_html_of_a_name(tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append([Episode(policy='<script>alert(1)</script>', task='t', outcome='success')])
    printed = robotrials('tables', 'counts', tmp_path / 's', '--format', 'markdown')
    assert '&lt;script>alert(1)&lt;/script>' in printed
    assert '<script' not in printed


def test_formulas_in_csv_are_text_and_numbers_are_numbers() -> None:
    table = 'policy,difference\n=cmd|x,-0.25\n"@SUM(1,2)",+3\n-a,1e-3\nplain,-inf\n'
    assert without_formulas(table) == ("policy,difference\n'=cmd|x,-0.25\n\"'@SUM(1,2)\",+3\n'-a,1e-3\nplain,-inf\n")
    assert harmless('a\tb\n', 'text') == 'a\tb\n'
