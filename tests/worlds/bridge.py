"""A rosbridge server on this machine that drives the embedded cell: what a real arm would be, with faults on demand."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from robotrials.measure.geometry import RgbdView
from robotrials.measure.geometry.view import distorted
from robotrials.record import Outcome
from robotrials.run import Setup
from robotrials.run.seam import HostReport, Observation
from robotrials.worlds.cell import TabletopHost

JOINTS = tuple(f'panda_joint{i}' for i in range(1, 8))
FINGER = 'panda_finger_joint1'
FINGER_OPEN_M = 2.0**-5  # so that nothing is rounded on the way
RATE_HZ = 20.0
IMAGE_PX = 48
WATCHERS = ('front', 'side', 'gallery')
LENS = (-0.05, 0.02, 0.0004, -0.0003, 0.0)


class CellBridge:
    """The cell behind the ops of rosbridge: advertise, subscribe, publish and call_service.

    `fault` shows at command number `at`: silent, nan, nameless, short_image, rubbish, hang_up, stop, strange_op.
    With `has_depth` three RGB-D cameras send colour, depth and their calibration after a reset and once the arm is
    parked, bent by a lens, and with `depth_every` after so many commands; `depth_fault` is one of skewed, unstamped,
    apart, half, frozen, turned, unknown_lens. `disturb` is called with the cell after each reset, to plant what a reset
    may get wrong. With a `state` of privileged, /perception says where things are. `clock` stamps messages; without
    one they are stamped by the steps of the cell. Any number of clients may listen; one drives.
    """

    def __init__(
        self, *, control: str = 'joint', fault: str = '', at: int = 3, has_camera: bool = False,
        has_depth: bool = False, noise: str = 'default', state: str = 'proprioception', depth_every: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        self.cell = TabletopHost(
            control=control, cameras=['side'] if has_camera else [], image_size=[IMAGE_PX, IMAGE_PX], state=state,
            watchers=WATCHERS if has_depth else (), watcher_noise=noise if has_depth else 'none',
        )  # fmt: skip
        self.has_depth, self.depth_fault, self.depth_every = has_depth, '', depth_every
        self.report = HostReport()
        self.step_s: list[float] = []  # the stamp of every step since the reset, the reset's own first
        self._clock = clock
        self.known: Path | None = None
        self.disturb: Callable[[TabletopHost], None] = lambda cell: None
        self.fault, self.at = fault, at
        self.is_stopped = False
        self.stage_answer: dict[str, Any] = {'success': True, 'message': ''}
        self.n_commands = self.n_halts = 0
        self.advertised: dict[str, str] = {}
        self.arguments: dict[str, Any] = {}
        self._seen: Observation
        self._opening = 1.0
        self._subscribed: dict[ServerConnection, set[str]] = {}
        self._connection: ServerConnection | None = None  # of whoever drives
        self.is_stop_mute = False
        self._clock_s = 100.0
        self._server: Server = serve(self._converse, '127.0.0.1', 0, compression=None, ping_interval=None)
        self.url = f'ws://127.0.0.1:{self._server.socket.getsockname()[1]}'
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._last: dict[str, dict[str, Any]] = {}
        self._is_closed = threading.Event()
        if clock is not None:
            threading.Thread(target=self._idle, daemon=True).start()

    def _idle(self) -> None:
        """Joint states and tool go on while nobody commands, as a robot's do."""
        while not self._is_closed.wait(1 / RATE_HZ):
            if self._connection is not None and self._last and self._now_s() - self.step_s[-1] > 2 / RATE_HZ:
                for topic, message in list(self._last.items()):
                    self._say(None, topic, {**message, 'header': {'stamp': _stamp(self._now_s())}})

    def close(self) -> None:
        self._is_closed.set()
        self._server.shutdown()
        self._thread.join(60)

    def release_stop(self) -> None:
        self.is_stopped = False
        assert self._connection is not None
        self._say(self._connection, '/emergency_stop', {'data': False})

    def _converse(self, connection: ServerConnection) -> None:
        self._subscribed[connection] = set()
        try:
            for text in connection:
                assert isinstance(text, str), 'rosbridge speaks text'
                self._answer(connection, json.loads(text))
        except ConnectionClosed:
            return
        finally:
            del self._subscribed[connection]
            if connection is self._connection:
                self.cell.close()  # what it draws with belongs to this thread

    def _answer(self, connection: ServerConnection, asked: dict[str, Any]) -> None:
        op = asked['op']
        if op == 'advertise':
            self._connection = connection
            self.advertised[asked['topic']] = asked['type']
        elif op == 'subscribe':
            self._subscribed[connection].add(asked['topic'])
            if asked['topic'] == '/emergency_stop' and not self.is_stop_mute:
                self._say(connection, '/emergency_stop', {'data': self.is_stopped})
        elif op == 'call_service':
            values = self._serve(asked['service'], asked['args'])
            reply = {'op': 'service_response', 'service': asked['service'], 'id': asked['id'], 'result': True}
            connection.send(json.dumps({**reply, 'values': values}))
            if asked['service'] == '/stage/reset' and values['success']:
                self._show(connection, '')
            if asked['service'] in ('/stage/reset', '/robot/park') and self.has_depth:
                self._show_depth(connection, is_over=asked['service'] == '/robot/park')
        elif op == 'publish':
            assert asked['topic'] in self.advertised
            self._say(connection, asked['topic'], asked['msg'])  # to whoever records commands
            self._take(connection, asked['topic'], asked['msg'])

    def _serve(self, service: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if service == '/robot/halt':
            self.n_halts += 1
            return {'success': True}
        if service == '/robot/park':
            return {'success': True}
        self.arguments = arguments
        if self.stage_answer['success']:
            setup = Setup(
                task=arguments['task'], seed=arguments['seed'], stratum=arguments.get('stratum', ''),
                items=arguments.get('items'),
            )  # fmt: skip
            self.cell.prepare(setup)
            self._seen = self.cell.reset(setup.task, seed=setup.seed)
            if self.known is not None:  # the plan of the scene, as a lab's stage would write it
                name = arguments.get('scene', f'{setup.task}-{setup.seed}')
                (self.known / f'{name}.json').write_text(self.cell.known_scene().as_json())
            self.disturb(self.cell)
            self.n_commands, self._opening, self._clock_s = 0, 1.0, self._clock_s + 5.0
            self.report, self.step_s = self.cell.report(), [self._now_s()]
        return self.stage_answer

    def _take(self, connection: ServerConnection, topic: str, message: dict[str, Any]) -> None:
        if topic == '/gripper':
            self._opening = message['data'] / FINGER_OPEN_M
            return
        self.n_commands += 1
        self._seen = self.cell.step(np.array([*self._motion(message), self._opening]))
        self._clock_s += 1 / RATE_HZ
        self.report = self.cell.report()
        self.step_s.append(self._now_s())
        fault = self.fault if self.n_commands == self.at else ''
        if fault == 'silent':
            return
        if fault == 'hang_up':
            connection.close()
            return
        if fault == 'rubbish':
            connection.send('{"op": "publish", ')
            return
        if fault == 'strange_op':
            connection.send('{"op": "fragment", "data": "x"}')
            return
        if fault == 'stop':
            self.is_stopped = True
            self._say(connection, '/emergency_stop', {'data': True})
        outcome = self.cell.outcome()
        if outcome is not None:
            word = {Outcome.SUCCESS: 'success', Outcome.FAILURE: 'failure'}.get(outcome, str(outcome))
            self._say(connection, '/verdict', {'data': word})
        self._show(connection, fault)
        if self.depth_every and self.n_commands % self.depth_every == 0:
            self._show_depth(connection, is_over=False)

    def _now_s(self) -> float:
        return self._clock_s if self._clock is None else self._clock()

    def _motion(self, message: dict[str, Any]) -> list[float]:
        if 'data' in message:
            return list(message['data'])
        if 'points' in message:
            assert message['joint_names'] == list(JOINTS)
            return list(message['points'][0]['positions'])
        speeds = [message['twist'][part][axis] for part in ('linear', 'angular') for axis in 'xyz']
        return [speed / RATE_HZ for speed in speeds]

    def _show(self, connection: ServerConnection, fault: str) -> None:
        signals = self.cell.signals()
        if self.cell.spec.images:
            picture = self.cell.pictures()['side'].rgb
            shown = picture[:-1] if fault == 'short_image' else picture
            self._say(connection, '/camera/compressed', {'format': 'rgb8; png compressed', 'data': png(shown)})
        pose = dict(zip(('x', 'y', 'z'), signals['ee_pose'][:3].tolist(), strict=True))
        turn = dict(zip(('w', 'x', 'y', 'z'), signals['ee_pose'][3:].tolist(), strict=True))
        stamp = _stamp(self._now_s())
        self._say(connection, '/tool', {'header': {'stamp': stamp}, 'pose': {'position': pose, 'orientation': turn}})
        self._say(connection, '/perception', {'data': self._seen.state.tolist()})
        positions = [*signals['joint_position_rad'].tolist(), signals['gripper_position'] * FINGER_OPEN_M]
        if fault == 'nan':
            positions[2] = None  # as rosbridge writes NaN
        names = [*JOINTS[1:], FINGER] if fault == 'nameless' else [*JOINTS, FINGER]
        effort = [*signals['joint_torque_nm'].tolist(), 0.0]
        state = {'header': {'stamp': stamp}, 'name': names, 'position': positions[-len(names) :], 'velocity': [],
                 'effort': effort[-len(names) :]}  # fmt: skip
        self._say(connection, '/joint_states', state)

    def _show_depth(self, connection: ServerConnection, *, is_over: bool) -> None:
        """Colour as RGB8, depth in millimetres and the calibration of every camera, through a lens."""
        if self.depth_fault == 'frozen' and is_over:
            return
        fault, now_s = self.depth_fault, self._now_s()
        for number, (name, view) in enumerate(self.cell.views(is_over=is_over).items()):
            k, pose = view.camera.intrinsics_px, view.camera.world_from_camera
            assert k is not None
            assert pose is not None
            straight = RgbdView(name, view.rgb, view.depth_m, k, pose)
            bent = distorted(straight, LENS, intrinsics_px=k, shape=view.depth_m.shape)
            height, width = bent.depth_m.shape
            at_s = now_s + (0.5 * number if fault == 'apart' else 0.0)
            stamps = {kind: _stamp(at_s + off) for kind, off in (('color', 0.0), ('depth', 0.2 * (fault == 'skewed')))}
            millimetres = np.nan_to_num(1000 * bent.depth_m, nan=0, posinf=0).clip(0, 65535).astype('<u2')
            if fault == 'half':
                millimetres = np.ascontiguousarray(millimetres[::2, ::2])
            base, header = f'/{name}', ({} if fault == 'unstamped' else None)
            self._say(connection, f'{base}/info', {
                'header': {'stamp': stamps['color']}, 'height': height, 'width': width, 'k': k.ravel().tolist(),
                'd': list(LENS), 'distortion_model': 'fisheye' if fault == 'unknown_lens' else 'plumb_bob',
            })  # fmt: skip
            for kind, pixels, encoding in (('color', bent.rgb, 'rgb8'), ('depth', millimetres, '16UC1')):
                self._say(connection, f'{base}/{kind}', {
                    'header': header if header is not None else {'stamp': stamps[kind]}, 'height': pixels.shape[0],
                    'width': pixels.shape[1], 'encoding': encoding, 'is_bigendian': 0, 'step': pixels[0].nbytes,
                    'data': base64.b64encode(pixels.tobytes()).decode(),
                })  # fmt: skip

    def _say(self, connection: ServerConnection | None, topic: str, message: dict[str, Any]) -> None:
        listeners = [c for c, topics in list(self._subscribed.items()) if topic in topics]
        text = json.dumps({'op': 'publish', 'topic': topic, 'msg': message}) if listeners else ''
        if topic in ('/joint_states', '/tool'):
            self._last[topic] = message
        for listener in listeners:
            try:
                listener.send(text)
            except ConnectionClosed:
                if listener is connection:
                    raise


def _stamp(at_s: float) -> dict[str, int]:
    return {'sec': int(at_s), 'nanosec': round((at_s - int(at_s)) * 1e9)}


def depth_options(bridge: CellBridge, known: Path, **changes: Any) -> dict[str, Any]:
    """What a host is told of the three RGB-D cameras of a bridge: their poses were calibrated once, on the cell."""
    bridge.known = known
    cell = TabletopHost(cameras=[], watchers=WATCHERS)
    cell.reset('single_block', seed=1)
    depth = {}
    for name, view in cell.views().items():
        assert view.camera.world_from_camera is not None
        depth[name] = {'color': f'/{name}/color', 'depth': f'/{name}/depth', 'info': f'/{name}/info',
                       'world_from_camera': view.camera.world_from_camera.ravel().tolist()}  # fmt: skip
    cell.close()
    told = {'depth': depth, 'known': f'{known}/{{task}}-{{seed}}.json', 'park': '/robot/park', 'check_reset': True}
    return arm(bridge, **{**told, **changes})


def png(pixels: NDArray[np.uint8]) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format='PNG')
    return base64.b64encode(stream.getvalue()).decode()


def arm(bridge: CellBridge, **changes: Any) -> dict[str, Any]:
    """The options of a host for the cell behind a bridge."""
    options: dict[str, Any] = {
        'url': bridge.url,
        'name': 'panda',
        'joints': list(JOINTS),
        'control_rate_hz': RATE_HZ,
        'command': {'topic': '/command', 'kind': 'joint_positions'},
        'gripper': {'topic': '/gripper', 'joint': FINGER, 'open': FINGER_OPEN_M, 'joint_open': FINGER_OPEN_M},
        'tool': '/tool',
        'stage': {'service': '/stage/reset', 'arguments': {'task': '{task}', 'seed': '{seed}', 'stratum': '{stratum}'}},
        'verdict': {'topic': '/verdict'},
        'stop': '/emergency_stop',
        'halt': '/robot/halt',
        'max_age_s': 30.0,
        'camera_age_s': 30.0,
    }
    if bridge.cell.spec.images:
        options['cameras'] = {'side': {'topic': '/camera/compressed', 'height': IMAGE_PX, 'width': IMAGE_PX}}
    return {**options, **changes}
