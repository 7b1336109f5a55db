"""What a message may hold at most, checked on the bytes before anything is built from them."""

from __future__ import annotations

from robotrials.errors import InputError
from robotrials.value import dataclass

MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """The bounds of one message. A value is a scalar, a text, a run of bytes, a list or a map."""

    max_bytes: int = MAX_BYTES
    max_values: int = 200_000
    max_depth: int = 32
    max_text_bytes: int = 1 << 20
    max_pixels: int = 64 << 20  # of one compressed image, before it is decompressed

    def __post_init__(self) -> None:
        for name in ('max_bytes', 'max_values', 'max_depth', 'max_text_bytes', 'max_pixels'):
            if getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 1')


LIMITS = WireLimits()

# First byte of a msgpack value -> (bytes of the header, kind).
_FIXED, _TEXT, _BYTES, _LIST, _MAP, _REFUSED = range(6)
_HEADS: list[tuple[int, int]] = [(1, _FIXED)] * 256
for _first in range(0x80, 0x90):
    _HEADS[_first] = (1, _MAP)
for _first in range(0x90, 0xA0):
    _HEADS[_first] = (1, _LIST)
for _first in range(0xA0, 0xC0):
    _HEADS[_first] = (1, _TEXT)
for _first, _head in {
    0xC1: (1, _REFUSED), 0xC4: (2, _BYTES), 0xC5: (3, _BYTES), 0xC6: (5, _BYTES),
    0xC7: (1, _REFUSED), 0xC8: (1, _REFUSED), 0xC9: (1, _REFUSED),
    0xCA: (5, _FIXED), 0xCB: (9, _FIXED), 0xCC: (2, _FIXED), 0xCD: (3, _FIXED), 0xCE: (5, _FIXED), 0xCF: (9, _FIXED),
    0xD0: (2, _FIXED), 0xD1: (3, _FIXED), 0xD2: (5, _FIXED), 0xD3: (9, _FIXED),
    0xD4: (1, _REFUSED), 0xD5: (1, _REFUSED), 0xD6: (1, _REFUSED), 0xD7: (1, _REFUSED), 0xD8: (1, _REFUSED),
    0xD9: (2, _TEXT), 0xDA: (3, _TEXT), 0xDB: (5, _TEXT), 0xDC: (3, _LIST), 0xDD: (5, _LIST),
    0xDE: (3, _MAP), 0xDF: (5, _MAP),
}.items():  # fmt: skip
    _HEADS[_first] = _head
_SMALL_MASK = {_MAP: 0x0F, _LIST: 0x0F, _TEXT: 0x1F}


def check_size(n_bytes: int, limits: WireLimits = LIMITS) -> None:
    """Raise InputError if a message is too long."""
    if n_bytes > limits.max_bytes:
        raise InputError(f'a message of {n_bytes} bytes, more than the {limits.max_bytes} allowed')


def check_msgpack(data: bytes, limits: WireLimits = LIMITS) -> None:
    """Walk over a msgpack message without building it; InputError if it breaks a limit or ends too early."""
    check_size(len(data), limits)
    end, at, n_values = len(data), 0, 0
    open_counts = [1]
    while open_counts:
        if not open_counts[-1]:
            open_counts.pop()
            continue
        open_counts[-1] -= 1
        if at >= end:
            raise InputError(f'not a msgpack message: it ends after {end} bytes, in the middle of a value')
        first = data[at]
        size, kind = _HEADS[first]
        n_values += 1
        if kind == _FIXED:
            at += size
        else:
            length = first & _SMALL_MASK[kind] if size == 1 and kind in _SMALL_MASK else _length(data, at, size, kind)
            at += size
            if kind in (_LIST, _MAP):
                children = length * (1 + (kind == _MAP))
                _check_container(n_values + children, len(open_counts), limits)
                open_counts.append(children)
            else:
                if kind == _TEXT and length > limits.max_text_bytes:
                    raise InputError(f'a text of {length} bytes, more than the {limits.max_text_bytes} allowed')
                at += length
        if n_values > limits.max_values:
            raise InputError(f'a message of more than the {limits.max_values} values allowed')
    if at != end:
        what = 'it ends in the middle of a value' if at > end else f'{end - at} bytes follow it'
        raise InputError(f'not a msgpack message of {end} bytes: {what}')


def _length(data: bytes, at: int, size: int, kind: int) -> int:
    if kind == _REFUSED:
        raise InputError(f'a msgpack extension or unused type (0x{data[at]:02x}), which is not accepted')
    return int.from_bytes(data[at + 1 : at + size], 'big')


def _check_container(n_values: int, depth: int, limits: WireLimits) -> None:
    if n_values > limits.max_values:
        raise InputError(f'a message that announces {n_values} values, more than the {limits.max_values} allowed')
    if depth >= limits.max_depth:
        raise InputError(f'a message nested deeper than the {limits.max_depth} levels allowed')


def check_depth(value: object, limits: WireLimits = LIMITS) -> None:
    """Raise InputError if a value that was built is nested too deeply."""
    level = [value]
    for _ in range(limits.max_depth + 1):
        inner: list[object] = []
        for container in level:
            if type(container) is dict:
                inner += [v for v in container.values() if type(v) is dict or type(v) is list]
            elif type(container) is list:
                inner += [v for v in container if type(v) is dict or type(v) is list]
        if not inner:
            return
        level = inner
    raise InputError(f'a message nested deeper than the {limits.max_depth} levels allowed')
