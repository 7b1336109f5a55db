"""The scene reset check on the embedded cell: a scene as planned starts, any other is INVALID with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, RigError

pytest.importorskip('mujoco')
import mujoco

from robotrials.run.seam import Observation, Setup
from robotrials.worlds.cell.checked import CELL_BOUNDS_M, CheckedHost, PlannedCell, checked_cell


class ClumsyCell(PlannedCell):
    """A cell whose automatic reset goes wrong: after it, some hand changes the scene."""

    upset: Callable[[Any, Any], None] | None = None
    resets = 0

    def reset(self, task: str, *, seed: int) -> Observation:
        super().reset(task, seed=seed)
        start = self._begun()
        self.resets += 1
        if self.upset is not None:
            self.upset(start.scene, start.data)
            mujoco.mj_forward(start.scene.model, start.data)
            self._read_poses()
        return self._observe()


@pytest.fixture(scope='module')
def cell() -> Iterator[ClumsyCell]:
    host = ClumsyCell(cameras=('front', 'side'), image_size=(240, 320))
    yield host
    host.close()


def checked(cell: ClumsyCell, upset: Callable[[Any, Any], None] | None) -> CheckedHost:
    cell.upset, cell.resets = upset, 0
    return CheckedHost(cell, cell.planned, bounds_m=CELL_BOUNDS_M)


def shift(name: str, *, x_m: float = 0.0, y_m: float = 0.0, yaw_rad: float = 0.0) -> Callable[[Any, Any], None]:
    def upset(scene: Any, data: Any) -> None:
        at = scene.item_qpos[name]
        data.qpos[at : at + 2] += (x_m, y_m)
        if yaw_rad:
            turned = np.empty(4)
            quaternion = np.array([np.cos(yaw_rad / 2), 0, 0, np.sin(yaw_rad / 2)])
            mujoco.mju_mulQuat(turned, quaternion, data.qpos[at + 3 : at + 7].copy())
            data.qpos[at + 3 : at + 7] = turned

    return upset


@pytest.mark.parametrize(('task', 'seed'), [('single_block', 11), ('two_block', 12), ('three_block', 13)])
def test_a_scene_as_planned_starts_at_once(cell: ClumsyCell, task: str, seed: int) -> None:
    host = checked(cell, None)
    observation = host.reset(task, seed=seed)
    assert observation.images.keys() == {'front', 'side'}
    assert host.last_check is not None
    assert host.last_check.is_as_planned
    assert {c.name for c in host.last_check.objects} == set(cell.planned().boxes)
    assert all(c.translation_error_m < 0.005 for c in host.last_check.objects if c.translation_error_m is not None)
    assert cell.resets == 1


@pytest.mark.parametrize(
    ('upset', 'reason'),
    [
        (shift('red_block', x_m=0.03), r'reset: red_block moved by (29|30|31) mm \(2 resets\)'),
        (shift('red_block', yaw_rad=0.5), 'reset: red_block turned'),
        (shift('red_block', x_m=-5.0), r'reset: red_block missing \(2 resets\)'),
    ],
)
def test_a_block_out_of_place_is_refused_with_its_reason(
    cell: ClumsyCell, upset: Callable[[Any, Any], None], reason: str
) -> None:
    host = checked(cell, upset)
    with pytest.raises(RigError, match=reason):
        host.reset('single_block', seed=21)
    assert cell.resets == 2
    assert host.last_check is not None
    assert not host.last_check.is_as_planned


def test_only_the_block_that_is_wrong_is_named(cell: ClumsyCell) -> None:
    cell.upset = None
    cell.reset('three_block', seed=13)
    name = sorted(cell.planned().boxes)[0]
    with pytest.raises(RigError, match=rf'^reset: {name} missing \(2 resets\)$'):
        checked(cell, shift(name, x_m=-5.0)).reset('three_block', seed=13)


def test_a_second_reset_may_mend_it(cell: ClumsyCell) -> None:
    def once(scene: Any, data: Any) -> None:
        if cell.resets == 1:
            shift('red_block', y_m=0.05)(scene, data)

    checked(cell, once).reset('single_block', seed=21)
    assert cell.resets == 2


def test_a_check_without_cameras_or_without_boxes_is_refused() -> None:
    bare = PlannedCell()
    with pytest.raises(InputError, match='no cameras'):
        CheckedHost(bare, bare.planned)
    with pytest.raises(InputError, match='resets is 0'):
        checked_cell(resets=0)
    host = checked_cell()
    host.prepare(Setup(task='bin_to_bin', seed=1, stratum='spoon'))
    with pytest.raises(InputError, match='no item of task bin_to_bin is a plain box'):
        host.reset('bin_to_bin', seed=1)
    host.close()


def clumsy_cell() -> CheckedHost:
    """For a plan: the block is carried off at every reset."""
    cell = ClumsyCell(state='privileged', cameras=('front', 'side'), image_size=(120, 160))
    cell.upset = shift('red_block', x_m=-5.0)
    return CheckedHost(cell, cell.planned, bounds_m=CELL_BOUNDS_M)


@pytest.mark.parametrize(
    ('use', 'outcome'), [('robotrials.worlds.cell.checked:checked_cell', 'success'), ('', 'invalid')]
)
def test_a_run_counts_a_wrong_scene_as_invalid(tmp_path: Path, use: str, outcome: str) -> None:
    from tests.cli.command import robotrials

    from robotrials.record import read_store

    options = 'options = { state = "privileged", image_size = [120, 160] }' if use else ''
    (tmp_path / 'trial.toml').write_text(f"""
seed = 5
episodes_per_cell = 1
time_cap_s = 30.0
[host]
use = "{use or 'tests.worlds.cell.test_checked:clumsy_cell'}"
{options}
[[tasks]]
name = "single_block"
[policies.hand]
use = "scripted"
options = {{ temper = "reference" }}
[faults]
attempts = 1
[blinding]
enabled = false
""")
    robotrials('run', tmp_path / 'trial.toml', '--store', tmp_path / 'store')
    (episode,) = read_store(tmp_path / 'store').episodes()
    assert episode.outcome == outcome
    if outcome == 'invalid':
        assert 'red_block missing' in episode.reason
