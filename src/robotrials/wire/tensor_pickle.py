"""Pickles of LeRobot's asynchronous inference, read without unpickling, and written without its classes.

A pickle is a program that may call anything. This reads the opcodes itself, knows no call but those that make a tensor
and a timed action, and calls nothing: a name that is not in the table is refused before anything is built.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.wire.array import LIMITS, WireLimits, check_size

STORAGES = {
    'FloatStorage': '<f4', 'DoubleStorage': '<f8', 'HalfStorage': '<f2', 'LongStorage': '<i8', 'IntStorage': '<i4',
}  # fmt: skip
TENSOR, STORAGE = 'torch._utils _rebuild_tensor_v2', 'torch.storage _load_from_bytes'
ORDERED = 'collections OrderedDict'
MODULES = ('lerobot.async_inference.helpers', 'lerobot.scripts.server.helpers')  # of 0.4 and later, and before
ACTIONS = tuple(f'{module} TimedAction' for module in MODULES)
KNOWN = frozenset((TENSOR, STORAGE, ORDERED, *ACTIONS))
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001  # of torch's older files, which it puts into pickles
MAX_OPCODES = 200_000
Opcodes = list[tuple[Any, Any, int | None]]


@dataclass(frozen=True, slots=True)
class Name:
    """Something that the pickle names, `MODULE NAME`; never imported."""

    text: str


@dataclass(slots=True)
class TimedAction:
    """One action, as LeRobot's server sends it."""

    timestamp_s: float = 0.0
    timestep: int = -1
    action: NDArray[Any] | None = None


def read_actions(data: bytes, limits: WireLimits = LIMITS) -> list[TimedAction]:
    """The timed actions of an answer; InputError if the bytes are anything else."""
    check_size(len(data), limits)
    actions = _Reader(KNOWN).read(data)
    if not isinstance(actions, list) or not all(isinstance(entry, TimedAction) for entry in actions):
        raise InputError(f"a pickle of {type(actions).__name__}, wanted LeRobot's list of timed actions")
    for entry in actions:
        if entry.action is None:
            raise InputError('a timed action without its numbers')
    return actions


class _Reader:
    """A stack machine for the few opcodes that tensors need."""

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._stack: list[Any] = []
        self._marks: list[int] = []  # where on the stack a list, a tuple or a map begins
        self._memo: dict[int, Any] = {}
        self.n_bytes = 0

    def read(self, data: bytes) -> Any:
        for opcode, argument, place in _opcodes(data):
            self._do(opcode.name, argument)
            self.n_bytes = (place or 0) + 1  # STOP is the last one, of one byte
        if len(self._stack) != 1 or self._marks:
            raise InputError('not a whole pickle')
        return self._stack.pop()

    def _do(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in ('PROTO', 'FRAME', 'STOP'):
            return
        else:
            step = _STEPS.get(name)
            if step is None:
                raise InputError(f'a pickle that uses {name}; tensors need no such thing, and it was not read')
            try:
                step(self, argument)
            except InputError:
                raise
            except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(f'not a pickle of tensors: {name} failed ({type(error).__name__})') from error

    # --- opcodes

    def mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def memoize(self, place: Any) -> None:
        self._memo[len(self._memo) if place is None else int(place)] = self._stack[-1]

    def recall(self, place: Any) -> None:
        self._stack.append(self._memo[int(place)])

    def name(self, text: Any) -> None:
        """GLOBAL, or STACK_GLOBAL with module and name on the stack."""
        if text is None:
            last, module = self._stack.pop(), self._stack.pop()
            text = f'{module} {last}'
        if text not in self._known:
            raise InputError(f'a pickle that names {str(text)[:200]!r}; only tensors are read, and nothing was run')
        self._stack.append(Name(text))

    def _since_mark(self) -> list[Any]:
        place = self._marks.pop()
        values = self._stack[place:]
        del self._stack[place:]
        return values

    def tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def tuple1(self, _: Any) -> None:
        self._stack[-1:] = [(self._stack[-1],)]

    def tuple2(self, _: Any) -> None:
        self._stack[-2:] = [tuple(self._stack[-2:])]

    def tuple3(self, _: Any) -> None:
        self._stack[-3:] = [tuple(self._stack[-3:])]

    def append(self, _: Any) -> None:
        value = self._stack.pop()
        _of(self._stack[-1], list).append(value)

    def appends(self, _: Any) -> None:
        values = self._since_mark()
        _of(self._stack[-1], list).extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _of(self._stack[-1], dict)[_of(key, str)] = value

    def set_items(self, _: Any) -> None:
        values = self._since_mark()
        target = _of(self._stack[-1], dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[_of(key, str)] = value

    def new(self, _: Any) -> None:
        """NEWOBJ: a timed action, still empty."""
        arguments, kind = self._stack.pop(), self._stack.pop()
        if not isinstance(kind, Name) or kind.text not in ACTIONS or arguments != ():
            raise InputError('a pickle of something that is not a timed action')
        self._stack.append(TimedAction())

    def build(self, _: Any) -> None:
        state = _of(self._stack.pop(), dict)
        target = _of(self._stack[-1], TimedAction)
        if set(state) != {'timestamp', 'timestep', 'action'}:
            raise InputError(f'a timed action of {", ".join(map(str, state))[:200]}')
        target.timestamp_s, target.timestep = float(state['timestamp']), int(state['timestep'])
        target.action = _of(state['action'], np.ndarray)

    def reduce(self, _: Any) -> None:
        """The three calls there are; each is a reader of ours."""
        arguments, called = _of(self._stack.pop(), tuple), _of(self._stack.pop(), Name)
        if called.text == ORDERED and arguments == ():
            self._stack.append({})
        elif called.text == STORAGE:
            self._stack.append(_read_storage(*arguments))
        elif called.text == TENSOR:
            self._stack.append(_tensor(*arguments))
        else:
            raise InputError(f'a pickle that calls {called.text!r}')

    def persistent(self, _: Any) -> None:
        """Where a storage's numbers are: ('storage', kind, key, place, number of them, view)."""
        kind, storage, key, _, n, view = self._stack.pop()
        if kind != 'storage' or view is not None:
            raise InputError('a storage of another kind')
        self._stack.append((_of(storage, Name).text, _of(key, str), _of(n, int)))


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f'{type(value).__name__} where {kind.__name__} is wanted')
    return value


def _opcodes(data: bytes) -> Opcodes:
    opcodes: Opcodes = []
    try:
        for opcode in pickletools.genops(data):
            opcodes.append(opcode)
            if len(opcodes) > MAX_OPCODES:
                raise InputError(f'a pickle of more than {MAX_OPCODES} operations')
    except (ValueError, IndexError, UnicodeDecodeError, struct.error, OverflowError) as error:
        raise InputError(f'not a pickle ({error})') from error
    return opcodes


def _read_storage(data: Any) -> NDArray[Any]:
    """A storage as torch writes it into a pickle: five small pickles, then its length and its bytes."""
    data = _of(data, bytes)
    names = frozenset(f'torch {name}' for name in STORAGES)
    at, parts = 0, []
    for _ in range(5):
        reader = _Reader(names)
        parts.append(reader.read(data[at:]))
        at += reader.n_bytes
    magic, version, _, (storage, key, n), keys = parts
    if (magic, version, keys) != (MAGIC, VERSION, [key]):
        raise InputError('a storage in a form of torch that is not known here')
    kind = np.dtype(STORAGES[storage.partition(' ')[2]])
    if len(data) != at + 8 + n * kind.itemsize or struct.unpack_from('<q', data, at)[0] != n:
        raise InputError(f'a storage of {n} numbers, with {len(data) - at} bytes')
    return np.frombuffer(data, kind, n, at + 8)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, needs_grad: Any, hooks: Any, *more: Any) -> Any:
    """A tensor as a copy of its part of the storage; a shape or stride that leaves the storage is refused."""
    storage = _of(storage, np.ndarray)
    shape, strides = (tuple(_of(n, int) for n in _of(axes, tuple)) for axes in (shape, strides))
    if len(shape) != len(strides) or min((*shape, *strides, _of(offset, int)), default=0) < 0:
        raise InputError(f'a tensor of shape {shape} with strides {strides}')
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if (0 not in shape and last >= len(storage)) or int(np.prod(shape, dtype=object)) > len(storage):
        raise InputError(f'a tensor of shape {shape} with strides {strides} in a storage of {len(storage)} numbers')
    if 0 in shape:
        return np.empty(shape, storage.dtype)
    size = storage.dtype.itemsize
    window = np.lib.stride_tricks.as_strided(storage[offset:], shape, [stride * size for stride in strides])
    return window.copy()


