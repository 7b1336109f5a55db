"""What is printed steers no terminal and runs in no spreadsheet."""

from __future__ import annotations

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


def test_formulas_in_csv_are_text_and_numbers_are_numbers() -> None:
    table = 'policy,difference\n=cmd|x,-0.25\n"@SUM(1,2)",+3\n-a,1e-3\nplain,-inf\n'
    assert without_formulas(table) == ("policy,difference\n'=cmd|x,-0.25\n\"'@SUM(1,2)\",+3\n'-a,1e-3\nplain,-inf\n")
    assert harmless('a\tb\n', 'text') == 'a\tb\n'
