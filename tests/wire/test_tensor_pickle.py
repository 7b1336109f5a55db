"""LeRobot's pickles: tensors come out, and nothing else is built, imported or called, whatever the bytes say."""

from __future__ import annotations

import base64
import builtins
import functools
import importlib
import io
import json
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.wire.array import WireLimits
from robotrials.wire.tensor_pickle import read_actions, write_object

# Actions as LeRobot 0.6.1's own classes and torch pickle them, which is what its server sends;
# `python tests/wire/lerobot_actions.py` in its environment writes the file anew.
KEPT = json.loads((Path(__file__).parent / 'lerobot_actions.json').read_text())
GENUINE = base64.b64decode(KEPT['pickle'])


def test_what_lerobots_own_classes_pickle_is_read_exactly() -> None:
    actions = read_actions(GENUINE)
    assert [entry.timestep for entry in actions] == KEPT['timesteps']
    assert [entry.timestamp_s for entry in actions] == KEPT['timestamps']
    np.testing.assert_array_equal(
        np.stack([np.asarray(entry.action) for entry in actions]), np.array(KEPT['actions'], dtype=np.float32)
    )


class Calls:
    """Pickles as a call of anything with anything."""

    def __init__(self, called: Any, *given: Any) -> None:
        self._call = (called, given)

    def __reduce__(self) -> Any:
        return self._call


class Persistent(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return ('storage', os.system, '0', 'cpu', 1, None) if value is Ellipsis else None


def persistent() -> bytes:
    stream = io.BytesIO()
    Persistent(stream).dump([...])
    return stream.getvalue()


ATTACKS: dict[str, bytes] = {
    'os.system': pickle.dumps(Calls(os.system, 'touch pwned')),
    'os.system by an old protocol': pickle.dumps(Calls(os.system, 'touch pwned'), protocol=0),
    'os.system by hand': b"cos\nsystem\n(S'touch pwned'\ntR.",
    'INST': b"(S'touch pwned'\nios\nsystem\n.",
    'OBJ': b"(cos\nsystem\nS'touch pwned'\no.",
    'eval': pickle.dumps(Calls(builtins.eval, 'open("pwned", "w")')),
    'import': pickle.dumps(Calls(importlib.import_module, 'antigravity')),
    'partial': pickle.dumps(functools.partial(os.system, 'touch pwned')),
    'in a list': pickle.dumps([Calls(os.system, 'touch pwned')]),
    'in a dotted name': b'\x80\x04\x8c\x0btorch._utils\x8c\x08__builtins__.eval\x93.',
    'through an allowed module': b'ctorch._utils\n__builtins__\n.',
    'extension': b'\x80\x02\x82\x01.',
    'a persistent object': persistent(),
    'BUILD on a function': b'ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.',
    'a call with a call': b'ctorch.storage\n_load_from_bytes\n(cos\nsystem\ntR.',
    'a storage that is a pickle': b'\x80\x03ctorch.storage\n_load_from_bytes\nC\x0ecos\nsystem\n)R.\x85R.',
}


@pytest.mark.parametrize('name', ATTACKS)
def test_a_pickle_that_would_run_something_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module, function in ((os, 'system'), (builtins, 'eval'), (importlib, 'import_module'), (pickle, 'loads')):
        monkeypatch.setattr(module, function, lambda *given, **named: pytest.fail('it was called'))
    with pytest.raises(InputError):
        read_actions(ATTACKS[name])
    assert list(tmp_path.iterdir()) == []


def test_the_message_names_what_was_refused() -> None:
    with pytest.raises(InputError, match=r"names '(posix|nt|os) system'; only tensors are read, and nothing was run"):
        read_actions(ATTACKS['os.system'])


def tensor(shape: bytes, strides: bytes, offset: bytes = b'K\x00') -> bytes:
    """The genuine answer with another shape, stride and offset for its first tensor."""
    at = GENUINE.index(b'K\x00K\x03\x85', GENUINE.index(b'_rebuild_tensor_v2'))
    end = GENUINE.index(b'\x89', at)
    memoize = b'\x94'
    return GENUINE[:at] + offset + shape + memoize + strides + memoize + GENUINE[end:]


@pytest.mark.parametrize(
    ('shape', 'strides', 'offset'),
    [
        (b'M\xff\xff\x85', b'K\x01\x85', b'K\x00'),
        (b'K\x03\x85', b'M\xff\xff\x85', b'K\x00'),
        (b'K\x03\x85', b'K\x01\x85', b'M\xff\xff'),
        (b'K\x03\x85', b'J\xff\xff\xff\xff\x85', b'K\x00'),
        (b'J\xff\xff\xff\xff\x85', b'K\x01\x85', b'K\x00'),
        (b'\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85', b'K\x00\x85', b'K\x00'),
        (b'K\x03\x85', b'K\x01K\x01\x86', b'K\x00'),
    ],
    ids=['long', 'wide', 'beyond', 'backwards', 'negative', 'huge without a stride', 'of two minds'],
)
def test_a_tensor_that_leaves_its_storage_is_refused(shape: bytes, strides: bytes, offset: bytes) -> None:
    assert read_actions(tensor(b'K\x03\x85', b'K\x01\x85'))
    with pytest.raises(InputError, match='a tensor of shape'):
        read_actions(tensor(shape, strides, offset))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """Bytes changed at random give actions or an InputError, and nothing else."""
    damaged = bytearray(GENUINE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        actions = read_actions(bytes(damaged))
    except InputError:
        return
    assert all(isinstance(entry.action, np.ndarray) for entry in actions)


def test_length_and_number_of_operations_are_bounded() -> None:
    with pytest.raises(InputError, match='more than the 100 allowed'):
        read_actions(GENUINE, WireLimits(max_bytes=100))
    with pytest.raises(InputError, match='more than 200000 operations'):
        read_actions(b'\x80\x04' + b'(' * 200_001 + b'.')


def test_what_we_write_is_an_object_of_lerobots_with_its_fields() -> None:
    """Read by the opcodes: the class is named once, and the fields are those of a plain pickle."""
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    written = write_object('TimedObservation', {'timestep': 3, 'observation': {'top': picture}})
    names = [argument for opcode, argument, _ in pickletools.genops(written) if opcode.name == 'GLOBAL']
    assert names[0] == 'lerobot.async_inference.helpers TimedObservation'
    assert all(name.startswith('numpy') for name in names[1:])
