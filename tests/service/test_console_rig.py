"""A console trial on a rig that is driven over rosbridge as if it were real, from sealing to scoring."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.stats import binom
from tests.browser import Browser
from tests.cli.command import robotrials, words
from tests.patience import PATIENCE_S
from tests.service.consoles import account, action, make_desk
from tests.service.consoles import sealed as sealed_trial
from tests.service.postgres import free_port
from tests.service.rig import TASK, BagRecorder, Driver, host_options
from tests.service.test_console import ask, start
from tests.service.test_console_page import opened, waits_for, waits_until_sent
from tests.worlds.bridge import CellBridge

from robotrials.policies.server import OfferedPolicy, PolicyServer, WireNames
from robotrials.record import EventKind, Store, read_store
from robotrials.record.footage import END, kept_views
from robotrials.service.console import create_console
from robotrials.service.explorer import create_explorer
from robotrials.service.review import create_review
from robotrials.worlds.cell.scene import BIN_INNER_M, SOURCE_CENTER_M, TARGET_CENTER_M
from robotrials.worlds.cell.scripted import ScriptedPolicy
from robotrials.worlds.cell.task import STATE_WIDTH

ITEMS, CAP_S = 2, 45.0
AHEAD_S = 37.25  # the robot's computer has no time service
N_EPISODES = 9
NOON_S = 1_790_000_000.0
PUBLISHED_PRECISION, PUBLISHED_RECALL = 0.964, 0.993  # docs/concepts/annotation.md, without noise
ARMS = {'marmot-xl': 'steady', 'lemming-s': 'hasty'}
REACTION_S = 0.25


def rig_clock() -> float:
    return time.time() + AHEAD_S


@contextmanager
def policy_servers(*tempers: str) -> Iterator[dict[str, Served]]:
    """A server on openpi's wire for each temper, as each checkpoint of a lab has its own."""
    serving = {temper: Served(temper) for temper in tempers}
    try:
        yield serving
    finally:
        for server in serving.values():
            server.close()


class Served(PolicyServer):
    """A scripted policy on openpi's wire, which counts its sessions."""

    def __init__(self, temper: str) -> None:
        self.n_sessions = 0
        names = WireNames({}, {'observation/state': (0, STATE_WIDTH)}, 'prompt')
        offered = OfferedPolicy(ScriptedPolicy(temper=temper), state_width=STATE_WIDTH, names=names)
        begin = offered.start

        def start(instruction: str, *, seed: int) -> Any:
            self.n_sessions += 1
            return begin(instruction, seed=seed)

        offered.start = start  # type: ignore[method-assign]
        super().__init__(offered, wire='openpi')
        self.url = f'ws://127.0.0.1:{self.port}'


def write_plan(path: Path, bridge: CellBridge, servers: dict[str, Served], *, episodes: int, scenes: Path) -> Path:
    scenes.mkdir()
    policies = {name: {'use': 'openpi', 'options': {'url': servers[temper].url}} for name, temper in ARMS.items()}
    plan = {
        'title': 'a cell in a lab', 'benchmark': 'cell-4', 'seed': 5,
        'episodes_per_cell': episodes, 'time_cap_s': CAP_S, 'reference': 'kim',
        'tasks': [{'name': TASK, 'instruction': 'move everything to the other bin'}],
        'strata': [{'name': 'block', 'items': ITEMS}],
        'host': {'use': 'rosbridge', 'options': host_options(bridge, scenes)},
        'policies': {**policies, 'kim': {'use': 'human'}},
    }  # fmt: skip
    path.write_text(json.dumps(plan))
    return path


@contextmanager
def relay(sealed: Path, console_port: int) -> Iterator[str]:
    command = [sys.executable, '-m', 'robotrials.cli', 'policies', 'relay', str(sealed / 'operator.json'), '--arms',
               str(sealed / 'arms.json'), '--console', f'http://127.0.0.1:{console_port}', '--port', '0']  # fmt: skip
    environment = {**os.environ, 'PYTHONUNBUFFERED': '1'}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r'ws://\S+:\d+', line)
            assert address, line
            yield address[0]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


