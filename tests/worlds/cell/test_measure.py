"""Peaks of contact forces, against MuJoCo's own account of each contact."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.worlds.cell.control import load_mujoco
from robotrials.worlds.cell.host import TabletopHost
from robotrials.worlds.cell.referee import FORCE_FLOOR_N, ContactMonitor


def test_forces_are_the_largest_sum_of_a_pair_over_the_substeps() -> None:
    mujoco = load_mujoco()
    host = TabletopHost(cameras=[])
    host.reset('bin_to_bin', seed=3)
    start = host._start
    assert start is not None
    model, data = start.scene.model, start.data
    monitor, peaks = ContactMonitor(start.scene, data), dict[tuple[str, str], float]()
    points: dict[tuple[str, str], np.ndarray] = {}
    data.qvel[start.scene.joint_dof] = 0.5  # so that torques and contacts change
    for _ in range(20):
        mujoco.mj_step(model, data)
        monitor.observe()
        total: dict[tuple[str, str], float] = {}
        moments: dict[tuple[str, str], np.ndarray] = {}
        for i in range(data.ncon):
            wrench = np.zeros(6)
            mujoco.mj_contactForce(model, data, i, wrench)
            bodies = (model.body(model.geom_bodyid[g]).name or 'world' for g in data.contact[i].geom)
            pair = tuple(sorted(name.removesuffix('_half') for name in bodies))
            magnitude = float(np.linalg.norm(wrench[:3]))
            total[pair[0], pair[1]] = total.get((pair[0], pair[1]), 0.0) + magnitude
            moments[pair[0], pair[1]] = moments.get((pair[0], pair[1]), 0.0) + magnitude * data.contact[i].pos
        points |= {pair: moments[pair] / force for pair, force in total.items() if force}
        peaks = {pair: max(peaks.get(pair, 0.0), total.get(pair, 0.0)) for pair in {*peaks, *total}}
    contacts = monitor.contacts()
    found = {(min(a, b), max(a, b)): force for a, b, force in contacts}
    for (a, b, _), point in zip(contacts, monitor.points_m(contacts), strict=True):
        pair = min(a, b), max(a, b)
        np.testing.assert_allclose(point, points[pair], atol=1e-9)
    assert found == pytest.approx({pair: force for pair, force in peaks.items() if force > FORCE_FLOOR_N}, rel=1e-9)
    assert len(found) >= 4  # every item lies on something
    host.close()
