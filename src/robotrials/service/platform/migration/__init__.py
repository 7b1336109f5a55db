"""The database's schema, step by step: Alembic's revisions, shipped with the package and run at every start."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from robotrials.errors import StoreError


def _config() -> Config:
    config = Config()
    config.set_main_option('script_location', str(Path(__file__).parent).replace('%', '%%'))
    return config


def newest_revision() -> str:
    """The revision that this robotrials works with."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ''


def known_revisions() -> set[str]:
    """Every revision up to the newest."""
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def current_revision(engine: Engine) -> str:
    """The revision that a database is at; '' for an empty one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() or ''


def migrate(engine: Engine) -> None:
    """Bring a database to the newest revision, in one transaction; one of a later robotrials is refused."""
    current = current_revision(engine)
    if current and current not in known_revisions():
        raise StoreError(
            f'the database is at revision {current}, which this robotrials does not know; upgrade robotrials'
        )
    if not current and inspect(engine).has_table('submissions'):
        raise StoreError('the database has tables of these names that are not ours; give an empty one')
    config = _config()
    with engine.connect().execution_options(immediate=True) as connection, connection.begin():
        config.attributes['connection'] = connection
        command.upgrade(config, 'head')
