"""LIBERO head to head: vla-eval's harness, LeRobot's evaluator and our loop, on the same start states and actions.

The actions are a scripted policy's, played back, so that some episodes succeed and some do not. vla-eval's own model
server answers its harness and our loop; LeRobot's evaluator has the same actions in its own process, and needs no wire.
All three draw two cameras of the same size with the same MuJoCo, and start from the benchmark's first start state.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.policies.vla_eval import VlaEvalPolicy
from robotrials.record import Outcome
from robotrials.run import Order, Setup, run_episode
from robotrials.run.environment import Environment
from robotrials.run.environment.process import kept_variables
from robotrials.run.environment.recipe import link_robotrials
from robotrials.worlds.libero import libero_host

SCRIPTS = Path(__file__).parent / 'inside'
RUN_S = 3000.0
RATE_HZ = 20.0
Tasks = Mapping[str, Sequence[int]]  # suite -> numbers of its tasks


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

    def vla_eval(self, tasks: Tasks, url: str, packages: Path) -> Run:
        """vla-eval's own harness and LIBERO benchmark; one process after the other, one for each suite."""
        common = (str(packages), url)
        return _joined(
            self._inside('vla_eval_loop', *common, suite, str(self.cap), str(self.side_px), *map(str, numbers))
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
        """Our loop over the isolated host, with the policy behind vla-eval's wire."""
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
            began_s, began_cpu_s = time.perf_counter(), _cpu_s(os.getpid(), host.pid)
            for number in numbers:
                setup = Setup(task=f'task_{number}', seed=0, instance=0)
                order = Order(time_cap_s=self.cap / RATE_HZ, policy_seed=0)
                ran = run_episode(host, policy, setup, order=order)
                if ran.fault is not None:
                    raise RuntimeError(f'{suite} task_{number}: {ran.fault.reason}')
                played = Played(ran.outcome is Outcome.SUCCESS, ran.n_steps)
                episodes[suite, str(ran.report.instruction)] = played
            cpu_s = _cpu_s(os.getpid(), host.pid) - began_cpu_s
            return Run(episodes, cpu_s, time.perf_counter() - began_s)
        finally:
            policy.close()
            host.close()

    def _inside(self, script: str, *given: str, environment: Environment | None = None) -> tuple[str, dict[str, Any]]:
        place = environment or self.environment
        variables = {
            **kept_variables(), 'PYTHONPATH': str(link_robotrials(place.folder)), 'MUJOCO_GL': 'egl',
            'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore', 'HF_HUB_OFFLINE': '1',
        }  # fmt: skip
        command = [str(place.python), str(SCRIPTS / f'{script}.py'), str(self.assets), *given]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S, env=variables, stdin=subprocess.DEVNULL, check=False
        )
        if ran.returncode:
            raise RuntimeError(f'{script} failed:\n{ran.stderr[-4000:]}')
        return script, json.loads(ran.stdout.rpartition('RESULT')[2])


def _joined(parts: Iterator[tuple[str, dict[str, Any]]]) -> Run:
    episodes: dict[tuple[str, str], Played] = {}
    cpu_s = wall_s = 0.0
    for script, told in parts:
        cpu_s, wall_s = cpu_s + told['cpu_s'], wall_s + told['wall_s']
        for episode in told['episodes']:
            if episode.get('fault'):
                raise RuntimeError(f'{script}: {episode["task"]}: {episode["fault"]}')
            key = (episode['suite'], episode['task'])
            episodes[key] = Played(episode['success'], episode['steps'])
    return Run(episodes, cpu_s, wall_s)


def _cpu_s(*processes: int | None) -> float:
    """Processor time of processes so far, as the kernel counts it."""
    ticks = 0
    for pid in processes:
        fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


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
