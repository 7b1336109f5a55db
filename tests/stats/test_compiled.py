"""Which kernels run, how they are built, and that the build fails aloud where it must."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import robotrials
from robotrials.stats import compiled

ROOT = Path(__file__).parents[2]
SOURCE = Path(robotrials.__file__).parent
TABLE = 'policy,task,success,duration_s\n' + ''.join(
    f'p{p},pick,{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20)
)


@pytest.fixture(scope='module')
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location('build_kernels', ROOT / 'tools' / 'build_kernels.py')
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def backend(environment: dict[str, str], source: Path = SOURCE.parent) -> str:
    """What a new process runs: the back-end of every kernel module, or the last line of its error.

    Whichever back-end this run was asked for is not asked of it.
    """
    code = (
        'from robotrials.stats.compiled import backends; import robotrials.stats.kernel as k; '
        'print(set(backends().values()), type(k.mid_tails).__name__)'
    )
    environment = {**os.environ, compiled.VARIABLE: '', 'PYTHONPATH': str(source), **environment}
    command = [sys.executable, '-c', code]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return (ran.stdout or ran.stderr).strip().splitlines()[-1]


@pytest.fixture(scope='module')
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the kernels and what loads them, without extensions."""
    root = tmp_path_factory.mktemp('clone')
    ignored = shutil.ignore_patterns('__pycache__', '*.so', 'data', 'static', 'assets')
    shutil.copytree(SOURCE, root / 'src' / 'robotrials', ignore=ignored)
    shutil.copytree(ROOT / 'tools', root / 'tools', ignore=ignored)
    return root


