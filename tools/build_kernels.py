"""Compile every kernel.c into the extension beside it: `python tools/build_kernels.py`.

The build of a wheel calls it too (`hatch_build.py`). An extension knows the digest of what it was compiled from, so
that one that fits is left alone and a stale one is never used (`robotrials/stats/compiled.py`). Without a compiler or
Python's headers nothing is built and numpy serves; a kernel that does not compile is an error.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / 'src'
GRID = SOURCE.parent / 'tests' / 'grid' / 'kernel.c'  # of the simulated worlds; no part of a wheel
HEADER = 'robotrials/stats/native.h'
EXTENSION = '_kernel.abi3.so'
# Results must be the same on every machine: nothing fused, nothing reordered.
FLAGS = (
    '-std=gnu99',
    '-O3',
    '-fPIC',
    '-ffp-contract=off',
    '-fno-math-errno',
    '-fno-trapping-math',
    '-fvisibility=hidden',
    '-Wall',
    '-Wextra',
)
PROBE = '#define Py_LIMITED_API 0x030b0000\n#include <Python.h>\n#include <math.h>\nint probe(void) { return 0; }\n'


class NoCompiler(Exception):  # noqa: N818 - reads as the fact it states
    """There is no C compiler here, or it has no headers to work with."""


def kernels(source: Path = SOURCE) -> list[Path]:
    """Every kernel.c, in order."""
    return sorted(source.glob('robotrials/**/kernel.c'))


def digest(kernel: Path, source: Path = SOURCE) -> str:
    """What an extension is known by: the digest of its source and of the header they share."""
    return hashlib.sha256((source / HEADER).read_bytes() + kernel.read_bytes()).hexdigest()


def compiler() -> list[str]:
    """The command that compiles an extension here, once it has compiled a trial."""
    command = shlex.split(os.environ.get('CC') or 'cc')
    if shutil.which(command[0]) is None:
        raise NoCompiler(f'no C compiler: {command[0]!r} is not in the path')
    link = ['-bundle', '-undefined', 'dynamic_lookup'] if sys.platform == 'darwin' else ['-shared']
    command += [*FLAGS, *link, f'-I{sysconfig.get_path("include")}']
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, 'probe.c')
        probe.write_text(PROBE)
        trial = subprocess.run([*command, str(probe), '-o', f'{folder}/probe.so'], capture_output=True, text=True)
    if trial.returncode:
        lines = [line for line in trial.stderr.splitlines() if 'error' in line] or ['it failed without a word']
        raise NoCompiler(f'{command[0]} cannot compile an extension here: {lines[0].strip()}')
    return command


def is_fresh(kernel: Path, source: Path = SOURCE) -> bool:
    extension = kernel.with_name(EXTENSION)
    return extension.is_file() and digest(kernel, source).encode() in extension.read_bytes()


def build(source: Path = SOURCE, *, others: Sequence[Path] = ()) -> list[Path]:
    """Compile what is missing or stale; gives all extensions. One that does not compile raises CalledProcessError.

    `others` are kernels outside the package that share its header.
    """
    every = [*kernels(source), *others]
    stale = [kernel for kernel in every if not is_fresh(kernel, source)]
    command = compiler() if stale else []
    for kernel in stale:
        extension = kernel.with_name(EXTENSION)
        made = extension.with_suffix(f'.{os.getpid()}')
        try:
            subprocess.run(
                [*command, f'-I{(source / HEADER).parent}', f'-DSOURCE_DIGEST="{digest(kernel, source)}"', str(kernel),
                 '-lm', '-o', str(made)], check=True,
            )  # fmt: skip
            made.replace(extension)
        finally:
            made.unlink(missing_ok=True)
    return [kernel.with_name(EXTENSION) for kernel in every]


def platform_tag() -> str:
    """The platform's part of a wheel's tag; an extension needs the C library it was linked with, or a later one."""
    return sysconfig.get_platform().replace('-', '_').replace('.', '_')


def main() -> int:
    try:
        print(f'{len(build(others=[GRID] if GRID.is_file() else []))} kernels compiled')
    except NoCompiler as absent:
        print(f'kernels not compiled, numpy serves: {absent}', file=sys.stderr)
        return int(os.environ.get('CI') == 'true')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
