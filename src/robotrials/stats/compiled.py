"""Which kernels run: those compiled when robotrials was built, or numpy's.

A `kernel.py` holds each kernel in numpy, and `kernel.c` beside it the same in C, built into `_kernel.abi3.so` by
`tools/build_kernels.py`. Both give the same numbers; C is faster. An extension that is missing or stale, or that
cannot be loaded here, is left alone. ROBOTRIALS_KERNELS=numpy asks for numpy, =compiled makes that an error.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from robotrials.errors import InputError, SetupError

Kernel = TypeVar('Kernel', bound=Callable[..., Any])

COMPILED, NUMPY = 'compiled', 'numpy'
VARIABLE = 'ROBOTRIALS_KERNELS'
REMEDY = 'python tools/build_kernels.py builds it in a clone'
# By module and name, whichever back-end runs: tests hold each against its twin in C.
IN_NUMPY: dict[tuple[str, str], Callable[..., Any]] = {}


def in_c(function: Kernel) -> Kernel:
    """The function of this name in the extension beside its module; where there is none, the function itself."""
    IN_NUMPY[function.__module__, function.__name__] = function
    extension = None if wanted() == NUMPY else extension_beside(function.__module__)
    if isinstance(extension, ModuleType):
        return getattr(extension, function.__name__)  # type: ignore[no-any-return]
    if wanted() == COMPILED:
        raise SetupError(f'{VARIABLE}={COMPILED}, but {function.__module__} is not compiled: {extension}; {REMEDY}')
    return function


def wanted() -> str | None:
    """The back-end that the environment asks for, if any."""
    asked = os.environ.get(VARIABLE) or None
    if asked not in (None, COMPILED, NUMPY):
        raise InputError(f'{VARIABLE} is {asked!r}, wanted {COMPILED} or {NUMPY}')
    return asked


@cache
def extension_beside(module: str) -> ModuleType | str:
    """The extension beside a kernel module, or why there is none to use."""
    package = module.rpartition('.')[0]
    try:
        extension = importlib.import_module(f'{package}._kernel')
    except ImportError as absent:
        return str(absent)
    folder = Path(extension.__file__ or '').parent
    if (folder / 'kernel.c').is_file() and source_digest(folder) != extension.SOURCE:
        return 'it is older than kernel.c'
    return extension


def source_digest(folder: Path) -> str:
    """The digest of a kernel.c and of the header that all share, as the build gives it to the extension."""
    import hashlib

    header = Path(__file__).with_name('native.h')
    return hashlib.sha256(header.read_bytes() + (folder / 'kernel.c').read_bytes()).hexdigest()


def backends() -> dict[str, str]:
    """By kernel module: 'compiled', or 'numpy' and why."""
    root = Path(__file__).parents[1]
    rows: dict[str, str] = {}
    for path in sorted(root.rglob('kernel.py')):
        module = '.'.join([root.name, *path.relative_to(root).with_suffix('').parts])
        extension = extension_beside(module)
        if wanted() == NUMPY:
            rows[module] = f'{NUMPY}: {VARIABLE}={NUMPY}'
        else:
            rows[module] = COMPILED if isinstance(extension, ModuleType) else f'{NUMPY}: {extension}'
    return rows
