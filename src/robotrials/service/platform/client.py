"""Evaluating a policy on a platform, from the machine that has it.

    from robotrials.service.platform.client import evaluate
    from robotrials.run.component import open_policy
    from robotrials.run.plan import PolicyEntry

    policy = open_policy(PolicyEntry('openpi', {'url': 'ws://127.0.0.1:8000', 'preset': 'droid'}))
    done = evaluate(policy, server='http://lab:8080', token='tlt_...', benchmark='reach', name='my-policy')
    print(done.score['values'])

Anything with `spec` and `start` is a policy. The client asks the server for a cell, acts there for one episode, and
asks again, until its submission is finished. Killed and started again with the same name (or client key), it resumes.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, RobotrialsError
from robotrials.run.seam import ClosablePolicy, FittedPolicy, HostSpec, Policy, Session, check_conventions
from robotrials.service.platform.api_client import UNREACHABLE, Api, ApiError
from robotrials.service.platform.link import (
    VERSION,
    WORKER_LIMITS,
    End,
    ErrorCode,
    MessageType,
    decode,
    encode,
    encode_error,
    host_spec_from_map,
    observation_from_map,
    read_error,
    setup_from_map,
    spec_to_map,
)
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

CONNECT_S = 10.0
SEND_S = 30.0
OPENING_S = 0.5  # between questions whether the results are open
SCORE_S = 120.0  # the first one after an episode is analysed anew
SILENT_S = 3.0  # after which the server is asked whether the worker still has us
WORKER_S = 900.0  # a cell may reset for long before its first observation
PAUSE_S = (0.5, 15.0)
MOST_SETBACKS = 20  # in a row, of a kind that may pass
PATIENCE_S = sum(min(PAUSE_S[0] * 2**k, PAUSE_S[1]) for k in range(MOST_SETBACKS - 1))

Tell = Callable[[str], None]


class WorkerRefused(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """A worker hung up with an error; `code` is one of `ErrorCode`, as far as this version knows it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'{message} ({code})')
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether another lease may fare better."""
        return self.code in set(ErrorCode) and ErrorCode(self.code).is_passing


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a submission came to, as far as blinding lets it be known."""

    submission_id: str
    score: Mapping[str, Any]
    n_episodes: int  # that this call acted in
    faults: Mapping[str, int] = field(default_factory=dict)  # episodes that this policy's own faults ended, by code


class Submitter:
    """One user's view of a platform: submissions, leases and scores."""

    def __init__(self, server: str, token: str, *, tell: Tell | None = None) -> None:
        self._api, self._tell = Api(server, token), tell

    def submit(
        self, benchmark: str, *, name: str, client_key: str = '', card: Mapping[str, Any] | None = None,
        dial: Mapping[str, Any] | None = None, fingerprint: str = '',
    ) -> str:  # fmt: skip
        """Hand in a policy; the same key and content again is the same submission. Gives its id."""
        body: dict[str, Any] = {
            'client_key': client_key or default_key(benchmark, name), 'benchmark': benchmark, 'name': name,
            'card': dict(card or {}),
        }  # fmt: skip
        if dial is not None:
            body['dial'] = dict(dial)
        if fingerprint:
            body['fingerprint'] = fingerprint
        return str(self._patiently(lambda: self._api.post('/submissions', body))[1]['id'])

    def lease(self, submission_id: str) -> tuple[int, Mapping[str, Any]]:
        """Get_Worker: 200 with a lease, 202 with how long to wait, or 410 once the submission is finished."""
        try:
            return self._patiently(lambda: self._api.post(f'/submissions/{submission_id}/lease'))
        except ApiError as error:
            if error.status == 410:
                return 410, {}
            raise

    def score(self, submission_id: str) -> Mapping[str, Any]:
        """Get_Score; of a submission that is over, once the platform has opened its results."""
        path = f'/submissions/{submission_id}/score'
        until_s = time.monotonic() + SCORE_S
        while True:
            score: Mapping[str, Any] = self._patiently(lambda: self._api.get(path, timeout_s=SCORE_S))[1]
            if not score.get('is_due') or time.monotonic() > until_s:
                return score
            time.sleep(OPENING_S)

    def state(self, submission_id: str) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._patiently(lambda: self._api.get(f'/submissions/{submission_id}'))[1]
        return state

    def cancel(self, submission_id: str) -> None:
        self._patiently(lambda: self._api.post(f'/submissions/{submission_id}/cancel'))

    def episodes(self, submission_id: str) -> list[Mapping[str, Any]]:
        episodes: list[Mapping[str, Any]] = self._patiently(
            lambda: self._api.get(f'/submissions/{submission_id}/episodes')
        )[1]
        return episodes

    def bundle(self, submission_id: str, episode_id: str) -> bytes:
        """One episode, to be read by `robotrials.service.platform.bundle.unpack_bundle`."""
        return self._api.get_bytes(f'/submissions/{submission_id}/episodes/{episode_id}/bundle')

    def close(self) -> None:
        self._api.close()

    def _patiently(self, call: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
        """The answer, through restarts of the server and its rate limit."""
        pause_s = PAUSE_S[0]
        for setback in range(MOST_SETBACKS):
            try:
                return call()
            except (ApiError, *UNREACHABLE) as error:
                is_last = setback + 1 == MOST_SETBACKS
                if is_last or (isinstance(error, ApiError) and not error.is_passing):
                    raise
                if setback == 0 and self._tell is not None:
                    self._tell(f'the platform does not answer, trying again for {PATIENCE_S / 60:.0f} minutes: {error}')
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S[1])
        raise AssertionError('unreachable')


