"""Run the command line in this process, as `robotrials ...` would."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

from robotrials.cli import main


def robotrials(*arguments: object, code: int = 0) -> str:
    """What `robotrials ARGUMENTS` prints, both streams; the exit code must be `code`."""
    printed = io.StringIO()
    exit_code = 0
    argv = ['robotrials', *map(str, arguments)]
    with mock.patch.object(sys, 'argv', argv), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main()
        except SystemExit as stop:
            exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    assert exit_code == code, printed.getvalue()
    return printed.getvalue()


def words(*arguments: object, code: int = 0) -> str:
    """The card and the tables behind it as running text: where lines are broken says nothing."""
    return ' '.join(robotrials(*arguments, '--details', code=code).split())
