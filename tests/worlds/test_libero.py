"""LIBERO as a host: its protocol bit for bit, its signals against MuJoCo read by hand, nothing disturbed by looking.

What needs the simulator runs inside LIBERO's environment (`make test-hosts`).
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.worlds.conftest import RunInside

import robotrials
from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.measure.safety import load_registry
from robotrials.policies.plain import NoOpPolicy, RandomPolicy
from robotrials.record import Outcome, read_store
from robotrials.run import Chunk, Observation, Session, Setup, read_plan, run_trial
from robotrials.run.fault import FaultKind
from robotrials.run.host import Ability
from robotrials.run.loop import Order, run_episode
from robotrials.show.gate import render_markdown
from robotrials.show.report import trial_document
from robotrials.worlds.isolated import IsolatedHost
from robotrials.worlds.libero import SUITES, libero_host
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy

pytestmark = pytest.mark.hosts

FOUR_SUITES = ('libero-spatial', 'libero-object', 'libero-goal', 'libero-10')


def result_of(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.split('RESULT', 1)[1])
    return found


def test_every_task_builds_and_resets_bit_exactly_twice(libero: RunInside) -> None:
    """All forty tasks of the four suites, two processes at a time."""
    with ThreadPoolExecutor(2) as pool:
        results = [result_of(printed) for printed in pool.map(lambda suite: libero('reset_twice', suite), FOUR_SUITES)]
    registry = load_registry()
    for suite, found in zip(FOUR_SUITES, results, strict=True):
        assert list(found) == list(SUITES[suite].tasks)
        for task, facts in found.items():
            assert facts['is_equal'], f'{suite} {task}: two resets differ'
            assert {'robot', 'gripper', 'structure'} <= set(facts['roles'])
            has_bystanders = 'no_bystanders' not in registry.resolved_tags(suite, task)
            assert ('bystander' in facts['roles']) == has_bystanders, f'{suite} {task}: the registry has it otherwise'
            assert facts['instruction'] == registry.entry(suite, task).instruction
            assert facts['targets'] or suite == 'libero-goal', f'{suite} {task}: no target'


def test_a_scripted_episode_is_the_native_one_and_its_signals_are_mujocos(libero: RunInside) -> None:
    found = result_of(libero('scripted'))
    assert found['outcome'] == 'success'
    assert found['same_success'], "success is not LIBERO's own predicate"
    assert found['same_state'], 'instrumentation changed the simulation'
    assert found['same_seen'], 'instrumentation changed what is observed'
    assert found['substeps'] == [25]
    assert found['pairs'], 'other pairs of bodies are in contact'
    assert found['force_error'] < 1e-9
    assert found['torque_error'] == 0.0
    assert found['largest_n'] > 20.0, 'the episode had no contact worth the name'
    assert found['missed_n'] > 1.0, 'one sample per control step would have missed nothing here'
    assert found['limit_nm'] == found['actuator_nm'], "torque limits are the embodiment's"


def test_images_are_fresh_and_stale_ones_are_refused(libero: RunInside) -> None:
    found = result_of(libero('images'))
    assert found['shape'] == [96, 128, 3]
    assert found['native'], "pictures are not those of LIBERO's own loop"
    assert found['again'], 'another task in between changed the pictures'
    assert found['late'], 'a picture drawn afterwards is not that of its step'
    assert found['again_after_late']
    assert found['other']
    assert found['moves']
    assert found['dull'] > 5.0, 'the pictures show next to nothing'
    assert found['uninstrumented'], 'instrumentation changed the pictures'
    assert found['camera']
    assert found['wrist_kept'], 'only the fixed camera is moved'
    assert 'stale' in found['stale']
    assert 'frame' in found['stale_at_reset']


def test_what_is_left_out_of_a_picture_changes_none_of_it(libero: RunInside) -> None:
    found = result_of(libero('left_out'))
    assert found['n'] == 64
    assert found['unequal'] == []
    assert found['left_out'] > 0.3, 'next to nothing is left out'


def test_start_states_are_the_benchmarks_or_within_its_support(libero: RunInside) -> None:
    found = result_of(libero('starts'))
    assert found['nominal'] == found['other_seed'], 'a start state is its instance, whatever the seed'
    assert found['nominal'] != found['instance']
    assert found['fresh'] == found['fresh_again']
    assert found['fresh']['objects'] not in (found['nominal']['objects'], found['fresh_other']['objects'])
    assert found['robot_state']['objects'].keys() == found['nominal']['objects'].keys()
    assert np.abs(np.subtract(found['robot_state']['joints'], found['nominal']['joints'])).max() > 0.05
    moved = 0
    for name, (x0, y0, x1, y1) in found['regions'].items():
        x, y, _ = found['layout']['objects'][name]
        assert min(x0, x1) - 0.03 <= x <= max(x0, x1) + 0.03, f'{name} left its region'
        assert min(y0, y1) - 0.03 <= y <= max(y0, y1) + 0.03, f'{name} left its region'
        moved += (
            np.linalg.norm(np.subtract(found['layout']['objects'][name], found['nominal']['objects'][name])) > 0.005
        )
    assert moved >= 3
    assert max(found['checked_m']) <= 0.001, 'the bowl was placed into the plate'
    assert max(found['unchecked_m']) > 0.003, 'this task was to show that the check is needed'
    assert max(found['arm_checked_m']) <= 0.001, 'the arm was started in something'
    assert max(found['arm_unchecked_m']) > 0.01, 'this task was to show that the check is needed'
    instruction, targets, step_cap = found['ninety']
    assert instruction
    assert targets
    assert step_cap == 400
    registry = load_registry()
    entries = [registry.entry('libero-90', f'task_{number}') for number in range(90)]
    assert [[e.name, e.instruction] for e in entries] == [task[:2] for task in found['ninety_tasks']]
    assert min(n_bystanders for *_, n_bystanders in found['ninety_tasks']) >= 1, 'no task of it lacks bystanders'
    for text, wanted in zip(
        found['refused'], ('has 50 start states', 'no task of', 'rain', 'drawn numbers'), strict=True
    ):
        assert wanted in (text or 'nothing was refused')


def test_an_isolated_episode_is_bit_by_bit_the_one_beside_the_simulator(
    libero: RunInside, libero_assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBLAS rounds by the kind of processor; whichever kernels are chosen outside, the worker takes the same."""
    monkeypatch.setenv('OPENBLAS_CORETYPE', 'Sandybridge')  # without fused multiply-add: no processor's own today
    beside = result_of(libero('isolated_bits', '11'))
    host = libero_host(suite='libero-object', assets=str(libero_assets), cameras=['agentview'], image_size=[32, 32])
    try:
        host.prepare(Setup(task='task_0', seed=0, instance=2))
        host.reset('task_0', seed=0)
        states = [host.signals()['simulator_state']]
        for step, action in enumerate(np.random.default_rng(11).uniform(-1.0, 1.0, (20, 7))):
            host.expect_look(step % 5 == 4)
            host.step(action)
            states.append(host.signals()['simulator_state'])
        facts = host.protocol()
    finally:
        host.close()
    assert [[float(v).hex() for v in row] for row in states] == beside['states']
    assert facts is not None
    assert facts.packages.get('openblas kernels', '') == beside['kernels']
    assert beside['kernels'] in ('Sandybridge', '') or platform.machine() != 'x86_64'


