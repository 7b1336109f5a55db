"""Run the commands of a page in order, in a fresh folder and in new processes, as a reader would.

Marks in the page's source, as HTML comments on the line before a block of code:
`file: NAME` saves the block under that name; `not run: REASON` leaves its commands out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r'^(?P<mark> *<!--.*?-->\n)? *```(?P<language>\w*)\n(?P<body>.*?)^ *```', re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r'^ *(?:\$ )?((?:robotrials|python|printf) .*)$', re.MULTILINE)


@dataclass(slots=True)
class PageRun:
    """What was run of a page, what was left out and why, and what failed."""

    n_run: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run_page(text: str, folder: Path) -> PageRun:
    result = PageRun()
    binaries = folder / '.bin'
    binaries.mkdir()
    for name, call in (('robotrials', '-m robotrials "$@"'), ('python', '"$@"')):
        (binaries / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call}\n', encoding='utf-8')
        (binaries / name).chmod(0o755)
    for block in BLOCK.finditer(text):
        mark = (block['mark'] or '').strip().removeprefix('<!--').removesuffix('-->').strip()
        indent = len(block['body']) - len(block['body'].lstrip(' '))
        body = re.sub(rf'^ {{{indent}}}', '', block['body'], flags=re.MULTILINE)
        if mark.startswith('file:'):
            (folder / mark.removeprefix('file:').strip()).write_text(body, encoding='utf-8')
        elif block['language'] in ('', 'sh', 'bash'):
            for command in COMMAND.findall(body.replace('\\\n', ' ')):
                if mark.startswith('not run:'):
                    result.left_out[command] = mark.removeprefix('not run:').strip()
                else:
                    result.n_run += 1
                    _run(command, folder, result)
    return result


def _run(command: str, folder: Path, result: PageRun) -> None:
    paths = [str(folder), *filter(None, [os.environ.get('PYTHONPATH')])]
    env = {**os.environ, 'PATH': f'{folder / ".bin"}:{os.environ["PATH"]}', 'PYTHONPATH': os.pathsep.join(paths)}
    done = subprocess.run(['sh', '-c', command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        result.failed.append(f'{command}: exit {done.returncode}: {done.stderr[-400:]}')
