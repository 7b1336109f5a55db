"""Random streams: one per quantity, so that no digit depends on who asks, in which order, or what else is shown."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def stream(seed: int, quantity: str, *names: str) -> np.random.Generator:
    """The generator of one quantity of these policies (sort the names where their order means nothing)."""
    told = json.dumps([seed, quantity, *names], separators=(',', ':')).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(told).digest()[:16], 'little'))
