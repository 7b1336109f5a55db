"""A search for a way to turn a lost episode into a success, against `robotrials serve` and real workers.

A strategy is a sequence of moves: how a client comes to the cell it was granted, what it says in the greeting, what it
answers, and what it does afterwards. Strategies are drawn at random, and those that made the server's trail say
something new are kept and changed further, as a fuzzer does with coverage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import betaincinv
from tests.patience import PATIENCE_S
from tests.service.platform.cheater import IdlePolicy
from tests.service.platform.lab import HASTY, Lab, wait_for

from robotrials.errors import RobotrialsError
from robotrials.service.platform.client import Api, ApiError, Submitter, act_in_episode
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
from robotrials.wire import pack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

CLAIM_S, ANSWER_S, THINKING_S = 3.0, 0.5, 0.6
SETTINGS = re.sub('claim_s = .*', f'claim_s = {CLAIM_S}', HASTY).replace('retry_s = 0.2', 'retry_s = 0.05')
PLAN = f"""
seed = 3
host = 'point-mass'
tasks = [{{name = 'reach'}}, {{name = 'far'}}]
episodes_per_cell = 4
time_cap_s = 1.5
watchdog = {{policy_s = {ANSWER_S}, thinking_s = {THINKING_S}}}

[recording]
trajectories = false
film = false

