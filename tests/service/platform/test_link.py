"""Client and worker over a real socket: what is refused, with which code, and whose fault it is."""

import dataclasses
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.desk import PLAN, Desk, job, token

from robotrials.errors import RigError
from robotrials.record import EventKind, Outcome
from robotrials.run import Chunk
from robotrials.run.fault import FaultKind
from robotrials.run.plan import LimitOptions, PolicyEntry
from robotrials.service.platform.bundle import unpack_bundle
from robotrials.service.platform.client import Submitter, WorkerRefused, act_in_episode
from robotrials.service.platform.link import VERSION, ErrorCode, MessageType, decode, encode, encode_error, spec_to_map
from robotrials.service.platform.worker_episode import CellOptions, with_transport
from robotrials.testing.policy import SeekPolicy
from robotrials.wire import LIMITS, pack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink
from robotrials.worlds.wrapper import ToolWorkspace


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.close()


def connected(desk):
    link = WebSocketLink(desk.url, deadline=Deadline.after(PATIENCE_S))
    desk.clients.append(link)
    return link


def begin(link, **changes):
    link.send(encode(MessageType.BEGIN_EVAL, **{'version': VERSION, 'token': token(), **changes}), timeout_s=PATIENCE_S)


def answer(link):
    return decode(link.receive(timeout_s=PATIENCE_S), limits=LIMITS)


class Raw:
    """A client that does the first steps right, and then whatever it was made for."""

    def __init__(self, desk, after):
        self._desk, self._after = desk, after

    def __call__(self):
        link = connected(self._desk)
        begin(link)
        assert answer(link)[0] is MessageType.WELCOME
        link.send(encode(MessageType.POLICY, spec=spec_to_map(SeekPolicy().spec)), timeout_s=PATIENCE_S)
        assert answer(link)[0] is MessageType.OBSERVATION
        self._after(link)
        return answer(link)


def action(**changes):
    fields = {'step': 0, 'actions': np.zeros((1, 3)), 'inference_s': 0.0, **changes}
    return encode(MessageType.ACTION, **fields)


# --- an episode as it should be


def test_an_episode_over_the_link_is_the_one_that_runs_at_home(desk):
    from robotrials.run.component import open_host
    from robotrials.run.loop import Order, run_episode
    from robotrials.run.station import setup_of

    given = job()
    attempt, end = desk.run(given, lambda: act_in_episode(SeekPolicy(), desk.url, token()))
    plan, slot = given.read_plan(), given.read_slot()
    order = Order(time_cap_s=slot.cell.time_cap_s, policy_seed=given.loop_seed, loop=plan.loop)
    home = run_episode(open_host(plan.host), SeekPolicy(), setup_of(slot), order=order)
    bundle = unpack_bundle(attempt.bundle)
    assert end.outcome == 'success'
    assert bundle.episode.outcome is Outcome.SUCCESS
    assert bundle.episode.episode_id == given.planned().episode_id
    assert np.array_equal(bundle.trajectory.action_raw, home.trajectory.action_raw)
    assert np.array_equal(bundle.trajectory.extra['observation_state'], home.trajectory.extra['observation_state'])


def test_every_step_that_an_answer_drove_has_its_three_latencies(desk):
    policy = SeekPolicy(chunk_length=4, think_s=0.02)
    attempt, _ = desk.run(job(), lambda: act_in_episode(policy, desk.url, token()))
    trajectory = unpack_bundle(attempt.bundle).trajectory
    first = np.arange(trajectory.n_steps) % 4 == 0
    for name in ('network_latency_s', 'inference_latency_s', 'transport_latency_s'):
        column = getattr(trajectory, name)
        assert np.array_equal(np.isfinite(column), first)
        assert np.all(column[first] > 0)
    assert np.all(trajectory.inference_latency_s[first] >= 0.02)


class Numbering(SeekPolicy):
    """Says with each answer which question it answers."""

    def start(self, setup, *, seed):
        return NumberingSession()


class NumberingSession:
    def __init__(self):
        self._asked = 0

    def act(self, observation):
        self._asked += 1
        return Chunk(np.array([[0.001 * self._asked, 0.0, 0.0]]))


