"""Faults of the machine under a live server: a full disk, no memory, a clock that is set, a database that goes away.

Server, workers and clients are real processes. Whatever happens, the server says it in words, and when it is over every
episode is on record once, as the policy's own, and nothing hangs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.platform.lab import HASTY, Lab, wait_for
from tests.service.postgres import new_database, running_postgres

from robotrials.record import Store
from robotrials.record.verify import verify_store

pytestmark = pytest.mark.platform

PLAN = """
seed = 8
host = 'point-mass'
tasks = ['reach']
time_cap_s = 2.5
episodes_per_cell = 12
watchdog = {policy_s = 100.0}

[analysis]
resamples = 200
"""
N_EPISODES = 12
STEADY = ('--option', 'speed_m_s=0.2', '--option', 'think_s=0.02')
LEASE_S = 12.0  # of HASTY

# Before anything else of a process: its clocks by the wall are ahead by the seconds in a file, which may change.
JUMPING_CLOCK = """
import os, time

_now, _now_ns, _path = time.time, time.time_ns, os.environ.get('JUMP_FILE', '')


def _ahead():
    try:
        with open(_path) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


if _path:
    time.time = lambda: _now() + _ahead()
    time.time_ns = lambda: _now_ns() + int(1e9 * _ahead())
"""


@contextlib.contextmanager
def lab_of(folder: Path, **more: Any) -> Iterator[Lab]:
    """A lab with one benchmark, two cells and a client that is at work."""
    lab = Lab(folder, settings=HASTY, **more)
    try:
        lab.serve()
        lab.benchmark('reach', PLAN)
        for name in ('cell-1', 'cell-2'):
            lab.worker(name, host='point-mass')
        lab.client('mine', 'reach', policy='seek', options=STEADY)
        yield lab
    finally:
        lab.close()


def n_done(lab: Lab) -> int:
    return sum(int(s['jobs'].get('done', 0)) for s in lab.submissions())


def check_all_once(lab: Lab, *, attempts: int = N_EPISODES) -> Counter[str]:
    """Run to the end: every episode is on record once, and queue, trail and store agree; outcomes by their number."""
    wait_for(lambda: lab.finished('mine'), why='the client has its score')
    assert lab.submissions()[0]['jobs'] == {'done': N_EPISODES}
    for name in [n for n in lab.processes if n != 'server']:
        lab.kill(name)
    lab.stop('server')
    lab.check()
    path = lab.server_folder / 'stores' / 'reach'
    assert verify_store(path).is_clean
    recorded = list(Store.open(path).episodes(attempts='all'))
    assert len({e.key for e in recorded}) == len(recorded) == attempts
    assert len({e.episode_id for e in recorded}) == N_EPISODES
    return Counter(e.outcome.value for e in recorded)


def lines(lab: Lab, words: str) -> int:
    return sum(words in line for line in lab.log('server').splitlines())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of 24 megabytes; skips where nothing may be mounted, or fails under CI."""
    place = tmp_path / 'lab' / 'server'
    place.mkdir(parents=True)
    mounted = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=24m', 'robotrials-test', str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        told = f'a small disk cannot be mounted, which only root may: {mounted.stderr.strip()}'
        if os.environ.get('CI') == 'true':
            pytest.fail(told)
        pytest.skip(told)
    try:
        yield tmp_path / 'lab'
    finally:
        subprocess.run(['umount', '--lazy', str(place)], check=True)


