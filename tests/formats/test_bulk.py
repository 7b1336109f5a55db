"""Whole columns give the same episodes, ids and account as row by row; whatever is not plain is read row by row."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.formats import table
from robotrials.formats.bulk import is_plain_text
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import Imported, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.record import Episode, Store

ROWS = 200


@pytest.fixture(autouse=True)
def _small_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, 'BULK_BYTES', 0)


def columns(kind: str) -> dict[str, list[str]]:
    """A plain table with one thing or another in it."""
    rng = np.random.default_rng(3)
    found = {
        'policy': [f'p{k}' for k in rng.integers(0, 3, ROWS)],
        'task': [['pick', 'plåce', ' stack '][k] for k in rng.integers(0, 3, ROWS)],
        'success': [['yes', 'no'][k] for k in rng.integers(0, 2, ROWS)],
        'duration_ms': [f'{x:.1f}' for x in rng.uniform(1, 6e4, ROWS)],
    }
    more: dict[str, dict[str, list[str]]] = {
        'plain': {},
        'seeds': {'seed': [str(k) for k in range(ROWS)]},
        'repeats': {'seed': [str(k % 7) for k in range(ROWS)]},
        'some seeds': {'seed': [str(k) if k % 2 else '' for k in range(ROWS)]},
        'labels': {'camera': ['left', '', 'right', 'N/A'] * (ROWS // 4), 'arm': ['1'] * ROWS, 'void': [''] * ROWS},
        'missing': {'duration_ms': ['N/A' if k % 5 == 0 else f'{k}' for k in range(ROWS)]},
        'caps': {'duration_ms': ['60000' if k % 3 == 0 else str(k) for k in range(ROWS)]},
        'steps': {'steps': [str(300 if k % 3 == 0 else k) for k in range(ROWS)], 'benchmark': ['libero_goal'] * ROWS},
        'outcomes': {'outcome': [['Success', 'time out', 'failed', 'crashed'][k % 4] for k in range(ROWS)]},
        'scores': {'score': [f'{k % 101}%' for k in range(ROWS)]},
        'conditions': {'condition': [['', 'dark'][k % 2] for k in range(ROWS)], 'reason': ['-', 'slip'] * (ROWS // 2)},
        'instances': {'init_state': [str(k) for k in range(ROWS)], 'seed': ['7'] * ROWS, 'object': ['cup'] * ROWS},
    }
    return {**found, **more[kind]}


KINDS = ['plain', 'seeds', 'repeats', 'some seeds', 'labels', 'missing', 'caps', 'steps', 'outcomes', 'scores',
         'conditions', 'instances']  # fmt: skip


def written(folder: Path, kind: str, separator: str = ',') -> Path:
    given = columns(kind)
    lines = [separator.join(row) for row in zip(*given.values(), strict=True)]
    path = folder / 'r.csv'
    path.write_text('\n'.join([separator.join(given), *lines]) + '\n', encoding='utf-8')
    return path


def brought_in(folder: Path, imported: Imported) -> list[Episode]:
    import_into(folder, imported)
    return [e.replace(provenance_id='') for e in Store.open(folder).episodes(attempts='all')]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('options', [{}, {'rate_hz': 10.0, 'defaults': {'step_cap': '300', 'time_cap_s': '60'}}])
def test_both_ways_agree(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    path = written(tmp_path, kind, ';' if kind == 'labels' else ',')
    bulk = open_source(path, ImportOptions(**options))  # type: ignore[arg-type]
    plain = dataclasses.replace(open_source(path, ImportOptions(**options)), tables=None)  # type: ignore[arg-type]
    assert bulk.tables is not None
    assert brought_in(tmp_path / 'a', bulk) == brought_in(tmp_path / 'b', plain)
    assert set(bulk.ledger.kept) == set(plain.ledger.kept)
    assert set(bulk.ledger.hints) == set(plain.ledger.hints)
    assert set(bulk.ledger.notes) == set(plain.ledger.notes)
    again = import_into(tmp_path / 'a', open_source(path, ImportOptions(**options)))  # type: ignore[arg-type]
    assert (again.added, again.already_there) == (0, ROWS)


def test_most_kinds_are_really_read_by_column(tmp_path: Path) -> None:
    for kind in set(KINDS) - {'some seeds', 'repeats'}:
        imported = open_source(written(tmp_path, kind), ImportOptions())
        assert imported.tables is not None
        assert sum(t.num_rows for t in imported.tables()) == ROWS


@pytest.mark.parametrize('bad', ['p,t,maybe,3', 'p,t,1,-3', 'p,t,1', ',t,1,3', 'p,t,,3', 'p,t,1,nan,5', 'p,t,1,1e400'])
def test_a_bad_row_is_named_as_it_would_be_row_by_row(tmp_path: Path, bad: str) -> None:
    path = tmp_path / 'r.csv'
    path.write_text('policy,task,success,duration\n' + 'p,t,1,3\n' * 50 + f'{bad}\n')
    messages = []
    for tables in (True, False):
        with pytest.raises(InputError, match='row 51') as caught:
            imported = open_source(path, ImportOptions())
            import_into(tmp_path / 's', imported if tables else dataclasses.replace(imported, tables=None))
        messages.append(str(caught.value))
        assert not (tmp_path / 's').exists()
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ('text', 'plain'),
    [
        (b'a,b\n1,2\n', True),
        (b'a,b\r\n1,2\r\n', True),
        (b'a,b\r1,2\r', False),
        (b'a,"b"\n', False),
        (b'a\x00\n', False),
    ],
)
def test_what_is_plain_text(tmp_path: Path, text: bytes, plain: bool) -> None:
    (tmp_path / 'x').write_bytes(text)
    assert is_plain_text(tmp_path / 'x') is plain
