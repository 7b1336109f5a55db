"""What whoever has a server's folder can do without the server: tokens, and a check of everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from sqlalchemy import select

from robotrials.errors import InputError, UnknownName
from robotrials.record import Store
from robotrials.service.platform.access import Scope, add_user, issue_token
from robotrials.service.platform.benchmark import store_path
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.database import Database, ServerClock
from robotrials.service.platform.intake import ENDING
from robotrials.service.platform.migration import migrate
from robotrials.service.platform.private import make_private_folder
from robotrials.service.platform.table import Benchmark, Job, Lease, User
from robotrials.service.platform.trail import check_trail

DAY_S = 86_400.0


def issue_offline(config: PlatformConfig, *, user: str, scopes: Iterable[str], days: float | None) -> str:
    """A token's text; the user is added if new."""
    if days is not None and not days > 0:
        raise InputError(f'days is {days}, wanted > 0')
    known = [s.value for s in Scope]
    for scope in scopes:
        if scope not in known:
            raise UnknownName('scope', scope, known)
    make_private_folder(config.folder)
    database = Database(config.url, clock=ServerClock())
    try:
        migrate(database.engine)
        with database.write('command line') as session:
            now = database.clock()
            owner = session.scalar(select(User).where(User.name == user))
            if owner is None:
                owner = add_user(session, user, quota=config.quota, now=now)
            lives_s = None if days is None else days * DAY_S
            wanted = [Scope(s) for s in scopes]
            return issue_token(session, owner, wanted, label='command line', now=now, lives_s=lives_s)[1]
    finally:
        database.close()


def check_offline(config: PlatformConfig, *, tell: Callable[[str], None]) -> list[str]:
    """What does not fit together: in the audit trail, or between queue and stores. Best asked while no server runs."""
    database = Database(config.url, clock=ServerClock())
    try:
        with database.read() as session:
            trail = check_trail(session)
            problems = [] if trail.is_whole else [f'audit: entry {trail.broken_at}: {trail.why}']
            tell(f'audit: {trail.n_entries} entries, head {trail.head}')
            for benchmark in session.scalars(select(Benchmark).order_by(Benchmark.name)):
                rows = session.execute(
                    select(Job.episode_id, Lease.attempt, Lease.state)
                    .join(Lease, Lease.job_id == Job.id)
                    .where(Job.benchmark_id == benchmark.id, Lease.state.in_(('done', 'failed', *ENDING)))
                )
                settled = [(row[0], row[1], row[2]) for row in rows]
                recorded = _recorded(config, benchmark)
                tell(f'{benchmark.name}: {len(settled)} attempts, {sum(recorded.values())} on record')
                problems += _compared(benchmark.name, settled, recorded)
            return problems
    finally:
        database.close()


def _recorded(config: PlatformConfig, benchmark: Benchmark) -> Counter[tuple[str, int]]:
    """How often each attempt lies in the store."""
    path = store_path(config.folder, benchmark)
    if not (path / 'trial.json').exists():
        return Counter()
    store = Store.open(path)
    return Counter(e.key for part in store.parts() for e in store.recorded(part))


def _compared(name: str, settled: Iterable[tuple[str, int, str]], recorded: Counter[tuple[str, int]]) -> list[str]:
    rows = [((episode_id, attempt), state) for episode_id, attempt, state in settled]
    ended = {key for key, state in rows if state not in ENDING}
    known = {key for key, _ in rows}
    problems = [f'{name}: {key[0]} attempt {key[1]} was settled and is not on record' for key in ended - set(recorded)]
    problems += [
        f'{name}: {key[0]} attempt {key[1]} is on record, and no lease led to it' for key in set(recorded) - known
    ]
    return problems + [
        f'{name}: {key[0]} attempt {key[1]} is {n} times on record' for key, n in recorded.items() if n > 1
    ]
