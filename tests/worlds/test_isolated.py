"""A host in another environment: the same host behind the same seam, and one lost episode when its worker is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.run.plans import FAST, make_plan

from robotrials.errors import InputError, NoAnswer, RemoteError, RigError
from robotrials.record import Episode, Outcome, Store
from robotrials.run import Host, Setup, run_trial
from robotrials.run.environment import WorkerProcess, read_recipe
from robotrials.run.environment.recipe import RECORD, link_robotrials
from robotrials.run.fault import FaultKind, read_fault
from robotrials.run.loop import Order, run_episode
from robotrials.testing.policy import PointMassHost, SeekPolicy
from robotrials.worlds import Ability, check_host
from robotrials.worlds.inside import from_message, to_message
from robotrials.worlds.isolated import IsolatedHost

POINT_MASS = 'robotrials.testing.policy:PointMassHost'
FAULTY_CODE = """
import os, time
from robotrials.testing.policy import PointMassHost

class FaultyHost:
    '''Only what a host must have; at the third step of the task it is named after, it dies, hangs or errs.'''
    def __init__(self):
        self._host = PointMassHost()
        self.spec, self.outcome = self._host.spec, self._host.outcome
    def reset(self, task, *, seed):
        self._task, self._steps = task, 0
        return self._host.reset('reach', seed=seed)
    def step(self, action):
        self._steps += 1
        if self._steps == 3:
            if self._task == 'die':
                print('Segmentation fault', flush=True)
                os._exit(11)
            if self._task == 'hang':
                time.sleep(600)
            if self._task == 'err':
                raise ZeroDivisionError('a bug of the simulator')
        return self._host.step(action)

class BrakedHost(FaultyHost):
    '''A step lasts until somebody pulls the brake.'''
    braked = False
    def step(self, action):
        while not self.braked:
            time.sleep(0.01)
        return self._host.step(action)
    def stop(self):
        self.braked = True
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recipe whose environment is this interpreter's own."""
    recipe = tmp_path / 'here.toml'
    recipe.write_text('requirements = ["numpy==0", "msgpack==0"]')
    folder = tmp_path / 'environments' / f'here-{read_recipe(str(recipe)).digest}'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / 'pyvenv.cfg', folder / 'pyvenv.cfg')
    (folder / 'lib').symlink_to(Path(sys.prefix) / 'lib')
    (folder / RECORD).write_text(json.dumps({'created_at': 'now', 'packages': {'numpy': '0'}}))
    (link_robotrials(folder) / 'faulty.py').write_text(FAULTY_CODE)
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(folder.parent))
    return str(recipe)


Opened = Callable[..., IsolatedHost[Host]]


@pytest.fixture
def opened(here: str) -> Iterator[Opened]:
    hosts: list[IsolatedHost[Host]] = []

    def open_host(host: str = POINT_MASS, timeout_s: float = PATIENCE_S, **options: object) -> IsolatedHost[Host]:
        hosts.append(IsolatedHost(environment=here, host=host, options=options, timeout_s=timeout_s))
        return hosts[-1]

    yield open_host
    for host in hosts:
        host.close()


def test_an_isolated_host_is_the_host_inside_it(opened: Opened) -> None:
    isolated, inner = opened(camera_px=96, noise_m=0.01), PointMassHost(camera_px=96, noise_m=0.01)
    assert isolated.spec == inner.spec
    assert isinstance(isolated, Host)
    assert isolated.abilities == inner.abilities
    setup = Setup(task='reach', seed=5, items=2, condition='drift', condition_parameters={'x_m_s': 0.1, 'y_m_s': 0.0})
    rollouts = []
    for host in (isolated, inner):
        policy = SeekPolicy()
        rollouts.append(run_episode(host, policy, setup, order=Order(time_cap_s=8.0, policy_seed=1)))
    first, second = rollouts
    assert first.fault is None
    assert (first.outcome, first.n_steps, first.report) == (second.outcome, second.n_steps, second.report)
    assert first.trajectory is not None
    assert second.trajectory is not None
    from robotrials.record import trajectories_equal

    assert trajectories_equal(first.trajectory, second.trajectory)


def test_it_passes_the_conformance_check(opened: Opened) -> None:
    host = opened(camera_px=64)
    check_host(host, task='reach')