class Session:
    """An evening at the rig: the operator in a browser, the loop and the recorder beside them."""

    def __init__(
        self, page: Any, bridge: CellBridge, port: int, *, relay: str, servers: dict[str, Served], bags: Path
    ) -> None:  # fmt: skip
        self.page, self.bridge, self.port = page, bridge, port
        self.relay, self.servers, self.bags = relay, servers, bags
        self.driver = Driver(bridge)
        self.truth_s: dict[str, list[float]] = {}  # of each episode, by the rig's clock
        self.tempers: dict[str, str] = {}  # who acted in it

    def episode(self, number: int, *, meanwhile: Any = None, mute: tuple[str, ...] = ()) -> None:
        """Set the scene, press start, mark what is placed, stop, count, save."""
        (assignment,) = ask(self.port, '/api/state')['assignments']
        waits_for(self.page, 'Start', '[data-do=timer]')
        recorder = BagRecorder(self.bridge, self.bags / f'bag-{number:03d}', clock=rig_clock, mute=mute)
        self.driver.stage(stratum=assignment['object'], layout=assignment['layout'], items=assignment['items'])
        is_over = threading.Event()
        url = self.servers['reference'].url if assignment['is_human'] else self.relay
        before = {temper: server.n_sessions for temper, server in self.servers.items()}
        loop = threading.Thread(target=self.driver.run, args=[url], kwargs={'is_over': is_over.is_set})
        self.page.keyboard.press('Space')
        self.page.wait_for_selector('[data-do=place]')
        loop.start()
        self._watch(meanwhile)
        is_over.set()
        loop.join(PATIENCE_S)
        assert self.driver.errors == []
        self.truth_s[assignment['key']] = self.driver.placements_s()
        (self.tempers[assignment['key']],) = [t for t, s in self.servers.items() if s.n_sessions > before[t]]
        self._count()
        recorder.stop()
        self.page.wait_for_timeout(700 * (number % 3))  # no two episodes are as far from each other

    def _watch(self, meanwhile: Any) -> None:
        """Mark every placement a moment after it is seen; stop when all is done or the clock has ended."""
        marked = 0
        while self.page.is_visible('[data-do=place]'):
            report = self.bridge.report
            if (report.items_placed or 0) > marked:
                self.page.wait_for_timeout(1000 * REACTION_S)
                self.page.keyboard.press('p')
                marked += 1
            elif marked == ITEMS:
                self.page.keyboard.press('Space')
                return
            if meanwhile is not None and marked:
                meanwhile()
                meanwhile = None
            self.page.wait_for_timeout(30)

    def _count(self) -> None:
        self.page.wait_for_selector('[data-label=success]')
        report = self.bridge.report
        placed, lost = report.items_placed or 0, report.items_lost or 0
        self.page.click('[data-label=success]' if placed == ITEMS else '[data-label=timeout]')
        for name, count in (('placed', placed), ('source', ITEMS - placed - lost), ('lost', lost)):
            self.page.fill(f'[data-count={name}]', str(count))
        self.page.click('[data-do=save]')
        waits_until_sent(self.page)


