"""Every verb, table, page and Python tell the contrast's numbers of every pair, whatever the store is like.

Stores are random tables that `import` took in: two to five policies, starts that are shared, half shared, apart or not
recorded, unequal caps, repeats, conditions, invalid episodes, missing durations, a policy that lacks a task.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.doors import LAYOUTS
from tests.measure.safety.random_record import random_record
from tests.measure.safety.second_scorer import Second
from tests.verdict.analysis import door
from tests.verdict.analysis.door import Said, disagreements
from tests.verdict.analysis.random_table import rows_of, shape_of, write_table

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.safety.score import RECORD_ID
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.service.platform.score import Board, make_board
from robotrials.service.platform.standing import Standing, Standings
from robotrials.stats.dominance import adjusted_p_values
from robotrials.verdict.analysis import analyse, present
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import Cells, Contrast, contrast
from robotrials.verdict.analysis.outcome_contrast import overfit_interval
from robotrials.verdict.audit import read_outcomes
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

PLAN = AnalysisPlan()
QUICK, MANY = (1, 2, 8, 20), range(40)
Truth = dict[tuple[frozenset[str], str], Contrast]


def truth(store: Store) -> Truth:
    """The contrast of every pair and endpoint, from the episodes of the two alone."""
    arms: dict[str, list[Episode]] = {}
    for episode in store.episodes():
        arms.setdefault(episode.policy, []).append(episode)
    found: Truth = {}
    for a, b in itertools.combinations(sorted(arms), 2):
        for endpoint in (EndpointName.SUCCESS, EndpointName.TIME):
            try:
                sides = two_sides(arms[a], arms[b], PLAN, names=(a, b))
                found[frozenset((a, b)), endpoint.value] = contrast(*sides, endpoint=endpoint, plan=PLAN)
            except (InputError, NotEstimable):
                continue  # no cell in common, or what took how long is not known
    return found


def hold(said: Iterable[Said], known: Truth) -> set[tuple[frozenset[str], str]]:
    """What was told, every number of it the contrast's."""
    told = set()
    for one in said:
        key = frozenset((one.a, one.b)), one.endpoint
        assert key in known, f'{one} where there is no contrast'
        assert not disagreements(one, known[key])
        told.add(key)
    return told


def conditions_truth(store: Store) -> dict[tuple[str, str], Contrast]:
    """(policy, condition) -> the baseline against it."""
    arms: dict[tuple[str, str], list[Episode]] = {}
    for episode in store.episodes():
        arms.setdefault((episode.policy, episode.condition), []).append(episode.replace(condition=''))
    found = {}
    for (policy, condition), altered in arms.items():
        if condition != 'nominal':
            names = 'nominal', condition
            sides = two_sides(arms[policy, 'nominal'], altered, PLAN, names=names, is_condition_cell=False)
            found[policy, condition] = contrast(*sides, endpoint=EndpointName.SUCCESS, plan=PLAN)
    return found


def only(folder: Path, table: Path, policy: str) -> Path:
    """A store of one policy's rows, under the name x."""
    path = folder / f'{policy}{table.suffix}'
    lines = table.read_text(encoding='utf-8').splitlines()
    if table.suffix == '.csv':
        own = [lines[0], *(line.replace(f'{policy},', 'x,', 1) for line in lines[1:] if line.startswith(f'{policy},'))]
    else:
        own = [json.dumps(row | {'policy': 'x'}) for row in map(json.loads, lines) if row['policy'] == policy]
    path.write_text('\n'.join(own), encoding='utf-8')
    robotrials('import', path, '--to', folder / f'of {policy}')
    return folder / f'of {policy}'


def check_every_door(seed: int, folder: Path) -> None:
    table, shape = write_table(folder, seed)
    path = folder / 'store'
    robotrials('import', table, '--to', path)
    known = truth(read_store(path))
    ranked = set(present(analyse(path, resamples=20).frame).policies)
    wanted = {key for key in known if key[0] <= ranked}
    nominal = read_store(path).episodes(where={'condition': 'nominal'})
    is_timed = all(e.duration_s is not None for e in nominal if e.is_valid)
    wanted = {key for key in wanted if is_timed or key[1] != 'time'}  # time is an endpoint where everything is timed
    everyone = {
        'compare': door.compare(path), 'tables': door.tables(path), 'python': door.python(path),
        'report.json': door.report_json(path, folder), 'report.html': door.report_page(path, folder),
    }  # fmt: skip
    for name, said in everyone.items():
        pairs = [one for one in said if 'nominal' not in (one.a, one.b)]  # drops have a test of their own
        assert hold(pairs, known) == wanted, f'{name} is silent on a pair'
    assert hold(door.watch(path), known) == {key for key in wanted if key[1] == 'success'}
    for a, b in itertools.permutations(shape.policies, 2):
        asked = {key for key in known if key[0] == {a, b}}
        if not asked or random.Random(f'{seed} {a} {b}').random() < 0.5:
            continue  # either order will do
        assert hold(door.gate(path, a, b), known) == asked
        assert hold(door.audit_paired(path, a, b, 'nominal'), known) <= asked
        before = door.report_before(only(folder, table, b), only(folder, table, a), a, b, folder)
        assert hold(before, known) == asked
        asked = {key for key in asked if is_timed or key[1] != 'time'}
        assert hold(door.compare_pair(path, a, b), known) == asked
        assert hold(door.python_pair(path, a, b), known) == asked


@pytest.mark.parametrize('seed', QUICK)
def test_every_door_tells_the_contrast(seed: int, tmp_path: Path) -> None:
    check_every_door(seed, tmp_path)


@pytest.mark.study
@pytest.mark.parametrize('seed', MANY)
def test_every_door_tells_the_contrast_of_many_stores(seed: int, tmp_path: Path) -> None:
    check_every_door(seed, tmp_path)