def test_images_are_the_receivers_own(opened: Opened) -> None:
    isolated, inner = opened(camera_px=128), PointMassHost(camera_px=128)
    shown = isolated.reset('reach', seed=3)
    kept = {name: image.copy() for name, image in shown.images.items()}
    inner.reset('reach', seed=3)
    for _ in range(5):
        seen, expected = isolated.step(np.array([0.02, 0.02, 0.0])), inner.step(np.array([0.02, 0.02, 0.0]))
        for name, image in expected.images.items():
            np.testing.assert_array_equal(seen.images[name], image)
    for name, image in kept.items():
        np.testing.assert_array_equal(shown.images[name], image)


@pytest.mark.parametrize(
    ('task', 'kind', 'said'),
    [
        ('die', FaultKind.HOST_CRASH, 'Segmentation fault'),
        ('hang', FaultKind.HOST_HANG, 'no answer to step'),
        ('err', FaultKind.HOST_CRASH, 'a bug of the simulator'),
    ],
)
def test_a_lost_worker_is_one_invalid_episode(opened: Opened, task: str, kind: FaultKind, said: str) -> None:
    host = opened('faulty:FaultyHost', timeout_s=2.0 if task == 'hang' else PATIENCE_S)
    assert not host.abilities
    pid, policy, order = host.pid, SeekPolicy(), Order(time_cap_s=8.0, policy_seed=1)
    lost = run_episode(host, policy, Setup(task=task, seed=0), order=order)
    assert lost.outcome is None
    assert lost.fault is not None
    assert lost.fault.kind is kind
    assert said in lost.fault.text
    assert lost.n_steps == 2
    again = run_episode(host, policy, Setup(task='fine', seed=0), order=order)
    assert again.fault is None
    assert again.outcome is Outcome.SUCCESS
    assert (host.pid == pid) == (task == 'err'), 'a worker that only raised lives on'


def test_the_brake_of_the_host_inside_works_while_a_step_is_under_way(opened: Opened) -> None:
    host = opened('faulty:BrakedHost')
    assert host.abilities == {Ability.STOP}
    host.reset('fine', seed=0)
    brake = threading.Timer(0.2, host.stop)
    brake.start()
    host.step(np.zeros(3))  # comes back because of the brake, or not at all
    brake.join()
    host.close()
    host.stop()  # nothing to stop any more


def test_a_step_without_an_episode_does_not_start_a_worker(opened: Opened) -> None:
    host = opened('faulty:FaultyHost')
    host.reset('die', seed=0)
    host.step(np.zeros(3))
    host.step(np.zeros(3))
    with pytest.raises(RigError, match='Segmentation fault'):
        host.step(np.zeros(3))
    with pytest.raises(InputError, match='call reset'):
        host.step(np.zeros(3))
    assert host.outcome() is None


def test_errors_keep_their_kind(opened: Opened, here: str) -> None:
    with pytest.raises(InputError, match='does not take these options'):
        opened(colour='red')
    with pytest.raises(InputError, match='no module named'):
        opened('nowhere:Host')
    with pytest.raises(InputError, match='timeout_s is 0'):
        IsolatedHost(environment=here, host=POINT_MASS, timeout_s=0)
    host = opened('faulty:FaultyHost', timeout_s=1.5)
    host.reset('err', seed=0)
    host.step(np.zeros(3))
    host.step(np.zeros(3))
    with pytest.raises(RemoteError, match='ZeroDivisionError'):
        host.step(np.zeros(3))
    host.reset('hang', seed=0)
    host.step(np.zeros(3))
    host.step(np.zeros(3))
    with pytest.raises(NoAnswer):
        host.step(np.zeros(3))


def hanging_episode(environment: str, store: Path, **own: float) -> tuple[Episode, str]:
    """The episode of a host that hangs under a watchdog of two seconds, and the full text of its fault."""
    plan = make_plan(
        host={'use': 'robotrials.worlds.isolated:IsolatedHost',
              'options': {'environment': environment, 'host': 'faulty:FaultyHost', **own}},
        tasks=['hang'], policies={FAST: 'seek'}, reference='', title='', episodes_per_cell=1, items=None,
        faults={'attempts': 1}, watchdog={'host_s': 2.0},
    )  # fmt: skip
    run_trial(plan, store, workers=0)
    (episode,) = Store.open(store).episodes(attempts='all')
    return episode, read_fault(Store.open(store), episode, plan=plan) or ''


