"""Benchmarks whose store is damaged are set apart: the others go on, and whoever runs the server is told once."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from sqlalchemy import select

from robotrials.errors import RobotrialsError, StoreError, WriteError
from robotrials.record import Store
from robotrials.service.platform.benchmark import store_path
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.database import Database
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.table import Benchmark
from robotrials.service.platform.trail import note

RETRY_AFTER_S = 60.0
QUARANTINED = 'quarantined'  # the code of the refusal
WAITS = 'the record of this benchmark is damaged: it waits, with nothing lost, and goes on once it is repaired'
log = logging.getLogger('robotrials.service.platform')


class Quarantine:
    """Which benchmarks cannot be read or written, and why; each is tried again, and is back once it is repaired."""

    def __init__(self, config: PlatformConfig, database: Database) -> None:
        self._config, self._database = config, database
        self._why: dict[tuple[str, str], str] = {}  # benchmark id, reading or writing -> what is wrong
        self._guard = threading.Lock()

    def why(self, benchmark: Benchmark) -> str:
        """What is wrong with a benchmark's store; empty if nothing is known to be."""
        return self._why.get((benchmark.id, 'writing')) or self._why.get((benchmark.id, 'reading'), '')

    @property
    def apart(self) -> frozenset[str]:
        """The ids of benchmarks that nothing can be added to: no cell is given to them."""
        with self._guard:
            return frozenset(benchmark_id for benchmark_id, doing in self._why if doing == 'writing')

    @contextlib.contextmanager
    def around(self, benchmark: Benchmark) -> Iterator[None]:
        """Use a benchmark's store: if that fails because the store is damaged, it is set apart, with a refusal."""
        try:
            yield
        except StoreError as error:
            if isinstance(error, WriteError) or not (damage := self._damage(benchmark)):
                raise
            self.set_apart(benchmark, 'writing', damage)
            raise Refusal(
                503, QUARANTINED, f'the store of {benchmark.name} is damaged and set apart until it is repaired; '
                'what was sent is not lost, send it again later', retry_after_s=RETRY_AFTER_S,
            ) from error  # fmt: skip
        self.bring_back(benchmark, 'writing')

    def look(self) -> None:
        """Look at every benchmark's store as a server starts: at its log, and whether its files are there."""
        with self._database.read() as session:
            benchmarks = list(session.scalars(select(Benchmark)))
        for benchmark in benchmarks:
            has_store = (store_path(self._config.folder, benchmark) / 'trial.json').exists()
            if has_store and (damage := self._damage(benchmark)):
                self.set_apart(benchmark, 'writing', damage)

    def look_again(self) -> None:
        """Bring back what was repaired meanwhile: nobody writes to a benchmark that gets no cells."""
        apart = self.apart
        if not apart:
            return
        with self._database.read() as session:
            benchmarks = list(session.scalars(select(Benchmark).where(Benchmark.id.in_(apart))))
        for benchmark in benchmarks:
            if not self._damage(benchmark):
                self.bring_back(benchmark, 'writing')

    def _damage(self, benchmark: Benchmark) -> str:
        """What is damaged in a store; empty if it is sound, so that the error was about something else."""
        path = store_path(self._config.folder, benchmark)
        try:
            store = Store.open(path)
            store.ledger()
            found = [f'{f.path}: {f.detail}' for f in store.missing() if f.is_damage]
            return '; '.join(found[:3])
        except RobotrialsError as error:
            return str(error)

    def set_apart(self, benchmark: Benchmark, doing: str, why: str) -> None:
        """Put it on record, once, in the log and in the audit trail: that is where its owner looks."""
        with self._guard:
            is_new = (benchmark.id, doing) not in self._why
            self._why[benchmark.id, doing] = why
        if is_new:
            log.error('benchmark quarantined', extra={'fields': {'benchmark': benchmark.name, 'why': why}})
            with self._database.write() as session:
                note(session, 'benchmark.quarantine', benchmark.id, name=benchmark.name, why=why)

    def bring_back(self, benchmark: Benchmark, doing: str) -> None:
        """It went well: if it did not before, that is over."""
        with self._guard:
            was_apart = self._why.pop((benchmark.id, doing), None) is not None
        if was_apart:
            log.warning('benchmark back from quarantine', extra={'fields': {'benchmark': benchmark.name}})
            with self._database.write() as session:
                note(session, 'benchmark.back', benchmark.id, name=benchmark.name)