[analysis]
resamples = 200
primary = ['success']
"""
EACH = 4
HEADS = 0.25  # of the coin: few, so that there is much to lose
MOST_STEPS = 60
SEED = 20261118
WINNER = SeekPolicy(speed_m_s=3.0)


def _action(step: int, actions: Any = None, **changes: Any) -> bytes:
    given = np.zeros((1, 3)) if actions is None else actions
    return encode(MessageType.ACTION, **{'step': step, 'actions': given, 'inference_s': 0.0, **changes})


def _of(value: float) -> Callable[[int], bytes]:
    return lambda step: _action(step, np.full((1, 3), value))


# What a client may answer to a question, by its step. A float is a wait before an answer that stays; None hangs up.
ANSWERS: dict[str, Callable[[int], bytes] | float | None] = {
    'stays': _action, 'stalls': 0.6 * ANSWER_S, 'is late': 1.2 * ANSWER_S, 'hangs up': None,
    'not a number': _of(float('nan')), 'infinite': _of(float('inf')), 'huge': _of(1e300), 'largest': _of(1e6),
    'tiny': _of(5e-324),
    'too wide': lambda step: _action(step, np.zeros((1, 9))),
    'too narrow': lambda step: _action(step, np.zeros((1, 1))),
    'flat': lambda step: _action(step, np.zeros(3)), 'nothing': lambda step: _action(step, np.zeros((0, 3))),
    'too many': lambda step: _action(step, np.zeros((2000, 3))),
    'deep': lambda step: _action(step, np.zeros((1, 1, 3))),
    'integers': lambda step: _action(step, np.full((1, 3), 2**62)),
    'truths': lambda step: _action(step, np.ones((1, 3), bool)),
    'a list': lambda step: _action(step, [[0.0, 0.0, 0.0]]), 'a text': lambda step: _action(step, 'left'),
    'an old step': lambda step: _action(step - 1), 'a step ahead': lambda step: _action(step + 1),
    'a step that is true': lambda step: _action(True),
    'took less than no time': lambda step: _action(step, inference_s=-1e9),
    'took for ever': lambda step: _action(step, inference_s=1e300),
    'errs': lambda step: encode_error(ErrorCode.POLICY_FAILED, 'oh'),
    'blames the cell': lambda step: encode_error(ErrorCode.WORKER_FAILED, 'the cell broke'),
    'calls it an emergency': lambda step: encode_error(ErrorCode.EMERGENCY_STOP, 'stop'),
    'greets again': lambda step: encode(MessageType.POLICY, spec=spec_to_map(SeekPolicy().spec)),
    'says it is over': lambda step: encode(MessageType.END, outcome='success', n_steps=1),
    'rubbish': lambda step: b'\xc1', 'a bomb': lambda step: b'\xdd\xff\xff\xff\xff' + b'\x91' * 2000,
    'too large': lambda step: b'\x00' * (5 << 20),
    'claims a giant': lambda step: pack({'type': 'action', 'step': step, 'actions': {
        b'__ndarray__': True, b'dtype': '<f8', b'shape': [1 << 40], b'data': b''}}),
}  # fmt: skip


def _spec(**changes: Any) -> Mapping[str, Any]:
    return {**spec_to_map(SeekPolicy().spec), **changes}


GREETINGS: dict[str, bytes | None] = {
    'fits': encode(MessageType.POLICY, spec=_spec()), 'hangs up': None, 'rubbish': b'\xc1',
    'refuses': encode_error(ErrorCode.DOES_NOT_FIT, 'not this one'),
    'blames the cell': encode_error(ErrorCode.WORKER_FAILED, 'the cell broke'),
    'answers before the question': _action(0), 'no spec': encode(MessageType.POLICY, spec=None),
    'long chunks': encode(MessageType.POLICY, spec=_spec(chunk_length=1000, execute=1000)),
    'longer chunks': encode(MessageType.POLICY, spec=_spec(chunk_length=10**9)),
    'wants cameras': encode(MessageType.POLICY, spec=_spec(images={'no such': [64, 64]})),
    'wants the past': encode(MessageType.POLICY, spec=_spec(moments=[-1])),
    'another rate': encode(MessageType.POLICY, spec=_spec(control_rate_hz=1e-9)),
    'no rate': encode(MessageType.POLICY, spec=_spec(control_rate_hz=float('nan'))),
    'a wide state': encode(MessageType.POLICY, spec=_spec(state_width=2**62)),
    'another action': encode(MessageType.POLICY, spec=_spec(action={'kind': 'joint_position', 'width': 7})),
    'unknown fields': encode(MessageType.POLICY, spec=_spec(is_allowed_everything=True)),
    'a long name': encode(MessageType.POLICY, spec=_spec(name='x' * 60_000)),
}  # fmt: skip
ARRIVALS = ('at once', 'late', 'not at all', 'twice at once', 'four at once', 'forged first', 'at another cell first',
            'rubbish at the door', 'half open', 'says nothing at the door', 'another version', 'cancels first',
            'asks from many sides')  # fmt: skip
AFTERWARDS = ('nothing', 'comes back to win', 'comes back twice to win', 'cancels', 'submits again',
              'asks and comes to win')  # fmt: skip


@dataclass(frozen=True)
class Strategy:
    """What a client does in an episode that it is about to lose; `likes` names the one cell it plays at, if any."""

    arrival: str
    greeting: str
    answers: tuple[str, ...]
    after: str
    likes: int | None = None

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Strategy:
        n_answers = int(rng.integers(0, 4))
        return cls(
            arrival=_pick(rng, ARRIVALS) if rng.random() < 0.5 else 'at once',
            greeting=_pick(rng, GREETINGS) if rng.random() < 0.3 else 'fits',
            answers=tuple(_pick(rng, ANSWERS) for _ in range(n_answers)),
            after=_pick(rng, AFTERWARDS) if rng.random() < 0.6 else 'nothing',
            likes=int(rng.integers(2)) if rng.random() < 0.1 else None,
        )

    def changed(self, rng: np.random.Generator) -> Strategy:
        other = Strategy.drawn(rng)
        name = _pick(rng, [f.name for f in dataclasses.fields(self)])
        if name == 'answers' and self.answers:
            return dataclasses.replace(self, answers=(*self.answers[: int(rng.integers(3))], *other.answers)[:5])
        return dataclasses.replace(self, **{name: getattr(other, name)})


def _pick(rng: np.random.Generator, names: Any) -> str:
    listed = list(names)
    return str(listed[int(rng.integers(len(listed)))])


@dataclass
class Result:
    """What the search found so far."""

    n_submissions: int = 0
    n_lost: int = 0  # episodes that the coin had lost
    n_leases: int = 0
    turned: list[tuple[Strategy, str]] = field(default_factory=list)  # of these, what ended as a success
    traces: set[tuple[str, ...]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bound(self) -> float:
        """Upper end of the 95 % interval (Clopper-Pearson, one-sided) of the share that can be turned."""
        return float(betaincinv(len(self.turned) + 1, self.n_lost - len(self.turned), 0.95))

    def __str__(self) -> str:
        return (
            f'{len(self.turned)} of {self.n_lost} lost episodes turned, each by a strategy of its own, in '
            f'{self.n_submissions} submissions and {self.n_leases} leases, with {len(self.traces)} different traces: '
            f'below {self.bound:.2%} at 95 % confidence'
        )


class Trail:
    """The server's audit trail, read on by whoever asks."""

    def __init__(self) -> None:
        self._lock, self._after = threading.Lock(), 0
        self.by_lease: dict[str, list[str]] = {}  # lease -> what was noted of it and of its job's end
        self.jobs: dict[str, str] = {}  # lease -> its job
        self.outcomes: dict[str, str] = {}  # job -> how it ended, once it is done

    def read(self, api: Api) -> None:
        with self._lock:
            while entries := api.get(f'/audit?after={self._after}&limit=1000')[1]:
                for entry in entries:
                    self._take(entry['action'], entry['subject'], entry['detail'])
                self._after = entries[-1]['seq']

    def _take(self, action: str, subject: str, detail: Mapping[str, Any]) -> None:
        if action == 'lease.grant':
            self.jobs[subject] = str(detail['job'])
        lease = subject if subject in self.jobs else str(detail.get('lease', ''))
        if lease:
            reason = re.sub(r'[0-9.e+-]+', '#', str(detail.get('reason', '')))[:60]
            self.by_lease.setdefault(lease, []).append(f'{action} {reason} {detail.get("outcome", "")}')
        if action == 'job.done':
            self.outcomes[subject] = str(detail['outcome'])

    def turned(self, played: Mapping[str, tuple[bool, Strategy]]) -> list[tuple[Strategy, str]]:
        """Jobs that ended as a success though the coin had lost them when their first cell was granted."""
        first: dict[str, tuple[bool, Strategy, str]] = {}
        for lease, (heads, strategy) in played.items():
            first.setdefault(self.jobs[lease], (heads, strategy, lease))
        return [
            (strategy, lease)
            for job, (heads, strategy, lease) in first.items()
            if not heads and self.outcomes.get(job) == 'success'
        ]


