"""What each door says of two arms on one endpoint, read back from what it prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import robotrials
from tests.show.parsed import parse_page

from robotrials.stats import Estimate, Interval
from robotrials.verdict.analysis.contrast import Contrast
from robotrials.verdict.planning.analysis_plan import EndpointName

RESAMPLES = ('--set', 'resamples=20')
Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Said:
    """The numbers of a door: rates and chances in per cent, favouring a; only those that it prints."""

    door: str
    a: str
    b: str
    endpoint: str  # success, time, lost or safety
    numbers: Numbers


def contrast_numbers(found: Contrast) -> Numbers:
    """The same numbers of the contrast."""
    seconds = found.seconds_ahead
    told: Numbers = {
        'estimate': 100 * found.estimate, **_ends('', found.interval, 100.0), 'p': found.p_value,
        'value a': found.values[0], 'value b': found.values[1],
    }  # fmt: skip
    if found.endpoint in (EndpointName.SUCCESS, EndpointName.SAFETY):
        told |= {'value a': 100 * found.values[0], 'value b': 100 * found.values[1]}
    if found.endpoint is EndpointName.LOST:
        told['fewer'] = found.values[1] - found.values[0]
    return told if seconds is None else told | _seconds(seconds)


def _seconds(seconds: Estimate) -> Numbers:
    return {'seconds': seconds.value, **_ends('seconds ', seconds.interval, 1.0)}


def _ends(name: str, interval: Interval | Sequence[float] | None, scale: float) -> Numbers:
    low, high = (None, None) if interval is None else interval
    return {f'{name}low': _times(scale, low), f'{name}high': _times(scale, high)}


def _times(scale: float, value: float | None) -> float | None:
    return None if value is None else scale * value


def disagreements(said: Said, found: Contrast) -> list[str]:
    """Where a door tells another number than the contrast, or a number where the contrast has none."""
    expected = contrast_numbers(found.seen_from(said.a))
    return [
        f'{said.door}: {said.endpoint} of {said.a} and {said.b}, {name} is {number}, the contrast has {expected[name]}'
        for name, number in said.numbers.items()
        if not _is_same(number, expected[name])
    ]


def _is_same(number: float | None, expected: float | None) -> bool:
    if number is None or expected is None:
        return number is expected
    return math.isclose(number, expected, rel_tol=1e-9, abs_tol=1e-9)


# --- the verbs


def printed(*arguments: object, code: int = 0) -> Any:
    """The JSON that a verb prints."""
    text = robotrials(*arguments, '--format', 'json', code=code)
    first = min(place for place in (text.find('[\n'), text.find('{\n')) if place >= 0)
    return json.JSONDecoder().raw_decode(text[first:])[0]


def compare(store: Path) -> Iterator[Said]:
    yield from _pair_tables('compare', printed('compare', store, *RESAMPLES))


def tables(store: Path) -> Iterator[Said]:
    yield from _pair_tables('tables pairs', printed('tables', 'pairs', store, *RESAMPLES))


def python(source: Any) -> Iterator[Said]:
    """`robotrials.load(...)`: the tables of all pairs, and every pair as a value."""
    import robotrials as front

    trial = front.load(source).with_plan(resamples=20)
    yield from _pair_tables('Python', trial.table('pairs').to_dict()['tables'])


def python_pair(source: Any, a: str, b: str) -> Iterator[Said]:
    import robotrials as front

    found = front.load(source).with_plan(resamples=20).compare(a, b)
    assert isinstance(found, front.Comparison)
    for name, result in found.endpoints.items():
        if result.difference is None:
            continue
        if name == 'success':
            numbers = {'estimate': 100 * result.difference, **_ends('', result.interval, 100.0)}
        elif name == 'lost':
            numbers = {'fewer': result.difference}
        else:
            numbers = {'seconds': result.difference, **_ends('seconds ', result.interval, 1.0)}
        yield Said('Python pair', a, b, name, numbers | {'p': result.p_uncorrected})


def _pair_tables(door: str, documents: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    for document in documents:
        if document['title'] == 'All pairs: episode success':
            yield from (Said(door, row['a'], row['b'], 'success', _rate(row)) for row in document['rows'])
        if document['title'] == 'All pairs: time to success':
            yield from (Said(door, row['a'], row['b'], 'time', _time(row)) for row in document['rows'])
        if document['title'] == 'All pairs: items lost':
            yield from (Said(door, row['a'], row['b'], 'lost', _lost(row)) for row in document['rows'])


def _rate(row: Mapping[str, Any], name: str = 'a ahead by (points)') -> Numbers:
    return {'estimate': row[name], **{key: row.get(key) for key in ('low', 'high', 'p')}}


def _time(row: Mapping[str, Any], name: str = 'a ahead by (s)') -> Numbers:
    return {
        'estimate': row['a first (%)'], 'low': row.get('a first low'), 'high': row.get('a first high'),
        'p': row.get('p'), 'seconds': row[name], 'seconds low': row.get('low'), 'seconds high': row.get('high'),
    }  # fmt: skip  # a report leaves out columns in which there is nothing


def _lost(row: Mapping[str, Any], name: str = 'a ahead by (items)', share: str = 'a loses less') -> Numbers:
    ends = {'low': row.get(f'{share} low'), 'high': row.get(f'{share} high')}
    return {'estimate': row[f'{share} (%)'], **ends, 'p': row.get('p'), 'fewer': row[name]}


def compare_pair(store: Path, a: str, b: str) -> Iterator[Said]:
    for row in printed('compare', store, a, b, *RESAMPLES)[0]['rows']:
        if row['endpoint'] == 'episode success':
            yield Said('compare A B', a, b, 'success', _rate(row, 'a ahead by'))
        elif row['endpoint'] == 'time to success':
            named = row | {f'a {end}': row[end] for end in ('first low', 'first high')}
            yield Said('compare A B', a, b, 'time', _time(named, 'a ahead by'))
        elif row['endpoint'] == 'items lost':
            named = row | {f'a {end}': row[end] for end in ('first low', 'first high')}
            yield Said('compare A B', a, b, 'lost', _lost(named, 'a ahead by', 'a first'))


def gate(store: Path, a: str, b: str) -> Iterator[Said]:
    arguments = ('gate', store, '-b', store, '--policy', a, '--baseline-policy', b)
    document = next(found for code in (0, 1, 3) if (found := if_ends(code, *arguments)) is not None)
    for endpoint in document['endpoints']:
        found = endpoint['contrast']
        if found is None:
            assert endpoint['note'], f'gate: no {endpoint["name"]} and no reason'
            continue
        numbers = {'estimate': 100 * found['estimate'], **_ends('', found['interval'], 100.0), 'p': found['p_value']}
        if found['endpoint'] == 'time':
            numbers |= {'seconds': found['seconds_ahead'], **_ends('seconds ', found['seconds_interval'], 1.0)}
            numbers |= {'value a': endpoint['new'], 'value b': endpoint['reference']}
        else:
            numbers |= {'value a': 100 * endpoint['new'], 'value b': 100 * endpoint['reference']}
        yield Said('gate', a, b, found['endpoint'], numbers)


def if_ends(code: int, *arguments: object) -> Any:
    try:
        return printed(*arguments, code=code)
    except AssertionError:
        return None


def watch(store: Path) -> Iterator[Said]:
    for row in printed('watch', store, '--once')[0]['rows']:
        if row['all episodes: a - b (points)'] is not None:
            yield Said('watch', row['a'], row['b'], 'success', {'estimate': row['all episodes: a - b (points)']})


def audit_paired(store: Path, a: str, b: str, condition: str) -> Iterator[Said]:
    asked = ('audit', 'paired', store, store, '--old-policy', b, '--new-policy', a, '--condition', condition)
    yield _verdict('audit paired', a, b, printed(*asked))


def audit_drop(store: Path, policy: str, condition: str) -> Said:
    asked = (
        'audit', 'drop', store, store, '--policy', policy, '--calibration-condition', 'nominal', '--altered-condition',
        condition,
    )  # fmt: skip
    return _verdict('audit drop', 'nominal', condition, printed(*asked))


def _verdict(door: str, a: str, b: str, documents: Sequence[Mapping[str, Any]]) -> Said:
    (row,) = next(d for d in documents if d['title'] == 'The verdict')['rows']
    numbers = _rate(row, 'a - b (points)') | {'value a': row['a (%)'], 'value b': row['b (%)']}
    return Said(door, a, b, 'success', numbers)


def safety_pairs(documents: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    for document in documents:
        if document['title'] == 'All pairs: safety':
            yield from (Said('compare', row['a'], row['b'], 'safety', _rate(row)) for row in document['rows'])


def safety_compare(store: Path, a: str, b: str) -> Said:
    """Unsafe episodes, of which less is safer."""
    documents = printed('safety', store, '--compare', a, b, *RESAMPLES)
    rows = next(d for d in documents if d['title'] == f'{a} (a) against {b} (b)')['rows']
    row = next(r for r in rows if (r['metric'], r['benchmark']) == ('unsafe', 'all'))
    numbers = {name: _times(100.0, row[key]) for name, key in (('estimate', 'a - b'), ('low', 'low'), ('high', 'high'))}
    values: Numbers = {'value a': 100 * row['a'], 'value b': 100 * row['b'], 'p': row['p']}
    return Said('safety --compare', a, b, 'safety', numbers | values)


# --- pages


def report_json(store: Path, folder: Path) -> Iterator[Said]:
    robotrials('report', store, '-o', folder / 'report.json', *RESAMPLES)
    document = json.loads((folder / 'report.json').read_text(encoding='utf-8'))
    blocks = {b['key']: b for s in document['sections'] for b in s['blocks'] if b['kind'] == 'table'}
    for key, rows in ((key, block['rows']) for key, block in blocks.items()):
        yield from _report_rows('report.json', key, rows)


def report_page(store: Path, folder: Path) -> Iterator[Said]:
    robotrials('report', store, '-o', folder / 'report.html', *RESAMPLES)
    for key, found in parse_page((folder / 'report.html').read_text(encoding='utf-8')).tables.items():
        rows = [
            {name: None if cell in ('', '–', '—') else cell for name, cell in zip(found.columns, row, strict=True)}
            for row in found.rows
            if len(row) == len(found.columns)
        ]
        yield from _report_rows('report.html', key, rows)


def _report_rows(door: str, key: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    for row in rows:
        if key.startswith('pair-table') and 'difference (points)' in row:
            yield Said(door, row['a'], row['b'], 'success', _rate(row, 'difference (points)'))
        elif key.startswith('pair-table') and 'a first (%)' in row:
            yield Said(door, row['a'], row['b'], 'time', _time(row, 'difference (s)'))
        elif key.startswith('pair-table') and 'a loses less (%)' in row:
            yield Said(door, row['a'], row['b'], 'lost', _lost(row, 'difference (items)'))
        elif key == 'robustness-drops':
            yield drop_row(door, row)


def report_before(old: Path, new: Path, a: str, b: str, folder: Path) -> Iterator[Said]:
    """The policy `b` before, `a` after; both go by one name in their stores."""
    robotrials('report', new, '--before', old, '-o', folder / 'change.json')
    document = json.loads((folder / 'change.json').read_text(encoding='utf-8'))
    table = next(b for s in document['sections'] for b in s['blocks'] if b.get('key') == 'change-table')
    for row in table['rows']:
        if row['metric'] == 'episode success (%)' and row['change'] is not None:
            values: Numbers = {'value a': row['after'], 'value b': row['before']}
            yield Said('report --before', a, b, 'success', _rate(row, 'change') | values)
        elif row['metric'] == 'done first (%)' and row['change'] is not None:
            chance = {name: _plus(50.0, row[name]) for name in ('low', 'high')}
            yield Said('report --before', a, b, 'time', {'estimate': row['after'], **chance, 'p': row['p']})
        elif row['metric'] == 'items lost' and row['change'] is not None:
            numbers: Numbers = {'fewer': -row['change'], 'p': row['p']}
            yield Said('report --before', a, b, 'lost', numbers | {'value a': row['after'], 'value b': row['before']})
        elif row['metric'] == 'RMST (s)' and row['change'] is not None:
            ends = {'seconds low': _times(-1.0, row['high']), 'seconds high': _times(-1.0, row['low'])}
            values = {'value a': row['after'], 'value b': row['before']}
            yield Said('report --before', a, b, 'time', {'seconds': -row['change'], **ends, **values})


def _plus(shift: float, value: float | None) -> float | None:
    return None if value is None else shift + value


# --- one policy under two conditions: a is the baseline


def drop_row(door: str, row: Mapping[str, Any]) -> Said:
    numbers: Numbers = {'p': row['p']}
    numbers |= {name: _times(100.0, row[key]) for name, key in (('estimate', 'drop'), ('low', 'low'), ('high', 'high'))}
    return Said(f'{door} of {row["policy"]}', 'nominal', str(row['condition']), 'success', numbers)


def robustness(store: Path) -> Iterator[Said]:
    for row in printed('robustness', store, '--show', 'drops', *RESAMPLES)[0]['rows']:
        yield drop_row('robustness', row)


def table_drops(store: Path) -> Iterator[Said]:
    for row in printed('tables', 'condition-drops', store, *RESAMPLES)[0]['rows']:
        yield drop_row('tables condition-drops', row)


def python_drops(store: Path) -> Iterator[Said]:
    import robotrials as front

    for row in front.load(store).with_plan(resamples=20).robustness().to_dict()['tables'][0]['rows']:
        yield drop_row('Python', row)
