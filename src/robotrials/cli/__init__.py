"""The command `robotrials`: one thin module a verb. Nothing heavy is imported until a verb runs."""

from robotrials.cli.option import full_app, main
from robotrials.cli.process import run_command

__all__ = ['full_app', 'main', 'run_command']
