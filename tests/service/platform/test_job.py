import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.service.platform.job import LeaseGuard, TokenFault, TokenRefused, read_lease, sign_lease

SECRET = b'0123456789abcdef0123456789abcdef'
LEASE = {'lease_id': 'l1', 'worker_id': 'w1', 'job_id': 'j1', 'expires_at': 1000.0}


def fault_of(token, *, secret=SECRET, worker_id='w1', now_s=900.0):
    with pytest.raises(TokenRefused) as refused:
        read_lease(secret, token, worker_id=worker_id, now_s=now_s)
    return refused.value.fault


def test_a_token_says_what_was_signed():
    claim = read_lease(SECRET, sign_lease(SECRET, **LEASE), worker_id='w1', now_s=900.0)
    assert (claim.lease_id, claim.worker_id, claim.job_id, claim.expires_at) == ('l1', 'w1', 'j1', 1000.0)


def test_another_secret_is_a_forgery():
    assert fault_of(sign_lease(b'another-secret-of-32-bytes-abcde', **LEASE)) is TokenFault.FORGED


def test_a_changed_payload_is_a_forgery():
    version, _, signature = sign_lease(SECRET, **LEASE).split('.')
    longer = base64.urlsafe_b64encode(json.dumps(['l1', 'w1', 'j1', 9e9, 'n']).encode()).rstrip(b'=').decode()
    assert fault_of(f'{version}.{longer}.{signature}') is TokenFault.FORGED


def test_a_token_of_another_worker_is_refused():
    assert fault_of(sign_lease(SECRET, **LEASE), worker_id='w2') is TokenFault.WRONG_WORKER


def test_expiry_allows_for_a_small_skew_of_clocks():
    token = sign_lease(SECRET, **LEASE)
    assert read_lease(SECRET, token, worker_id='w1', now_s=1004.0).job_id == 'j1'
    assert fault_of(token, now_s=1006.0) is TokenFault.EXPIRED


def test_a_token_is_good_once_and_two_tokens_of_one_lease_differ():
    guard = LeaseGuard(SECRET, worker_id='w1')
    first, second = sign_lease(SECRET, **LEASE), sign_lease(SECRET, **LEASE)
    assert first != second
    guard.admit(first, now_s=900.0)
    guard.admit(second, now_s=900.0)
    with pytest.raises(TokenRefused) as refused:
        guard.admit(first, now_s=1003.0)
    assert refused.value.fault is TokenFault.REPLAYED


@given(st.text(max_size=200) | st.binary(max_size=200) | st.none())
def test_whatever_is_no_token_is_refused(token):
    assert fault_of(token) in (TokenFault.MALFORMED, TokenFault.FORGED)


def test_another_spelling_of_the_same_bytes_is_refused():
    for _ in range(40):  # the nonce is drawn, and most signatures have a - or _ in them
        head, _, signature = sign_lease(SECRET, **LEASE).rpartition('.')
        other = signature.replace('-', '+').replace('_', '/')
        assert other == signature or fault_of(f'{head}.{other}') is TokenFault.MALFORMED


@given(st.data())
def test_no_changed_character_is_let_through(data):
    token = sign_lease(SECRET, **LEASE)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec='ascii').filter(lambda c: c != token[at]))
    assert fault_of(token[:at] + other + token[at + 1 :]) in (TokenFault.MALFORMED, TokenFault.FORGED)
