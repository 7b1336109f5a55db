"""LeRobot's own evaluator and ours on one checkpoint: the same episodes, step by step.

A small ACT of LeRobot's is fitted to one or two demonstrations: it succeeds from some starts and fails from others.
Then `lerobot-eval` and `robotrials run` evaluate it from the same starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.libero_peers import run_inside
from numpy.typing import NDArray
from tests.tool import tool
from tests.worlds.conftest import libero_assets, made

from robotrials.record import Outcome, read_store
from robotrials.run import Setup
from robotrials.worlds.gymnasium import gymnasium_host
from robotrials.worlds.libero import libero_host
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy

pytestmark = [pytest.mark.peers, pytest.mark.drift]
__all__ = ['libero_assets']

RUN_S = 1800.0


@dataclass(frozen=True)
class Played:
    """One episode: the robot's state after every step but the last, actions, rewards, and how it ended."""

    is_success: bool
    states: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[Any] | None


def lerobot_eval(checkpoint: Path, folder: Path, assets: str, *options: str, n: int) -> tuple[list[Played], Any]:
    """Episodes of `lerobot-eval`, and the file it writes."""
    kept = folder / 'kept.npz'
    overlay = tool('peer_environments').make_overlay('lerobot-eval')
    run_inside(
        made('lerobot-0.6'), 'lerobot_evaluate', assets, str(overlay), str(kept), f'--policy.path={checkpoint}',
        '--policy.device=cpu', '--eval.batch_size=1', '--eval.use_async_envs=false', f'--eval.n_episodes={n}',
        f'--output_dir={folder}/out', *options,
    )  # fmt: skip
    rows = np.load(kept)
    episodes = [
        Played(rows[f'{i}/success'].any(), rows[f'{i}/state'][1:], rows[f'{i}/action'], rows[f'{i}/reward'])
        for i in range(len(rows.files) // 4)
    ]
    return episodes, json.loads((folder / 'out' / 'eval_info.json').read_text())


def robotrials_run(plan: str, folder: Path) -> list[Played]:
    """Episodes of `robotrials run`, by task and start state."""
    (folder / 'plan.toml').write_text(plan)
    command = [sys.executable, '-m', 'robotrials', 'run', str(folder / 'plan.toml'), '--store', str(folder / 'store')]
    variables = {**os.environ, 'OMP_NUM_THREADS': '1'}  # as `run_inside` has it: torch sums in another order with two
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=variables)
    assert ran.returncode == 0, ran.stderr[-3000:]
    store = read_store(folder / 'store')
    episodes = []
    for episode in sorted(store.episodes(), key=lambda e: (e.task, e.instance)):
        assert episode.is_valid
        steps = store.trajectory(episode)
        assert steps is not None
        assert steps.action_raw is not None
        states = steps.extra['observation_state'][:-1].astype(np.float32)
        episodes.append(Played(episode.outcome is Outcome.SUCCESS, states, steps.action_raw, steps.reward))
    return episodes


PUSHT = """
benchmark = "pusht"
seed = 1
episodes_per_cell = {n}
time_cap_s = 4.0
tasks = [{{name = "push-t"}}]

[host]
use = "gymnasium"

[host.options]
mapping = "pusht"
arguments = {{obs_type = "environment_state_agent_pos"}}
state = ["agent_pos", "environment_state"]
state_layout = []
images = {{}}
holds_state = false
first_seed = {seed}
step_cap = 40

[policies.act]
use = "lerobot"

[policies.act.options]
path = {path}
environment = "lerobot-0.6"
preset = "lerobot"

[policies.act.options.observation]
state = {{"observation.state" = [0, 2], "observation.environment_state" = [2, 18]}}

[policies.act.options.action]
convention = {{control_mode = "joint_position", target = "absolute", frame = "joint", n_joints = 2}}
chunk_length = 20

[blinding]
enabled = false
"""
# Where the finger goes, four steps each: from these seeds it pushes the T onto its outline.
WAYPOINTS = {
    281995: [(239, 209), (393, 167), (309, 34), (384, 201), (387, 126)],
    281997: [(457, 210), (326, 435), (320, 35), (295, 301), (303, 393)],
}


