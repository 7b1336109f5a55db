"""Which recording is of which episode, by their clocks: offset and drift between the two, or why they cannot be told.

The console's clock times episodes; a recorder's clock times its recordings. Where both are set by the same time service
the intervals meet as they are, and what the starts differ by is who pressed first. Where they do not meet, the pattern
of starts gives the offset: a shift is believed only where no other shift explains the pattern nearly as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError

AGREE_S = 5.0  # starts that differ by less are of one episode where clocks agree
TOLERANCE_S = 2.0  # of starts around one offset
COVERED = 0.8  # of an episode's time that its recording must have
FEWEST_PAIRS = 3  # to believe an offset that no clock confirms
RIVAL = 0.8  # of the pairs: another offset with as many makes the first a guess
LONGEST_OFFSET_S = 36 * 3600.0  # a wrong time zone, or a clock a day off
FEWEST_FOR_DRIFT = 5
LARGEST_DRIFT = 1e-3  # seconds per second: no clock is that bad
MARK_LAG_S = 0.5  # from a release until the item lies still and an operator has pressed the key; give or take as much
MARK_SEARCH_S = 3.0  # how far starts may be off: a recorder is started before the clock, by somebody who looks up
MARK_WINDOW_S = 0.5
FEWEST_MARKS = 5


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something lasted, in seconds since 1970 by its own clock."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ClockJoin:
    """`theirs = ours + offset_s + drift * (ours - epoch_s)`; the recording of each episode, or None."""

    offset_s: float
    drift: float
    epoch_s: float
    pairs: tuple[int | None, ...]  # episode -> recording
    start_gap_s: float | None  # how long before the episode a recording begins, in the middle
    spread_s: float | None
    how: str
    bounds_s: tuple[float, float] | None = None  # of the offset, where it was estimated from recordings about episodes
    is_estimated: bool = False

    def theirs(self, ours_s: float) -> float:
        """The recorder's time of a moment on the console's clock."""
        return ours_s + self.offset_s + self.drift * (ours_s - self.epoch_s)

    def __str__(self) -> str:
        drift = f', drift {self.drift * 1e6:+.0f} ppm' if self.drift else ', no drift seen'
        spread = '' if self.spread_s is None else f' (starts scatter by {self.spread_s:.2f} s)'
        return f'offset {self.offset_s:+.3f} s{drift}, {self.how}{spread}'


def join_clocks(episodes: Sequence[Span], recordings: Sequence[Span], *, offset_s: float | None = None) -> ClockJoin:
    """Which recording holds which episode. `offset_s` is theirs minus ours where somebody measured it.

    InputError where nothing meets, or where two offsets explain the starts about equally well.
    """
    if not episodes or not recordings:
        raise InputError('nothing to join: no episode with a start and a duration, or no recording with a clock')
    epoch_s = min(span.start_s for span in episodes)
    if offset_s is not None:
        return _joined(episodes, recordings, offset_s, 0.0, epoch_s, how='as given')
    pairs = _held(episodes, recordings, 0.0, 0.0, epoch_s)
    if _agree(episodes, recordings, pairs) and not _drift(episodes, recordings, pairs, epoch_s):
        return _joined(episodes, recordings, 0.0, 0.0, epoch_s, how='the recorded clocks agree')
    offset, how = _voted_offset(episodes, recordings)
    pairs = _held(episodes, recordings, offset, 0.0, epoch_s)
    drift = _drift(episodes, recordings, pairs, epoch_s)
    bounds = _bounds(episodes, recordings, pairs, drift, epoch_s)
    if bounds is not None:
        offset = sum(bounds) / 2
        how += f', within {(bounds[1] - bounds[0]) / 2:.2f} s as each holds its episode'
    join = _joined(episodes, recordings, offset, drift, epoch_s, how=how)
    return dataclasses.replace(join, bounds_s=bounds, is_estimated=True)


def _bounds(
    episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None], drift: float, epoch_s: float
) -> tuple[float, float] | None:
    """The least and the largest offset by which every recording begins before its episode and ends after it.

    A recorder is started before the clock and stopped after it, so that starts alone would be off by how long somebody
    took to look up. None where a recording is no longer than its episode, or several episodes lie in one.
    """
    held = [(e, recordings[j]) for e, j in zip(episodes, pairs, strict=True) if j is not None]
    if len({id(r) for _, r in held}) < len(held) or len(held) < FEWEST_PAIRS:
        return None
    low = max(r.start_s - e.start_s - drift * (e.start_s - epoch_s) for e, r in held)
    high = min(r.end_s - e.end_s - drift * (e.end_s - epoch_s) for e, r in held)
    return (low, high) if low <= high else None


def join_by_marks(
    join: ClockJoin, episodes: Sequence[Span], recordings: Sequence[Span], *, lags_s: Sequence[Sequence[float]]
) -> ClockJoin:
    """An offset that was estimated from starts, set by what an operator marked.

    `lags_s` are, for each mark, the times from every release in the telemetry to it, by the join as it is. The lag that
    most marks share becomes `MARK_LAG_S`; where too few share one, two are shared about equally, or recordings would
    then not hold their episodes, the join stays as it is.
    """
    pairs = [(mark, lag) for mark, own in enumerate(lags_s) for lag in own if abs(lag) <= MARK_SEARCH_S]
    if not join.is_estimated or len(lags_s) < FEWEST_MARKS or not pairs:
        return join
    marks, lags = np.array([m for m, _ in pairs]), np.array([lag for _, lag in pairs])
    votes = np.array([len(set(marks[np.abs(lags - lag) <= MARK_WINDOW_S / 2].tolist())) for lag in lags])
    middle = float(np.median(lags[votes == votes.max()]))
    near = np.abs(lags - middle) <= MARK_WINDOW_S / 2
    count = len(set(marks[near].tolist()))
    rivals = votes[np.abs(lags - middle) > MARK_WINDOW_S]
    if count < COVERED * len(lags_s) or (len(rivals) and rivals.max() >= RIVAL * count):
        return join
    offset_s = join.offset_s - (float(np.median(lags[near])) - MARK_LAG_S)
    if join.bounds_s is not None and not join.bounds_s[0] <= offset_s <= join.bounds_s[1]:
        return join
    how = f'{join.how}, set by {count} marks, taken as {MARK_LAG_S:g} s after releases'
    return _joined(episodes, recordings, offset_s, join.drift, join.epoch_s, how=how)


def join_in_order(episodes: Sequence[Span], recordings: Sequence[Span]) -> ClockJoin:
    """The first recording is the first episode's, and so on; refused where their numbers or lengths differ."""
    if len(episodes) != len(recordings):
        raise InputError(f'{len(recordings)} recordings for {len(episodes)} episodes: their order does not tell')
    for number, (episode, recording) in enumerate(zip(episodes, recordings, strict=True), start=1):
        if not _is_alike(episode, recording):
            raise InputError(
                f'recording {number} lasts {recording.length_s:.1f} s and episode {number} {episode.length_s:.1f} s: '
                'their order does not tell'
            )
    how = 'joined in their order, each from its own start'
    return ClockJoin(0.0, 0.0, episodes[0].start_s, tuple(range(len(episodes))), None, None, how)


