"""The whole of it with real processes: a server, two cells, three clients, one blinded trial to its leaderboard."""

import contextlib
import signal

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.lab import lab_in, wait_for

from robotrials.measure.geometry.projection import Rescoring, camera_scores
from robotrials.record import Outcome, Store, read_store
from robotrials.record.verify import verify_store
from robotrials.service.platform.bundle import unpack_bundle
from robotrials.service.platform.client import Submitter

pytest.importorskip('mujoco')
pytestmark = pytest.mark.platform

PLAN = """
title = 'one block'
seed = 5
host = {use = 'tabletop', options = {state = 'privileged', stop_force_n = 400.0}}
tasks = ['single_block']
time_cap_s = 15.0
episodes_per_cell = 2
watchdog = {host_s = 600.0, policy_s = 300.0}

[analysis]
resamples = 200
"""
TEMPERS = ('careful', 'hasty', 'drifting')


def test_a_blinded_trial_from_submission_to_leaderboard(tmp_path, database_url):
    with lab_in(tmp_path, database=database_url) as lab:
        lab.benchmark('block', PLAN, mode='trial', arms=3)
        for name in ('cell-1', 'cell-2'):
            lab.worker(name)
        for temper in TEMPERS:
            lab.client(f'policy-{temper}', 'block', policy='scripted', options=('--option', f'temper={temper}'))
        wait_for(lambda: all(lab.finished(f'policy-{t}') for t in TEMPERS), seconds=900, why='every client is finished')
        told = [lab.output(f'policy-{temper}') for temper in TEMPERS]
        assert all(score['jobs'] == {'done': 2} for score in told)
        assert not any(score['is_open'] or score['results'] or score['letters'] for score in told)
        assert not any(f'policy-{t}' in str(lab.cells()) + lab.log('cell-1') + lab.log('cell-2') for t in TEMPERS)

        lab.api().post('/benchmarks/block/close', {'why': ''})
        board = lab.api().get('/benchmarks/block/leaderboard', timeout_s=PATIENCE_S)[1]
        assert {row['policy'] for row in board['rows']} == {f'kim/policy-{temper}' for temper in TEMPERS}
        for row in board['rows']:
            assert row['values']['success']['n'] == 2
            assert row['values']['expected_iou']['value'] is not None

        with contextlib.closing(Submitter(lab.url, lab.token('kim'))) as platform:
            mine = next(s['id'] for s in lab.submissions() if s['name'] == 'policy-careful')
            episodes = platform.episodes(mine)
            bundle = unpack_bundle(platform.bundle(mine, episodes[0]['episode_id']))
        assert bundle.trajectory is not None
        assert bundle.episode.labels['reset_check'] == 'as planned'

        assert (lab.stop('cell-1'), lab.stop('cell-2')) == (0, 0)
        assert lab.stop('server') in (0, -signal.SIGTERM)  # its loop ends well, and then says why it ended
        lab.check()
        path = lab.server_folder / 'stores' / 'block'
        assert not verify_store(path).findings
        store = Store.open(path)
        recorded = list(store.episodes(attempts='all'))
        assert len(recorded) == 6
        assert {e.outcome for e in recorded} <= set(Outcome) - {Outcome.INVALID}
        assert {e.policy for e in read_store(path).episodes()} == {f'kim/policy-{temper}' for temper in TEMPERS}
        for temper_seeds in _seeds(recorded).values():
            assert temper_seeds == next(iter(_seeds(recorded).values()))
        for episode in recorded:
            trajectory = store.trajectory(episode)
            assert trajectory.network_latency_s is not None
            assert trajectory.transport_latency_s is not None


def test_a_benchmark_is_scored_from_the_cameras_of_the_cells_that_have_some(tmp_path):
    """A cell without cameras gives the job back; the host's outcome stays, the board is the cameras'."""
    watched = PLAN.replace('stop_force_n', "watchers = ['front', 'side'], stop_force_n")
    with lab_in(tmp_path) as lab:
        lab.benchmark('seen', watched.replace('[analysis]', "[analysis]\nsuccess = 'reconstruction'"))
        lab.worker('blind', options=('--option', 'watchers=[]'))
        lab.worker('seeing')
        wait_for(lambda: [c['state'] for c in lab.cells().values()] == ['idle'] * 2, why='both cells are in service')
        lab.client('careful', 'seen', policy='scripted', options=('--option', 'temper=careful'))
        wait_for(lambda: lab.finished('careful'), seconds=900, why='the client is finished')
        score = lab.output('careful')
        assert score['jobs'] == {'done': 2}
        board = lab.api().get('/benchmarks/seen/leaderboard', timeout_s=PATIENCE_S)[1]
        (row,) = board['rows']
        assert row['values'] == score['values']
        assert 'what RGB-D cameras show' in board['source']
        assert 'Cameras scored 2 of 2 episodes, 2 of 2 as the host has it' in board['source']
        assert row['values']['success']['value'] == 1.0
        with contextlib.closing(Submitter(lab.url, lab.token('kim'))) as platform:
            mine = lab.submissions()[0]['id']
            bundle = unpack_bundle(platform.bundle(mine, platform.episodes(mine)[0]['episode_id']))
        assert {'known.json', 'start.zip', 'end.zip', 'score.json'} <= {n.rpartition('/')[2] for n in bundle.media}
        lab.stop('seeing')
        if 'no calibrated RGB-D views' not in lab.log('blind'):  # the other cell was given every job; now there is none
            lab.client('again', 'seen', policy='scripted', options=('--option', 'temper=hasty'))
            wait_for(lambda: 'no calibrated RGB-D views' in lab.log('blind'), why='the cell says what it lacks')
        lab.stop('server')
        path = lab.server_folder / 'stores' / 'seen'
        assert not verify_store(path).findings
        store = read_store(path)
        recorded = list(store.episodes())
        assert {e.operator for e in recorded} == {'seeing'}
        scores = camera_scores(store, recorded, rescoring=Rescoring.ALL)
        assert np.mean([scores[e.key].iou for e in recorded]) == pytest.approx(row['values']['expected_iou']['value'])


def _seeds(recorded):
    seeds = {}
    for episode in recorded:
        seeds.setdefault(episode.policy, set()).add((episode.task, episode.seed))
    return seeds
