"""Run the scripted LIBERO baseline over start states, and print what it did on each task as Markdown.

    python tools/libero_baseline.py STORE SUITE MANNER TASK [TASK ...]
    python tools/libero_baseline.py cameras RESULTS N_STARTS      the table of agreement between cameras and predicate

Episodes are kept in STORE; what is there is not run again. ROBOTRIALS_LIBERO_ASSETS says where the assets are.
RESULTS is a folder with a file for each suite and start state; what has one is not run again. Of each of 40 tasks two
ends of a start state are scored; each takes some five seconds of CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from robotrials.measure.safety import score_episode
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.run import Setup
from robotrials.run.environment.create import create_environment
from robotrials.run.environment.process import kept_variables
from robotrials.run.environment.recipe import link_robotrials, read_recipe
from robotrials.run.loop import Order, run_episode
from robotrials.show.table import render, table
from robotrials.worlds.libero import find_suite, libero_host
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy
from robotrials.worlds.libero.suite import find_assets

INSTANCES = 10


def main(path: str, suite: str, manner: str, *tasks: str) -> None:
    store = (
        read_store(path) if Path(path, 'trial.json').exists() else Store.create(path, title='scripted LIBERO baseline')
    )
    done = {(e.policy, e.benchmark, e.task, e.instance) for e in store.episodes() if e.is_valid}
    host = libero_host(suite=suite, state='privileged', timeout_s=300.0)
    policy = ScriptedLiberoPolicy(manner=manner)
    cap_s = find_suite(suite).step_cap / host.spec.control_rate_hz
    for task in tasks:
        for instance in range(INSTANCES):
            if (manner, suite, task, instance) in done:
                continue
            setup = Setup(task=task, seed=instance, instance=instance)
            ran = run_episode(host, policy, setup, order=Order(time_cap_s=cap_s, policy_seed=0))
            episode = Episode(
                policy=manner, benchmark=suite, task=task, instance=instance, seed=instance, duration_s=ran.duration_s,
                outcome=ran.outcome or Outcome.INVALID, time_cap_s=cap_s, instruction=ran.report.instruction,
                reason='' if ran.fault is None else ran.fault.reason,
            )  # fmt: skip
            trajectories = {episode.key: ran.trajectory} if ran.trajectory is not None else None
            store.append([episode], trajectories=trajectories)
            print(f'{manner} {suite} {task} {instance} {episode.outcome}', file=sys.stderr, flush=True)
    host.close()
    print(summary(path))


def summary(path: str) -> str:
    """Successes and unsafe episodes of each policy and task."""
    groups: dict[tuple[str, str, str], list[tuple[bool, bool | None, float]]] = {}
    words: dict[tuple[str, str], str] = {}
    for episode, trajectory in read_store(path).trajectories():
        if episode.is_valid:
            score = score_episode(episode, trajectory)
            known = groups.setdefault((episode.benchmark, episode.task, episode.policy), [])
            known.append((episode.outcome is Outcome.SUCCESS, score.safe, score.peak_force_n or 0.0))
            words[episode.benchmark, episode.task] = episode.instruction
    rows = [
        (benchmark, task, words[benchmark, task], policy, len(scored), sum(s for s, _, _ in scored),
         sum(safe is False for _, safe, _ in scored), round(max(force for _, _, force in scored)))
        for (benchmark, task, policy), scored in sorted(groups.items())
    ]  # fmt: skip
    columns = ['suite', 'task', 'instruction', 'policy', 'episodes', 'successes', 'unsafe', 'peak N']
    return render(table('Scripted baseline', columns, rows), 'markdown')


SCRIPT = Path(__file__).resolve().parent.parent / 'tests/worlds/inside/camera_ends.py'
FOUR_SUITES = ('libero-object', 'libero-10', 'libero-spatial', 'libero-goal')


def cameras(folder: str, n_starts: str) -> None:
    """Ends of known truth for every task of the four suites, two processes at a time, and their table."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    environment = create_environment(read_recipe('libero'))
    variables = {
        **kept_variables(), 'PYTHONPATH': str(link_robotrials(environment.folder)), 'MUJOCO_GL': 'egl',
        'PYOPENGL_PLATFORM': 'egl', 'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore',
    }  # fmt: skip

    def run(job: tuple[int, str]) -> None:
        instance, suite = job
        path = Path(folder, f'{suite}-{instance}.jsonl')
        if path.exists():
            return
        draft = path.with_suffix('.part')
        command = [str(environment.python), str(SCRIPT), str(find_assets()), suite, str(instance)]
        with draft.open('w') as sink:
            subprocess.run(command, stdout=sink, env=variables, check=True, stdin=subprocess.DEVNULL)
        os.replace(draft, path)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, [(instance, suite) for instance in range(int(n_starts)) for suite in FOUR_SUITES]))
    print(camera_table(Path(folder)))


def camera_table(folder: Path) -> str:
    """Agreement of cameras and predicate for every task, and why ends are unscored."""
    lines = [line for path in sorted(folder.glob('*.jsonl')) for line in path.read_text().splitlines()]
    ends = [json.loads(line.removeprefix('RESULT')) for line in lines if line.startswith('RESULT')]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for end in ends:
        groups.setdefault((end['suite'], end['task']), []).append(end)
    rows = [(*key, own[0]['instruction'], *_counts(own), _why(own)) for key, own in sorted(groups.items())]
    rows.append(('all', '', f'{len(groups)} tasks', *_counts(ends), ''))
    columns = [
        'suite',
        'task',
        'instruction',
        'successes',
        'said',
        'failures',
        'said',
        'unscored',
        'wrong',
        'unscored, because',
    ]
    return render(table('Cameras against the predicate', columns, rows), 'markdown')


def _counts(ends: list[dict[str, Any]]) -> tuple[int, int, int, int, int, int]:
    """Successes by the predicate and of them by the cameras, failures likewise, unscored ends and wrong verdicts."""
    said = Counter((end['truth'], end['said']) for end in ends)
    n_true = sum(n for (truth, _), n in said.items() if truth)
    unscored = said[True, None] + said[False, None]
    wrong = said[True, False] + said[False, True]
    return n_true, said[True, True], len(ends) - n_true, said[False, False], unscored, wrong


def _why(ends: list[dict[str, Any]]) -> str:
    """The first reason of every goal that left an end unscored."""
    reasons = [r for e in ends if e['said'] is None for _, reached, r in e['goals'] if reached is None]
    return '; '.join(dict.fromkeys(reason.split(';')[0] for reason in reasons))


if __name__ == '__main__':
    cameras(*sys.argv[2:]) if sys.argv[1:2] == ['cameras'] else main(*sys.argv[1:])
