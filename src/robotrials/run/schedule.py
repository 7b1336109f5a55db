"""Who runs when, in permuted blocks; what is still to be run; and how far the trial has come.

Where a concealed trial keeps the episodes of a block until the block is whole, out of the operator's sight.

When each episode was stored tells how long its policy thought, and so which arm it was. A block holds every arm equally
often: episodes that enter the store together, a block at a time and with one start time, tell nothing. Until then each
is as durable as in the store itself, in a store of its own below `STORE.private`, which only the account that runs the
trial can open.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import itertools
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.old_name import SCENE_SEED
from robotrials.record import Episode, Outcome, Store
from robotrials.record.blinding import rotation_commitment
from robotrials.record.bucket import CachedPath
from robotrials.run.blinding import blinding_of, derived_seed
from robotrials.run.plan import DesignCell, Grouping, Scenes, TrialPlan

# Who runs when: permuted blocks of random size, every policy equally often in each, nuisance labels in balance.
# A block holds 1 to `max_rounds_per_block` rounds of one cell; a round is one start state, met once by every policy.
# So at any moment, within any cell, session or fixture, two policies differ by at most `max_rounds_per_block`
# episodes, and as the size of a block is random its end can't be foreseen.

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned episode: everything about it but what will come of it."""

    number: int  # in the order of the trial
    place: int = 0  # among the slots of its policy, in the order of the plan
    policy: str
    cell: DesignCell
    instance: int
    repeat: int
    seed: int
    block: str
    session: str
    fixture: str = ''
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Round:
    instance: int
    repeat: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class _Block:
    cell: DesignCell
    cell_number: int
    rounds: tuple[_Round, ...]
    fixture: str


def trial_slots(plan: TrialPlan, *, rotation: bytes = b'') -> tuple[Slot, ...]:
    """The order of a whole trial: from the plan alone or, of a concealed trial, from the key that the machine has."""
    if plan.blinding.is_concealed and rotation_commitment(rotation) != plan.blinding.rotation:
        raise InputError(
            'the order of this trial is concealed: its key is in arms.json, which the account of the machine has; '
            'run it from there, with --arms arms.json'
        )
    key = rotation or blinding_of(plan).key
    return rotate(plan, np.random.default_rng(derived_seed(key, 'rotation', plan.seed, bits=63)), key=key)


def rotate(plan: TrialPlan, rng: np.random.Generator, *, key: bytes = b'') -> tuple[Slot, ...]:
    """The slots of a trial in a random order that is balanced at every prefix; `key` is of seeds that differ by arm."""
    key = key or blinding_of(plan).key
    sessions: list[list[_Block]] = [[] for _ in range(plan.rotation.sessions)]
    spare = _endless(_combinations(plan.nuisance), rng)
    for number, cell in enumerate(plan.cells()):
        rounds = _rounds(plan, spare, rng)
        for session, part in enumerate(_shares(rounds, plan.rotation.sessions, first=number)):
            sessions[session] += _blocks(plan, cell, number, part, rng=rng)
    slots: list[Slot] = []
    for session, blocks in enumerate(sessions):
        for position, block in enumerate(_ordered(blocks, plan.rotation.grouping, rng)):
            name = f's{session + 1}'
            order = rng.permutation(len(block.rounds) * len(plan.policies))
            slots += _slots(plan, block, order, session=name, position=position, first=len(slots), key=key)
    return tuple(slots)


def _rounds(plan: TrialPlan, spare: Iterator[Labels], rng: np.random.Generator) -> list[_Round]:
    """The rounds of one cell in their order, each with its nuisance labels, the same for every policy."""
    pairs = list(itertools.product(range(plan.episodes_in_a_cell()), range(plan.repeats)))
    labels = _counterbalanced(_combinations(plan.nuisance), len(pairs), spare=spare, rng=rng)
    return [_Round(instance, repeat, chosen) for (instance, repeat), chosen in zip(pairs, labels, strict=True)]


def _combinations(nuisance: Mapping[str, Sequence[str]]) -> list[Labels]:
    names = sorted(nuisance)
    return [dict(zip(names, levels, strict=True)) for levels in itertools.product(*(nuisance[n] for n in names))]


def _counterbalanced(
    combinations: list[Labels], count: int, *, spare: Iterator[Labels], rng: np.random.Generator
) -> list[Labels]:
    """Every combination once in each run of as many rounds; the last, short run of a cell draws on a balance of all."""
    whole, rest = divmod(count, len(combinations))
    labels = [combinations[i] for _ in range(whole) for i in rng.permutation(len(combinations))]
    return labels + [next(spare) for _ in range(rest)]


