"""A card's own rerun, and what it says where there is nothing to run."""

from pathlib import Path

import pytest
from numpy.random import default_rng

from robotrials.errors import InputError
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.study.card import CardRequest, make_card, rerun
from robotrials.verdict.audit import RunOutcomes, shortcut
from robotrials.verdict.audit.card import CardStanding
from robotrials.verdict.audit.determinism import Grade, ReproductionTarget
from robotrials.verdict.audit.outcome import InstanceOutcome

POINT = HostEntry('point-mass')


def test_a_rerun_is_graded_on_the_four_targets(tmp_path):
    found = rerun(POINT, PolicyEntry('seek'), task='reach', folder=tmp_path, workers=0)
    grades = {g.target: g.grade for g in found.grades}
    assert grades[ReproductionTarget.OUTCOME] is Grade.MET
    assert grades[ReproductionTarget.BITWISE] is Grade.NOT_SHOWN  # pixels and contacts are not recorded
    assert found.is_closed_loop


def test_a_host_without_a_known_policy_is_not_rerun_and_not_passed():
    card = make_card(CardRequest(host=POINT))
    assert card.determinism is None
    assert {f.standing for f in card.findings()} == {CardStanding.NOT_RUN}


def test_a_rerun_that_breaks_is_on_the_card():
    card = make_card(CardRequest(host=POINT, policy=PolicyEntry('seek')))  # the host names no tasks
    assert 'names no tasks' in card.failures['determinism']
    assert next(f for f in card.findings() if f.part == 'determinism').standing is CardStanding.NOT_RUN


def test_recorded_runs_are_two_or_three(tmp_path):
    with pytest.raises(InputError, match='wanted two'):
        make_card(CardRequest(host=POINT, runs=(tmp_path,)))


@pytest.mark.parametrize(
    ('asked', 'said'),
    [
        ({'runs': (Path('a'), Path('b'))}, 'a: no such folder'),
        ({'policy': PolicyEntry('seeek')}, "did you mean 'seek'"),
        ({'host': HostEntry('tabletop', {'cameras': []}), 'task': 'single_blok'}, "did you mean 'single_block'"),
    ],
)
def test_a_wrong_name_is_an_error_and_no_broken_check(asked, said):
    with pytest.raises(InputError, match=said):
        make_card(CardRequest(**{'host': POINT, **asked}))


def test_a_shortcut_of_another_host_or_suite_is_not_on_the_card():
    outcomes = tuple(InstanceOutcome('t', f'instance={i}', 1) for i in range(4))
    found = shortcut([RunOutcomes('step 1', outcomes, 1)], host='libero', benchmark='libero-goal', rng=default_rng(0))
    with pytest.raises(InputError, match='is of host libero'):
        make_card(CardRequest(host=POINT, shortcut=found))
    with pytest.raises(InputError, match='is of libero-goal, this card is of libero-spatial'):
        make_card(CardRequest(host=HostEntry('libero'), benchmark='libero-spatial', shortcut=found))


def test_a_preset_gives_tasks_and_samples():
    card = make_card(CardRequest(host=POINT, benchmark='libero-spatial'))
    assert card.significance is not None
    assert (card.significance.protocol.tasks, card.significance.protocol.samples) == (10, 50)
    with pytest.raises(InputError, match='libero-spatial'):
        make_card(CardRequest(host=POINT, benchmark='libero-spatil'))
