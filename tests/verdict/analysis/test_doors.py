"""Every door gives the same answer: verb, named table, page, JSON and Python, to the last digit."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials
from tests.show.parsed import PageParser
from tests.verdict.analysis import stores

import robotrials as front
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.verdict.analysis import Absent, Analysis, analyse

DIGITS = 12
RESAMPLES = 60


def bare_table(path: Path) -> Store:
    rows = ['model,task,seed,success']
    rows += [f'{p},{t},{k},{(k * 7 + n) % 10 < skill}' for n, (p, skill) in enumerate((('old', 5), ('new', 9)))
             for t in ('pick', 'stack') for k in range(20)]  # fmt: skip
    table = path.parent / 'bare.csv'
    table.write_text('\n'.join(rows))
    robotrials('import', table, '--to', path)
    return read_store(path)


def two_benchmarks(path: Path) -> Store:
    found = []
    rng = random.Random(4)
    for policy, mean_s in (('a', 8.0), ('b', 14.0)):
        for benchmark in ('left', 'right'):
            for k in range(15):
                lasts = min(rng.expovariate(1 / mean_s), 30.0)
                found.append(
                    Episode(
                        policy=policy, task='pick', benchmark=benchmark, seed=k, duration_s=lasts, time_cap_s=30.0,
                        outcome=Outcome.TIMEOUT if lasts >= 30.0 else Outcome.SUCCESS,
                    )
                )  # fmt: skip
    store = Store.create(path)
    store.append(found)
    return store


STORES: dict[str, Callable[[Path], Store]] = {
    'timed': stores.timed_store,
    'bare': bare_table,
    'safety': stores.safety_store,
    'conditions': stores.changed_store,
    'items': stores.item_store,
    'suites': stores.suite_store,
    'benchmarks': two_benchmarks,
}


def libero(path: Path, shared: Any) -> Store:
    robotrials('import', shared('data', 'libero-episodes'), '--to', path)
    return read_store(path)


def headline(analysis: Analysis) -> dict[str, float]:
    """The numbers that a reader would quote, as the analysis has them."""
    told: dict[str, float | None] = {}
    if not isinstance(analysis.ranking, Absent):
        for policy, score in analysis.ranking.scores.items():
            told[f'RMST {policy}'] = score.macro['rmst_s'].value
            if score.macro['rmst_s'].interval is not None:
                told[f'RMST {policy} low'], told[f'RMST {policy} high'] = score.macro['rmst_s'].interval
        told |= {f'HRT {p}': 100 * r.value for p, r in analysis.ranking.relative.items() if r.value is not None}
    if not isinstance(analysis.success, Absent):
        for policy, rate in analysis.success.macro.items():
            told[f'success {policy}'] = None if rate.value is None else 100 * rate.value
    if not isinstance(analysis.pairs, Absent) and not isinstance(analysis.pairs.lead, Absent):
        for pair in analysis.pairs.lead.oriented():
            name = f'{pair.policy_a} {pair.policy_b}'
            told |= {f'p {name}': pair.p_value, f'corrected p {name}': pair.p_corrected}
            told[f'needed {name}'] = None if pair.needed is None else pair.needed.n
    return {name: value for name, value in told.items() if value is not None and math.isfinite(value)}


def of_safety(analysis: Analysis) -> dict[str, float]:
    if isinstance(analysis.safety, Absent):
        return {}
    return {
        f'SBU {c.policy} {c.benchmark}': 100 * c.sbu.count / c.sbu.n
        for c in analysis.safety.summary.cells if c.sbu is not None and c.sbu.n
    }  # fmt: skip


def of_drops(analysis: Analysis) -> dict[str, float]:
    part = analysis.robustness
    if isinstance(part, Absent) or isinstance(part.drops, Absent):
        return {}
    return {f'drop {d.policy} {d.condition}': 100 * d.success_drop for d in part.drops} | {
        f'drop p {d.policy} {d.condition}': d.p_value for d in part.drops
    }


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield round(float(value), DIGITS)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)


def page_numbers(path: Path) -> set[float]:
    parser = PageParser()
    parser.feed(path.read_text(encoding='utf-8'))
    cells = [cell for table in parser.tables.values() for row in table.rows for cell in row]
    texts = [part for c in cells if isinstance(c, str) for part in re.findall(r'\d+(?:\.\d+)?', c)]
    return {round(float(c), DIGITS) for c in (*(c for c in cells if isinstance(c, float)), *texts)}


def printed(*arguments: object) -> set[float]:
    """Numbers of a verb's JSON, stdout alone."""
    text = robotrials(*arguments, '--format', 'json')
    return set(numbers(json.loads(text[text.index('[') : text.rindex(']') + 1])))


