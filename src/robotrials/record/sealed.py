"""Columns that were sealed while a trial was open, and come back to its trajectories once it is closed."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.record.blinded import WITHHELD_COLUMNS, WITHHELD_SIGNALS
from robotrials.record.envelope import close_envelope, open_envelope
from robotrials.record.trajectory import Trajectory, trusted_trajectory

if TYPE_CHECKING:
    from robotrials.record.store import Store

FOLDER = 'sealed'  # in media/
Key = tuple[str, int]


def seal_trajectory(trajectory: Trajectory, key: Key, *, public: str) -> tuple[Trajectory, dict[str, bytes]]:
    """A trajectory without its telling columns, and the file of media/ that holds them for whoever has the secret."""
    present = {name: getattr(trajectory, name) for name in WITHHELD_COLUMNS}
    told: dict[str, Any] = {name: np.asarray(v) for name, v in present.items() if v is not None}
    signals: dict[str, Any] = {name: np.asarray(v) for name, v in trajectory.extra.items() if name in WITHHELD_SIGNALS}
    extra = {name: signal for name, signal in trajectory.extra.items() if name not in signals}
    if not told:
        return trajectory, {}
    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    buffer = io.BytesIO()
    np.savez(buffer, **told, **signals)  # not compressed: its size must tell no more than the number of steps
    name = f'{FOLDER}/{key[0]}-{key[1]}.npz.sealed'
    rest = trusted_trajectory(**{**values, **dict.fromkeys(told), 'extra': extra})
    return rest, {name: close_envelope(public, buffer.getvalue(), label=name)}


def with_sealed(store: Store, trajectory: Trajectory, key: Key) -> Trajectory:
    """The trajectory with the columns that were sealed, if there are any and the trial is closed."""
    name = f'{FOLDER}/{key[0]}-{key[1]}.npz.sealed'
    path = store.path / 'media' / name
    if not path.exists():
        return trajectory
    keys = [u.key for u in store.unblindings().by_trial.values() if u.operator_plan]
    if not keys:
        return trajectory
    opened = open_envelope(bytes.fromhex(keys[0]), path.read_bytes(), label=name)
    with np.load(io.BytesIO(opened), allow_pickle=False) as columns:
        told = {column: columns[column] for column in WITHHELD_COLUMNS if column in columns}
        extra = {name: columns[name] for name in WITHHELD_SIGNALS if name in columns}
    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    return Trajectory(**{**values, **told, 'extra': {**trajectory.extra, **extra}})
