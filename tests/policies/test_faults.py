"""Every way a server can fail, on every wire: whose fault it is, within the deadline, and the next episode works."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import GOOD, WIRES, ask, policy_of

from robotrials.errors import AnswerError, NoAnswer, RigError
from robotrials.policies.served import ServedPolicy
from robotrials.run import Chunk

EXPECTED = {
    'slow': NoAnswer,
    'silent': NoAnswer,
    'half': RigError,
    'dying': RigError,
    'oversized': AnswerError,
    'rubbish': AnswerError,
    'twice': AnswerError,
    'drip': NoAnswer,
}
# ZeroMQ delivers messages whole and drops the connection on a long one; its own framing cannot drip or double.
GROOT = {**EXPECTED, 'half': AnswerError, 'oversized': RigError}
CASES = [
    (wire, fault)
    for wire in WIRES
    for fault in EXPECTED
    if not (wire == 'groot' and fault in ('twice', 'drip')) and not (wire == 'openvla' and fault == 'twice')
]


@pytest.mark.parametrize(('wire', 'fault'), CASES)
def test_a_server_that_fails_is_told_apart_in_time_and_the_next_episode_works(wire: str, fault: str) -> None:
    expected = (GROOT if wire == 'groot' else EXPECTED)[fault]
    at = 1 + WIRES[wire].extra_questions
    with WIRES[wire].server(GOOD, fault=fault, at=at) as serving:
        answer_timeout_s = 0.3 if expected is NoAnswer else 30.0
        policy = policy_of(wire, serving.url, answer_timeout_s=answer_timeout_s, max_message_bytes=1 << 20)
        began_s = time.monotonic()
        tracemalloc.start()
        with pytest.raises(expected):
            ask(policy, times=2)  # a doubled answer shows at the second question
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.monotonic() - began_s < 25.0, 'never a hang'
        assert peak < 16 << 20, "nothing is buffered on a server's word"
        np.testing.assert_allclose(recovered(policy).actions, GOOD)
        policy.close()


def recovered(policy: ServedPolicy) -> Chunk:
    """An episode after the fault; a server that still sleeps, or a busy machine, gets some tries."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        try:
            return ask(policy)
        except NoAnswer:
            continue
    raise AssertionError('the server was never reached again')


BAD_ACTIONS = {
    'narrow': GOOD[:, :5],
    'short': GOOD[:1],
    'nan': GOOD * np.nan,
    'infinite': np.full((2, 8), np.inf, np.float32),
    'objects': np.array([[object()] * 8] * 2),
}


@pytest.mark.parametrize(
    ('wire', 'what'),
    # An action of positronic's has a time of its own and holds until the next: a short chunk is a chunk.
    [(wire, what) for wire in WIRES for what in BAD_ACTIONS if (wire, what) != ('positronic', 'short')],
)
def test_actions_that_are_none_are_the_policys_fault(wire: str, what: str) -> None:
    with WIRES[wire].server(BAD_ACTIONS[what]) as serving:
        policy = policy_of(wire, serving.url)
        with pytest.raises(AnswerError):
            ask(policy)
        policy.close()


@pytest.mark.parametrize('wire', WIRES)
def test_a_missing_server_is_waited_for_and_then_the_rigs_fault(wire: str) -> None:
    with WIRES[wire].server(GOOD) as serving:
        url = serving.url
    with pytest.raises(RigError, match='did not answer within'):
        policy_of(wire, url, connect_timeout_s=0.3)


@pytest.mark.parametrize('wire', ['openpi', 'vla-eval', 'openvla'])
def test_a_server_that_does_not_read_does_not_hang_the_client(wire: str) -> None:
    import socket
    import threading

    from tests.servers import FaultyServer

    is_over = threading.Event()

    class Deaf(FaultyServer):
        """Behaves until the first question, and then stops reading."""

        def converse(self, connection: socket.socket) -> None:
            is_over.wait(PATIENCE_S)

    served = WIRES[wire].server(GOOD, fault='none')
    with served as serving:
        policy = policy_of(wire, serving.url, answer_timeout_s=1.0)
        link_of = policy._link  # type: ignore[attr-defined]
        with Deaf(fault='none') as deaf:
            link = socket.create_connection(('127.0.0.1', deaf.port))
            inner = getattr(link_of, '_link', link_of)
            inner._socket.close()
            inner._socket = link
            big = {'x': np.zeros(8 << 20, np.uint8)}
            began_s = time.monotonic()
            with pytest.raises(RigError):
                policy.ask(big)
            assert time.monotonic() - began_s < PATIENCE_S / 2
            is_over.set()
        policy.close()


# --- what a fault counts as in a trial


@pytest.mark.parametrize(
    ('fault', 'actions', 'kind', 'outcome'),
    [
        ('dying', GOOD, 'policy endpoint', 'invalid'),
        ('half', GOOD, 'policy endpoint', 'invalid'),
        ('silent', GOOD, 'policy silent', 'failure'),
        ('rubbish', GOOD, 'policy answer', 'failure'),
        ('none', GOOD * np.nan, 'policy answer', 'failure'),
        ('none', 'a traceback', 'policy crash', 'failure'),
    ],
)
def test_the_written_rule_decides_what_counts(
    tmp_path: Path, fault: str, actions: object, kind: str, outcome: str
) -> None:
    """The plan holds policies to their own faults; a broken way to them stays INVALID."""
    from tests.servers import FaultyWebSocket

    from robotrials.record import Store
    from robotrials.run import TrialPlan, run_trial
    from robotrials.value import read_table
    from robotrials.wire import pack

    sent = actions if isinstance(actions, str) else pack({'actions': np.asarray(actions)[:, :3]})
    with FaultyWebSocket(lambda q: sent, greeting=(pack({}),), fault=fault, at=2) as serving:
        options = {
            'url': serving.url, 'answer_timeout_s': 0.3 if fault == 'silent' else 30.0, 'connect_timeout_s': 30.0,
            'observation': {'state': {'s': [0, 4]}},
            'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 2},
        }  # fmt: skip
        held = dict.fromkeys(('policy_crash', 'policy_hang', 'policy_late', 'policy_answer'), 'failure')
        plan = read_table(
            TrialPlan,
            {
                'seed': 3, 'host': 'point-mass', 'tasks': ['reach'], 'episodes_per_cell': 1, 'time_cap_s': 1.0,
                'policies': {'served': {'use': 'openpi', 'options': options}}, 'faults': {**held, 'attempts': 1},
            },
            where='test',
        )  # fmt: skip
        run_trial(plan, tmp_path / 's', workers=0)
    (episode,) = Store.open(tmp_path / 's').episodes(attempts='all')
    assert episode.reason.startswith(kind), episode.reason
    assert episode.outcome.value == outcome
    assert '127.0.0.1' not in episode.reason, 'an address could name the policy'
