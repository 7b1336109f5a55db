"""Results are signed by their cell's own key, for one lease: whatever else is sent in their place is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.platform.service import Service, WorkerMoves, make_service, registration

from robotrials.record import Outcome, Store
from robotrials.service.platform.bundle import MAGIC, SIGNED_BYTES, bundle_digest, sign_bundle
from robotrials.service.platform.table import AuditEntry, Lease


class Bench:
    """Two cells of one account, each with a key of its own, and an episode under way at each."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.benchmark()
        self.kim = service.token('kim', 'submitter')
        self.cells = [service.worker(f'cell-{n}', key=Ed25519PrivateKey.generate()) for n in range(2)]
        self.leases = [self._lease(f'try-{n}') for n in range(2)]

    def _lease(self, name: str) -> tuple[WorkerMoves, str, bytes]:
        lease = self.service.lease(self.service.submit(self.kim, name), self.kim)
        assert lease is not None
        lease_id = lease['lease_id']
        cell = next(c for c in self.cells if lease['worker_address'].endswith(c.name))
        return cell, lease_id, cell.bundle(cell.job(lease_id))

    def recorded(self) -> list[Outcome]:
        path = self.service.platform.config.folder / 'stores' / 'reach'
        return [e.outcome for e in Store.open(path).episodes()] if path.exists() else []


@pytest.fixture
def bench(service: Service) -> Bench:
    return Bench(service)


def refused(answer: object) -> str:
    assert answer.status_code == 422, answer.text
    error = answer.json()['error']
    assert error['code'] == 'bad_signature'
    return str(error['message'])


def test_a_cell_cannot_answer_for_another_of_its_account(bench: Bench) -> None:
    """Both have the account's token: only the key tells them apart."""
    (_, lease_id, data), (other, _, _) = bench.leases
    assert 'is the one of this cell' in refused(other.upload(lease_id, data))
    assert bench.recorded() == []


def test_forged_changed_swapped_and_unsigned_bundles_are_refused_and_named(bench: Bench) -> None:
    (cell, lease_id, data), (_, other_lease, _) = bench.leases
    signed = sign_bundle(data, cell.key, lease_id=lease_id)
    forged = sign_bundle(data, Ed25519PrivateKey.generate(), lease_id=lease_id)
    own_name = forged[: len(MAGIC)] + signed[len(MAGIC) : len(MAGIC) + 32] + forged[len(MAGIC) + 32 :]
    better = signed[:SIGNED_BYTES] + cell.bundle(cell.job(lease_id), Outcome.SUCCESS, duration_s=0.5)
    assert 'nobody signed' in refused(cell.send(lease_id, data))
    assert 'nobody signed' in refused(cell.send(lease_id, signed[: SIGNED_BYTES - 1]))
    assert 'is the one of this cell' in refused(cell.send(lease_id, forged))
    assert 'of another bundle' in refused(cell.send(lease_id, own_name))
    assert 'of another bundle' in refused(cell.send(lease_id, better))
    assert 'or of another lease' in refused(cell.send(lease_id, sign_bundle(data, cell.key, lease_id=other_lease)))
    for place in range(len(MAGIC), SIGNED_BYTES + 40, 7):
        flipped = signed[:place] + bytes([signed[place] ^ 4]) + signed[place + 1 :]
        refused(cell.send(lease_id, flipped))
    assert bench.recorded() == []
    assert cell.send(lease_id, signed).status_code == 200
    assert bench.recorded() == [Outcome.SUCCESS]


def test_a_replayed_bundle_counts_once_and_for_no_later_lease(service: Service) -> None:
    """Also for the next attempt of the same episode, whose bundle says nothing else but its number."""
    service.benchmark()
    kim, cell = service.token('kim', 'submitter'), service.worker()
    submission = service.submit(kim)
    first = service.lease(submission, kim)
    assert first is not None
    signed = sign_bundle(cell.bundle(cell.job(first['lease_id'])), cell.key, lease_id=first['lease_id'])
    assert [cell.send(first['lease_id'], signed).status_code for _ in range(3)] == [200, 200, 200]
    cell.beat()
    second = service.lease(submission, kim)
    assert second is not None
    cell.job(second['lease_id'])
    assert 'or of another lease' in refused(cell.send(second['lease_id'], signed))
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'done': 1, 'running': 1}


def test_a_cell_keeps_its_key_and_the_trail_says_which_signed_what(bench: Bench) -> None:
    cell, lease_id, data = bench.leases[0]
    stranger = registration(cell.name, key=Ed25519PrivateKey.generate())
    answer = bench.service.ask('POST', '/workers', cell.token, stranger)
    assert (answer.status_code, answer.json()['error']['code']) == (409, 'other_key')
    bench.service.ok('POST', '/workers', cell.token, registration(cell.name, key=cell.key))
    assert cell.upload(lease_id, data).status_code == 200
    with bench.service.platform.database.read() as session:
        [accepted] = [e for e in session.query(AuditEntry) if e.action == 'result.accept']
    assert bundle_digest(data) in accepted.detail
    assert registration(key=cell.key)['key'] in accepted.detail


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, str, str]:
    """A folder whose server was killed between accepting a result and storing it."""
    with make_service(tmp_path) as service:
        bench = Bench(service)
        cell, lease_id, data = bench.leases[0]
        intake = service.platform.intake
        digest = bundle_digest(data)
        intake._spool(lease_id, digest, sign_bundle(data, cell.key, lease_id=lease_id))
        intake._mark_storing(lease_id, digest=digest, key='', actor='test')
        admin = service.admin
    return tmp_path, lease_id, admin


@pytest.mark.parametrize('is_damaged', [False, True])
def test_what_was_accepted_is_held_to_its_digest_when_it_is_taken_up_again(
    killed: tuple[Path, str, str], is_damaged: bool
) -> None:
    """A bit that flips in the server's own spool is no result: the attempt is void, and the policy is not to blame."""
    folder, lease_id, admin = killed
    [spooled] = (folder / 'spool').iterdir()
    if is_damaged:
        content = spooled.read_bytes()
        spooled.write_bytes(content.replace(b'success', b'failure'))
        assert spooled.read_bytes() != content
    with make_service(folder, admin=admin) as service, service.platform.database.read() as session:
        lease = session.get_one(Lease, lease_id)
        assert lease.state == ('failed' if is_damaged else 'done')
        assert lease.job.state == ('queued' if is_damaged else 'done')
        [episode] = Store.open(folder / 'stores' / 'reach').episodes(attempts='all')
        assert episode.outcome is (Outcome.INVALID if is_damaged else Outcome.SUCCESS)
        assert list((folder / 'spool').iterdir()) == []
