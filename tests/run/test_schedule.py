"""Rotation: balanced at every prefix, counterbalanced, unguessable at block ends, and reproducible."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.plans import make_plan

from robotrials.run.schedule import Slot, rotate, trial_slots

PLANS = st.fixed_dictionaries(
    {
        'policies': st.integers(1, 4).map(lambda n: {f'policy{i}': 'seek' for i in range(n)}),
        'episodes_per_cell': st.integers(1, 9),
        'repeats': st.integers(1, 2),
        'strata': st.lists(st.sampled_from(['a', 'b', 'c']), unique=True, max_size=3),
        'seed': st.integers(0, 2**31),
        'scenes': st.sampled_from(['matched', 'independent']),
        'nuisance': st.sampled_from([{}, {'camera': ['l', 'r']}, {'camera': ['l', 'r'], 'tote': ['l', 'r']}]),
        'rotation': st.fixed_dictionaries(
            {
                'max_rounds_per_block': st.integers(1, 4),
                'sessions': st.integers(1, 3),
                'fixtures': st.sampled_from([[], ['x'], ['x', 'y']]),
                'grouping': st.sampled_from(['none', 'stratum', 'task']),
            }
        ),
    }
)


def imbalance(slots: list[Slot], policies: list[str]) -> int:
    counts = Counter(slot.policy for slot in slots)
    return max(counts[p] for p in policies) - min(counts[p] for p in policies)


@given(PLANS)
def test_imbalance_is_within_the_block_bound_at_every_prefix(values: dict[str, Any]) -> None:
    plan = make_plan(reference='', **values)
    slots, policies = trial_slots(plan), sorted(plan.policies)
    assert len(slots) == len({(s.policy, s.cell.name, s.instance, s.repeat) for s in slots})
    assert len(slots) == plan.episodes_per_cell * plan.repeats * len(plan.cells()) * len(policies)
    bound = plan.rotation.max_rounds_per_block
    scopes: dict[tuple[str, ...], list[Slot]] = {}
    for slot in slots:
        for scope in [('all',), ('cell', slot.cell.name), ('session', slot.session), ('fixture', slot.fixture)]:
            scopes.setdefault(scope, []).append(slot)
            assert imbalance(scopes[scope], policies) <= bound, scope
    for scope, inside in scopes.items():
        assert imbalance(inside, policies) == 0, scope


@given(PLANS)
def test_every_policy_meets_the_same_labels_equally_often(values: dict[str, Any]) -> None:
    plan = make_plan(reference='', **values)
    combinations = int(np.prod([len(v) for v in plan.nuisance.values()])) if plan.nuisance else 1
    by_policy: dict[str, Counter[Any]] = {}
    in_cell: dict[tuple[str, str], Counter[Any]] = {}
    for slot in trial_slots(plan):
        labels = tuple(sorted((k, v) for k, v in slot.labels.items() if k != 'fixture'))
        by_policy.setdefault(slot.policy, Counter())[labels] += 1
        in_cell.setdefault((slot.policy, slot.cell.name), Counter())[labels] += 1
    assert len({tuple(sorted(c.items())) for c in by_policy.values()}) == 1
    for counts in [*by_policy.values(), *in_cell.values()]:
        full = [counts[labels] for labels in counts] + [0] * (combinations - len(counts))
        assert max(full) - min(full) <= 2


@given(PLANS)
def test_matched_scenes_are_shared_and_independent_ones_are_not(values: dict[str, Any]) -> None:
    plan = make_plan(reference='', **values)
    seeds: dict[tuple[str, int], set[int]] = {}
    for slot in trial_slots(plan):
        seeds.setdefault((slot.cell.name, slot.instance), set()).add(slot.seed)
    expected = 1 if plan.scenes == 'matched' else len(plan.policies)
    assert all(len(found) == expected for found in seeds.values())


def test_the_seed_changes_the_order_and_the_same_plan_has_the_same_order() -> None:
    plan = make_plan(episodes_per_cell=20)
    order = [(s.policy, s.instance) for s in trial_slots(plan)]
    assert order == [(s.policy, s.instance) for s in trial_slots(make_plan(episodes_per_cell=20))]
    assert order != [(s.policy, s.instance) for s in trial_slots(make_plan(episodes_per_cell=20, seed=12))]
    a, b = (rotate(plan, np.random.default_rng(seed)) for seed in (1, 2))
    assert [s.policy for s in a] != [s.policy for s in b]


def share_guessed(max_rounds_per_block: int) -> float:
    """How often the next of two arms is the one that is behind; ties are guessed by a coin."""
    right, total = 0.0, 0
    for seed in range(30):
        counts: Counter[str] = Counter()
        plan = make_plan(episodes_per_cell=60, seed=seed, rotation={'max_rounds_per_block': max_rounds_per_block})
        a, b = sorted(plan.policies)
        for slot in trial_slots(plan):
            tied = counts[a] == counts[b]
            right += 0.5 if tied else slot.policy == min((a, b), key=lambda n: counts[n])
            total += 1
            counts[slot.policy] += 1
    return right / total


def test_random_block_sizes_make_the_next_arm_harder_to_guess() -> None:
    assert share_guessed(1) == pytest.approx(0.75)
    assert 0.5 < share_guessed(4) < share_guessed(3) < share_guessed(2) < 0.74


@pytest.mark.parametrize('grouping', ['task', 'stratum'])
def test_grouping_keeps_a_group_together_in_each_session(grouping: str) -> None:
    plan = make_plan(
        tasks=['reach', 'lift'], strata=['a', 'b'], rotation={'grouping': grouping, 'sessions': 2}, episodes_per_cell=6
    )
    for session in ('s1', 's2'):
        names = [getattr(s.cell, grouping).name for s in trial_slots(plan) if s.session == session]
        changes = sum(a != b for a, b in itertools.pairwise(names))
        assert changes == 1
