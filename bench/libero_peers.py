"""LIBERO head to head: vla-eval's harness, LeRobot's evaluator and our loop, on the same start states and actions.

The actions are a scripted policy's, played back, so that some episodes succeed and some do not. vla-eval's own model
server answers its harness and our loop; LeRobot's evaluator has the same actions in its own process, and needs no wire.
All three draw two cameras of the same size with the same MuJoCo, and start from the benchmark's first start state.
Here every harness has one worker; `bench.libero_workers` measures two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against
from robotrials.errors import SetupError
from robotrials.policies.vla_eval import VlaEvalPolicy
from robotrials.record import Outcome
from robotrials.run import Setup
from robotrials.run.environment import Environment, find_environment, read_recipe
from robotrials.run.environment.process import kept_variables
from robotrials.run.environment.recipe import link_robotrials
from robotrials.run.loop import Order, run_episode
from robotrials.worlds.libero import libero_host

SCRIPTS = Path(__file__).parent / 'inside'
RUN_S = 3000.0
RATE_HZ = 20.0
Tasks = Mapping[str, Sequence[int]]  # suite -> numbers of its tasks
TASKS: Tasks = {'libero-spatial': (0, 4)}
TARGETS = {1: 1.1, 5: 3.0, 10: 5.0}  # chunk -> processor time of a peer over ours


@dataclass(frozen=True, slots=True)
class Played:
    """One episode as a harness tells it."""

    is_success: bool
    n_steps: int


@dataclass(frozen=True, slots=True)
class Run:
    """Episodes by suite and instruction, and what they cost without imports."""

    episodes: Mapping[tuple[str, str], Played]
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Arena:
    """What the three have in common: LIBERO's environment and assets, the tasks, the cap and the pictures."""

    environment: Environment
    assets: Path
    cap: int = 110
    side_px: int = 64

    def record(self, tasks: Tasks, file: Path) -> None:
        """Write the actions of every task into one file, by instruction."""
        actions: dict[str, Any] = {}
        for suite, numbers in tasks.items():
            part = file.with_name(f'{suite}.npz')
            self._inside('libero_actions', suite, str(self.cap), str(part), *map(str, numbers))
            actions.update(np.load(part))
        np.savez(file, **actions)

    def vla_eval(self, tasks: Tasks, url: str, packages: Path, *, shard: int = 0, n_shards: int = 1) -> Run:
        """vla-eval's own harness and LIBERO benchmark; one process after the other, one for each suite.

        Of several shards it takes the episodes of its own by itself.
        """
        size, sharding = (str(self.cap), str(self.side_px)), (str(shard), str(n_shards))
        return _joined(
            self._inside('vla_eval_loop', str(packages), url, suite, *size, *sharding, *map(str, numbers))
            for suite, numbers in tasks.items()
        )

    def lerobot(self, tasks: Tasks, file: Path, python: Environment, overlay: Path) -> Run:
        """LeRobot's own rollout over its own LIBERO environments, in LeRobot's environment."""
        return _joined(
            self._inside(
                'lerobot_loop', str(overlay), str(file), suite, str(self.cap), str(self.side_px), *map(str, numbers),
                environment=python,
            )
            for suite, numbers in tasks.items()
        )  # fmt: skip

    def ours(self, tasks: Tasks, url: str, *, chunk: int, is_instrumented: bool = True) -> Run:
        """Our loop over the isolated host, with the policy behind vla-eval's wire; `together` adds the loop's cost."""
        parts = [self._suite(suite, n, url, chunk, is_instrumented) for suite, n in tasks.items()]
        episodes = {key: played for part in parts for key, played in part.episodes.items()}
        return Run(episodes, sum(part.cpu_s for part in parts), sum(part.wall_s for part in parts))

    def _suite(self, suite: str, numbers: Sequence[int], url: str, chunk: int, is_instrumented: bool) -> Run:
        size = [self.side_px, self.side_px]
        host = libero_host(
            suite=suite, cameras=['agentview', 'wrist'], image_size=size, assets=str(self.assets), step_cap=self.cap,
            timeout_s=RUN_S, start_timeout_s=RUN_S, instrumented=is_instrumented,
        )  # fmt: skip
        picture = {'size_px': size, 'rotate_deg': 180}
        seen = {'images.agentview': {'camera': 'agentview', **picture}, 'images.wrist': {'camera': 'wrist', **picture}}
        policy = VlaEvalPolicy(
            url=url, preset='vla-eval-libero', observation={'images': seen}, action={'chunk_length': chunk},
            answer_timeout_s=RUN_S,
        )  # fmt: skip
        episodes: dict[tuple[str, str], Played] = {}
        try:
            policy.fit(host.spec)
            began_s, began_cpu_s = time.perf_counter(), _cpu_s(host.pid)
            for number in numbers:
                setup = Setup(task=f'task_{number}', seed=0, instance=0)
                order = Order(time_cap_s=self.cap / RATE_HZ, policy_seed=0)
                ran = run_episode(host, policy, setup, order=order)
                if ran.fault is not None:
                    raise RuntimeError(f'{suite} task_{number}: {ran.fault.reason}')
                played = Played(ran.outcome is Outcome.SUCCESS, ran.n_steps)
                episodes[suite, str(ran.report.instruction)] = played
            return Run(episodes, _cpu_s(host.pid) - began_cpu_s, time.perf_counter() - began_s)
        finally:
            policy.close()
            host.close()

    def _inside(self, script: str, *given: str, environment: Environment | None = None) -> tuple[str, dict[str, Any]]:
        return script, run_inside(environment or self.environment, script, str(self.assets), *given)


