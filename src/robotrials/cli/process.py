"""What a process of our own may leave out, because nobody else's code runs in it."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

# Importing makes a hundred thousand objects that live until the end: looking for cycles among them every 700 objects,
# and once more while everything is taken down, would cost an eighth of a first answer.
COLLECT_AFTER = (100_000, 50, 50)

COUNT_ALL = ('scalar_aggregate', 0)  # no column to call it on
NAMED = 'utf8_zero_fill'  # which pyarrow.compute names itself
PARSER = 'pyarrow.vendored.docscrape'

is_own = False


def run_command() -> None:
    """The command `robotrials` as a process: the same as `main`, which notebooks and tests call in theirs."""
    global is_own  # of the process, as its name says
    is_own = True
    gc.set_threshold(*COLLECT_AFTER)
    atexit.register(gc.freeze)
    sys.meta_path.insert(0, _LeanCompute)
    from robotrials.cli.option import main

    main()


class _LeanCompute:
    """Have `pyarrow.compute` wrap a function when it is asked for, not its 290 with their documentation at once.

    Its own loop over the registry of functions is given an almost empty registry; `__getattr__` does for a name what
    the loop would have done, but for the documentation, which nobody reads here, and for which a parser is imported.
    A release that is laid out differently is imported as it is.
    """

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != 'pyarrow.compute':
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _run_lean(module, run)  # type: ignore[method-assign]
        return spec


def _run_lean(module: ModuleType, run: Any) -> None:
    import pyarrow._compute as compiled

    registry, names = compiled.function_registry, vars(module)
    needed = SimpleNamespace(list_functions=lambda: [NAMED], get_function=lambda name: registry().get_function(name))
    before = dict(names)
    compiled.function_registry = lambda: needed
    sys.modules.setdefault(PARSER, unused := ModuleType(PARSER))
    unused.NumpyDocString = lambda text: {'Parameters': []}  # type: ignore[attr-defined]
    try:
        run(module)
        wrapper_of, options_of = names['_make_generic_wrapper'], names['_get_options_class']
    except (AttributeError, KeyError, NameError, TypeError):
        names.clear()
        names.update(before)
        wrapper_of = None
    finally:
        compiled.function_registry = registry
        if sys.modules[PARSER] is unused:
            del sys.modules[PARSER]
    if wrapper_of is None:
        run(module)
        return

    def find(name: str) -> Any:
        known = registry()
        function = next((known.get_function(n) for n in (name, name.rstrip('_')) if n in known.list_functions()), None)
        if function is None or function.kind == 'hash_aggregate' or (function.kind, function.arity) == COUNT_ALL:
            raise AttributeError(f'module {module.__name__!r} has no attribute {name!r}')
        names[name] = wrapper_of(name, function, options_of(function), arity=function.arity)
        return names[name]

    names.update(function_registry=registry, __getattr__=find)
