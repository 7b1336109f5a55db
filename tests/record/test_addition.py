"""Large additions: piece by piece, and all or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.record.test_log import episode

from robotrials.record import Store, Trajectory
from robotrials.record.addition import Addition
from robotrials.record.rows import episodes_to_arrow, events_to_arrow
from robotrials.record.verify import verify_store


def added(store: Store) -> Addition:
    batch = [episode(n) for n in range(4)]
    addition = Addition(store)
    for one in batch[:2]:
        steps = Trajectory(time_s=np.arange(3.0), joint_position_rad=np.full((3, 2), float(one.seed or 0)))
        addition.add_trajectories([(one.key, steps)])
    addition.add_media('a/wrist.mp4', lambda path: path.write_bytes(b'film'))
    return addition


def test_nothing_counts_before_the_end_and_then_all_of_it_does(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    batch = [episode(n) for n in range(4)]
    addition = added(store)
    assert list(store.episodes()) == []
    addition.finish([episodes_to_arrow(batch[:3]), episodes_to_arrow(batch[3:])], events_to_arrow(batch))
    assert list(store.episodes()) == batch
    found = store.trajectory(batch[1])
    assert found is not None
    assert found.joint_position_rad is not None
    assert found.joint_position_rad[0, 0] == 1.0
    assert store.trajectory(batch[3]) is None
    assert verify_store(store.path).findings == ()


def test_a_discarded_addition_leaves_nothing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    added(store).discard()
    assert verify_store(store.path).findings == ()
    assert [p for p in (store.path / 'media').rglob('*') if p.is_file()] == []
