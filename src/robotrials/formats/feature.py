"""What a TFDS folder declares in `features.json`, and how those features lie in a serialised example.

Nested dictionaries become names joined by `/`. A list within a list is stored flat, beside its row lengths. A tensor
with several unknown dimensions is stored as `value` and `shape`. Images, and tensors with an encoding, are bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.video import EncodedImage, encode_image

# `tf.train.Example` messages without TensorFlow: the protobuf wire format of its one map of features.
# Example { Features features = 1 } Features { map<string, Feature> feature = 1 } Feature { BytesList = 1 | FloatList =
# 2 | Int64List = 3 }, each with `repeated value = 1`

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Values = list[bytes] | NDArray[np.float32] | NDArray[np.int64]


def read_example(data: bytes, *, where: str) -> dict[str, Values]:
    """The features of one serialised Example by name: bytes as a list, floats and integers as arrays.

    A feature without a kind (TensorFlow writes these for empty lists) is an empty list.
    """
    features: dict[str, Values] = {}
    view = memoryview(data)
    try:
        for number, _, message in _fields(view):
            if number != 1:
                continue
            for entry_number, _, entry in _fields(message):
                if entry_number == 1:
                    name, values = _entry(entry)
                    features[name] = values
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise InputError(f'{where}: not a readable tf.train.Example ({error})') from error
    return features


def _entry(entry: memoryview) -> tuple[str, Values]:
    name, values = '', []  # type: tuple[str, Values]
    for number, _, part in _fields(entry):
        if number == 1:
            name = bytes(part).decode()
        elif number == 2:
            values = _feature(part)
    return name, values


def _feature(message: memoryview) -> Values:
    for number, _, part in _fields(message):
        if number == 1:
            return [bytes(value) for n, _, value in _fields(part) if n == 1]
        if number == 2:
            return _floats(part)
        if number == 3:
            return _integers(part)
    return []


def _floats(message: memoryview) -> NDArray[np.float32]:
    parts = [np.frombuffer(value, dtype='<f4') for number, _, value in _fields(message) if number == 1]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype='<f4'), *parts])


def _integers(message: memoryview) -> NDArray[np.int64]:
    parts = [read_varints(value) for number, kind, value in _fields(message) if number == 1 and kind == LENGTH]
    single = [read_varints(value) for number, kind, value in _fields(message) if number == 1 and kind == VARINT]
    joined: NDArray[np.int64] = np.concatenate([np.empty(0, dtype=np.int64), *parts, *single])
    return joined


def read_varints(packed: memoryview | bytes) -> NDArray[np.int64]:
    """A packed run of varints as 64-bit signed integers."""
    raw = np.frombuffer(packed, dtype=np.uint8)
    last = raw < 0x80
    if last.all():
        return raw.astype(np.int64)
    if not last[-1]:
        raise ValueError('a varint runs over the end')
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if int((ends - starts).max()) > 9:
        raise ValueError('a varint of more than ten bytes')
    place = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    bits = (raw & 0x7F).astype(np.uint64) << (np.uint64(7) * place.astype(np.uint64))
    values: NDArray[np.int64] = np.bitwise_or.reduceat(bits, starts).view(np.int64)
    return values


def _fields(view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(field number, wire type, content) of every field of a message."""
    position, end = 0, len(view)
    while position < end:
        key, position = _varint(view, position)
        number, kind = key >> 3, key & 7
        start = position
        if kind == LENGTH:
            length, start = _varint(view, position)
            position = start + length
        elif kind == VARINT:
            _, position = _varint(view, position)
        elif kind in (FIXED32, FIXED64):
            position += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f'wire type {kind} at byte {position}')
        if position > end:
            raise ValueError(f'field {number} runs over the end')
        yield number, kind, view[start:position]


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f'a varint of more than ten bytes at byte {position}')


def write_example(features: Mapping[str, Sequence[bytes] | NDArray[Any]]) -> bytes:
    """Serialise features: lists of bytes, float arrays (as float32) and integer or bool arrays (as int64)."""
    entries = []
    for name, values in features.items():
        feature = encode_field(2, _list_message(values))
        entries.append(encode_field(1, encode_field(1, name.encode()) + feature))
    return encode_field(1, b''.join(entries))


