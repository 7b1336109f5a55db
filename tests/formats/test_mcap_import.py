"""MCAP files that robotrials wrote come back as the record they were."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.formats.robot import RATE_HZ, level, made_store, made_trajectory

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.export import ExportOptions, load_exporter
from robotrials.formats.imported import ImportOptions
from robotrials.formats.mcap_file import read_recording
from robotrials.formats.video import VideoFrames
from robotrials.record import Contacts, Episode, Event, EventKind, EventSource, Outcome, Store
from robotrials.record.trajectory import trajectories_equal


def odd_store(path: Path) -> Store:
    """What a plain store has not: counted events of several sources, contact points, NaN, steps without contact."""
    store = Store.create(path)
    steps = 5
    base = made_trajectory(1, steps)
    torque = np.array(base.joint_torque_nm)
    torque[2, 3] = np.nan
    contacts = Contacts.from_steps(
        [[('finger', 'cube', 2.0)], [], [('cube', 'table', 1.25), ('finger', 'cube', 0.1)], [], []],
        points_m=[[[0.1, 0.2, 0.3]], [], [[1 / 3, 0, 0], [np.nan] * 3], [], []],
    )
    trajectory = dataclasses.replace(base, joint_torque_nm=torque, contacts=contacts)
    episode = Episode(
        policy='a/b', task='pick', outcome=Outcome.TIMEOUT, duration_s=1 / 3, items=7, items_placed=5, repeat=2,
        condition='light', condition_parameters={'level': 0.25, 'lamp': 'left'}, instance=12, time_cap_s=10.0,
        events=(
            Event(0.1, EventKind.PLACEMENT, EventSource.SENSOR, count=4),
            Event(1 / 3, EventKind.PLACEMENT, EventSource.REVIEWER),
        ),
    )  # fmt: skip
    store.append([episode], trajectories={episode.key: trajectory})
    return store


@pytest.mark.parametrize('make', [made_store, odd_store])
def test_a_store_goes_to_mcap_and_back(tmp_path: Path, make: type) -> None:
    before = make(tmp_path / 'before')
    robotrials('export', tmp_path / 'before', '--to', 'mcap', '--out', tmp_path / 'out')
    robotrials('import', tmp_path / 'out', '--to', tmp_path / 'after')
    after = Store.open(tmp_path / 'after')
    found = {e.key: (dataclasses.replace(e, provenance_id=''), t) for e, t in after.trajectories()}
    assert len(found) == before.count()
    for episode, trajectory in before.trajectories():
        own, steps = found[episode.key]
        assert own == dataclasses.replace(episode, provenance_id='')
        assert own.events == episode.events
        assert trajectories_equal(steps, trajectory)
        assert steps.ee_pose is not None
        assert steps.ee_pose.dtype == np.float32


def test_films_come_back_frame_by_frame(tmp_path: Path) -> None:
    made_store(tmp_path / 'before', episodes=2)
    robotrials('export', tmp_path / 'before', '--to', 'mcap', '--out', tmp_path / 'out')
    robotrials('import', tmp_path / 'out', '--to', tmp_path / 'after')
    after = Store.open(tmp_path / 'after')
    for episode, trajectory in after.trajectories():
        camera = trajectory.scene.cameras[0]
        frames = VideoFrames(after.path / 'media' / camera.video, 0.0, RATE_HZ, trajectory.n_steps)
        shown = [float(frames[k].array().mean()) for k in range(trajectory.n_steps)]
        assert shown == pytest.approx([level(episode.seed or 0, k) for k in range(trajectory.n_steps)], abs=3)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    load_exporter('mcap').write(made_store(tmp_path / 's', episodes=1), tmp_path / 'out', ExportOptions())
    file = next((tmp_path / 'out').iterdir())
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r'\.mcap: damaged or not whole'):
        list(open_source(file, ImportOptions()).episodes())
    for at in range(200, len(whole) // 2, len(whole) // 20):  # its messages, packed
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        with pytest.raises(InputError, match=r'\.mcap: '):
            read_recording(file)
