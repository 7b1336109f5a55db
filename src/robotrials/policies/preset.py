"""Presets: mappings of well-known checkpoints, kept as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from robotrials.errors import UnknownName


@cache
def _presets() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files('robotrials.policies').joinpath('presets.toml').read_text(encoding='utf-8'))


def preset_names() -> tuple[str, ...]:
    return tuple(_presets())


def preset_about(name: str) -> str:
    """One line on what a preset is for."""
    return str(preset_tables(name)['about'])


def preset_tables(name: str) -> Mapping[str, Any]:
    """The tables ``observation`` and ``action`` of a preset."""
    if name not in _presets():
        raise UnknownName('preset', name, _presets())
    return _presets()[name]