def doors(path: Path) -> dict[str, set[float]]:
    """What each door says of time, success and pairs."""
    opened = front.load(path).with_plan(resamples=RESAMPLES)
    options = ('--resamples', RESAMPLES)
    for form in ('html', 'json'):
        robotrials('report', path, '-o', path.parent / f'r.{form}', *options)
    return {
        'verbs': printed('score', path, *options) | printed('compare', path, *options),
        'tables': printed('tables', 'headline', path, *options) | printed('tables', 'success', path, *options)
        | printed('tables', 'pairs', path, *options),
        'python': set(numbers([opened.score().to_dict(), opened.success().to_dict(), opened.compare().to_dict()])),
        'page': page_numbers(path.parent / 'r.html'),
        'json': set(numbers(json.loads((path.parent / 'r.json').read_text(encoding='utf-8')))),
    }  # fmt: skip


def check(expected: dict[str, float], found: set[float], door: str) -> None:
    missing = {n: v for n, v in expected.items() if not {round(v, DIGITS), round(v / 100, DIGITS)} & found}
    assert not missing, f'{door} lacks {missing}'


@pytest.mark.parametrize('name', STORES)
def test_every_door_gives_the_same_digits(name: str, tmp_path: Path) -> None:
    path = tmp_path / 'store'
    STORES[name](path)
    analysis = analyse(path, resamples=RESAMPLES)
    expected = headline(analysis)
    assert expected
    for door, found in doors(path).items():
        check(expected, found, door)


@pytest.mark.study
def test_the_public_evaluation_of_libero_has_one_answer(tmp_path: Path, shared: Any) -> None:
    path = tmp_path / 'store'
    libero(path, shared)
    expected = headline(analyse(path, resamples=RESAMPLES))
    for door, found in doors(path).items():
        check(expected, found, door)


def test_safety_has_one_answer(tmp_path: Path) -> None:
    path = tmp_path / 'store'
    stores.safety_store(path)
    expected = of_safety(analyse(path, resamples=RESAMPLES))
    assert expected
    options = ('--resamples', RESAMPLES)
    robotrials('report', path, '-o', tmp_path / 'r.html', *options)
    check(expected, printed('safety', path, *options), 'verb')
    check(expected, printed('tables', 'safety', path, *options), 'table')
    check(expected, page_numbers(tmp_path / 'r.html'), 'page')
    check(expected, set(numbers(front.load(path).with_plan(resamples=RESAMPLES).safety().to_dict())), 'python')


def test_a_condition_has_one_drop(tmp_path: Path) -> None:
    path = tmp_path / 'store'
    stores.changed_store(path)
    expected = of_drops(analyse(path, resamples=RESAMPLES))
    assert expected
    options = ('--resamples', RESAMPLES)
    robotrials('report', path, '-o', tmp_path / 'r.html', *options)
    check(expected, printed('robustness', path, '--show', 'drops', *options), 'verb')
    for table in ('condition-drops', 'drops'):
        check(expected, printed('tables', table, path, *options), table)
    check(expected, page_numbers(tmp_path / 'r.html'), 'page')
    check(expected, set(numbers(front.load(path).with_plan(resamples=RESAMPLES).robustness().to_dict())), 'python')


def test_hiding_policies_and_turning_a_pair_changes_no_digit(tmp_path: Path) -> None:
    path = tmp_path / 'store'
    stores.timed_store(path)
    options = ('--resamples', RESAMPLES)
    every = printed('compare', path, *options)
    one, other = (
        printed('compare', path, 'quick', 'slow', *options),
        printed('compare', path, 'slow', 'quick', *options),
    )
    turned = {abs(x) for x in one} ^ {abs(x) for x in other}  # only chances: a first in 80 % is b first in 20 %
    assert {round(100 - x, 6) for x in turned} == {round(x, 6) for x in turned}
    pair = next(
        p for p in analyse(path, resamples=RESAMPLES).pairs.lead.pairs if {p.policy_a, p.policy_b} == {'quick', 'slow'}
    )  # type: ignore[union-attr]
    for found in (every, one, other):
        assert pair.p_value is not None
        assert pair.p_corrected is not None
        assert {round(pair.p_value, DIGITS), round(pair.p_corrected, DIGITS)} <= found
    hidden = printed('tables', 'headline', path, '--policy', 'quick', *options)
    assert hidden < printed('tables', 'headline', path, *options)
