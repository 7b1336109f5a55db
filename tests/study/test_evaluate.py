"""The official protocol of a host as a plan, and where a trial leaves it."""

from __future__ import annotations

import dataclasses

import pytest

from robotrials.errors import InputError
from robotrials.run.plan import HostEntry, PolicyEntry, TaskEntry
from robotrials.run.schedule import trial_slots
from robotrials.study import EvaluationOptions
from robotrials.study.evaluate import counted_by_success, evaluation_plan, official_deviations

POLICIES = {'step 1': PolicyEntry('no_op')}
STATED = {'initial_states': 'fixed, by instance: 0123; fixtures from seed 0', 'step_cap': '220'}
SPATIAL = HostEntry('libero', {'suite': 'libero-spatial'})


def test_libero_is_evaluated_by_its_official_protocol() -> None:
    """A.1: 50 trials per task, 500 per suite, each from a fixed start state."""
    plan = evaluation_plan(SPATIAL, POLICIES, EvaluationOptions())
    slots = trial_slots(plan)
    assert len(slots) == 500
    assert {(s.cell.task.name, s.instance) for s in slots} == {(f'task_{t}', i) for t in range(10) for i in range(50)}
    assert plan.time_cap_s == 220 / 20
    assert plan.benchmark == 'libero-spatial'
    assert official_deviations(plan, STATED) == ()


@pytest.mark.parametrize(
    ('options', 'stated', 'said'),
    [
        ({'episodes_per_task': 5}, {}, '5 start states x 1 per task, official 50 x 1'),
        ({'repeats': 2}, {}, '50 start states x 2'),
        ({'tasks': (TaskEntry('task_0'),)}, {}, '1 of the 10 official tasks'),
        ({'time_cap_s': 5.0}, {}, 'episodes end at 100 steps, official 220'),
        ({}, {'step_cap': '300'}, 'the host ends episodes at 300 steps'),
        ({}, {'initial_states': 'drawn anew'}, 'start states: drawn anew'),
        ({}, {'initial_states': ''}, 'start states: not stated'),
        ({}, {'assets_note': 'not the originals'}, 'assets: not the originals'),
    ],
)
def test_every_departure_from_the_protocol_is_said(
    options: dict[str, object], stated: dict[str, str], said: str
) -> None:
    plan = evaluation_plan(SPATIAL, POLICIES, dataclasses.replace(EvaluationOptions(), **options))  # type: ignore[arg-type]
    found = official_deviations(plan, {**STATED, **stated})
    assert len(found) == 1
    assert said in found[0]


def test_a_host_without_a_protocol_wants_one_given() -> None:
    with pytest.raises(InputError, match=r'\[evaluation\] tasks is missing'):
        evaluation_plan(HostEntry('tabletop'), POLICIES, EvaluationOptions())
    given = EvaluationOptions(tasks=(TaskEntry('single_block'),), episodes_per_task=3, time_cap_s=20.0)
    assert official_deviations(evaluation_plan(HostEntry('tabletop'), POLICIES, given), {}) == ()


def test_an_overlap_beside_success_is_quality_and_success_is_counted() -> None:
    from tests.record.test_log import episode

    scored = episode(0).replace(success=True, score=0.83, max_score=1.0)
    chain = episode(1).replace(success=False, score=3.0, max_score=5.0)
    counted = counted_by_success([scored, chain])
    assert (counted[0].score, counted[0].success) == (None, True)
    assert counted[1] == chain
