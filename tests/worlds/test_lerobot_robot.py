"""A host over LeRobot's `Robot` interface, with LeRobot's own classes in its own environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.worlds.conftest import RUN_S, SCRIPTS, made
from tests.worlds.test_libero import result_of

from robotrials.run.environment.recipe import link_robotrials


@pytest.mark.hosts
@pytest.mark.drift
def test_a_robot_that_is_registered_as_plug_ins_are_is_a_host(tmp_path: Path) -> None:
    environment = made('lerobot-0.6')
    variables = {
        'PATH': os.environ['PATH'], 'HOME': str(tmp_path), 'HF_HUB_OFFLINE': '1',
        'PYTHONPATH': str(link_robotrials(environment.folder)),
    }  # fmt: skip
    command = [str(environment.python), '-W', 'ignore', str(SCRIPTS / 'lerobot_robot.py'), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=variables)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = result_of(ran.stdout)
    assert told['layout'] == ['shoulder.pos', 'elbow.pos', 'gripper.pos']
    assert (told['images'], told['width']) == ({'front': [4, 6]}, 3)
    assert told['hold'] == [0.0, 0.0, 0.0], 'before the first action it stays where it is'
    assert told['state'] == [5.0, -10.0, 25.0]
    assert told['sent'] == [10.0, -20.0, 50.0], 'what the robot made of the action is recorded'
    assert told['picture'] == [1, 2], 'one observation a step'
    assert told['outcome'] is None
    assert told['closed']
    assert 'no episode is under way' in told['unopened']
    assert told['broken'] == 'RigError: robot mock_arm gave no observation: ConnectionError: no status packet'
    assert 'knows no robot' in told['unknown']
    assert told['so101'], "LeRobot's own robots are not known"
    assert 'colour' in told['setting']
