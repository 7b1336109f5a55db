"""What requests and answers look like: the words of the OpenAPI description."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from robotrials.service.platform.access import Scope
from robotrials.service.platform.config import Strategy
from robotrials.service.platform.score import Value

LONGEST_TEXT = 2000
DEEPEST = 12
Name = Annotated[
    str,
    Field(
        pattern=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$',
        description='1 to 63 letters, digits, dots, dashes or underscores, beginning with a letter or digit.',
        examples=['reach-v1'],
    ),
]
UnixS = Annotated[float, Field(description="Unix seconds by the server's clock.")]


class Asked(BaseModel):
    model_config = ConfigDict(extra='forbid', allow_inf_nan=False)


class Shown(BaseModel):
    """What is shown of a row of the database."""

    @classmethod
    def of(cls, row: object, **values: Any) -> Self:
        """These values, and every other field as the row has it."""
        own = {name: getattr(row, name) for name in cls.model_fields if name not in values}
        return cls.model_validate({**own, **values})


class Problem(BaseModel):
    code: str = Field(description='What went wrong, for programs.', examples=['wrong_scope'])
    message: str = Field(description='What went wrong and what to do, for people.')


class ProblemBody(BaseModel):
    """Every refusal looks like this, whatever its status."""

    error: Problem


# --- submissions


def _storable(value: Any) -> Any:
    """Free-form JSON, held to a size, a depth and to text that a database can store."""
    text = json.dumps(value)
    if len(text) > 100_000:
        raise ValueError('more than 100000 characters')
    if '\\u0000' in text or any(f'\\ud{d}' in text.lower() for d in '89abcdef'):
        raise ValueError('holds a character that cannot be stored')
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f'nested deeper than {DEEPEST} levels')
        inner: list[Any] = []
        for item in level:
            inner += item.values() if isinstance(item, dict) else item if isinstance(item, list) else []
        level = [i for i in inner if isinstance(i, dict | list)]
    return value


class DialIn(Asked):
    """A policy server that the platform dials."""

    use: str = Field(description='The wire: openpi, groot, openvla, positronic, roboarena or vla-eval.', max_length=40)
    options: dict[str, Any] = Field(description='Its options; `url` is required, and must be allowed by the server.')
    execute: int | None = Field(None, ge=1, le=10_000, description='How many actions of each chunk are executed.')

    _options = field_validator('options')(_storable)


class SubmissionIn(Asked):
    client_key: str = Field(
        min_length=1, max_length=200, pattern=r'^[\x21-\x7e]+$',
        description='Chosen by the client; the same key with the same content is the same submission.',
    )  # fmt: skip
    benchmark: Name
    name: Name
    card: dict[str, Any] = Field(default_factory=dict, description="What is known of the policy's making.")
    dial: DialIn | None = Field(None, description='Absent: the client connects to the cells itself.')
    fingerprint: str = Field(
        default='', max_length=64, pattern='^[0-9a-f]*$',
        description='Of the policy and its options on the client; another one under the same key is refused.',
    )  # fmt: skip

    _card = field_validator('card')(_storable)


class SubmissionOut(Shown):
    id: str
    benchmark: str
    name: str = Field(description='Empty for anyone but its owner until its blinding ends.')
    user: str
    kind: str = Field(description='client or dial.')
    state: str = Field(
        description='waiting (its trial has not started), queued (running, or waiting for a cell), finished, cancelled.'
    )
    jobs: dict[str, int] = Field(description='How many episodes are in each state.')
    n_jobs: int
    under_way: list[int] = Field(description='Control steps so far of each episode under way.')
    is_open: bool = Field(description='Whether its results may be seen.')
    created_at: UnixS
    finished_at: float | None
    reason: str = Field(description='Why it was ended before its time.')


class LeaseOut(BaseModel):
    """Get_Worker: connect to `worker_address` and show the token there."""

    lease_id: str
    worker_address: str
    token: str = Field(description='Good for one connection, until `expires_at`.')
    expires_at: UnixS


class WaitOut(BaseModel):
    """No cell is free for this submission yet: ask again."""

    retry_after_s: float
    place_in_queue: int = Field(description='Submissions before this one.')
    note: str = Field('', description='Why it may take long, if it may.')


class JobResult(BaseModel):
    number: int
    state: str
    task: str
    stratum: str
    condition: str
    outcome: str
    reason: str
    episode_id: str


class ScoreOut(BaseModel):
    """Get_Score. While blinded: counts only."""

    state: str
    is_open: bool
    is_due: bool = Field(default=False, description='It is over and nothing withholds it: it opens within moments.')
    jobs: dict[str, int]
    values: dict[str, Value] = Field(description='hrt, success, safety, sbu, vsi, expected_iou.')
    letters: str = Field(description='Policies that share a letter are not significantly different.')
    results: list[JobResult]
    note: str


class EpisodeOut(Shown):
    episode_id: str
    attempt: int
    task: str
    stratum: str
    condition: str
    instance: int | None = Field(description='Of its start state; told once the benchmark is closed.')
    outcome: str
    reason: str
    duration_s: float | None
    success: bool | None
    score: float | None


# --- workers


class WorkerIn(Asked):
    name: Name
    host: str = Field(min_length=1, max_length=200, pattern=r'^[A-Za-z0-9._:-]+$', description='As plans name it.')
    address: str = Field(
        max_length=200, pattern=r'^wss?://[^\s\x00]+$', description='Where clients reach it: ws://HOST:PORT.'
    )
    protocol: int = Field(ge=1, le=1000)
    key: str = Field(pattern='^[0-9a-f]{64}$', description='The Ed25519 key that its results are signed with, in hex.')
    spec: dict[str, Any] | None = Field(None, description="Its host's conventions, tasks and conditions, if it says.")

    _spec = field_validator('spec')(_storable)


class WorkerRegistered(BaseModel):
    worker_id: str
    secret: str = Field(description="Signs its leases' tokens; told once.")
    heartbeat_s: float
    lease_s: float
    now: UnixS
    most_bundle_bytes: int = Field(description='The largest result that is taken.')
    dial_allow: list[str] = Field(description='HOST:PORT patterns that a cell may dial.')
    private_addresses: list[str] = Field(description='Networks of private addresses that it may dial.')


class HeartbeatIn(Asked):
    state: Literal['idle', 'busy', 'draining', 'out_of_service']
    lease_id: str | None = Field(None, max_length=60)
    step: int | None = Field(None, ge=0, le=1_000_000_000, description='Control steps of the episode so far.')
    note: str = Field('', max_length=LONGEST_TEXT, pattern=r'^[^\x00]*$')


class HeartbeatOut(BaseModel):
    leases: list[str] = Field(description='Leases that hold; an episode of any other is to be ended.')
    commands: list[Literal['drain', 'stop', 'resume']]
    expires_at: float | None
    now: UnixS


class JobOut(BaseModel):
    """All that a worker needs to run an attempt."""

    job_id: str
    plan: str
    slot: int
    attempt: int
    code: str
    blinded: bool
    dial: dict[str, Any] | None


class NextOut(BaseModel):
    lease_id: str
    job: JobOut
    expires_at: UnixS


class FaultIn(Asked):
    kind: str = Field(
        '', max_length=60,
        description='host crash, host hang, host answer, worker death, policy hang, turned away (before it was begun), '
        'not begun, or impossible (for this cell).',
    )  # fmt: skip
    reason: str = Field(min_length=1, max_length=LONGEST_TEXT, pattern=r'^[^\x00]+$')


class CellOut(Shown):
    """A cell as operators see it: never with the name of a policy."""

    id: str
    name: str
    host: str
    state: str
    wanted: str
    note: str
    heartbeat_age_s: float
    utilisation: float = Field(description='Share of the time since it registered in which it had a lease.')
    code: str = Field(description='Of the submission under way.')
    benchmark: str
    step: int
    running_s: float | None


class QueueEntry(BaseModel):
    place: int
    benchmark: str
    code: str
    kind: str


class QueueOut(BaseModel):
    waiting: list[QueueEntry]
    jobs: dict[str, int]


# --- administration


class UserIn(Asked):
    name: Name


class QuotaIn(Asked):
    open_submissions: int = Field(ge=1, le=100_000)
    submissions_per_day: int = Field(ge=1, le=1_000_000)
    requests_per_minute: int = Field(ge=1, le=10_000_000)


class UserOut(Shown):
    id: str
    name: str
    created_at: UnixS
    disabled_at: float | None
    quota: QuotaIn


class TokenIn(Asked):
    user: Name
    scopes: list[Scope] = Field(min_length=1, max_length=5)
    label: str = Field('', max_length=200, pattern=r'^[^\x00]*$')
    lives_s: float | None = Field(None, gt=0, le=10 * 366 * 86_400, description='Absent: until it is revoked.')


class TokenOut(Shown):
    id: str
    user: str
    scopes: list[str]
    label: str
    created_at: UnixS
    expires_at: float | None
    revoked_at: float | None


class TokenIssued(TokenOut):
    token: str = Field(description='Shown this once.')


class BenchmarkIn(Asked):
    name: Name
    plan: str = Field(max_length=1 << 19, pattern=r'^[^\x00]*$', description='TOML: a plan without [policies].')
    mode: Literal['open', 'trial'] = 'open'
    strategy: Strategy | None = Field(None, description="The server's default unless given.")
    arms: int | None = Field(None, ge=2, le=1000, description='A trial starts when this many submissions are in.')
    unchecked: bool = Field(False, description='Declare it although no registered cell says that it can run it.')
    reference: str = Field(
        '', max_length=130, pattern=r'^([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)?$',
        description='USER/NAME of the submission that HRT is measured against.',
    )  # fmt: skip


class BenchmarkOut(Shown):
    name: str
    mode: str
    state: str
    strategy: str
    host: str
    tasks: list[str]
    conditions: list[str]
    strata: list[str]
    n_episodes: int = Field(description='Per submission.')
    n_submissions: int
    answer_s: float = Field(description='In which a policy has to give one answer.')
    thinking_s: float | None = Field(description='For all answers of one episode together.')
    arms: int | None
    reference: str
    created_at: UnixS
    closed_at: float | None


class CloseIn(Asked):
    why: str = Field(
        '', max_length=LONGEST_TEXT, pattern=r'^[^\x00]*$', description='Required while episodes are left.'
    )


class VoidIn(Asked):
    code: str = Field(max_length=40, pattern=r'^[^\x00]+$', description='Of the submission, as the queue names it.')
    why: str = Field(min_length=1, max_length=LONGEST_TEXT, pattern=r'^[^\x00]+$', description='Shown on the board.')


class PriorityIn(Asked):
    priority: int = Field(ge=-1000, le=1000)


class AuditOut(Shown):
    seq: int
    at: UnixS
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    previous: str
    sha256: str


class TrailOut(Shown):
    is_whole: bool
    n_entries: int
    head: str
    broken_at: int | None
    why: str
