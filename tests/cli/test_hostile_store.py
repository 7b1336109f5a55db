"""No verb that opens a store from elsewhere reads, writes, moves or removes anything outside it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.record.hostile import (
    HOSTILE,
    SECRET,
    STORE,
    TARGET,
    around,
    episode,
    file_row,
    forge,
    make_box,
    part_row,
    sound_store,
)

from robotrials.cli import main
from robotrials.errors import StoreError
from robotrials.record import Store
from robotrials.record.maintain import compact_store

OUT = 'made'
EPISODE = episode(0).episode_id
VERBS: tuple[tuple[str, ...], ...] = (
    ('store', 'verify', STORE),
    ('store', 'ls', STORE),
    ('store', 'show', STORE, '{id}'),
    ('store', 'log', STORE),
    ('store', 'tables', STORE),
    ('store', 'summary', STORE),
    ('store', 'export', STORE, '--output', f'{OUT}/table.csv'),
    ('store', 'edit', STORE, '{id}', 'drop', '--why', 'x', '--by', 'ana'),
    ('store', 'compact', STORE),
    ('store', 'merge', TARGET, STORE),
    ('store', 'merge', f'{OUT}/new', STORE),
    ('store', 'merge', STORE, TARGET),
    ('store', 'repair', STORE, '--why', 'x', '--by', 'ana'),
    ('store', 'adopt', STORE, '--why', 'x', '--by', 'ana'),
    ('--skip-damaged', 'store', 'ls', STORE),
    ('export', STORE, '--to', 'lerobot', '--out', f'{OUT}/lerobot'),
    ('import', 'table.csv', '--to', STORE),
    ('score', STORE),
    ('compare', STORE),
    ('report', STORE, '--output', f'{OUT}/report.html'),
    ('tables', 'headline', STORE),
)


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """A verb that waits for ever, on a pipe say, is a failure and not a hang of the tests."""

    def stop(*_: object) -> None:
        raise TimeoutError(f'still running after {seconds} s')

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(box: Path, arguments: tuple[str, ...]) -> tuple[int, str]:
    """A verb in the box: its exit code and what it printed. An exception that is no exit fails the test."""
    printed = io.StringIO()
    argv = ['robotrials', *(a.format(id=EPISODE) for a in arguments)]
    with (
        contextlib.chdir(box), mock.patch.object(sys, 'argv', argv), contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed), within(60),
    ):  # fmt: skip
        try:
            main()
        except SystemExit as stop:
            return (stop.code if isinstance(stop.code, int) else int(stop.code is not None)), printed.getvalue()
    return 0, printed.getvalue()


@pytest.mark.parametrize('name', HOSTILE)
def test_no_verb_reaches_out_of_a_hostile_store(name: str, tmp_path: Path) -> None:
    for number, verb in enumerate(VERBS):
        box = tmp_path / str(number)
        make_box(box, name)
        (box / 'table.csv').write_text('policy,task,success,time\na,t,1,3\n')
        (box / OUT).mkdir()
        before = around(box, without=(STORE, TARGET, OUT))
        code, printed = run(box, verb)
        assert around(box, without=(STORE, TARGET, OUT)) == before, (verb, printed)
        assert SECRET.decode().strip() not in printed, verb
        made = b''.join(p.read_bytes() for p in (box / OUT).rglob('*') if p.is_file())
        merged = b''.join(p.read_bytes() for p in (box / TARGET).rglob('*') if p.is_file())
        assert SECRET.strip() not in made + merged, verb
        kind = HOSTILE[name][0]
        if verb[:2] == ('store', 'verify') and kind:
            assert (code, kind in printed) == (1, True), printed
        assert 'Traceback' not in printed, (verb, printed)


def test_the_verbs_do_something_with_a_sound_store(tmp_path: Path) -> None:
    """So that the attacks above are stopped by checks and not by a verb that nobody could run."""
    for number, verb in enumerate(VERBS):
        box = tmp_path / str(number)
        sound_store(box / STORE)
        sound_store(box / TARGET)
        (box / OUT).mkdir()
        (box / 'table.csv').write_text('policy,task,success,time\na,t,1,3\n')
        code, printed = run(box, verb)
        has_log = verb[:2] == ('store', 'adopt')
        assert code == (2 if has_log else 0), (verb, printed)


@pytest.mark.parametrize('name', HOSTILE)
def test_sweeping_a_hostile_store_removes_nothing_outside(name: str, tmp_path: Path) -> None:
    root = make_box(tmp_path, name)
    before = around(tmp_path)
    with contextlib.suppress(StoreError), within(60):
        compact_store(root, stale_after_s=0)
    assert around(tmp_path) == before


def test_a_repaired_hostile_store_can_be_read_and_what_it_reached_for_was_left_alone(tmp_path: Path) -> None:
    root = make_box(tmp_path, 'digests that do not fit')
    before = around(tmp_path)
    assert run(tmp_path, ('store', 'repair', STORE, '--why', 'x', '--by', 'ana'))[0] == 0
    assert around(tmp_path) == before
    assert Store.open(root).count() == 12
    assert run(tmp_path, ('store', 'verify', STORE))[0] == 0


def test_a_store_whose_bytes_kill_a_parser_is_not_merged(tmp_path: Path) -> None:
    """Its log vouches for them, so that no digest tells; they are parsed where that ends nothing but a child."""
    root = tmp_path / STORE
    sound_store(root)
    sound_store(tmp_path / TARGET)
    corpus = Path(__file__).parents[1] / 'service' / 'platform' / 'corpus'
    content = (corpus / 'trajectory-one-bit-flipped.parquet').read_bytes()
    name = f'{"0" * 15}1-{hashlib.sha256(content).hexdigest()[:32]}.parquet'
    (root / 'trajectories' / name).write_bytes(content)
    row = {**file_row(f'trajectories/{name}', content), 'chunks': [[0, len(content), '0' * 32]]}
    body = {'parts': [part_row(root, name=f'{"0" * 15}2-{"0" * 32}.parquet', trajectories=[name], replaces=[])]}
    forge(root, files=[row], body=body)
    head = Store.open(tmp_path / TARGET).head()
    code, printed = run(tmp_path, ('store', 'merge', TARGET, STORE))
    assert (code, 'cannot be read: its parser died (SIGABRT)' in printed) == (2, True), printed
    assert Store.open(tmp_path / TARGET).head() == head