def evaluate(
    policy: Policy, *, server: str, token: str, benchmark: str, name: str, client_key: str = '',
    card: Mapping[str, Any] | None = None, fingerprint: str = '', tell: Tell | None = None,
) -> Evaluation:  # fmt: skip
    """Submit a policy that lives in this process, act in its episodes until it is finished, and give its score.

    With a `fingerprint` of what the policy is made of, another one under the same name is refused, and not mixed up.
    """
    with contextlib.closing(Submitter(server, token, tell=tell)) as platform:
        return _evaluate(
            platform, policy, benchmark=benchmark, name=name, client_key=client_key, card=card,
            fingerprint=fingerprint, tell=tell or (lambda text: None),
        )  # fmt: skip


def _evaluate(
    platform: Submitter, policy: Policy, *, benchmark: str, name: str, client_key: str, card: Mapping[str, Any] | None,
    fingerprint: str, tell: Tell,
) -> Evaluation:  # fmt: skip
    submission_id = platform.submit(benchmark, name=name, client_key=client_key, card=card, fingerprint=fingerprint)
    tell(f'submission {submission_id}')
    leases = _Leases(platform, submission_id, tell)
    n_episodes, setbacks = 0, 0
    faults: dict[str, int] = {}
    while (lease := leases.next()) is not None:
        try:
            end = act_in_episode(policy, str(lease['worker_address']), str(lease['token']), is_over=leases.is_over)
            n_episodes, setbacks = n_episodes + 1, 0
            tell(f'episode {n_episodes}: {end.outcome or "done"} after {end.n_steps} steps')
        except WorkerRefused as error:
            tell(f'the cell hung up: {error}')
            if error.code in (ErrorCode.BAD_ACTION, ErrorCode.POLICY_FAILED):
                faults[error.code] = faults.get(error.code, 0) + 1
                n_episodes += 1
            elif not error.is_passing:
                raise
            setbacks += 1
        except (RigError, NoAnswer) as error:
            tell(f'the cell was lost: {error}')
            setbacks += 1
        if setbacks > MOST_SETBACKS:
            raise RigError(f'{setbacks} leases in a row came to nothing; see the log of the platform')
        time.sleep(min(PAUSE_S[0] * setbacks, PAUSE_S[1]))
    return Evaluation(
        submission_id=submission_id, score=platform.score(submission_id), n_episodes=n_episodes, faults=faults
    )  # fmt: skip


class _Leases:
    """The leases of one submission, one after the other."""

    def __init__(self, platform: Submitter, submission_id: str, tell: Tell) -> None:
        self._platform, self._id, self._tell = platform, submission_id, tell
        self._found: tuple[int, Mapping[str, Any]] | None = None

    def next(self) -> Mapping[str, Any] | None:
        """The next lease, however long it takes; None once the submission is finished."""
        while True:
            status, answer = self._found or self._platform.lease(self._id)
            self._found = None
            if status == 410:
                return None
            if status == 200:
                return answer
            self._tell(answer.get('note') or f'waiting for a cell, {answer.get("place_in_queue", "?")} before us')
            time.sleep(min(max(float(answer.get('retry_after_s', 1.0)), 0.05), PAUSE_S[1]))

    def is_over(self) -> bool:
        """Whether the server has given the lease at hand up: then it has another for us, or is done with us."""
        try:
            lease = self._platform.lease(self._id)
        except RobotrialsError:
            return False  # nobody to ask; the worker may well be at work
        if lease[0] == 202:
            return False
        self._found = lease
        return True


def default_key(benchmark: str, name: str) -> str:
    """A name stands for one submission to a benchmark, unless a key says otherwise."""
    return re.sub(r'[^\x21-\x7e]', '_', f'{benchmark}/{name}')


