"""Who signed what: Ed25519 keys of people and cells, and the signatures of log entries.

A key is a file of its owner, 0600, made by `robotrials store key`; whoever has one signs every entry they write, and
whoever has none writes entries that nobody signed. A signature covers the whole entry with its parents: it fits no
other entry, and no other place in a log. Whose key is whose is what a reader says, in a list of known keys; a log can't
say it of itself.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, SetupError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from robotrials.record.entry import Entry

KEY_VARIABLE = 'ROBOTRIALS_KEY'
TAG = b'robotrials log entry\n'  # what a signature is about: one made for something else never fits
PUBLIC = re.compile(r'[0-9a-f]{64}')
SIGNATURE = re.compile(r'[0-9a-f]{128}')


def key_folder() -> Path:
    """Where a user's own key and the keys they know lie."""
    return Path(os.environ.get('XDG_CONFIG_HOME') or Path.home() / '.config') / 'robotrials'


def key_path() -> Path:
    """The file of the key that this process signs with; it need not be there."""
    given = os.environ.get(KEY_VARIABLE)
    return Path(given) if given else key_folder() / 'key'


def known_path() -> Path:
    """The list of keys whose owners the user knows."""
    return key_folder() / 'known_keys'


def make_key(path: Path) -> str:
    """A new key in a file that only its owner can read; its public half. One that is there is never replaced."""
    key = _library().Ed25519PrivateKey.generate()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, 'w', encoding='ascii') as stream:
        stream.write(key.private_bytes_raw().hex() + '\n')
        stream.flush()
        os.fsync(stream.fileno())
    return public_half(key)


def own_public() -> str:
    """The public half of the key that this process signs with; '' if it has none."""
    key = _own_key()
    return '' if key is None else public_half(key)


def public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def signed(entry: Entry) -> Entry:
    """The entry with the signature of this process's key, or as it is if there is no key."""
    key = _own_key()
    if key is None:
        return entry
    named = dataclasses.replace(entry, signer=public_half(key), signature='')
    return dataclasses.replace(named, signature=key.sign(TAG + named.line()).hex())


def check_signature(entry: Entry) -> str:
    """What is wrong with an entry's signature; '' if nothing is, or if nobody signed it."""
    if not entry.signer and not entry.signature:
        return ''
    if PUBLIC.fullmatch(entry.signer) is None or SIGNATURE.fullmatch(entry.signature) is None:
        return 'its signature is not one'
    if not is_signed(
        entry.signer, bytes.fromhex(entry.signature), TAG + dataclasses.replace(entry, signature='').line()
    ):
        return f'its signature is not of key {entry.signer[:12]}, or is of another entry'
    return ''


def is_signed(public: str, signature: bytes, message: bytes) -> bool:
    """Whether the owner of a public key signed these very bytes."""
    from cryptography.exceptions import InvalidSignature

    try:
        _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How many entries of one kind and name were signed with one key ('': with none)."""

    by: str
    key: str
    owner: str  # of the key, by the reader's list; '' if the list does not have it
    n_entries: int
    n_closings: int


def signings(entries: Iterable[Entry], known: Mapping[str, str]) -> tuple[Signing, ...]:
    """Who signed what of a log, and what nobody signed. known: public key -> owner."""
    counts: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        count = counts.setdefault((entry.by, entry.signer), [0, 0])
        count[0] += 1
        count[1] += entry.kind == 'close'
    return tuple(
        Signing(by=by, key=key, owner=known.get(key, ''), n_entries=n, n_closings=closings)
        for (by, key), (n, closings) in sorted(counts.items())
    )


def check_owner(entry: Entry, known: Mapping[str, str]) -> str:
    """What is wrong with who signed an entry: it bears a name whose key is known, and another's signature or none."""
    keys = [key for key, owner in known.items() if owner == entry.by]
    if not keys or entry.signer in keys:
        return ''
    other = known.get(entry.signer) or f'key {entry.signer[:12]}'
    return f'it bears the name of {entry.by}, and {f"{other} signed it" if entry.signer else "nobody signed it"}'


def read_known(path: Path | None = None) -> dict[str, str]:
    """Public key -> owner, from lines of NAME and KEY; a file that is not there knows nobody."""
    source = path or known_path()
    if not source.exists():
        return {}
    known: dict[str, str] = {}
    for number, line in enumerate(source.read_text(encoding='utf-8').splitlines(), start=1):
        name, _, key = line.strip().rpartition(' ')
        if not line.strip() or line.startswith('#'):
            continue
        if not name.strip() or PUBLIC.fullmatch(key) is None:
            raise InputError(f'{source} line {number}: wanted a name and a public key of 64 hex digits')
        known[key] = name.strip()
    return known


def trust_key(name: str, key: str) -> None:
    """Note whose key this is; a key has one owner, and an owner may have several."""
    if not name.strip() or '\n' in name or PUBLIC.fullmatch(key) is None:
        raise InputError(f'wanted a name and a public key of 64 hex digits, found {name!r} and {key!r}')
    owner = read_known().get(key)
    if owner not in (None, name):
        raise InputError(f'{known_path()}: this key is {owner}; take that line out first if it is not')
    if owner is None:
        known_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(known_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 'a') as stream:
            stream.write(f'{name} {key}\n')


def _own_key() -> Ed25519PrivateKey | None:
    path = key_path()
    try:
        return load_key(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # a service may have no home
        if os.environ.get(KEY_VARIABLE):
            raise InputError(
                f'{path}: no key here, and {KEY_VARIABLE} names it; make it: robotrials store key'
            ) from None
        return None


def load_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file of `make_key`, which nobody else may be able to read."""
    state = path.stat()
    if state.st_mode & 0o077:
        raise InputError(f'{path}: others can read this key; run: chmod 600 {path}')
    return _read_key(path, state.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_key(path: Path, written_ns: int) -> Ed25519PrivateKey:
    try:
        key: Ed25519PrivateKey = _library().Ed25519PrivateKey.from_private_bytes(
            bytes.fromhex(path.read_text('ascii').strip())
        )
        return key
    except ValueError as error:
        raise InputError(f'{path}: not a key of robotrials store key ({error})') from error


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise SetupError('signatures need the package cryptography; install robotrials again') from error
    return ed25519
