"""The operator console: the next blinded assignment, a clock, counts, and one key that stops the arm."""

from robotrials.web.console.access import access_key
from robotrials.web.console.desk import Desk
from robotrials.web.console.pages import create_console

__all__ = ['Desk', 'access_key', 'create_console']
