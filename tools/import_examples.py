"""Write what `robotrials import --dry-run` prints for ten files as labs have them.

python tools/import_examples.py > docs/reference/import-examples.md
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path
from unittest import mock

from robotrials.cli import main as robotrials

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / 'tests' / 'formats' / 'data'
HEAD = """\
# Ten imports

Written by `tools/import_examples.py` from the command itself; a test keeps it true. The files lie in
`tests/formats/data`. Without `--dry-run`, and with `--to STORE`, the same command imports them.
"""
EXAMPLES = {
    'A table with seeds and steps': ('steps.csv', ''),
    'The same, with the rate and the cap that the hints ask for': ('steps.csv', '--rate-hz 20 --set step_cap=300'),
    'Successes out of trials': ('counts.csv', ''),
    'Semicolons, percentages, minutes and seconds': ('protokoll.csv', ''),
    'A byte-order mark and decimal commas': ('excel-export.csv', ''),
    'Nested lines of JSON': ('nested.jsonl', ''),
    "LeRobot's eval_info.json": ('eval_info.json', '--set policy=smolvla'),
    'One row per item': ('items.csv', '--group-by policy,task,episode'),
    'Lists of placement times': ('placements.csv', ''),
    'A spreadsheet with merged headings': ('results.xlsx', ''),
    'A text log of a LIBERO run': ('EVAL-libero_spatial-openvla_oft-2026_05_12-10_11_12--joint.txt', ''),
}


def printed(arguments: list[str]) -> str:
    """What the command prints when run in the folder of the files."""
    stream = io.StringIO()
    before = Path.cwd()
    os.chdir(DATA)
    try:
        with (
            mock.patch.object(sys, 'argv', ['robotrials', *arguments]),
            contextlib.redirect_stdout(stream),
            contextlib.suppress(SystemExit),
        ):
            robotrials()
    finally:
        os.chdir(before)
    return '\n'.join(line.rstrip() for line in stream.getvalue().strip().splitlines())


def page() -> str:
    """The whole page."""
    sections = [HEAD]
    for title, (name, options) in EXAMPLES.items():
        command = f'import {name} {options} --dry-run'.replace('  ', ' ')
        with mock.patch.dict(os.environ, {'COLUMNS': '100'}):
            answer = printed(shlex.split(command))
        sections.append(f'## {title}\n\n```\n$ robotrials {command}\n{answer}\n```\n')
    return '\n'.join(sections)


if __name__ == '__main__':
    sys.stdout.write(page())
