"""The keys that cells sign their results with."""

import sqlalchemy as sa
from alembic import op

revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('workers', sa.Column('key', sa.Text(), nullable=False, server_default=''))


def downgrade() -> None:
    op.drop_column('workers', 'key')
