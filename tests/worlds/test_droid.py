"""A DROID robot as a host, over the wire of its own robot server."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.run.plans import make_plan
from tests.worlds.conftest import made
from tests.worlds.droid_server import StandInServer

from robotrials.errors import AnswerError, InputError, RigError, RobotrialsError, UnknownName
from robotrials.record import Outcome, read_store
from robotrials.run import run_trial
from robotrials.worlds import check_host
from robotrials.worlds.robot import HOME_RAD, DroidHost

REST = np.zeros(8)


@pytest.fixture
def server() -> Iterator[StandInServer]:
    running = StandInServer()
    yield running
    running.close()


@pytest.fixture
def host(server: StandInServer) -> Iterator[DroidHost]:
    opened = DroidHost(url=server.url)
    yield opened
    opened.close()


def pictures() -> dict[str, Any]:
    return {'wrist': np.full((4, 6, 3), 9, np.uint8)}


def test_a_reset_launches_once_and_goes_home_as_droid_does(server: StandInServer, host: DroidHost) -> None:
    seen = host.reset('stack', seed=0)
    np.testing.assert_allclose(seen.state[:7], HOME_RAD)
    assert seen.state[7:].tolist() == [0.0, 0.3, 0.0, 0.5, 3.1, 0.0, 0.0]
    home = ['update_gripper', 'update_joints']
    assert server.robot.calls == ['launch_controller', 'launch_robot', *home]
    host.reset('stack', seed=0)
    assert server.robot.calls[4:] == home


def test_a_step_sends_what_droid_takes_and_records_it(server: StandInServer, host: DroidHost) -> None:
    host.reset('stack', seed=0)
    seen = host.step(np.array([0.5, 0, 0, 0, 0, 0, 3.0, 0.8]))
    assert seen.state[0] == pytest.approx(0.1)
    assert seen.state[6] == pytest.approx(0.2), 'speeds are clipped to 1'
    signals = host.signals()
    assert signals['action_processed_own'].tolist() == [0.5, 0, 0, 0, 0, 0, 1.0, 0.8]
    assert signals['joint_torque_nm'].tolist() == [1.0] * 7
    assert host.hold().tolist() == [0, 0, 0, 0, 0, 0, 0, 0.8], 'no speed, the gripper as commanded'
    assert host.outcome() is None


@pytest.mark.parametrize('space', ['joint_velocity', 'joint_position'])
def test_it_keeps_the_contract_in_every_wrapper(server: StandInServer, space: str) -> None:
    host = DroidHost(
        url=server.url, action_space=space, cameras='tests.worlds.test_droid:pictures', timeout_s=PATIENCE_S
    )
    check_host(host, task='stack', steps=5)
    host.close()


def test_positions_are_held_where_they_are(server: StandInServer) -> None:
    host = DroidHost(url=server.url, action_space='joint_position', moves_home=False)
    host.reset('stack', seed=0)
    assert host.hold().tolist() == [0.5] * 7 + [0.3]
    host.step(np.append(np.full(7, 0.6), 1.0))
    assert host.hold().tolist() == [0.6] * 7 + [1.0]
    pose = DroidHost(url=server.url, action_space='cartesian_position', moves_home=False, launch=False)
    pose.reset('stack', seed=0)
    assert pose.hold().tolist() == [0.3, 0.0, 0.5, 3.1, 0.0, 0.0, 1.0]
    for opened in (host, pose):
        opened.close()


def test_a_robot_that_fails_is_a_fault_of_the_rig(server: StandInServer) -> None:
    host = DroidHost(url=server.url, launch=False, moves_home=False, timeout_s=0.2)
    with pytest.raises(RigError, match='get_robot_state raised AttributeError'):
        host.reset('stack', seed=0)
    server.robot.is_launched, server.robot.breaks = True, 'state'
    with pytest.raises(AnswerError, match="no numbers as 'joint_positions'"):
        host.reset('stack', seed=0)
    server.robot.breaks = ''
    host.reset('stack', seed=0)
    server.silent = True
    with pytest.raises(RigError, match=r'no answer within 0\.2 s'):
        host.step(REST)
    server.silent = False
    host.reset('stack', seed=0)  # a new socket: no late answer passes for this one's
    host.close()


def test_what_is_declared_wrong_is_refused(server: StandInServer, host: DroidHost) -> None:
    with pytest.raises(UnknownName, match="did you mean 'joint_velocity'"):
        DroidHost(url=server.url, action_space='joint_velocty')
    with pytest.raises(InputError, match='home_rad has 6 numbers'):
        DroidHost(url=server.url, home_rad=[0.0] * 6)
    with pytest.raises(InputError, match='no episode is under way'):
        host.step(REST)
    host.reset('stack', seed=0)
    with pytest.raises(InputError, match='wanted 8 finite numbers'):
        host.step(np.full(8, np.nan))


def test_a_trial_runs_on_it_and_a_lost_robot_is_nobodys_failure(server: StandInServer, tmp_path: Path) -> None:
    plan = make_plan(
        host={'use': 'droid', 'options': {'url': server.url, 'timeout_s': 0.5, 'move_timeout_s': 0.5}},
        policies={'still': {'use': 'no_op'}, 'chance': {'use': 'random', 'options': {'scale': 0.1}}}, reference=None,
        tasks=[{'name': 'stack'}], episodes_per_cell=4, time_cap_s=0.2, blinding={'enabled': False},
        loop={'clock': 'wall'}, conditions=None, strata=None,
    )  # fmt: skip
    run_trial(plan, tmp_path / 'store', workers=0)
    assert [episode.outcome for episode in read_store(tmp_path / 'store').episodes()] == [Outcome.TIMEOUT] * 8
    server.silent = True
    with contextlib.suppress(RobotrialsError):
        run_trial(plan, tmp_path / 'lost', workers=0, stop_after=1)
    outcomes = {episode.outcome for episode in read_store(tmp_path / 'lost').episodes()}
    assert outcomes <= {Outcome.INVALID}


@pytest.mark.hosts
def test_it_speaks_with_zerorpc_itself(tmp_path: Path) -> None:
    """The stand-in's methods, given out by the zerorpc that DROID's server uses."""
    recipe = tmp_path / 'zerorpc.toml'
    recipe.write_text(
        'requirements = ["zerorpc==0.6.3", "msgpack==1.2.4", "numpy==2.4.6"]\nconstraints = ["future==1.0.0", '
        '"gevent==26.9.0", "greenlet==3.5.6", "pyzmq==27.3.0", "zope-event==6.2", "zope-interface==8.7"]\n'
        'imports = ["zerorpc"]\n'
    )
    environment = made(str(recipe))
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        url = f'tcp://127.0.0.1:{probe.getsockname()[1]}'
    program = Path(__file__).with_name('droid_server.py')
    running = subprocess.Popen([str(environment.python), str(program), url])
    try:
        host = DroidHost(url=url, timeout_s=PATIENCE_S, move_timeout_s=PATIENCE_S)
        check_host(host, task='stack', steps=5)
        seen = host.step(np.array([0.5, 0, 0, 0, 0, 0, 0, 0.8]))
        assert np.isfinite(seen.state).all()
        pose = DroidHost(url=url, action_space='cartesian_velocity', timeout_s=PATIENCE_S)
        pose.reset('stack', seed=0)
        with pytest.raises(RigError, match='update_command raised ValueError: no inverse kinematics'):
            pose.step(np.zeros(7))
        for opened in (host, pose):
            opened.close()
    finally:
        running.kill()
        running.wait()
