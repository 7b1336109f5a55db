"""The isolated environments of other people's programs, made when first needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'peer_environments.py'


@pytest.fixture(scope='session')
def peer() -> Callable[[str], Path]:
    """The interpreter of a peer by name; without a package index the test skips, and fails under CI=true."""
    spec = importlib.util.spec_from_file_location('peer_environments', TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    def made(name: str) -> Path:
        try:
            python: Path = tool.make_peer(name)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
            message = f'{name} could not be installed into its own environment: {error}'
            if os.environ.get('CI') == 'true':
                pytest.fail(message)
            pytest.skip(message)
        return python

    return made
