"""The policy with eyes: what it knows it has seen or heard."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest

from robotrials.errors import UnknownName
from robotrials.run.seam import Observation, Setup
from robotrials.worlds.cell.sighted import (
    SLOTS_AT,
    Destination,
    SightedPolicy,
    SightedSession,
    heard_color,
    heard_destination,
    pose_beside,
)

pytest.importorskip('mujoco')
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.task import draw_layout

COLORS = ('red', 'green', 'blue', 'yellow')


@pytest.fixture(scope='module')
def cell() -> Iterator[TabletopHost]:
    host = TabletopHost(
        state='privileged', cameras=('front', 'side'), image_size=(128, 160), camera_rate_hz=1.0, shadows=False
    )
    yield host
    host.close()


def looked(cell: TabletopHost, task: str, seed: int, **options: str) -> tuple[SightedSession, Observation]:
    setup = Setup(task=task, seed=seed, instance=seed)
    cell.prepare(setup)
    observation = cell.reset(task, seed=seed)
    policy = SightedPolicy(temper='reference', **options)  # type: ignore[arg-type]
    session = policy.start(dataclasses.replace(setup, instruction=cell.instruction()), seed=1)
    session.act(observation)
    return session, observation


def test_object_and_goal_are_seen_where_they_are(cell: TabletopHost) -> None:
    for task, seed in (('single_block', 1), ('single_block', 2), ('two_block', 0), ('two_block', 4), ('two_block', 8)):
        session, _ = looked(cell, task, seed)
        start = cell._start
        assert start is not None
        goal = start.layout.goals[0]
        truth = cell.signals()['body_pose'][goal.item]
        assert session.believed is not None
        assert session.goal is not None
        assert math.dist(session.believed[:3], truth[:3]) < 0.006, (task, seed)
        assert math.dist(session.goal[:3], goal.pose[:3]) < 0.008, (task, seed)


def test_it_reads_nothing_that_the_host_says_of_items(cell: TabletopHost) -> None:
    """Garbage in every item slot of the state changes no action."""
    actions = []
    for is_spoilt in (False, True):
        setup = Setup(task='two_block', seed=3)
        cell.prepare(setup)
        observation = cell.reset('two_block', seed=3)
        told = dataclasses.replace(setup, instruction=cell.instruction())
        session = SightedPolicy(temper='reference').start(told, seed=1)
        said = []
        for _ in range(40):
            state = observation.state.copy()
            if is_spoilt:
                state[SLOTS_AT:] = np.random.default_rng(1).normal(size=len(state) - SLOTS_AT)
            action = session.act(dataclasses.replace(observation, state=state)).actions[0]
            said.append(action)
            observation = cell.step(action)
        actions.append(np.array(said))
    np.testing.assert_array_equal(*actions)
    assert np.abs(actions[0][:, :3]).max() > 0.01


def test_each_attention_goes_for_its_own_object(cell: TabletopHost) -> None:
    poses = draw_layout('choose_red', seed=4, instance=4).poses
    for attention in ('words', 'nearest', 'salient'):
        chosen = {}
        for task in ('choose_red', 'choose_green', 'choose_blue'):
            session, _ = looked(cell, task, 4, attention=attention)
            assert session.believed is not None
            chosen[task] = min(poses, key=lambda n: math.dist(poses[n][:2], session.believed[:2]))  # type: ignore[index]
        if attention == 'words':
            assert chosen == {t: f'{t.removeprefix("choose_")}_block' for t in chosen}
        else:
            assert len(set(chosen.values())) == 1
        if attention == 'nearest':
            tool = cell.signals()['ee_pose'][:3]
            assert set(chosen.values()) == {min(poses, key=lambda n: math.dist(poses[n][:3], tool))}


def test_told_what_it_does_not_understand_it_stays_where_it_is(cell: TabletopHost) -> None:
    session, observation = looked(cell, 'insertion', 1)
    assert session.goal is None
    action = session.act(observation).actions[0]
    np.testing.assert_array_equal(action[:6], np.zeros(6))


@pytest.mark.parametrize(
    ('words', 'plain', 'known'),
    [
        ('put the red block on the white square', ('on', 'white'), ('on', 'white')),
        ('put the blue block to the left of the yellow block', ('left_of', 'yellow'), ('left_of', 'yellow')),
        ('put the blue block on top of the yellow block', ('on', 'yellow'), ('on', 'yellow')),
        ('place the crimson cube at the back of the emerald brick', None, ('behind', 'green')),
        ('put the red block onto the snow-white square', None, ('on', 'white')),
        ('insert the red peg into the slot', None, None),
        ('', None, None),
    ],
)
def test_destinations_are_heard(words: str, plain: tuple[str, str] | None, known: tuple[str, str] | None) -> None:
    for is_literal, wanted in ((True, plain), (False, known)):
        found = heard_destination(words, colors=COLORS, is_literal=is_literal)
        assert found == (None if wanted is None else Destination(*wanted))


def test_colours_are_heard() -> None:
    assert heard_color('Put the crimson cube onto the plate', 'lexicon') == 'red'
    assert heard_color('Put the crimson cube onto the plate', 'literal') is None
    assert heard_color('Put the red block behind the blue block', 'literal') == 'red'


def test_directions_are_those_of_the_base() -> None:
    anchor = np.array([0.5, 0.0, 0.032, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(pose_beside(anchor, 'left_of')[:3], [0.5, 0.085, 0.032])
    np.testing.assert_allclose(pose_beside(anchor, 'behind')[:3], [0.585, 0.0, 0.032])
    np.testing.assert_allclose(pose_beside(anchor, 'on')[:3], [0.5, 0.0, 0.072])


def test_unknown_options_are_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'nearest'"):
        SightedPolicy(attention='nearst')
    with pytest.raises(UnknownName, match="did you mean 'lexicon'"):
        SightedPolicy(hearing='lexikon')
