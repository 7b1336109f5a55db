"""One server on one folder: what it is made of, how it starts, what it does between requests, how it ends."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from robotrials.errors import WriteError
from robotrials.old_name import METRIC_PREFIX
from robotrials.record.folder import held_lock
from robotrials.service.platform.access import RateLimiter, Refusal, Scope, add_user, issue_token
from robotrials.service.platform.cells import forget_foreign, mark_lost
from robotrials.service.platform.config import PlatformConfig, WorkerKeys, make_private_file, make_private_folder
from robotrials.service.platform.database import DISK_FULL, Database, Outage, ServerClock
from robotrials.service.platform.lease import LeaseEnds, expired_leases
from robotrials.service.platform.migration import migrate
from robotrials.service.platform.score import Scores
from robotrials.service.platform.submission import cancel_absent
from robotrials.service.platform.table import JobRow, Lease, User, WorkerRow, trail_length

# What Prometheus can ask of a server. No label names a user, a submission or a policy.


class Metrics:
    """A registry of its own, so that several servers can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            f'{METRIC_PREFIX}_requests_total',
            'Requests answered.',
            ['method', 'route', 'status'],
            registry=self.registry,
        )
        self.request_s = Histogram(
            f'{METRIC_PREFIX}_request_seconds', 'Time to answer a request.', ['route'], registry=self.registry
        )
        self.ended = Counter(
            f'{METRIC_PREFIX}_leases_ended_total', 'Leases by how they ended.', ['how'], registry=self.registry
        )
        self.sweep_errors = Counter(
            f'{METRIC_PREFIX}_sweep_errors_total', 'Sweeps that failed.', registry=self.registry
        )
        self._jobs = Gauge(f'{METRIC_PREFIX}_jobs', 'Jobs by state.', ['state'], registry=self.registry)
        self._leases = Gauge(f'{METRIC_PREFIX}_leases', 'Leases by state.', ['state'], registry=self.registry)
        self._workers = Gauge(f'{METRIC_PREFIX}_workers', 'Workers by state.', ['state'], registry=self.registry)
        self._heard = Gauge(
            f'{METRIC_PREFIX}_worker_heartbeat_age_seconds', 'Since a worker was last heard of.', ['worker'],
            registry=self.registry,
        )  # fmt: skip
        self._audit = Gauge(f'{METRIC_PREFIX}_audit_entries', 'Entries of the audit trail.', registry=self.registry)

    def text(self, database: Database) -> bytes:
        """The state of now in Prometheus' text format."""
        with database.read() as session:
            for gauge, table in ((self._jobs, JobRow), (self._leases, Lease), (self._workers, WorkerRow)):
                gauge.clear()
                for state, n in session.execute(select(table.state, func.count()).group_by(table.state)):
                    gauge.labels(state).set(n)
            self._heard.clear()
            for name, heard_at in session.execute(select(WorkerRow.name, WorkerRow.heard_at)):
                self._heard.labels(name).set(max(0.0, database.clock() - heard_at))
            self._audit.set(trail_length(session))
        return generate_latest(self.registry)


log = logging.getLogger('robotrials.service.platform')
LOCK = '.serve.lock'
FIRST_ADMIN, FIRST_TOKEN = 'admin', 'first-admin-token'


class Platform:
    """Everything that requests need. One process answers for a folder: it holds the folder's lock."""

    def __init__(self, config: PlatformConfig, *, clock: Callable[[], float] | None = None) -> None:
        self.config = config
        self.clock = clock or ServerClock()
        make_private_folder(config.folder)
        self._held = contextlib.ExitStack()
        self._held.enter_context(
            held_lock(config.folder, LOCK, busy='another server is running on this folder; stop it first')
        )
        try:
            self.database = Database(config.url, clock=self.clock)
            self._held.callback(self.database.close)
            migrate(self.database.engine)
            self.keys = WorkerKeys(config.folder)
            with self.database.write() as session:
                forget_foreign(session, self.keys)
            self.metrics = Metrics()
            self.limiter = RateLimiter()
            self.intake = LeaseEnds(config, self.database)
            self.scores = Scores(config.folder, self.intake.quarantine)
            self.intake.quarantine.look()
            self.n_recovered = self.intake.recover()
        except BaseException:
            self._held.close()
            raise
        self.is_draining = False
        self._started_at = self.clock()
        self.outage = Outage(self.clock)
        self._stop = threading.Event()
        self._sweeper: threading.Thread | None = None

    def first_token(self) -> str | None:
        """The first admin's token, if there is no user yet; it is told once."""
        with self.database.write() as session:
            if session.query(User).first() is not None:
                return None
            user = add_user(session, FIRST_ADMIN, quota=self.config.quota, now=self.clock())
            _, text = issue_token(session, user, [Scope.ADMIN], label='first', now=self.clock(), lives_s=None)
            return text

    def write_first_token(self) -> Path | None:
        """Put the first admin's token into a file of our own account, if there is no user yet; where it is."""
        path = self.config.folder / FIRST_TOKEN
        token = self.first_token()
        if token is None:
            return None
        path.unlink(missing_ok=True)  # of another database
        make_private_file(path, f'{token}\n'.encode())
        return path

    def sweep(self) -> None:
        """End leases whose time is up, mark silent workers and absent clients, take up what a full disk interrupted."""
        with self.database.read() as session:
            over = expired_leases(session, self.config, now=self.clock())
        for lease in over:
            if self.intake.fail(lease.lease_id, lease.reason, kind=lease.kind) is not None:
                self.metrics.ended.labels('expired' if lease.was_begun else 'unclaimed').inc()
        with self.database.write() as session:
            now = self.clock()
            mark_lost(session, self.config, now=now)
            cancel_absent(
                session, absence_s=self.config.absence_s, since=self._started_at, now=now,
                quarantined=self.intake.quarantine.benchmark_ids,
            )  # fmt: skip
        self.intake.retry_storing(older_than_s=0.0)
        self.intake.open_finished()

    def begin_sweeping(self) -> None:
        self._sweeper = threading.Thread(target=self._sweep_on, name='sweeper', daemon=True)
        self._sweeper.start()

    def _sweep_on(self) -> None:
        while not self._stop.wait(self.config.sweep_s):
            try:
                begun = self.outage.begun
                if begun:  # nobody's lease runs out for that
                    self.intake.check_room()
                    self.intake.renew_leases()
                self.sweep()
                self.outage.over(begun)
            except DBAPIError as error:
                self.metrics.sweep_errors.inc()
                self.outage.note(error)
            except (Refusal, WriteError) as error:
                self.metrics.sweep_errors.inc()
                if isinstance(error, WriteError) or error.code == DISK_FULL:
                    self.outage.note_full(error)
                else:
                    log.warning('sweep', extra={'fields': {'code': error.code}})
            except Exception:
                self.metrics.sweep_errors.inc()
                log.exception('sweep failed')

    def close(self) -> None:
        self._stop.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout=30.0)
        self._held.close()
