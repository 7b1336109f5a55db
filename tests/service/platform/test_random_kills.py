"""kill -9 at random points, for a bounded time: afterwards everything that was accepted is accounted for, once.

Workers end as the kernel ends them when memory runs out, and PostgreSQL crashes and comes back. `make soak` does the
same for longer (ROBOTRIALS_SOAK_S).
"""

import collections
import os
import random
import time

import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.lab import HASTY, lab_in, wait_for
from tests.service.postgres import new_database, running_postgres

from robotrials.record import Outcome, Store
from robotrials.record.verify import verify_store

pytestmark = pytest.mark.platform

PLAN = """
seed = 8
host = 'point-mass'
tasks = ['reach']
time_cap_s = 2.5
episodes_per_cell = EPISODES
watchdog = {policy_s = 100.0}

[analysis]
resamples = 200
"""
SLOW = ('--option', 'speed_m_s=0.05', '--option', 'think_s=0.04')
WORKERS, CLIENTS = ('cell-1', 'cell-2'), ('mine', 'yours', 'theirs')
KILLING_S = float(os.environ.get('ROBOTRIALS_SOAK_S', '45'))  # on each kind of database
SETTLING_S = 600.0 + KILLING_S
N_EPISODES = int(6 * max(1.0, KILLING_S / 45.0))  # of each client
LEAST_KILLS = 5
SEED = int(os.environ.get('ROBOTRIALS_KILL_SEED', '20261116'))


def start(lab, name):
    if name == 'server':
        lab.serve()
    elif name in WORKERS:
        lab.worker(name, host='point-mass')
    else:
        lab.client(name, 'reach', policy='seek', options=SLOW)


@pytest.fixture(params=['sqlite', 'postgresql'])
def database(request):
    """Nothing for SQLite, or a PostgreSQL that can crash."""
    if request.param == 'sqlite':
        yield None
        return
    request.getfixturevalue('postgres')  # skips or fails where its programs are missing
    with running_postgres() as server:
        yield server


def test_whatever_is_killed_nothing_is_lost_and_nothing_counted_twice(tmp_path, database):
    rng, killed = random.Random(SEED), collections.Counter()
    url = '' if database is None else new_database(database.url)
    victims = ['server', *WORKERS, *CLIENTS, *([] if database is None else ['database'])]
    with lab_in(tmp_path, database=url, settings=HASTY) as lab:
        lab.benchmark('reach', PLAN.replace('EPISODES', str(N_EPISODES)))
        for name in (*WORKERS, *CLIENTS):
            start(lab, name)
        ends = time.monotonic() + KILLING_S
        while time.monotonic() < ends or sum(killed.values()) < LEAST_KILLS:
            time.sleep(rng.uniform(0.2, 2.5))
            victim = rng.choice(victims)
            if victim == 'database':
                database.crash()
                killed[victim] += 1
                time.sleep(rng.uniform(0.0, 3.0))
                database.start()
            elif lab.processes[victim].poll() is None:
                lab.kill(victim)
                killed[victim] += 1
                time.sleep(rng.uniform(0.0, 1.0))
                start(lab, victim)
        wait_for(
            lambda: all(s['state'] == 'finished' for s in lab.submissions()),
            seconds=SETTLING_S, why='every accepted submission is finished',
        )  # fmt: skip
        submissions = lab.submissions()
        audit = lab.api().get('/audit/check')[1]
        results = {
            s['id']: lab.api('kim').get(f'/submissions/{s["id"]}/score', timeout_s=PATIENCE_S)[1] for s in submissions
        }
        for name in [*WORKERS, *CLIENTS, 'server']:
            lab.kill(name)
        told = lab.check()  # queue, trail and store agree
    assert {s['name'] for s in submissions} == set(CLIENTS)
    assert audit['is_whole'], audit
    assert 'audit' in told
    path = lab.server_folder / 'stores' / 'reach'
    assert verify_store(path).is_clean  # a killed server may leave drafts, and no damage
    recorded = list(Store.open(path).episodes(attempts='all'))
    assert len({e.key for e in recorded}) == len(recorded)
    by_id = collections.defaultdict(list)
    for episode in recorded:
        by_id[episode.episode_id].append(episode)
    for score in results.values():
        assert len(score['results']) == N_EPISODES
        assert len({r['number'] for r in score['results']}) == N_EPISODES
        for result in score['results']:
            attempts = by_id.pop(result['episode_id'])
            valid = [e for e in attempts if e.is_valid]
            assert len(attempts) <= 2  # requeued once
            assert all(e.reason for e in attempts if not e.is_valid)
            if result['state'] == 'done':
                assert [e.outcome.value for e in valid] == [result['outcome']]
            else:
                assert (result['state'], result['outcome']) == ('invalid', 'invalid')
                assert not valid
                assert result['reason']
    assert not by_id  # and nothing on record that nobody asked for
    print(dict(killed), collections.Counter(Outcome(e.outcome).value for e in recorded))