def act_in_episode(
    policy: Policy, address: str, token: str, *, connect_s: float = CONNECT_S, is_over: Callable[[], bool] | None = None
) -> End:
    """Act for one episode at a worker. RigError if it is lost on the way, WorkerRefused if the worker hangs up.

    A worker that hangs keeps its connection; `is_over` is asked, while it says nothing, whether it was given up.
    """
    try:
        link = WebSocketLink(address, deadline=Deadline.after(connect_s), limits=WORKER_LIMITS)
    except OSError as error:
        raise RigError(f'{address}: no connection ({str(error) or type(error).__name__})') from error
    with contextlib.closing(link):
        return _Conversation(link, policy, is_over or (lambda: False)).run(token)


class _Conversation:
    """The client's side of one connection."""

    def __init__(self, link: WebSocketLink, policy: Policy, is_over: Callable[[], bool]) -> None:
        self._link, self._policy, self._is_over = link, policy, is_over

    def run(self, token: str) -> End:
        self._send(encode(MessageType.BEGIN_EVAL, version=VERSION, token=token))
        _, fields = self._receive(MessageType.WELCOME)
        host = host_spec_from_map(fields.get('host'))
        self._own(lambda: self._fit(host), ErrorCode.DOES_NOT_FIT)
        self._send(encode(MessageType.POLICY, spec=spec_to_map(self._policy.spec)))
        session: Session | None = None
        try:
            while True:
                kind, fields = self._receive(MessageType.OBSERVATION, MessageType.END)
                if kind is MessageType.END:
                    return _end(fields)
                began_s = time.perf_counter()
                if session is None:  # the first question says what is to be done
                    session = self._started(fields)
                self._answer(session, fields, start_s=time.perf_counter() - began_s)
        finally:
            begun: object = session  # whatever it is, it may have an end of its own
            if isinstance(begun, ClosablePolicy):
                with contextlib.suppress(Exception):  # the episode is over and judged
                    begun.close()

    def _started(self, fields: dict[str, Any]) -> Session:
        setup = setup_from_map(fields.get('setup'))
        session: Session = self._own(lambda: self._policy.start(setup, seed=setup.seed), ErrorCode.POLICY_FAILED)
        return session

    def _answer(self, session: Session, fields: dict[str, Any], *, start_s: float) -> None:
        observation, step = observation_from_map(fields), fields['step']
        began_s = time.perf_counter()
        chunk = self._own(lambda: session.act(observation), ErrorCode.POLICY_FAILED)
        thought_s = time.perf_counter() - began_s
        inference_s = start_s + (chunk.inference_s if chunk.inference_s is not None else thought_s)
        self._send(encode(MessageType.ACTION, step=step, actions=chunk.actions, inference_s=float(inference_s)))

    def _fit(self, host: HostSpec) -> None:
        if isinstance(self._policy, FittedPolicy):
            self._policy.fit(host)
        check_conventions(host, self._policy.spec)

    def _own(self, call: Callable[[], Any], code: ErrorCode) -> Any:
        """The result of the policy's own code; if it fails, the worker is told before the error goes on."""
        try:
            return call()
        except Exception as error:
            with contextlib.suppress(RobotrialsError):
                self._link.send(encode_error(code, type(error).__name__), timeout_s=SEND_S)
            raise

    def _send(self, data: bytes) -> None:
        try:
            self._link.send(data, timeout_s=SEND_S)
        except AnswerError:
            # The worker has said something out of turn: an error, which the next receive reads.
            return

    def _next_frame(self) -> bytes | str:
        ends_s = time.monotonic() + WORKER_S
        while True:
            try:
                return self._link.receive(timeout_s=SILENT_S)
            except NoAnswer:
                if time.monotonic() > ends_s:
                    raise
                if self._is_over():
                    raise RigError(f'{self._link.url}: the server has given this lease up') from None

    def _receive(self, *wanted: MessageType) -> tuple[MessageType, dict[str, Any]]:
        try:
            kind, fields = decode(self._next_frame(), limits=WORKER_LIMITS)
        except InputError as error:
            raise RigError(f'{self._link.url}: the worker sent rubbish: {error}') from error
        if kind is MessageType.ERROR:
            problem = read_error(fields)
            raise WorkerRefused(problem.code, problem.message)
        if kind not in wanted:
            raise RigError(f'{self._link.url}: the worker sent {kind}, wanted {" or ".join(wanted)}')
        return kind, fields


def _end(fields: Mapping[str, Any]) -> End:
    n_steps = fields.get('n_steps')
    return End(
        outcome=str(fields.get('outcome', '')), reason=str(fields.get('reason', '')),
        n_steps=n_steps if isinstance(n_steps, int) else 0,
    )  # fmt: skip