def _joined(
    episodes: Sequence[Span], recordings: Sequence[Span], offset_s: float, drift: float, epoch_s: float, *, how: str
) -> ClockJoin:
    pairs = _held(episodes, recordings, offset_s, drift, epoch_s)
    if all(pair is None for pair in pairs):
        raise InputError(
            f'no episode lies inside a recording with an offset of {offset_s:+.1f} s: their clocks say '
            f'{_when(episodes)} for episodes and {_when(recordings)} for recordings. Say what their clock is ahead by '
            'with --offset-s'
        )
    gaps = [
        recordings[j].start_s - (e.start_s + offset_s + drift * (e.start_s - epoch_s))
        for e, j in zip(episodes, pairs, strict=True)
        if j is not None
    ]
    apiece = len({p for p in pairs if p is not None}) == len(gaps)
    middle = float(np.median(gaps)) if apiece else None
    spread = float(np.std(gaps, ddof=1)) if apiece and len(gaps) > 1 else None
    return ClockJoin(offset_s, drift, epoch_s, tuple(pairs), middle, spread, how)


def _held(
    episodes: Sequence[Span], recordings: Sequence[Span], offset_s: float, drift: float, epoch_s: float
) -> list[int | None]:
    """The recording that has most of each episode, if one has enough of it."""
    pairs: list[int | None] = []
    starts = np.array([r.start_s for r in recordings])
    ends = np.array([r.end_s for r in recordings])
    for episode in episodes:
        shift = offset_s + drift * (episode.start_s - epoch_s)
        first, last = episode.start_s + shift, episode.end_s + shift
        shared = np.minimum(ends, last) - np.maximum(starts, first)
        best = int(np.argmax(shared))
        pairs.append(best if shared[best] >= COVERED * max(episode.length_s, 1e-9) else None)
    return pairs


