"""A bundle: one finished attempt as bytes, as a worker sends it and a submitter downloads it.

It is a msgpack map of the wire (no pickle): the episode with its events, the trajectory as Parquet, and the files of
media/ by name. Whoever opens one holds it to the rules of the record before anything is made of it.

What a worker sends is signed with its cell's own key for one lease: it counts for no other lease or cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from robotrials.errors import InputError, RecordError, StoreError
from robotrials.measure.geometry.projection import MOST_OWN_BYTES, OWN_SCORE, read_scores
from robotrials.record import Episode, Event, Trajectory
from robotrials.record.column import trajectories_from_arrow, trajectories_to_arrow
from robotrials.record.footage import FOLDER, KNOWN, check_moment, read_known
from robotrials.record.foreign import UPLOAD, parse
from robotrials.record.log import is_signed
from robotrials.record.part import parquet_options
from robotrials.record.store import check_media_name
from robotrials.record.trajectory import check_trajectory
from robotrials.run.station import check_storable, media_folder
from robotrials.value import read_table
from robotrials.wire import WireLimits, pack, unpack

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VERSION = 1
MAGIC = b'robotrials signed bundle 1\n'
N_KEY, N_SIGNATURE = 32, 64  # bytes of a public key and of a signature
SIGNED_BYTES = len(MAGIC) + N_KEY + N_SIGNATURE  # that a signature adds to a bundle
BUNDLE_LIMITS = WireLimits(max_bytes=256 << 20, max_values=500_000)
MOST_FILES = 1000
MOST_COLUMNS = 4096
KEYS = ('version', 'episode', 'events', 'trajectory', 'media')
_TIMED = ('started_at',)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bundle:
    """What came of one attempt. `digest` is the SHA-256 of its bytes: the same digest is the same upload."""

    episode: Episode
    trajectory: Trajectory | None
    media: Mapping[str, bytes] = field(default_factory=dict)  # by their names in media/
    digest: str = ''


def pack_bundle(
    episode: Episode, *, trajectory: Trajectory | None = None, media: Mapping[str, bytes] | None = None,
    most_bytes: int = BUNDLE_LIMITS.max_bytes,
) -> bytes:  # fmt: skip
    """One attempt as bytes."""
    for name in media or {}:
        _check_place(episode, name)
    if len(media or {}) > MOST_FILES:
        raise InputError(f'a bundle of {len(media or {})} files, more than the {MOST_FILES} allowed')
    data = pack(
        {
            'version': VERSION,
            'episode': episode_to_map(episode),
            'events': [dataclasses.asdict(event) for event in episode.events],
            'trajectory': None if trajectory is None else _to_parquet(episode, trajectory),
            'media': dict(media or {}),
        }
    )
    if len(data) > most_bytes:
        raise InputError(f'a bundle of {len(data)} bytes, more than the {most_bytes} allowed')
    return data


def pack_fitting(
    episode: Episode, *, trajectory: Trajectory | None, media: Mapping[str, bytes], most_bytes: int
) -> bytes:
    """One attempt as bytes that a server takes: RGB-D that would be too much is left out, which a note says.

    First the moments between start and end go, then all of it; an episode is not lost for the sake of its views.
    """
    for kept in (media, _without_views(episode, media, 'at-', note='between.txt')):
        with contextlib.suppress(InputError):
            return pack_bundle(episode, trajectory=trajectory, media=kept, most_bytes=most_bytes)
    return pack_bundle(episode, trajectory=trajectory, media=_without_views(episode, media, '', note='end.txt'))


def _without_views(episode: Episode, media: Mapping[str, bytes], prefix: str, *, note: str) -> dict[str, bytes]:
    """The files without those of RGB-D whose names begin so, and a note in their place."""
    place = f'{media_folder(episode)}/{FOLDER}/'
    kept = {name: content for name, content in media.items() if not name.startswith(place + prefix)}
    left = [len(content) for name, content in media.items() if name not in kept]
    if left:
        kept[place + note] = f'{len(left)} files of {sum(left)} bytes were left out: too much for one upload'.encode()
    return kept


def bundle_digest(data: bytes) -> str:
    """What tells one upload from another."""
    return hashlib.sha256(data).hexdigest()


def sign_bundle(data: bytes, key: Ed25519PrivateKey, *, lease_id: str) -> bytes:
    """A bundle as its worker sends it: under the key of its cell, for one lease."""
    signature = key.sign(_signed_words(data, lease_id))
    return MAGIC + key.public_key().public_bytes_raw() + signature + data


def checked_signature(data: bytes, *, lease_id: str, key: str) -> bytes:
    """The bundle in what a worker sent; InputError unless the cell's own key (in hex) signed it for this very lease."""
    if not data.startswith(MAGIC) or len(data) < SIGNED_BYTES:
        raise InputError('nobody signed this bundle; upgrade this worker')
    signer, signature = data[len(MAGIC) :][:N_KEY].hex(), data[len(MAGIC) + N_KEY :][:N_SIGNATURE]
    bundle = bare_bundle(data)
    if signer != key:
        raise InputError(f'key {signer[:12]} signed this bundle, and key {key[:12]} is the one of this cell')
    if not is_signed(signer, signature, _signed_words(bundle, lease_id)):
        raise InputError(f'the signature of key {key[:12]} is of another bundle, or of another lease')
    return bundle


