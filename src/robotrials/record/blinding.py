"""What a reader gets of a store: the rows that count, and codes for arms while a trial is blinded and open.

A trial's withheld columns are sealed while it is open, and opened when it closes.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import hmac
import io
import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.old_name import COMMITMENT_TAG, ENVELOPE_TAG
from robotrials.record.episode import Episode, Event, Outcome, Provenance
from robotrials.record.folder import sole_entry
from robotrials.record.ledger import Edits, Ledger, read_ledger
from robotrials.record.log import log_entry
from robotrials.record.part import (
    PRUNED_BY,
    EntryKind,
    PartInfo,
    checked_source,
    id_codes,
    id_hashes,
    naming_damage,
    repeated_hashes,
    row_groups,
)
from robotrials.record.rows import (
    EPISODE_FIELDS,
    EPISODE_SCHEMA,
    JSON_FIELDS,
    REIMPORT,
    SCHEMA_VERSION,
    column_values,
    episodes_from_arrow,
    in_schema,
    migrate,
)
from robotrials.value import dataclass, pattern

if TYPE_CHECKING:
    from robotrials.record.store import Store, TrialInfo
    from robotrials.record.trajectory import Trajectory


# What may be seen of a blinded trial while it is open: no arm, and nothing that would tell one arm from another.
# Behaviour, duration and outcome are what an operator stands beside and necessarily sees; they stay. Latencies, raw
# answers, texts of errors and the make of the machine are withheld. Verbs read stores through this view, so that none
# of them has to think of it. A named board sees codes, and that it looked is on record.

ALL_ARMS = 'blinded'  # stands for every arm
WITHHELD_COLUMNS = (
    'network_latency_s', 'inference_latency_s', 'transport_latency_s', 'action_raw', 'action_predicted',
)  # fmt: skip
WITHHELD_SIGNALS = ('observation_age_s',)  # among the extra ones
WITHHELD_PROVENANCE = (
    'command', 'config', 'checkpoint', 'code_revision', 'gpu', 'driver', 'cuda', 'torch', 'cpu', 'operating_system',
    'wrappers', 'normalization', 'action_postprocessing', 'environment_id', 'seeds',
)  # fmt: skip
FAULT_WORDS = pattern(r'^(policy|host|worker) (crash|hang|silent|endpoint|answer|late|exit|withdrawn|death|fault)\b')


def is_blinded_plan(trial: TrialInfo) -> bool:
    """Whether a store was made under a plan with blinding."""
    if not trial.plan:
        return False
    try:
        return bool(json.loads(trial.plan)['blinding']['enabled'])
    except (ValueError, KeyError, TypeError):
        return False  # a plan that is not the runner's says nothing about codes


def is_concealed_plan(trial: TrialInfo) -> bool:
    """Whether what stands for an arm changes with every episode of a trial."""
    return is_blinded_plan(trial) and bool(json.loads(trial.plan)['blinding'].get('rotation'))


def blinded_episode(episode: Episode, *, board: bool) -> Episode:
    """An episode as it may be seen: coarse reasons, and unless for the board no arm and no seed.

    An id is a hash over the trial's hash, the arm's code, the seed and what is seen anyway: with the seed, trying the
    few codes there can be would tell which arm it was. The start state keeps its number.
    """
    changes: dict[str, Any] = {'reason': coarse_reason(episode.reason)}
    if not board:
        changes |= {'policy': ALL_ARMS, 'is_reference': False, 'seed': None}
    return episode.replace(**changes)


def coarse_reason(reason: str) -> str:
    """Whose fault it was; how it showed would tell arms apart."""
    match = FAULT_WORDS.match(reason)
    return f'{match[1]} fault' if match else reason


def blinded_trajectory(trajectory: Trajectory) -> Trajectory:
    """A trajectory without latencies and raw answers."""
    from robotrials.record.trajectory import trusted_trajectory

    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    extra = {name: signal for name, signal in trajectory.extra.items() if name not in WITHHELD_SIGNALS}
    return trusted_trajectory(**{**values, **dict.fromkeys(WITHHELD_COLUMNS), 'extra': extra})


def blinded_provenance(provenance: Provenance) -> Provenance:
    """A provenance without what differs between the machines that arms run on."""
    withheld: dict[str, Any] = dict.fromkeys(WITHHELD_PROVENANCE, '')
    return dataclasses.replace(provenance, **withheld, packages={}, render_flags={}, policy_cards=())


def check_blinded_where(where: Where | None, *, board: bool) -> None:
    """Refuse to pick out an arm of an open trial."""
    concealed = {'policy', 'is_reference', 'reason', 'provenance_id', 'seed'} & set(where or {})
    if concealed and not board:
        raise InputError(
            f'the trial is blinded and open: episodes cannot be picked by {min(concealed)}; close it first, or look as '
            'the board with: robotrials --board NAME ...'
        )


# Unblinding records: which policy each code stood for, who opened that and when. Logged once, when a trial closes.
# While a trial is open its episodes carry codes. Readers apply these records, so that closing rewrites nothing.

FOLDER = 'unblinding'  # of older versions
CODE_DIGITS = 4
PSEUDONYM_DIGITS = 6
MOST_PER_ARM = 1_000_000  # as many as a plan may have in all
PLAN_HASH_DIGITS = 32
# Left out where they are empty: older records keep their signature.
LATER_FIELDS = ('operator_plan', 'rotation', 'n_per_arm', 'leakage')
ROTATION_TAG = b'robotrials rotation'


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """How well the arms of a trial could be guessed from what its operator's account can read."""

    source: str  # what the guesses rest on
    n: int
    n_right: int
    n_arms: int
    bits: float  # per episode
    low: float  # of its 95 % interval
    high: float
    telling: str = ''  # what told most

    def __str__(self) -> str:
        return (
            f'{self.bits:.3f} bits per episode, 95 % interval {self.low:.3f} to {self.high:.3f} ({self.n_right} of '
            f'{self.n} arms guessed right, {self.n / self.n_arms:.0f} by chance)'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblinding:
    """One trial's opening."""

    trial_id: str
    by: str
    at: str
    policies: Mapping[str, str]  # code -> policy
    reference: str = ''  # the reference's code
    why: str = ''
    plan: str = ''  # the whole plan, as declared
    key: str = ''  # opens what was sealed while the trial was open, in hex
    operator_plan: str = ''  # of a trial with roles apart: the plan that was run; `plan` is then the statistician's
    rotation: str = ''  # of a concealed trial: the key of its order and of its episodes' pseudonyms, in hex
    n_per_arm: int = 0  # how many episodes each of its arms was planned to have
    leakage: tuple[Leakage, ...] = ()  # of a sealed trial: how well its arms could be guessed while it was open
    signature: str = ''  # of all the above, with the key that only who sealed the trial had

    def names(self) -> Mapping[str, str]:
        """What stands in the record for a policy -> the policy: its code or, in a concealed trial, every pseudonym."""
        if not self.rotation:
            return self.policies
        given = pseudonyms(bytes.fromhex(self.rotation), tuple(sorted(self.policies)), self.n_per_arm)
        return {name: self.policies[code] for (code, _), name in given.items()}


@dataclass(frozen=True, slots=True)
class Unblindings:
    """All openings of a store, by trial."""

    by_trial: Mapping[str, Unblinding] = field(default_factory=dict)
    _known: dict[str, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)

    def apply(self, episode: Episode) -> Episode:
        """The episode under its policy's name, if its trial has been closed."""
        opening = self.by_trial.get(episode.trial_id)
        policy = self._names(episode.trial_id).get(episode.policy)
        if opening is None or policy is None:
            return episode
        return episode.replace(policy=policy, is_reference=policy == opening.policies.get(opening.reference))

    def _names(self, trial_id: str) -> Mapping[str, str]:
        if trial_id not in self._known and trial_id in self.by_trial:
            self._known[trial_id] = self.by_trial[trial_id].names()
        return self._known.get(trial_id, {})

    def codes(self, names: Collection[object]) -> list[str]:
        """Every code that stood for one of these policies."""
        return [code for trial in self.by_trial for code, policy in self._names(trial).items() if policy in names]


def arm_codes(names: Iterable[str], key: bytes) -> dict[str, str]:
    """The code of each policy under a key: policy -> arm-XXXX."""
    digests = {name: hmac.digest(key, name.encode(), 'sha256').hex() for name in names}
    digits = CODE_DIGITS
    while len({d[:digits] for d in digests.values()}) < len(digests):
        digits += 1
    return {name: f'arm-{digests[name][:digits]}' for name in digests}


@functools.lru_cache(maxsize=8)
def pseudonyms(rotation: bytes, codes: tuple[str, ...], n_per_arm: int) -> Mapping[tuple[str, int], str]:
    """The name that stands for an arm in one episode alone: (code, place of the episode in its arm) -> name.

    Without the key, two names of one arm are no more alike than names of two arms.
    """
    digests = {
        (code, place): hmac.digest(rotation, f'{code} {place}'.encode(), 'sha256').hex()
        for code in codes for place in range(n_per_arm)
    }  # fmt: skip
    digits = PSEUDONYM_DIGITS
    while len({d[:digits] for d in digests.values()}) < len(digests):
        digits += 1
    return {key: f'ep-{digest[:digits]}' for key, digest in digests.items()}


def rotation_commitment(rotation: bytes) -> str:
    """What binds a concealed trial to the key of its order, and tells nothing of it."""
    return hashlib.sha256(ROTATION_TAG + rotation).hexdigest()


def commitment(secret: bytes, plan: str) -> str:
    """What binds a sealed trial to its secret and its whole plan, and tells neither."""
    return hmac.digest(secret, COMMITMENT_TAG + plan.encode(), 'sha256').hex()


def sign(unblinding: Unblinding) -> Unblinding:
    """The record with its signature: whoever has the key can make it, and afterwards everyone can check it."""
    return dataclasses.replace(unblinding, signature=_signature(unblinding))


def _signature(unblinding: Unblinding) -> str:
    values = {k: v for k, v in _as_json(unblinding).items() if k != 'signature'}
    text = json.dumps(values, sort_keys=True, separators=(',', ':'))
    return hmac.digest(bytes.fromhex(unblinding.key), text.encode(), 'sha256').hex()


def check_unblinding(unblinding: Unblinding) -> str:
    """What is wrong with a record, recomputed from the plan and the key in it; '' if nothing is."""
    if not unblinding.plan:
        return ''  # written by hand: nothing to recompute it from
    declared = unblinding.operator_plan or unblinding.plan
    if hashlib.sha256(declared.encode()).hexdigest()[:PLAN_HASH_DIGITS] != unblinding.trial_id:
        return 'its plan is not the plan of the trial'
    try:
        plan, key = json.loads(unblinding.plan), bytes.fromhex(unblinding.key)
        if unblinding.operator_plan:
            committed = json.loads(unblinding.operator_plan)['blinding']['commitment']
            if not hmac.compare_digest(committed, commitment(key, unblinding.plan)):
                return 'its secret and plan are not those that were committed to when the trial was sealed'
            order = json.loads(unblinding.operator_plan)['blinding'].get('rotation', '')
            if (rotation_commitment(bytes.fromhex(unblinding.rotation)) if unblinding.rotation else '') != order:
                return 'the key of its order is not the one that was committed to when the trial was sealed'
        is_blinded = bool(plan['blinding']['enabled'])
        codes = arm_codes(sorted(plan['policies']), key) if is_blinded else {name: name for name in plan['policies']}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f'its plan or key cannot be read ({error})'
    if {code: name for name, code in codes.items()} != dict(unblinding.policies):
        return 'its codes do not follow from the plan and the key'
    if codes.get(plan.get('reference', ''), '') != unblinding.reference:
        return "its reference is not the plan's"
    if unblinding.signature and not hmac.compare_digest(unblinding.signature, _signature(unblinding)):
        return 'its signature does not fit'
    return ''


def board_opening(trial_id: str, plan: str, path: Path) -> Unblinding | None:
    """What shows an open trial by arm, from its arms.json: pseudonyms become codes, and codes stay codes."""
    committed = json.loads(plan)['blinding'].get('rotation', '')
    if not committed:
        return None  # its episodes carry codes
    try:
        values = json.loads(path.read_bytes())
        rotation = bytes.fromhex(values['rotation'])
        record = Unblinding(
            trial_id=trial_id, by='', at='', policies={code: code for code in values['arms']},
            rotation=rotation.hex(), n_per_arm=int(values['n_per_arm']),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not the arms.json of a sealed trial ({error})') from error
    if rotation_commitment(rotation) != committed:
        raise InputError(f'{path}: the arms of another trial; use the file that was sealed with this one')
    return record


def read_unblindings(root: Path) -> Unblindings:
    """The openings of a store; a file that is not one is named."""
    return Unblindings({u.trial_id: u for u in reversed(all_unblindings(root, read_ledger(root)))})


def all_unblindings(root: Path, ledger: Ledger) -> list[Unblinding]:
    """Every opening on record, the first that counts first: two copies of a store may each have been closed."""
    records = [_parse(entry.body.get('unblinding', {}), where=f'{root}: the log') for entry in ledger.closings]
    folder = root / FOLDER
    return records + ([_read(path) for path in sorted(folder.glob('*.json'))] if folder.is_dir() else [])


def write_unblinding(root: Path, unblinding: Unblinding) -> None:
    """Log an opening; a trial that is already open is refused, with who opened it and when."""
    with sole_entry(root):
        earlier = read_unblindings(root).by_trial.get(unblinding.trial_id)
        if earlier is not None:
            raise StoreError(f'{root}: this trial was closed by {earlier.by} at {earlier.at}; it closes once')
        log_entry(root, EntryKind.CLOSE, by=unblinding.by, body={'unblinding': _as_json(unblinding)})


def _as_json(unblinding: Unblinding) -> dict[str, Any]:
    values = {**dataclasses.asdict(unblinding), 'policies': dict(unblinding.policies)}
    return {k: v for k, v in values.items() if v or k not in LATER_FIELDS}


def _read(path: Path) -> Unblinding:
    try:
        return _parse(json.loads(path.read_text(encoding='utf-8')), where=str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f'{path}: not an unblinding record ({error}); run: robotrials store verify') from error


def _parse(values: Any, *, where: str) -> Unblinding:
    try:
        record = Unblinding(**{**values, 'leakage': tuple(map(_leakage, values.get('leakage', ())))})
        bytes.fromhex(record.rotation)
        n_per_arm: Any = values.get('n_per_arm', 0)
        if type(n_per_arm) is not int or not 0 <= n_per_arm <= MOST_PER_ARM:
            raise ValueError(f'{n_per_arm!r} episodes of each arm')
        return record
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(f'{where}: not an unblinding record ({error}); run: robotrials store verify') from error


def _leakage(values: Mapping[str, Any]) -> Leakage:
    counts, sizes = [values[k] for k in ('n', 'n_right', 'n_arms')], [values[k] for k in ('bits', 'low', 'high')]
    if not all(type(n) is int and n >= 0 for n in counts) or not all(isinstance(x, int | float) for x in sizes):
        raise ValueError('a leakage without its numbers')
    if not values['n_arms'] or not all(isinstance(values.get(k, ''), str) for k in ('source', 'telling')):
        raise ValueError('a leakage of no arms')
    return Leakage(**values)


# Envelopes that anybody can close and only one person can open: hashed ElGamal over a group of RFC 3526.
# While a blinded trial is open, the machine that runs it has things to keep that would tell arms apart (latencies,
# error texts) and must not be able to read them back. It closes them with the public key in the operator's plan; the
# secret that opens them is the statistician's, and is published when the trial is closed.
# DHIES: a fresh exponent r, the shared value y^r mod p, SHAKE-256 of it as the key stream, and an HMAC over the
# result.

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
    masked = _masked(content, shared, label)
    return pow(GENERATOR, r, PRIME).to_bytes(GROUP_BYTES) + _tag(masked, shared, label) + masked


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
    stream = hashlib.shake_256(b'mask' + shared.to_bytes(GROUP_BYTES) + label.encode()).digest(len(content))
    return (np.frombuffer(content, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


def _tag(masked: bytes, shared: int, label: str) -> bytes:
    key = hashlib.sha256(b'tag' + shared.to_bytes(GROUP_BYTES) + label.encode()).digest()
    return hmac.digest(key, masked, 'sha256')


# Columns that were sealed while a trial was open, and come back to its trajectories once it is closed.

SEALED_FOLDER = 'sealed'  # in media/
Key = tuple[str, int]


def seal_trajectory(trajectory: Trajectory, key: Key, *, public: str) -> tuple[Trajectory, dict[str, bytes]]:
    """A trajectory without its telling columns, and the file of media/ that holds them for whoever has the secret."""
    present = {name: getattr(trajectory, name) for name in WITHHELD_COLUMNS}
    withheld: dict[str, Any] = {name: np.asarray(v) for name, v in present.items() if v is not None}
    signals: dict[str, Any] = {name: np.asarray(v) for name, v in trajectory.extra.items() if name in WITHHELD_SIGNALS}
    extra = {name: signal for name, signal in trajectory.extra.items() if name not in signals}
    if not withheld:
        return trajectory, {}
    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    buffer = io.BytesIO()
    np.savez(buffer, **withheld, **signals)  # not compressed: its size must tell no more than the number of steps
    name = f'{SEALED_FOLDER}/{key[0]}-{key[1]}.npz.sealed'
    from robotrials.record.trajectory import trusted_trajectory

    rest = trusted_trajectory(**{**values, **dict.fromkeys(withheld), 'extra': extra})
    return rest, {name: close_envelope(public, buffer.getvalue(), label=name)}


def with_sealed(store: Store, trajectory: Trajectory, key: Key) -> Trajectory:
    """The trajectory with the columns that were sealed, if there are any and the trial is closed."""
    name = f'{SEALED_FOLDER}/{key[0]}-{key[1]}.npz.sealed'
    path = store.path / 'media' / name
    if not path.exists():
        return trajectory
    keys = [u.key for u in store.unblindings().by_trial.values() if u.operator_plan]
    if not keys:
        return trajectory
    opened = open_envelope(bytes.fromhex(keys[0]), path.read_bytes(), label=name)
    with np.load(io.BytesIO(opened), allow_pickle=False) as columns:
        regained = {column: columns[column] for column in WITHHELD_COLUMNS if column in columns}
        extra = {name: columns[name] for name in WITHHELD_SIGNALS if name in columns}
    values = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    from robotrials.record.trajectory import Trajectory

    return Trajectory(**{**values, **regained, 'extra': {**trajectory.extra, **extra}})


Where = Mapping[str, Any]
BATCH_ROWS = 8192
SMALL_ROWS = 4096
FEW_IDS = 1000  # up to here episodes are looked for one by one
KEY_COLUMNS = ('episode_id', 'attempt', 'outcome')  # what decides which attempt counts


@dataclass(frozen=True, slots=True)
class UncountedRows:
    """The rows that do not count: (part number, key) pairs, and keys that one part has several times."""

    excluded: frozenset[tuple[int, Key]]
    repeated: frozenset[tuple[int, Key]] = frozenset()
    duplicates: frozenset[Key] = frozenset()  # keys of several rows, in one part or in several

    def keeps(self, part_number: int, key: Key, *, shown: set[Key]) -> bool:
        """Whether a row counts; `shown` are the repeated keys of this part that came before it."""
        if self.excluded and (part_number, key) in self.excluded:
            return False
        if self.repeated and (part_number, key) in self.repeated:
            if key in shown:
                return False
            shown.add(key)
        return True


def check_where(where: Where | None) -> None:
    """Refuse a filter on a field that episodes do not have, with the near name."""
    for name, wanted in (where or {}).items():
        if name not in EPISODE_FIELDS or name in JSON_FIELDS:
            raise UnknownName('field to filter by', name, [n for n in EPISODE_FIELDS if n not in JSON_FIELDS])
        field = EPISODE_SCHEMA.field(name)
        try:
            values = [v for v in _values(wanted) if v is not None]
            pa.array(values, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError) as error:
            raise InputError(f'a filter wants {name} as {field.type}, found {wanted!r} ({error})') from error


def prune_parts(
    parts: Sequence[PartInfo], where: Where | None, *, edits: Edits, unblindings: Unblindings | None = None
) -> list[PartInfo]:
    """The parts that may hold a row that matches, as far as the log tells without opening them.

    All attempts of an episode share the fields that are looked at, so which attempt counts does not change.
    """
    opened = unblindings if unblindings is not None and unblindings.by_trial else None
    edited = _edited_fields(edits)
    ids = named_ids(where, edits)
    codes = id_codes(ids) if ids else ()
    asked = {
        name: set(_values(wanted))
        for name, wanted in (_blinded(where, opened) or {}).items()
        if name in PRUNED_BY and name not in edited
    }
    return [
        p
        for p in parts
        if all(name not in p.values or not wanted.isdisjoint(p.values[name]) for name, wanted in asked.items())
        and (ids is None or (rows := p.candidates(codes)) is None or len(rows))
    ]


def _edited_fields(edits: Edits) -> set[str]:
    return {edit.field for rows in edits.by_episode.values() for edit in rows}


def named_ids(where: Where | None, edits: Edits) -> list[str] | None:
    """The few ids that a filter names; None where it names none or many, or where edits of an older log changed ids."""
    if 'episode_id' not in (where or {}) or 'episode_id' in _edited_fields(edits):
        return None
    ids = [str(value) for value in _values((where or {})['episode_id']) if value is not None]
    return ids if len(ids) <= FEW_IDS else None


def rows_named(part: PartInfo, ids: Sequence[str]) -> pa.Table:
    """The rows with these ids, in the schema of today: of an indexed part, only the row groups they are in are read."""
    wanted, places = pa.array(ids, pa.string()), part.candidates(id_codes(ids))
    with naming_damage(part.path):
        tables: Iterable[pa.Table] = (
            _tables(part, expression=pc.field('episode_id').isin(wanted))
            if places is None
            else (
                migrate(rows, part.schema_version, where=str(part.path))
                for rows in row_groups(part.path, part.logged, rows=places)
            )
        )
        named = [table.filter(pc.is_in(table['episode_id'], wanted)) for table in tables]
        return pa.concat_tables(named).unify_dictionaries()


def all_rows(part: PartInfo) -> pa.Table:
    """The rows of a small part, in the schema of today."""
    with naming_damage(part.path):
        return pa.concat_tables(_tables(part))


def select_attempts(
    sources: Sequence[PartInfo] | Sequence[pa.Table], edits: Edits, *, every: bool = False
) -> UncountedRows:
    """Of several rows with one id, the one that counts is the first valid attempt, or else the last attempt.

    That a later, luckier attempt can't replace a valid one is the point: a rerun is for a broken rig. `every` takes all
    attempts; a row that stands in the tables twice, because two stores that had it were merged, is taken once anyway.
    `sources` are parts, or their rows where they were read already, with at least `KEY_COLUMNS`; the rows of several
    parts in their order may be one table.
    """
    excluded: set[tuple[int, Key]] = set()
    repeated: set[tuple[int, Key]] = set()
    duplicates: set[Key] = set()
    for rows in _repeated_ids(sources).values():
        kept: dict[Key, int] = {}
        for part_number, key, _ in rows:
            if key not in kept:
                kept[key] = part_number
                continue
            duplicates.add(key)
            (repeated if kept[key] == part_number else excluded).add((part_number, key))
        if not every:
            counted = counted_attempt({key: outcome for _, key, outcome in reversed(rows)}, edits)
            excluded.update((part_number, key) for key, part_number in kept.items() if key != counted)
    return UncountedRows(frozenset(excluded), frozenset(repeated), frozenset(duplicates))


def check_duplicates(parts: Sequence[PartInfo], duplicates: Collection[Key]) -> None:
    """Raise StoreError where rows that share an id and an attempt differ: which of them counts would be chance."""
    ids = sorted({episode_id for episode_id, _ in duplicates})
    first: dict[Key, dict[str, Any]] = {}
    for part in parts if ids else ():
        for row in rows_named(part, ids).to_pylist():
            key = row['episode_id'], row['attempt']
            if key in duplicates and first.setdefault(key, row) != row:
                raise StoreError(
                    f'{part.path}: episode_id {key[0]} attempt {key[1]} is recorded twice, with different content; '
                    f'{REIMPORT}'
                )


def counted_attempt(outcomes: Mapping[Key, str], edits: Edits) -> Key:
    """Of the attempts of one episode, given with their recorded outcomes, the one that counts."""
    keys = sorted(outcomes, key=lambda key: key[1])
    present = [key for key in keys if not edits.is_dropped(*key)] or keys
    for key in present:
        outcome = outcomes[key]
        for edit in edits.by_episode.get(key[0], ()):
            if edit.concerns(*key) and edit.field == 'outcome':
                outcome = str(edit.value)
        if outcome != Outcome.INVALID:
            return key
    return present[-1]


def _repeated_ids(sources: Sequence[PartInfo] | Sequence[pa.Table]) -> dict[str, list[tuple[int, Key, str]]]:
    """The rows of every id that stands in the tables more than once, in part order.

    One pass over 64-bit hashes (8 bytes an episode) finds the few candidates; only those are read as text.
    """
    hashes = [np.concatenate(list(_hashes_of(source))) for source in sources]
    repeated = repeated_hashes(hashes)
    rows_by_id: dict[str, list[tuple[int, Key, str]]] = {}
    for number, source in enumerate(sources):
        rows = np.flatnonzero(np.isin(hashes[number], repeated)) if len(repeated) else ()
        if len(rows) == 0:
            continue
        table = _columns_of(source, KEY_COLUMNS).take(rows)
        columns = [column_values(table[name]) for name in KEY_COLUMNS]
        for episode_id, attempt, outcome in zip(*columns, strict=True):
            rows_by_id.setdefault(episode_id, []).append((number, (episode_id, attempt), outcome))
    return {episode_id: rows for episode_id, rows in rows_by_id.items() if len(rows) > 1}


def _hashes_of(source: PartInfo | pa.Table) -> Iterator[NDArray[np.uint64]]:
    """The hashes of the ids of a table, or of a part; of a large one only the bytes of its ids are read and checked."""
    if isinstance(source, pa.Table) or source.n_rows <= SMALL_ROWS:
        yield id_hashes(_columns_of(source, ['episode_id'])['episode_id'])
        return
    schema = pa.schema([EPISODE_SCHEMA.field('episode_id')])
    for group in row_groups(source.path, source.logged, choose=lambda _: schema.names):
        yield id_hashes(in_schema(group, schema, where=str(source.path))['episode_id'])


def _columns_of(source: PartInfo | pa.Table, names: Sequence[str]) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    with naming_damage(source.path):
        return column_table(source, list(names))


def read_part_episodes(
    part: PartInfo,
    events: Mapping[Key, tuple[Event, ...]],
    *,
    edits: Edits,
    where: Where | None,
    unblindings: Unblindings | None = None,
    tables: Iterable[pa.Table] | None = None,
) -> Iterator[Episode]:
    """Stream the episodes of one part in bounded memory, unblinded, edits applied, filtered as asked.

    `tables` are its rows where they were read already: all that may match.
    """
    opened = unblindings if unblindings is not None and unblindings.by_trial else None
    expression = where_expression(_blinded(where, opened))
    if expression is not None and edits.by_episode:
        expression = expression | pc.field('episode_id').isin(list(edits.by_episode))
    wanted = [(name, frozenset(_values(values))) for name, values in (where or {}).items()]
    start = 0
    try:
        for table in _tables(part, expression=expression) if tables is None else tables:
            for episode in episodes_from_arrow(table, events):
                edited = edits.apply(opened.apply(episode) if opened is not None else episode)
                if not wanted or all(getattr(edited, name) in values for name, values in wanted):
                    yield edited
            start += table.num_rows
    except RecordError as error:
        among = ' (among the filtered rows)' if where is not None else ''
        raise StoreError(f'{part.path} after row {start}{among}: {error}') from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise StoreError(f'{part.path}: damaged or gone ({error}); run: robotrials store verify') from error


def _tables(part: PartInfo, *, expression: Any = None) -> Iterator[pa.Table]:
    """The rows of a part whose bytes were checked, in the schema of today and in bounded memory.

    `expression` leaves rows out where the schema was today's already.
    """
    source = checked_source(part.path, part.logged)
    if part.schema_version < SCHEMA_VERSION:
        expression = None
    if part.n_rows <= SMALL_ROWS:
        # Starting a scan takes longer than reading a small part does.
        table = migrate(pq.ParquetFile(source).read(use_threads=False), part.schema_version, where=str(part.path))
        yield table if expression is None else table.filter(expression)
        return
    # A scan of a dataset would read several row groups ahead.
    file = pq.ParquetFile(source)
    migrate(file.schema_arrow.empty_table(), part.schema_version, where=str(part.path))
    for batch in file.iter_batches(batch_size=BATCH_ROWS):
        table = migrate(pa.Table.from_batches([batch]), part.schema_version, where=str(part.path))
        yield table if expression is None else table.filter(expression)


def column_table(part: PartInfo, columns: list[str] | None = None) -> pa.Table:
    """Columns of a part, all at once; every column as it was recorded unless some are named."""
    file = pq.ParquetFile(checked_source(part.path, part.logged))
    table = file.read(columns=columns, use_threads=part.n_rows > SMALL_ROWS)
    if columns is None:
        return table
    return in_schema(table, pa.schema([EPISODE_SCHEMA.field(name) for name in columns]), where=str(part.path))


def part_keys(part: PartInfo) -> set[tuple[str, int]]:
    """The id and attempt of every row of a part."""
    table = column_table(part, ['episode_id', 'attempt'])
    return set(zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True))


def _values(wanted: Any) -> list[Any]:
    many = isinstance(wanted, Collection) and not isinstance(wanted, str)
    return [v.value if isinstance(v, enum.Enum) else v for v in (wanted if many else [wanted])]


def _blinded(where: Where | None, opened: Unblindings | None) -> Where | None:
    """The filter as it holds for rows that were recorded under codes; what codes hide is filtered after reading."""
    if where is None or opened is None:
        return where
    coded = {name: wanted for name, wanted in where.items() if name != 'is_reference'}
    if 'policy' in coded:
        names = _values(coded['policy'])
        coded['policy'] = names + opened.codes(names)
    return coded


def where_expression(where: Where | None) -> Any:
    """The filter for Arrow; None where there is none."""
    expression = None
    for name, wanted in (where or {}).items():
        values = _values(wanted)
        term = pc.field(name).isin([v for v in values if v is not None])
        if None in values:
            term = term | pc.field(name).is_null()
        expression = term if expression is None else expression & term
    return expression