def test_a_lost_answer_does_not_move_the_transport_times_of_others(desk, monkeypatch):
    """Each row's transport runs from the arrival of the very answer that it carries out."""
    plan = PLAN + "\nloop = {latency = {mode = 'measured', loss = 0.3, waiting = 'hold', retry_s = 0.05}}"
    told = {}

    def spied(trajectory, *, arrivals_s, answers, steps_s):
        told.update(arrivals_s=arrivals_s, steps_s=list(steps_s), stated=trajectory.transport_latency_s.copy())
        return with_transport(trajectory, arrivals_s=arrivals_s, answers=answers, steps_s=steps_s)

    monkeypatch.setattr('robotrials.service.platform.worker_episode.with_transport', spied)
    attempt, _ = desk.run(job(plan), lambda: act_in_episode(Numbering(), desk.url, token()))
    trajectory = unpack_bundle(attempt.bundle).trajectory
    rows = np.flatnonzero(np.isfinite(trajectory.network_latency_s))
    numbers = np.rint(trajectory.action_raw[rows, 0] / 0.001).astype(int) - 1  # as the policy itself counted
    assert 5 < len(rows) < len(told['arrivals_s'])  # some answers were lost
    assert not np.array_equal(numbers, np.arange(len(rows)))
    wanted = [told['steps_s'][row] - told['arrivals_s'][number] for row, number in zip(rows, numbers, strict=True)]
    assert np.allclose(trajectory.transport_latency_s[rows] - told['stated'][rows], wanted)


def test_a_blinded_client_is_not_told_the_outcome(desk):
    _, end = desk.run(job(blinded=True), lambda: act_in_episode(SeekPolicy(), desk.url, token()))
    assert (end.outcome, end.reason) == ('', '')
    assert end.n_steps > 0


# --- who is let in


@pytest.mark.parametrize(
    ('changes', 'code'),
    [
        ({'token': 'no token'}, ErrorCode.TOKEN_MALFORMED),
        ({'token': None}, ErrorCode.TOKEN_MALFORMED),
        ({'token': token(secret='another-secret-of-16-bytes')}, ErrorCode.TOKEN_FORGED),
        ({'token': token(worker_id='w2')}, ErrorCode.TOKEN_WRONG_WORKER),
        ({'token': token(expires_at=time.time() - 60)}, ErrorCode.TOKEN_EXPIRED),
        ({'version': 99}, ErrorCode.VERSION),
        ({'version': None}, ErrorCode.VERSION),
    ],
)
def test_a_bad_beginning_is_refused_with_its_code(desk, changes, code):
    link = connected(desk)
    begin(link, **changes)
    kind, fields = answer(link)
    assert (kind, fields['code']) == (MessageType.ERROR, code)
    assert desk.inbox.empty()


def test_a_token_is_good_for_one_connection(desk):
    shown = token()
    desk.run(job(), lambda: act_in_episode(SeekPolicy(), desk.url, shown))
    with pytest.raises(WorkerRefused) as refused:
        act_in_episode(SeekPolicy(), desk.url, shown)
    assert refused.value.code == ErrorCode.TOKEN_REPLAYED


@pytest.mark.parametrize(
    'frame',
    [b'', b'\xc1', b'\x81', pack([1, 2]), pack({'type': 'splendid'}), pack({'type': 7}), pack({}), action(),
     b'\x91' * 4000 + b'\xc0', b'\xdf\xff\xff\xff\xff', b'\xc7\x01\x05x'],
)  # fmt: skip
def test_a_malformed_first_frame_is_refused(desk, frame):
    link = connected(desk)
    link.send(frame, timeout_s=PATIENCE_S)
    kind, fields = answer(link)
    assert (kind, fields['code']) == (MessageType.ERROR, ErrorCode.MALFORMED)
    assert desk.inbox.empty()


def test_an_oversized_frame_is_refused_before_it_is_read(desk):
    link = connected(desk)
    with pytest.raises(RigError):  # the worker hangs up with 1009 while we still send
        link.send(bytes(8 << 20), timeout_s=PATIENCE_S)
        link.receive(timeout_s=PATIENCE_S)
    assert desk.inbox.empty()


def test_an_announced_length_takes_no_memory(desk):
    with socket.create_connection(('127.0.0.1', desk.port.port)) as raw:
        raw.sendall(
            b'GET /eval HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
            b'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n'
        )
        assert b'101' in raw.recv(4096)
        raw.sendall(b'\x82\xff' + (2**62).to_bytes(8) + b'abcd')
        raw.settimeout(PATIENCE_S)
        closing = raw.recv(4096)
        assert closing[:1] == b'\x88'
        assert int.from_bytes(closing[2:4]) == 1009  # too big
    assert desk.inbox.empty()


