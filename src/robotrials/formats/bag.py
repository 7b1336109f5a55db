"""ROS bags: the messages of a ROS 2 bag (sqlite3 or MCAP), a lone MCAP file, or a ROS 1 bag, through rosbags.

A file that a crash cut off has no index; what is whole in it is read as a stream, and what was lost is said.
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, install_hint, load_optional
from robotrials.formats.imported import head_of
from robotrials.old_name import MCAP_PROFILE

SUFFIXES = ('.mcap', '.db3', '.bag')
METADATA = 'metadata.yaml'
MCAP_MAGIC = b'\x89MCAP0\r\n'
HEADER_STAMP = struct.Struct('<iI')
IMAGE_TYPE = 'sensor_msgs/msg/Image'
DEPTH_UNIT = struct.Struct('<f')
# Not among the types that ship with rosbags; bags of older distributions do not carry definitions.
EXTRA_TYPES = {'control_msgs/msg/GripperCommand': 'float64 position\nfloat64 max_effort\n'}


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One message: where it was published, when it was logged, what it says."""

    topic: str
    log_ns: int
    content: Any


@dataclass(frozen=True, slots=True)
class Bag:
    """A bag on disk. Open it with `open_bag`."""

    path: Path
    topics: Mapping[str, str]  # topic -> type
    counts: Mapping[str, int]
    custom: Mapping[str, str] = field(default_factory=dict)
    lost: str = ''  # what a cut-off file lost

    @property
    def files(self) -> tuple[Path, ...]:
        if self.path.is_file():
            return (self.path,)
        return tuple(sorted(p for p in self.path.iterdir() if p.name == METADATA or p.suffix in SUFFIXES))

    def messages(
        self, topics: Collection[str], *, between_ns: tuple[int, int] | None = None
    ) -> Iterator[BagMessage]:  # fmt: skip
        """The messages of some topics, in the order of their log times; all, or those logged between two times."""
        first_ns, last_ns = between_ns or (None, None)
        if self.lost:
            for message in _streamed(self.path, topics):
                if first_ns is None or last_ns is None or first_ns <= message.log_ns < last_ns:
                    yield message
            return
        counts = dict.fromkeys((t for t in topics if t in self.topics), 0)
        with _reader(self.path) as reader:
            chosen = [c for c in reader.connections if c.topic in topics]
            read = _deserializer(self.path, chosen)
            messages = reader.messages(connections=chosen, start=first_ns, stop=last_ns) if chosen else ()
            for connection, log_ns, raw in messages:
                counts[connection.topic] += 1
                yield BagMessage(connection.topic, log_ns, read(raw, connection.msgtype))
        for topic, count in counts.items() if between_ns is None else ():
            if count != self.counts[topic]:
                raise InputError(
                    f'{self.path}: {count} messages on {topic}, and its metadata say {self.counts[topic]}; not whole'
                )

    def message_at(self, topic: str, log_ns: int) -> BagMessage:
        """The message of a topic that was logged at this very time; only what lies about it is read."""
        if self.lost:
            for message in _streamed(self.path, [topic]):
                if message.log_ns == log_ns:
                    return message
        else:
            with _reader(self.path) as reader:
                chosen = [c for c in reader.connections if c.topic == topic]
                read = _deserializer(self.path, chosen)
                for connection, at_ns, raw in reader.messages(connections=chosen, start=log_ns, stop=log_ns + 1):
                    if at_ns == log_ns:
                        return BagMessage(topic, at_ns, read(raw, connection.msgtype))
        raise InputError(f'{self.path}: no message on {topic} at {log_ns} ns any more; was the bag changed?')

    def first(self, topic: str) -> Any:
        """The content of a topic's first message; None where it has none."""
        message = next(iter(self.messages([topic])), None) if topic in self.topics else None
        return None if message is None else message.content

    def stamps_ns(self, topic: str) -> tuple[list[int], list[int]]:
        """Log times and header stamps of a topic whose messages begin with a header; the rest of them is not read."""
        if self.lost:
            stamps = [(m.log_ns, header_stamp_ns(m.content)) for m in _streamed(self.path, [topic])]
            return [log for log, _ in stamps], [stamp for _, stamp in stamps]
        log_ns, stamp_ns = [], []
        with _reader(self.path) as reader:
            chosen = [c for c in reader.connections if c.topic == topic]
            for _, at_ns, raw in reader.messages(connections=chosen) if chosen else ():
                # Four bytes before it in either version: CDR's own header, or ROS 1's sequence number.
                seconds, nanoseconds = HEADER_STAMP.unpack_from(raw, 4)
                log_ns.append(at_ns)
                stamp_ns.append(seconds * 1_000_000_000 + nanoseconds)
        return log_ns, stamp_ns


