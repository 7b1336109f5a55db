"""Arbitrary bytes in any file of a store or a plan: one clear error, or the truth; never a traceback or a wrong answer.

`corpus/` holds inputs that once did worse, and samples of every kind of file to start from.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.record.test_log import episode

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.record import Provenance, Store
from robotrials.record import log as log_module
from robotrials.record.ledger import listed_edits
from robotrials.record.part import parse_entry
from robotrials.record.verify import repair_store, verify_store
from robotrials.run.plan import read_plan

CORPUS = Path(__file__).parent / 'corpus'
MORE_BYTES = 4 << 30


@pytest.fixture(autouse=True)
def _bounded_memory() -> object:
    """A bomb would end in a MemoryError, which is no RobotrialsError.

    The bound is on what a test adds: the process may have mapped gigabytes for tests that ran before in it.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MORE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope='module')
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store.create(tmp_path_factory.mktemp('fuzz') / 's')
    store.append([episode(0, provenance_id=store.write_provenance(Provenance(cpu='x')))], media={'a.txt': b'text'})
    store.edit(episode(0).episode_id, 'set', by='a', why='b', field='reason', value='c')
    return store.path


MUTATIONS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(['flip', 'cut', 'insert', 'repeat']), st.binary(min_size=1, max_size=9)),
    min_size=1,
    max_size=3,
)


def mutated(content: bytes, mutations: list[tuple[float, str, bytes]]) -> bytes:
    for share, kind, data in mutations:
        place = int(share * max(len(content) - 1, 0))
        if kind == 'flip' and content:
            content = content[:place] + bytes([content[place] ^ (data[0] or 1)]) + content[place + 1 :]
        elif kind == 'cut':
            content = content[:place]
        elif kind == 'insert':
            content = content[:place] + data + content[place:]
        else:
            content = content[:place] + content[max(0, place - 64) : place] * 9 + content[place:]
    return content


@settings(max_examples=60)
@given(share=st.floats(0, 0.9999), mutations=MUTATIONS)
def test_any_file_with_any_mutation_is_refused_or_harmless_and_can_be_repaired(
    base: Path, tmp_path_factory: pytest.TempPathFactory, share: float, mutations: list[tuple[float, str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp('one')
    root = Path(shutil.copytree(base, folder / 's'))
    victims = sorted(p for p in root.rglob('*') if p.is_file() and p.stat().st_size)
    victim = victims[int(share * len(victims))]
    whole = victim.read_bytes()
    victim.write_bytes(mutated(whole, mutations))
    log_module._logs.clear()
    try:
        expected = [episode(0).replace(provenance_id=Provenance(cpu='x').provenance_id, reason='c')]
        assert list(Store.open(root).episodes()) == expected
    except RobotrialsError:
        pass
    if victim.read_bytes() != whole:
        with contextlib.suppress(StoreError):
            assert not verify_store(root).is_clean
        repair_store(root, by='a', why='fuzz')
        assert list(Store.open(root, skip_damaged=True).episodes()) is not None
    shutil.rmtree(folder)


@settings(max_examples=300)
@given(
    st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
)
def test_any_entry_and_any_edit_line_is_an_error_or_an_entry(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    import json

    line = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(StoreError):
        parse_entry(line, where='here')
    path = tmp_path_factory.mktemp('edits') / 'edits.jsonl'
    path.write_bytes(line + b'\n')
    assert all(isinstance(edit, StoreError) for edit in listed_edits(path))


@settings(max_examples=150)
@given(mutations=MUTATIONS, number=st.integers(0, 10))
def test_any_plan_is_an_error_or_a_plan(
    tmp_path_factory: pytest.TempPathFactory, mutations: list[tuple[float, str, bytes]], number: int
) -> None:
    plans = sorted(CORPUS.glob('*.toml'))
    path = tmp_path_factory.mktemp('plan') / 'trial.toml'
    path.write_bytes(mutated(plans[number % len(plans)].read_bytes(), mutations))
    with contextlib.suppress(InputError):
        read_plan(path)


@pytest.mark.parametrize('path', sorted(CORPUS.glob('*.toml')), ids=lambda p: p.stem)
def test_the_corpus_is_read_or_refused_in_words(path: Path) -> None:
    if path.stem.startswith('good'):
        read_plan(path)
    else:
        with pytest.raises(InputError, match=path.name):
            read_plan(path)
