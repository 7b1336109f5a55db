from __future__ import annotations

import pytest

from robotrials.run.environment import Environment, read_recipe
from robotrials.run.environment.create import create_environment


@pytest.fixture(scope='session')
def probe_environment() -> Environment:
    """The environment that users get, made if it is not there."""
    return create_environment(read_recipe('probe'))