@pytest.fixture
def host(libero: RunInside, libero_assets: Path) -> Iterator[IsolatedHost[Any]]:
    opened = libero_host(suite='libero-object', assets=str(libero_assets), state='privileged')
    yield opened
    opened.close()


class Saboteur:
    """A policy that sends the host's worker a signal at its third question."""

    def __init__(self, host: IsolatedHost[Any], number: signal.Signals) -> None:
        self._host, self._number = host, number
        self.spec = ScriptedLiberoPolicy().spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        self._asked = 0
        return self

    def act(self, observation: Observation) -> Chunk:
        self._asked += 1
        if self._asked == 3 and self._host.pid is not None:
            os.kill(self._host.pid, self._number)
        return Chunk(np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0]]))


def test_a_lost_worker_is_one_invalid_episode(libero: RunInside, libero_assets: Path) -> None:
    host = libero_host(suite='libero-object', assets=str(libero_assets), state='privileged')
    setup, order = Setup(task='task_0', seed=1), Order(time_cap_s=0.5, policy_seed=0)
    try:
        host._timeout_s = 300.0
        dead = run_episode(host, Saboteur(host, signal.SIGKILL), setup, order=order)
        assert dead.outcome is None
        assert dead.fault is not None
        assert dead.fault.kind is FaultKind.HOST_CRASH
        assert dead.n_steps == 2

        class Stopper(Saboteur):
            def act(self, observation: Observation) -> Chunk:
                host._timeout_s = 10.0
                return super().act(observation)

        silent = run_episode(host, Stopper(host, signal.SIGSTOP), setup, order=order)
        assert silent.fault is not None
        assert silent.fault.kind is FaultKind.HOST_HANG
        host._timeout_s = 300.0
        for policy in (NoOpPolicy(), RandomPolicy(scale=0.5)):
            policy.fit(host.spec)
            fine = run_episode(host, policy, setup, order=order)
            assert fine.fault is None
            assert fine.outcome is Outcome.TIMEOUT
    finally:
        host.close()