def test_a_bag_of_the_rig_is_joined_by_the_plan_s_topics_and_scored(tmp_path: Path) -> None:
    """One episode in the cell's own time: gripper, tool, joints and three RGB-D cameras; nobody is asked for topics."""
    (tmp_path / 'scenes').mkdir()
    bridge = CellBridge(
        control='se3', has_depth=True, state='privileged', depth_every=20, clock=lambda: NOON_S + bridge._clock_s
    )
    changes = {'host': {'use': 'rosbridge', 'options': host_options(bridge, tmp_path / 'scenes')}, 'nuisance': {},
               'benchmark': 'cell-4', 'tasks': [{'name': TASK}],
               'strata': [{'name': 'block', 'items': ITEMS}]}  # fmt: skip
    desk = make_desk(sealed_trial(tmp_path / 'sealed', **changes).operator_plan, tmp_path / 'runs')
    client = TestClient(create_console(desk))
    (assignment,) = client.get('/api/state').json()['assignments']
    recorder = BagRecorder(bridge, tmp_path / 'bag', clock=lambda: NOON_S + bridge._clock_s)
    driver = Driver(bridge, period_s=0.0)
    driver.stage(stratum='block', layout=assignment['layout'], items=ITEMS)
    with policy_servers('steady') as servers:
        driver.run(
            servers['steady'].url, is_over=lambda: bridge.report.items_placed == ITEMS or len(bridge.step_s) > 500
        )
    recorder.stop()
    driver.close()
    bridge.close()
    first_s, last_s = bridge.step_s[0], bridge.step_s[-1]
    given = account(started_ms=round(1000 * first_s), duration_s=last_s - first_s, marks=[],
                    counts={'placed': ITEMS, 'source': 0, 'lost': 0})  # fmt: skip
    assert client.post('/api/actions', json=action('record', assignment['key'], account=given)).status_code == 200
    assert 'the recorded clocks agree' in ' '.join(
        robotrials('store', 'attach', tmp_path / 'runs', tmp_path / 'bag').split()
    )
    ((episode, trajectory),) = read_store(tmp_path / 'runs').trajectories()
    assert trajectory.joint_position_rad is not None
    assert trajectory.joint_position_rad.shape[1] == 7
    assert trajectory.gripper_position is not None
    assert 0.6 < np.nanmax(trajectory.gripper_position) <= 1.01  # an opening, no metres
    detected = ' '.join(
        robotrials('annotate', 'detect', tmp_path / 'runs', '--settings', write_zones(tmp_path)).split()
    )
    assert 'auto-validated 1 1.000' in detected, detected
    (tmp_path / 'registry.toml').write_text(REGISTRY)
    assert 'safe' in robotrials('safety', tmp_path / 'runs', '--registry', tmp_path / 'registry.toml')
    assert 'success' in words('geometry', 'score', tmp_path / 'runs', '--episodes')
    views = kept_views(tmp_path / 'runs' / 'media', *episode.key)
    assert views is not None
    assert set(views.moment(END)) == {'front', 'side', 'gallery'}


# What a real arm records is enough for its torques; contacts and poses of objects are the simulator's.
REGISTRY = """
[[tag]]
id = "moving_arm"
class = "mechanism"
[[spec]]
id = "torque_under_its_limit"
family = "torque"
axis = "scene interaction"
tier = "safe"
stl = "always (joint_torque_ratio < {threshold})"
threshold = 1.5
severe = 2.0
unit = "ratio"
requires_all = ["moving_arm"]
invalid_if_any = []
[[template]]
id = "bin-to-bin"
tags = ["moving_arm"]
[[benchmark]]
id = "cell-4"
signal_tags = []
[[task]]
id = "bin_to_bin"
benchmark = "cell-4"
template = "bin-to-bin"
"""


def write_zones(folder: Path) -> Path:
    zones = {'source': SOURCE_CENTER_M, 'target': TARGET_CENTER_M}
    text = (f'[zones.{name}]\ncenter_m = {list(c)}\nsize_m = {list(BIN_INNER_M)}\n' for name, c in zones.items())
    (folder / 'cell.toml').write_text(''.join(text))
    return folder / 'cell.toml'


@pytest.mark.platform
def test_an_evening_at_a_rig(browser: Browser, tmp_path: Path) -> None:
    """Sealed, run by an operator in a browser, killed and resumed, joined by the clocks, scored, closed: nine episodes.

    The robot's clock is 37 s ahead; one camera is silent in one episode; every policy is reached at one address.
    """
    bridge = CellBridge(control='se3', has_depth=True, state='privileged', depth_every=20, clock=rig_clock)
    sealed, store, port = tmp_path / 'sealed', tmp_path / 'runs', free_port()
    (tmp_path / 'bags').mkdir()
    with policy_servers(*ARMS.values(), 'reference') as servers:
        trial = write_plan(tmp_path / 'trial.json', bridge, servers, episodes=3, scenes=tmp_path / 'scenes')
        robotrials('plan', trial)
        robotrials('seal', trial, '-o', sealed)
        console = [start(store, sealed / 'operator.json', port)]

        def kill_and_restart() -> None:
            console[0].send_signal(signal.SIGKILL)
            console[0].wait()
            console[0] = start(store, sealed / 'operator.json', port)

        try:
            with relay(sealed, port) as address, opened(browser, f'http://127.0.0.1:{port}') as seen:
                session = Session(seen.page, bridge, port, relay=address, servers=servers, bags=tmp_path / 'bags')
                for number in range(N_EPISODES):
                    session.episode(number, meanwhile=kill_and_restart if number == 4 else None,
                                    mute=('/side/depth',) if number == 7 else ())  # fmt: skip
                waits_for(seen.page, f'{N_EPISODES} of {N_EPISODES} episodes are in')
                assert seen.problems == []
                session.driver.close()
        finally:
            console[0].send_signal(signal.SIGKILL)
            console[0].wait()
            bridge.close()
    assert {'/'.join(map(str, e.key)) for e in Store.open(store).episodes(attempts='all')} == set(session.truth_s)
    check_joined(tmp_path, store)
    check_detected(tmp_path, store, session.truth_s)
    check_scored(store)
    check_closed(tmp_path, store, session.tempers)


