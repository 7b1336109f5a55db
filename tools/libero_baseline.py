"""Run the scripted LIBERO baseline over start states, and print what it did on each task as Markdown.

    python tools/libero_baseline.py STORE SUITE MANNER TASK [TASK ...]

Episodes are kept in STORE; what is there is not run again. ROBOTRIALS_LIBERO_ASSETS says where the assets are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from robotrials.measure.safety import score_episode
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.run import Order, Setup, run_episode
from robotrials.show.table import render, table
from robotrials.worlds.libero import find_suite, libero_host
from robotrials.worlds.libero.scripted import ScriptedLiberoPolicy

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
        (benchmark, task, words[benchmark, task], policy, len(found), sum(s for s, _, _ in found),
         sum(safe is False for _, safe, _ in found), round(max(force for _, _, force in found)))
        for (benchmark, task, policy), found in sorted(groups.items())
    ]  # fmt: skip
    columns = ['suite', 'task', 'instruction', 'policy', 'episodes', 'successes', 'unsafe', 'peak N']
    return render(table('Scripted baseline', columns, rows), 'markdown')


if __name__ == '__main__':
    main(*sys.argv[1:])
