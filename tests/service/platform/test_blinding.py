"""What nobody may know before its time: names of submissions, and which start state an episode has."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.desk import Desk, job, token
from tests.service.platform.service import Service

from robotrials.record import Outcome
from robotrials.run import Observation, Setup
from robotrials.service.platform.bundle import unpack_bundle
from robotrials.service.platform.client import act_in_episode
from robotrials.service.platform.dial import DialledPolicy
from robotrials.service.platform.link import VERSION, MessageType, decode, encode, spec_to_map, told_setup
from robotrials.testing.policy import PointMassHost, SeekPolicy
from robotrials.wire import LIMITS
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

MATCHED = """
seed = 11
episodes_per_cell = 12
time_cap_s = 4.0
host = "point-mass"
tasks = ["reach", "place"]
"""
SUCCESS = itertools.repeat(Outcome.SUCCESS)


class Listening(SeekPolicy):
    """Keeps what it is told of an episode."""

    told = None

    def start(self, setup, *, seed):
        self.told = setup, seed
        return super().start(setup, seed=seed)


# --- start states


def test_a_client_is_told_the_task_its_words_and_nothing_of_the_start_state() -> None:
    desk = Desk()
    try:
        given = next(j for n in range(3) if (j := job(slot=n)).planned().instance == 2)
        policy = Listening()
        desk.run(given, lambda: act_in_episode(policy, desk.url, token()))
    finally:
        desk.close()
    setup, seed = policy.told
    planned = given.planned()
    assert setup == Setup(task='reach', seed=given.policy_seed)  # every other field is at its default
    assert seed == given.policy_seed
    assert seed not in (planned.seed, given.loop_seed, given.read_plan().seed)


TWO_TASKS = """
seed = 7
host = 'point-mass'
tasks = [{name = 'near', instruction = 'go there', items = 1}, {name = 'far', items = 3}]
time_cap_per_item_s = 2.0
episodes_per_cell = 2
"""


def heard_before_the_first_observation(desk: Desk, slot: int) -> list[bytes]:
    """Every frame that a client is sent up to its first observation, or to its end if there is none."""

    def listen() -> list[bytes]:
        link = WebSocketLink(desk.url, deadline=Deadline.after(PATIENCE_S))
        desk.clients.append(link)
        link.send(encode(MessageType.BEGIN_EVAL, version=VERSION, token=token()), timeout_s=PATIENCE_S)
        frames = [link.receive(timeout_s=PATIENCE_S)]
        link.send(encode(MessageType.POLICY, spec=spec_to_map(SeekPolicy().spec)), timeout_s=PATIENCE_S)
        frames.append(link.receive(timeout_s=PATIENCE_S))
        kind, fields = decode(frames[-1], limits=LIMITS)
        link.close()
        if kind is not MessageType.OBSERVATION:
            return frames
        assert fields['setup']['task'] in ('near', 'far')
        return frames[:-1]

    _, heard = desk.run(job(TWO_TASKS, slot=slot, blinded=True), listen)
    assert isinstance(heard, list), heard
    return heard


@pytest.mark.parametrize('is_broken', [False, True])
def test_nothing_that_is_told_before_the_first_observation_differs_between_tasks(
    is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(host: PointMassHost, task: str, *, seed: int) -> None:
        raise RuntimeError(f'{task} at seed {seed}')

    if is_broken:
        monkeypatch.setattr(PointMassHost, 'reset', breaks)
    desk = Desk()
    try:
        assert {job(TWO_TASKS, slot=n).planned().task for n in range(4)} == {'near', 'far'}
        heard = [heard_before_the_first_observation(desk, n) for n in range(4)]
    finally:
        desk.close()
    assert all(frames == heard[0] for frames in heard)


def test_a_dialled_server_is_told_as_little() -> None:
    inner = Listening()
    policy = DialledPolicy(inner, code='arm-1', seed=5)
    whole = Setup(
        task='reach', seed=123, instruction='go there', stratum='red', condition='drift', instance=7,
        condition_parameters={'x': 1.0}, labels={'fixture': 'a'}, items=2,
    )  # fmt: skip
    session = policy.start(whole, seed=99)
    assert inner.told is None  # whoever is told before the first observation can choose its episodes
    session.act(Observation(0.0, np.zeros(6)))
    assert inner.told == (Setup(task='reach', seed=5, instruction='go there'), 5)
    assert told_setup(whole, seed=5) == inner.told[0]


def test_told_seeds_are_keyed_and_say_nothing_across_submissions() -> None:
    plan = "seed = 7\nhost = 'point-mass'\ntasks = ['reach']\ntime_cap_s = 5.0\nepisodes_per_cell = 50\n"
    secrets = [plan + f"blinding = {{secret = '{word}'}}\n" for word in ('one', 'two')]
    told = [[job(text, slot=n).policy_seed for n in range(50)] for text in secrets]
    scenes = [[job(text, slot=n).planned().seed for n in range(50)] for text in secrets]
    assert set(scenes[0]) == set(scenes[1])  # matched
    assert scenes[0] != scenes[1]  # in an order of their own
    assert not set(told[0]) & set(told[1])
    assert not set(told[0]) & set(scenes[0])
    assert len(set(told[0])) == 50


def test_the_place_of_an_episode_does_not_tell_its_start_state(service: Service) -> None:
    service.benchmark(plan=MATCHED)
    kim, worker = service.token('kim', 'submitter'), service.worker()
    orders = []
    for name in ('one', 'two'):
        submission, order = service.submit(kim, name), []
        for _ in range(24):
            lease = service.lease(submission, kim)
            assert lease is not None
            assert set(lease) == {'lease_id', 'worker_address', 'token', 'expires_at'}
            planned = worker.job(lease['lease_id']).planned()
            order.append((planned.task, planned.instance))
            worker.finish(lease['lease_id'])
        orders.append(order)
    assert sorted(orders[0]) == sorted(orders[1])  # every submission meets every start state
    assert orders[0] != orders[1]


def test_start_states_are_on_show_once_the_benchmark_is_closed(service: Service) -> None:
    service.benchmark()
    kim, worker = service.token('kim', 'submitter', 'reader'), service.worker()
    submission = service.submit(kim)
    service.run_all(submission, kim, worker, SUCCESS)

    def told() -> tuple[list[object], list[object]]:
        episodes = service.ok('GET', f'/submissions/{submission}/episodes', kim)
        paths = [f'/submissions/{submission}/episodes/{e["episode_id"]}/bundle' for e in episodes]
        bundles = [unpack_bundle(service.ask('GET', path, kim).content) for path in paths]
        return [e['instance'] for e in episodes], [b.episode.seed for b in bundles]

    assert told() == ([None, None], [None, None])
    service.ok('POST', '/benchmarks/reach/close', service.admin, {'why': 'done'})
    instances, seeds = told()
    assert sorted(instances) == [0, 1]
    assert None not in seeds


# --- names


def test_an_admin_is_not_told_the_name_of_a_blinded_submission_by_any_route(service: Service) -> None:
    service.benchmark(mode='trial', arms=2)
    kim, lee, worker = service.token('kim', 'submitter'), service.token('lee', 'submitter'), service.worker()
    ids = {service.submit(kim, 'sesame'): kim, service.submit(lee, 'poppy'): lee}
    for _ in range(2):
        for submission, owner in ids.items():
            lease = service.lease(submission, owner)
            if lease is not None:
                worker.finish(lease['lease_id'])
    paths = [
        '/submissions', *(f'/submissions/{i}' for i in ids), *(f'/submissions/{i}/score' for i in ids), '/workers',
        '/queue', '/benchmarks', '/benchmarks/reach', '/benchmarks/reach/leaderboard', '/audit?limit=1000', '/users',
        '/tokens', *(f'/submissions/{i}/episodes' for i in ids),
    ]  # fmt: skip
    for path in paths:
        answer = service.ask('GET', path, service.admin)
        assert 'sesame' not in answer.text, path
        assert 'poppy' not in answer.text, path
    assert {s['name'] for s in service.ok('GET', '/submissions', kim)} == {'sesame'}  # its owner knows
    service.ok('POST', '/benchmarks/reach/close', service.admin, {'why': 'done'})
    assert {s['name'] for s in service.ok('GET', '/submissions', service.admin)} == {'sesame', 'poppy'}


def test_an_admin_who_cancels_a_blinded_submission_is_not_told_its_name(service: Service) -> None:
    service.benchmark(mode='trial', arms=3)
    kim = service.token('kim', 'submitter')
    submission = service.submit(kim, 'sesame')
    answer = service.ok('POST', f'/submissions/{submission}/cancel', service.admin)
    assert answer['state'] == 'cancelled'
    assert 'sesame' not in json.dumps(answer)