def run_inside(environment: Environment, script: str, *given: str) -> dict[str, Any]:
    """What a script of bench/inside tells after RESULT, run in an environment of its own."""
    variables = {
        **kept_variables(), 'PYTHONPATH': str(link_robotrials(environment.folder)), 'MUJOCO_GL': 'egl',
        'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore', 'HF_HUB_OFFLINE': '1',
    }  # fmt: skip
    command = [str(environment.python), str(SCRIPTS / f'{script}.py'), *given]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S, env=variables, stdin=subprocess.DEVNULL, check=False
    )
    if ran.returncode:
        raise RuntimeError(f'{script} failed:\n{ran.stderr[-4000:]}')
    answer: dict[str, Any] = json.loads(ran.stdout.rpartition('RESULT')[2])
    return answer


def _joined(parts: Iterator[tuple[str, dict[str, Any]]]) -> Run:
    episodes: dict[tuple[str, str], Played] = {}
    cpu_s = wall_s = 0.0
    for script, answer in parts:
        cpu_s, wall_s = cpu_s + answer['cpu_s'], wall_s + answer['wall_s']
        for episode in answer['episodes']:
            if episode.get('fault'):
                raise RuntimeError(f'{script}: {episode["task"]}: {episode["fault"]}')
            key = (episode['suite'], episode['task'])
            episodes[key] = Played(episode['success'], episode['steps'])
    return Run(episodes, cpu_s, wall_s)


def _cpu_s(process: int | None) -> float:
    """Processor time of a process so far, as the kernel counts it."""
    fields = Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def run() -> Iterator[Result]:
    """Episodes per CPU-minute and per minute, chunks of 1, 5 and 10, one worker; outcomes must be equal."""
    return head_to_head('libero_peers', n_workers=1)