def test_a_disk_that_is_full_for_longer_than_a_lease_costs_no_episode(small_disk: Path) -> None:
    """With the database on the same disk: neither results nor heartbeats can be written."""
    with lab_of(small_disk) as lab:
        wait_for(lambda: n_done(lab) >= 2, why='episodes are done')
        ballast = lab.server_folder / 'ballast'
        with ballast.open('wb', buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        wait_for(lambda: lines(lab, 'the disk is full'), why='the server says that the disk is full')
        time.sleep(LEASE_S + 3)
        assert lines(lab, 'the disk is full') == 1
        assert lines(lab, 'the disk has room again') == 0
        assert lab.processes['server'].poll() is None
        done = n_done(lab)
        ballast.unlink()
        wait_for(lambda: lines(lab, 'the disk has room again'), why='the server says that it has room')
        wait_for(lambda: n_done(lab) > done, why='it goes on by itself')
        assert set(check_all_once(lab)) <= {'success', 'timeout'}
        assert 'Traceback' not in lab.log('server')


def test_a_server_without_memory_refuses_in_words_and_goes_on_once_it_has_some(tmp_path: Path) -> None:
    with lab_of(tmp_path / 'lab') as lab:
        wait_for(lambda: n_done(lab) >= 2, why='episodes are done')
        pid = lab.processes['server'].pid
        status = Path(f'/proc/{pid}/status').read_text()
        in_use = 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith('VmSize')))
        resource.prlimit(pid, resource.RLIMIT_AS, (in_use, resource.RLIM_INFINITY))
        time.sleep(LEASE_S / 2)
        alive = lab.processes['server'].poll() is None
        if alive:
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:  # it died of it, as by the kernel's hand; whoever runs it starts it again
            lab.processes.pop('server')
            lab.serve()
        assert set(check_all_once(lab)) <= {'success', 'timeout'}


def test_cells_that_the_kernel_kills_for_their_memory_leave_invalid_attempts_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """The kernel's way is SIGKILL in the middle of anything, of the server too."""
    with lab_of(tmp_path / 'lab') as lab:
        wait_for(lambda: n_done(lab) >= 1, why='an episode is done')
        for name in ('cell-1', 'cell-2'):
            lab.kill(name)
        lab.kill('server')
        lab.serve()
        for name in ('cell-1', 'cell-2'):
            lab.worker(name, host='point-mass')
        wait_for(lambda: lab.finished('mine'), why='the client has its score')
        found = Store.open(lab.server_folder / 'stores' / 'reach').episodes(attempts='all')
        n_invalid = sum(not e.is_valid for e in found)
        assert n_invalid <= 1  # one episode was under way, at most
        check_all_once(lab, attempts=N_EPISODES + n_invalid)


@pytest.mark.parametrize('jump_s', [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_under_a_live_server_and_its_cells_is_charged_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    shim, jump = tmp_path / 'shim', tmp_path / 'jump'
    shim.mkdir()
    (shim / 'sitecustomize.py').write_text(JUMPING_CLOCK)
    jump.write_text('0')
    monkeypatch.setenv('JUMP_FILE', str(jump))
    with lab_of(tmp_path / 'lab', packages=str(shim)) as lab:
        wait_for(lambda: n_done(lab) >= 2, why='episodes are done')
        jump.write_text(f'{jump_s}')  # of the server, the cells and the client
        wait_for(lambda: n_done(lab) >= 6, why='it goes on')
        lab.kill('server')
        jump.write_text('0')
        lab.serve()
        assert set(check_all_once(lab)) <= {'success', 'timeout'}


def test_a_database_that_is_away_for_longer_than_a_lease_costs_no_episode(tmp_path: Path, postgres: str) -> None:
    with (
        running_postgres() as database,
        lab_of(tmp_path / 'lab', database=new_database(database.url)) as lab,
    ):
        wait_for(lambda: n_done(lab) >= 2, why='episodes are done')
        for away_s in (1.0, LEASE_S + 3):
            before = lines(lab, 'the database does not answer')
            database.crash()
            wait_for(lambda n=before: lines(lab, 'the database does not answer') > n, why='the server says it')
            time.sleep(away_s)
            assert lines(lab, 'the database does not answer') == before + 1
            database.start()
            wait_for(
                lambda n=before: lines(lab, 'the database answers again') > n, why='the server says that it is back'
            )
        assert set(check_all_once(lab)) <= {'success', 'timeout'}
        assert 'Traceback' not in lab.log('server')
