"""LIBERO head to head as in `bench.libero_peers`, with two workers on every side."""

from __future__ import annotations

from collections.abc import Iterator

from bench.libero_peers import head_to_head
from bench.measure import Result


def run() -> Iterator[Result]:
    """Episodes per CPU-minute and per minute, chunks of 1, 5 and 10, two workers; outcomes must be equal."""
    return head_to_head('libero_workers', n_workers=2)