def _endless(combinations: list[Labels], rng: np.random.Generator) -> Iterator[Labels]:
    while True:
        for index in rng.permutation(len(combinations)):
            yield combinations[index]


def _shares(rounds: list[_Round], sessions: int, *, first: int) -> list[list[_Round]]:
    """The rounds over the sessions as evenly as they go; what is left over starts at another session for each cell."""
    size, rest = divmod(len(rounds), sessions)
    sizes = [size + ((session - first) % sessions < rest) for session in range(sessions)]
    edges = [0, *itertools.accumulate(sizes)]
    return [rounds[a:b] for a, b in itertools.pairwise(edges)]


def _blocks(
    plan: TrialPlan, cell: DesignCell, number: int, rounds: list[_Round], *, rng: np.random.Generator
) -> list[_Block]:  # fmt: skip
    fixtures = plan.rotation.fixtures or ('',)
    order = rng.permutation(len(fixtures))
    blocks: list[_Block] = []
    start = 0
    while start < len(rounds):
        size = int(rng.integers(1, plan.rotation.max_rounds_per_block + 1))
        fixture = fixtures[order[len(blocks) % len(fixtures)]]
        blocks.append(_Block(cell, number, tuple(rounds[start : start + size]), fixture))
        start += size
    return blocks


def _ordered(blocks: list[_Block], grouping: Grouping, rng: np.random.Generator) -> list[_Block]:
    groups: dict[str, list[_Block]] = {}
    for block in blocks:
        name = {Grouping.NONE: '', Grouping.TASK: block.cell.task.name, Grouping.STRATUM: block.cell.stratum.name}
        groups.setdefault(name[grouping], []).append(block)
    names = list(groups)
    return [groups[names[g]][b] for g in rng.permutation(len(names)) for b in rng.permutation(len(groups[names[g]]))]


def _slots(
    plan: TrialPlan, block: _Block, order: NDArray[np.int64], *, session: str, position: int, first: int, key: bytes
) -> list[Slot]:
    pairs = list(itertools.product(block.rounds, sorted(plan.policies)))
    labels = {'fixture': block.fixture} if block.fixture else {}
    scene = block.cell.task.scene
    slots = []
    for offset, index in enumerate(order):
        round_, policy = pairs[index]
        slots.append(
            Slot(
                number=first + offset,
                place=(block.cell_number * plan.episodes_in_a_cell() + round_.instance) * plan.repeats + round_.repeat,
                policy=policy,
                cell=block.cell,
                instance=round_.instance,
                repeat=round_.repeat,
                seed=scene_seed(plan, block.cell, round_.instance, policy=policy, key=key),
                block=f'{session}-b{position + 1}',
                session=session,
                fixture=block.fixture,
                labels={**round_.labels, **labels, **({'scene': f'{scene}/{round_.instance}'} if scene else {})},
            )
        )
    return slots


def scene_seed(plan: TrialPlan, cell: DesignCell, instance: int, *, policy: str, key: bytes) -> int:
    """The seed of a start state; matched, it is the same for every policy, condition, and plan with this seed."""
    where = (cell.task.scene or cell.task.name, cell.stratum.name, instance)
    if plan.scenes is Scenes.MATCHED:
        return derived_seed(SCENE_SEED, plan.seed, *where)
    return derived_seed(key, 'scene', plan.seed, policy, cell.name, *where)


@dataclass(frozen=True, slots=True)
class Attempted:
    """What the store has of one slot."""

    n_attempts: int  # the number of the next one
    is_valid: bool
    n_faults: int = 0  # attempts that a fault ended; what an edit took back is not one of them


@dataclass(frozen=True, slots=True)
class SlotAttempt:
    slot: Slot
    attempt: int


