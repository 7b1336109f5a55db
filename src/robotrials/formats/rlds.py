"""RLDS datasets in TFDS folders, read and written without TensorFlow.

A folder holds `dataset_info.json` (splits and shard lengths), `features.json` and `NAME-SPLIT.tfrecord-I-of-N` shards;
every record is one episode, and for `robotrials import` one rollout, whose `steps` are stored column by column.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats import kernel
from robotrials.formats.dataset import RecordedEpisode, check_split
from robotrials.formats.feature import (
    Feature,
    features_json,
    parse_features,
    read_example,
    read_feature,
    write_example,
    write_feature,
)
from robotrials.formats.imported import (
    CERTAIN,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    refuse_unused,
)
from robotrials.formats.rollout import (
    Assignment,
    CameraClip,
    RolloutRecorder,
    SourceRollout,
    account_signals,
    assign,
    import_rollouts,
    take_signals,
)
from robotrials.formats.space import ActionSpace, flatten_action
from robotrials.formats.video import EncodedImage, FrameClip
from robotrials.old_name import RLDS_MODULE
from robotrials.record import Provenance

# The checksum of TFRecord files and of buckets.

MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes, crc: int = 0) -> int:
    """The CRC-32C (Castagnoli) of what gave `crc`, which may be nothing, followed by `data`.

    >>> hex(crc32c(b'6789', crc32c(b'12345')))
    '0xe3069283'
    """
    remainder = np.array([crc], np.int64)
    kernel.crc32c(np.frombuffer(data, np.uint8), remainder)
    return int(remainder[0])


def masked_crc32c(data: bytes) -> int:
    """The CRC as TFRecord stores it: rotated and offset, so that a CRC of stored CRCs stays good."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


# TFRecord files: a length, its checksum, the data, its checksum, and again.
# A file is streamed; damage is named by file and byte offset.

HEADER = struct.Struct('<QI')
FOOTER = struct.Struct('<I')
LARGEST_RECORD_BYTES = 1 << 34


def read_records(path: Path | str, *, check: bool = True) -> Iterator[bytes]:
    """Stream the records of one file; `check=False` trusts the data's checksums (a length is always checked)."""
    target = Path(path)
    size = target.stat().st_size
    offset = 0
    with target.open('rb') as stream:
        while header := stream.read(HEADER.size):
            length = _length(header, target, offset)
            end = offset + HEADER.size + length + FOOTER.size
            if end > size:
                raise InputError(
                    f'{target}: truncated: the record at byte {offset} should end at byte {end}, '
                    f'the file ends at {size}; fetch the file again'
                )
            data = stream.read(length)
            (stored,) = FOOTER.unpack(stream.read(FOOTER.size))
            if check and masked_crc32c(data) != stored:
                raise InputError(f'{target}: the record at byte {offset} fails its checksum; fetch the file again')
            yield data
            offset = end


def _length(header: bytes, path: Path, offset: int) -> int:
    if len(header) < HEADER.size:
        raise InputError(f'{path}: truncated inside the record header at byte {offset}; fetch the file again')
    length, stored = HEADER.unpack(header)
    if masked_crc32c(header[:8]) != stored:
        raise InputError(
            f'{path}: the length of the record at byte {offset} fails its checksum; the file is damaged from there on, '
            'or is not a TFRecord file'
        )
    if length > LARGEST_RECORD_BYTES:
        raise InputError(f'{path}: the record at byte {offset} claims {length} bytes, more than any episode has')
    return int(length)


def write_records(path: Path | str, records: Iterable[bytes]) -> int:
    """Write records to a file; gives how many."""
    count = 0
    with Path(path).open('wb') as stream:
        for data in records:
            length = struct.pack('<Q', len(data))
            stream.write(length + FOOTER.pack(masked_crc32c(length)))
            stream.write(data)
            stream.write(FOOTER.pack(masked_crc32c(data)))
            count += 1
    return count


DEFAULT_TEMPLATE = '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'


