"""No two public classes share a name: one concept, one name, one type. Names that are found late are all found."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import robotrials

SOURCE = Path(robotrials.__path__[0])
ROOMS = sorted(  # rooms and the parts of rooms
    '.'.join(file.parent.relative_to(SOURCE).parts)
    for pattern in ('*/__init__.py', '*/*/__init__.py')
    for file in SOURCE.glob(pattern)
    if file.relative_to(SOURCE).parts[0] not in ('cli', 'testing')
)
LATE = sorted(
    '.'.join(('robotrials', *file.parent.relative_to(SOURCE).parts))
    for file in SOURCE.rglob('__init__.py')
    if '= late_names(' in file.read_text(encoding='utf-8')
)


def test_no_two_rooms_export_different_classes_of_one_name() -> None:
    found: dict[str, set[type]] = {}
    for room in ROOMS:
        module = importlib.import_module(f'robotrials.{room}')
        for name in getattr(module, '__all__', ()):
            value = getattr(module, name)
            if inspect.isclass(value):
                found.setdefault(name, set()).add(value)
    assert {name: classes for name, classes in found.items() if len(classes) > 1} == {}


@pytest.mark.parametrize('package', LATE)
def test_names_that_are_found_late_are_those_of_their_modules(package: str) -> None:
    module = importlib.import_module(package)
    star: dict[str, object] = {}
    exec(f'from {package} import *', star)
    assert set(module.__all__) <= star.keys() & set(dir(module))
    places = getattr(module, '_PLACES', None) or module._ELSEWHERE
    for place, names in places.items():
        home = importlib.import_module(place, package)
        for name in names.split():
            assert star[name] is getattr(module, name) is getattr(home, name)
            if inspect.isclass(star[name]) or inspect.isfunction(star[name]):
                assert pickle.loads(pickle.dumps(star[name])) is star[name]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_every_name_that_is_imported_from_a_package_is_found_there() -> None:
    """A type checker sees all public names of its modules, and would not miss one that the package leaves out."""
    missing = []
    for file in [*SOURCE.rglob('*.py'), *Path(__file__).parent.rglob('*.py')]:
        for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
            if isinstance(node, ast.ImportFrom) and node.module in LATE:
                package = importlib.import_module(node.module)
                names = [alias.name for alias in node.names if alias.name != '*']
                missing += [(str(file), name) for name in names if not is_importable(package, name)]
    assert missing == []


def is_importable(package: ModuleType, name: str) -> bool:
    """Whether it is a name of the package or one of its modules."""
    return hasattr(package, name) or importlib.util.find_spec(f'{package.__name__}.{name}') is not None


def test_a_function_keeps_its_name_when_its_module_is_imported_first() -> None:
    code = (
        'import robotrials.measure.timing.better, robotrials.measure.timing.curve\n'
        'from robotrials.measure import timing\n'
        'print(timing.better.__name__, timing.better.__module__, type(timing.better).__name__, timing.curve.__name__)'
    )
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    names = ['better', 'robotrials.measure.timing.better', 'function', 'robotrials.measure.timing.curve']
    assert ran.stdout.split() == names
