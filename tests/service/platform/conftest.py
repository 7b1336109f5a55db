"""A platform for the tests: on SQLite in this process, and on a PostgreSQL that the tests start themselves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.platform.service import Service, make_service
from tests.service.postgres import new_database, started_postgres

from robotrials.errors import SetupError


@pytest.fixture(scope='session')
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL on loopback; skips without its programs, or fails under CI."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(started_postgres())
        except SetupError as error:
            if os.environ.get('CI') == 'true':
                pytest.fail(str(error))
            pytest.skip(str(error))
        yield url


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A platform on SQLite with an admin."""
    with make_service(tmp_path / 'platform') as made:
        yield made


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.platform)])
def database_url(request: pytest.FixtureRequest) -> str:
    """'' for SQLite, or a new PostgreSQL database: what is tested with it holds on both."""
    return '' if request.param == 'sqlite' else new_database(request.getfixturevalue('postgres'))


@pytest.fixture
def each_service(tmp_path: Path, database_url: str) -> Iterator[Service]:
    """A platform on each kind of database."""
    with make_service(tmp_path / 'platform', database=database_url) as made:
        yield made
