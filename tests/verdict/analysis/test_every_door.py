"""Every verb, table, page and Python tell the contrast's numbers of every pair, whatever the store is like.

Stores are random tables that `import` took in: two to five policies, starts that are shared, half shared, apart or not
recorded, unequal caps, repeats, conditions, invalid episodes, missing durations, several items per episode, a policy
that lacks a task.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.doors import LAYOUTS
from tests.measure.safety.random_record import random_record
from tests.measure.safety.second_scorer import Second
from tests.service.platform.service import make_service
from tests.verdict.analysis import door
from tests.verdict.analysis.door import Said, disagreements
from tests.verdict.analysis.random_table import write_table

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.safety.score import RECORD_ID
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.stats.dominance import adjusted_p_values
from robotrials.verdict.analysis import analyse, present
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import Contrast, contrast
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

PLAN = AnalysisPlan()
QUICK, MANY = (1, 2, 8, 20), range(40)
Truth = dict[tuple[frozenset[str], str], Contrast]


def truth(store: Store, *, has_items: bool = False) -> Truth:
    """The contrast of every pair and endpoint, from the episodes of the two alone."""
    arms: dict[str, list[Episode]] = {}
    for episode in store.episodes():
        arms.setdefault(episode.policy, []).append(episode)
    found: Truth = {}
    for a, b in itertools.combinations(sorted(arms), 2):
        lost = [EndpointName.LOST] if has_items else []
        for endpoint in (EndpointName.SUCCESS, EndpointName.TIME, *lost):
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


def check_every_door(seed: int, folder: Path, *, has_items: bool = False) -> None:
    table, shape = write_table(folder, seed, has_items=has_items)
    path = folder / 'store'
    robotrials('import', table, '--to', path)
    known = truth(read_store(path), has_items=has_items)
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
        assert hold(door.gate(path, a, b), known) == {key for key in asked if key[1] != 'lost'}  # a gate has no such
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


@pytest.mark.parametrize('seed', [3])
def test_every_door_tells_the_race_and_the_items_lost(seed: int, tmp_path: Path) -> None:
    check_every_door(seed, tmp_path, has_items=True)


@pytest.mark.study
@pytest.mark.parametrize('seed', range(100, 120))
def test_every_door_tells_the_race_and_the_items_lost_of_many_stores(seed: int, tmp_path: Path) -> None:
    check_every_door(seed, tmp_path, has_items=True)


# --- one policy under two conditions


def check_drops(seed: int, folder: Path) -> None:
    table, _ = write_table(folder, seed, conditions=True)
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


@pytest.mark.parametrize('seed', QUICK)
def test_every_door_tells_what_a_condition_costs(seed: int, tmp_path: Path) -> None:
    check_drops(seed, tmp_path)


@pytest.mark.study
@pytest.mark.parametrize('seed', MANY)
def test_every_door_tells_what_a_condition_costs_in_many_stores(seed: int, tmp_path: Path) -> None:
    check_drops(seed, tmp_path)


# --- the diagnostic of overfitting, which runs policies itself


OVERFIT = """
task = "reach"
grid = {grid}
repeats = {repeats}
fresh = {fresh}
time_cap_s = {cap_s}

[host]
use = "point-mass"

[policies.seek]
use = "seek"

[[changes]]
name = "wind"
condition = "drift"
parameters = {{ x_m_s = {wind} }}
"""


@pytest.mark.parametrize('seed', [0, *(pytest.param(k, marks=pytest.mark.study) for k in range(1, 6))])
def test_audit_overfit_tells_the_contrast_of_what_it_ran(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    shape = {
        'grid': rng.randint(6, 12), 'repeats': rng.randint(1, 2), 'fresh': rng.randint(8, 20), 'cap_s': 6.0,
        'wind': rng.choice((0.3, 0.55, 0.7)),
    }  # fmt: skip
    (tmp_path / 'plan.toml').write_text(OVERFIT.format(**shape), encoding='utf-8')
    work = tmp_path / 'work'
    (document,) = door.printed('audit', 'overfit', work, '--plan', tmp_path / 'plan.toml', '--workers', 0)
    told = {row['change']: row for row in document['rows']}
    assert set(told) == {'fresh sample', 'wind'}
    for change, row in told.items():
        arms = [
            [
                e.replace(condition='', condition_parameters={})
                for e in read_store(work / name.replace(' ', '-')).episodes()
            ]
            for name in ('calibration', change)
        ]
        if change == 'fresh sample':  # its numbers are those of the grid by chance
            arms[1] = [e.replace(instance=(e.instance or 0) + 1000) for e in arms[1]]
        sides = two_sides(arms[0], arms[1], PLAN, names=('nominal', change), is_condition_cell=False)
        found = contrast(*sides, endpoint=EndpointName.SUCCESS, plan=PLAN)
        numbers = {'estimate': row['drop'], 'low': row['low'], 'high': row['high']}
        assert not disagreements(Said('audit overfit', 'nominal', change, 'success', numbers), found)
        assert row['test'] == found.test


# --- the platform's board: runs that came to nothing are failures


BOARD_PLAN = """
seed = 11
episodes_per_cell = {n}
time_cap_s = 4.0
host = "point-mass"
tasks = [{{ name = "reach" }}, {{ name = "hard" }}]
conditions = [{{ name = "nominal" }}, {{ name = "drift", parameters = {{ x_m_s = 0.1 }} }}]

