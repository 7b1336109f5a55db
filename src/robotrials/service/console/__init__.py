"""The operator console: the next blinded assignment, a clock, counts, and one key that stops the arm."""

from robotrials.service.console.desk import Desk, access_key, create_console

__all__ = ['Desk', 'access_key', 'create_console']
