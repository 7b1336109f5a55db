"""The isolated environments of other people's programs, made when first needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tool import peer_python


@pytest.fixture(scope='session')
def peer() -> Callable[[str], Path]:
    """The interpreter of a peer by name."""
    return peer_python