def build(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(clone / 'tools' / 'build_kernels.py')], env={**os.environ, 'CI': '', **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_kernels_of_this_tree_are_compiled_and_fresh(builder: ModuleType) -> None:
    """Without a compiler numpy serves, and there is nothing to hold this to; under CI it fails."""
    if os.environ.get('CI') != 'true' and shutil.which('cc') is None:
        assert set(compiled.backends().values()) != {compiled.COMPILED}
        return
    every = [*builder.kernels(), builder.GRID]
    assert all(builder.is_fresh(kernel) for kernel in every), 'run python tools/build_kernels.py'
    if compiled.wanted() != compiled.NUMPY:
        assert set(compiled.backends().values()) == {compiled.COMPILED}


def test_every_kernel_in_c_has_its_twin_in_numpy(builder: ModuleType) -> None:
    folders = {kernel.parent for kernel in builder.kernels()}
    assert folders == {path.parent for path in SOURCE.rglob('kernel.py')}
    for folder in folders:
        text = (folder / 'kernel.c').read_text()
        in_c = set(_entries(text))
        module = '.'.join(['robotrials', *folder.relative_to(SOURCE).parts, 'kernel'])
        importlib.import_module(module)
        assert in_c == {name for at, name in compiled.IN_NUMPY if at == module}, module


def _entries(text: str) -> list[str]:
    return [piece.split(')')[0] for piece in text.split('ENTRY(')[1:]]


def test_the_environment_chooses_the_back_end() -> None:
    assert 'function' in backend({compiled.VARIABLE: 'numpy'})
    assert 'numpy: ROBOTRIALS_KERNELS=numpy' in backend({compiled.VARIABLE: 'numpy'})
    assert "ROBOTRIALS_KERNELS is 'fast', wanted compiled or numpy" in backend({compiled.VARIABLE: 'fast'})


def test_a_clone_without_a_compiler_runs_on_numpy_and_ci_does_not_take_it(clone: Path, tmp_path: Path) -> None:
    ran = build(clone, CC='no-such-compiler')
    assert ran.returncode == 0
    assert "no C compiler: 'no-such-compiler' is not in the path" in ran.stderr
    assert backend({}, clone / 'src').endswith('function')
    assert 'is not compiled' in backend({compiled.VARIABLE: 'compiled'}, clone / 'src')
    assert build(clone, CC='no-such-compiler', CI='true').returncode == 1


def test_a_compiler_without_headers_counts_as_none(clone: Path, tmp_path: Path) -> None:
    lame = tmp_path / 'cc'
    lame.write_text('#!/bin/sh\necho "probe.c:2:10: fatal error: Python.h: No such file" >&2\nexit 1\n')
    lame.chmod(0o755)
    ran = build(clone, CC=str(lame))
    assert ran.returncode == 0
    assert 'cannot compile an extension here' in ran.stderr
    assert 'Python.h' in ran.stderr


@pytest.mark.skipif(shutil.which('cc') is None, reason='needs a C compiler; without one nothing can be built')
def test_a_kernel_that_does_not_compile_is_an_error_and_a_stale_one_is_not_run(clone: Path) -> None:
    # Only the smallest kernel stays, so that the test compiles for a second and not for ten.
    for kernel in clone.rglob('kernel.c'):
        if kernel.parent.name != 'stats':
            kernel.unlink()
    kernel = clone / 'src' / 'robotrials' / 'stats' / 'kernel.c'
    assert build(clone).returncode == 0
    assert backend({}, clone / 'src').endswith('builtin_function_or_method')
    kernel.write_text(kernel.read_text() + 'not C\n')
    stale = backend({}, clone / 'src')
    assert 'older than kernel.c' in stale
    assert stale.endswith('function')
    assert build(clone).returncode != 0
    assert 'older than kernel.c' in backend({}, clone / 'src')


def test_a_kernel_says_which_argument_is_wrong() -> None:
    from robotrials.stats import kernel

    if compiled.wanted() == compiled.NUMPY or not isinstance(compiled.extension_beside(kernel.__name__), ModuleType):
        assert not isinstance(kernel.mid_tails, type(len))
        return
    import numpy as np

    good, short, out = np.zeros((3, 2)), np.zeros(2), np.zeros(3)
    kernel.plain_placements(good, good, out, out.copy(), out.copy())
    with pytest.raises(ValueError, match='plain_placements: argument 3 has length 2 in axis 0, wanted 3'):
        kernel.plain_placements(good, good, short, out, out)
    with pytest.raises(TypeError, match="argument 1 holds 'l', wanted 'd'"):
        kernel.plain_placements(good.astype(np.int64), good, out, out, out)
    with pytest.raises(ValueError, match='contiguous'):
        kernel.plain_placements(np.zeros((2, 3)).T, good, out, out, out)
    with pytest.raises(TypeError, match='4 arguments'):
        kernel.plain_placements(good, good, out, out)
    read_only = out.copy()
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match='read-only'):
        kernel.plain_placements(good, good, read_only, out, out)


def test_a_service_without_home_on_a_read_only_installation_analyses(tmp_path: Path) -> None:
    """Nothing is written beside the package, at home or among the temporary files."""
    package = tmp_path / 'site' / 'robotrials'
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns('__pycache__'))
    for folder in (package, *(p for p in package.rglob('*') if p.is_dir())):
        (folder / '__pycache__').touch()  # root may write anywhere: a file in the way stops it too
    before = sorted(package.rglob('*'))
    work, temporary = tmp_path / 'work', tmp_path / 'tmp'
    work.mkdir()
    temporary.mkdir()
    (work / 'r.csv').write_text(TABLE)
    environment = {
        'PATH': os.environ['PATH'], 'PYTHONPATH': str(package.parent), 'TMPDIR': str(temporary),
        'HOME': '/dev/null/none', 'XDG_CACHE_HOME': '/dev/null/none',
    }  # fmt: skip
    for verb in (['import', 'r.csv', '--to', 'store'], ['compare', 'store', '--resamples', '20']):
        ran = subprocess.run(
            [sys.executable, '-m', 'robotrials.cli', *verb], cwd=work, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sorted(package.rglob('*')) == before
    assert not list(temporary.rglob('*kernel*'))
