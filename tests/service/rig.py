"""A lab's rig for console trials: the cell behind a rosbridge, a loop that drives it, and a recorder of ROS bags."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from tests.formats.test_ros import TYPES, header, kind, vector
from tests.patience import PATIENCE_S
from tests.worlds.bridge import FINGER_OPEN_M, RATE_HZ, WATCHERS, CellBridge, depth_options
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from robotrials.record import EventKind
from robotrials.wire import pack, unpack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import RosbridgeLink, WebSocketLink
from robotrials.worlds.rosbridge import twist

TASK = 'bin_to_bin'
TOPICS = {
    '/joint_states': 'sensor_msgs/msg/JointState', '/tool': 'geometry_msgs/msg/PoseStamped',
    '/gripper': 'std_msgs/msg/Float64',
    **{f'/{name}/{part}': f'sensor_msgs/msg/{"CameraInfo" if part == "info" else "Image"}'
       for name in WATCHERS for part in ('color', 'depth', 'info')},
}  # fmt: skip


def host_options(bridge: CellBridge, scenes: Path) -> dict[str, Any]:
    """The [host.options] of a plan for this rig: topics, units, cameras, and where scenes are described."""
    options = depth_options(bridge, scenes, command={'topic': '/command', 'kind': 'twist'}, check_reset=False)
    options['torque_limit_nm'] = [87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0]
    options['known'] = f'{scenes}/{{stratum}}-{{instance}}.json'
    return {name: value for name, value in options.items() if name not in ('stage', 'verdict', 'halt', 'stop')}


class Driver:
    """The lab's own loop: looks, asks whoever answers at an address, and moves; it knows of no arm."""

    def __init__(self, bridge: CellBridge, *, period_s: float = 1 / RATE_HZ) -> None:
        self.bridge, self._period_s = bridge, period_s
        self._link = RosbridgeLink(bridge.url, timeout_s=PATIENCE_S)
        for topic, name in (('/command', 'geometry_msgs/msg/TwistStamped'), ('/gripper', 'std_msgs/msg/Float64')):
            self._link.advertise(topic, name)
        for topic, name in (
            ('/joint_states', TOPICS['/joint_states']),
            ('/perception', 'std_msgs/msg/Float64MultiArray'),
        ):
            self._link.subscribe(topic, name)
        self.errors: list[str] = []

    def stage(self, *, stratum: str, layout: int, items: int) -> None:
        """Set the scene of a layout."""
        given = {'task': TASK, 'seed': 100 + layout, 'stratum': stratum, 'items': items, 'scene': f'{stratum}-{layout}'}
        self._link.listen()
        before = self._link.count('/perception')
        self._link.call_service('/stage/reset', given, timeout_s=PATIENCE_S)
        self._link.await_news('/perception', after=before, timeout_s=PATIENCE_S)  # it comes after the answer

    def run(self, url: str, *, is_over: Callable[[], bool]) -> None:
        """Drive until the operator has stopped the clock, then park."""
        try:
            with closing(WebSocketLink(url, deadline=Deadline.after(PATIENCE_S))) as link:
                link.receive(timeout_s=PATIENCE_S)  # its greeting
                while not is_over():
                    began_s = time.monotonic()
                    self._step(link)
                    time.sleep(max(0.0, self._period_s - (time.monotonic() - began_s)))
        except Exception as error:
            self.errors.append(repr(error))
            raise
        finally:
            self._link.call_service('/robot/park', {}, timeout_s=PATIENCE_S)

    def _step(self, link: WebSocketLink) -> None:
        self._link.listen()
        seen, before = self._link.heard('/perception'), self._link.count('/joint_states')
        assert seen is not None
        link.send(pack({'observation/state': np.array(seen.message['data']), 'prompt': 'move'}), timeout_s=PATIENCE_S)
        answer = link.receive(timeout_s=PATIENCE_S)
        assert isinstance(answer, bytes), answer
        action = np.asarray(unpack(answer)['actions'])[0]
        self._link.publish('/gripper', {'data': FINGER_OPEN_M * float(np.clip(action[-1], 0, 1))})
        self._link.publish('/command', twist([v * RATE_HZ for v in action[:-1]], frame='base_link'))
        self._link.await_news('/joint_states', after=before, timeout_s=PATIENCE_S)

    def placements_s(self) -> list[float]:
        """When items truly came to rest, by the rig's clock."""
        times_s = self.bridge.step_s
        return [
            times_s[min(round(e.t_s * RATE_HZ), len(times_s) - 1)]
            for e in self.bridge.report.events
            if e.kind is EventKind.PLACEMENT
        ]

    def close(self) -> None:
        self._link.close()


