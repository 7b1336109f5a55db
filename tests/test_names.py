"""No two public classes share a name: one concept, one name, one type."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import trialist

ROOMS = sorted(m.name for m in pkgutil.iter_modules(trialist.__path__) if m.ispkg and m.name not in ('cli', 'testing'))


def test_no_two_rooms_export_different_classes_of_one_name() -> None:
    found: dict[str, set[type]] = {}
    for room in ROOMS:
        module = importlib.import_module(f'trialist.{room}')
        for name in getattr(module, '__all__', ()):
            value = getattr(module, name)
            if inspect.isclass(value):
                found.setdefault(name, set()).add(value)
    assert {name: classes for name, classes in found.items() if len(classes) > 1} == {}
