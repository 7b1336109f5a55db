"""A comparison of training mixes from demonstrations to scores, with the probe itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.conftest import made

from robotrials.errors import InputError
from robotrials.run.plan import HostEntry
from robotrials.study.datasource import MixPlan, run_mix
from robotrials.verdict.audit.run_score import read_mix

pytestmark = pytest.mark.training


@pytest.fixture(scope='module', autouse=True)
def probe_environment() -> None:
    made('probe')


def test_mixes_are_trained_once_tested_on_every_task_and_resumed(tmp_path: Path) -> None:
    plan = MixPlan(
        tasks=('single_block', 'two_block', 'spatial'), blocks=('single_block', 'two_block'), demonstrations=4,
        episodes=2, time_cap_s=6.0, host=HostEntry('tabletop'), probe={'uses_images': False, 'steps': 20},
    )  # fmt: skip
    told: list[str] = []
    found = run_mix(plan, tmp_path / 'work', tell=told.append)
    assert {(s.mix, s.task): s.trained_on for s in found.scores} == {
        ('independent', 'single_block'): ('single_block',),
        ('independent', 'two_block'): ('two_block',),
        ('independent', 'spatial'): ('spatial',),
        ('blocks', 'single_block'): ('single_block', 'two_block'),
        ('blocks', 'two_block'): ('single_block', 'two_block'),
        ('blocks', 'spatial'): ('single_block', 'two_block'),
        **{('all', task): plan.tasks for task in plan.tasks},
    }
    assert all(len(s.outcomes) == 2 for s in found.scores)
    told.clear()
    assert run_mix(plan, tmp_path / 'work', tell=told.append) == found == read_mix(tmp_path / 'work' / 'mix.json')
    assert not any('demonstrations of' in line for line in told)
    with pytest.raises(InputError, match='of another plan'):
        run_mix(MixPlan(tasks=plan.tasks, blocks=plan.blocks, demonstrations=5, host=plan.host), tmp_path / 'work')
