"""What two arms have in common: the cells (stratum and condition) that both ran, and the scenes that make pairs.

Only what both have is compared, and what is left out is named. The estimand of every comparison is the plain mean over
these cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.measure.timing.operation import scene_of, stratum_of
from robotrials.record import Episode
from robotrials.verdict.analysis.task_name import one_name, with_one_name
from robotrials.verdict.robustness import recorded_severity

MATCHED_SHARE = 0.9
PAIRINGS = ('auto', 'paired', 'independent')


@dataclass(frozen=True, slots=True, eq=False)
class CellPair:
    """The valid episodes of both arms in one cell; in a paired comparison they are in the same order of scenes."""

    name: str
    new: tuple[Episode, ...]
    reference: tuple[Episode, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SharedCells:
    """The common ground of two arms."""

    cells: tuple[CellPair, ...]
    is_paired: bool
    only_new: tuple[str, ...]  # what just one of the two ran, left out
    only_reference: tuple[str, ...]
    n_unpaired: tuple[int, int]  # valid episodes without a partner, left out of a paired comparison
    n_identical: int  # pairs of scenes with the same outcome and duration
    n_scenes: int  # scenes that both arms ran

    @property
    def n_new(self) -> int:
        return sum(len(c.new) for c in self.cells)

    @property
    def n_reference(self) -> int:
        return sum(len(c.reference) for c in self.cells)

    @property
    def n_starts(self) -> tuple[int, int]:
        """Start states of each arm, the units of every test; an episode without a recorded start is one of its own."""
        return (
            sum(n_starts(c.new) for c in self.cells),
            sum(n_starts(c.reference) for c in self.cells),
        )


def share_cells(new: Iterable[Episode], reference: Iterable[Episode], *, pairing: str = 'auto') -> SharedCells:
    """The cells with valid episodes of both arms; tasks within a cell that only one of them ran are left out.

    `pairing` 'auto' pairs episodes of one scene (task, condition, seed, instance, repeat) when at least nine in ten of
    each arm have a partner; 'paired' insists, 'independent' never does.
    """
    if pairing not in PAIRINGS:
        raise InputError(f'pairing is {pairing!r}, wanted {", ".join(PAIRINGS)}')
    first, second = ([e for e in side if e.is_valid] for side in (new, reference))
    if names := one_name((e.benchmark, e.task) for e in (*first, *second)):  # of two stores
        first, second = (list(with_one_name(side, names)) for side in (first, second))
    describe = _describer([*first, *second])
    sides = [_by_unit(side, describe) for side in (first, second)]
    units = [u for u in sides[0] if u in sides[1]]
    if not units:
        told = '; '.join(', '.join(sorted({u[0] for u in side})[:6]) or 'nothing valid' for side in sides)
        raise InputError(f'the two have no cell in common (task, stratum, condition); they have: {told}')
    grouped: dict[str, tuple[list[Episode], list[Episode]]] = {}
    for unit in sorted(units):
        cell = grouped.setdefault(unit[0], ([], []))
        cell[0].extend(sides[0][unit])
        cell[1].extend(sides[1][unit])
    cells = [CellPair(name, tuple(a), tuple(b)) for name, (a, b) in grouped.items()]
    for cell_pair in cells:
        _check_caps(cell_pair)
    lonely = [tuple(sorted({_unit_name(u) for u in mine if u not in other})) for mine, other in (sides, sides[::-1])]
    return _paired(cells, (lonely[0], lonely[1]), pairing)


Unit = tuple[str, str, str]  # the cell's name, the task, the benchmark


def _describer(episodes: Sequence[Episode]) -> Callable[[Episode], Unit]:
    """How an episode's cell is named: the condition is told where there are several, its severity where it varies."""
    rungs: dict[str, set[float | None]] = {}
    for episode in episodes:
        rungs.setdefault(episode.condition, set()).add(recorded_severity(episode))
    benchmarks = {e.benchmark for e in episodes}
    with_benchmark = '' not in benchmarks

    def describe(episode: Episode) -> Unit:
        name = stratum_of(episode)
        if with_benchmark and len(benchmarks) > 1:
            name = f'{episode.benchmark}/{name}'
        if len(rungs) > 1:
            severity = recorded_severity(episode)
            is_ladder = len(rungs[episode.condition]) > 1 and severity is not None
            name += f', {episode.condition}' + (f' at {severity:g}' if is_ladder else '')
        return name, episode.task, episode.benchmark if with_benchmark else ''

    return describe