class BagRecorder:
    """`ros2 bag record` over rosbridge: every message of the topics, as it came, into an MCAP bag."""

    def __init__(self, bridge: CellBridge, path: Path, *, clock: Callable[[], float], mute: Sequence[str] = ()) -> None:
        self._clock, self._path, self._mute, self._bridge = clock, path, mute, bridge
        self._is_over, self._is_listening, self._is_leaving = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()
        assert self._is_listening.wait(PATIENCE_S)

    def _record(self) -> None:
        with (
            connect(self._bridge.url, max_size=None, compression=None) as socket,
            Writer(self._path, version=9, storage_plugin=StoragePlugin.MCAP) as writer,
        ):
            for topic, name in TOPICS.items():
                socket.send(json.dumps({'op': 'subscribe', 'topic': topic, 'type': name}))
            socket.send(_asked('listening'))
            connections = {t: writer.add_connection(t, n, typestore=TYPES) for t, n in TOPICS.items()}
            with suppress(ConnectionClosed):
                while not self._take(socket, writer, connections):
                    pass

    def _take(self, socket: Any, writer: Any, connections: Mapping[str, Any]) -> bool:
        """Write one message; whether all is over: what was said before we asked has come when the answer comes."""
        if self._is_over.is_set() and not self._is_leaving:
            self._is_leaving = True
            socket.send(_asked('leaving'))
        try:
            said = json.loads(socket.recv(timeout=0.2))
        except TimeoutError:
            return False
        if said['op'] == 'service_response':
            self._is_listening.set()
            return bool(said['id'] == 'leaving')
        if said['topic'] not in self._mute:
            raw = TYPES.serialize_cdr(_message(said['topic'], said['msg']), TOPICS[said['topic']])
            writer.write(connections[said['topic']], round(self._clock() * 1e9), raw)
        return False

    def stop(self) -> None:
        """End when all that was said has come."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def _asked(name: str) -> str:
    return json.dumps({'op': 'call_service', 'service': '/robot/halt', 'args': {}, 'id': name})


def _message(topic: str, said: Mapping[str, Any]) -> Any:
    if topic == '/gripper':
        return kind('std_msgs/msg/Float64')(said['data'])
    stamp = said['header']['stamp']
    head = header(stamp['sec'] * 10**9 + stamp['nanosec'])
    if topic == '/joint_states':
        values = (np.array(said[name], dtype=np.float64) for name in ('position', 'velocity', 'effort'))
        return kind('sensor_msgs/msg/JointState')(head, list(said['name']), *values)
    if topic == '/tool':
        position = vector('Point', *(said['pose']['position'][a] for a in 'xyz'))
        turn = vector('Quaternion', *(said['pose']['orientation'][a] for a in 'xyzw'))
        return kind('geometry_msgs/msg/PoseStamped')(head, kind('geometry_msgs/msg/Pose')(position, turn))
    if topic.endswith('/info'):
        roi = kind('sensor_msgs/msg/RegionOfInterest')(0, 0, 0, 0, False)
        return kind('sensor_msgs/msg/CameraInfo')(
            head, said['height'], said['width'], said['distortion_model'], np.array(said['d']), np.array(said['k']),
            np.eye(3).ravel(), np.zeros(12), 0, 0, roi,
        )  # fmt: skip
    data = np.frombuffer(base64.b64decode(said['data']), np.uint8)
    return kind('sensor_msgs/msg/Image')(
        head, said['height'], said['width'], said['encoding'], said['is_bigendian'], said['step'], data
    )
