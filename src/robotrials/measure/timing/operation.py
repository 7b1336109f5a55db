"""Operations: the times-to-success that an episode's events hold, with censoring and ghosts (PhAIL, section 3.1)."""

from __future__ import annotations

import enum
import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.record import Episode, EventKind, Outcome
from robotrials.record.rows import EpisodeRows
from robotrials.stats.matching import Labels, NumberedLabels, join_labels, take_labels
from robotrials.value import dataclass

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

INFINITE = float('inf')
CAP_SLACK = 0.005  # a share of the time cap: control steps and clocks round
DROP_KINDS = (EventKind.DROP_OUTSIDE, EventKind.DROP_UNCOLLECTED)


class Cause(enum.StrEnum):
    """Why an operation ended, or stopped being watched."""

    PLACEMENT = 'placement'
    TAIL = 'tail'  # unfinished when the episode ended: censored
    DROP_OUTSIDE = 'drop_outside'
    DROP_UNCOLLECTED = 'drop_uncollected'
    SAFETY_STOP = 'safety_stop'
    FAILURE = 'failure'  # the episode ended in failure before its time cap


class Unit(enum.StrEnum):
    """What varies independently: two episodes of one unit count as one when uncertainty is judged."""

    START = 'start state'  # equal task, condition and instance (or seed, where there is no instance)
    EPISODE = 'episode'
    SESSION = 'session'
    OPERATOR = 'operator'


class BatchRule(enum.StrEnum):
    """How k items placed at one instant are timed."""

    ELAPSED = 'elapsed'  # the first took the whole elapsed time, the others 0 s more
    SHARE = 'share'  # each took 1/k of it


