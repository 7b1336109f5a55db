"""scipy's functions without its package: the same objects, and the package still works afterwards."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import robotrials.stats.special as special

ROOMS = Path(special.__file__).parents[1]


def names_used() -> set[str]:
    """Every function that a room imports from `special`."""
    texts = [path.read_text(encoding='utf-8') for path in ROOMS.rglob('*.py')]
    trees = [ast.parse(text) for text in texts if special.__name__ in text]
    statements = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for s in statements if s.module == special.__name__ for alias in s.names}


def test_functions_loaded_alone_are_those_of_the_package() -> None:
    names = sorted(names_used())
    assert {'ndtri', 'stdtrit', 'betaincinv'} <= set(names)
    code = (
        f'import sys\nfrom robotrials.stats.special import {", ".join(names)}\n'
        'assert not {"scipy", "scipy._lib", "scipy.special"} & sys.modules.keys()\n'
        'import scipy.special, scipy.stats, scipy.optimize\n'
        'from scipy._lib._ccallback import LowLevelCallable\n'
        'assert LowLevelCallable is scipy.LowLevelCallable and scipy._lib.__file__\n'
        f'assert all(globals()[name] is getattr(scipy.special, name) for name in {names!r})\n'
        'print(scipy.stats.t.ppf(0.9, 5) == stdtrit(5, 0.9), scipy.special.ndtri(0.975) == scipy.stats.norm.ppf(0.975))'
    )
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ['True', 'True']


def test_the_package_is_imported_where_another_thread_runs() -> None:
    code = (
        'import sys, threading\ngo = threading.Event()\nthreading.Thread(target=go.wait, daemon=True).start()\n'
        'from robotrials.stats.special import ndtri\nprint("scipy.special" in sys.modules, ndtri(0.5))\ngo.set()'
    )
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ['True', '0.0']
