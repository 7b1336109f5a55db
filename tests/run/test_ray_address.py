"""An address without a cluster is told at once; Ray would try it for minutes."""

from __future__ import annotations

import socket
import time

import pytest

from robotrials.errors import SetupError
from robotrials.run.ray_crew import check_reached


def test_an_address_at_which_nothing_listens_is_told_at_once() -> None:
    with socket.create_server(('127.0.0.1', 0)) as listening:
        port = listening.getsockname()[1]
        for address in (None, 'auto', 'local', f'127.0.0.1:{port}', f'ray://127.0.0.1:{port}'):
            check_reached(address)
    began_s = time.monotonic()
    for address in (f'127.0.0.1:{port}', f'ray://127.0.0.1:{port}'):
        with pytest.raises(SetupError, match=f'no Ray cluster at {address} .Connection refused.; `ray status`'):
            check_reached(address)
    assert time.monotonic() - began_s < 10.0
