"""An admin's routes: users, tokens, benchmarks, the audit trail."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from robotrials.run.plan import plan_from_json
from robotrials.service.platform.access import add_user, disable_user, find_user, issue_token, revoke_token, set_quota
from robotrials.service.platform.benchmark import close_benchmark, declare, find_benchmark, start_trial
from robotrials.service.platform.config import Quota
from robotrials.service.platform.job import benchmark_slots
from robotrials.service.platform.route.common import (
    AnAdmin,
    AReader,
    BenchmarkName,
    Id,
    ThePlatform,
    UserName,
    refusals,
)
from robotrials.service.platform.schema import (
    AuditOut,
    BenchmarkIn,
    BenchmarkOut,
    CloseIn,
    PriorityIn,
    QuotaIn,
    TokenIn,
    TokenIssued,
    TokenOut,
    TrailOut,
    UserIn,
    UserOut,
)
from robotrials.service.platform.score import Board
from robotrials.service.platform.submission import find_submission
from robotrials.service.platform.table import BenchmarkRow, Submission, Token, User, check_trail, note, read_trail

router = APIRouter()
Filter = Annotated[str | None, Query(max_length=200, pattern=r'^[^\x00]*$')]


# --- users and tokens


def _user(user: User) -> UserOut:
    return UserOut.of(user, quota=QuotaIn.model_validate(user, from_attributes=True))


def _token(token: Token) -> TokenOut:
    return TokenOut.of(token, user=token.user.name, scopes=token.scopes.split())


@router.post('/users', status_code=201, tags=['admin'], responses=refusals(409))
def post_user(body: UserIn, caller: AnAdmin, platform: ThePlatform) -> UserOut:
    """Add a user; give them tokens next."""
    with platform.database.write(caller.actor) as session:
        return _user(add_user(session, body.name, quota=platform.config.quota, now=platform.clock()))


@router.get('/users', tags=['admin'], responses=refusals())
def get_users(caller: AnAdmin, platform: ThePlatform) -> list[UserOut]:
    """Every user."""
    with platform.database.read() as session:
        return [_user(user) for user in session.scalars(select(User).order_by(User.name))]


@router.put('/users/{name}/quota', tags=['admin'], responses=refusals(404))
def put_quota(name: UserName, body: QuotaIn, caller: AnAdmin, platform: ThePlatform) -> UserOut:
    """Set what a user may ask for."""
    with platform.database.write(caller.actor) as session:
        return _user(set_quota(session, name, Quota(**body.model_dump())))


@router.post('/users/{name}/disable', tags=['admin'], responses=refusals(404))
def post_disable(name: UserName, caller: AnAdmin, platform: ThePlatform) -> UserOut:
    """End all of a user's tokens at once; their submissions stay."""
    with platform.database.write(caller.actor) as session:
        return _user(disable_user(session, name, now=platform.clock()))


@router.post('/tokens', status_code=201, tags=['admin'], responses=refusals(404))
def post_token(body: TokenIn, caller: AnAdmin, platform: ThePlatform) -> TokenIssued:
    """Issue a token. Its text is in this answer and nowhere else."""
    with platform.database.write(caller.actor) as session:
        user = find_user(session, body.user)
        token, text = issue_token(
            session, user, body.scopes, label=body.label, now=platform.clock(), lives_s=body.lives_s
        )
        return TokenIssued(**_token(token).model_dump(), token=text)


@router.get('/tokens', tags=['admin'], responses=refusals())
def get_tokens(caller: AnAdmin, platform: ThePlatform) -> list[TokenOut]:
    """Every token, without its text."""
    with platform.database.read() as session:
        return [_token(token) for token in session.scalars(select(Token).order_by(Token.created_at, Token.id))]


@router.post('/tokens/{token_id}/revoke', tags=['admin'], responses=refusals(404))
def post_revoke(token_id: Id, caller: AnAdmin, platform: ThePlatform) -> TokenOut:
    """End a token now."""
    with platform.database.write(caller.actor) as session:
        return _token(revoke_token(session, token_id, now=platform.clock()))


# --- benchmarks


def shown_benchmark(session: Session, benchmark: BenchmarkRow) -> BenchmarkOut:
    plan = plan_from_json(benchmark.plan)
    n = session.scalar(select(func.count()).select_from(Submission).where(Submission.benchmark_id == benchmark.id))
    return BenchmarkOut.of(
        benchmark, tasks=[t.name for t in plan.tasks], strata=[s.name for s in plan.strata],
        conditions=sorted({cell.condition.name for cell in plan.cells()}), answer_s=plan.watchdog.policy_s,
        thinking_s=plan.watchdog.thinking_s, n_episodes=len(benchmark_slots(benchmark.plan)), n_submissions=n or 0,
        reference=benchmark.reference if benchmark.state == 'closed' else '',
    )  # fmt: skip