def _list_message(values: Sequence[bytes] | NDArray[Any]) -> bytes:
    if not isinstance(values, np.ndarray):
        return encode_field(1, b''.join(encode_field(1, value) for value in values))
    if values.dtype.kind == 'f':
        packed = values.astype('<f4').tobytes()
        return encode_field(2, encode_field(1, packed) if packed else b'')
    packed = b''.join(_encode_varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in values.ravel())
    return encode_field(3, encode_field(1, packed) if packed else b'')


def encode_field(number: int, content: bytes) -> bytes:
    """A field of bytes in protobuf, with its number and length."""
    return _encode_varint(number << 3 | LENGTH) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


PACKAGE = 'tensorflow_datasets.core.features'
STRING_DTYPES = ('string', 'object', 'str')
MODULES = {
    'Dataset': 'dataset_feature', 'Sequence': 'sequence_feature', 'FeaturesDict': 'features_dict', 'Scalar': 'scalar',
    'Tensor': 'tensor_feature', 'Image': 'image_feature', 'Text': 'text_feature',
}  # fmt: skip

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """One node of the tree: `kind` is dict, sequence, tensor, text or image."""

    kind: str
    children: Mapping[str, Feature] = field(default_factory=dict)  # of a dict
    inner: Feature | None = None  # of a sequence
    is_dataset: bool = False
    dtype: str = ''
    shape: Shape = ()
    encoding: str = 'none'
    class_name: str = ''

    @property
    def is_dynamic(self) -> bool:
        return self.kind == 'tensor' and self.shape.count(None) > 1

    @property
    def is_string(self) -> bool:
        return self.kind == 'text' or (self.kind == 'tensor' and self.dtype in STRING_DTYPES)


def parse_features(text: str, *, where: str) -> Feature:
    """The tree of a `features.json`, of today's TFDS or of the older form with `type` and `content`."""
    try:
        return _parse(json.loads(text), where)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f'{where}: not readable as features of a TFDS dataset ({error!r})') from error


def _parse(node: Mapping[str, Any], where: str) -> Feature:
    if 'jsonFeature' in node:
        return _parse_legacy(node['pythonClassName'], json.loads(node['jsonFeature']['json']), where)
    if 'type' in node:
        return _parse_legacy(node['type'], node.get('content', {}), where)
    name = node['pythonClassName'].rpartition('.')[2]
    if 'featuresDict' in node:
        children = node['featuresDict'].get('features', {})
        return Feature('dict', {k: _parse(v, f'{where}: {k}') for k, v in children.items()}, class_name=name)
    if 'sequence' in node:
        inner = _parse(node['sequence']['feature'], where)
        return Feature('sequence', inner=inner, is_dataset=name == 'Dataset', class_name=name)
    if 'tensor' in node:
        tensor = node['tensor']
        shape = _dimensions(tensor.get('shape', {}))
        return Feature('tensor', dtype=tensor['dtype'], shape=shape, encoding=tensor.get('encoding') or 'none',
                       class_name=name)  # fmt: skip
    if 'image' in node or 'video' in node:
        return _image_feature(node.get('image') or node['video'], name, is_video='video' in node)
    if 'text' in node:
        return Feature('text', dtype='string', class_name=name)
    if 'classLabel' in node:
        return Feature('tensor', dtype='int64', class_name=name)
    if 'boundingBox' in node:
        return Feature('tensor', dtype='float32', shape=(4,), class_name=name)
    raise InputError(f'{where}: no reader for the feature class {node["pythonClassName"]}')


def _image_feature(image: Mapping[str, Any], name: str, *, is_video: bool) -> Feature:
    shape = _dimensions(image.get('shape', {})) or (None, None, 3)
    image_feature = Feature('image', dtype=image.get('dtype') or 'uint8', shape=shape[-3:],
                  encoding=image.get('encodingFormat') or '', class_name='Image')  # fmt: skip
    return Feature('sequence', inner=image_feature, class_name=name) if is_video else image_feature


def _dimensions(shape: Mapping[str, Any]) -> Shape:
    return tuple(None if int(d) < 0 else int(d) for d in shape.get('dimensions', ()))


