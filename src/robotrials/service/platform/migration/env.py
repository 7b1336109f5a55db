"""Alembic's own entry: it runs the revisions on the connection that `migrate` hands over."""

from alembic import context

from robotrials.service.platform.table import Base

connection = context.config.attributes['connection']
context.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
