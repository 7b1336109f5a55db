"""Two-arm trials for robot arms.

The rooms: `episodes` is the record; `timing`, `safety` and `audit` score it; `stats` holds what they share. Import
from the rooms; this top level stays light on purpose.
"""

__version__ = '0.1.0'
