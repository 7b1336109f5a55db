"""Isolated environments: made, found, broken, mended, removed; and the worker inside, in every way it can fail."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from robotrials.errors import InputError, NoAnswer, RemoteError, RigError, SetupError
from robotrials.run.environment import (
    Environment,
    Recipe,
    WorkerProcess,
    environments,
    find_environment,
    read_recipe,
    recipe_names,
)
from robotrials.run.environment.create import (
    check_environment,
    check_problems,
    create_environment,
    find_python,
    remove_environment,
    repair_environment,
)
from robotrials.run.environment.recipe import link_robotrials
from robotrials.run.environment.shared import SharedBlock

SMALL = Recipe(name='small', about='', requirements=('toml==0.10.2',), imports=('toml',))

SERVICE_CODE = """
import os, sys, time
import numpy as np

class Service:
    def __init__(self):
        if os.path.exists('/nonexistent') or 'unstartable' in sys.argv[1]:
            raise OSError('no GPU here')
    def echo(self, value):
        return value
    def double(self, value):
        return {'twice': value['x'] * 2, 'pid': os.getpid()}
    def fail(self, value):
        raise ValueError('no such thing')
    def hang(self, value):
        time.sleep(60)
    def die(self, value):
        print('out of memory', file=sys.stderr, flush=True)
        os._exit(9)
    def pollute(self, value):
        print('a library that prints to stdout')
        return 1
    def variables(self, value):
        return dict(os.environ)
    def objects(self, value):
        return object()
    def _secret(self, value):
        return 'secret'

class Unstartable(Service):
    def __init__(self):
        raise OSError('no GPU here')
