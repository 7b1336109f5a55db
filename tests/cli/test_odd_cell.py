"""Names of policies may hold anything; no printed form breaks on them."""

from __future__ import annotations

import csv
import io
import json

from robotrials.show.table import format_cell, render, table


def test_odd_names_break_no_form() -> None:
    name = 'a|b\n&_%$#{}~^\\ "q", ↔\r\x1b[31m\u2028z'
    shown = table('odd', ['policy', 'x'], [[name, float('nan')], ['plain', -0.0]])
    assert json.loads(render(shown, 'json'))['rows'][0] == {'policy': name, 'x': None}
    assert list(csv.reader(io.StringIO(render(shown, 'csv'), newline='')))[1] == [name, '']
    for form in ('text', 'markdown', 'latex'):
        printed = render(shown, form)
        assert '\x1b' not in printed
        assert '\r' not in printed
        assert sum('plain' in line for line in printed.split('\n')) == 1
    assert '\\n' in render(shown, 'text')
    (row,) = [line for line in render(shown, 'latex').split('\n') if 'leftrightarrow' in line]
    assert row.endswith(r'\\')
    assert row.count(' & ') == 1


def test_minus_nothing_is_nothing() -> None:
    assert format_cell(-0.0, '.1f') == '0.0'
