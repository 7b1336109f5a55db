"""Special functions of scipy, without the ten times slower start of `scipy.special`.

The package `scipy.special` imports array interfaces, and by them numpy's test and Fortran tools, before its first
function can be called; `scipy` itself imports what runs its tests, and parses versions. The functions themselves lie in
one compiled module: it is loaded alone where nobody has imported the packages yet. They are the same objects, so every
digit is the same.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.special import bdtr as bdtr
    from scipy.special import bdtrc as bdtrc
    from scipy.special import betainc as betainc
    from scipy.special import betaincinv as betaincinv
    from scipy.special import betaln as betaln
    from scipy.special import chdtrc as chdtrc
    from scipy.special import erfc as erfc
    from scipy.special import gammaincc as gammaincc
    from scipy.special import gammaincinv as gammaincinv
    from scipy.special import gammaln as gammaln
    from scipy.special import ndtr as ndtr
    from scipy.special import ndtri as ndtri
    from scipy.special import stdtr as stdtr
    from scipy.special import stdtrit as stdtrit
    from scipy.special import xlog1py as xlog1py
    from scipy.special import xlogy as xlogy

PACKAGE = 'scipy.special'
PARENTS = ('scipy', 'scipy._lib', PACKAGE)  # that the compiled module is imported by
OWN_THREADS = 'robotrials-'  # they run kernels, and import nothing


def __getattr__(name: str) -> Any:
    if name.startswith('_'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    function = getattr(_compiled(), name, None)
    if function is None:
        function = getattr(importlib.import_module(PACKAGE), name)
    globals()[name] = function
    return function


def _compiled() -> ModuleType:
    """The compiled functions; the whole package where they cannot be had alone, or another thread may want it now."""
    ours = (threading.main_thread(), threading.current_thread())
    foreign = [t for t in threading.enumerate() if t not in ours and not t.name.startswith(OWN_THREADS)]
    if PACKAGE in sys.modules or foreign:
        return importlib.import_module(PACKAGE)
    spec = find_spec('scipy')
    if spec is None or spec.origin is None:
        return ModuleType(PACKAGE)
    alone = [name for name in PARENTS if name not in sys.modules]
    for name in alone:
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(Path(spec.origin).parent.joinpath(*name.split('.')[1:]))]
    try:
        return importlib.import_module(f'{PACKAGE}._ufuncs')
    except ImportError:  # laid out differently in another release
        return ModuleType(PACKAGE)
    finally:
        for name in alone:
            del sys.modules[name]
