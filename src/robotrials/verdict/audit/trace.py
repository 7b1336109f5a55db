"""Two recorded rollouts of the same episode, step by step: where each channel first differs, and how it grows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record import Contacts, Episode, Trajectory

FloatArray = NDArray[np.float64]
Frames = Mapping[str, NDArray[Any]]  # camera -> (T, H, W, 3)


class Channel(enum.StrEnum):
    """What is compared, in the order in which a difference travels through the loop."""

    STATE = 'simulator state'
    CONTACTS = 'contacts'
    PIXELS = 'pixels'
    ACTION_RAW = 'raw action'
    ACTION_PROCESSED = 'processed action'
    REWARD = 'reward'
    DONE = 'done'
    LENGTH = 'length'
    SUCCESS = 'success'


@dataclass(frozen=True, slots=True, eq=False)
class TraceComparison:
    """One pair of rollouts. A channel that both recorded is compared; the others are listed as not recorded.

    `first` holds the first step at which a channel differs, for those that do. `growth` holds, for each step that both
    have, the L-infinity distance of state and actions and the mean absolute pixel difference where frames were given.
    """

    episode_id: str
    task: str
    compared: tuple[Channel, ...]
    missing: tuple[Channel, ...]
    first: Mapping[Channel, int]
    growth: Mapping[Channel, FloatArray]
    steps: tuple[int, int]
    success: tuple[bool | None, bool | None]
    score: tuple[float | None, float | None]
    open_loop_suspected: bool = False

    @property
    def is_bitwise_equal(self) -> bool:
        """Whether nothing that was recorded differs; it says nothing of what was not."""
        return not self.first

    @property
    def is_outcome_equal(self) -> bool:
        return self.success[0] == self.success[1] and self.score[0] == self.score[1]


def compare_trajectories(
    a: Trajectory,
    b: Trajectory,
    *,
    episodes: tuple[Episode, Episode] | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> TraceComparison:
    """Compare two rollouts bit by bit over their common steps; NaN equals NaN.

    `frames` are the rendered images by camera, where they were kept: only they give a pixel difference, recorded frame
    hashes give its first step.
    """
    steps = min(a.n_steps, b.n_steps)
    differences = {
        channel: differs for channel, compare in CHANNELS.items() if (differs := compare(a, b, steps)) is not None
    }
    pixels = _pixels_differ(a, b, steps, frames)
    if pixels is not None:
        differences[Channel.PIXELS] = pixels
    first = {channel: int(np.argmax(differs)) for channel, differs in differences.items() if differs.any()}
    if a.n_steps != b.n_steps:
        first[Channel.LENGTH] = steps
    success, score = _outcomes(episodes)
    if success[0] != success[1] or score[0] != score[1]:
        first[Channel.SUCCESS] = steps - 1
    compared = [c for c in Channel if c in differences or c is Channel.LENGTH or (c is Channel.SUCCESS and episodes)]
    growth = {c: g for c, column in GROWING.items() if (g := _distance(a, b, column, steps)) is not None}
    if frames is not None:
        growth[Channel.PIXELS] = _pixel_distance(frames, steps)
    return TraceComparison(
        episode_id=episodes[0].episode_id if episodes else '',
        task=episodes[0].task if episodes else '',
        compared=tuple(compared),
        missing=tuple(c for c in Channel if c not in compared),
        first={c: first[c] for c in Channel if c in first},
        growth=growth,
        steps=(a.n_steps, b.n_steps),
        success=success,
        score=score,
        open_loop_suspected=_is_open_loop(first, differences),
    )


GROWING = {
    Channel.STATE: 'simulator_state',
    Channel.ACTION_RAW: 'action_raw',
    Channel.ACTION_PROCESSED: 'action_processed',
}


def _column_differs(name: str) -> Callable[[Trajectory, Trajectory, int], NDArray[np.bool_] | None]:
    def differs(a: Trajectory, b: Trajectory, steps: int) -> NDArray[np.bool_] | None:
        x, y = getattr(a, name), getattr(b, name)
        if x is None or y is None:
            return None
        x, y = np.asarray(x)[:steps], np.asarray(y)[:steps]
        if x.shape != y.shape:
            raise InputError(f'{name} has widths {x.shape[1:]} and {y.shape[1:]}; the two runs record different things')
        unequal = _bits_differ(x, y)
        differing: NDArray[np.bool_] = np.asarray(unequal.reshape(steps, -1).any(axis=1))
        return differing

    return differs


def _bits_differ(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Unequal bits, but for NaN, whose payload says nothing; 0.0 and -0.0 differ."""
    if x.dtype.kind != 'f' or y.dtype.kind != 'f':
        return np.asarray(x != y)
    unequal = (x != y) | (np.signbit(x) != np.signbit(y))
    return np.asarray(unequal & ~(np.isnan(x) & np.isnan(y)))


