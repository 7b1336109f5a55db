"""The embedded cell: a Panda over a table in MuJoCo."""

from trialist.hosts.tabletop.host import TabletopHost
from trialist.hosts.tabletop.task import TASKS

__all__ = ['TASKS', 'TabletopHost']
