"""Writers are killed at random points: what they acknowledged is there, and nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from robotrials.record import Store
from robotrials.record.maintain import compact_store
from robotrials.record.verify import verify_store

KILLS = 200
WRITERS = 4

# One process imports everything once and forks a writer for each line it is given: killing happens while writing.
NURSERY = """
import os, signal, sys
import numpy as np
from robotrials.record import Episode, Event, Store, Trajectory

def write(first, ledger_path):
    store, ledger = Store.open(sys.argv[1]), os.open(ledger_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    steps = np.arange(20.0)
    for seed in range(first, first + 100_000):
        placed = (Event(1.0, 'placement'),)
        episode = Episode(policy='p', task='t', outcome='success', duration_s=3.0, seed=seed, events=placed)
        path = Trajectory(time_s=steps, joint_position_rad=np.full((20, 7), float(seed)))
        store.append([episode], trajectories={episode.key: path})
        os.write(ledger, b'%d\\n' % seed)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    first, ledger_path = line.split()
    pid = os.fork()
    if pid == 0:
        write(int(first), ledger_path)
    print(pid, flush=True)
"""


class Nursery:
    def __init__(self, store: Path) -> None:
        command = [sys.executable, '-c', NURSERY, str(store)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.running: list[int] = []

    def start_writer(self, first: int, ledger: Path) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(first, ledger, file=self.process.stdin, flush=True)
        self.running.append(int(self.process.stdout.readline()))

    def kill_writer(self, index: int) -> None:
        os.kill(self.running.pop(index), signal.SIGKILL)

    def close(self) -> None:
        while self.running:
            self.kill_writer(0)
        self.process.communicate(timeout=PATIENCE_S)


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_when_four_writers_are_killed_200_times(tmp_path: Path) -> None:
    rng = random.Random(20260101)
    store = Store.create(tmp_path / 's')
    ledgers: list[Path] = []
    nursery = Nursery(store.path)

    def start() -> None:
        ledgers.append(tmp_path / f'ledger-{len(ledgers)}')
        nursery.start_writer(1_000_000 * len(ledgers), ledgers[-1])

    def written() -> int:
        return sum(ledger.stat().st_size for ledger in ledgers if ledger.exists())

    try:
        for _ in range(WRITERS):
            start()
        for _ in range(KILLS):
            before, ends_s = written(), time.monotonic() + PATIENCE_S
            while written() == before and time.monotonic() < ends_s:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.04))
            nursery.kill_writer(rng.randrange(WRITERS))
            start()
    finally:
        nursery.close()
    acknowledged = {int(line) for ledger in ledgers if ledger.exists() for line in ledger.read_text().split()}
    assert len(acknowledged) > KILLS / 2
    verification = verify_store(store.path)
    assert verification.is_clean, verification.findings[:5]
    found = {episode.seed: float(path.joint_position_rad[0, 0]) for episode, path in store.trajectories()}
    assert acknowledged <= found.keys()
    assert all(value == seed for seed, value in found.items())
    assert all(len(e.events) == 1 for e in store.episodes())
    compact_store(store.path, stale_after_s=0)
    assert verify_store(store.path).findings == ()
    assert {e.seed for e in store.episodes()} == found.keys()
