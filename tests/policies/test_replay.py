"""A replayed trajectory does again what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError
from robotrials.policies.plain import ReplayPolicy
from robotrials.record import Store
from robotrials.run import Observation, Setup, check_policy, close_trial, run_trial
from robotrials.testing.policy import PointMassHost

CONVENTION = {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    plan = make_plan(episodes_per_cell=3)
    run_trial(plan, tmp_path / 'recorded', workers=0)
    close_trial(plan, tmp_path / 'recorded', by='kim')
    return tmp_path / 'recorded'


def test_a_replay_ends_as_the_recording_did_bit_for_bit(tmp_path: Path, recorded: Path) -> None:
    options = {'store': str(recorded), 'policy': FAST, 'convention': CONVENTION}
    policies = {'again': {'use': 'replay', 'options': options}}
    plan = make_plan(policies=policies, reference='', title='', episodes_per_cell=3)
    run_trial(plan, tmp_path / 'replayed', workers=0)
    before = {e.seed: (e, t) for e, t in Store.open(recorded).trajectories(where={'policy': FAST})}
    after = {e.seed: (e, t) for e, t in Store.open(tmp_path / 'replayed').trajectories()}
    assert before.keys() == after.keys()
    for seed, (episode, path) in before.items():
        other, again = after[seed]
        assert (episode.outcome, episode.duration_s, episode.events) == (other.outcome, other.duration_s, other.events)
        np.testing.assert_array_equal(path.ee_pose, again.ee_pose)


def replay(recorded: Path, **changes: Any) -> ReplayPolicy:
    return ReplayPolicy(**{'store': str(recorded), 'policy': SLOW, 'convention': CONVENTION, **changes})


def test_after_the_recording_a_replay_holds_still(recorded: Path) -> None:
    episode = next(Store.open(recorded).episodes(where={'policy': SLOW}))
    session = replay(recorded).start(Setup(task='reach', seed=episode.seed or 0), seed=0)
    steps = round(episode.duration_s * 20)
    seen = Observation(0.0, np.zeros(4))
    actions = [session.act(seen).actions for _ in range(steps + 2)]
    assert actions[0].any()
    assert not actions[-1].any()


def test_a_start_state_that_was_not_recorded_is_named(recorded: Path) -> None:
    with pytest.raises(InputError, match='no valid episode on reach with seed 1'):
        check_policy(replay(recorded), host=PointMassHost(), task='reach', seed=1)
    with pytest.raises(InputError, match='column'):
        replay(recorded, column='action_predicted')
