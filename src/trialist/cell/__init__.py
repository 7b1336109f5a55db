"""The embedded cell: a Panda over a table in MuJoCo."""

from trialist.cell.host import TabletopHost
from trialist.cell.task import TASKS

__all__ = ['TASKS', 'TabletopHost']
