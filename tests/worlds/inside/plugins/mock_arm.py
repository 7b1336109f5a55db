"""A robot of LeRobot's with nothing behind it: two motors and a gripper that go a part of the way, and a camera."""

from dataclasses import dataclass

import numpy as np
from lerobot.robots import Robot, RobotConfig

MOTORS = ('shoulder.pos', 'elbow.pos', 'gripper.pos')


@RobotConfig.register_subclass('mock_arm')
@dataclass
class MockArmConfig(RobotConfig):
    farthest: float = 50.0
    breaks_at: int = -1


class MockArm(Robot):
    config_class = MockArmConfig
    name = 'mock_arm'

    def __init__(self, config):
        super().__init__(config)
        self._config, self._is_open, self._n = config, False, 0
        self._at = dict.fromkeys(MOTORS, 0.0)

    observation_features = {**dict.fromkeys(MOTORS, float), 'front': (4, 6, 3)}  # noqa: RUF012
    action_features = dict.fromkeys(MOTORS, float)
    is_calibrated = True
    is_connected = property(lambda self: self._is_open)

    def connect(self, calibrate=True):
        assert not calibrate, 'a trial moves nothing before its first step'
        self._is_open = True

    def disconnect(self):
        self._is_open = False

    def calibrate(self):
        raise AssertionError('a trial does not calibrate')

    configure = calibrate

    def get_observation(self):
        self._n += 1
        if self._n == self._config.breaks_at:
            raise ConnectionError('no status packet')
        return {**self._at, 'front': np.full((4, 6, 3), self._n % 256, np.uint8)}

    def send_action(self, action):
        sent = {name: min(value, self._config.farthest) for name, value in action.items()}
        self._at = {name: self._at[name] + 0.5 * (sent[name] - self._at[name]) for name in MOTORS}
        return sent