def _agree(episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None]) -> bool:
    """Whether the intervals meet as they are: a recording of one episode also begins with it.

    Recordings of a wrong clock meet some episodes by accident: a few of them, and those in their middle.
    """
    held = [(episodes[i], recordings[j]) for i, j in enumerate(pairs) if j is not None]
    n_used = len({j for j in pairs if j is not None})
    if not held or (len(held) < COVERED * len(episodes) and n_used < COVERED * len(recordings)):
        return False
    single = [(e, r) for e, r in held if _is_alike(e, r)]
    near = sum(abs(r.start_s - e.start_s) <= AGREE_S for e, r in single)
    return near >= COVERED * len(single)


def _is_alike(episode: Span, recording: Span) -> bool:
    return abs(recording.length_s - episode.length_s) <= max(2 * TOLERANCE_S, 0.1 * episode.length_s)


def _voted_offset(episodes: Sequence[Span], recordings: Sequence[Span]) -> tuple[float, str]:
    """The shift of starts that most pairs share: pairs of about the same length, one recording for each episode."""
    ours = np.array([e.start_s for e in episodes])
    theirs = np.array([r.start_s for r in recordings])
    alike = np.array([[_is_alike(e, r) and r.length_s >= COVERED * e.length_s for r in recordings] for e in episodes])
    gaps = theirs[None, :] - ours[:, None]
    usable = alike & (np.abs(gaps) <= LONGEST_OFFSET_S)
    rows, columns = np.nonzero(usable)
    if not len(rows):
        raise InputError(
            'the clocks do not agree, and no recording is about as long as an episode, so that no offset can be '
            f'estimated: episodes at {_when(episodes)}, recordings at {_when(recordings)}. Say what their clock is '
            'ahead by with --offset-s'
        )
    values = gaps[rows, columns]
    votes = np.array([len(set(rows[np.abs(values - v) <= TOLERANCE_S].tolist())) for v in values])
    best = int(np.argmax(votes))
    near = np.abs(values - values[best]) <= TOLERANCE_S
    offset = float(np.median(values[near]))
    rivals = votes[np.abs(values - offset) > 2 * TOLERANCE_S]
    second = int(rivals.max()) if len(rivals) else 0
    count = int(votes[best])
    if count < FEWEST_PAIRS and abs(offset) > AGREE_S:
        raise InputError(
            f'{count} pairs of episodes and recordings suggest an offset of {offset:+.1f} s, too few to believe it '
            f'(wanted {FEWEST_PAIRS}). Say what their clock is ahead by with --offset-s'
        )
    if second >= RIVAL * count:
        raise InputError(
            f'ambiguous: an offset of {offset:+.1f} s explains {count} pairs of starts, and another one {second}. '
            'Say what their clock is ahead by with --offset-s'
        )
    return offset, f'estimated from the starts of {count} pairs'


def _drift(episodes: Sequence[Span], recordings: Sequence[Span], pairs: Sequence[int | None], epoch_s: float) -> float:
    """How much faster their clock runs, by least squares on the starts, if it is seen (three standard errors)."""
    rows = [(e.start_s - epoch_s, recordings[j].start_s - e.start_s) for e, j in zip(episodes, pairs, strict=True)
            if j is not None]  # fmt: skip
    if len(rows) < FEWEST_FOR_DRIFT or len({j for j in pairs if j is not None}) < len(rows):
        return 0.0
    table: NDArray[np.float64] = np.array(rows)
    t, gap = table[:, 0] - table[:, 0].mean(), table[:, 1] - table[:, 1].mean()
    if not np.any(t):
        return 0.0
    slope = float(t @ gap / (t @ t))
    error = float(np.sqrt(((gap - slope * t) ** 2).sum() / (len(t) - 2) / (t @ t)))
    if abs(slope) > LARGEST_DRIFT:
        raise InputError(
            f'the starts drift by {slope * 1e6:+.0f} ppm, more than any clock: these are not the episodes recorded'
        )
    return slope if abs(slope) > 3 * error and abs(slope) * float(np.ptp(t)) > 0.05 else 0.0


def _when(spans: Sequence[Span]) -> str:
    import datetime as dt

    first, last = min(s.start_s for s in spans), max(s.end_s for s in spans)
    written = [dt.datetime.fromtimestamp(t, dt.UTC).isoformat(sep=' ', timespec='seconds') for t in (first, last)]
    return f'{written[0]} to {written[1]}'
