"""A search over stall, hang-up, refuse, cancel, pick, answer late and probe: none beats honest play of the same policy.

The policy is a coin: honest play scores the share of heads among the declared episodes. A cheater flips the same coin
when it is granted a cell, wins on heads, and does something else than lose on tails. If any of it gave a second flip,
its score would rise above its own first flips; it may not, in a single world of the search.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.cheater import MOVES, Cheater, Visit, play, win
from tests.service.platform.cheating_search import PLAN as SEARCHED
from tests.service.platform.cheating_search import SETTINGS, search
from tests.service.platform.desk import Desk, job
from tests.service.platform.lab import Lab, lab_in, wait_for
from tests.service.platform.service import Service, WorkerMoves

from robotrials.service.platform.job import LeaseClaim, LeaseGuard
from robotrials.service.platform.link import ErrorCode
from robotrials.service.platform.worker import CellWorker, WorkerOptions
from robotrials.service.platform.worker_episode import Attempt, CellOptions

PLAN = """
seed = 3
host = 'point-mass'
tasks = [{name = 'reach'}, {name = 'far'}]
episodes_per_cell = 2
time_cap_s = 1.5

[watchdog]
policy_s = 1.0
thinking_s = 1.2

[recording]
trajectories = false
film = false

[analysis]
resamples = 200
primary = ['success']
"""
N_EPISODES = 4
SEARCH_S = float(os.environ.get('ROBOTRIALS_CHEAT_S', '40'))


class Cell(Desk):
    """A cell whose clients show the server's tokens, and whose results go to the server."""

    def __init__(self, service: Service, worker: WorkerMoves) -> None:
        super().__init__()
        self.service, self.moves, self.is_busy = service, worker, False
        self.guard = LeaseGuard(worker.secret.encode(), worker_id=worker.worker_id)

    def admit(self, given: str) -> Any:
        return self.guard.admit(given, now_s=self.service.clock())

    def take(self, claim: Any, link: Any) -> Any:
        """As a worker does: one at a time, and whoever is turned away is reported."""
        if self.is_busy:
            body = {'kind': 'turned away', 'reason': 'an episode is under way here'}
            self.service.ask('POST', f'/leases/{claim.lease_id}/fault', self.moves.token, body)
            return ErrorCode.BUSY, body['reason']
        if self.service.ask('GET', f'/leases/{claim.lease_id}/job', self.moves.token).status_code != 200:
            return ErrorCode.LEASE_VOID, 'the server does not hold this lease'
        self.is_busy = True
        return super().take(claim, link)

    def serve(self, lease_id: str, client: Any) -> None:
        """One episode with a client in a thread, to its upload."""
        job = self.moves.job(lease_id)
        attempt, _ = self.run(job, client)
        self.is_busy = False
        assert isinstance(attempt, Attempt), attempt
        assert self.moves.upload(lease_id, attempt.bundle).status_code in (200, 410)


def one_submission(service: Service, cell: Cell, token: str, name: str, cheater: Cheater, moves: list[str]) -> str:
    """Play a submission to its end, or to where it is cancelled."""
    submission = service.submit(token, name)
    while True:
        answer = service.ask('POST', f'/submissions/{submission}/lease', token)
        if answer.status_code == 410:
            return submission
        assert answer.status_code == 200, answer.text
        lease, again = answer.json(), service.lease(submission, token)
        assert again is not None
        visit = Visit(cell.url, lease['token'], again['token'], stall_s=0.4, late_s=1.3)
        if cheater.flip():
            cell.serve(lease['lease_id'], lambda v=visit: win(v))
        elif (move := cheater.choose(moves)) == 'does not come':  # or: waits for a cell that suits
            service.clock.pass_(service.platform.config.claim_s + 1)
            cell.moves.beat()
            service.platform.sweep()
        elif move == 'cancels':
            cell.moves.job(lease['lease_id'])
            service.ok('POST', f'/submissions/{submission}/cancel', token)
            service.platform.sweep()
        else:
            cell.serve(lease['lease_id'], lambda v=visit, m=move: play(v, m))
        cell.moves.beat()


def scores(service: Service) -> dict[str, float]:
    rows = service.ok('GET', '/benchmarks/reach/leaderboard', service.admin)['rows']
    return {row['policy']: row['values']['success']['value'] for row in rows}