class Schedule:
    """Hands out slots in the order of the rotation.

    A slot that came out INVALID is tried again at the end of its block, up to `attempts` times, so that balance
    is restored before the next block begins. At a look, nothing after it is handed out until all before it is settled,
    so that what a stopping rule sees does not depend on how many workers there are.
    """

    def __init__(
        self, slots: Sequence[Slot], done: Mapping[int, Attempted], *, attempts: int, looks: Sequence[int] = ()
    ) -> None:
        self._attempts = attempts
        self._looks = sorted(looks)
        self._under_way: dict[int, SlotAttempt] = {}
        self._faults = {number: d.n_faults for number, d in done.items()}
        self.n_total = len(slots)
        self.n_valid = sum(1 for d in done.values() if d.is_valid)
        self._given_up = {n for n, d in done.items() if not d.is_valid and d.n_faults >= attempts}
        self._waiting = deque(
            SlotAttempt(slot, done[slot.number].n_attempts if slot.number in done else 0)
            for slot in slots
            if slot.number not in self._given_up and not (slot.number in done and done[slot.number].is_valid)
        )

    @property
    def n_given_up(self) -> int:
        return len(self._given_up)

    @property
    def n_left(self) -> int:
        """Tasks that wait to be handed out."""
        return len(self._waiting)

    @property
    def is_finished(self) -> bool:
        return not self._waiting and not self._under_way

    @property
    def under_way(self) -> Sequence[SlotAttempt]:
        return tuple(self._under_way.values())

    @property
    def upcoming(self) -> Slot | None:
        """The slot that would be handed out next, whether or not it is held."""
        return self._waiting[0].slot if self._waiting else None

    def has_left(self, is_meant: Callable[[Slot], bool]) -> bool:
        """Whether some slot of a kind waits or is under way."""
        return any(is_meant(task.slot) for task in (*self._waiting, *self._under_way.values()))

    def next(self) -> SlotAttempt | None:
        """The next task, or None if there is none now (others may still be under way, or a look is due)."""
        if not self._waiting or (self._looks and self._waiting[0].slot.number >= self._looks[0]):
            return None
        task = self._waiting.popleft()
        self._under_way[task.slot.number] = task
        return task

    def settle(self, number: int, outcome: Outcome) -> None:
        """Take a finished slot off, and put it back at the end of its block if it has to be run again."""
        task = self._under_way.pop(number)
        if outcome is not Outcome.INVALID:
            self.n_valid += 1
        else:
            self._faults[number] = self._faults.get(number, 0) + 1
            if self._faults[number] >= self._attempts:
                self._given_up.add(number)
                return
            again = SlotAttempt(task.slot, task.attempt + 1)
            later = (i for i, other in enumerate(self._waiting) if _is_later_block(other.slot, task.slot))
            self._waiting.insert(next(later, len(self._waiting)), again)

    def take_look(self, decide: Callable[[int], bool]) -> bool:
        """If a look is due, ask `decide(slots before it)` whether to stop; True ends the trial."""
        while self._looks and self._is_settled_before(self._looks[0]):
            edge = self._looks.pop(0)
            if decide(edge):
                self._waiting.clear()
                return True
        return False

    def _is_settled_before(self, edge: int) -> bool:
        numbers = [task.slot.number for task in self._waiting] + list(self._under_way)
        return all(number >= edge for number in numbers)


def _is_later_block(slot: Slot, than: Slot) -> bool:
    return slot.number > than.number and (slot.session, slot.block) != (than.session, than.block)


def look_edges(slots: Sequence[Slot], *, n_policies: int, every_rounds: int) -> list[int]:
    """The slot numbers before which a stopping rule looks: ends of blocks, at least `every_rounds` rounds apart."""
    edges = []
    rounds_since = size = 0
    for number, slot in enumerate(slots):
        size += 1
        is_end = number + 1 == len(slots) or slots[number + 1].block != slot.block
        if is_end:
            rounds_since += size // n_policies
            size = 0
            if rounds_since >= every_rounds:
                edges.append(slot.number + 1)
                rounds_since = 0
    return edges


# How far a trial has come, in terms that give nothing away.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress:
    """Episodes done and to do, arms by their codes."""

    n_valid: int
    n_total: int
    n_invalid: int  # attempts in this run that came out INVALID
    n_given_up: int
    elapsed_s: float
    eta_s: float | None  # None until this run has finished an episode
    per_arm: Mapping[str, int]  # valid episodes by code


Report = Callable[[TrialProgress], None]


class RunTally:
    """Keeps the counts of one run, and guesses when it will be over."""

    def __init__(self, per_arm: Mapping[str, int]) -> None:
        self._per_arm = Counter(per_arm)
        self._started_s = time.monotonic()
        self._finished_here = 0
        self._invalid_here = 0

    def add(self, code: str, outcome: Outcome) -> None:
        self._finished_here += 1
        if outcome is Outcome.INVALID:
            self._invalid_here += 1
        elif code:  # of a concealed trial it is not said
            self._per_arm[code] += 1

    def progress(self, *, n_valid: int, n_total: int, n_given_up: int) -> TrialProgress:
        elapsed_s = time.monotonic() - self._started_s
        rest = n_total - n_valid - n_given_up
        eta_s = elapsed_s / self._finished_here * rest if self._finished_here else None
        return TrialProgress(
            n_valid=n_valid,
            n_total=n_total,
            n_invalid=self._invalid_here,
            n_given_up=n_given_up,
            elapsed_s=elapsed_s,
            eta_s=eta_s,
            per_arm=dict(sorted(self._per_arm.items())),
        )


