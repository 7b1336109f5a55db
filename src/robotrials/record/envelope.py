"""Envelopes that anybody can close and only one person can open: hashed ElGamal over a group of RFC 3526.

While a blinded trial is open, the machine that runs it has things to keep that would tell arms apart (latencies, error
texts) and must not be able to read them back. It closes them with the public key in the operator's plan; the secret
that opens them is the statistician's, and is published when the trial is closed.

DHIES: a fresh exponent r, the shared value y^r mod p, SHAKE-256 of it as the key stream, and an HMAC over the result.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from robotrials.errors import InputError
from robotrials.old_name import ENVELOPE_TAG

# RFC 3526, group 14: a safe prime of 2048 bits, generator 2.
PRIME = int(
    'FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B'
    '302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE6'
    '49286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB9ED529077096966D'
    '670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718'
    '3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF',
    16,
)
GENERATOR = 2
GROUP_BYTES = 256
TAG_BYTES = 32


def public_key(secret: bytes) -> str:
    """The key that closes envelopes for the holder of a secret, in hex."""
    return f'{pow(GENERATOR, _exponent(secret), PRIME):x}'


def close_envelope(public: str, content: bytes, *, label: str) -> bytes:
    """`content` for the holder of the secret alone; `label` says what it is, and is checked on opening."""
    r = secrets.randbits(512)
    shared = pow(int(public, 16), r, PRIME)
    masked, tag = _masked(content, shared, label), b''
    tag = _tag(masked, shared, label)
    return pow(GENERATOR, r, PRIME).to_bytes(GROUP_BYTES) + tag + masked


def open_envelope(secret: bytes, envelope: bytes, *, label: str) -> bytes:
    """What is in an envelope; InputError if it was closed for another secret, under another label, or was changed."""
    sender = int.from_bytes(envelope[:GROUP_BYTES])
    tag, masked = envelope[GROUP_BYTES : GROUP_BYTES + TAG_BYTES], envelope[GROUP_BYTES + TAG_BYTES :]
    if len(tag) != TAG_BYTES or not 1 < sender < PRIME - 1:
        raise InputError(f'{label}: not a sealed envelope')
    shared = pow(sender, _exponent(secret), PRIME)
    if not hmac.compare_digest(tag, _tag(masked, shared, label)):
        raise InputError(f'{label}: does not open with this secret, or was changed')
    return _masked(masked, shared, label)


def _exponent(secret: bytes) -> int:
    return int.from_bytes(hashlib.shake_256(ENVELOPE_TAG + secret).digest(64))


def _masked(content: bytes, shared: int, label: str) -> bytes:
    import numpy as np

    stream = hashlib.shake_256(b'mask' + shared.to_bytes(GROUP_BYTES) + label.encode()).digest(len(content))
    return (np.frombuffer(content, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


def _tag(masked: bytes, shared: int, label: str) -> bytes:
    key = hashlib.sha256(b'tag' + shared.to_bytes(GROUP_BYTES) + label.encode()).digest()
    return hmac.digest(key, masked, 'sha256')
