"""A stand-in of DROID's robot server: its methods on an arm that goes where it is told, given out as zerorpc does.

Run as a program in an environment with zerorpc, it is given out by zerorpc itself.
"""

from __future__ import annotations

import sys
import threading
from typing import Any


class FrankaRobot:
    """The methods of droid/franka/robot.py that its client calls, with their arguments in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.joints, self.gripper, self.is_launched, self.breaks = [0.5] * 7, 0.3, False, ''

    def launch_controller(self) -> None:
        self.calls.append('launch_controller')

    def launch_robot(self) -> None:
        self.calls.append('launch_robot')
        self.is_launched = True

    def update_gripper(self, command: float, velocity: bool = True, blocking: bool = False) -> None:
        assert (velocity, blocking) == (False, True)
        self.calls.append('update_gripper')
        self.gripper = float(command)

    def update_joints(self, command: Any, velocity: bool = False, blocking: bool = False, noise: Any = None) -> None:
        assert (velocity, blocking, noise) == (False, True, None)
        self.calls.append('update_joints')
        self.joints = [float(angle) for angle in command]

    def update_command(
        self, command: Any, action_space: str = 'cartesian_velocity', gripper_action_space: Any = None,
        blocking: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        assert gripper_action_space == 'position'
        assert blocking is False
        self.calls.append('update_command')
        if action_space == 'joint_velocity':
            assert max(map(abs, command[:-1])) <= 1.0
            self.joints = [joint + 0.2 * speed for joint, speed in zip(self.joints, command[:-1], strict=True)]
        elif action_space == 'joint_position':
            self.joints = list(command[:-1])
        else:
            raise ValueError(f'no inverse kinematics in a stand-in: {action_space}')
        self.gripper = min(1.0, max(0.0, command[-1]))
        return {'joint_position': self.joints, 'gripper_position': self.gripper}

    def get_robot_state(self) -> Any:
        if not self.is_launched:
            raise AttributeError("'FrankaRobot' object has no attribute '_robot'")
        if self.breaks == 'state':
            return [{'joint_positions': ['?'] * 7}, {}]
        return [
            {
                'cartesian_position': [0.3, 0.0, 0.5, 3.1, 0.0, 0.0],
                'gripper_position': self.gripper,
                'joint_positions': self.joints,
                'joint_velocities': [0.0] * 7,
                'motor_torques_measured': [1.0] * 7,
                'prev_command_successful': True,
            },
            {'robot_timestamp_seconds': 1, 'robot_timestamp_nanos': 2},
        ]


class StandInServer:
    """Events of zerorpc's protocol by hand, with a heartbeat before every answer; `silent` answers nothing."""

    def __init__(self) -> None:
        import zmq

        self.robot, self.silent = FrankaRobot(), False
        self._over = threading.Event()
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.url = f'tcp://127.0.0.1:{self._socket.bind_to_random_port("tcp://127.0.0.1")}'
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        import msgpack

        while not self._over.is_set():
            if not self._socket.poll(20):
                continue
            identity, empty, packed = self._socket.recv_multipart()
            assert empty == b''
            header, name, given = msgpack.unpackb(packed)
            assert header['v'] == 3
            if self.silent:
                continue
            try:
                told = ('OK', [getattr(self.robot, name)(*given)])
            except Exception as error:
                told = ('ERR', [type(error).__name__, str(error), 'a traceback'])
            for event, values in (('_zpc_hb', [0]), told):
                answer = {'message_id': b'1', 'v': 3, 'response_to': header['message_id']}
                self._socket.send_multipart([identity, b'', msgpack.packb([answer, event, values])])
        self._socket.close(0)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


if __name__ == '__main__':
    import zerorpc  # type: ignore[import-not-found]

    server = zerorpc.Server(FrankaRobot())
    server.bind(sys.argv[1])
    server.run()
