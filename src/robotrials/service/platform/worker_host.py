"""What a worker makes of a plan for its cell: the host to open, the limits that hold, the time that answers took."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from robotrials.record import Trajectory
from robotrials.run.plan import HostEntry, LimitOptions

INSPECTED = {
    'tabletop': 'robotrials.worlds.cell.checked:PlannedCell'
}  # built-in hosts in a version that checks its reset


def inspected_entry(entry: HostEntry, *, checks_reset: bool) -> HostEntry:
    """The host of a plan in the version that can check its reset, where we have one."""
    return dataclasses.replace(entry, use=INSPECTED.get(entry.use, entry.use)) if checks_reset else entry


def stricter(plan: LimitOptions, cell: LimitOptions) -> LimitOptions:
    """The limits of the plan and of the cell, the lower of each."""
    return LimitOptions(
        velocity=_lower(plan.velocity, cell.velocity), acceleration=_lower(plan.acceleration, cell.acceleration)
    )


Bound = float | tuple[float, ...] | None


def _lower(a: Bound, b: Bound) -> Bound:
    if a is None or b is None:
        return a if b is None else b
    lowest = np.minimum(a, b)
    return float(lowest) if np.ndim(lowest) == 0 else tuple(float(v) for v in lowest)


def with_transport(
    trajectory: Trajectory, *, arrivals_s: Mapping[int, float], answers: Mapping[int, int], steps_s: list[float]
) -> Trajectory:
    """The trajectory with the time from each answer's arrival to its hand-over to the arm as transport.

    `answers` says by step which answer took effect in it: one that was lost or overtaken has no step, and moves no
    other. A host's stated transport stays part of it.
    """
    network, stated = trajectory.network_latency_s, trajectory.transport_latency_s
    if network is None or stated is None:
        return trajectory
    transport = np.array(stated, dtype=float)
    for row in np.flatnonzero(np.isfinite(network)).tolist():
        arrived_s = arrivals_s.get(answers[row])
        if arrived_s is not None:  # None: the emergency stop stood in for an answer
            transport[row] += max(0.0, steps_s[row] - arrived_s)
    return dataclasses.replace(trajectory, transport_latency_s=transport)
