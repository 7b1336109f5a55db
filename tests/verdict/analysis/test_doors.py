"""Every door gives the same answer: verb, named table, page, JSON and Python, to the last digit."""

from __future__ import annotations

import bisect
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials
from tests.show.parsed import PageParser
from tests.verdict.analysis import stores

import robotrials as front
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.verdict.analysis import Absent, Analysis, analyse, compare_stores, present
from robotrials.verdict.analysis.contrast import Contrast

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


# --- every verb, one number


def random_store(path: Path, seed: int) -> Store:
    """Two to four policies on tasks with caps of their own; starts shared, half shared or not recorded; repeats; a
    second condition; invalid episodes; sometimes no durations; sometimes a policy under a longer cap.
    """
    rng = random.Random(seed)
    policies = ['a', 'b', 'c', 'd'][: rng.randint(2, 4)]
    caps = {task: rng.choice((20.0, 60.0, 120.0)) for task in ('lift', 'pour', 'stack')[: rng.randint(1, 3)]}
    starts, repeats, n = rng.choice(('shared', 'half', 'apart', 'none')), rng.choice((1, 1, 2)), rng.randint(6, 12)
    is_timed, conditions = rng.random() < 0.8, ('nominal', 'dim') if rng.random() < 0.5 else ('nominal',)
    longer = policies[-1] if is_timed and rng.random() < 0.5 else ''
    made = []
    for place, policy in enumerate(policies):
        first = {'shared': 0, 'half': place * n // 2, 'apart': 1000 * place, 'none': 0}[starts]
        for task, cap_s in caps.items():
            own_s = cap_s * (2 if policy == longer else 1)
            for condition in conditions:
                for k in range(n):
                    for repeat in range(repeats):
                        lasts_s = rng.expovariate(1 / (cap_s * (0.3 + 0.2 * place)))
                        is_done = lasts_s < own_s and rng.random() < (0.9 if condition == 'nominal' else 0.5)
                        made.append(
                            Episode(
                                episode_id=f'{len(made)}', policy=policy, task=task, condition=condition,
                                time_cap_s=own_s if is_timed else None,
                                seed=None if starts == 'none' else first + k, repeat=repeat,
                                duration_s=min(lasts_s, own_s) if is_timed else None,
                                outcome=Outcome.INVALID if rng.random() < 0.03
                                else Outcome.SUCCESS if is_done else Outcome.TIMEOUT,
                            )
                        )  # fmt: skip
    made = [e if e.outcome is not Outcome.TIMEOUT or not is_timed else e.replace(duration_s=e.time_cap_s) for e in made]
    store = Store.create(path)
    store.append(made)
    return store


def of_contrast(found: Contrast, *, with_p: bool = True) -> dict[str, float]:
    told = {f'{found.endpoint.value} {found.a} {found.b}': abs(100 * found.advantage)}
    if with_p and found.p_value is not None:
        told[f'p of {found.endpoint.value} {found.a} {found.b}'] = found.p_value
    return told


def magnitudes(found: set[float]) -> list[float]:
    """Numbers without their sign, and chances as their distance from one half, so that sides do not matter."""
    return sorted({abs(y) for x in found for y in (x, x - 50, 100 * x, 100 * x - 50)})


def holds(expected: dict[str, float], found: list[float], door: str) -> None:
    def is_there(value: float) -> bool:
        place = bisect.bisect_left(found, value - 1e-8)
        return place < len(found) and found[place] <= value + 1e-8

    missing = {name: v for name, v in expected.items() if not is_there(v)}
    assert not missing, f'{door} lacks {missing}'


def only(path: Path, store: Store, policy: str) -> Path:
    """A store of one policy, under the name that both sides share."""
    Store.create(path).append([e.replace(policy='x') for e in store.episodes(where={'policy': policy})])
    return path


@pytest.mark.parametrize('seed', range(8))
def test_every_verb_gives_the_contrasts_number(seed: int, tmp_path: Path) -> None:
    path = tmp_path / 'store'
    store = random_store(path, seed)
    analysis = analyse(path, resamples=RESAMPLES)
    compared = present(analysis.pairs)
    options = ('--resamples', RESAMPLES)
    robotrials('report', path, '-o', tmp_path / 'r.json', *options)
    robotrials('report', path, '-o', tmp_path / 'r.html', *options)
    everywhere = {
        'compare': printed('compare', path, *options),
        'tables pairs': printed('tables', 'pairs', path, *options),
        'report.json': set(numbers(json.loads((tmp_path / 'r.json').read_text(encoding='utf-8')))),
        'report.html': page_numbers(tmp_path / 'r.html'),
        'python': set(numbers(front.load(path).with_plan(resamples=RESAMPLES).compare().to_dict())),
    }
    a, b = compared.decisions[0].pair
    for endpoint in compared.tested:
        for pair in endpoint.pairs:
            expected = of_contrast(analysis.contrast(pair.policy_a, pair.policy_b, endpoint.endpoint))
            assert of_contrast(pair.contrast) == expected
            for door, found in everywhere.items():
                holds(expected, magnitudes(found), door)
    success = analysis.contrast(a, b)
    gate = json.loads(run_gate(path, a, b))
    for found in gate['endpoints']:
        if found['contrast'] is not None and found['name'] in ('success', 'speed'):
            own = analysis.contrast(a, b, 'success' if found['name'] == 'success' else 'time')
            holds(of_contrast(own), magnitudes(set(numbers(found['contrast']))), f'gate {found["name"]}')
    watched = printed('watch', path, '--once')
    holds(of_contrast(success, with_p=False), magnitudes(watched), 'watch')
    audited = printed(
        'audit', 'paired', path, path, '--old-policy', b, '--new-policy', a, '--condition', 'nominal'
    )  # fmt: skip
    holds(of_contrast(success), magnitudes(audited), 'audit paired')
    changed = compare_stores(
        read_store(only(tmp_path / 'b', store, b)), read_store(only(tmp_path / 'a', store, a))
    ).policies[0]  # fmt: skip
    for shift in changed.means:
        if shift.metric in ('success', 'faster') and shift.contrast is not None:
            own = analysis.contrast(a, b, 'success' if shift.metric == 'success' else 'time')
            assert of_contrast(replace(shift.contrast, a=a, b=b)) == pytest.approx(of_contrast(own))


def run_gate(path: Path, a: str, b: str) -> str:
    arguments = ('gate', path, '-b', path, '--policy', a, '--baseline-policy', b, '--format', 'json')
    for code in (0, 1, 3):
        try:
            text = robotrials(*arguments, code=code)
        except AssertionError:
            continue
        return text[text.index('{') : text.rindex('}') + 1]
    raise AssertionError('the gate ended with another code than 0, 1 and 3')


@pytest.mark.parametrize('seed', range(6))
def test_a_condition_costs_the_same_in_robustness_and_in_the_audit(seed: int, tmp_path: Path) -> None:
    path = tmp_path / 'store'
    store = random_store(path, seed)
    if {e.condition for e in store.episodes()} == {'nominal'}:
        store.append([e.replace(condition='dim', episode_id=f'dim {e.episode_id}') for e in store.episodes()])
    drops = present(present(analyse(path, resamples=RESAMPLES).robustness).drops)
    drop = drops[0]
    found = printed(
        'audit', 'drop', path, path, '--policy', drop.policy, '--calibration-condition', 'nominal',
        '--altered-condition', 'dim',
    )  # fmt: skip
    expected = {'drop': abs(100 * drop.success_drop)} | ({} if drop.p_value is None else {'p': drop.p_value})
    holds(expected, magnitudes(found), 'audit drop')