@pytest.mark.parametrize('text', [b'\r\n\r\n', b'NONSENSE\r\n\r\n', b'GET /eval HTTP/1.1\r\n\r\n', b'x' * 40_000])
def test_what_is_no_request_is_hung_up_on(desk, text):
    with socket.create_connection(('127.0.0.1', desk.port.port)) as raw:
        raw.settimeout(PATIENCE_S)
        try:
            raw.sendall(text)
            while raw.recv(4096):
                pass
        except ConnectionError:
            pass
    assert desk.inbox.empty()


def test_a_client_that_says_nothing_is_let_go():
    desk = Desk(hello_s=1.0)
    kind, fields = answer(connected(desk))
    assert (kind, fields['code']) == (MessageType.ERROR, ErrorCode.TIMEOUT)
    desk.close()


# --- what is the policy's own fault


@pytest.mark.parametrize(
    'frame',
    [
        action(actions=np.full((1, 3), np.nan)), action(actions=np.full((1, 3), np.inf)),
        action(actions=np.zeros((1, 4))), action(actions=np.zeros((2, 3))), action(actions=np.zeros(3)),
        action(actions=[[0.0, 0.0, 0.0]]),
        action(actions=np.array([['a', 'b', 'c']])), action(actions=np.zeros((1, 3), bool)), action(actions=None),
        action(step=1), action(step=True), action(inference_s=float('nan')), action(inference_s=-1.0),
        action(inference_s='fast'), b'\x81', pack({'type': 'action'}), encode(MessageType.POLICY), pack('text'),
    ],
)  # fmt: skip
def test_rubbish_for_an_action_ends_the_episode_as_the_policys_fault(desk, frame):
    attempt, (kind, fields) = desk.run(job(), Raw(desk, lambda link: link.send(frame, timeout_s=PATIENCE_S)))
    assert attempt.fault.kind is FaultKind.POLICY_ANSWER
    assert attempt.episode.outcome is Outcome.FAILURE
    assert (kind, fields['code']) == (MessageType.ERROR, ErrorCode.BAD_ACTION)
    assert unpack_bundle(attempt.bundle).episode.reason.startswith('policy answer')


def test_an_oversized_action_is_the_policys_fault(desk):
    def send_much(link):
        with pytest.raises(RigError):
            link.send(action(actions=np.zeros((1, 1 << 20))), timeout_s=PATIENCE_S)
            link.receive(timeout_s=PATIENCE_S)
        raise RigError('hung up')

    attempt, _ = desk.run(job(), Raw(desk, send_much))
    assert attempt.fault.kind is FaultKind.POLICY_ANSWER


@pytest.mark.parametrize('how', ['goodbye', 'cut'])
def test_a_client_that_goes_away_is_the_policys_fault_at_once(desk, how):
    started = time.monotonic()
    leave = (lambda link: link.close()) if how == 'goodbye' else (lambda link: link._link.close())
    attempt, _ = desk.run(job(), Raw(desk, leave))
    assert attempt.fault.kind is FaultKind.POLICY_CRASH
    assert attempt.episode.outcome is Outcome.FAILURE
    assert time.monotonic() - started < 50  # not the 60 s of the watchdog: the cell is free again


def test_a_client_that_falls_silent_is_cut_off(desk):
    plan = PLAN.replace('policy_s = 60.0', 'policy_s = 2.0')
    attempt, (kind, fields) = desk.run(job(plan), Raw(desk, lambda link: None))
    assert attempt.fault.kind is FaultKind.POLICY_SILENT
    assert (kind, fields['code']) == (MessageType.ERROR, ErrorCode.TIMEOUT)


class Broken(SeekPolicy):
    def start(self, setup, *, seed):
        return self

    def act(self, observation):
        raise ZeroDivisionError('secret-name')


@pytest.mark.parametrize('blinded', [True, False])
def test_a_policy_that_raises_is_its_own_fault_and_keeps_its_words_while_blinded(desk, blinded):
    attempt, raised = desk.run(job(blinded=blinded), lambda: act_in_episode(Broken(), desk.url, token()))
    assert isinstance(raised, ZeroDivisionError)
    assert attempt.fault.kind is FaultKind.POLICY_CRASH
    told = b''.join(unpack_bundle(attempt.bundle).media.values())
    assert b'secret-name' not in told
    assert (b'ZeroDivisionError' in told) == (not blinded)


