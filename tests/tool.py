"""Programs of tools/ as modules, which are in no package; and the environments of peers that one of them makes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / 'tools' / f'{name}.py')
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


def peer_python(name: str) -> Path:
    """The interpreter of a peer; without a package index the test skips, and fails under CI=true."""
    try:
        python: Path = tool('peer_environments').make_peer(name)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        message = f'{name} could not be installed into its own environment: {error}'
        if os.environ.get('CI') == 'true':
            pytest.fail(message)
        pytest.skip(message)
    return python
