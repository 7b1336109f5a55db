"""Compile kernels, and decide in one place where the compiled code is kept between processes.

Numba keeps it beside the source or in the user's cache folder. A service with a read-only installation and no home has
neither (see `deploy/`), and there numba refuses to compile at all; such a process uses a private folder among the
temporary files, and without one it compiles anew.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Kernel = TypeVar('Kernel', bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[Kernel], Kernel]:
    """`numba.njit` with these options, kept between processes wherever a folder for it can be written."""

    def compiled(function: Kernel) -> Kernel:
        try:
            return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # numba has no folder that it can write to
            folder = private_folder()
            numba.config.CACHE_DIR = folder or ''  # type: ignore[attr-defined]
        return numba.njit(cache=folder is not None, **options)(function)  # type: ignore[no-any-return]

    return compiled


@cache
def private_folder() -> str | None:
    """A writable folder of this user's alone among the temporary files; None where there is none.

    Numba runs what it finds in its cache, so a folder that another user made, or can write to, is never taken.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f'robotrials-kernels-{os.getuid()}'
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if is_private else None
