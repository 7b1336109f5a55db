"""Tables that are too large, too deep, damaged or lying: one clear line each, in bounded memory; nothing is kept."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError, RecordError
from robotrials.formats.catalog import from_table, is_text

HEAD = 'policy,task,success,duration_s'


def written(folder: Path, text: str | bytes, name: str = 'r.csv') -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('wide.csv', ','.join(f'c{k}' for k in range(50_000)) + '\n', '50,000 columns, wanted at most 2,000'),
        ('keys.jsonl', json.dumps({f'k{n}': n for n in range(3_000)}) + '\n', 'more than 2,000 different keys'),
        ('deep.json', '{"a":' * 60 + '1' + '}' * 60, 'wanted a JSON list of objects'),
        ('deep.jsonl', '{"a":' * 60 + '1' + '}' * 60 + '\n', 'nested deeper than 32'),
        ('deeper.jsonl', '{"a":' * 100_000 + '1' + '}' * 100_000 + '\n', 'line 1: not JSON'),
        ('junk.csv', b'policy,task\n\xff\x00\x01,\x90\n', r'not UTF-8 text \(byte \d+\); save it as UTF-8'),
        (
            'late.csv',
            (HEAD + '\n' + 'a,t,1,3\n' * 9_000).encode() + b'\xff\xfe,t,1,3\n',
            r'not UTF-8 text \(byte 72031\)',
        ),
        ('zero.csv', f'{HEAD}\na,t,1,3\na\0b,t,1,3\n', "row 2: column 'policy' has a zero byte, wanted text"),
        (
            'large.csv',
            f'{HEAD},note\n' + 'a,t,1,3,\n' * 40_000 + 'a,t,1,3,x\0\n',
            "row 40001: column 'note' has a zero byte",
        ),
        ('wide.csv', HEAD.encode('utf-16-le') + b'\n\0', 'a zero byte in the header, wanted text; is the file damaged'),
        ('cut.jsonl', b'{"policy": "a"}\n' * 70_000 + 'é'.encode()[:1], r'not UTF-8 text \(byte 1120000\)'),
        (
            'huge.csv',
            f'{HEAD}\na,t,1,{"9" * 400}\n',
            r"row 1: duration_s is '9+\.\.\. \(402 characters\), wanted a finite",
        ),
        ('inf.csv', f'{HEAD}\na,t,1,1e999\n', "row 1: duration_s is '1e999', wanted a finite number"),
        (
            'seed.csv',
            f'{HEAD},seed\na,t,1,3,{"9" * 30}\n',
            'row 1: seed is 9+, wanted a whole number of at most 63 bits',
        ),
        ('share.csv', 'policy,task,success_rate,trials\na,t,850,20\n', "row 1: success_rate is '850', wanted a share"),
        ('none.csv', 'policy,task,success rate,n\na,t,66.7%,20\n', 'row 1: .* of 20 trials: no count fits'),
        ('many.csv', 'policy,task,sr,n\na,t,67%,900\n', r'row 1: .* of 900 trials: \d+ counts fit; give successes'),
        ('more.csv', 'policy,task,successes,trials\na,t,21,20\n', 'row 1: successes is 21, wanted 0 to trials = 20'),
        ('rate.csv', 'policy,task,success_rate\na,t,85%\n', 'a rate without its number of trials'),
        ('odd.csv', f'{HEAD}\na,t,85%,3\na,t,maybe,3\n', "row 1: success is '85%'.*a degree of success is a score"),
        ('units.csv', f'{HEAD}\na,t,1,3 apples\n', "row 1: duration_s is '3 apples', wanted seconds"),
    ],
)
def test_one_clear_line(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(InputError, match=message):
        from_table(path)
    printed = robotrials('import', path, '--to', tmp_path / 's', code=2)
    assert 'Traceback' not in printed
    assert len(printed) < 2_000
    assert not (tmp_path / 's').exists()


def test_two_rows_for_one_id_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD},episode_id\na,t,1,3,x\na,t,1,3,y\na,t,1,4,x\n')
    printed = robotrials('import', path, '--to', tmp_path / 's', code=2)
    assert 'episodes 1 and 3 of the source share the id' in printed
    assert not (tmp_path / 's').exists()


def test_foreign_ids_of_two_files_do_not_clash(tmp_path: Path) -> None:
    for name, policy in (('a.csv', 'a'), ('b.csv', 'b')):
        path = written(tmp_path, f'{HEAD},episode_id\n{policy},t,1,3,0\n{policy},t,1,3,1\n', name)
        printed = robotrials('import', path, '--to', tmp_path / 's')
        assert '2 episodes added' in printed


def test_a_row_that_changed_is_named_and_nothing_is_added(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD},seed\na,t,1,3,0\n')
    robotrials('import', path, '--to', tmp_path / 's')
    written(tmp_path, f'{HEAD},seed\na,t,1,4,0\na,t,1,5,1\n')
    failed = robotrials('import', path, '--to', tmp_path / 's', code=2)
    assert 'with other content; nothing was added' in failed
    assert '1 already there' in robotrials(
        'import', written(tmp_path, f'{HEAD},seed\na,t,1,3,0\n'), '--to', tmp_path / 's'
    )


def test_a_spreadsheet_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('xl/worksheets/sheet1.xml', b'0' * (64 << 20))
    with pytest.raises(InputError, match=r'unpacks from [\d,]+ to 67,108,864 bytes; wanted at most'):
        from_table(written(tmp_path, stream.getvalue(), 'bomb.xlsx'))


def test_a_damaged_spreadsheet_is_named(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, 'w') as archive:
        archive.writestr('hello.txt', 'no workbook')
    with pytest.raises(InputError, match=r'no\.xlsx: not a readable spreadsheet'):
        from_table(written(tmp_path, stream.getvalue(), 'no.xlsx'))


def test_clock_times_of_a_spreadsheet_are_minutes_and_seconds(tmp_path: Path) -> None:
    import datetime as dt

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (
        ['policy', 'task', 'success', 'time'],
        ['a', 't', True, dt.time(1, 23)],
        ['a', 't', 'no', dt.time(2, 0)],
    ):
        sheet.append(row)
    book.save(tmp_path / 'r.xlsx')
    assert [e.duration_s for e in from_table(tmp_path / 'r.xlsx')] == [83.0, 120.0]
    printed = robotrials('import', tmp_path / 'r.xlsx', '--dry-run')
    assert '--answer clock=h:mm' in printed
    assert '4980.00' in robotrials('import', tmp_path / 'r.xlsx', '--dry-run', '--answer', 'clock=h:mm')


LIMITED = """
import resource, sys
from robotrials.errors import InputError
from robotrials.formats.catalog import is_text
from robotrials.formats.catalog import from_table
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    from_table(sys.argv[1])
    print('read')
