"""The first tables, and an audit trail that only grows."""

import sqlalchemy as sa
from alembic import op

revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


REFUSED = 'the audit trail only grows'
SQLITE = """
CREATE TRIGGER audit_no_{name} BEFORE {name} ON audit BEGIN SELECT RAISE(ABORT, '{refused}'); END
"""
POSTGRESQL = f"""
CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$;
CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
"""


def _keep_audit() -> None:
    """Let the database itself refuse to change or delete an entry."""
    if op.get_bind().dialect.name == 'postgresql':
        op.execute(POSTGRESQL)
        return
    for name in ('UPDATE', 'DELETE'):
        op.execute(SQLITE.format(name=name, refused=REFUSED))


def upgrade() -> None:
    op.create_table(
        'audit',
        sa.Column('seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
        sa.Column('at', sa.Float(precision=53), nullable=False),
        sa.Column('actor', sa.Text(), nullable=False),
        sa.Column('action', sa.Text(), nullable=False),
        sa.Column('subject', sa.Text(), nullable=False),
        sa.Column('detail', sa.Text(), nullable=False),
        sa.Column('previous', sa.String(length=64), nullable=False),
        sa.Column('sha256', sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint('seq'),
    )
    op.create_table(
        'benchmarks',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('mode', sa.String(length=16), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('strategy', sa.String(length=32), nullable=False),
        sa.Column('plan', sa.Text(), nullable=False),
        sa.Column('host', sa.Text(), nullable=False),
        sa.Column('reference', sa.Text(), nullable=False),
        sa.Column('arms', sa.Integer(), nullable=True),
        sa.Column('created_at', sa.Float(precision=53), nullable=False),
        sa.Column('closed_at', sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name'),
    )
    op.create_table(
        'users',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('created_at', sa.Float(precision=53), nullable=False),
        sa.Column('disabled_at', sa.Float(precision=53), nullable=True),
        sa.Column('open_submissions', sa.Integer(), nullable=False),
        sa.Column('submissions_per_day', sa.Integer(), nullable=False),
        sa.Column('requests_per_minute', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name'),
    )
    op.create_table(
        'submissions',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('benchmark_id', sa.String(length=40), nullable=False),
        sa.Column('user_id', sa.String(length=40), nullable=False),
        sa.Column('client_key', sa.Text(), nullable=False),
        sa.Column('content', sa.String(length=64), nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('policy', sa.Text(), nullable=False),
        sa.Column('code', sa.Text(), nullable=False),
        sa.Column('kind', sa.String(length=16), nullable=False),
        sa.Column('dial', sa.Text(), nullable=False),
        sa.Column('card', sa.Text(), nullable=False),
        sa.Column('plan', sa.Text(), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('priority', sa.Integer(), nullable=False),
        sa.Column('created_at', sa.Float(precision=53), nullable=False),
        sa.Column('asked_at', sa.Float(precision=53), nullable=True),
        sa.Column('finished_at', sa.Float(precision=53), nullable=True),
        sa.Column('opened_at', sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ['benchmark_id'],
            ['benchmarks.id'],
        ),
        sa.ForeignKeyConstraint(
            ['user_id'],
            ['users.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('benchmark_id', 'code'),
        sa.UniqueConstraint('benchmark_id', 'policy'),
        sa.UniqueConstraint('user_id', 'client_key'),
    )
    op.create_index(op.f('ix_submissions_benchmark_id'), 'submissions', ['benchmark_id'], unique=False)
    op.create_index(op.f('ix_submissions_state'), 'submissions', ['state'], unique=False)
    op.create_index(op.f('ix_submissions_user_id'), 'submissions', ['user_id'], unique=False)
    op.create_table(
        'tokens',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('user_id', sa.String(length=40), nullable=False),
        sa.Column('label', sa.Text(), nullable=False),
        sa.Column('sha256', sa.String(length=64), nullable=False),
        sa.Column('scopes', sa.Text(), nullable=False),
        sa.Column('created_at', sa.Float(precision=53), nullable=False),
        sa.Column('expires_at', sa.Float(precision=53), nullable=True),
        sa.Column('revoked_at', sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ['user_id'],
            ['users.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('sha256'),
    )
    op.create_index(op.f('ix_tokens_user_id'), 'tokens', ['user_id'], unique=False)
    op.create_table(
        'workers',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('user_id', sa.String(length=40), nullable=False),
        sa.Column('host', sa.Text(), nullable=False),
        sa.Column('address', sa.Text(), nullable=False),
        sa.Column('protocol', sa.Integer(), nullable=False),
        sa.Column('secret', sa.Text(), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('wanted', sa.String(length=16), nullable=False),
        sa.Column('note', sa.Text(), nullable=False),
        sa.Column('first_at', sa.Float(precision=53), nullable=False),
        sa.Column('registered_at', sa.Float(precision=53), nullable=False),
        sa.Column('heard_at', sa.Float(precision=53), nullable=False),
        sa.Column('idle_since', sa.Float(precision=53), nullable=True),
        sa.Column('busy_s', sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ['user_id'],
            ['users.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name'),
    )
    op.create_table(
        'jobs',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('submission_id', sa.String(length=40), nullable=False),
        sa.Column('benchmark_id', sa.String(length=40), nullable=False),
        sa.Column('slot', sa.Integer(), nullable=False),
        sa.Column('position', sa.Integer(), nullable=False),
        sa.Column('block', sa.Integer(), nullable=False),
        sa.Column('episode_id', sa.String(length=40), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('attempt', sa.Integer(), nullable=False),
        sa.Column('failed_on', sa.String(length=40), nullable=True),
        sa.Column('outcome', sa.Text(), nullable=False),
        sa.Column('reason', sa.Text(), nullable=False),
        sa.Column('updated_at', sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ['benchmark_id'],
            ['benchmarks.id'],
        ),
        sa.ForeignKeyConstraint(
            ['submission_id'],
            ['submissions.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('submission_id', 'slot'),
    )
    op.create_index(op.f('ix_jobs_episode_id'), 'jobs', ['episode_id'], unique=False)
    op.create_index('jobs_by_block', 'jobs', ['benchmark_id', 'state', 'block'], unique=False)
    op.create_index('jobs_by_place', 'jobs', ['submission_id', 'state', 'position'], unique=False)
    op.create_table(
        'leases',
        sa.Column('id', sa.String(length=40), nullable=False),
        sa.Column('job_id', sa.String(length=40), nullable=False),
        sa.Column('worker_id', sa.String(length=40), nullable=False),
        sa.Column('user_id', sa.String(length=40), nullable=False),
        sa.Column('attempt', sa.Integer(), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('granted_at', sa.Float(precision=53), nullable=False),
        sa.Column('begun_at', sa.Float(precision=53), nullable=True),
        sa.Column('expires_at', sa.Float(precision=53), nullable=False),
        sa.Column('ended_at', sa.Float(precision=53), nullable=True),
        sa.Column('digest', sa.String(length=64), nullable=False),
        sa.Column('fault', sa.Text(), nullable=False),
        sa.Column('steps', sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ['job_id'],
            ['jobs.id'],
        ),
        sa.ForeignKeyConstraint(
            ['user_id'],
            ['users.id'],
        ),
        sa.ForeignKeyConstraint(
            ['worker_id'],
            ['workers.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
    )
    op.create_index(op.f('ix_leases_job_id'), 'leases', ['job_id'], unique=False)
    op.create_index(op.f('ix_leases_worker_id'), 'leases', ['worker_id'], unique=False)
    op.create_index('leases_by_end', 'leases', ['state', 'expires_at'], unique=False)
    op.create_index('leases_by_grant', 'leases', ['granted_at'], unique=False)
    op.create_index(
        'one_live_lease_per_job',
        'leases',
        ['job_id'],
        unique=True,
        sqlite_where=sa.text("state IN ('granted', 'running', 'storing')"),
        postgresql_where=sa.text("state IN ('granted', 'running', 'storing')"),
    )
    op.create_index(
        'one_live_lease_per_worker',
        'leases',
        ['worker_id'],
        unique=True,
        sqlite_where=sa.text("state IN ('granted', 'running', 'storing')"),
        postgresql_where=sa.text("state IN ('granted', 'running', 'storing')"),
    )
    op.create_table(
        'late_results',
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('lease_id', sa.String(length=40), nullable=False),
        sa.Column('digest', sa.String(length=64), nullable=False),
        sa.Column('file', sa.Text(), nullable=False),
        sa.Column('received_at', sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ['lease_id'],
            ['leases.id'],
        ),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('lease_id', 'digest'),
    )
    _keep_audit()


def downgrade() -> None:
    raise NotImplementedError('restore a backup instead')