def bare_bundle(data: bytes) -> bytes:
    """A bundle without its signature, if it has one."""
    return data[SIGNED_BYTES:] if data.startswith(MAGIC) else data


def _signed_words(bundle: bytes, lease_id: str) -> bytes:
    return MAGIC + f'{lease_id}\n{bundle_digest(bundle)}\n'.encode()


def unpack_bundle(data: bytes, *, limits: WireLimits = BUNDLE_LIMITS) -> Bundle:
    """The attempt in `data`; InputError (RecordError for a rule of the record) if it is not a sound one."""
    values = unpack(data, limits=limits)
    if not isinstance(values, dict) or set(values) != set(KEYS):
        raise InputError(f'not a bundle: wanted a map of {", ".join(KEYS)}')
    if values['version'] != VERSION:
        raise InputError(
            f'a bundle of version {values["version"]!r}, this robotrials reads {VERSION}; upgrade one side'
        )
    episode = episode_from_map(values['episode'], events=values['events'])
    return Bundle(
        episode=episode,
        trajectory=_from_parquet(episode, values['trajectory'], limits),
        media=_media(episode, values['media'], limits),
        digest=bundle_digest(data),
    )


def episode_to_map(episode: Episode) -> dict[str, Any]:
    """An episode, without its events, as plain values; what is absent is left out."""
    values: dict[str, Any] = {}
    for f in dataclasses.fields(Episode):
        value = getattr(episode, f.name)
        if f.name == 'events' or value is None:
            continue
        if isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, dt.datetime):
            value = value.isoformat()
        elif f.name == 'outcome':
            value = value.value
        values[f.name] = value
    return values


def episode_from_map(values: object, *, events: object = ()) -> Episode:
    """The inverse, held to the record's rules and to what a table can hold."""
    if not isinstance(values, Mapping) or not isinstance(events, list | tuple):
        raise InputError('not an episode: wanted a map of its fields and a list of its events')
    if 'episode_id' not in values:
        raise InputError('an episode without its episode_id')
    started_at = values.get('started_at')
    read = read_table(_Fields, {k: v for k, v in values.items() if k not in _TIMED}, where='episode')
    given = {f.name: getattr(read, f.name) for f in dataclasses.fields(_Fields) if getattr(read, f.name) is not None}
    recorded = tuple(read_table(Event, dict(event), where=f'events[{i}]') for i, event in enumerate(map(_map, events)))
    try:
        episode = Episode(**given, events=recorded, started_at=None if started_at is None else _moment(started_at))
    except TypeError as error:
        raise RecordError(f'not an episode: {error}') from error
    check_storable(episode)
    return episode


def _map(event: object) -> Mapping[str, Any]:
    if not isinstance(event, Mapping):
        raise InputError(f'an event is {str(event)[:60]!r}, wanted a map')
    return event


def _moment(text: object) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)  # type: ignore[arg-type]  # whatever it is, it must read as a time
    except (TypeError, ValueError) as error:
        raise RecordError(f'started_at is {str(text)[:60]!r}, wanted an ISO 8601 time') from error


