"""The full text of faults: kept beside the episodes, sealed while it could name a policy."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from trialist.episodes import Episode, Store
from trialist.errors import InputError
from trialist.run.blinding import Blinding, blinding_of, unseal
from trialist.run.fault import Fault
from trialist.run.plan import TrialPlan

FOLDER = Path('media') / 'faults'
Key = tuple[str, int]


def write_fault(root: Path, key: Key, fault: Fault, *, blinding: Blinding) -> None:
    """Keep a fault's text: the host's for everyone to read, without names; the policy's sealed while blinded."""
    name = _name(key)
    if blinding.terms and fault.kind.is_the_policys:
        _write(root / FOLDER / f'{name}.sealed', blinding.seal(fault.text, nonce=name))
    else:
        _write(root / FOLDER / f'{name}.txt', blinding.scrub(fault.text))


def read_fault(store: Store, episode: Episode, *, plan: TrialPlan | None = None) -> str | None:
    """The text of the fault that ended an episode, or None if none was kept.

    A sealed text opens once the trial is closed, or for whoever has the plan.
    """
    name = _name(episode.key)
    plain, sealed = (store.path / FOLDER / f'{name}{suffix}' for suffix in ('.txt', '.sealed'))
    if plain.exists():
        return plain.read_text(encoding='utf-8')
    if not sealed.exists():
        return None
    opened = store.unblindings().by_trial.get(episode.trial_id)
    if plan is not None:
        key = blinding_of(plan).key
    elif opened is not None:
        key = bytes.fromhex(opened.key)
    else:
        raise InputError(f'{sealed} is sealed until the trial is closed; give the plan to read it now')
    return unseal(key, sealed.read_text(encoding='utf-8'), nonce=name)


def unseal_faults(root: Path, key: bytes) -> int:
    """Write every sealed text out in the open; how many there were."""
    count = 0
    for sealed in _sealed(root):
        text = unseal(key, sealed.read_text(encoding='utf-8'), nonce=sealed.stem)
        _write(sealed.with_suffix('.txt'), text)
        count += 1
    return count


def _sealed(root: Path) -> Iterator[Path]:
    yield from sorted((root / FOLDER).glob('*.sealed'))


def _name(key: Key) -> str:
    return f'{key[0]}-{key[1]}'


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{uuid.uuid4().hex}')
    draft.write_text(text, encoding='utf-8')
    os.replace(draft, path)
