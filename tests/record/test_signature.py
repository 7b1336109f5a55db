"""Signatures of the log: who signed what, and four ways to forge one."""

from __future__ import annotations

import dataclasses
import shutil
import stat
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError
from robotrials.record import Episode, Outcome, Store
from robotrials.record.blinding import Unblinding, write_unblinding
from robotrials.record.log import FindingKind, add_pack, key_path, own_public, read_log, signed
from robotrials.record.part import Entry, EntryKind, entry_id, new_entry
from robotrials.record.verify import Verification, verify_store


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    monkeypatch.delenv('ROBOTRIALS_KEY', raising=False)
    return tmp_path / 'config'


def episode(seed: int) -> Episode:
    return Episode(policy='act', task='pick', outcome=Outcome.SUCCESS, duration_s=2.0, seed=seed)


def put(root: Path, entry: Entry) -> None:
    """Write an entry as whoever can write to the folder can."""
    add_pack(root, [entry.line()])


def wrong(result: Verification) -> list[str]:
    return [f.detail for f in result.findings if f.kind is FindingKind.SIGNATURE]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two entries that nobody signed, and then kim's."""
    store = Store.create(tmp_path / 's')
    store.append([episode(1)], by='kim')
    robotrials('store', 'key')
    store.append([episode(2)], by='kim')
    store.log(EntryKind.LOOK, by='kim', body={'verb': 'score'})
    return store


def test_verify_says_who_signed_what_and_what_nobody_did(store: Store) -> None:
    key = robotrials('store', 'key').split()[0]
    assert key == own_public()
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    told = robotrials('store', 'verify', store.path)
    assert f'2 entries of kim signed by key {key[:12]}, whose owner is not known here' in told
    assert '1 entries of kim signed by nobody' in told
    assert wrong(verify_store(store.path)) == []
    robotrials('store', 'key', '--trust', 'kim', '--public', key)
    assert '2 entries of kim signed by the key of kim' in robotrials('store', 'verify', store.path, code=1)
    (early,) = wrong(verify_store(store.path))
    assert 'bears the name of kim, and nobody signed it' in early


def test_a_store_that_nobody_signed_is_clean_and_called_unsigned(tmp_path: Path) -> None:
    Store.create(tmp_path / 's').append([episode(1)])
    assert 'unsigned: nobody signed any of its 2 entries' in robotrials('store', 'verify', tmp_path / 's')


def test_an_entry_in_the_name_of_another_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forger can write to the folder, and has a key of their own."""
    robotrials('store', 'key', '--trust', 'lee', '--public', 'ab' * 32)
    heads = read_log(store.path).heads()
    put(store.path, signed(new_entry(EntryKind.LOOK, heads, by='lee', body={'verb': 'report'})))
    (told,) = wrong(verify_store(store.path))
    assert 'bears the name of lee' in told
    assert f'key {own_public()[:12]} signed it' in told


def test_a_changed_entry_and_a_swapped_signature_do_not_verify(store: Store) -> None:
    entries = [entry for _, entry in read_log(store.path).ordered() if entry.signer]
    first, second = entries
    assert wrong(verify_store(store.path)) == []
    changed = dataclasses.replace(second, body={'verb': 'compare'})
    swapped = dataclasses.replace(second, signature=first.signature)
    unfit = dataclasses.replace(second, signature='00')
    for number, forged in enumerate((changed, swapped, unfit)):
        copy = Path(shutil.copytree(store.path, store.path.with_name(f'copy{number}')))
        put(copy, forged)
        (told,) = wrong(verify_store(copy))
        assert entry_id(forged.line())[:12] in told
        assert 'its signature is not' in told
        robotrials('store', 'verify', copy, code=1)


def test_a_replayed_closing_is_named(store: Store, tmp_path: Path) -> None:
    """A closing that was signed for one store, in the log of another: its signature fits, its parents are not there."""
    record = Unblinding(trial_id='t', by='kim', at='2026-01-01T00:00:00+00:00', policies={'arm-1': 'act'})
    write_unblinding(store.path, record)
    (closing,) = store.ledger().closings
    assert closing.signer == own_public()
    assert verify_store(store.path).is_clean
    other = Store.create(tmp_path / 'other')
    put(other.path, closing)
    result = verify_store(other.path)
    assert not result.is_clean
    # Bent to fit the other log, its signature is not of it.
    moved = dataclasses.replace(closing, parents=read_log(Store.create(tmp_path / 'third').path).heads())
    put(tmp_path / 'third', moved)
    assert any('its signature is not' in told for told in wrong(verify_store(tmp_path / 'third')))


def test_a_key_that_others_can_read_is_refused(store: Store) -> None:
    key_path().chmod(0o644)
    with pytest.raises(InputError, match='chmod 600'):
        store.append([episode(3)])
    key_path().chmod(0o600)
    with pytest.raises(FileExistsError):
        from robotrials.record.log import make_key

        make_key(key_path())
