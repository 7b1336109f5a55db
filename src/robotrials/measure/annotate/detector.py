"""The release detector: moments at which the gripper let something go, and what was going on at each.

Commanded edges, gated by how long the gripper was closed (hold) and whether its measure had come to rest (plateau); and
slumps, where the measure falls from the held band into the closed band with nothing commanded: an item was lost.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.annotate.telemetry import FloatArray, Telemetry
from robotrials.measure.annotate.zone import Zones

MOST_SMOOTHED = 500  # steps either side


class ReleaseKind(enum.StrEnum):
    RELEASE = 'release'  # the gripper was told to open
    SLUMP = 'slump'  # it closed further by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorOptions:
    """Named thresholds; openings are shares of the gripper's travel."""

    closed_command: float = 0.2  # commanded at most so far open, the gripper is to grip
    open_rise: float = 0.1  # a command this far above the grip's is an opening
    closed_band: float = 0.05  # measured at most so far open, nothing is between the fingers
    hold_s: float = 0.3  # a shorter grip carries nothing
    plateau_s: float = 0.2  # the measure must have been at rest for so long
    plateau_band: float = 0.03  # within this much
    debounce_s: float = 0.15  # an edge that is taken back sooner is none

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            top = 60.0 if field.name.endswith('_s') else 1.0
            if not 0 <= value <= top:
                raise InputError(f'{field.name} is {value}, wanted 0 to {top:g}')


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCandidate:
    """One moment and its features. `grip` is the measured opening while it held; `ledger` counts as it went on."""

    t_s: float
    kind: ReleaseKind
    zone: str
    zone_depth_m: float
    grasp_zone: str
    hold_s: float
    displacement_m: float
    height_m: float
    grip: float
    has_plateau: bool
    is_empty: bool
    ledger: int = 0  # items in the target zone before this moment, by this account


def detect_releases(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions | None = None
) -> list[ReleaseCandidate]:
    """The candidates of one episode, in order of time, with the running ledger of the target zone."""
    chosen = options or DetectorOptions()
    found: list[ReleaseCandidate] = []
    for start, end in _grips(telemetry, chosen):
        found.extend(_of_grip(telemetry, zones, chosen, start, end))
    ledger, counted = 0, []
    for candidate in sorted(found, key=lambda c: c.t_s):
        counted.append(dataclasses.replace(candidate, ledger=ledger))
        if not candidate.is_empty:
            ledger += (candidate.zone == 'target') - (candidate.grasp_zone == 'target')
            ledger = max(ledger, 0)
    return counted


def _grips(telemetry: Telemetry, options: DetectorOptions) -> list[tuple[int, int | None]]:
    """Each run of steps for which the gripper was told to grip: first step, and the step that opened it (or None)."""
    is_grip = _debounced(telemetry.command <= options.closed_command, telemetry.time_s, options.debounce_s)
    edges = np.flatnonzero(np.diff(is_grip.astype(np.int8))) + 1
    starts = [0, *edges] if is_grip[0] else list(edges)
    pairs = []
    for start, end in zip(starts[::2], [*starts[1::2], None], strict=False):
        if end is None or telemetry.command[end] >= telemetry.command[start:end].min() + options.open_rise:
            pairs.append((int(start), None if end is None else int(end)))
    return pairs


def _debounced(flags: NDArray[np.bool_], time_s: FloatArray, shortest_s: float) -> NDArray[np.bool_]:
    """The flags without runs that are shorter than so many seconds, the first and the last excepted."""
    kept = flags.copy()
    edges = np.flatnonzero(np.diff(kept.astype(np.int8))) + 1
    for start, end in itertools.pairwise(edges):
        if time_s[end] - time_s[start] < shortest_s:
            kept[start:end] = kept[start - 1]
    return kept


def _of_grip(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions, start: int, end: int | None
) -> list[ReleaseCandidate]:
    """A slump if what was held was lost, else the release at the end; a grip that lasts to the end gives neither."""
    last = len(telemetry.time_s) if end is None else end
    opening = _smooth(telemetry.opening[start:last], telemetry.dt_s)
    window = max(2, round(min(options.plateau_s / telemetry.dt_s, len(opening) + 1)))
    slump = _slump(opening, window, options)
    if slump is not None:
        grip = float(np.median(opening[slump // 2 : slump]))
        return [_candidate(telemetry, zones, options, ReleaseKind.SLUMP, start, start + slump, grip, True)]
    if end is None:
        return []
    late = opening[len(opening) // 2 :]  # closing is over; what was held was carried
    drift = abs(np.median(late[: max(1, len(late) // 2)]) - np.median(late[len(late) // 2 :]))
    has_plateau = len(opening) >= window and bool(drift <= options.plateau_band)
    grip = float(np.median(late[len(late) // 2 :]))
    return [_candidate(telemetry, zones, options, ReleaseKind.RELEASE, start, end, grip, has_plateau)]


def _smooth(values: FloatArray, dt_s: float) -> FloatArray:
    """A running median over about a fifth of a second: wild readings go, edges stay where they are."""
    half = max(1, round(min(0.1 / dt_s, MOST_SMOOTHED)))
    padded = np.pad(values, half, mode='edge')
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1))


def _slump(opening: FloatArray, window: int, options: DetectorOptions) -> int | None:
    """The step at which a grip that had come to rest fell into the closed band for good; None if it never did."""
    held = opening > options.closed_band
    if len(opening) < 2 * window or held[-window:].any() or not held.any():
        return None
    fallen = int(np.flatnonzero(held)[-1]) + 1
    before = opening[:fallen]
    if len(before) < window:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(before, window)
    drift = np.abs(np.median(windows[:, : window // 2], axis=1) - np.median(windows[:, window // 2 :], axis=1))
    at_rest = (drift <= options.plateau_band) & (np.median(windows, axis=1) > options.closed_band)
    return fallen if at_rest.any() else None


def _candidate(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions, kind: ReleaseKind, start: int, at: int,
    grip: float, has_plateau: bool,
) -> ReleaseCandidate:  # fmt: skip
    place, origin = telemetry.tool_m[at], telemetry.tool_m[start]
    zone, depth_m = zones.place(place[:2].tolist())
    hold_s = float(telemetry.time_s[at] - telemetry.time_s[start])
    return ReleaseCandidate(
        t_s=float(telemetry.time_s[at]),
        kind=kind,
        zone=zone,
        zone_depth_m=depth_m,
        grasp_zone=zones.place(origin[:2].tolist())[0],
        hold_s=hold_s,
        displacement_m=float(np.linalg.norm(place[:2] - origin[:2])),
        height_m=float(place[2]),
        grip=grip,
        has_plateau=has_plateau,
        is_empty=grip <= options.closed_band or hold_s < options.hold_s,
    )