except InputError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def refused(path: Path) -> tuple[str, int]:
    """What reading the table says in a process of its own, and by how many MiB its peak memory grew."""
    command = [sys.executable, '-c', LIMITED, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    *said, grown = ran.stdout.strip().splitlines()
    return '\n'.join(said), int(grown)


def test_a_parquet_of_too_many_values_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    zeros = pa.nulls(1_000_000, pa.int8())
    table = pa.table({'policy': pa.chunked_array([zeros] * 60)})
    pq.write_table(table, tmp_path / 'rows.parquet', row_group_size=60_000_000, compression='zstd')
    assert (tmp_path / 'rows.parquet').stat().st_size < 1 << 20
    said, grown = refused(tmp_path / 'rows.parquet')
    assert '60,000,000 rows, wanted at most' in said
    assert grown < 200


def test_a_text_repeated_in_a_parquet_is_held_once(tmp_path: Path) -> None:
    """Two thousand rows of one text of a million letters: 2 GB if each were a text of its own."""
    index = pa.array([0] * 2_000, pa.int32())
    long = pa.DictionaryArray.from_arrays(index, pa.array(['x' * 1_000_000]))
    names = {name: pa.array(['a'] * 2_000) for name in ('policy', 'task')}
    table = pa.table({**names, 'success': pa.array([True] * 2_000), 'reason': long})
    table = table.replace_schema_metadata(None)
    pq.write_table(table, tmp_path / 'text.parquet', compression='zstd')
    said, grown = refused(tmp_path / 'text.parquet')
    assert said == 'read'
    assert grown < 400


def test_every_bad_row_of_many_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + '\n' + 'a,t,1,-1\n' * 25)
    said = r'rows 1, 2, 3, 4, 5, \.\.\. \(25 rows\): duration_s is -1.*\nnothing was imported'
    with pytest.raises(RecordError, match=said):
        from_table(path)