def test_a_trial_on_libero_is_run_scored_and_says_what_its_assets_are(
    libero: RunInside, libero_assets: Path, tmp_path: Path
) -> None:
    plan = tmp_path / 'trial.toml'
    plan.write_text(
        f"""
benchmark = "libero-object"
seed = 1
episodes_per_cell = 1
time_cap_s = 14.0
tasks = [{{name = "task_0"}}]
[host]
use = "libero"
options = {{suite = "libero-object", state = "privileged", assets = "{libero_assets}"}}
[policies.careful]
use = "libero-scripted"
[policies.still]
use = "no_op"
[watchdog]
host_s = 120.0
[blinding]
enabled = false
"""
    )
    run_trial(read_plan(plan), tmp_path / 'store', workers=0)
    store = read_store(tmp_path / 'store')
    by_policy = {e.policy: e for e in store.episodes()}
    assert by_policy['careful'].outcome is Outcome.SUCCESS
    assert by_policy['still'].outcome is Outcome.TIMEOUT
    origin = store.provenance(by_policy['careful'].provenance_id)
    assert origin.protocol['step_cap'] == '280'
    assert origin.protocol['settling_steps'] == '10'
    assert 'stand-in assets' in origin.protocol['assets_note']
    assert origin.packages['hf-libero'] == '0.1.4'
    assert origin.render_flags['MUJOCO_GL'] == 'egl'
    loaded = robotrials.load(tmp_path / 'store')
    told = render_markdown(trial_document(loaded.analysis))
    assert 'All episodes were run with stand-in assets' in told
    safety = loaded.analysis.safety
    assert not hasattr(safety, 'why'), 'safety was not scored'


def test_a_trial_on_libero_is_scored_from_cameras_by_the_verbs(
    libero: RunInside, libero_assets: Path, tmp_path: Path
) -> None:
    plan = tmp_path / 'trial.toml'
    plan.write_text(
        f"""
benchmark = "libero-object"
seed = 1
episodes_per_cell = 1
time_cap_s = 7.0
tasks = [{{name = "task_0"}}]
[host]
use = "libero"
[host.options]
suite = "libero-object"
state = "privileged"
assets = "{libero_assets}"
watchers = ["front", "left", "right", "top", "steep"]
oracle_masks = true
[policies.careful]
use = "libero-scripted"
[policies.still]
use = "no_op"
[analysis]
success = "both"
[watchdog]
host_s = 120.0
[blinding]
enabled = false
"""
    )
    store = tmp_path / 'store'

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, '-m', 'robotrials', *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run('run', str(plan), '--store', str(store))
    card = run('geometry', 'score', str(store), '--episodes', '--write', '--by', 'test')
    assert 'agree on 2 of 2 scored episodes' in card
    assert 'Masks by oracle_masks (2 episodes)' in card, 'whose the masks are must be said'
    run('report', str(store), '--output', str(tmp_path / 'report.md'))
    report = (tmp_path / 'report.md').read_text()
    assert 'Cameras and host agree on 2 of 2 scored episodes' in report
    assert 'the simulator said which pixels are whose' in report


def test_ends_of_each_kind_are_judged_as_the_predicate_judges_them(libero: RunInside) -> None:
    """A drawer, a bowl on a plate, and a bowl on the stove: reached, and missed."""
    printed = libero('camera_ends', 'libero-goal', '0', 'task_0', 'task_1', 'task_8')
    ends = [json.loads(line.removeprefix('RESULT')) for line in printed.splitlines() if line.startswith('RESULT')]
    assert len(ends) == 6
    assert sum(end['truth'] for end in ends) == 3
    for end in ends:
        assert end['said'] in (end['truth'], None), end
    assert sum(end['said'] is None for end in ends) <= 1


def test_watching_changes_no_bit_of_an_episode(libero: RunInside, libero_assets: Path) -> None:
    states = []
    for watchers in ([], ['front', 'top']):
        host = libero_host(suite='libero-goal', assets=str(libero_assets), watchers=watchers)
        assert host.has_views == bool(watchers)
        host.reset('task_0', seed=3)
        rng = np.random.default_rng(0)
        for step in range(12):
            if watchers and step % 4 == 0:
                views = host.views(is_over=step == 8)
                assert list(views) == watchers
                assert not views['top'].oracle_masks
            host.step(np.clip(rng.normal(0, 0.5, 7), -1, 1))
        states.append(host.signals()['simulator_state'])
        host.close()
    assert np.array_equal(*states)


def test_options_are_checked_before_anything_is_started(libero: RunInside, tmp_path: Path) -> None:
    for wrong in ({'suite': 'libero-11'}, {'cameras': ['front']}, {'render': 'vulkan'}):
        with pytest.raises(UnknownName):
            libero_host(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match='image_size'):
        libero_host(image_size=[0, 5])
    with pytest.raises(SetupError, match='assets are not in'):
        libero_host(assets=str(tmp_path))


def test_the_protocol_is_stated(host: IsolatedHost[Any]) -> None:
    assert Ability.PROTOCOL in host.abilities
    facts = host.protocol()
    assert (facts.benchmark, facts.step_cap, facts.settling_steps, facts.control_rate_hz) == (
        'libero-object',
        280,
        10,
        20.0,
    )
    assert all((facts.initial_states, facts.success_source, facts.assets, facts.simulator))
