"""Special functions of scipy, without the ten times slower start of `scipy.special`.

The package `scipy.special` imports array interfaces, and by them numpy's test and Fortran tools, before its first
function can be called; `scipy` itself imports what runs its tests, and parses versions. The functions themselves lie in
one compiled module: it is loaded alone where nobody has imported the packages yet. They are the same objects, so every
digit is the same.

Importing this module loads them, so it is imported within the function that needs one.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

PACKAGE = 'scipy.special'
PARENTS = ('scipy', 'scipy._lib', PACKAGE)  # that the compiled module is imported by
OWN_THREADS = 'robotrials-'  # they run kernels, and import nothing


def _load() -> ModuleType:
    """The compiled functions; the whole package where they cannot be had alone, or another thread may want it now."""
    ours = (threading.main_thread(), threading.current_thread())
    foreign = [t for t in threading.enumerate() if t not in ours and not t.name.startswith(OWN_THREADS)]
    spec = find_spec('scipy')
    if PACKAGE in sys.modules or foreign or spec is None or spec.origin is None:
        return importlib.import_module(PACKAGE)
    alone = [name for name in PARENTS if name not in sys.modules]
    for name in alone:
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(Path(spec.origin).parent.joinpath(*name.split('.')[1:]))]
    try:
        return importlib.import_module(f'{PACKAGE}._ufuncs')
    except ImportError:  # laid out differently in another release
        pass
    finally:
        for name in alone:
            del sys.modules[name]
    return importlib.import_module(PACKAGE)


if TYPE_CHECKING:
    import scipy.special as _functions
else:
    _functions = _load()
bdtr = _functions.bdtr
bdtrc = _functions.bdtrc
betainc = _functions.betainc
betaincinv = _functions.betaincinv
betaln = _functions.betaln
chdtrc = _functions.chdtrc
erfc = _functions.erfc
gammaincc = _functions.gammaincc
gammaincinv = _functions.gammaincinv
gammaln = _functions.gammaln
ndtr = _functions.ndtr
ndtri = _functions.ndtri
stdtr = _functions.stdtr
stdtrit = _functions.stdtrit
xlog1py = _functions.xlog1py
xlogy = _functions.xlogy