@pytest.mark.parametrize('own', [{}, {'timeout_s': 600.0}])
def test_the_plans_watchdog_decides_how_long_a_call_may_take(here: str, tmp_path: Path, own: dict[str, float]) -> None:
    """One limit for hosts here and elsewhere; a longer one of the host's own changes nothing."""
    episode, text = hanging_episode(here, tmp_path / 'store', **own)
    assert (episode.outcome, episode.reason.partition(':')[0]) == (Outcome.INVALID, 'host hang')
    assert 'no answer to step within 1.9 s' in text


def test_a_worker_that_ends_slowly_was_silent_all_the_same(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's alarm clock rings while the worker is being ended."""
    slept = []

    def close_slowly(worker: WorkerProcess) -> None:
        if not slept:
            slept.append(worker.pid)
            time.sleep(60.0)
        close(worker)

    close = WorkerProcess.close
    monkeypatch.setattr(WorkerProcess, 'close', close_slowly)
    episode, text = hanging_episode(here, tmp_path / 'store')
    assert len(slept) == 1
    assert (episode.outcome, episode.reason.partition(':')[0]) == (Outcome.INVALID, 'host hang')
    assert 'no answer to step within 1.9 s' in text


def test_without_a_plan_a_call_may_take_its_time_and_a_stricter_limit_is_kept(here: str) -> None:
    with contextlib.closing(IsolatedHost[Host](environment=here, host=POINT_MASS)) as host:
        assert host._timeout_s > 3600
        host.limit_calls(200.0)
        assert host._timeout_s == 190.0
        host.limit_calls(400.0)  # of another plan
        assert host._timeout_s == 380.0
    with contextlib.closing(IsolatedHost[Host](environment=here, host=POINT_MASS, timeout_s=20.0)) as host:
        host.limit_calls(200.0)
        assert host._timeout_s == 20.0


def test_values_of_the_seam_survive_the_way() -> None:
    host = PointMassHost()
    host.reset('reach', seed=1)
    for value in (
        host.spec,
        host.report(),
        Setup(task='reach', seed=2, labels={'light': 'dim'}),
        Outcome.TIMEOUT,
        None,
    ):
        assert from_message(to_message(value)) == value
    with pytest.raises(InputError, match='cannot cross'):
        to_message(object())
    with pytest.raises(InputError, match='unknown kind'):
        from_message({'__kind__': 'Popen'})


INSIDE = (
    'worlds.inside', 'worlds.gymnasium', 'worlds.libero.host', 'worlds.robosuite.host', 'worlds.simulator',
    'worlds.checkout', 'worlds.robot', 'policies.lerobot_worker', 'policies.grpc_worker',
    'policies.probe.option', 'policies.probe.demonstration', 'run.environment.worker', 'run.seam',
)  # fmt: skip


@pytest.mark.parametrize('module', INSIDE)
def test_the_inside_needs_numpy_and_msgpack_alone(module: str) -> None:
    script = (
        f'import sys, robotrials.{module}\n'
        'print(*sorted({m.split(".")[0] for m in sys.modules} - sys.stdlib_module_names))'
    )
    ran = subprocess.run(
        [sys.executable, '-S', '-c', script], capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert set(ran.stdout.split()) <= {'numpy', 'msgpack', 'robotrials', '__main__', '__mp_main__'}


@pytest.mark.parametrize(
    'message',
    [
        {'__kind__': []},
        {'__kind__': 'Outcome'},
        {'__kind__': 'Outcome', 'value': 'won'},
        {'__kind__': 'HostSpec', 'name': 'x', 'action': 3, 'control_rate_hz': 'fast'},
        {'__kind__': 'Event', 't_s': 'x', 'kind': 'grasp'},
        {'__kind__': 'Observation', 't_s': 1.0},
    ],
)
def test_messages_that_are_nothing_of_ours_are_named(message: dict[str, object]) -> None:
    with pytest.raises(InputError, match='a message'):
        from_message(message)
