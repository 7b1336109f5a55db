"""The shortcut diagnosis with the probe itself: in a world of known truth, and on LIBERO by its official protocol."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest
from tests.worlds.conftest import libero_assets, made
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.record import read_store
from robotrials.study import ShortcutPlan, diagnose_shortcut
from robotrials.study import shortcut as shortcut_preset
from robotrials.study.probe_maker import ProbeMaker
from robotrials.study.shortcut import ExpertOptions
from robotrials.value import read_table
from robotrials.verdict.audit import Shortcut
from robotrials.verdict.audit.shortcut import InputNeed

pytestmark = pytest.mark.training
__all__ = ['libero_assets']
WORDS = (
    'pick up the black bowl between the plate and the ramekin and place it on the plate',
    'pick up the black bowl next to the ramekin and place it on the plate',
)


@pytest.fixture(scope='module', autouse=True)
def probe_environment() -> None:
    made('probe')


def diagnosed(values: dict[str, object], folder: Path, *, workers: int = 1) -> Shortcut:
    plan = read_table(ShortcutPlan, values, where='plan')
    return diagnose_shortcut(plan, folder, ProbeMaker(plan, folder), workers=workers)


def marks_plan(kind: str) -> dict[str, object]:
    """Two tasks of `tests.study.choice` from pictures; a minute of one core."""
    expert = {
        'use': 'tests.study.choice:ChoiceExpert', 'host': {'privileged': True}, 'episodes_per_task': 100,
        'time_cap_s': 2.0,
    }  # fmt: skip
    probe = {
        'steps': 700, 'checkpoints': [350], 'chunk_length': 2, 'execute': 1, 'augmentation': 0.0,
        'average_decay': 0.98, 'learning_rate': 0.002,
    }  # fmt: skip
    tasks = [{'name': f'{kind}_{side}', 'scene': kind} for side in ('left', 'right')]
    return {
        'host': {'use': 'tests.study.choice:ChoiceHost'}, 'expert': expert, 'probe': probe,
        'evaluation': {'tasks': tasks, 'episodes_per_task': 16, 'time_cap_s': 1.5},
        'variants': ['blind', 'shuffled'], 'margin': 0.15,
    }  # fmt: skip


@pytest.mark.parametrize(('kind', 'task_is'), [('choose', InputNeed.NEEDED), ('single', InputNeed.NOT_NEEDED)])
def test_the_right_task_is_needed_only_where_tasks_share_a_scene(tmp_path: Path, kind: str, task_is: InputNeed) -> None:
    found = diagnosed(marks_plan(kind), tmp_path)
    assert found.final_checkpoint.interval.low > 0.8
    assert {v.score.name: v.need for v in found.variants} == {'blind': InputNeed.NEEDED, 'shuffled': task_is}
    assert found.probe.mid_motion == 0


def write_demonstrations(path: Path, words: str, *, seed: int) -> Path:
    """Two short demonstrations in LIBERO's layout, of random motions: enough to train on, and no good."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, 'w') as file:
        data = file.create_group('data')
        data.attrs['env_args'] = json.dumps({'env_kwargs': {'control_freq': 20}})
        data.attrs['problem_info'] = json.dumps({'language_instruction': words})
        data.attrs['bddl_file_name'] = f'libero_spatial/{words.replace(" ", "_")}.bddl'
        data.attrs['num_demos'] = 2
        for number in range(2):
            demo = data.create_group(f'demo_{number}')
            demo['actions'] = np.clip(rng.normal(0, 0.3, (30, 7)), -1, 1)
            demo['rewards'] = np.arange(30) == 29
            demo['obs/ee_states'] = rng.normal(0, 0.1, (30, 6))
            demo['obs/gripper_states'] = rng.normal(0, 0.01, (30, 2))
            for camera in ('agentview', 'eye_in_hand'):
                demo[f'obs/{camera}_rgb'] = rng.integers(0, 255, (30, 128, 128, 3), dtype=np.uint8)
    return path


def test_libero_is_diagnosed_from_its_own_files_by_its_own_protocol(tmp_path: Path, libero_assets: Path) -> None:
    """Fixed start states by number, the suite's settling and cap; what is left out of the protocol is said."""
    made('libero')
    files = [write_demonstrations(tmp_path / f'{i}_demo.hdf5', words, seed=i) for i, words in enumerate(WORDS)]
    options = {
        'suite': 'libero-spatial', 'cameras': ['agentview', 'wrist'], 'image_size': [128, 128],
        'assets': str(libero_assets),
    }  # fmt: skip
    values: dict[str, object] = {
        'host': {'use': 'libero', 'options': options},
        'demonstrations': [str(file) for file in files],
        'probe': {'steps': 20, 'batch': 8, 'image_size': [32, 32]},
        'evaluation': {'tasks': [{'name': 'task_0'}, {'name': 'task_1'}], 'episodes_per_task': 2, 'time_cap_s': 0.5},
        'variants': ['shuffled'],
    }
    found = diagnosed(values, tmp_path / 'work')
    assert found.final_checkpoint.n == 4
    assert found.final_checkpoint.missing == 0
    episodes = list(read_store(tmp_path / 'work' / 'store').episodes())
    assert {(e.task, e.instance) for e in episodes} == {(f'task_{t}', i) for t in range(2) for i in range(2)}
    told = ' / '.join(found.deviations)
    for said in ('2 of the 10 official tasks', '2 start states x 1 per task, official 50 x 1', 'end at 10 steps'):
        assert said in told
    assert 'start states:' not in told  # they are the benchmark's own, by number


def test_the_cell_by_its_name_alone_and_again_without_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the docs, with few demonstrations and steps: what matters is that every part of it runs."""
    few = dataclasses.replace(shortcut_preset.EXPERTS['tabletop'], episodes_per_task=4, time_cap_s=8.0)
    monkeypatch.setitem(cast('dict[str, ExpertOptions]', shortcut_preset.EXPERTS), 'tabletop', few)
    command = ['audit', 'shortcut', 'tabletop', '-t', 'choose_red', '-t', 'choose_blue', '-o', str(tmp_path / 'work')]
    command += ['--episodes', '2', '--time-cap', '2', '--steps', '8', '--format', 'json']
    first = CliRunner().invoke(full_app(), command)
    assert first.exit_code == 0, first.output
    cells = {str(cell) for table in json.loads(first.stdout) for row in table['rows'] for cell in row.values()}
    assert {'blind', 'shuffled'} <= cells
    assert CliRunner().invoke(full_app(), command).stdout == first.stdout
