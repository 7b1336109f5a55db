"""Logs that Inspect's and inspect-robots' own code writes, in their own environments, imported by the verb."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.patience import PATIENCE_S

from robotrials.record import Episode, read_store

pytestmark = pytest.mark.peers

INSPECT = """
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import solver

@solver
def yes():
    async def solve(state, generate):
        state.output.completion = 'yes'
        return state
    return solve

samples = [Sample(input=f'question {i}', target='yes' if i % 2 else 'no', id=i) for i in range(4)]
task = Task(dataset=samples, solver=yes(), scorer=match(), name='reach')
eval(task, model='mockllm/model', epochs=2, log_dir=sys.argv[1], display='none')
"""


def imported(path: Path, store: Path) -> list[Episode]:
    robotrials('import', path, '--to', store)
    return list(read_store(store).episodes())


def test_a_log_that_inspect_writes_is_imported(peer: Callable[[str], Path], tmp_path: Path) -> None:
    """Four samples, two epochs, of which those with an odd number are right."""
    logs = tmp_path / 'logs'
    subprocess.run(
        [str(peer('inspect-ai')), '-c', INSPECT, str(logs)], check=True, capture_output=True, timeout=5 * PATIENCE_S
    )
    log = next(logs.glob('*.eval'))
    found = imported(log, tmp_path / 'store')
    assert Counter(e.outcome.value for e in found) == {'success': 4, 'failure': 4}


def test_a_log_that_inspect_robots_writes_is_imported(peer: Callable[[str], Path], tmp_path: Path) -> None:
    """A scripted and a random policy on its own task; the scripted reaches; steps are those of the action files."""
    command = [str(peer('inspect-robots').with_name('inspect-robots')), 'run', '--task', 'cubepick-reach']
    for policy in ('scripted', 'random'):
        subprocess.run(
            [*command, '--policy', policy, '--embodiment', 'cubepick', '--epochs', '2', '--seed', '3', '--no-prompt',
             '--log-dir', str(tmp_path / 'logs')],
            check=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip
    found = imported(tmp_path / 'logs', tmp_path / 'store')
    by_policy = {name: [e for e in found if e.policy == name] for name in ('scripted', 'random')}
    assert len(by_policy['scripted']) == len(by_policy['random']) == 8
    assert all(e.is_success and e.steps for e in by_policy['scripted'])