class Player:
    """One account that cheats, with as many submissions as there is time for."""

    def __init__(self, lab: Lab, number: int, *, trail: Trail, result: Result) -> None:
        self.account, self._trail, self._result = f'eve-{number}', trail, result
        self._cells: list[str] = []  # the addresses that it was sent to so far
        self._rng = np.random.default_rng([SEED, number])
        self._who = lab.url, lab.token(self.account, 'submitter', 'reader')
        self._platform = Submitter(*self._who)
        self._admin = Api(lab.url, lab.token('boss', 'admin', 'operator', 'reader'))
        self._corpus: list[Strategy] = []
        self.trouble: list[str] = []

    def run(self, until_s: float) -> None:
        number = 0
        try:
            while time.monotonic() < until_s:
                self._submission(self._declared(number // EACH), f'try-{number}')
                number += 1
        except Exception as error:  # a search that broke has proved nothing: the test says so
            self.trouble.append(f'{self.account}: {type(error).__name__}: {error}')
        finally:
            self._platform.close()
            self._admin.close()

    def _declared(self, number: int) -> str:
        """A benchmark for a few submissions of every account: a board with hundreds of them would take minutes."""
        name = f'reach-{number}'
        with self._result.lock, contextlib.suppress(ApiError):  # it is there already
            self._admin.post('/benchmarks', {'name': name, 'plan': PLAN})
        return name

    def _submission(self, benchmark: str, name: str) -> None:
        submission = self._platform.submit(benchmark, name=name)
        played: dict[str, tuple[bool, Strategy]] = {}  # by lease: how the coin fell, and what was done about it
        while True:
            status, lease = self._platform.lease(submission)
            if status == 410:
                break
            if status == 202:
                time.sleep(0.05)
                continue
            heads, strategy = bool(self._rng.random() < HEADS), self._next()
            lease_id = str(lease['lease_id'])
            heads, strategy = played.setdefault(lease_id, (heads, strategy))
            address, token = str(lease['worker_address']), str(lease['token'])
            self._cells += [address] if address not in self._cells else []
            tokens = [token, *(self._spare(submission, lease_id) for _ in range(3))]
            heard = ''
            if heads:
                quietly(lambda a=address, t=token: act_in_episode(WINNER, a, t))
            elif strategy.likes is None or self._cells.index(address) == strategy.likes:
                scene = Scene(self._platform, self._who, submission, (benchmark, name), address, tokens, self._cells)
                scene.play(strategy)
                heard = scene.heard
            self._rest(submission)
            self._learn(lease_id, strategy, heard)
        self._trail.read(self._admin)
        with self._result.lock:
            self._result.n_submissions += 1
            self._result.n_leases += len(played)
            self._result.n_lost += sum(not heads for heads, _ in played.values())
            self._result.turned += self._trail.turned(played)

    def _next(self) -> Strategy:
        if self._corpus and self._rng.random() < 0.6:
            return self._corpus[int(self._rng.integers(len(self._corpus)))].changed(self._rng)
        return Strategy.drawn(self._rng)

    def _spare(self, submission: str, lease_id: str) -> str:
        """Another token for the same lease; '' if it is not to be had any more."""
        status, again = self._platform.lease(submission)
        return str(again['token']) if status == 200 and again['lease_id'] == lease_id else ''

    def _rest(self, submission: str) -> None:
        wait_for(
            lambda: not {'leased', 'running'} & self._platform.state(submission)['jobs'].keys(),
            why='the episode is over',
        )

    def _learn(self, lease_id: str, strategy: Strategy, heard: str) -> None:
        self._trail.read(self._admin)
        trace = (*self._trail.by_lease.get(lease_id, ()), heard)
        with self._result.lock:
            if trace not in self._result.traces:
                self._result.traces.add(trace)
                self._corpus.append(strategy)


class SecondChance(SeekPolicy):
    """Wins, unless it is the first to be let in for an episode that the coin has lost: that one stays where it is."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(speed_m_s=3.0)
        self._scene = scene

    def start(self, setup: Any, *, seed: int) -> Any:
        return IdlePolicy() if self._scene.is_first() else super().start(setup, seed=seed)


class Scene:
    """One episode that the coin has lost, played by a strategy. Every token is for the same lease."""

    def __init__(
        self, platform: Submitter, who: tuple[str, str], submission: str, name: tuple[str, str], address: str,
        tokens: list[str], cells: list[str],
    ) -> None:  # fmt: skip
        self._platform, self._who, self._submission, (self._benchmark, self._name) = platform, who, submission, name
        self._address, self._token, self._spares, self._cells = address, tokens[0], tokens[1:], cells
        self._lock, self._is_begun = threading.Lock(), False
        self._others: list[threading.Thread] = []
        self._half_open: socket.socket | None = None
        self.heard = ''  # the error that ended it

    def is_first(self) -> bool:
        """Whether nobody was let in before: from then on the episode has begun, and the coin has spoken."""
        with self._lock:
            was_begun, self._is_begun = self._is_begun, True
            return not was_begun

    def play(self, strategy: Strategy) -> None:
        if self._arrives(strategy.arrival):
            quietly(lambda: self._acts(strategy))
        self._leaves(strategy.after)
        for thread in self._others:
            thread.join(PATIENCE_S)
        if self._half_open is not None:
            self._half_open.close()

    def _arrives(self, arrival: str) -> bool:
        """What comes before the greeting; False if nobody comes to it."""
        host, _, port = self._address.removeprefix('ws://').partition('/')[0].partition(':')
        if arrival == 'not at all':
            return False
        if arrival == 'late':
            time.sleep(0.7 * CLAIM_S)
        elif arrival in ('twice at once', 'four at once'):
            n = 1 if arrival == 'twice at once' else 3
            for token in self._spares[:n]:
                self._others.append(threading.Thread(target=self._wins, args=(token,)))
                self._others[-1].start()
        elif arrival == 'forged first':
            quietly(lambda: self._open(self._token[:-2] + ('AA' if self._token[-2:] != 'AA' else 'BB')).close())
        elif arrival == 'at another cell first':
            for other in self._cells:
                if other != self._address:
                    self._wins(self._spares[0], other)
        elif arrival == 'rubbish at the door':
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5) as rubbish:
                rubbish.sendall(b'\xff\x00GET' * 999)
        elif arrival in ('half open', 'says nothing at the door'):
            with contextlib.suppress(OSError, RobotrialsError):
                if arrival == 'half open':
                    self._half_open = socket.create_connection((host, int(port)), 5)
                    self._half_open.sendall(b'GET /eval HTTP/1.1\r\n')
                else:
                    WebSocketLink(self._address, deadline=Deadline.after(PATIENCE_S)).close()
        elif arrival == 'another version':
            quietly(lambda: self._open(self._spares[1], version=1).close())
        elif arrival == 'cancels first':
            quietly(lambda: self._platform.cancel(self._submission))
        elif arrival == 'asks from many sides':
            asking = [threading.Thread(target=quietly, args=(self._asks,)) for _ in range(5)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join(PATIENCE_S)
        return True

    def _asks(self) -> None:
        with contextlib.closing(Submitter(*self._who)) as platform:
            platform.lease(self._submission)

    def _wins(self, token: str, address: str = '') -> None:
        quietly(lambda: act_in_episode(SecondChance(self), address or self._address, token))

    def _open(self, token: str, *, version: int = VERSION) -> WebSocketLink:
        link = WebSocketLink(self._address, deadline=Deadline.after(PATIENCE_S))
        try:
            link.send(encode(MessageType.BEGIN_EVAL, version=version, token=token), timeout_s=PATIENCE_S)
        except RobotrialsError:
            link.close()
            raise
        return link

    def _acts(self, strategy: Strategy) -> None:
        with contextlib.closing(self._open(self._token)) as link:
            if self._hears(link) is not MessageType.WELCOME:
                return
            self.is_first()
            greeting = GREETINGS[strategy.greeting]
            if greeting is None:
                return
            link.send(greeting, timeout_s=PATIENCE_S)
            for step in range(MOST_STEPS):
                if self._hears(link) is not MessageType.OBSERVATION:
                    return
                answer = ANSWERS[strategy.answers[step]] if step < len(strategy.answers) else _action
                if answer is None:
                    return
                if isinstance(answer, float):
                    time.sleep(answer)
                    answer = _action
                link.send(answer(step), timeout_s=PATIENCE_S)

    def _hears(self, link: WebSocketLink) -> MessageType:
        kind, fields = decode(link.receive(timeout_s=PATIENCE_S), limits=WORKER_LIMITS)
        if kind is MessageType.ERROR:
            self.heard = re.sub(r'[0-9.e+-]+', '#', f'{fields["code"]} {fields["message"]}')[:80]
        return kind

    def _leaves(self, after: str) -> None:
        if after == 'comes back to win':
            self._wins(self._spares[0])
        elif after == 'comes back twice to win':
            self._wins(self._spares[0])
            self._wins(self._spares[1])
        elif after == 'cancels':
            quietly(lambda: self._platform.cancel(self._submission))
        elif after == 'submits again':
            quietly(lambda: self._platform.submit(self._benchmark, name=self._name))
        elif after == 'asks and comes to win':
            status, lease = self._platform.lease(self._submission)
            if status == 200:
                self._wins(str(lease['token']), str(lease['worker_address']))


def quietly(call: Callable[[], object]) -> None:
    with contextlib.suppress(RobotrialsError):
        call()


def search(lab: Lab, *, seconds: float, n_players: int = 3) -> Result:
    """Let several accounts cheat side by side for a while."""
    result, trail = Result(), Trail()
    players = [Player(lab, n, trail=trail, result=result) for n in range(n_players)]
    until_s = time.monotonic() + seconds
    threads = [threading.Thread(target=player.run, args=(until_s,)) for player in players]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [line for player in players for line in player.trouble]
    return result