def _by_unit(episodes: Iterable[Episode], describe: Callable[[Episode], Unit]) -> dict[Unit, list[Episode]]:
    groups: dict[Unit, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(describe(episode), []).append(episode)
    return groups


def _unit_name(unit: Unit) -> str:
    cell, task, _ = unit
    return cell if task in cell else f'{cell} ({task})'


def _check_caps(cell: CellPair) -> None:
    """Refuse cells in which one arm had longer to succeed."""
    caps = [{e.time_cap_s for e in side} - {None} for side in (cell.new, cell.reference)]
    if caps[0] and caps[1] and caps[0] != caps[1]:
        told = [', '.join(f'{c:g} s' for c in sorted(c for c in side if c is not None)) for side in caps]
        raise InputError(
            f'{cell.name}: time caps differ, {told[0]} against {told[1]}, and who has longer succeeds more often; '
            'rerun one with the time cap of the other, or leave the cell out'
        )


def _paired(cells: list[CellPair], lonely: tuple[tuple[str, ...], tuple[str, ...]], pairing: str) -> SharedCells:
    matched = [_match(c) for c in cells]
    n_new, n_reference = sum(len(c.new) for c in cells), sum(len(c.reference) for c in cells)
    n_pairs = sum(len(m.new) for m in matched if m is not None)
    fits = all(m is not None and len(m.new) for m in matched) and n_pairs >= MATCHED_SHARE * max(n_new, n_reference)
    if pairing == 'paired' and not all(m is not None and len(m.new) for m in matched):
        bad = [c.name for c, m in zip(cells, matched, strict=True) if m is None or not m.new]
        raise InputError(
            f'no pairs in {", ".join(bad)}: episodes of both arms must share scenes (task, condition, seed, instance, '
            'repeat), each at most once per arm; compare them as independent arms'
        )
    use = pairing == 'paired' or (pairing == 'auto' and fits)
    both = [m for m in matched if m is not None]
    identical = sum(_is_same(a, b) for m in both for a, b in zip(m.new, m.reference, strict=True))
    return SharedCells(
        tuple(both) if use else tuple(cells), use, *lonely,
        (n_new - n_pairs, n_reference - n_pairs) if use else (0, 0), identical, n_pairs,
    )  # fmt: skip


def _match(cell: CellPair) -> CellPair | None:
    """The episodes with a partner, in the order of their scenes; None where a scene stands for two episodes."""
    for key in (scene_of, _start_of):
        sides = [{key(e): e for e in side} for side in (cell.new, cell.reference)]
        if any(len(found) < len(side) for found, side in zip(sides, (cell.new, cell.reference), strict=True)):
            continue  # two episodes of one arm share a scene, or some have none
        common = [scene for scene in sides[0] if scene is not None and scene in sides[1]]
        if common:
            return CellPair(
                cell.name, tuple(sides[0][s] for s in common), tuple(sides[1][s] for s in common)
            )  # fmt: skip
    return None


def _start_of(episode: Episode) -> Hashable:
    """The scene by its start state, for arms that drew their own seeds."""
    scene = scene_of(episode)
    return None if scene is None else scene.start


def start_clusters(episodes: Sequence[Episode]) -> list[Hashable] | None:
    """One label an episode: the start state it was run from; None where no start was run twice."""
    labels: list[Hashable] = []
    for number, episode in enumerate(episodes):
        scene = scene_of(episode)
        labels.append(('alone', number) if scene is None else dataclasses.replace(scene.start, repeat=0))
    return labels if 1 < len(set(labels)) < len(labels) else None


def n_starts(episodes: Sequence[Episode]) -> int:
    """How many start states these episodes were run from."""
    labels = start_clusters(episodes)
    return len(episodes) if labels is None and not _is_one_start(episodes) else len(set(labels or [0]))


def _is_one_start(episodes: Sequence[Episode]) -> bool:
    """Several runs of a single start."""
    scenes = [scene_of(e) for e in episodes]
    return len(episodes) > 1 and None not in scenes and len({s.start for s in scenes if s is not None}) == 1


def _is_same(a: Episode, b: Episode) -> bool:
    return (a.outcome, a.success, a.duration_s) == (b.outcome, b.success, b.duration_s)
