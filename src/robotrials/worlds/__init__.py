"""Hosts: the base classes to write one, the kit to check one, and those for simulators, recordings and robots.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.run.host import *
    from robotrials.worlds.conformance import *

_PLACES = {
    '.conformance': 'check_host check_wrapper',
    'robotrials.run.host': 'Ability Host HostWrapper as_host',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