BLOCKS = 'blocks'  # below the private folder, whose own times an operator can read


def private_folder(store: Path) -> Path:
    """Where the account that runs a concealed trial keeps what the operator must not see; made if it is new."""
    path = store.resolve()
    folder = path.with_name(f'{path.name}.private')
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Spool:
    """The blocks of one trial that are not whole yet."""

    def __init__(self, store: Store, *, whole: str = '') -> None:
        """whole: a name for all slots of this run, if they enter the store together: a shard has parts of blocks."""
        self._store, self.whole = store, whole
        self._folder = private_folder(store.path) / BLOCKS
        self._folder.mkdir(exist_ok=True)

    def group(self, slot: Slot) -> str:
        """The name of what enters the store together with a slot."""
        return self.whole or f'{slot.session} {slot.block}'

    def store_of(self, slot: Slot) -> Store:
        """The store that has a slot's episode until its block is whole."""
        trial = self._store.trial
        root = self._folder / hashlib.sha256(self.group(slot).encode()).hexdigest()[:16]
        return Store.create(root, trial_id=trial.trial_id, plan_hash=trial.plan_hash)

    def _stores(self) -> Iterator[Store]:
        for path in sorted(self._folder.iterdir()):
            if (path / 'trial.json').exists():  # else a kill left less than a store, and no episode
                yield Store.open(path)

    def tidy(self) -> None:
        """Forget blocks that a run put into the trial's store, and was killed before it could take them from here."""
        for store in list(self._stores()):
            if (first := next(store.episodes(attempts='all', dropped=True), None)) is not None:
                where = {'episode_id': first.episode_id}
                known = self._store.episodes(attempts='all', dropped=True, events=False, where=where)
                if any(e.attempt == first.attempt for e in known):
                    shutil.rmtree(store.path)

    def episodes(self) -> Iterator[Episode]:
        """Every episode that waits for its block."""
        for store in self._stores():
            yield from store.episodes(attempts='all', dropped=True)

    def release(self, slot: Slot, *, by: str) -> None:
        """Put the episodes of a slot's block, which is whole, into the trial's store at once."""
        self._release(self.store_of(slot), by=by)

    def release_all(self, *, by: str) -> None:
        """Put everything that waits into the trial's store: it is being closed, and no time tells anything more."""
        self.tidy()
        for store in list(self._stores()):
            self._release(store, by=by)

    def _release(self, spool: Store, *, by: str) -> None:
        episodes = _coarse(list(spool.episodes(attempts='all', dropped=True)))
        if episodes:
            trajectories = {e.key: t for e in episodes if (t := spool.trajectory(e)) is not None}
            folder = spool.path / 'media'
            media = {str(p.relative_to(folder)): p for p in sorted(folder.rglob('*')) if p.is_file()}
            self._store.append(episodes, trajectories=trajectories, media=media, by=by)
        shutil.rmtree(spool.path)


def _coarse(episodes: list[Episode]) -> list[Episode]:
    """Episodes of one block with one start time, to the minute."""
    starts = [e.started_at for e in episodes if e.started_at is not None]
    start = min(starts, default=dt.datetime.now(dt.UTC)).replace(second=0, microsecond=0)
    return [e.replace(started_at=None if e.started_at is None else start) for e in episodes]


def spool_of(store: Store, *, is_concealed: bool, whole: str = '') -> Spool | None:
    """The spool of a trial that needs one. Object storage has no private folder: there, episodes enter as they end."""
    if not is_concealed or isinstance(store.path, CachedPath):
        return None
    return Spool(store, whole=whole)


def release_leftovers(store: Store, *, by: str) -> None:
    """Put what an interrupted run left in its private folder into the store, if there is such a folder."""
    if isinstance(store.path, CachedPath):
        return
    folder = store.path.resolve().with_name(f'{store.path.resolve().name}.private')
    try:
        if (folder / BLOCKS).is_dir():
            Spool(store).release_all(by=by)
    except PermissionError as error:
        raise StoreError(
            f'{folder}: an interrupted run left episodes here that only its account can read; finish the block with '
            'robotrials run from that account, or close the trial from there'
        ) from error
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