def test_a_policy_that_does_not_fit_is_told_so_and_has_failed(desk):
    attempt, raised = desk.run(job(), lambda: act_in_episode(SeekPolicy(rate_hz=10.0), desk.url, token()))
    assert (attempt.fault.kind, attempt.episode.outcome) == (FaultKind.POLICY_CRASH, Outcome.FAILURE)
    assert attempt.n_steps == 0
    assert 'control_rate_hz' in str(raised)


# --- what a client may not get out of


def greeted(desk, after):
    """A client that hears the greeting, and then does `after`."""

    def act():
        link = connected(desk)
        begin(link)
        welcome = answer(link)
        after(link)
        return welcome

    return act


@pytest.mark.parametrize(
    'after',
    [
        lambda link: link.close(),
        lambda link: link._link.close(),
        lambda link: link.send(encode_error(ErrorCode.DOES_NOT_FIT, 'not today'), timeout_s=PATIENCE_S),
        lambda link: link.send(encode(MessageType.POLICY, spec={'name': 7}), timeout_s=PATIENCE_S),
        lambda link: link.send(encode(MessageType.POLICY, spec=spec_to_map(OTHER_RATE)), timeout_s=PATIENCE_S),
        lambda link: link.send(b'rubbish', timeout_s=PATIENCE_S),
        lambda link: None,
    ],
    ids=['goodbye', 'cut', 'refuses', 'no spec', 'does not fit', 'rubbish', 'silent'],
)
def test_whoever_leaves_or_refuses_the_greeting_has_failed(desk, monkeypatch, after):
    monkeypatch.setattr('robotrials.service.platform.worker_episode.GREET_S', 1.0)
    attempt, _ = desk.run(job(blinded=True), greeted(desk, after))
    episode = unpack_bundle(attempt.bundle).episode
    assert episode.outcome is Outcome.FAILURE
    assert episode.reason.startswith('policy')
    assert episode.attempt == 0


OTHER_RATE = SeekPolicy(rate_hz=10.0).spec
TWO_TASKS = PLAN.replace(
    "tasks = ['reach']", "tasks = [{name = 'reach', items = 1}, {name = 'far', items = 3}]"
).replace('time_cap_s = 5.0', 'time_cap_per_item_s = 2.0')


def test_the_greeting_is_the_same_for_every_task_and_attempt(desk):
    """A time cap would tell the task, and an attempt's number that the start state is one that was met before."""
    heard = []
    for slot, attempt in [(0, 0), (0, 1), (2, 0), (5, 0)]:
        given = dataclasses.replace(job(TWO_TASKS, slot=slot), attempt=attempt)
        _, welcome = desk.run(given, greeted(desk, lambda link: link.close()))
        heard.append(repr(welcome))
    caps = {job(TWO_TASKS, slot=slot).read_slot().cell.time_cap_s for slot in range(6)}
    assert len(caps) == 2  # there is something to tell
    assert len(set(heard)) == 1
    assert 'time_cap' not in heard[0]


class Stalling(SeekPolicy):
    """Takes its time for each answer, and less than its limit."""

    def start(self, setup, *, seed):
        return self

    def act(self, observation):
        time.sleep(0.3)
        return Chunk(np.zeros((1, 3)))


def test_answers_inside_their_limit_use_up_the_budget_of_the_episode_and_fail(desk):
    plan = PLAN.replace('policy_s = 60.0', 'policy_s = 20.0, thinking_s = 2.0')
    attempt, refused = desk.run(job(plan), lambda: act_in_episode(Stalling(), desk.url, token()))
    assert attempt.n_steps <= 7  # of 0.3 s each; the episode would have had 100
    assert (attempt.fault.kind, attempt.episode.outcome) == (FaultKind.POLICY_LATE, Outcome.FAILURE)
    assert 'thinking' in attempt.episode.reason
    assert refused.code == ErrorCode.TIMEOUT


@pytest.mark.parametrize('size', [1e7, 1e300, -1e9])
def test_an_action_that_would_choke_the_host_is_the_policys_fault(desk, size):
    frame = action(actions=np.full((1, 3), size))
    attempt, _ = desk.run(job(), Raw(desk, lambda link: link.send(frame, timeout_s=PATIENCE_S)))
    assert (attempt.fault.kind, attempt.episode.outcome) == (FaultKind.POLICY_ANSWER, Outcome.FAILURE)


DIAL = {
    'observation': {'state': {'state': [0, 4]}},
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'control_rate_hz': 20.0},
    'connect_timeout_s': 1.0,
}


