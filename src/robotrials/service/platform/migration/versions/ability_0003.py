"""What cells say they can, and why a submission was ended."""

import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('workers', sa.Column('spec', sa.Text(), nullable=False, server_default=''))
    op.add_column('submissions', sa.Column('reason', sa.Text(), nullable=False, server_default=''))


def downgrade() -> None:
    op.drop_column('submissions', 'reason')
    op.drop_column('workers', 'spec')
