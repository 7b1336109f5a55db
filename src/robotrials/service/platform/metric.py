"""What Prometheus can ask of a server. No label names a user, a submission or a policy."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import func, select

from robotrials.old_name import METRIC_PREFIX
from robotrials.service.platform.database import Database
from robotrials.service.platform.table import Job, Lease, Worker
from robotrials.service.platform.trail import trail_length


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
            for gauge, table in ((self._jobs, Job), (self._leases, Lease), (self._workers, Worker)):
                gauge.clear()
                for state, n in session.execute(select(table.state, func.count()).group_by(table.state)):
                    gauge.labels(state).set(n)
            self._heard.clear()
            for name, heard_at in session.execute(select(Worker.name, Worker.heard_at)):
                self._heard.labels(name).set(max(0.0, database.clock() - heard_at))
            self._audit.set(trail_length(session))
        return generate_latest(self.registry)