def head_to_head(area: str, *, n_workers: int) -> Iterator[Result]:
    """Rows of one number of workers.

    Several workers are as many shards of vla-eval's, evaluators of LeRobot's with a part of the tasks each, and hosts
    of ours; every harness has one model server.
    """
    from bench.libero import unpacked_assets

    environment, lerobot = (_environment(name) for name in ('libero', 'lerobot-0.6'))
    if environment is None:
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'tools'))
    from peer_environments import make_overlay, make_peer

    python, overlay = make_peer('vla-eval'), make_overlay('lerobot-eval') if lerobot is not None else Path()
    packages = next(python.parents[1].glob('lib/python*/site-packages'))
    shares = [{suite: numbers[worker::n_workers] for suite, numbers in TASKS.items()} for worker in range(n_workers)]
    with unpacked_assets() as assets, tempfile.TemporaryDirectory() as scratch:
        arena, file = Arena(environment, Path(assets)), Path(scratch, 'actions.npz')
        arena.record(TASKS, file)
        runs: dict[str, Run] = {}
        if lerobot is not None:
            runs['LeRobot'] = together([partial(arena.lerobot, share, file, lerobot, overlay) for share in shares])
        for chunk, target in TARGETS.items():
            with playback(python, file, chunk=chunk, is_whole=False) as url:
                shard = partial(arena.vla_eval, TASKS, url, packages, n_shards=n_workers)
                runs['vla-eval'] = together([partial(shard, shard=n) for n in range(n_workers)])
            with playback(python, file, chunk=chunk, is_whole=True) as url:
                ours = together([partial(arena.ours, share, url, chunk=chunk) for share in shares])
            for name, theirs in runs.items():
                work = f'chunks of {chunk}, {n_workers} worker{"s" if n_workers > 1 else ""}'
                yield from _rows(f'{area}/{name.lower()}/chunk_{chunk}', name, theirs, ours, target=target, work=work)


def _environment(name: str) -> Environment | None:
    try:
        return find_environment(name, read_recipe(name).digest)
    except SetupError as error:
        print(f'not measured: libero_peers in {name}; {error}')
        return None


def together(parts: Sequence[Callable[[], Run]]) -> Run:
    """Workers side by side: one set of episodes, all processor time with that of this process, the longest's time."""
    began_cpu_s = time.process_time()
    with ThreadPoolExecutor(len(parts)) as pool:
        runs = list(pool.map(lambda part: part(), parts))
    episodes = {key: played for run in runs for key, played in run.episodes.items()}
    cpu_s = time.process_time() - began_cpu_s + sum(run.cpu_s for run in runs)
    return Run(episodes, cpu_s, max(run.wall_s for run in runs))


def _rows(where: str, name: str, theirs: Run, ours: Run, *, target: float, work: str) -> Iterator[Result]:
    """Processor time, and time on the clock."""
    if theirs.episodes != ours.episodes:
        raise RuntimeError(f'{name}: other outcomes than ours: {theirs.episodes}, {ours.episodes}')
    n = len(ours.episodes)
    for part, unit in (('cpu', 'CPU-minute'), ('wall', 'minute of the clock')):
        ours_s, peer_s = getattr(ours, f'{part}_s'), getattr(theirs, f'{part}_s')
        rates = f'episodes per {unit} {60 * n / ours_s:.1f} and {60 * n / peer_s:.1f}'
        full = f'{n} episodes of LIBERO-Spatial, two 64x64 cameras, {work}, equal outcomes and steps; {rates}'
        yield against(f'{where}/{part}', ours_s=ours_s, peer=name, peer_s=peer_s, target=target, work=full)


@contextmanager
def playback(python: Path, file: Path, *, chunk: int, is_whole: bool) -> Iterator[str]:
    """The URL of a model server of vla-eval's, run by its own package; whole chunks, or one action an answer."""
    manner = 'chunks' if is_whole else 'steps'
    command = [str(python), '-W', 'ignore', str(SCRIPTS / 'vla_eval_server.py'), str(file), str(chunk), manner]
    serving = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if serving.stdout is None:
            raise RuntimeError('the server has no output')
        yield serving.stdout.readline().strip()
    finally:
        serving.kill()
        serving.communicate()
