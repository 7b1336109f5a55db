"""The operator console: the next blinded assignment, a clock, counts, and one key that stops the arm."""

from trialist.web.console.access import access_key
from trialist.web.console.desk import Desk
from trialist.web.console.pages import create_console

__all__ = ['Desk', 'access_key', 'create_console']
