"""Telemetry drawn by hand: a gripper that picks, carries and lets go, as a timetable of grips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robotrials.measure.annotate import Telemetry, Zone, Zones

SOURCE, TARGET, BETWEEN = (0.5, 0.18), (0.5, -0.18), (0.5, 0.0)
ZONES = Zones(source=Zone(center_m=SOURCE, size_m=(0.3, 0.26)), target=Zone(center_m=TARGET, size_m=(0.3, 0.26)))
DT_S = 0.05


@dataclass(frozen=True)
class Grip:
    """Closed at `start_s` over one place, opened at `end_s` over another; `slip_s` is when the item was lost."""

    start_s: float
    end_s: float
    grasp: tuple[float, float] = SOURCE
    release: tuple[float, float] = TARGET
    width: float = 0.3  # 0: nothing was there
    slip_s: float | None = None


def telemetry_of(*grips: Grip, length_s: float = 20.0, noise: float = 0.0, seed: int = 0) -> Telemetry:
    time_s = np.arange(1, round(length_s / DT_S) + 1) * DT_S
    command, opening = np.ones(len(time_s)), np.full(len(time_s), 0.9)
    tool = np.tile([*SOURCE, 0.2], (len(time_s), 1))
    for grip in grips:
        inside = (time_s >= grip.start_s) & (time_s < grip.end_s)
        command[inside] = 0.0
        opening[inside] = np.maximum(grip.width, 0.9 - (time_s[inside] - grip.start_s) / 0.2)
        opening[inside] = np.where(time_s[inside] - grip.start_s > 0.2, grip.width, opening[inside])
        if grip.slip_s is not None:
            opening[inside & (time_s >= grip.slip_s)] = 0.0
        share = np.clip((time_s[inside] - grip.start_s) / (grip.end_s - grip.start_s), 0, 1)[:, None]
        tool[inside, :2] = (1 - share) * np.array(grip.grasp) + share * np.array(grip.release)
        after = (time_s >= grip.end_s) & (time_s < grip.end_s + 0.3)
        tool[after, :2] = grip.release
    rng = np.random.default_rng(seed)
    return Telemetry(time_s, command, opening + rng.normal(0, noise, len(time_s)), tool)
