"""Whole columns give the same episodes, ids and account as row by row; whatever is not plain is read row by row."""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.formats import rows as table_rows
from robotrials.formats.bulk import NotPlainError, arrow, has_quotes, open_json, text_batches
from robotrials.formats.catalog import open_here, open_source
from robotrials.formats.imported import Imported, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.record import Episode, Store

ROWS = 200


@pytest.fixture(autouse=True)
def _small_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, 'BULK_BYTES', 0)


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
        'letters': {'success': ['10'[k % 2] for k in range(ROWS)], 'arm': ['a', ' ', 'b', '-'] * (ROWS // 4)},
        'instances': {'init_state': [str(k) for k in range(ROWS)], 'seed': ['7'] * ROWS, 'object': ['cup'] * ROWS},
    }
    return {**found, **more[kind]}


KINDS = ['plain', 'seeds', 'repeats', 'some seeds', 'labels', 'missing', 'caps', 'steps', 'outcomes', 'scores',
         'conditions', 'letters', 'instances']  # fmt: skip


def written(folder: Path, kind: str, separator: str = ',') -> Path:
    cells = columns(kind)
    lines = [separator.join(row) for row in zip(*cells.values(), strict=True)]
    path = folder / 'r.csv'
    path.write_text('\n'.join([separator.join(cells), *lines]) + '\n', encoding='utf-8')
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


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('form', ['quoted', 'parquet', 'typed parquet'])
def test_quoted_text_and_parquet_are_read_by_column_and_agree(tmp_path: Path, kind: str, form: str) -> None:
    cells = columns(kind)
    path = tmp_path / ('r.csv' if form == 'quoted' else 'r.parquet')
    if form == 'quoted':
        cells['note'] = [f'{k}, "so"\nor' if k % 3 else f'{k}' for k in range(ROWS)]
        with path.open('w', newline='') as stream:
            csv.writer(stream, quoting=csv.QUOTE_MINIMAL, lineterminator='\n').writerows(
                [list(cells), *zip(*cells.values(), strict=True)]
            )
    else:
        pq.write_table(pa.table(_typed(cells) if form.startswith('typed') else cells), path)
    bulk, plain = open_here(path, ImportOptions()), open_here(path, ImportOptions())
    assert bulk.tables is not None
    if kind not in ('some seeds', 'repeats'):
        assert sum(t.num_rows for t in bulk.tables()) == ROWS
        bulk = open_here(path, ImportOptions())
    plain = dataclasses.replace(plain, tables=None)
    assert brought_in(tmp_path / 'a', bulk) == brought_in(tmp_path / 'b', plain)
    assert set(bulk.ledger.kept) == set(plain.ledger.kept)
    assert set(bulk.ledger.hints) == set(plain.ledger.hints)
    assert set(bulk.ledger.notes) == set(plain.ledger.notes)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('is_typed', [False, True])
def test_lines_of_json_are_read_by_column_and_agree(
    tmp_path: Path, kind: str, is_typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = columns(kind) | {'day': [f'2026-01-{1 + k % 28:02d}' for k in range(ROWS)], 'gain': ['3'] * ROWS}
    table = {name: column.to_pylist() for name, column in _typed(cells).items()} if is_typed else cells
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    path = tmp_path / 'r.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)) + '\n\n', encoding='utf-8')
    bulk = open_here(path, ImportOptions())
    assert bulk.tables is not None
    if kind not in ('some seeds', 'repeats'):
        assert sum(t.num_rows for t in bulk.tables()) == ROWS
        bulk = open_here(path, ImportOptions())
    monkeypatch.setattr(table_rows, 'BULK_BYTES', 1 << 30)
    plain = open_here(path, ImportOptions())
    assert plain.tables is None
    assert bulk.guesses == plain.guesses
    assert brought_in(tmp_path / 'a', bulk) == brought_in(tmp_path / 'b', plain)
    assert set(bulk.ledger.kept) == set(plain.ledger.kept)
    assert set(bulk.ledger.hints) == set(plain.ledger.hints)
    assert set(bulk.ledger.notes) == set(plain.ledger.notes)


LINE = '{"policy": "p", "task": "t", "success": 1, "duration": 3, "seed": %d}'


@pytest.mark.parametrize(
    'last',
    ['{"policy": "p", "task": "t", "success": 1, "duration": -3}', '{"policy": "p"', '[1]', '{"policy": "p"} {"a": 1}',
     '{"policy":\n"p"}', '{"policy": "", "task": "t", "success": 1}', '{"policy": "p", "success": "maybe"}',
     '{"policy": "p", "policy": "q", "success": "maybe"}', '{"policy": {"a": 1}, "task": "t", "success": 7}'],
)  # fmt: skip
def test_a_bad_line_of_json_is_named_as_it_would_be_line_by_line(
    tmp_path: Path, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'r.jsonl'
    path.write_text('\n'.join([*(LINE % k for k in range(50)), last]) + '\n')
    messages = []
    for most in (0, 1 << 30):
        monkeypatch.setattr(table_rows, 'BULK_BYTES', most)
        with pytest.raises(InputError, match='51') as caught:
            import_into(tmp_path / 's', open_source(path, ImportOptions()))
        messages.append(str(caught.value))
        assert not (tmp_path / 's').exists()
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    'last',
    ['{"gain": 1.5}', '{"gain": 2, "late": "x"}', '{"gain": "x"}', '{"gain": null}', '{"gain": 12345678901234567890}'],
)
def test_a_line_of_json_that_is_otherwise_keeps_what_all_others_say(
    tmp_path: Path, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that turns out to be of another kind, or to be there at all, in the last line."""
    path = tmp_path / 'r.jsonl'
    own = json.loads(LINE % 50) | json.loads(last)
    path.write_text('\n'.join([*(json.dumps(json.loads(LINE % k) | {'gain': k}) for k in range(50)), json.dumps(own)]))
    first = brought_in(tmp_path / 'a', open_here(path, ImportOptions()))
    monkeypatch.setattr(table_rows, 'BULK_BYTES', 1 << 30)
    assert first == brought_in(tmp_path / 'b', open_here(path, ImportOptions()))
    assert len(first) == 51


@pytest.mark.parametrize(
    ('text', 'is_plain'),
    [('{"a": 1}\n{"a": 2}', True), ('{"a": 1}\r\n\n{"a": 2}\n', True), ('{"a": 1}{"a": 2}\n', False),
     ('{"a":\n1}\n', False), (' {"a": 1}\n', False), ('{"a": "{"}\n', False), ('{"a": "["}\n', False),
     ('{"a":' * 100_000 + '\n', False), ('{"a":' * 100_000 + '\nx' * 100_000, False),
     ('{"a": ' + '[' * 100_000 + '\n', False), ('{"a": "' + 'x' * (9 << 20) + '"}\n', False), ('1\n', False)],
)  # fmt: skip
def test_arrow_is_given_flat_lines_of_json_alone(tmp_path: Path, text: str, is_plain: bool) -> None:
    """Its parser goes as deep as the text does, and ends the process that runs it."""
    path = tmp_path / 'r.jsonl'
    path.write_text(text)
    assert (open_json(path) is not None) is is_plain


def _typed(table: dict[str, list[str]]) -> dict[str, pa.Array]:
    """The columns as a data frame would have typed them: numbers, truth values and missing cells."""
    typed = {}
    for name, cells in table.items():
        values: list[object] = []
        for cell in cells:
            try:
                values.append(float(cell) if '.' in cell else int(cell))
            except ValueError:
                values.append({'yes': True, 'no': False, '': None, 'N/A': None}.get(cell, cell))
        try:
            typed[name] = pa.array(values)
        except pa.ArrowException:  # numbers and texts in one column
            typed[name] = pa.array(cells)
    return typed


@pytest.mark.parametrize(
    ('column', 'bad'), [('duration', -3.0), ('duration', float('inf')), ('success', 2), ('policy', ''), ('seed', 1.5)]
)
def test_a_bad_row_of_parquet_is_named_as_it_would_be_row_by_row(tmp_path: Path, column: str, bad: object) -> None:
    table = {'policy': ['p'] * 51, 'task': ['t'] * 51, 'success': [1] * 51, 'duration': [3.0] * 51,
             'seed': [float(k) for k in range(51)]}  # fmt: skip
    table[column][-1] = bad  # type: ignore[call-overload]
    pq.write_table(pa.table(table), tmp_path / 'r.parquet')
    sure = ImportOptions(columns={'success': 'success', 'seed': 'seed', 'duration_s': 'duration'})
    with pytest.raises(InputError, match='row 51'):
        import_into(tmp_path / 's', open_source(tmp_path / 'r.parquet', sure))
    assert not (tmp_path / 's').exists()


def test_truth_values_are_no_numbers(tmp_path: Path) -> None:
    table = {'policy': ['p'] * 9, 'task': ['t'] * 9, 'success': [True] * 9, 'duration': [True] * 9}
    pq.write_table(pa.table(table), tmp_path / 'r.parquet')
    with pytest.raises(InputError, match=r'rows 1, 2, .* \(9 rows\): duration_s is True'):
        import_into(tmp_path / 's', open_source(tmp_path / 'r.parquet', ImportOptions()))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet='ab,"\n\r ', max_size=24))
def test_whatever_arrow_reads_of_quoted_text_pythons_reader_reads_alike(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'x.csv'
    path.write_bytes(f'a,b\n{text}'.encode())
    try:
        batches = list(text_batches(path, ('a', 'b'), ',', skipped_lines=0))
    except (NotPlainError, pa.ArrowException):
        return
    with path.open(newline='') as stream:
        wanted = [row for row in list(csv.reader(stream))[1:] if row]
    assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == wanted


@pytest.mark.parametrize(
    ('text', 'quotes'),
    [(b'a,b\n1,2\n', False), (b'a,b\r\n1,2\r\n', False), (b'a,"b"\n', True), (b'a,b\n"1\n",2\n', True)],
)
def test_quotation_marks_are_found(tmp_path: Path, text: bytes, quotes: bool) -> None:
    (tmp_path / 'x').write_bytes(text)
    assert has_quotes(tmp_path / 'x', n_head_lines=1) is quotes


@pytest.mark.parametrize('text', [b'a,b\r1,2\r', b'a\x00\n', b'a,"b\nc"\n1,2\n'])
def test_text_that_arrow_would_split_otherwise_is_not_plain(tmp_path: Path, text: bytes) -> None:
    (tmp_path / 'x').write_bytes(text)
    with pytest.raises(NotPlainError):
        has_quotes(tmp_path / 'x', n_head_lines=1)


@pytest.mark.parametrize('kind', [np.float64, np.int64, np.int32, np.bool_])
@pytest.mark.parametrize('size', [0, 1, 8, 21])
def test_arrays_are_as_pyarrow_makes_them(kind: type[np.generic], size: int) -> None:
    values = np.arange(2 * size).astype(kind)[::2]
    missing = np.arange(size) % 3 == 1
    assert arrow(values).equals(pa.array(values))
    assert arrow(values, missing=missing).equals(pa.array(values, mask=missing))
    assert arrow(values, missing=np.zeros(size, bool)).null_count == 0
    arrow(values, missing=missing).validate(full=True)


def test_a_large_table_is_imported_without_masked_arrays_and_executors(tmp_path: Path) -> None:
    """Importing them would be a hundredth of the time for a million rows."""
    lines = ''.join(f'p{n % 2},t,{n // 2},{n % 3 == 0:d},{n % 60}.5\n' for n in range(100_000))
    (tmp_path / 'r.csv').write_text(f'policy,task,seed,success,duration_s\n{lines}')
    code = (
        'import sys\nsys.argv = ["robotrials", "import", "r.csv", "--to", "s"]\n'
        'from robotrials.cli import run_command\ntry:\n    run_command()\nexcept SystemExit:\n    pass\n'
        'print("\\n", *sys.modules)'
    )
    ran = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {'numpy.ma', 'concurrent.futures'} & set(ran.stdout.splitlines()[-1].split()) == set()
    assert sum(1 for _ in Store.open(tmp_path / 's').episodes()) == 100_000