def test_pusht(tmp_path: Path) -> None:
    """Six starts: two successes and four failures of different rewards. Actions and states are bit-equal."""
    made('gym-pusht')
    options = {'arguments': {'obs_type': 'environment_state_agent_pos'}, 'images': {}, 'holds_state': False}
    host = gymnasium_host(mapping='pusht', state=['agent_pos', 'environment_state'], state_layout=[], **options)
    starts = np.array([host.reset('push-t', seed=seed).state for seed in WAYPOINTS], dtype=np.float32)
    host.close()  # type: ignore[attr-defined]
    actions = np.repeat(np.array(list(WAYPOINTS.values()), dtype=np.float32), 4, axis=1)
    shown = {'observation.state': starts[:, :2], 'observation.environment_state': starts[:, 2:]}
    np.savez(tmp_path / 'demonstrations.npz', **shown, action=actions)
    checkpoint, seed, n = tmp_path / 'act', min(WAYPOINTS) - 1, 6
    run_inside(made('lerobot-0.6'), 'lerobot_clone', str(tmp_path / 'demonstrations.npz'), str(checkpoint))
    theirs, told = lerobot_eval(
        checkpoint, tmp_path, '', '--env.type=pusht', '--env.obs_type=environment_state_agent_pos',
        '--env.episode_length=40', f'--seed={seed}', n=n,
    )  # fmt: skip
    ours = robotrials_run(PUSHT.format(n=n, seed=seed, path=json.dumps(str(checkpoint))), tmp_path)
    metrics = told['per_task'][0]['metrics']
    assert [e.is_success for e in ours] == [e.is_success for e in theirs] == metrics['successes']
    assert sorted(metrics['successes']) == [False, False, False, False, True, True]
    for own, other in zip(ours, theirs, strict=True):
        assert len(own.actions) == len(other.actions)
        np.testing.assert_array_equal(own.actions, other.actions)
        np.testing.assert_array_equal(own.states[:, :2], other.states)
        np.testing.assert_allclose(own.rewards, other.rewards, rtol=0.0, atol=1e-15)  # areas, by another numpy
    best = [float(np.max(e.rewards)) for e in ours if e.rewards is not None]
    np.testing.assert_allclose(best, metrics['max_rewards'], rtol=0.0, atol=1e-15)
    assert len({round(value, 6) for value in best}) == 5, 'the failures are not all the same'


LIBERO = """
benchmark = "libero-object"
seed = 1
episodes_per_cell = {n}
time_cap_s = {cap_s}
tasks = [{{name = "task_0"}}]

[host]
use = "libero"

[host.options]
suite = "libero-object"
cameras = ["agentview", "wrist"]
image_size = [64, 64]
assets = {assets}

[policies.act]
use = "lerobot"

[policies.act.options]
path = {path}
environment = "lerobot-0.6"
preset = "lerobot-libero"

[policies.act.options.observation.images]
"observation.images.image" = {{camera = "agentview", size_px = [64, 64], rotate_deg = 180}}
"observation.images.image2" = {{camera = "wrist", size_px = [64, 64], rotate_deg = 180}}

[policies.act.options.action]
chunk_length = {chunk}

[watchdog]
host_s = 600.0
policy_s = 600.0

[blinding]
enabled = false
"""
STEPS = 110  # of an episode, and of the one chunk that the checkpoint answers with
FREE = 25  # steps before the hand touches anything: a contact amplifies the last bits


def demonstrations(assets: Path, instances: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """First observations of a scripted policy, as LeRobot's keys have them, and all its actions."""
    host = libero_host(
        suite='libero-object', assets=str(assets), cameras=['agentview', 'wrist'], image_size=[64, 64],
        state='privileged', instrumented=False, start_timeout_s=RUN_S,
    )  # fmt: skip
    rows: dict[str, list[NDArray[Any]]] = {}
    try:
        for instance in instances:
            setup = Setup(task='task_0', seed=0, instance=instance)
            host.prepare(setup)
            seen, session = host.reset('task_0', seed=0), ScriptedLiberoPolicy(manner='hasty').start(setup, seed=0)
            rows.setdefault('observation.state', []).append(seen.state[:8].astype(np.float32))
            for key, camera in (('image', 'agentview'), ('image2', 'wrist')):
                rows.setdefault(f'observation.images.{key}', []).append(seen.images[camera][::-1, ::-1])
            actions: list[NDArray[Any]] = []
            host.expect_look(False)
            while host.outcome() is None:
                actions.append(session.act(seen).actions[0].astype(np.float32))
                seen = host.step(actions[-1])
            rows.setdefault('action', []).append(np.array((actions + STEPS * actions[-1:])[:STEPS]))
    finally:
        host.close()
    return {key: np.stack(values) for key, values in rows.items()}


def test_libero(tmp_path: Path, libero_assets: Path) -> None:
    """Three start states of one task; the checkpoint has seen the first. Axis-angles are of other precisions."""
    made('libero')
    np.savez(tmp_path / 'demonstrations.npz', **demonstrations(libero_assets, (0,)))
    checkpoint, n = tmp_path / 'act', 3
    run_inside(made('lerobot-0.6'), 'lerobot_clone', str(tmp_path / 'demonstrations.npz'), str(checkpoint))
    theirs, told = lerobot_eval(
        checkpoint, tmp_path, str(libero_assets), '--env.type=libero', '--env.task=libero_object',
        '--env.task_ids=[0]', '--env.observation_height=64', '--env.observation_width=64',
        f'--env.episode_length={STEPS}', '--seed=0', n=n,
    )  # fmt: skip
    plan = LIBERO.format(
        n=n, cap_s=STEPS / 20, assets=json.dumps(str(libero_assets)), path=json.dumps(str(checkpoint)), chunk=STEPS
    )
    ours = robotrials_run(plan, tmp_path)
    successes = told['per_task'][0]['metrics']['successes']
    assert [e.is_success for e in ours] == [e.is_success for e in theirs] == successes
    assert successes == [True, False, False], 'it was fitted to the first start'
    for own, other in zip(ours, theirs, strict=True):
        assert len(own.actions) == len(other.actions)
        np.testing.assert_allclose(own.actions, other.actions, atol=1e-4)
        np.testing.assert_allclose(own.states[:FREE], other.states[:FREE], atol=1e-4)