def _parse_legacy(class_name: str, content: Any, where: str) -> Feature:
    name = class_name.rpartition('.')[2]
    if name == 'FeaturesDict':
        return Feature('dict', {k: _parse(v, f'{where}: {k}') for k, v in content.items()}, class_name=name)
    if name in ('Sequence', 'Dataset'):
        inner = _parse(content['feature'], where)
        return Feature('sequence', inner=inner, is_dataset=name == 'Dataset', class_name=name)
    if name in ('Tensor', 'Scalar'):
        shape = tuple(None if d is None or d < 0 else int(d) for d in content.get('shape', ()))
        return Feature('tensor', dtype=content['dtype'], shape=shape, encoding=content.get('encoding') or 'none',
                       class_name=name)  # fmt: skip
    if name == 'Image':
        shape = tuple(content.get('shape') or (None, None, 3))
        return Feature('image', dtype=content.get('dtype') or 'uint8', shape=shape,
                       encoding=content.get('encoding_format') or '', class_name=name)  # fmt: skip
    if name == 'Text':
        return Feature('text', dtype='string', class_name=name)
    if name == 'ClassLabel':
        return Feature('tensor', dtype='int64', class_name=name)
    raise InputError(f'{where}: no reader for the feature class {class_name}')


# --- reading: a leaf under `depth` levels of sequences


def read_feature(feature: Feature, raw: Mapping[str, Values], name: str = '', *, depth: int = 0, where: str) -> Any:
    """The value of `feature` in one parsed example.

    Dictionaries nest. With one sequence above it a leaf is an array (N, ...) or a list of N; with two, a list of those.
    """
    if feature.kind == 'dict':
        return {
            key: read_feature(child, raw, f'{name}/{key}' if name else key, depth=depth, where=where)
            for key, child in feature.children.items()
        }
    if feature.kind == 'sequence':
        assert feature.inner is not None
        return read_feature(feature.inner, raw, name, depth=depth + 1, where=where)
    if depth < 2:
        return _read_leaf(feature, raw, name, is_list=depth == 1, where=where)
    return _read_ragged(feature, raw, name, depth, where)


def _read_ragged(feature: Feature, raw: Mapping[str, Values], name: str, depth: int, where: str) -> Any:
    flat = _read_leaf(feature, raw, f'{name}/ragged_flat_values', is_list=True, where=where)
    for level in reversed(range(depth - 1)):
        lengths = np.asarray(raw.get(f'{name}/ragged_row_lengths_{level}', ()), dtype=np.int64)
        if int(lengths.sum()) != len(flat):
            raise InputError(f'{where}: {name} has {len(flat)} values, its row lengths say {int(lengths.sum())}')
        ends = np.cumsum(lengths)
        flat = [flat[end - length : end] for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)]
    return flat


def _read_leaf(feature: Feature, raw: Mapping[str, Values], name: str, *, is_list: bool, where: str) -> Any:
    place = f'{where}: {name}'
    if feature.is_dynamic:
        shapes = np.asarray(_stored(raw, f'{name}/shape', place), dtype=np.int64).reshape(-1, len(feature.shape))
        values = _bytes(_stored(raw, f'{name}/value', place), place)
        items = [_unpack(feature, v, tuple(s), place) for v, s in zip(values, shapes.tolist(), strict=True)]
        return items if is_list else _only(items, place)
    stored = _stored(raw, name, place)
    if feature.kind == 'image':
        images = [EncodedImage(v, feature.shape, feature.dtype, place) for v in _bytes(stored, place)]
        return images if is_list else _only(images, place)
    if feature.is_string:
        texts = [v.decode('utf-8', 'surrogateescape') for v in _bytes(stored, place)]
        return texts if is_list or feature.shape else _only(texts, place)
    if feature.encoding != 'none':
        shape = tuple(-1 if d is None else d for d in feature.shape)
        items = [_unpack(feature, v, shape, place) for v in _bytes(stored, place)]
        return (np.stack(items) if len(items) else items) if is_list else _only(items, place)
    return _shaped(feature, np.asarray(stored), is_list=is_list, place=place)


def _stored(raw: Mapping[str, Values], name: str, place: str) -> Values:
    if name not in raw:
        raise InputError(f'{place}: declared in features.json and missing in the example')
    return raw[name]


def _bytes(stored: Values, place: str) -> list[bytes]:
    if not isinstance(stored, list):
        raise InputError(f'{place}: wanted bytes, the example holds {stored.dtype}')
    return stored


def _only(items: Sequence[Any], place: str) -> Any:
    if len(items) != 1:
        raise InputError(f'{place}: wanted one value, the example holds {len(items)}')
    return items[0]