def _contacts_differ(a: Trajectory, b: Trajectory, steps: int) -> NDArray[np.bool_] | None:
    if a.contacts is None or b.contacts is None:
        return None
    x, y = _contact_rows(a.contacts, steps), _contact_rows(b.contacts, steps)
    return np.array([p != q for p, q in zip(x, y, strict=True)], dtype=np.bool_)


def _contact_rows(contacts: Contacts, steps: int) -> list[list[tuple[str, str, float]]]:
    """Each step's contacts in one order, whichever body came first."""
    return [
        sorted((min(body, other), max(body, other), force) for body, other, force in contacts.at(i))
        for i in range(steps)
    ]


CHANNELS: Mapping[Channel, Callable[[Trajectory, Trajectory, int], NDArray[np.bool_] | None]] = {
    Channel.STATE: _column_differs('simulator_state'),
    Channel.CONTACTS: _contacts_differ,
    Channel.ACTION_RAW: _column_differs('action_raw'),
    Channel.ACTION_PROCESSED: _column_differs('action_processed'),
    Channel.REWARD: _column_differs('reward'),
    Channel.DONE: _column_differs('done'),
}


def _pixels_differ(
    a: Trajectory, b: Trajectory, steps: int, frames: tuple[Frames, Frames] | None
) -> NDArray[np.bool_] | None:
    """Whether any camera's frame differs at each step: by the frames where given, else by their recorded hashes."""
    if frames is not None:
        x, y = _shared_cameras(frames)
        columns = [(_frames(x[c], c, steps) != _frames(y[c], c, steps)).reshape(steps, -1).any(axis=1) for c in x]
    else:
        cameras = sorted(a.frame_hash.keys() & b.frame_hash.keys())
        columns = [np.asarray(a.frame_hash[c])[:steps] != np.asarray(b.frame_hash[c])[:steps] for c in cameras]
    return np.any(columns, axis=0) if columns else None


def _shared_cameras(frames: tuple[Frames, Frames]) -> tuple[Frames, Frames]:
    cameras = sorted(frames[0].keys() & frames[1].keys())
    if not cameras:
        raise InputError(f'no camera has frames in both runs: {sorted(frames[0])} and {sorted(frames[1])}')
    return {c: frames[0][c] for c in cameras}, {c: frames[1][c] for c in cameras}


def _frames(images: NDArray[Any], camera: str, steps: int) -> NDArray[Any]:
    if np.ndim(images) not in (3, 4) or len(images) < steps:
        raise InputError(f'frames of {camera!r} have shape {np.shape(images)}, wanted ({steps} or more, H, W, 3)')
    return np.asarray(images)[:steps]


def _distance(a: Trajectory, b: Trajectory, column: str, steps: int) -> FloatArray | None:
    """L-infinity distance at each step."""
    x, y = getattr(a, column), getattr(b, column)
    if x is None or y is None:
        return None
    distances = np.abs(np.asarray(x, dtype=np.float64)[:steps] - np.asarray(y, dtype=np.float64)[:steps])
    distance: FloatArray = np.nan_to_num(distances, nan=0.0).reshape(steps, -1).max(axis=1, initial=0.0)
    return distance


def _pixel_distance(frames: tuple[Frames, Frames], steps: int) -> FloatArray:
    """Mean absolute pixel difference at each step, over all cameras that both runs have."""
    x, y = _shared_cameras(frames)
    distances = [
        np.abs(_frames(x[c], c, steps).astype(np.float64) - _frames(y[c], c, steps)).reshape(steps, -1).mean(axis=1)
        for c in x
    ]
    mean: FloatArray = np.mean(distances, axis=0)
    return mean


def _outcomes(
    episodes: tuple[Episode, Episode] | None,
) -> tuple[tuple[bool | None, bool | None], tuple[float | None, float | None]]:
    if episodes is None:
        return (None, None), (None, None)
    a, b = (e.success if e.success is not None else e.outcome == 'success' for e in episodes)
    return (a, b), (episodes[0].score, episodes[1].score)


def _is_open_loop(first: Mapping[Channel, int], differences: Mapping[Channel, NDArray[np.bool_]]) -> bool:
    """Actions that stay equal to the last bit while pixels differ for long look replayed, not answered."""
    actions = [c for c in (Channel.ACTION_RAW, Channel.ACTION_PROCESSED) if c in differences]
    if not actions or Channel.PIXELS not in first or any(c in first for c in actions):
        return False
    differing = int(differences[Channel.PIXELS].sum())
    return differing >= OPEN_LOOP_STEPS


OPEN_LOOP_STEPS = 50
