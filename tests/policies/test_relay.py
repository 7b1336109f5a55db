"""One address for all arms of a sealed trial: the right one answers, and nothing that comes back tells which it was."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from tests.service.consoles import lab_plan
from tests.service.serving import served

from robotrials.errors import AnswerError, InputError, RigError
from robotrials.policies.relay import BlindedArms, RelayConversation, _stripped
from robotrials.policies.server import ConversationServer, OfferedPolicy, PolicyServer, WireNames
from robotrials.run import Chunk, Observation, PolicySpec, Session, Setup
from robotrials.run.blinding import Allocation, Arms, blinding_of, read_arms, seal_trial
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Target
from robotrials.wire import LIMITS, pack, unpack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

NAMES = ('axolotl-3b', 'echidna-7b')
WAIT_S = 30.0


class Constant:
    """A policy that always gives its number, or fails with its name on its lips."""

    def __init__(self, name: str, number: float) -> None:
        action = ActionConvention(
            control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT, n_joints=2
        )
        self.spec = PolicySpec(name=name, action=action, chunk_length=1 if number else 3)
        self.number, self.breaks = number, False

    def start(self, setup: Setup, *, seed: int) -> Session:
        return self

    def act(self, observation: Observation) -> Chunk:
        if self.breaks:
            raise RuntimeError(f'{self.spec.name} ran out of memory')
        return Chunk(np.full((self.spec.chunk_length, 2), self.number))


class Rig:
    """Two arms behind servers, a console that says whose turn it is, and the relay between them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.policies = {name: Constant(name, float(number)) for number, name in enumerate(NAMES)}
        names = WireNames({}, {'observation/state': (0, 1)}, 'prompt')
        self.servers = {
            name: stack.enter_context(PolicyServer(OfferedPolicy(p, state_width=1, names=names), wire='openpi'))
            for name, p in self.policies.items()
        }
        entries = {
            n: {'use': 'openpi', 'options': {'url': f'ws://127.0.0.1:{s.port}'}} for n, s in self.servers.items()
        }
        plan = lab_plan(policies={**entries, 'kim': {'use': 'human'}}, reference='kim')
        self.sealed: Allocation = seal_trial(plan, folder)
        self.state: dict[str, Any] = {'drafts': [], 'assignments': []}
        app = FastAPI()
        app.get('/api/state')(lambda: self.state)
        self.console = stack.enter_context(served(app))
        self.folder = folder
        self.arms = read_arms(self.sealed.operator_plan, folder / 'arms.json')

    def turn(self, name: str, place: int = 0) -> None:
        """Whose turn the console says it is."""
        plan, code = self.sealed.operator_plan, self.sealed.codes[name]
        blinding = blinding_of(plan, self.arms.entries, rotation=self.arms.rotation)
        given = {'key': f'{place:08x}/0', 'code': blinding.name(code, place), 'is_human': name == 'kim'}
        self.state = {'drafts': [], 'assignments': [given]}

    def behind(self) -> BlindedArms:
        return BlindedArms(
            self.sealed.operator_plan, self.arms, console=self.console, log=self.folder / 'relay.log'
        )  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr('robotrials.policies.relay.FRESH_S', 0.0)
    with ExitStack() as stack:
        yield Rig(tmp_path / 'sealed', stack)


def asked(link: WebSocketLink) -> bytes | str:
    link.send(pack({'observation/state': np.zeros(1), 'prompt': 'go'}), timeout_s=WAIT_S)
    return link.receive(timeout_s=WAIT_S)


