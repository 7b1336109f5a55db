"""What the loop and the recorder cost over a bare loop, and what a second worker brings."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.measure import Result, against, seconds
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


def run() -> list[Result]:
    return [*_overhead(), _two_workers()]


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


def _two_workers() -> Result:
    """Workers' start is left out: a trial of hours pays it once."""
    plan = stepping_plan()
    taken = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            moments: list[float] = []
            run_trial(plan, Path(folder) / 's', workers=workers, report=lambda p, m=moments: m.append(time.monotonic()))  # type: ignore[misc]
            taken[workers] = (moments[-1] - moments[SKIPPED - 1]) / (len(moments) - SKIPPED)
    work = f'{EPISODES} episodes of {EPISODE_STEPS} steps into a store, seconds an episode after the first {SKIPPED}'
    return against(
        'run/two workers', ours_s=taken[2], peer='one worker (our own)', peer_s=taken[1], target=1.7, work=work
    )