def test_a_dialled_server_that_is_away_has_failed(desk):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        url = f'ws://127.0.0.1:{taken.getsockname()[1]}'
    entry = PolicyEntry('openpi', {'url': url, **DIAL})
    desk.station.dial_allow = ('127.0.0.1:*',)
    attempt = desk.station.run(job(dial=entry), None)
    assert (attempt.fault.kind, attempt.episode.outcome) == (FaultKind.POLICY_CRASH, Outcome.FAILURE)


# --- limits


class Runaway(SeekPolicy):
    def start(self, setup, *, seed):
        return self

    def act(self, observation):
        return Chunk(np.array([[5.0, 0.0, 0.0]]))


def test_the_cells_velocity_limit_holds_whatever_the_policy_wants(desk):
    cell = CellOptions(host='point-mass', limits=LimitOptions(velocity=0.4))
    slow = Desk(cell)
    attempt, _ = slow.run(job(), lambda: act_in_episode(Runaway(), slow.url, token()))
    trajectory = unpack_bundle(attempt.bundle).trajectory
    assert np.allclose(trajectory.action_raw[:, 0], 5.0)
    assert np.max(np.abs(trajectory.action_processed[:, 0])) <= 0.4 / 20 + 1e-12
    slow.close()


def test_a_workspace_clips_displacements_and_never_pushes_a_tool_in():
    box = ToolWorkspace((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    inside = np.array([0.9, 0.5, 0.5])
    assert np.allclose(box.clip(np.array([0.5, 0.1, -2.0, 9.0]), inside), [0.1, 0.1, -0.5, 9.0])
    outside = np.array([1.1, 0.5, 0.5])
    assert box.clip(np.array([0.05, 0.0, 0.0]), outside)[0] <= 0.0
    assert box.clip(np.array([-0.05, 0.0, 0.0]), outside)[0] == -0.05
    assert box.clip(np.array([-0.5, 0.0, 0.0]), outside)[0] == -0.5
    assert box.is_left_by(outside)
    assert not box.is_left_by(np.array([1.01, 0.5, 0.5]))


# --- the emergency stop


def post(desk, path, secret='press'):
    request = urllib.request.Request(
        f'http://127.0.0.1:{desk.port.port}{path}', method='POST', headers={'Authorization': f'Bearer {secret}'}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as found:
        return json.load(found)


@pytest.mark.parametrize('thinking', [True, False])
def test_one_call_ends_the_episode_as_a_safety_stop_with_its_record(desk, thinking):
    class Slow(SeekPolicy):
        n = 0

        def start(self, setup, *, seed):
            return self

        def act(self, observation):
            self.n += 1
            if self.n == 5:
                pressing = threading.Thread(target=post, args=(desk, '/stop'))
                pressing.start()
                assert desk.interrupts.stop.wait(PATIENCE_S)
                if thinking:
                    time.sleep(1.0)
            return Chunk(np.zeros((1, 3)))

    plan = PLAN.replace('time_cap_s = 5.0', 'time_cap_s = 500.0')
    attempt, _ = desk.run(job(plan), lambda: act_in_episode(Slow(), desk.url, token()))
    episode = unpack_bundle(attempt.bundle).episode
    assert episode.outcome is Outcome.SAFETY_STOP
    assert episode.reason == 'emergency stop'
    assert [e.kind for e in episode.events] == [EventKind.SAFETY_STOP]
    assert attempt.n_steps <= 6
    assert post(desk, '/resume')['state'] == 'idle'


@pytest.mark.parametrize(
    ('path', 'secret', 'status'), [('/stop', 'wrong', 401), ('/stop', '', 401), ('/none', 'press', 404)]
)
def test_the_stop_wants_its_secret(desk, path, secret, status):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(desk, path, secret)
    refused.value.close()
    assert refused.value.code == status
    assert not desk.interrupts.stop.is_set()


def test_the_port_tells_its_state(desk):
    with urllib.request.urlopen(f'http://127.0.0.1:{desk.port.port}/healthz', timeout=PATIENCE_S) as found:
        assert json.load(found) == {'state': 'idle'}


def test_a_platform_that_does_not_answer_is_said_at_once(monkeypatch):
    monkeypatch.setattr('robotrials.service.platform.client.MOST_SETBACKS', 2)
    said: list[str] = []
    with socket.create_server(('127.0.0.1', 0)) as taken:
        nobody = f'http://127.0.0.1:{taken.getsockname()[1]}'
    with pytest.raises(RigError):
        Submitter(nobody, 'tlt_x', tell=said.append).submit('reach', name='mine')
    assert len(said) == 1
    assert 'does not answer, trying again' in said[0]
