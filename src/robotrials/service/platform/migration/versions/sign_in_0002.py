"""Browsers that are signed in."""

import sqlalchemy as sa
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        'sign_ins',
        sa.Column('sha256', sa.String(length=64), nullable=False),
        sa.Column('token_id', sa.String(length=40), nullable=False),
        sa.Column('created_at', sa.Float(precision=53), nullable=False),
        sa.Column('expires_at', sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(['token_id'], ['tokens.id']),
        sa.PrimaryKeyConstraint('sha256'),
    )
    for column in ('token_id', 'expires_at'):
        op.create_index(op.f(f'ix_sign_ins_{column}'), 'sign_ins', [column])


def downgrade() -> None:
    op.drop_table('sign_ins')