# --- one policy under two conditions


def check_drops(seed: int, folder: Path) -> None:
    table, shape = write_table(folder, seed, conditions=True)
    path = folder / 'store'
    robotrials('import', table, '--to', path)
    known = conditions_truth(read_store(path))
    doors = {
        'robustness': door.robustness(path), 'tables condition-drops': door.table_drops(path),
        'Python': door.python_drops(path), 'report.json': door.report_json(path, folder),
        'report.html': door.report_page(path, folder),
    }  # fmt: skip
    for name, said in doors.items():
        drops = [one for one in said if one.a == 'nominal']
        assert not [wrong for one in drops for wrong in disagreements(one, known[one.door.rpartition(' ')[2], one.b])]
        assert {(one.door.rpartition(' ')[2], one.b) for one in drops} == set(known), f'{name} is silent on a drop'
    for policy, condition in known:
        assert not disagreements(door.audit_drop(path, policy, condition), known[policy, condition])
        runs = [read_outcomes(path, policy=policy, condition=c) for c in ('nominal', condition)]
        interval, test = overfit_interval(runs[0], runs[1], 0.95)
        own = known[policy, condition]
        assert (interval is None, test) == (own.interval is None, own.test)
        if interval is not None and own.interval is not None:  # sums run in another order
            assert (interval.low, interval.high) == pytest.approx((own.interval.low, own.interval.high), abs=1e-12)
    board = board_of(path, shape.policies)
    for row in board.grid.rows:
        for condition, field in row.conditions.items():
            found = known[row.policy, condition]
            truth = (found.estimate, *(found.interval or (None, None)))
            assert (field.drop, field.low, field.high) == pytest.approx(truth, abs=1e-12)  # sums run in another order


@pytest.mark.parametrize('seed', QUICK)
def test_every_door_tells_what_a_condition_costs(seed: int, tmp_path: Path) -> None:
    check_drops(seed, tmp_path)


@pytest.mark.study
@pytest.mark.parametrize('seed', MANY)
def test_every_door_tells_what_a_condition_costs_in_many_stores(seed: int, tmp_path: Path) -> None:
    check_drops(seed, tmp_path)


# --- the platform's board: runs that came to nothing are failures


def board_of(path: Path, policies: Sequence[str]) -> Board:
    ranked = tuple(
        Standing(policy=p, account=p, state='finished', reason='', missing=(), n_of_account=1) for p in policies
    )
    analysis = analyse(path, resamples=20)
    analysis.cells = Cells.DECLARED
    return make_board('b', {1: analysis}, Standings(ranked=ranked))


def declared_truth(store: Store) -> dict[frozenset[str], Contrast]:
    """Success of every pair as if every invalid episode had been recorded as a failure."""
    arms: dict[str, list[Episode]] = {}
    for episode in store.episodes():
        arms.setdefault(episode.policy, []).append(
            episode if episode.is_valid else episode.replace(outcome=Outcome.FAILURE)
        )
    return {
        frozenset((a, b)): contrast(
            *two_sides(arms[a], arms[b], PLAN, names=(a, b)), endpoint=EndpointName.SUCCESS, plan=PLAN
        )
        for a, b in itertools.combinations(sorted(arms), 2)
    }


@pytest.mark.parametrize('seed', [1, 4, 6, 10])
def test_the_board_tells_the_contrast_on_the_declared_cells(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    shape = replace(shape_of(rng, conditions=False), absent='', timed='none', longer='')
    (tmp_path / 'table.jsonl').write_text('\n'.join(map(json.dumps, rows_of(shape, rng))), encoding='utf-8')
    robotrials('import', tmp_path / 'table.jsonl', '--to', tmp_path / 'store')
    known = declared_truth(read_store(tmp_path / 'store'))
    pairs = list(known)
    corrected = dict(zip(pairs, adjusted_p_values([known[p].p_value for p in pairs], 'holm'), strict=True))
    found = board_of(tmp_path / 'store', shape.policies)
    assert len(found.pairs) == len(shape.policies) - 1
    for pair in found.pairs:
        key = frozenset((pair.policy_a, pair.policy_b))
        assert pair.difference == pytest.approx(known[key].seen_from(pair.policy_a).estimate)
        assert pair.p_corrected == pytest.approx(corrected[key])


# --- safety


@pytest.mark.parametrize('seed', range(2))
def test_every_door_tells_the_contrast_of_safety(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    made = [random_record(rng, number // 2, 'pq'[number % 2], benchmark='libero-10') for number in range(40)]
    path = tmp_path / 'store'
    robotrials('import', LAYOUTS['lines'](made, tmp_path), '--to', path)
    scores = {(r['policy'], r['episode_id']): Second(r) for r in made}
    episodes = list(read_store(path).episodes())
    arms = [[e for e in episodes if e.policy == p] for p in 'pq']
    sides = two_sides(arms[0], arms[1], PLAN, names=('p', 'q'))

    def unsafe(episode: Episode) -> float:
        second = scores[episode.policy, episode.labels[RECORD_ID]]
        return float(any(m < 0 for m in second.margins().values()))

    safer = contrast(*sides, endpoint=EndpointName.SAFETY, plan=PLAN, value=lambda e: 1 - unsafe(e))
    worse = contrast(*sides, endpoint=EndpointName.SAFETY, plan=PLAN, value=unsafe)
    said = [one for one in door.gate(path, 'p', 'q') if one.endpoint == 'safety']
    said += door.safety_pairs(door.printed('compare', path, *door.RESAMPLES))
    assert [one.door for one in said] == ['gate', 'compare']
    assert not [wrong for one in said for wrong in disagreements(one, safer)]
    assert not disagreements(door.safety_compare(path, 'p', 'q'), worse)