# The typed fields of an episode, for `read_table`: everything but events and times, which have readers of their own.
_Fields: Any = dataclasses.make_dataclass(
    '_Fields',
    [
        (f.name, f.type, dataclasses.field(default=None))
        for f in dataclasses.fields(Episode)
        if f.name not in ('events', *_TIMED)
    ],
    namespace={'__module__': 'robotrials.record.episode'},  # where the names in the annotations are known
)


def _to_parquet(episode: Episode, trajectory: Trajectory) -> bytes:
    import pyarrow.parquet as pq

    table = trajectories_to_arrow([episode.key], [trajectory])
    sink = io.BytesIO()
    pq.write_table(table, sink, **parquet_options(table.schema))
    return sink.getvalue()


def _from_parquet(episode: Episode, data: object, limits: WireLimits) -> Trajectory | None:
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise InputError(f'the trajectory is a {type(data).__name__}, wanted the bytes of a Parquet file')
    (table,) = parse(
        'robotrials.service.platform.bundle:unpacked_trajectory', what='the trajectory', bounds=UPLOAD, data=data,
        most_bytes=limits.max_bytes,
    )  # fmt: skip
    try:
        ((key, trajectory),) = trajectories_from_arrow(table)
        check_trajectory(trajectory)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f'the trajectory cannot be read ({type(error).__name__}: {error})') from error
    if key != episode.key:
        raise RecordError(f'the trajectory is of episode {key[0]} attempt {key[1]}, wanted {episode.key}')
    return trajectory


def unpacked_trajectory(*, source: IO[bytes], most_bytes: int) -> Iterator[Any]:
    """The table in the Parquet file of a bundle: run where a parser may die of it (`episodes.foreign`)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        _check_parquet(file.metadata, most_bytes)
        yield file.read(use_threads=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f'the trajectory cannot be read ({type(error).__name__}: {error})') from error


def _check_parquet(metadata: Any, most_bytes: int) -> None:
    """Refuse a file that would unfold into more than a bundle may hold: encodings can repeat one value at no cost."""
    if metadata.num_rows != 1 or metadata.num_columns > MOST_COLUMNS:
        shape_text = f'{metadata.num_rows} rows and {metadata.num_columns} columns'
        raise InputError(f'a trajectory of {shape_text}, wanted one row and at most {MOST_COLUMNS} columns')
    chunks = [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    size = sum(max(c.total_uncompressed_size, 8 * c.num_values) for c in chunks)
    if size > most_bytes:
        raise InputError(f'a trajectory that unfolds into {size} bytes, more than the {most_bytes} allowed')


def _media(episode: Episode, values: object, limits: WireLimits) -> dict[str, bytes]:
    if not isinstance(values, dict) or len(values) > MOST_FILES:
        raise InputError(f'media: wanted a map of at most {MOST_FILES} files by name')
    for name, content in values.items():
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise InputError(f'media: {str(name)[:60]!r} is a {type(content).__name__}, wanted a name and its bytes')
        _check_place(episode, name)
    own = f'{media_folder(episode)}/'
    try:
        for name, content in values.items():
            _check_rgbd(name.removeprefix(own), content, limits)
    except StoreError as error:
        raise InputError(f'media: {error}') from error
    return values


def _check_rgbd(name: str, content: bytes, limits: WireLimits) -> None:
    """Refuse RGB-D, or a score of it, that could not be read, or not without unfolding into too much."""
    if name == KNOWN:
        read_known(content, where=name)
    elif name == OWN_SCORE:
        if len(content) > MOST_OWN_BYTES:
            raise StoreError(f'{name}: {len(content)} bytes, wanted at most {MOST_OWN_BYTES}')
        read_scores(content, where=name)
    elif name.startswith(f'{FOLDER}/') and name.endswith('.zip'):
        check_moment(content, where=name, most_bytes=limits.max_bytes)


def _check_place(episode: Episode, name: str) -> None:
    """Refuse a file that does not lie where this episode's own files lie: it could stand in for another's."""
    check_media_name(name)
    own = f'{media_folder(episode)}/', f'faults/{episode.episode_id}-{episode.attempt}.'
    if not name.startswith(own):
        raise InputError(f'media: {name!r} is not in {own[0]}, where the files of this episode belong')
