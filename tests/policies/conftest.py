"""The isolated environments of outside clients and servers, made when first needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'peer_environments.py'


def peer_python(name: str) -> Path:
    """The interpreter of a peer; without a package index the test skips, and fails under CI=true."""
    spec = importlib.util.spec_from_file_location('peer_environments', TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    try:
        python: Path = tool.make_peer(name)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        message = f'{name} could not be installed into its own environment: {error}'
        if os.environ.get('CI') == 'true':
            pytest.fail(message)
        pytest.skip(message)
    return python


@pytest.fixture(scope='session')
def openpi_python() -> Path:
    """The interpreter that has openpi-client."""
    return peer_python('openpi')


@pytest.fixture(scope='session')
def vla_eval_python() -> Path:
    """The interpreter that has vla-eval."""
    return peer_python('vla-eval')
