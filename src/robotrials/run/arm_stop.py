"""Stopping the arm from beside it: a command or an address that somebody configured, and whether it confirmed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from robotrials.errors import InputError, RobotrialsError
from robotrials.old_name import setting
from robotrials.wire.http import HttpLink

PATIENCE_S = 5.0
MOST_TOLD = 300
SECRET_VARIABLE = 'ROBOTRIALS_STOP_SECRET'


@dataclass(frozen=True, slots=True)
class ArmStop:
    """What came of one call. Not confirmed does not mean that the arm still moves: it means that nobody knows."""

    is_confirmed: bool
    told: str


StopHook = Callable[[], ArmStop]


def stop_by_command(command: str, *, patience_s: float = PATIENCE_S) -> StopHook:
    """Run a command; exit code 0 within `patience_s` confirms."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f'the stop command is {command!r}, wanted a program and its arguments ({error})') from error
    if not words:
        raise InputError('the stop command is empty, wanted a program and its arguments')
    if shutil.which(words[0]) is None:  # told at the start, not in an emergency
        raise InputError(
            f'the stop command {words[0]}: no such program, or not executable; nothing would stop the arm. '
            'Give the path of one that runs (it is run without a shell)'
        )

    def stop() -> ArmStop:
        # Not a pipe: whatever the command leaves running would hold it open, and the answer back.
        with tempfile.TemporaryFile() as told:
            try:
                ran = subprocess.run(
                    words, stdin=subprocess.DEVNULL, stdout=told, stderr=told, timeout=patience_s, check=False
                )
            except subprocess.TimeoutExpired:
                return ArmStop(False, f'the stop command did not end within {patience_s:g} s')
            except OSError as error:
                return ArmStop(False, f'the stop command could not be run ({error.strerror})')
            told.seek(0)
            said = told.read(MOST_TOLD).decode(errors='replace').strip()
        if ran.returncode != 0:
            return ArmStop(False, f'the stop command failed with exit code {ran.returncode}: {said}')
        return ArmStop(True, said or 'the stop command succeeded')

    return stop


def stop_by_url(url: str, *, patience_s: float = PATIENCE_S) -> StopHook:
    """POST to an address; an answer in the 200s within `patience_s` confirms.

    ROBOTRIALS_STOP_SECRET, where it is set, goes along as a bearer token; so a worker's own `/stop` can be used.
    """
    secret = setting(SECRET_VARIABLE) or ''
    headers = {'Authorization': f'Bearer {secret}'} if secret else {}
    path = '' if urlsplit(url).path.strip('/') else '/'
    try:
        HttpLink(url)  # a wrong address is told at the start, not in an emergency
    except InputError as error:
        raise InputError(f'the address that stops the arm: {error}') from error

    def stop() -> ArmStop:
        link = HttpLink(url, headers=headers)
        try:
            answer = link.post(path, json.dumps({'source': 'operator'}).encode(), timeout_s=patience_s)
        except RobotrialsError as error:
            return ArmStop(False, str(error)[:MOST_TOLD])
        finally:
            link.close()
        is_confirmed = 200 <= answer.status < 300
        return ArmStop(is_confirmed, f'{url} answered {answer.status} {answer.text(MOST_TOLD)}'.strip())

    return stop
