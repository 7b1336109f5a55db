"""Our host over LeRobot's `Robot`, with LeRobot's own classes and a mock arm that is registered as plug-ins are."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent / 'plugins'))
from robotrials.errors import InputError, RigError
from robotrials.worlds.robot import LeRobotRobotHost

CALIBRATION = {'calibration_dir': sys.argv[1], 'id': 'one'}


def opened(**settings):
    return LeRobotRobotHost(robot='mock_arm', settings={**CALIBRATION, **settings}, plugins=['mock_arm'])


def refused(call):
    try:
        call()
    except (InputError, RigError) as error:
        return f'{type(error).__name__}: {error}'
    return ''


host = opened()
report = {'layout': host.spec.state_layout, 'images': host.spec.images, 'width': host.spec.action.width}
report['unopened'] = refused(lambda: host.step(np.zeros(3)))
first = host.reset('wave', seed=0)
report['hold'] = host.hold().tolist()
second = host.step(np.array([10.0, -20.0, 90.0]))
report['state'] = second.state.tolist()
report['sent'] = host.signals()['action_processed_own'].tolist()
report['picture'] = [int(first.images['front'][0, 0, 0]), int(second.images['front'][0, 0, 0])]
report['outcome'] = host.outcome()
host.close()
report['closed'] = not host._robot.is_connected
broken = opened(breaks_at=2)
broken.reset('wave', seed=0)
report['broken'] = refused(lambda: broken.step(np.zeros(3)))
report['unknown'] = refused(lambda: LeRobotRobotHost(robot='mock_leg'))
report['setting'] = refused(lambda: opened(colour='red'))
report['so101'] = 'so101_follower' in refused(lambda: LeRobotRobotHost(robot='mock_leg'))
print('RESULT' + json.dumps(report))