@router.post('/benchmarks', status_code=201, tags=['benchmarks'], responses=refusals(409))
def post_benchmark(body: BenchmarkIn, caller: AnAdmin, platform: ThePlatform) -> BenchmarkOut:
    """Declare a benchmark: a plan without policies, open to submissions or a blinded trial."""
    with platform.database.write(caller.actor) as session:
        made = declare(session, body, platform.config, now=platform.clock())
        session.flush()
        return shown_benchmark(session, made)


@router.get('/benchmarks', tags=['benchmarks'], responses=refusals())
def get_benchmarks(caller: AReader, platform: ThePlatform) -> list[BenchmarkOut]:
    """Every benchmark."""
    with platform.database.read() as session:
        return [shown_benchmark(session, b) for b in session.scalars(select(BenchmarkRow).order_by(BenchmarkRow.name))]


@router.get('/benchmarks/{name}', tags=['benchmarks'], responses=refusals(404))
def get_benchmark(name: BenchmarkName, caller: AReader, platform: ThePlatform) -> BenchmarkOut:
    """One benchmark."""
    with platform.database.read() as session:
        return shown_benchmark(session, find_benchmark(session, name))


@router.post('/benchmarks/{name}/start', tags=['benchmarks'], responses=refusals(404, 409))
def post_start(name: BenchmarkName, caller: AnAdmin, platform: ThePlatform) -> BenchmarkOut:
    """Start a trial with the arms that are in."""
    with platform.database.write(caller.actor) as session:
        benchmark = find_benchmark(session, name, lock=True)
        start_trial(session, benchmark, now=platform.clock())
        return shown_benchmark(session, benchmark)


@router.post('/benchmarks/{name}/close', tags=['benchmarks'], responses=refusals(404, 409))
def post_close(name: BenchmarkName, body: CloseIn, caller: AnAdmin, platform: ThePlatform) -> BenchmarkOut:
    """Close a benchmark for good; a trial is unblinded."""
    with platform.database.write(caller.actor) as session:
        benchmark = find_benchmark(session, name, lock=True)
        close_benchmark(session, benchmark, by=caller.user, why=body.why, now=platform.clock())
        answer = shown_benchmark(session, benchmark)
    platform.intake.open_finished()
    return answer


@router.get('/benchmarks/{name}/leaderboard', tags=['benchmarks'], responses=refusals(404))
def get_leaderboard(
    name: BenchmarkName, caller: AReader, platform: ThePlatform, task: Filter = None, stratum: Filter = None,
    condition: Filter = None,
) -> Board:  # fmt: skip
    """The leaderboard: of an open benchmark its finished submissions, of a trial its arms once it is closed."""
    asked = {'task': task, 'stratum': stratum, 'condition': condition}
    with platform.database.read() as session:
        benchmark = find_benchmark(session, name)
        return platform.scores.board(session, benchmark, where={k: v for k, v in asked.items() if v})


@router.put('/submissions/{submission_id}/priority', tags=['admin'], responses=refusals(404))
def put_priority(submission_id: Id, body: PriorityIn, caller: AnAdmin, platform: ThePlatform) -> dict[str, int]:
    """Set the priority that the strategy `priority` goes by."""
    with platform.database.write(caller.actor) as session:
        submission = find_submission(session, caller, submission_id, lock=True)
        submission.priority = body.priority
        note(session, 'submission.priority', submission.id, priority=body.priority)
    return {'priority': body.priority}


# --- the audit trail


@router.get('/audit', tags=['audit'], responses=refusals())
def get_audit(
    caller: AnAdmin, platform: ThePlatform, after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[AuditOut]:  # fmt: skip
    """Entries of the audit trail, oldest first."""
    with platform.database.read() as session:
        entries = read_trail(session, after=after, limit=limit)
        return [AuditOut.of(entry, detail=json.loads(entry.detail)) for entry in entries]


@router.get('/audit/check', tags=['audit'], responses=refusals())
def get_audit_check(caller: AnAdmin, platform: ThePlatform) -> TrailOut:
    """Whether the chain is whole."""
    with platform.database.read() as session:
        return TrailOut.of(check_trail(session))