def check_joined(folder: Path, store: Path) -> None:
    text = ' '.join(robotrials('store', 'attach', store, folder / 'bags').split())
    estimated = re.search(r'bags +9 +9 +([+-][0-9.]+)', text)
    assert estimated, text
    assert float(estimated[1]) == pytest.approx(AHEAD_S, abs=0.8)
    assert 'estimated from the starts of' in text
    assert 'no RGB-D of the end: camera side: no colour and depth near it in bag-007' in text
    assert 'clean: 9 episodes, ' in (verified := robotrials('store', 'verify', store))
    assert ', 9 trajectories' in verified


def check_detected(folder: Path, store: Path, truth_s: dict[str, list[float]]) -> None:
    """Against the cell's own placements, by its own clock: no worse than what is published for the cell."""
    cell = write_zones(folder)
    robotrials('annotate', 'detect', store, '--settings', cell, '--by', 'lee')
    assert 'precision' in robotrials('annotate', 'assess', store, '--settings', cell)
    opened_store = read_store(store)
    n_right = n_marks = n_true = 0
    for episode in opened_store.episodes():
        assert episode.started_at is not None
        account = opened_store.annotations()[episode.key][-1]
        marks = [e.t_s for e in account.events if e.kind is EventKind.PLACEMENT]
        true = [t - AHEAD_S - episode.started_at.timestamp() for t in truth_s['/'.join(map(str, episode.key))]]
        n_marks, n_true = n_marks + len(marks), n_true + len(true)
        n_right += sum(any(abs(mark - t) <= 1.0 for mark in marks) for t in true)
    print(f'{n_right} of {n_marks} marks right, of {n_true} placements')
    # As few right ones as these would be rarer than one in a hundred at the published rates: then it is worse.
    assert binom.cdf(n_right, n_marks, PUBLISHED_PRECISION) >= 0.01
    assert binom.cdf(n_right, n_true, PUBLISHED_RECALL) >= 0.01
    assert n_true >= N_EPISODES


def check_scored(store: Path) -> None:
    """Cameras, safety, review and explorer work on what was joined."""
    cameras = words('geometry', 'score', store, '--episodes')
    agreed = re.search(r'agree on (\d+) of (\d+) scored', cameras)
    assert agreed, cameras
    assert int(agreed[1]) == int(agreed[2]) >= 5
    assert 'camera side: no colour and depth near it' in cameras
    registry = store.with_name('registry.toml')
    registry.write_text(REGISTRY)
    assert 'safe' in robotrials('safety', store, '--registry', registry)
    joined = read_store(store)
    episode = next(e for e in joined.episodes() if kept_views(store / 'media', *e.key) is not None)
    path = '/'.join(map(str, episode.key))
    for app, page in (
        (create_explorer(joined), 'episode'),
        (create_review(joined, by='ann', everything=True), 'review'),
    ):
        client = TestClient(app)
        assert client.get(f'/{page}/{path}').status_code == 200
        data = client.get(f'/data/episode/{path}').text
        assert 'gripper' in data
        assert not any(name in data for name in ARMS)


def check_closed(folder: Path, store: Path, tempers: dict[str, str]) -> None:
    """The address served the right arm in every episode, and a closed trial takes no more."""
    sealed = folder / 'sealed'
    robotrials('close', sealed / 'operator.json', '--store', store, '--allocation', sealed / 'allocation.json',
               '--by', 'lee')  # fmt: skip
    acted = {'/'.join(map(str, e.key)): {**ARMS, 'kim': 'reference'}[e.policy] for e in read_store(store).episodes()}
    assert acted == tempers
    assert (sealed / 'relay.log').read_text() == ''
    refused = robotrials('store', 'attach', store, folder / 'bags', code=2)
    assert 'was closed by lee' in refused
    assert 'marmot-xl' in robotrials('score', store)
