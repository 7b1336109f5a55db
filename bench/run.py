"""What the loop and the recorder cost over a bare loop, and what more workers bring: cores, and waiting at once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from tests.servers import OpenPiServer

from bench.measure import OWN, Result, against, seconds
from robotrials.run import Setup, TrialPlan, run_trial
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import RecordingOptions
from robotrials.testing.policy import PointMassHost, SeekPolicy
from robotrials.value import read_table

STEPS = 2000
SUBSTEPS = 3000  # a control step of about 0.3 ms, as light as a simulated arm's
EPISODES = 24
SKIPPED = 4  # until every worker is at work
EPISODE_STEPS = 800
THINKS_S, CHUNK = 0.1, 10  # of a policy's server, and the actions of each of its answers
ANSWERS = 6  # in an episode
EACH = 6  # episodes of each worker, of which two are not counted
# By the number of workers: how many times the episodes of one. Two cores also run eight hosts.
WAITING_TARGETS = {2: 1.8, 4: 3.4, 8: 5.5}


def run() -> list[Result]:
    return [*_overhead(), _two_workers(), *_waiting_workers()]


def _host(substeps: int) -> PointMassHost:
    return PointMassHost(table_m=1e9, reach_m=-1.0, substeps=substeps)


def _bare(substeps: int) -> float:
    """Host and policy called back to back, nothing checked or kept."""
    host, policy = _host(substeps), SeekPolicy(speed_m_s=0.01)

    def loop() -> None:
        observation = host.reset('reach', seed=0)
        session = policy.start(Setup(task='reach', seed=0), seed=0)
        for _ in range(STEPS):
            observation = host.step(session.act(observation).actions[0])
            host.outcome()

    return seconds(loop)


def _ours(substeps: int, *, recording: bool) -> float:
    host, policy = _host(substeps), SeekPolicy(speed_m_s=0.01)
    order = Order(time_cap_s=STEPS / 20, policy_seed=0, recording=RecordingOptions(trajectories=recording))

    def loop() -> None:
        rollout = run_episode(host, policy, Setup(task='reach', seed=0), order=order)
        if rollout.n_steps != STEPS:
            raise RuntimeError(f'the episode ended after {rollout.n_steps} steps: {rollout.fault}')

    return seconds(loop)


def _overhead() -> list[Result]:
    results = []
    for substeps, label, target in ((SUBSTEPS, 'a host of 0.3 ms a step', 0.7), (1, 'the bare point mass', 0.3)):
        bare_s = _bare(substeps)
        for recording in (True, False):
            ours_s = _ours(substeps, recording=recording)
            extra_us = (ours_s - bare_s) / STEPS * 1e6
            kept = 'recorder on' if recording else 'recorder off'
            work = f'{STEPS} steps, {kept}; {bare_s / STEPS * 1e6:.0f} us a step bare, {extra_us:.0f} us more with ours'
            name = f'run/loop, {label}, {kept}'
            results.append(against(name, ours_s=ours_s, peer='bare loop', peer_s=bare_s, target=target, work=work))
    return results


def stepping_plan(*, episodes: int = EPISODES, steps: int = EPISODE_STEPS, think_s: float = 0.0) -> TrialPlan:
    """Episodes that neither succeed nor fail, so that every one takes all its steps; each waits `think_s`."""
    options = {'table_m': 1e9, 'reach_m': -1.0, 'substeps': SUBSTEPS}
    values = {
        'seed': 1,
        'host': {'use': 'point-mass', 'options': options},
        'tasks': ['reach'],
        'policies': {
            name: {'use': 'seek', 'options': {'speed_m_s': speed, 'think_s': think_s}}
            for name, speed in (('a', 0.01), ('b', 0.5))
        },
        'episodes_per_cell': episodes // 2,
        'time_cap_s': steps / 20,
    }
    return read_table(TrialPlan, values, where='bench')


def _each_s(plan: TrialPlan, *, workers: int, skipped: int) -> float:
    """Seconds per episode after the first few. Workers' start is left out: a trial of hours pays it once."""
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run_trial(plan, Path(folder) / 's', workers=workers, report=lambda _: moments.append(time.monotonic()))
    return (moments[-1] - moments[skipped - 1]) / (len(moments) - skipped)


def _two_workers() -> Result:
    taken = {workers: _each_s(stepping_plan(), workers=workers, skipped=SKIPPED) for workers in (1, 2)}
    work = f'{EPISODES} episodes of {EPISODE_STEPS} steps into a store, seconds an episode after the first {SKIPPED}'
    return against(
        'run/two workers', ours_s=taken[2], peer='one worker (our own)', peer_s=taken[1], target=1.7, work=work
    )


def _served_plan(url: str, *, episodes: int) -> TrialPlan:
    """Episodes of an arm as light as in `stepping_plan`, whose two policies are one server on this machine."""
    served = {
        'url': url, 'observation': {'state': {'state': {'parts': [{'take': [0, 4]}], 'number': 'float64'}}},
        'action': {
            'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': CHUNK,
            'control_rate_hz': 20.0,
        },
    }  # fmt: skip
    values = {
        'seed': 1,
        'host': {'use': 'point-mass', 'options': {'table_m': 1e9, 'reach_m': -1.0, 'substeps': SUBSTEPS}},
        'tasks': ['reach'],
        'policies': {name: {'use': 'openpi', 'options': served} for name in ('a', 'b')},
        'episodes_per_cell': episodes // 2,
        'time_cap_s': ANSWERS * CHUNK / 20,
    }
    return read_table(TrialPlan, values, where='bench')


def _waiting_workers() -> list[Result]:
    """More workers than cores, of a policy that is waited for: its server takes its time and answers all at once."""
    actions = np.full((CHUNK, 3), 1e-3)

    def infer(_: object) -> dict[str, object]:
        time.sleep(THINKS_S)
        return {'actions': actions}

    each_s = {}
    with OpenPiServer(infer) as server:
        for workers in (1, *WAITING_TARGETS):
            plan = _served_plan(server.url, episodes=EACH * workers)
            each_s[workers] = _each_s(plan, workers=workers, skipped=2 * workers)
    return [
        against(
            f'run/{workers} workers, a server of {THINKS_S * 1e3:.0f} ms', ours_s=each_s[workers],
            peer=f'one worker{OWN}', peer_s=each_s[1], target=target,
            work=f'{ANSWERS} answers of {CHUNK} actions per episode; {60 / each_s[workers]:.0f} episodes per minute, '
            f'{60 / each_s[1]:.0f} of one worker, into a store',
        )
        for workers, target in WAITING_TARGETS.items()
    ]  # fmt: skip