@pytest.fixture
def cell(service: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr('robotrials.service.platform.worker_episode.GREET_S', 0.3)
    service.benchmark(plan=PLAN)
    made = Cell(service, service.worker())
    yield made
    made.close()


EVERY = [*MOVES, 'does not come', 'cancels']


def test_no_move_gives_a_second_flip(service: Service, cell: Cell) -> None:
    """Each move alone, on every tail of a submission."""
    eve = service.token('eve', 'submitter')
    service.ok('PUT', '/users/eve/quota', service.admin,
               {'open_submissions': 100, 'submissions_per_day': 1000, 'requests_per_minute': 100000})  # fmt: skip
    cheaters = {move: Cheater(np.random.default_rng(number)) for number, move in enumerate(EVERY)}
    names = {move: f'try-{number}' for number, move in enumerate(EVERY)}
    for move, cheater in cheaters.items():
        one_submission(service, cell, eve, names[move], cheater, [move])
        assert len(cheater.flips) <= N_EPISODES, move
    found = scores(service)
    assert {m: found[f'eve/{names[m]}'] for m in EVERY} == {m: sum(c.flips) / N_EPISODES for m, c in cheaters.items()}
    assert not all(all(c.flips) for c in cheaters.values())  # there were tails to get out of


def test_a_client_that_comes_twice_at_once_is_not_turned_away_from_its_lease(tmp_path: Path) -> None:
    """While the server is asked about the first visit, a second gives nothing back: it would choose its cell so."""
    asked, answered = threading.Event(), threading.Event()
    told: list[str] = []

    class SlowServer:
        server = 'slow'

        def get(self, path: str) -> tuple[int, Any]:
            asked.set()
            assert answered.wait(PATIENCE_S)
            return 200, job().as_json()

        def post(self, path: str, body: Any = None) -> None:
            told.append(path)

    options = WorkerOptions(
        server='http://127.0.0.1:1', token='x', name='cell', cell=CellOptions(host='point-mass'), folder=tmp_path
    )
    worker = CellWorker(options)
    worker._api = SlowServer()  # type: ignore[assignment]
    claim = LeaseClaim(lease_id='lea1', worker_id='w1', job_id='j1', expires_at=time.time() + 60, nonce='n')
    first: list[Any] = []
    coming = threading.Thread(target=lambda: first.append(worker.take(claim, None)))  # type: ignore[arg-type]
    coming.start()
    assert asked.wait(PATIENCE_S)
    second = worker.take(claim, None)  # type: ignore[arg-type]
    answered.set()
    coming.join(PATIENCE_S)
    assert second is not None
    assert (second[0], first, told) == (ErrorCode.BUSY, [None], [])


def test_a_bundle_that_is_sent_while_a_heartbeat_looks_at_the_spool_does_not_end_the_heartbeats(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by the search: the thread ended, and two minutes later the worker, in the middle of an episode."""
    options = WorkerOptions(
        server='http://127.0.0.1:1', token='x', name='cell', cell=CellOptions(host='point-mass'), folder=tmp_path
    )
    worker = CellWorker(options)
    (tmp_path / 'waiting' / 'gone.bundle').symlink_to('nowhere')  # listed, and not there
    worker._spool.put('lea1', b'x')
    assert worker._spool.leases() == ('lea1',)
    beats: list[int] = []

    def heartbeat() -> None:
        beats.append(1)
        if len(beats) == 3:
            worker._gone.set()
        raise FileNotFoundError('gone')

    worker._heartbeat, worker._heartbeat_s = heartbeat, 0.01  # type: ignore[method-assign]
    try:
        worker._beat()
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert len(beats) == 3
    assert [r.message for r in caplog.records] == ['heartbeat failed'] * 3


@pytest.mark.platform
def test_no_strategy_found_by_search_turns_a_lost_episode_at_real_cells(tmp_path: Path) -> None:
    """A bound on what was tried, not a proof; ROBOTRIALS_CHEAT_S for a longer search (`make cheat`)."""
    with lab_in(tmp_path, settings=SETTINGS) as lab:
        lab.benchmark('reach-0', SEARCHED)
        for name in ('one', 'two'):
            lab.worker(name, host='point-mass')
        wait_for(lambda: are_idle(lab), why='both cells are idle')
        lab.client('honest', 'reach-0', policy='seek', options=('--option', 'speed_m_s=3.0'))
        wait_for(lambda: lab.finished('honest'), why='an honest rival has finished')
        before = board(lab)['kim/honest']
        result = search(lab, seconds=SEARCH_S)
        print(result)
        assert result.turned == []
        assert result.n_lost >= 20
        wait_for(lambda: are_idle(lab), why='no cell was driven out of service')
        rows = board(lab)
        assert rows['kim/honest']['values']['success']['value'] == before['values']['success']['value'] == 1.0
        assert rows['kim/honest']['n_of_account'] == 1
        eves = Counter(policy.partition('/')[0] for policy in rows)
        assert all(row['n_of_account'] == eves[policy.partition('/')[0]] for policy, row in rows.items())
        lab.check()


def are_idle(lab: Lab) -> bool:
    return [cell['state'] for cell in lab.cells().values()] == ['idle', 'idle']


def board(lab: Lab) -> dict[str, Any]:
    rows = lab.api().get('/benchmarks/reach-0/leaderboard', timeout_s=PATIENCE_S)[1]['rows']
    return {row['policy']: row for row in rows}