def header_stamp_ns(content: Any) -> int:
    """The header's stamp, or 0."""
    stamp = getattr(getattr(content, 'header', None), 'stamp', None)
    return 0 if stamp is None else int(stamp.sec) * 1_000_000_000 + int(getattr(stamp, 'nanosec', 0))


def is_bag(path: Path) -> bool:
    """Whether a path looks like a bag: a folder with its metadata, or a lone file that robotrials did not write."""
    if path.is_dir():
        return (path / METADATA).is_file()
    return path.suffix in SUFFIXES and path.is_file() and not is_own_mcap(path)


def is_own_mcap(path: Path) -> bool:
    """Whether an MCAP file is one that robotrials wrote, by the profile in its header."""
    if path.suffix != '.mcap' or not path.is_file():
        return False
    profile = MCAP_PROFILE.encode()
    head = head_of(path)
    start = len(MCAP_MAGIC) + 9  # a record's opcode and length
    return head.startswith(MCAP_MAGIC) and head[start:].startswith(struct.pack('<I', len(profile)) + profile)


def open_bag(path: Path) -> Bag:
    """The topics of a bag, and whatever its recorder wrote beside them."""
    try:
        with _reader(path) as reader:
            topics = {c.topic: c.msgtype for c in reader.connections}
            counts = {topic: info.msgcount for topic, info in reader.topics.items()}
            return Bag(path, topics, counts, _custom(reader))
    except InputError as error:
        files = [path] if path.is_file() else sorted(path.glob('*.mcap'))
        if len(files) != 1 or files[0].suffix != '.mcap' or not _starts_as_mcap(files[0]):
            raise
        return _salvaged(files[0], error)


def _starts_as_mcap(path: Path) -> bool:
    with path.open('rb') as stream:
        return stream.read(len(MCAP_MAGIC)) == MCAP_MAGIC


def _custom(reader: Any) -> dict[str, str]:
    """`custom_data` of metadata.yaml; ROS 1 bags and lone files have none."""
    storage = getattr(reader, 'storage', None)
    custom = getattr(getattr(storage, 'metadata', None), 'custom', None)
    return {str(k): str(v) for k, v in (custom or {}).items()}


@contextmanager
def _reader(path: Path) -> Iterator[Any]:
    """The reader of rosbags, open; whatever it complains of is named by the bag's path."""
    name = 'rosbags.rosbag1' if path.suffix == '.bag' else 'rosbags.rosbag2'
    module = load_optional(name, f'{path}: reading ROS bags needs rosbags: {install_hint("ros")}')
    sqlite_error = importlib.import_module('apsw').Error
    try:
        with module.Reader(path) as reader:
            yield reader
    except (module.ReaderError, sqlite_error, OSError, AssertionError, KeyError, ValueError, struct.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'{path}: not readable as a ROS bag ({error})') from error


def _deserializer(path: Path, connections: Sequence[Any]) -> Callable[[bytes, str], Any]:
    """How to read the messages of some connections, by the definitions that the bag carries, or the usual ones."""
    definitions = {(c.msgtype, c.msgdef.format.name, c.msgdef.data) for c in connections}
    return _reading(path, tuple(sorted(definitions)))


def _reading(path: Path, definitions: tuple[tuple[str, str, str], ...]) -> Callable[[bytes, str], Any]:
    from rosbags.serde import SerdeError
    from rosbags.typesys import TypesysError

    try:
        store = _typestore(definitions)
    except TypesysError as error:
        raise InputError(f'{path}: a message definition in the bag is broken ({error})') from error
    read = store.deserialize_ros1 if path.suffix == '.bag' else store.deserialize_cdr

    def deserialize(raw: bytes, name: str) -> Any:
        try:
            return read(raw, name)
        except KeyError as error:
            raise InputError(f'{path}: no definition of {name}: neither the bag nor rosbags has one') from error
        except (SerdeError, ValueError) as error:
            if (image := _realsense_image(raw, name, read)) is not None:
                return image
            raise InputError(f'{path}: a message of type {name} is damaged ({error})') from error

    return deserialize