class UnitLabels(tuple[Hashable, ...]):
    """The units of episodes, numbered once and shared by every cell that is cut from the same one."""

    @functools.cached_property
    def codes(self) -> IntArray:
        """(E,) 0 to n_units - 1, in order of first appearance; an episode without a label is a unit of its own."""
        numbers: dict[Hashable, int] = {}
        labels = ((place, None) if label is None else label for place, label in enumerate(self))
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """Times-to-success of one cell: `inf` observed is a ghost (never), unobserved is censored at its duration.

    `episode` is the index, in the episodes given, that each operation came from. `scored` lists the indices of all
    valid episodes, so that one without an operation still counts; left out, it is the episodes that have operations.
    """

    durations_s: FloatArray  # (n,)
    observed: BoolArray  # (n,)
    episode: IntArray  # (n,)
    cause: tuple[Cause, ...] | None = None
    scored: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (E,)
    n_invalid: int = 0
    scenes: Labels | None = None  # (E,) what makes two policies' episodes a matched pair
    units: Labels | None = None  # (E,) the unit of each scored episode; None: a unit of its own
    lost: BoolArray | None = None  # (n,) censored before the episode's time cap, by something else than the clock
    unit: Unit = Unit.EPISODE  # what `units` are

    def __post_init__(self) -> None:
        durations_s, observed = checked_times(self.durations_s, self.observed)
        episode = np.asarray(self.episode, dtype=np.int64)
        if episode.shape != durations_s.shape:
            raise InputError(f'episode has shape {episode.shape}, wanted one index per operation: {durations_s.shape}')
        scored = _all_scored(np.asarray(self.scored, dtype=np.int64), episode)
        for name, value in (
            ('durations_s', durations_s), ('observed', observed), ('episode', episode), ('scored', scored)
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        if self.units is not None and not isinstance(self.units, UnitLabels | NumberedLabels):
            object.__setattr__(self, 'units', UnitLabels(self.units))
        for name, rows, wanted in (
            ('cause', self.cause, len(episode)), ('scenes', self.scenes, len(scored)),
            ('units', self.units, len(scored)), ('lost', self.lost, len(episode)),
        ):  # fmt: skip
            if rows is not None and len(rows) != wanted:
                raise InputError(f'{name} has {len(rows)} entries, wanted {wanted}')

    @property
    def n_episodes(self) -> int:
        """Valid episodes, with or without an operation."""
        return len(self.scored)

    @property
    def n_operations(self) -> int:
        return len(self.durations_s)

    @property
    def n_ghosts(self) -> int:
        return int(np.sum(np.isinf(self.durations_s)))

    @property
    def cluster(self) -> IntArray:
        """(n,) the place of each operation's episode in `scored`: 0 to n_episodes - 1."""
        return np.searchsorted(self.scored, self.episode).astype(np.int64)

    @property
    def unit_codes(self) -> IntArray:
        """(E,) the number of each scored episode's unit: 0 to n_units - 1, in order of first appearance."""
        if self.units is None:
            return np.arange(self.n_episodes, dtype=np.int64)
        return self.units.codes if isinstance(self.units, UnitLabels | NumberedLabels) else UnitLabels(self.units).codes

    @property
    def n_units(self) -> int:
        return int(self.unit_codes.max(initial=-1)) + 1

    def by_unit(self) -> Operations:
        """The same operations with units in the place of episodes, so that whole units are left out or resampled."""
        codes = self.unit_codes
        return Operations(
            durations_s=self.durations_s, observed=self.observed, episode=codes[self.cluster], cause=self.cause,
            scored=np.arange(self.n_units), n_invalid=self.n_invalid, lost=self.lost, unit=self.unit,
            units=None if self.units is None else _first_labels(self.units, codes),
        )  # fmt: skip

    def count(self, cause: Cause) -> int:
        """Operations that ended by `cause`."""
        if self.cause is None:
            raise InputError('these operations carry no causes; build them with operations(episodes)')
        return sum(c is cause for c in self.cause)

    def take(self, clusters: Sequence[int] | IntArray) -> Operations:
        """The operations of some episodes, by place in `scored` (with repeats, as resampling needs them)."""
        own, chosen = self.cluster, np.asarray(clusters, dtype=np.int64)
        order = np.argsort(own, kind='stable')
        sizes = np.bincount(own, minlength=self.n_episodes)
        starts, n = (np.cumsum(sizes) - sizes)[chosen], sizes[chosen]
        index = order[np.arange(n.sum()) + np.repeat(starts - np.cumsum(n) + n, n)]
        return Operations(
            durations_s=self.durations_s[index],
            observed=self.observed[index],
            episode=np.repeat(np.arange(len(chosen)), n).astype(np.int64),
            cause=None if self.cause is None else tuple(np.array(self.cause, dtype=object)[index].tolist()),
            scored=np.arange(len(chosen), dtype=np.int64),
            scenes=None if self.scenes is None else take_labels(self.scenes, clusters),
            units=None if self.units is None else take_labels(self.units, clusters),
            lost=None if self.lost is None else self.lost[index],
            unit=self.unit,
        )


def _all_scored(scored: IntArray, episode: IntArray) -> IntArray:
    """The scored episodes and those that have operations, in order; nothing is sorted where the first say it all."""
    if len(scored) and (np.diff(scored) > 0).all():
        places = np.minimum(np.searchsorted(scored, episode), len(scored) - 1)
        if (scored[places] == episode).all():
            return scored
    return np.union1d(scored, episode)


def _first_labels(labels: Labels, codes: IntArray) -> Labels:
    first = np.unique(codes, return_index=True)[1]
    if len(first) == len(labels):
        return labels  # every unit once, in its order: the same labels, with their numbers
    return take_labels(labels, first)


def checked_times(durations_s: ArrayLike, observed: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """The two as arrays of one length, or an InputError that names the first bad row."""
    times = np.array(durations_s, dtype=np.float64)
    flags = np.asarray(observed)
    if times.ndim != 1 or flags.shape != times.shape:
        raise InputError(f'durations_s has shape {times.shape} and observed {flags.shape}, wanted the same (n,)')
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise InputError('observed must be true or false for each duration (0 and 1 are taken)')
    flags = flags.astype(np.bool_)
    bad = np.flatnonzero(np.isnan(times) | (times < 0))
    if len(bad):
        raise InputError(f'durations_s[{bad[0]}] is {times[bad[0]]}, wanted a time >= 0 (inf for a ghost)')
    endless = np.flatnonzero(np.isinf(times) & ~flags)
    if len(endless):
        raise InputError(
            f'durations_s[{endless[0]}] is inf but not observed: a ghost is inf with observed=True, a censored '
            'operation has the finite time at which watching stopped'
        )
    return times, flags


def operations(
    episodes: Iterable[Episode], *, batch: BatchRule | str = BatchRule.ELAPSED, unit: Unit | str = Unit.START,
    known: dict[Hashable, Hashable] | None = None,
) -> Operations:  # fmt: skip
    """The operations of these episodes; INVALID ones are counted in `n_invalid` and not scored.

    `unit` says what varies independently. Episodes of one start state are one unit, also where they were not recorded
    as repeats; an episode without a seed and an instance (or a session, an operator) is a unit of its own. `known` are
    the labels of cells built before, which are used again, so that policies on the same starts share them.
    """
    rule, kind = BatchRule(batch), Unit(unit)
    known = {} if known is None else known
    if isinstance(episodes, Episode):
        raise InputError('wanted episodes, found a single Episode; pass [episode]')
    if isinstance(episodes, EpisodeRows) and is_one_run_each(episodes):
        return _row_operations(episodes, kind)
    rows: list[tuple[float, bool, int, Cause, bool]] = []
    scored: list[int] = []
    scenes: list[Hashable] = []
    units: list[Hashable] = []
    n_invalid = 0
    for index, episode in enumerate(episodes):
        if not isinstance(episode, Episode):
            raise InputError(f'episodes[{index}] is {type(episode).__name__}, wanted an Episode')
        if not episode.is_valid:
            n_invalid += 1
            continue
        scored.append(index)
        scene, label = scene_of(episode), unit_of(episode, kind)
        scenes.append(known.setdefault(scene, scene))
        units.append(known.setdefault(label, label))
        early = not ends_at_cap(episode)
        rows.extend(
            (t, seen, index, cause, early and not seen) for t, seen, cause in _episode_operations(episode, rule)
        )
    return Operations(
        durations_s=np.array([r[0] for r in rows], dtype=np.float64),
        observed=np.array([r[1] for r in rows], dtype=np.bool_),
        episode=np.array([r[2] for r in rows], dtype=np.int64),
        cause=tuple(r[3] for r in rows),
        scored=np.array(scored, dtype=np.int64),
        n_invalid=n_invalid,
        scenes=tuple(scenes),
        units=tuple(units),
        lost=np.array([r[4] for r in rows], dtype=np.bool_),
        unit=kind,
    )


def is_one_run_each(rows: EpisodeRows) -> bool:
    """Whether every row is timed and a single attempt at a single thing: what its columns say is then all there is."""
    counted = ('items', 'items_placed', 'items_lost')
    return not rows.has_events and all(rows.is_absent(name) for name in counted) and rows.is_known('duration_s')


def _row_operations(rows: EpisodeRows, unit: Unit) -> Operations:
    """`operations` of rows that are one run each: one operation of every valid row."""
    scored = np.flatnonzero(~rows.ended(Outcome.INVALID))
    rows, n_all = rows.at(scored), len(rows)
    is_done, is_stopped, has_failed = rows.ended(Outcome.SUCCESS), rows.ended(Outcome.SAFETY_STOP), final_failures(rows)
    cause = np.full(len(rows), Cause.TAIL, dtype=object)
    for ended, by in ((is_done, Cause.PLACEMENT), (has_failed, Cause.FAILURE), (is_stopped, Cause.SAFETY_STOP)):
        cause[ended] = by
    is_never = has_failed | is_stopped
    return Operations(
        durations_s=np.where(is_never, INFINITE, rows.floats('duration_s')), observed=is_done | is_never,
        episode=scored, cause=tuple(cause.tolist()), scored=scored, n_invalid=n_all - len(rows),
        scenes=row_scenes(rows), units=row_units(rows, unit), lost=~(at_caps(rows) | is_done | is_never), unit=unit,
    )  # fmt: skip


def at_caps(rows: EpisodeRows) -> BoolArray:
    """`ends_at_cap` of rows."""
    cap_s = rows.floats('time_cap_s')
    by_clock = rows.floats('duration_s') >= cap_s * (1 - CAP_SLACK)
    return np.where(np.isnan(cap_s), rows.ended(Outcome.TIMEOUT), by_clock)


def final_failures(rows: EpisodeRows) -> BoolArray:
    """`is_final_failure` of rows."""
    flags = rows.flags('is_unrecoverable')
    is_early = np.isnan(rows.floats('time_cap_s')) | ~at_caps(rows)
    return np.asarray(rows.ended(Outcome.FAILURE) & (flags != 0) & ((flags == 1) | is_early))


START_FIELDS = ('benchmark', 'task', 'condition', 'condition_parameters', 'instance', 'seed')


def row_scenes(rows: EpisodeRows) -> NumberedLabels:
    """`scene_of` of rows."""
    return NumberedLabels(*rows.numbered((*START_FIELDS, 'repeat'), scene_of, told_by=('instance', 'seed')))


def row_units(rows: EpisodeRows, unit: Unit) -> NumberedLabels:
    """`unit_of` of rows."""
    if unit is Unit.EPISODE:
        return NumberedLabels(np.full(len(rows), -1), _no_label)
    if unit is Unit.START:  # by the instance where there is one, whatever the seed
        return NumberedLabels(*rows.numbered(START_FIELDS, unit_of, told_by=('instance', 'seed'), first_only=True))
    name = 'session' if unit is Unit.SESSION else 'operator'
    return NumberedLabels(*rows.numbered((name,), lambda episode: unit_of(episode, unit), told_by=(name,)))


def _no_label(number: int) -> Hashable:
    raise AssertionError(f'no label has the number {number}')


@dataclass(frozen=True, slots=True)
class SharedStart:
    """What two policies' episodes share when they were run on the same start."""

    benchmark: str
    task: str
    condition: Hashable
    instance: int | None
    repeat: int
    seed: int | None

    @property
    def start(self) -> SharedStart:
        """The start state alone: the instance where there is one, whatever the seed."""
        return self if self.instance is None else replace(self, seed=None)


def scene_of(episode: Episode) -> SharedStart | None:
    """The episode's scene; None when it has neither seed nor instance."""
    if episode.seed is None and episode.instance is None:
        return None
    return SharedStart(
        episode.benchmark, episode.task, _condition_of(episode), episode.instance, episode.repeat, episode.seed
    )  # fmt: skip


def _condition_of(episode: Episode) -> Hashable:
    return _condition(episode.condition, tuple(episode.condition_parameters.items()))


@functools.lru_cache(maxsize=4096)
def _condition(name: str, parameters: tuple[tuple[str, Any], ...]) -> Hashable:
    """One object for a condition, because every episode's labels hold it."""
    return name, parameters


def unit_of(episode: Episode, unit: Unit = Unit.START) -> Hashable:
    """The label of the unit that the episode belongs to; None when it is a unit of its own."""
    if unit is Unit.START:
        if episode.seed is None and episode.instance is None:
            return None
        seed = episode.seed if episode.instance is None else None
        return SharedStart(episode.benchmark, episode.task, _condition_of(episode), episode.instance, 0, seed)
    if unit is Unit.EPISODE:
        return None
    return (episode.session if unit is Unit.SESSION else episode.operator) or None


def stratum_of(episode: Episode) -> str:
    """The cell an episode belongs to within its policy: its stratum, or its task where none is given."""
    return episode.stratum or episode.task


def operations_by_stratum(
    episodes: Iterable[Episode], *, batch: BatchRule | str = BatchRule.ELAPSED, unit: Unit | str = Unit.START
) -> dict[str, Operations]:
    """Stratum -> Operations, strata sorted by name; indices count within each stratum's own episodes."""
    return {name: operations(group, batch=batch, unit=unit) for name, group in by_stratum(episodes).items()}


def by_stratum(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    """Stratum -> its episodes, strata sorted by name."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(stratum_of(episode), []).append(episode)
    return {name: groups[name] for name in sorted(groups)}


def pool(cells: Mapping[str, Operations]) -> Operations:
    """All strata as one cell, in the mapping's order; episodes are renumbered."""
    parts = list(cells.values())
    starts = np.cumsum([0, *(p.n_episodes for p in parts)])
    causes = [p.cause for p in parts]
    scenes = [p.scenes for p in parts]
    units = [p.units for p in parts]
    lost = [p.lost for p in parts]
    return Operations(
        durations_s=_concatenate([p.durations_s for p in parts], np.float64),
        observed=_concatenate([p.observed for p in parts], np.bool_),
        episode=_concatenate([p.cluster + s for p, s in zip(parts, starts[:-1], strict=True)], np.int64),
        cause=None if None in causes else tuple(c for part in causes if part is not None for c in part),
        scored=np.arange(starts[-1], dtype=np.int64),
        n_invalid=sum(p.n_invalid for p in parts),
        scenes=None if any(p is None for p in scenes) else join_labels([p for p in scenes if p is not None]),
        units=None if any(p is None for p in units) else join_labels([p for p in units if p is not None]),
        lost=None if any(p is None for p in lost) else _concatenate([p for p in lost if p is not None], np.bool_),
        unit=parts[0].unit if parts else Unit.EPISODE,
    )


def _concatenate(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=dtype), *parts]).astype(dtype)


def _episode_operations(episode: Episode, rule: BatchRule) -> Iterator[tuple[float, bool, Cause]]:
    """Placements in order, then ghosts, then the tail or what replaces it."""
    placed, last_s = 0, 0.0
    for event in episode.events:
        if event.kind is EventKind.PLACEMENT:
            elapsed_s = event.t_s - last_s
            for item in range(event.count):
                whole = elapsed_s if item == 0 else 0.0
                yield (elapsed_s / event.count if rule is BatchRule.SHARE else whole), True, Cause.PLACEMENT
            placed, last_s = placed + event.count, event.t_s
    _check_timed(episode, placed)
    if placed == 0 and episode.outcome is Outcome.SUCCESS:
        yield episode.known_duration_s, True, Cause.PLACEMENT
        placed = 1
    lost = 0
    # One cause an item that can never be placed; counted losses without an event are drops outside.
    timed = [Cause(e.kind.value) for e in episode.events if e.kind in DROP_KINDS for _ in range(e.count)]
    untimed = max((episode.items_lost or 0) - len(timed), 0)
    for cause in timed + [Cause.DROP_OUTSIDE] * untimed:
        lost += 1
        yield INFINITE, True, cause
    if is_unfinished(episode, placed=placed, lost=lost):
        yield _last_operation(episode, max(episode.known_duration_s - last_s, 0.0))


def _check_timed(episode: Episode, placed: int) -> None:
    """Refuse placements that were counted and not timed: a time cannot be made up."""
    n_placed = episode.items_placed
    single = episode.items in (None, 1)
    where = f'episode {episode.episode_id} ({episode.policy}, {episode.task})'
    remedy = (
        'time each with `robotrials annotate detect` and `annotate review`, import placement events, or leave the '
        'episode out'
    )
    if placed == 0 and single and episode.outcome is Outcome.SUCCESS:
        if n_placed == 0:
            raise InputError(f'{where}: the outcome is success but items_placed is 0; correct one of them')
        if n_placed not in (None, 1):
            raise InputError(
                f'placements are counted but not timed: {where} has {n_placed}, with no event that says when; {remedy}'
            )
        return
    if n_placed is not None and n_placed > placed:
        raise InputError(
            f'placements are counted but not timed: {where} has {n_placed} placed and {placed} timed; {remedy}'
        )
    if placed == 0 and episode.outcome is Outcome.SUCCESS and not single:
        raise InputError(
            f'placements are not timed: {where} placed all of {episode.items} items, with no event that says when; '
            f'{remedy}'
        )


def is_unfinished(episode: Episode, *, placed: int, lost: int) -> bool:
    """Whether an operation was under way when the episode ended."""
    if episode.items is not None:
        if placed + lost > episode.items:
            raise InputError(
                f'episode {episode.episode_id} ({episode.policy}, {episode.task}): {placed} placed and {lost} lost is '
                f'more than items = {episode.items}; correct the events or the counts'
            )
        return placed + lost < episode.items
    if episode.outcome is Outcome.FAILURE:
        return placed > 0 or lost == 0  # with nothing placed, the loss is what failed
    return episode.outcome is not Outcome.SUCCESS


def _last_operation(episode: Episode, tail_s: float) -> tuple[float, bool, Cause]:
    if is_safety_stopped(episode):
        return INFINITE, True, Cause.SAFETY_STOP
    if is_final_failure(episode):
        return INFINITE, True, Cause.FAILURE
    return tail_s, False, Cause.TAIL


def is_final_failure(episode: Episode) -> bool:
    """Whether the episode failed for good: such an end tells of the policy, so it cannot be taken as mere censoring.

    A failure at the time cap is a time-out, and one that the record says could have been mended is censored, unless
    the host says that it could not.
    """
    if episode.outcome is not Outcome.FAILURE or episode.is_unrecoverable is False:
        return False
    return episode.is_unrecoverable is True or episode.time_cap_s is None or not ends_at_cap(episode)


def ends_at_cap(episode: Episode) -> bool:
    """Whether the clock ended the episode; without a recorded cap a time-out is taken at its word."""
    if episode.time_cap_s is None:
        return episode.outcome is Outcome.TIMEOUT
    return episode.known_duration_s >= episode.time_cap_s * (1 - CAP_SLACK)


def is_safety_stopped(episode: Episode) -> bool:
    """Whether a safety stop ended the episode, by its outcome or by an event."""
    return episode.outcome is Outcome.SAFETY_STOP or any(e.kind is EventKind.SAFETY_STOP for e in episode.events)
