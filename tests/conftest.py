"""Shared test set-up: where the reference vectors and data lie, and how hypothesis runs."""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.browser import Browser, launched

settings.register_profile('default', deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile('default')

# Text is compared as it stands, whatever terminal the tests run in; tests of the layout set 80 columns themselves.
os.environ['COLUMNS'] = '400'
os.environ['ROBOTRIALS_PROGRESS'] = '0'  # a slow machine would add lines to what tests compare

# Stores sync whatever they write, and no test cuts the power: where there is room, temporary files are in memory.
_MEMORY, _ROOM_BYTES = '/dev/shm', 4 << 30


def _takes_temporary_files(folder: str) -> bool:
    """Whether there is room for a run's, and programs may be run from there."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return False
    has_room = system.f_bavail * system.f_frsize > _ROOM_BYTES
    return has_room and not system.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


if 'TMPDIR' not in os.environ and _takes_temporary_files(_MEMORY):
    os.environ['TMPDIR'] = tempfile.tempdir = _MEMORY

# A user's cache of the session's own: tests neither find what other runs kept nor leave anything at home.
_CACHE = tempfile.TemporaryDirectory(prefix='robotrials-test-cache-')
os.environ['ROBOTRIALS_CACHE'] = _CACHE.name

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_path(*parts: str) -> Path:
    """A file of the shared reference material (ROBOTRIALS_SHARED, default ../shared); skips, or fails under CI."""
    root = Path(os.environ.get('ROBOTRIALS_SHARED', REPOSITORY.parent / 'shared'))
    path = root.joinpath(*parts)
    if path.exists():
        return path
    message = f'{path} is missing; set ROBOTRIALS_SHARED to the folder with golden/, data/ and seeds/'
    if os.environ.get('CI') == 'true':
        pytest.fail(message)
    pytest.skip(message)


def pytest_configure() -> None:
    # A suite that a shell started in the background ignores SIGINT, and so would every verb that a test interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ROBOTRIALS_ORDER=SEED, files and the tests of each run in an order drawn from the seed (`make order`)."""
    seed = os.environ.get('ROBOTRIALS_ORDER')
    if seed is None:
        return
    draw = random.Random(seed)
    rank = {path: draw.random() for path in sorted({item.path for item in items})}
    by_name = {item.nodeid: draw.random() for item in sorted(items, key=lambda item: item.nodeid)}
    items.sort(key=lambda item: (rank[item.path], by_name[item.nodeid]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """While tests are collected nearly everything stays: looking for garbage takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests, a million objects, from every later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope='session')
def shared() -> object:
    return shared_path


@pytest.fixture(scope='session')
def browser() -> Iterator[Browser]:
    """One headless browser for the session; skips without, or fails under CI."""
    with launched() as started:
        yield started