def test_each_question_goes_to_the_arm_of_the_present_assignment_and_no_answer_names_it(rig: Rig) -> None:
    behind = rig.behind()
    with ConversationServer(lambda _: RelayConversation(behind)) as serving:
        link = WebSocketLink(f'ws://127.0.0.1:{serving.port}', deadline=Deadline.after(WAIT_S))
        greeting = link.receive(timeout_s=WAIT_S)
        assert isinstance(greeting, bytes)
        assert unpack(greeting) == {'policy': 'blinded', 'action_dim': 2, 'control_rate_hz': None}
        said: list[bytes] = [greeting]
        for place, name in enumerate((*NAMES, *reversed(NAMES))):  # on one connection
            rig.turn(name, place)
            answer = asked(link)
            assert isinstance(answer, bytes), answer
            values = unpack(answer)
            assert set(values) == {'actions'}, 'no timings, no words'
            assert values['actions'][0, 0] == rig.policies[name].number
            said.append(answer)
        assert not any(name.encode() in text for name in NAMES for text in said)
        link.close()
    behind.close()
    assert (rig.folder / 'relay.log').read_text() == ''


def test_an_arm_that_fails_is_named_in_the_log_of_the_machine_alone(rig: Rig) -> None:
    behind = rig.behind()
    rig.policies[NAMES[0]].breaks = True
    rig.turn(NAMES[0])
    with ConversationServer(lambda _: RelayConversation(behind)) as serving:
        link = WebSocketLink(f'ws://127.0.0.1:{serving.port}', deadline=Deadline.after(WAIT_S))
        link.receive(timeout_s=WAIT_S)
        assert asked(link) == 'the policy of this episode failed; relay.log beside arms.json says why'
        link.close()
        rig.turn('kim')
        link = WebSocketLink(f'ws://127.0.0.1:{serving.port}', deadline=Deadline.after(WAIT_S))
        link.receive(timeout_s=WAIT_S)
        assert asked(link) == 'the console has no episode for a policy now'
        link.close()
    behind.close()
    log = rig.folder / 'relay.log'
    assert f'{NAMES[0]} ran out of memory' in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_console_that_is_gone_changes_no_arm(rig: Rig) -> None:
    behind = rig.behind()
    rig.turn(NAMES[1])
    before = behind.present()
    rig.state = {}
    with pytest.raises(InputError, match='not the state of a console'):
        behind.present()
    behind._console._link.close()
    behind._console._link._port = 9  # nobody listens there
    assert behind.present() == before
    behind.close()


def test_arms_must_answer_before_the_first_episode(rig: Rig) -> None:
    rig.servers[NAMES[1]].close()
    with pytest.raises(RigError, match='an arm does not answer') as refused:
        rig.behind()
    assert str(rig.servers[NAMES[1]].port) not in str(refused.value)
    assert str(rig.servers[NAMES[1]].port) in (rig.folder / 'relay.log').read_text()


def test_a_policy_that_is_no_server_is_told_how_to_become_one(rig: Rig) -> None:
    entries = json.loads((rig.folder / 'arms.json').read_text())['arms']
    assert len(entries) == 3
    plain = {c: e if e.is_human else type(e)('scripted') for c, e in rig.arms.entries.items()}
    with pytest.raises(InputError, match='robotrials policies serve TRIAL NAME --wire openpi'):
        BlindedArms(rig.sealed.operator_plan, Arms(plain, rig.arms.rotation), console=rig.console,
                    log=rig.folder / 'relay.log')  # fmt: skip
    with pytest.raises(InputError, match="the operator's plan"):
        BlindedArms(lab_plan(), rig.arms, console=rig.console, log=rig.folder / 'relay.log')


def test_an_answer_keeps_nothing_but_its_actions() -> None:
    """Names nested in maps, bytes, further keys and the type of the numbers would all tell which server answered."""
    told = {
        'actions': np.ones((2, 3), np.float32),
        'info': {'name': 'pi0'},
        'raw': b'pi0',
        'pi0': 1,
        'server_timing': {},
    }
    values = unpack(_stripped(pack(told), LIMITS))
    assert list(values) == ['actions']
    assert values['actions'].dtype == np.float64
    with pytest.raises(AnswerError, match="without 'actions'"):
        _stripped(pack({'pi0': 1}), LIMITS)
