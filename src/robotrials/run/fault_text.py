"""The full text of faults: kept beside the episodes, sealed while it could name a policy."""

from __future__ import annotations

import zlib

from robotrials.errors import InputError
from robotrials.record import Episode, Store
from robotrials.record.envelope import close_envelope, open_envelope
from robotrials.run.blinding import Blinding, blinding_of, unseal
from robotrials.run.fault import Fault, FaultKind
from robotrials.run.plan import TrialPlan

FOLDER = 'media/faults'
Key = tuple[str, int]
PADDED_BYTES = 1 << 14


def fault_file(key: Key, fault: Fault, *, blinding: Blinding) -> dict[str, bytes]:
    """A fault's text as a file of media/: the host's for everyone to read, without names; the policy's sealed."""
    name = _name(key)
    if blinding.public and fault.kind is not FaultKind.HOST_CRASH:
        label = f'faults/{name}.envelope'
        text = zlib.compress(f'{fault.reason}\n{fault.text}'.encode('utf-8', 'backslashreplace'))
        padded = text + bytes(-len(text) % PADDED_BYTES)  # how long an error text is would tell arms apart
        return {label: close_envelope(blinding.public, padded, label=label)}
    if blinding.terms and fault.kind.is_the_policys:
        return {f'faults/{name}.sealed': blinding.seal(fault.text, nonce=name).encode()}
    return {f'faults/{name}.txt': blinding.scrub(fault.text).encode('utf-8', 'backslashreplace')}


def read_fault(store: Store, episode: Episode, *, plan: TrialPlan | None = None) -> str | None:
    """The text of the fault that ended an episode, or None if none was kept.

    A sealed text opens once the trial is closed, or for whoever has the plan.
    """
    name = _name(episode.key)
    plain, sealed = (store.file(f'{FOLDER}/{name}{suffix}') for suffix in ('.txt', '.sealed'))
    if plain.exists():
        return plain.read_text(encoding='utf-8')
    label = f'faults/{name}.envelope'
    if store.has_file(f'media/{label}'):
        return _opened(store, episode, label)
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


def _opened(store: Store, episode: Episode, label: str) -> str:
    closing = store.unblindings().by_trial.get(episode.trial_id)
    if closing is None:
        raise InputError(f'{label} is sealed until the trial is closed; only the statistician can open it')
    envelope = store.file(f'media/{label}').read_bytes()
    content = open_envelope(bytes.fromhex(closing.key), envelope, label=label)
    return zlib.decompressobj().decompress(content).decode('utf-8')


def _name(key: Key) -> str:
    return f'{key[0]}-{key[1]}'
