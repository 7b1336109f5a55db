"""The embedded cell: a Panda over a table in MuJoCo."""

from robotrials.worlds.cell.host import TabletopHost
from robotrials.worlds.cell.task import TASKS

__all__ = ['TASKS', 'TabletopHost']