_VALUES = frozenset((
    'BININT', 'BININT1', 'BININT2', 'LONG1', 'LONG4', 'BINFLOAT', 'BINUNICODE', 'SHORT_BINUNICODE', 'BINUNICODE8',
    'BINBYTES', 'SHORT_BINBYTES', 'BINBYTES8', 'INT', 'LONG', 'FLOAT',
))  # fmt: skip
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    'NONE': lambda: None, 'NEWTRUE': lambda: True, 'NEWFALSE': lambda: False, 'EMPTY_TUPLE': tuple,
    'EMPTY_LIST': list, 'EMPTY_DICT': dict,
}  # fmt: skip
_STEPS: Mapping[str, Callable[[_Reader, Any], None]] = {
    'MEMOIZE': _Reader.memoize, 'BINPUT': _Reader.memoize, 'LONG_BINPUT': _Reader.memoize, 'BINGET': _Reader.recall,
    'LONG_BINGET': _Reader.recall, 'GLOBAL': _Reader.name, 'STACK_GLOBAL': _Reader.name, 'MARK': _Reader.mark,
    'TUPLE': _Reader.tuple,
    'TUPLE1': _Reader.tuple1, 'TUPLE2': _Reader.tuple2, 'TUPLE3': _Reader.tuple3, 'APPEND': _Reader.append,
    'APPENDS': _Reader.appends, 'SETITEM': _Reader.set_item, 'SETITEMS': _Reader.set_items, 'NEWOBJ': _Reader.new,
    'BUILD': _Reader.build, 'REDUCE': _Reader.reduce, 'BINPERSID': _Reader.persistent,
}  # fmt: skip


def write_object(name: str, fields: Mapping[str, Any]) -> bytes:
    """A pickle that LeRobot's server reads as an object of the class `name` of its helpers, with these fields.

    The fields are plain values and arrays. Protocol 3 has bytes and no frames, so that one pickle fits into another.
    """
    inner = pickle.dumps(dict(fields), protocol=3)[2:-1]
    return b'\x80\x03c' + MODULES[0].encode() + b'\n' + name.encode() + b'\n)\x81' + inner + b'b.'