@dataclass(frozen=True, slots=True)
class RldsShard:
    """One file of a split, and how many episodes it should hold (None where the folder doesn't say)."""

    path: Path
    length: int | None


@dataclass(frozen=True, slots=True)
class RldsDataset:
    """An RLDS dataset. Open it with `RldsDataset.open`."""

    path: Path
    name: str
    version: str
    features: Feature
    shards: Mapping[str, tuple[RldsShard, ...]]
    floating_only: bool
    space: ActionSpace

    @classmethod
    def open(cls, path: Path | str, *, floating_only: bool = False) -> RldsDataset:
        """Open the folder with `dataset_info.json` in it."""
        root = Path(path)
        info = _read_info(root / 'dataset_info.json')
        features = parse_features(_read_text(root / 'features.json'), where=str(root / 'features.json'))
        _check_rlds(features, root)
        shards = {s['name']: _shards(root, info, s) for s in info.get('splits', ())}
        blank = cls(root, info['name'], info.get('version', ''), features, shards, floating_only, ActionSpace(()))
        return cls(root, blank.name, blank.version, features, shards, floating_only, blank._read_space())

    @property
    def splits(self) -> Mapping[str, int]:
        """How many episodes each split has."""
        return {name: sum(_shard_length(s) for s in shards) for name, shards in self.shards.items()}

    def examples(self, split: str, *, only: Container[int] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Stream (index, example) of a split; an example is what `features.json` declares, `steps` by columns."""
        check_split(self, split)
        index = 0
        for shard in self.shards[split]:
            before = index
            for data in read_records(shard.path):
                if only is None or index in only:
                    where = f'{shard.path}: episode {index}'
                    raw = read_example(data, where=where)
                    yield index, read_feature(self.features, raw, where=where)
                index += 1
            if shard.length is not None and index - before != shard.length:
                raise InputError(
                    f'{shard.path}: {index - before} episodes, dataset_info.json says {shard.length}; fetch it again'
                )

    def episodes(self, split: str, *, only: Container[int] | None = None) -> Iterator[RecordedEpisode]:
        """Stream the episodes of a split in order; `only` picks by index."""
        for index, example in self.examples(split, only=only):
            yield self._episode(split, index, example)

    def _episode(self, split: str, index: int, example: Mapping[str, Any]) -> RecordedEpisode:
        steps = example['steps']
        leaves = observation_leaves(steps)
        actions, _ = flatten_action(steps['action'], floating_only=self.floating_only)
        return RecordedEpisode(
            dataset=self.name,
            split=split,
            index=index,
            actions=actions,
            instructions=language(steps),
            state={k: v.reshape(len(v), -1) for k, v in leaves.numbers.items() if v.dtype.kind == 'f'},
            images=leaves.images,
            metadata={k: str(v) for k, v in leaves_of(example.get('episode_metadata', {})) if isinstance(v, str)},
        )

    def _read_space(self) -> ActionSpace:
        steps = self.features.children['steps'].inner
        assert steps is not None
        return flatten_action(_blank(steps.children['action']), floating_only=self.floating_only)[1]


def find_tfds_folder(root: Path) -> Path | None:
    """`root` itself, or the newest version below it (NAME/VERSION, NAME/CONFIG/VERSION); None if there is none."""
    if (root / 'features.json').exists() and (root / 'dataset_info.json').exists():
        return root
    folders = [p.parent for p in [*root.glob('*/features.json'), *root.glob('*/*/features.json')]]
    versions = [p for p in folders if (p / 'dataset_info.json').exists()]
    families = {p.parent for p in versions}
    if len(families) > 1:
        raise InputError(f'{root}: several datasets in it ({", ".join(sorted(map(str, families)))}); name one of them')
    return max(versions, key=lambda p: _version_key(p.name), default=None)


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in name.split('.'))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding='utf-8')
    except OSError as error:
        raise InputError(f'{path}: not readable ({error.strerror}); wanted a TFDS folder') from error


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f'{path}: not JSON ({error})') from error
    if not isinstance(info, dict) or not info.get('name'):
        raise InputError(f'{path}: no "name" in it; wanted the dataset_info.json of TFDS')
    if info.get('fileFormat', 'tfrecord') not in ('tfrecord', ''):
        raise InputError(f'{path}: file format {info["fileFormat"]!r}; robotrials reads tfrecord')
    return info


def _check_rlds(features: Feature, root: Path) -> None:
    steps = features.children.get('steps') if features.kind == 'dict' else None
    if steps is None or steps.inner is None or 'action' not in steps.inner.children:
        raise InputError(f'{root}: features.json declares no steps with an action; it is a TFDS folder but not RLDS')


def _shards(root: Path, info: Mapping[str, Any], split: Mapping[str, Any]) -> tuple[RldsShard, ...]:
    lengths = [int(n) for n in split.get('shardLengths', ())]
    total = len(lengths) or int(split.get('numShards', 0))
    template = split.get('filepathTemplate') or DEFAULT_TEMPLATE
    shards = []
    for number in range(total):
        values = {'DATASET': info['name'], 'SPLIT': split['name'], 'FILEFORMAT': 'tfrecord',
                  'SHARD_INDEX': f'{number:05d}', 'NUM_SHARDS': f'{total:05d}',
                  'SHARD_X_OF_Y': f'{number:05d}-of-{total:05d}'}  # fmt: skip
        path = root / template.format(**values)
        if not path.exists():
            raise InputError(f'{path}: missing; the split {split["name"]!r} has {total} shards')
        shards.append(RldsShard(path, lengths[number] if lengths else None))
    return tuple(shards)


def _shard_length(shard: RldsShard) -> int:
    return shard.length if shard.length is not None else sum(1 for _ in read_records(shard.path, check=False))


def leaves_of(value: Any, prefix: str = '') -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from leaves_of(child, f'{prefix}/{key}' if prefix else key)
    else:
        yield prefix, value


@dataclass(frozen=True, slots=True, eq=False)
class ObservationLeaves:
    """The observations of an episode by name: numbers (T, ...), and images (T)."""

    numbers: Mapping[str, NDArray[Any]]
    images: Mapping[str, Sequence[Any]]


def observation_leaves(steps: Mapping[str, Any]) -> ObservationLeaves:
    """Numbers and images; embeddings of images and language are neither (section 4.1)."""
    leaves = dict(leaves_of(steps.get('observation', {})))
    images = {name: column for name, column in leaves.items() if _is_images(column)}
    numbers = {
        name: column
        for name, column in leaves.items()
        if isinstance(column, np.ndarray)
        and column.dtype.kind in 'fiub'
        and (column.dtype.kind == 'f' or column.ndim <= 2)
        and name not in images
        and 'embedding' not in name
    }
    return ObservationLeaves(numbers, images)


def _is_images(column: Any) -> bool:
    if isinstance(column, list):
        return bool(column) and isinstance(column[0], EncodedImage)
    return isinstance(column, np.ndarray) and column.dtype == np.uint8 and column.ndim == 4


def language(steps: Mapping[str, Any]) -> tuple[str, ...]:
    """The language of each step: a text named like an instruction, or Language-Table's array of character codes."""
    observation = dict(leaves_of(steps.get('observation', {})))
    candidates = {**{k: v for k, v in steps.items() if k != 'observation'}, **observation}
    for wanted in ('language_instruction', 'natural_language_instruction', 'instruction'):
        for name, column in candidates.items():
            if name.rpartition('/')[2] != wanted:
                continue
            if isinstance(column, list) and column and isinstance(column[0], str):
                return tuple(column)
            if isinstance(column, np.ndarray) and column.dtype.kind in 'iu' and column.ndim == 2:
                return tuple(bytes(row[row > 0].astype(np.uint8)).decode('utf-8', 'replace') for row in column)
    return ()


def _blank(feature: Feature) -> Any:
    """One step of zeros in the shape of a feature, to learn the names of an action's numbers."""
    if feature.kind == 'dict':
        return {key: _blank(child) for key, child in feature.children.items()}
    if feature.kind != 'tensor' or feature.is_string or None in feature.shape:
        return np.empty((1, 0), dtype='S1')
    return np.zeros((1, *(d or 0 for d in feature.shape)), dtype=feature.dtype)


# --- writing


def write_rlds(
    path: Path | str,
    examples: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    name: str,
    features: Feature,
    version: str = '0.1.0',
    shards: int = 1,
) -> Path:
    """Write a TFDS folder `path/NAME/VERSION` that TensorFlow Datasets reads back; gives that folder.

    An example follows `features`: nested dictionaries, with the leaves under `steps` as arrays (T, ...) or lists of T.
    """
    root = Path(path) / name / version
    root.mkdir(parents=True, exist_ok=True)
    rows = []
    for split, episodes in examples.items():
        records = [write_example(dict(sorted(write_feature(features, example).items()))) for example in episodes]
        lengths = []
        bounds = np.linspace(0, len(records), shards + 1).astype(int).tolist()
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            write_records(root / f'{name}-{split}.tfrecord-{number:05d}-of-{shards:05d}', records[first:last])
            lengths.append(str(last - first))
        rows.append({'filepathTemplate': DEFAULT_TEMPLATE, 'name': split, 'shardLengths': lengths,
                     'numBytes': str(sum(map(len, records)))})  # fmt: skip
    info = {'fileFormat': 'tfrecord', 'moduleName': RLDS_MODULE, 'name': name, 'splits': rows, 'version': version}
    (root / 'dataset_info.json').write_text(json.dumps(info, indent=2), encoding='utf-8')
    (root / 'features.json').write_text(json.dumps(features_json(features), indent=4), encoding='utf-8')
    return root


SCALARS = {'reward': 'reward', 'is_terminal': 'extra/is_terminal', 'discount': 'extra/discount'}


class RldsFormat:
    """RLDS episodes, read without TensorFlow."""

    name = 'rlds'
    summary = 'an RLDS dataset in a TFDS folder (dataset_info.json, features.json, TFRecord shards)'

    def recognise(self, path: Path) -> float | None:
        try:
            return CERTAIN if path.is_dir() and find_tfds_folder(path) is not None else None
        except InputError:
            return CERTAIN  # several datasets in one folder: reading says so

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='an RLDS dataset', takes=('columns', 'answers', 'rate_hz'))
        folder = find_tfds_folder(path)
        if folder is None:
            raise InputError(f'{path}: no RLDS dataset in it; wanted dataset_info.json and features.json')
        if options.rate_hz is None:
            raise InputError(f'{path}: RLDS does not state how long a step took; wanted --rate-hz, such as 5')
        dataset = RldsDataset.open(folder)
        ledger = ImportAccount()
        source = _RldsSource(dataset, options, ledger, options.rate_hz)
        assignments = source.assignments()
        account_signals(assignments, {}, ledger)
        shards = [shard.path for split in dataset.shards.values() for shard in split]
        origin = Provenance(
            environment_id=f'{dataset.name} {dataset.version}'.strip(),
            success_parsing='episode_metadata/success, or a reward of 1 or more at any step',
        )
        return import_rollouts(
            self.name, source.recordings, assignments, options=options, ledger=ledger, origin=origin,
            sources=(folder / 'dataset_info.json', folder / 'features.json', *shards),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _RldsSource:
    dataset: RldsDataset
    options: ImportOptions
    ledger: ImportAccount
    rate_hz: float

    def assignments(self) -> tuple[Assignment, ...]:
        """By the first episode of the dataset: all of them share its features."""
        for split in self.dataset.shards:
            for _, example in self.dataset.examples(split, only=range(1)):
                columns = _columns(example)
                self._account(example, columns)
                names = {key: tuple(map(str, range(v.reshape(len(v), -1).shape[1]))) for key, v in columns.items()}
                known = {'action_raw': 'action', 'reward': 'reward'}
                return assign(names, mapped=self.options.columns, known=known)
        raise InputError(f'{self.dataset.path}: no episode in it')

    def _account(self, example: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        steps = example['steps']
        images = observation_leaves(steps).images
        flags = ('observation', 'action', 'is_first', 'is_last')
        for name, value in {**dict(leaves_of(steps.get('observation', {}))), **steps}.items():
            if name in flags or name in columns or name in images or 'instruction' in name:
                continue
            kind = 'text' if isinstance(value, list) else 'an embedding, or of no fixed size'
            self.ledger.drop(f'steps/{name}', None, why=f'{kind}: no place in a trajectory')

    def recordings(self) -> Iterator[Recording]:
        recorder = RolloutRecorder(
            kind='an RLDS dataset', options=self.options, source=self.dataset.path, ledger=self.ledger
        )
        assignments = self.assignments()
        succeeded = by_reward = 0
        for split in self.dataset.shards:
            for index, example in self.dataset.examples(split):
                rollout = self._rollout(split, index, example, assignments)
                recording = recorder.record(rollout)
                succeeded += bool(recording.episode.is_success)
                by_reward += 'success' not in _metadata(example)
                yield recording
        if by_reward and not succeeded and not {'outcome', 'success'} & self.options.defaults.keys():
            raise InputError(
                f'{self.dataset.path}: no step of any of the {by_reward} episodes has a reward of 1, so rewards do not '
                'tell success here; for demonstrations say --set outcome=success. Nothing was imported'
            )

    def _rollout(
        self, split: str, index: int, example: Mapping[str, Any], assignments: tuple[Assignment, ...]
    ) -> SourceRollout:
        where = f'{self.dataset.path}: {split} episode {index}'
        columns = _columns(example)
        steps = len(columns['action'])
        texts = language(example['steps'])
        metadata = _metadata(example)
        success, when = _success(columns, metadata)
        terminal = columns.get('is_terminal')
        return SourceRollout(
            where=where, number=index, time_s=np.arange(steps) / self.rate_hz, duration_s=steps / self.rate_hz,
            signals=take_signals(assignments, columns, where=where),
            task=texts[0] if texts else self.dataset.name, instruction=texts[0] if texts else '',
            success=success, success_t_s=None if when is None else (when + 1) / self.rate_hz,
            is_cut=terminal is not None and not bool(terminal[-1]) and bool(terminal.any()),
            labels={
                'split': split, 'index': str(index), **{k: v for k, v in metadata.items() if isinstance(v, str) and v},
            },
            control_rate_hz=self.rate_hz, cameras=self._cameras(example),
        )  # fmt: skip

    def _cameras(self, example: Mapping[str, Any]) -> dict[str, CameraClip]:
        cameras = {}
        for name, leaf in observation_leaves(example['steps']).images.items():
            shape = leaf[0].shape
            height, width = (int(n or 0) for n in shape[:2])
            if shape[-1] not in (1, 3) or str(leaf[0].dtype) != 'uint8':
                self.ledger.drop(f'camera {name}', why='depth is kept as lossless files; a video would round it')
                continue
            cameras[name] = CameraClip(FrameClip(leaf, self.rate_hz), width, height)
        return cameras


def _columns(example: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    steps = example['steps']
    columns = {'action': flatten_action(steps['action'])[0]}
    columns |= observation_leaves(steps).numbers
    for name in ('reward', 'discount', 'is_terminal'):
        if isinstance(steps.get(name), np.ndarray):
            columns[name] = steps[name]
    return columns


def _metadata(example: Mapping[str, Any]) -> dict[str, Any]:
    metadata = example.get('episode_metadata', {})
    return dict(metadata) if isinstance(metadata, Mapping) else {}


def _success(columns: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> tuple[bool | None, int | None]:
    reward = columns.get('reward')
    rewarded = np.flatnonzero(reward.reshape(-1) >= 1) if reward is not None else np.empty(0, dtype=np.int64)
    when = int(rewarded[0]) if len(rewarded) else None
    if 'success' in metadata:
        return bool(np.all(metadata['success'])), when if np.all(metadata['success']) else None
    return (None, None) if reward is None else (when is not None, when)


RLDS = RldsFormat()
