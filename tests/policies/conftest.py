"""The isolated environments of outside clients and servers, made when first needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tool import peer_python


@pytest.fixture(scope='session')
def openpi_python() -> Path:
    """The interpreter that has openpi-client."""
    return peer_python('openpi')


@pytest.fixture(scope='session')
def vla_eval_python() -> Path:
    """The interpreter that has vla-eval."""
    return peer_python('vla-eval')
