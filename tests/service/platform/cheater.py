"""A submitter who tries to choose which episodes count, move by move, over the real link."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tests.patience import PATIENCE_S

from robotrials.errors import RobotrialsError
from robotrials.run import Chunk
from robotrials.service.platform.client import act_in_episode
from robotrials.service.platform.link import (
    VERSION,
    WORKER_LIMITS,
    ErrorCode,
    MessageType,
    decode,
    encode,
    encode_error,
    spec_to_map,
)
from robotrials.testing.policy import SeekPolicy
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink


class IdlePolicy(SeekPolicy):
    """Stands still, however long each answer takes: the episode is lost."""

    def __init__(self, pause_s: float = 0.0) -> None:
        super().__init__()
        self._pause_s = pause_s

    def start(self, setup, *, seed):
        return self

    def act(self, observation):
        time.sleep(self._pause_s)
        return Chunk(np.zeros((1, 3)))


@dataclass
class Visit:
    """A cell that was granted: where it is, the token, and another token for the same lease."""

    address: str
    token: str
    spare: str
    stall_s: float  # just inside the limit for one answer
    late_s: float  # beyond it


def _raw(visit: Visit) -> WebSocketLink:
    link = WebSocketLink(visit.address, deadline=Deadline.after(PATIENCE_S))
    link.send(encode(MessageType.BEGIN_EVAL, version=VERSION, token=visit.token), timeout_s=PATIENCE_S)
    assert _next(link) is MessageType.WELCOME
    return link


def _next(link: WebSocketLink) -> MessageType:
    return decode(link.receive(timeout_s=PATIENCE_S), limits=WORKER_LIMITS)[0]


def _at_first_question(visit: Visit) -> WebSocketLink:
    """Probe: be shown the task and the scene, and only then decide."""
    link = _raw(visit)
    link.send(encode(MessageType.POLICY, spec=spec_to_map(SeekPolicy().spec)), timeout_s=PATIENCE_S)
    assert _next(link) is MessageType.OBSERVATION
    return link


def _said(link: WebSocketLink, frame: bytes | None = None, *, waits: bool = True) -> None:
    with contextlib.closing(link), contextlib.suppress(RobotrialsError):
        if frame is not None:
            link.send(frame, timeout_s=PATIENCE_S)
        if waits:
            link.receive(timeout_s=PATIENCE_S)


def _second_visit(visit: Visit) -> None:
    """Show the lease's other token while the episode is under way, and go away."""
    link = _at_first_question(visit)
    with contextlib.suppress(RobotrialsError):
        act_in_episode(SeekPolicy(), visit.address, visit.spare)
    link.close()


def _comes_back(visit: Visit, link: WebSocketLink) -> None:
    """Hang up, and come again with the lease's other token, this time to win."""
    link.close()
    _quietly(lambda: act_in_episode(SeekPolicy(speed_m_s=3.0), visit.address, visit.spare))


def _plays_on_and_hangs_up(visit: Visit) -> None:
    """Look how it goes for a while, and leave before it is lost."""
    link = _at_first_question(visit)
    for step in range(5):
        still = encode(MessageType.ACTION, step=step, actions=np.zeros((1, 3)), inference_s=0.0)
        link.send(still, timeout_s=PATIENCE_S)
        if _next(link) is not MessageType.OBSERVATION:
            break
    link.close()


def _huge() -> bytes:
    return encode(MessageType.ACTION, step=0, actions=np.full((1, 3), 1e300), inference_s=0.0)


MOVES: dict[str, Callable[[Visit], None]] = {
    'stays': lambda v: _quietly(lambda: act_in_episode(IdlePolicy(), v.address, v.token)),
    'stalls': lambda v: _quietly(lambda: act_in_episode(IdlePolicy(v.stall_s), v.address, v.token)),
    'answers late': lambda v: _quietly(lambda: act_in_episode(IdlePolicy(v.late_s), v.address, v.token)),
    'hangs up in the greeting': lambda v: _raw(v).close(),
    'refuses the greeting': lambda v: _said(_raw(v), encode_error(ErrorCode.DOES_NOT_FIT, 'not this one')),
    'says nothing to the greeting': lambda v: _said(_raw(v)),
    'probes and hangs up': lambda v: _at_first_question(v).close(),
    'probes and errs': lambda v: _said(_at_first_question(v), encode_error(ErrorCode.POLICY_FAILED, 'oh')),
    'probes and talks rubbish': lambda v: _said(_at_first_question(v), b'\xc1'),
    'throws the arm away': lambda v: _said(_at_first_question(v), _huge()),
    'plays on and hangs up': _plays_on_and_hangs_up,
    'leaves the greeting and comes back to win': lambda v: _comes_back(v, _raw(v)),
    'probes and comes back to win': lambda v: _comes_back(v, _at_first_question(v)),
    'comes twice': _second_visit,
}


def _quietly(call: Callable[[], object]) -> None:
    with contextlib.suppress(RobotrialsError):
        call()


@dataclass
class Cheater:
    """A policy that is as good as a coin. It wins where the coin says so, and else plays a move instead of losing."""

    rng: np.random.Generator
    flips: list[bool] = field(default_factory=list)

    def flip(self) -> bool:
        self.flips.append(bool(self.rng.random() < 0.5))
        return self.flips[-1]

    def choose(self, moves: list[str]) -> str:
        return moves[int(self.rng.integers(len(moves)))]


def play(visit: Visit, move: str) -> None:
    MOVES[move](visit)


def win(visit: Visit) -> None:
    _quietly(lambda: act_in_episode(SeekPolicy(speed_m_s=3.0), visit.address, visit.token))