@pytest.mark.parametrize(
    ('cells', 'separator', 'lasted'),
    [('"1,5"', ',', 1.5), ('1,5', ';', 1.5), ('1.5', ';', 1.5), ('"1,234"', ',', 1.234), ('1,234', ';', 1.234),
     ('1:02:03', ',', 3723.0), ('1m 23s', ',', 83.0), ('1.5 min', ',', 90.0), ('250 ms', ',', 0.25),
     ('N/A', ',', None)],
)  # fmt: skip
def test_times_as_people_type_them(tmp_path: Path, cells: str, separator: str, lasted: float | None) -> None:
    text = HEAD.replace(',', separator) + '\n' + separator.join(['a', 't', 'yes', cells]) + '\n'
    assert [e.duration_s for e in from_table(written(tmp_path, text))] == [lasted]


def test_a_thousands_comma_in_a_whole_number_is_no_decimal_point(tmp_path: Path) -> None:
    (episode,) = from_table(written(tmp_path, 'policy,task,success,steps\na,t,1,"1,234"\n'))
    assert episode.steps == 1234


def test_a_column_can_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD},seed\na,t,1,3,5\n')
    (episode,) = from_table(path, columns={'seed': '-'})
    assert (episode.seed, dict(episode.labels)) == (None, {'seed': '5'})


def test_an_interrupted_import_leaves_an_existing_store_as_it_was(tmp_path: Path) -> None:
    robotrials('import', written(tmp_path, f'{HEAD}\na,t,1,3\n', 'good.csv'), '--to', tmp_path / 's')
    before = sorted(p.relative_to(tmp_path) for p in (tmp_path / 's').rglob('*') if p.is_file())
    rows = 'a,t,1,3\n' * 9_000 + 'a,t,1,-3\n'
    robotrials('import', written(tmp_path, f'{HEAD}\n{rows}', 'bad.csv'), '--to', tmp_path / 's', code=2)
    after = sorted(p.relative_to(tmp_path) for p in (tmp_path / 's').rglob('*') if p.is_file())
    assert after == before


def test_a_success_that_takes_no_step_is_pointed_at(tmp_path: Path) -> None:
    path = written(tmp_path, 'policy,task,success,steps\na,t,1,0\na,t,1,40\n')
    assert '1 successes take no time at all' in robotrials('import', path, '--dry-run')


def test_a_bit_that_aborts_the_parquet_library_is_an_error_in_words(tmp_path: Path) -> None:
    """The file ended `robotrials import`: an exception in the library that Python cannot catch."""
    flipped = Path(__file__).parent / 'corpus' / 'table-one-bit-flipped.parquet'
    told = robotrials('import', flipped, '--to', tmp_path / 's', code=2)
    assert f'{flipped}: cannot be read: its parser died (SIGABRT)' in told
    assert not (tmp_path / 's').exists()


def test_text_is_read_in_this_process_and_binary_files_in_another(tmp_path: Path) -> None:
    (tmp_path / 't.csv').write_text('policy,task,success,time\na,t,1,3\n')
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'run.json').write_text('[]')
    assert is_text(tmp_path / 't.csv')
    assert is_text(tmp_path / 'folder')
    (tmp_path / 'folder' / 'video.mp4').write_bytes(b'')
    assert not is_text(tmp_path / 'folder')
    for name in ('x.parquet', 'x.hdf5', 'x.npz', 'x.xlsx', 'x.mcap', 'x.db3', 'x.sqlite', 'x.eval', 'x'):
        assert not is_text(tmp_path / name)
