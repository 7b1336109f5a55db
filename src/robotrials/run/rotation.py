"""Who runs when: permuted blocks of random size, every policy equally often in each, nuisance labels in balance.

A block holds 1 to `max_rounds_per_block` rounds of one cell; a round is one start state, met once by every policy. So
at any moment, within any cell, session or fixture, two policies differ by at most `max_rounds_per_block` episodes, and
as the size of a block is random its end can't be foreseen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.old_name import SCENE_SEED
from robotrials.record.unblinding import rotation_commitment
from robotrials.run.blinding import blinding_of, derived_seed
from robotrials.run.plan import Cell, Grouping, Scenes, TrialPlan

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned episode: everything about it but what will come of it."""

    number: int  # in the order of the trial
    place: int = 0  # among the slots of its policy, in the order of the plan
    policy: str
    cell: Cell
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
    cell: Cell
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
    plan: TrialPlan, cell: Cell, number: int, rounds: list[_Round], *, rng: np.random.Generator
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


def scene_seed(plan: TrialPlan, cell: Cell, instance: int, *, policy: str, key: bytes) -> int:
    """The seed of a start state; matched, it is the same for every policy, condition, and plan with this seed."""
    where = (cell.task.scene or cell.task.name, cell.stratum.name, instance)
    if plan.scenes is Scenes.MATCHED:
        return derived_seed(SCENE_SEED, plan.seed, *where)
    return derived_seed(key, 'scene', plan.seed, policy, cell.name, *where)