[analysis]
resamples = 20
primary = ["success"]
"""


def serve_board(folder: Path, seed: int) -> tuple[Any, str]:
    """The board as a platform serves it, in JSON and as a page, after three submissions with some broken runs."""
    rng = random.Random(seed)
    with make_service(folder, public_leaderboards=True) as service:
        service.benchmark(plan=BOARD_PLAN.format(n=rng.randint(3, 5)))
        worker = service.worker()
        for user in ('kim', 'eve', 'lee'):
            token, chance = service.token(user, 'submitter'), rng.random()
            submission = service.submit(token)
            while (answer := service.ask('POST', f'/submissions/{submission}/lease', token)).status_code == 200:
                lease = answer.json()['lease_id']
                job = worker.job(lease)
                if rng.random() < 0.3:
                    fault = {'kind': 'host crash', 'reason': 'the arm stopped'}
                    service.ok('POST', f'/leases/{lease}/fault', worker.token, fault)
                    service.clock.pass_(1.0)
                else:
                    outcome = Outcome.SUCCESS if rng.random() < chance else Outcome.FAILURE
                    bundle = worker.bundle(job, outcome, items_placed=None)
                    assert worker.upload(lease, bundle).status_code == 200
                worker.beat()
        served = service.ok('GET', '/benchmarks/reach/leaderboard', service.admin)
        return served, service.client.get('/benchmark/reach').text


def declared_arms(store: Store, **only: str) -> dict[str, list[Episode]]:
    """Policy -> its episodes, every invalid one as the failure that it is on a board."""
    arms: dict[str, list[Episode]] = {}
    for episode in store.episodes(where=only):
        told = episode if episode.is_valid else episode.replace(outcome=Outcome.FAILURE)
        arms.setdefault(episode.policy, []).append(told)
    return arms


@pytest.mark.parametrize(
    'seed', [0, pytest.param(1, marks=pytest.mark.study), pytest.param(2, marks=pytest.mark.study)]
)
def test_the_board_that_a_platform_serves_tells_the_contrast(seed: int, tmp_path: Path) -> None:
    served, page = serve_board(tmp_path, seed)
    store = read_store(tmp_path / 'stores' / 'reach')
    nominal, drift = (declared_arms(store, condition=c) for c in ('nominal', 'drift'))
    assert sum(not e.is_valid for e in store.episodes()) > 0
    pairs = list(itertools.combinations(sorted(nominal), 2))
    known = {
        frozenset(pair): contrast(
            *two_sides(nominal[pair[0]], nominal[pair[1]], PLAN, names=pair), endpoint=EndpointName.SUCCESS, plan=PLAN
        )
        for pair in pairs
    }
    corrected = dict(zip(known, adjusted_p_values([c.p_value for c in known.values()], 'holm'), strict=True))
    assert len(served['pairs']) == 2
    assert 'NOT AS DECLARED' not in served['statement']
    for pair in served['pairs']:
        key = frozenset((pair['policy_a'], pair['policy_b']))
        assert pair['difference'] == pytest.approx(known[key].seen_from(pair['policy_a']).estimate, abs=1e-12)
        assert pair['p_corrected'] == pytest.approx(corrected[key], abs=1e-12)
        assert f'<td class="n">{pair["difference"]:.3g}</td><td class="n">{pair["p_corrected"]:.3f}</td>' in page
    for row in served['grid']['rows']:
        arms = [
            [e.replace(condition='', condition_parameters={}) for e in side[row['policy']]] for side in (nominal, drift)
        ]
        sides = two_sides(arms[0], arms[1], PLAN, names=('nominal', 'drift'), is_condition_cell=False)
        found = contrast(*sides, endpoint=EndpointName.SUCCESS, plan=PLAN)
        (field,) = row['conditions'].values()
        truth = (found.estimate, *(found.interval or (None, None)))
        assert (field['drop'], field['low'], field['high']) == pytest.approx(truth, abs=1e-12)


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