def _unpack(feature: Feature, data: bytes, shape: tuple[int, ...], place: str) -> NDArray[Any]:
    try:
        plain = zlib.decompress(data) if feature.encoding == 'zlib' else data
        return np.frombuffer(plain, dtype=numpy_dtype(feature.dtype)).reshape(shape)
    except (zlib.error, ValueError) as error:
        raise InputError(f'{place}: does not decode as {feature.dtype}{list(shape)} ({error})') from error


def _shaped(feature: Feature, values: NDArray[Any], *, is_list: bool, place: str) -> NDArray[Any]:
    shape = tuple(-1 if d is None else d for d in feature.shape)
    wanted = (-1, *shape) if is_list else shape
    if wanted.count(-1) > 1:
        raise InputError(f'{place}: a tensor of unknown length inside a sequence; TFDS itself cannot restore it')
    try:
        return values.reshape(wanted).astype(numpy_dtype(feature.dtype), copy=False)
    except ValueError as error:
        raise InputError(f'{place}: {values.size} values do not fill the declared shape {feature.shape}') from error


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a TFDS dtype name."""
    try:
        return np.dtype({'bool': 'bool', 'bfloat16': 'float32'}.get(name, name))
    except TypeError as error:
        raise InputError(f'no numpy dtype for the declared {name!r}') from error


# --- writing


def features_json(feature: Feature) -> dict[str, Any]:
    """The node of a `features.json` as TFDS writes it."""
    shape = {'dimensions': [str(-1 if d is None else d) for d in feature.shape]} if feature.shape else {}
    content: dict[str, Any]
    if feature.kind == 'dict':
        children = {k: features_json(v) for k, v in sorted(feature.children.items())}
        name, content = 'FeaturesDict', {'featuresDict': {'features': children}}
    elif feature.kind == 'sequence':
        assert feature.inner is not None
        name = 'Dataset' if feature.is_dataset else 'Sequence'
        content = {'sequence': {'feature': features_json(feature.inner), 'length': '-1'}}
    elif feature.kind == 'text':
        name, content = 'Text', {'text': {}}
    elif feature.kind == 'image':
        name = 'Image'
        content = {'image': {'dtype': feature.dtype, 'encodingFormat': feature.encoding or 'png', 'shape': shape}}
    else:
        name = 'Tensor' if feature.shape else 'Scalar'
        content = {'tensor': {'dtype': feature.dtype, 'encoding': feature.encoding, 'shape': shape}}
    return {'pythonClassName': f'{PACKAGE}.{MODULES[name]}.{name}', **content}


def write_feature(feature: Feature, value: Any, name: str = '', *, depth: int = 0) -> dict[str, Values]:
    """The flat features of one example; a leaf under a sequence is given as an array (N, ...) or a list of N."""
    if feature.kind == 'dict':
        parts: dict[str, Values] = {}
        for key, child in feature.children.items():
            parts.update(write_feature(child, value[key], f'{name}/{key}' if name else key, depth=depth))
        return parts
    if feature.kind == 'sequence':
        assert feature.inner is not None
        return write_feature(feature.inner, value, name, depth=depth + 1)
    if depth > 1:
        lengths = np.array([len(row) for row in value], dtype=np.int64)
        flat = [item for row in value for item in row]
        return {f'{name}/ragged_flat_values': _write_leaf(feature, flat), f'{name}/ragged_row_lengths_0': lengths}
    if feature.is_dynamic:
        items = value if depth else [value]
        shapes = np.array([np.shape(v) for v in items], dtype=np.int64).ravel()
        return {f'{name}/shape': shapes, f'{name}/value': _write_leaf(feature, items)}
    return {name: _write_leaf(feature, value if depth else [value])}


def _write_leaf(feature: Feature, items: Sequence[Any]) -> Values:
    if feature.kind == 'image':
        form = feature.encoding or 'png'
        return [v.data if isinstance(v, EncodedImage) else encode_image(v, form=form) for v in items]
    if feature.is_string:
        return [v.encode('utf-8', 'surrogateescape') if isinstance(v, str) else bytes(v) for v in items]
    dtype = numpy_dtype(feature.dtype)
    if feature.encoding != 'none':
        plain = [np.ascontiguousarray(v, dtype=dtype).tobytes() for v in items]
        return [zlib.compress(p) for p in plain] if feature.encoding == 'zlib' else plain
    joined = np.asarray(items, dtype=dtype).ravel()
    return joined.astype(np.float32) if dtype.kind == 'f' else joined.astype(np.int64)