def _realsense_image(raw: bytes, name: str, read: Callable[[bytes, str], Any]) -> Any:
    """An image of RealSense's SDK, which appends the unit of its depth without saying so in the definition.

    Its writer marks such images by a header whose frame is "1". None where it is no such image.
    """
    from rosbags.serde import SerdeError

    if name != IMAGE_TYPE or len(raw) < DEPTH_UNIT.size:
        return None
    try:
        image = read(raw[: -DEPTH_UNIT.size], name)
    except (SerdeError, ValueError):
        return None
    if image.header.frame_id != '1':
        return None
    object.__setattr__(image, 'depth_units', DEPTH_UNIT.unpack(raw[-DEPTH_UNIT.size :])[0])
    return image


@functools.lru_cache(maxsize=32)
def _typestore(definitions: tuple[tuple[str, str, str], ...]) -> Any:
    """Parsing definitions takes longer than reading a short bag, so they are kept."""
    typesys = importlib.import_module('rosbags.typesys')
    types: dict[str, Any] = {}
    for name, form, text in definitions:
        definition = EXTRA_TYPES.get(name, '') if form == 'NONE' else text
        if definition:
            parse = typesys.get_types_from_idl if form == 'IDL' else None
            types.update(parse(definition) if parse is not None else typesys.get_types_from_msg(definition, name))
    is_bare = any(form == 'NONE' for _, form, _ in definitions)
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE if is_bare else typesys.Stores.EMPTY)
    store.register({name: fields for name, fields in types.items() if name not in store.fielddefs})
    return store


def _salvaged(path: Path, error: InputError) -> Bag:
    """What is whole in a file without an index; a file that is whole, and no ROS bag, keeps its own error."""
    counts: dict[str, int] = {}
    topics: dict[str, str] = {}
    ending = _Ending()
    for schema, channel, _ in _stream_records(path, ending):
        if channel.message_encoding not in ('cdr', 'ros1'):
            raise InputError(
                f'{path}: the messages on {channel.topic} are {channel.message_encoding}, not ROS 2 (cdr); '
                'robotrials reads ROS messages from MCAP'
            ) from error
        topics[channel.topic] = schema.name if schema is not None else ''
        counts[channel.topic] = counts.get(channel.topic, 0) + 1
    if not ending.is_torn:
        raise error
    if not counts:
        raise InputError(f'{path}: cut off before its first whole message; nothing can be read from it') from error
    lost = (
        f'{path.name} was cut off ({ending.how}) and has no index; its {sum(counts.values())} whole messages were read'
    )
    return Bag(path, topics, counts, {}, lost)


@dataclass(slots=True)
class _Ending:
    """How a stream of records came to its end."""

    is_torn: bool = False
    how: str = ''


def _stream_records(path: Path, ending: _Ending) -> Iterator[tuple[Any, Any, Any]]:
    lack = f'{path}: reading a cut-off MCAP file needs mcap: {install_hint("mcap")}'
    stream_reader, records = load_optional('mcap.stream_reader', lack), load_optional('mcap.records', lack)
    schemas: dict[int, Any] = {}
    channels: dict[int, Any] = {}
    with path.open('rb') as stream:
        try:
            for record in stream_reader.StreamReader(stream).records:
                if isinstance(record, records.Schema):
                    schemas[record.id] = record
                elif isinstance(record, records.Channel):
                    channels[record.id] = record
                elif isinstance(record, records.Message):
                    channel = channels[record.channel_id]
                    yield schemas.get(channel.schema_id), channel, record
                elif isinstance(record, records.Footer):
                    return
        except Exception as error:  # the library raises whatever the torn bytes lead it to
            if isinstance(error, InputError):
                raise
            ending.how = f'inside a record: {type(error).__name__}'
    ending.is_torn = True


def _streamed(path: Path, topics: Collection[str]) -> Iterator[BagMessage]:
    for schema, channel, message in _stream_records(path, _Ending()):
        if channel.topic not in topics or schema is None:
            continue
        if channel.message_encoding != 'cdr':
            raise InputError(f'{path}: {channel.topic} is encoded as {channel.message_encoding!r}; wanted cdr (ROS 2)')
        read = _reading(path, ((schema.name, 'MSG', schema.data.decode('utf-8', 'replace')),))
        yield BagMessage(channel.topic, message.log_time, read(message.data, schema.name))