"""


@pytest.fixture
def here(tmp_path: Path) -> Environment:
    """This interpreter's own packages, laid out as an environment; the service lies beside robotrials's link."""
    folder = tmp_path / 'here-0'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / 'pyvenv.cfg', folder / 'pyvenv.cfg')
    (folder / 'lib').symlink_to(Path(sys.prefix) / 'lib')
    (link_robotrials(folder) / 'service.py').write_text(SERVICE_CODE)
    return Environment('here', '0', folder, 'now', {'x': '1'})


@pytest.fixture
def worker(here: Environment) -> Iterator[WorkerProcess]:
    process = WorkerProcess(here, 'service:Service', start_timeout_s=PATIENCE_S)
    yield process
    process.close()


def test_a_worker_answers_calls_with_arrays(worker: WorkerProcess) -> None:
    picture = np.arange(224 * 224 * 3, dtype=np.uint8).reshape(224, 224, 3)
    np.testing.assert_array_equal(worker.call('echo', {'a': picture}, timeout_s=PATIENCE_S)['a'], picture)
    found = worker.call('double', {'x': np.arange(3.0)}, timeout_s=PATIENCE_S)
    np.testing.assert_array_equal(found['twice'], [0.0, 2.0, 4.0])
    assert found['pid'] == worker.pid != os.getpid()
    assert worker.call('pollute', timeout_s=PATIENCE_S) == 1, 'what a library prints does not reach the wire'


def test_a_worker_takes_over_what_chooses_numerical_kernels_and_no_secrets(
    here: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {'OPENBLAS_CORETYPE': 'Haswell', 'OMP_NUM_THREADS': '1', 'NPY_DISABLE_CPU_FEATURES': 'AVX512F'}
    for name, value in {**kernels, 'MY_API_TOKEN': 'secret'}.items():
        monkeypatch.setenv(name, value)
    worker = WorkerProcess(here, 'service:Service', start_timeout_s=PATIENCE_S)
    variables = worker.call('variables', timeout_s=PATIENCE_S)
    worker.close()
    assert kernels.items() <= variables.items()
    assert 'MY_API_TOKEN' not in variables


def test_a_call_that_fails_carries_its_traceback_and_the_worker_goes_on(worker: WorkerProcess) -> None:
    with pytest.raises(RemoteError, match='no such thing'):
        worker.call('fail', timeout_s=PATIENCE_S)
    for name in ('_secret', 'nothing', '__init__'):
        with pytest.raises(RemoteError, match='no call named'):
            worker.call(name, timeout_s=PATIENCE_S)
    assert worker.call('echo', 5, timeout_s=PATIENCE_S) == 5


def test_a_silent_worker_is_ended(worker: WorkerProcess) -> None:
    pid = worker.pid
    with pytest.raises(NoAnswer, match=r'no answer to hang within 0\.3 s'):
        worker.call('hang', timeout_s=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize('call', ['die', 'objects'])
def test_a_worker_that_dies_is_the_rigs_fault_with_what_it_printed(worker: WorkerProcess, call: str) -> None:
    with pytest.raises(RigError, match='the worker ended') as caught:
        worker.call(call, timeout_s=PATIENCE_S)
    assert ('out of memory' if call == 'die' else 'cannot be sent') in str(caught.value)


def test_a_service_that_does_not_start_says_why(here: Environment) -> None:
    with pytest.raises(RemoteError, match='no GPU here'):
        WorkerProcess(here, 'service:Unstartable', start_timeout_s=PATIENCE_S)
    with pytest.raises(RemoteError, match='no module named'):
        WorkerProcess(here, 'nowhere:Service', start_timeout_s=PATIENCE_S)


def test_a_worker_goes_when_its_parent_does(here: Environment) -> None:
    import subprocess

    script = (
        'import os, sys\nfrom pathlib import Path\nfrom robotrials.run.environment import Environment, WorkerProcess\n'
        f'there = Environment("here", "0", Path({str(here.folder)!r}), "now", {{"x": "1"}})\n'
        'w = WorkerProcess(there, "service:Service")\n'
        'print(w.pid, flush=True)\nos._exit(0)'
    )
    ran = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    pid, ends_s = int(ran.stdout), time.monotonic() + PATIENCE_S
    while Path(f'/proc/{pid}').exists() and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert not Path(f'/proc/{pid}/exe').exists()


@pytest.mark.peers
def test_an_environment_is_made_checked_broken_mended_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(tmp_path / 'environments'))
    with pytest.raises(SetupError, match='robotrials env create small'):
        find_environment(SMALL.name, SMALL.digest)
    assert check_environment(SMALL)
    told: list[str] = []
    try:
        made = create_environment(SMALL, progress=told.append)
    except SetupError as error:
        if os.environ.get('CI') == 'true':
            raise
        pytest.skip(f'no package index: {error}')
    assert made.is_complete
    assert made.packages['toml'] == '0.10.2'
    assert told[-1] == 'checking imports'
    assert check_environment(SMALL) == []
    assert [e.name for e in environments()] == ['small']
    assert create_environment(SMALL).created_at == made.created_at, 'it is made once'
    installed = next(made.folder.glob('lib/python*/site-packages/toml'))
    shutil.rmtree(installed)
    assert any('import toml' in problem for problem in check_environment(SMALL))
    assert (link_robotrials(repair_environment(SMALL).folder) / 'robotrials').is_symlink()
    assert check_environment(SMALL) == []
    with pytest.raises(InputError, match='is not in'):
        remove_environment(tmp_path)
    remove_environment(made.folder)
    assert not environments()


def test_a_recipe_is_locked_and_its_digest_is_its_content(tmp_path: Path) -> None:
    for name in recipe_names():
        assert len(read_recipe(name).digest) == 12
    assert SMALL.digest != Recipe(name='small', about='', requirements=('toml==0.10.1',)).digest
    for line in ('torch', 'torch>=2', '--index-url=x==1'):
        with pytest.raises(InputError, match='is not locked'):
            Recipe(name='x', about='', requirements=(line,))
    file = tmp_path / 'mine.toml'
    file.write_text('requirments = []')
    with pytest.raises(InputError, match="did you mean 'requirements'"):
        read_recipe(str(file))
    with pytest.raises(InputError, match="did you mean 'lerobot'"):
        read_recipe('lerobt')
    with pytest.raises(InputError, match=r'nothere.toml: no such file; wanted a recipe, or a name: dm-control, grpc,'):
        read_recipe(str(tmp_path / 'nothere.toml'))


def test_a_python_is_hashed_only_when_it_is_another_and_checks_never_are(tmp_path: Path) -> None:
    ours = f'3.{sys.version_info[1]}'
    assert dataclasses.replace(SMALL, python=ours).digest == SMALL.digest
    assert dataclasses.replace(SMALL, python='3.99').digest != SMALL.digest
    assert dataclasses.replace(SMALL, checks=('a.b:c',)).digest == SMALL.digest
    assert read_recipe('lerobot-0.6').version == (3, 12)
    for key, value in (('python', '3'), ('python', '>=3.12'), ('checks', ('os',)), ('checks', ('os:a b',))):
        with pytest.raises(InputError, match=r'wanted a version such as|is not MODULE:FUNCTION'):
            dataclasses.replace(SMALL, **{key: value})
    file = tmp_path / 'mine.toml'
    file.write_text('python = 3.12\nrequirements = ["numpy==2.3.5", "msgpack==1.2.4"]')
    with pytest.raises(InputError, match=r'python is 3\.12, wanted text'):
        read_recipe(str(file))


def test_another_python_is_found_or_its_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim, kept = tmp_path / 'shims' / 'python3.98', tmp_path / 'pyenv' / 'versions' / '3.98.1' / 'bin' / 'python3.98'
    for place, text in ((shim, '#!/bin/sh\nexit 127\n'), (kept, f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        place.parent.mkdir(parents=True)
        place.write_text(text)
        place.chmod(0o755)
    monkeypatch.setenv('PATH', f'{shim.parent}:{os.environ["PATH"]}')
    monkeypatch.setenv('PYENV_ROOT', str(tmp_path / 'pyenv'))
    assert find_python('3.98') == Path(sys.executable), 'the shim leads nowhere'
    with pytest.raises(SetupError, match=r'no Python 3\.99 with venv.*`uv python install 3\.99`'):
        create_environment(dataclasses.replace(SMALL, python='3.99'))


def test_a_check_that_fails_makes_an_environment_unsound(here: Environment) -> None:
    (link_robotrials(here.folder) / 'sound.py').write_text(
        'import os\ndef fine():\n    assert os.environ["HF_HUB_OFFLINE"] == "1"\n'
        'def amiss():\n    raise ValueError("no GPU")\n'
    )
    for check, problems in (('sound:fine', []), ('sound:amiss', ['amiss: ValueError: no GPU'])):
        found = list(check_problems(here.folder, dataclasses.replace(SMALL, checks=(check,))))
        assert found == problems


def test_a_recipe_without_what_the_process_inside_speaks_with_is_refused_before_the_download(tmp_path: Path) -> None:
    file = tmp_path / 'mine.toml'
    file.write_text('requirements = ["torch==2.13.0", "NumPy==2.3.5"]')
    with pytest.raises(InputError, match=r'mine.toml: msgpack not in requirements'):
        read_recipe(str(file))
    file.write_text('requirements = ["torch==2.13.0", "numpy==2.3.5", "msgpack==1.2.4"]')
    assert read_recipe(str(file)).name == 'mine'


def test_a_cut_creation_is_unfinished_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(tmp_path))
    folder = tmp_path / f'small-{SMALL.digest}'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').touch()
    assert not environments()[0].is_complete
    with pytest.raises(SetupError, match='is not there'):
        find_environment(SMALL.name, SMALL.digest)


def test_large_arrays_come_through_shared_memory_and_stay_the_receivers(here: Environment) -> None:
    worker = WorkerProcess(
        here, 'service:Service', start_timeout_s=PATIENCE_S, shares_memory=True, variables={'SHOWN': 'yes'}
    )
    try:
        rng = np.random.default_rng(0)
        kept = []
        for side in (8, 200, 90, 600):  # it grows, and is used again
            picture, depth = (
                rng.integers(0, 255, (side, side, 3), dtype=np.uint8),
                rng.random((side, side), dtype=np.float32),
            )
            found = worker.call('echo', {'a': picture, 'deep': [{'b': depth}], 'n': 1}, timeout_s=PATIENCE_S)
            kept.append((picture, found['a'], depth, found['deep'][0]['b']))
            assert found['n'] == 1
        for picture, shown, depth, far in kept:
            np.testing.assert_array_equal(picture, shown)
            np.testing.assert_array_equal(depth, far)
    finally:
        worker.close()
    assert worker.is_over
    worker.close()


def test_a_place_outside_the_shared_memory_is_refused() -> None:
    block = SharedBlock.create()
    if block is None:
        pytest.skip('this system has no shared memory by descriptor')
    reader = SharedBlock(os.dup(block.descriptor))
    array = np.arange(10_000.0)
    told = block.put({'x': array, 'small': np.zeros(3)})
    assert set(told['x']) == {'__shared__'}
    np.testing.assert_array_equal(reader.take(told)['x'], array)
    for place in ([0, '<f8', [10**9]], [-8, '<f8', [1]], [0, 'O', [1]], [0, '<f8'], 'nowhere', [0, '<f8', ['x']]):
        with pytest.raises(InputError):
            reader.take({'x': {'__shared__': place}})
    block.close()
    reader.close()


@pytest.mark.parametrize('line', ["a @ file:///x ; 'a'=='a'", 'a==1 --index-url=x', 'a==1 # b', '-r x==1', 'a', 'a=='])
def test_only_locked_packages_by_name_go_into_a_recipe(tmp_path: Path, line: str) -> None:
    path = tmp_path / 'mine.toml'
    path.write_text(f'requirements = ["{line}"]')
    with pytest.raises(InputError, match='is not locked'):
        read_recipe(str(path))
