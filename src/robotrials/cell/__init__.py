"""The embedded cell: a Panda over a table in MuJoCo."""

from robotrials.cell.host import TabletopHost
from robotrials.cell.task import TASKS

__all__ = ['TASKS', 'TabletopHost']
