"""The command `robotrials`: one thin module a verb. Nothing heavy is imported until a verb runs."""

from robotrials.cli.app import full_app, main

__all__ = ['full_app', 'main']
