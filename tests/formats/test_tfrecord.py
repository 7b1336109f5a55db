from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.formats.rlds import crc32c, masked_crc32c, read_records, write_records


def bitwise(data: bytes) -> int:
    """The definition, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ('data', 'expected'),
    [
        (bytes(32), 0x8A9136AA),
        (b'\xff' * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b'123456789', 0xE3069283),
    ],
)
def test_crc32c_against_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=700))
def test_crc32c_is_its_bitwise_definition(data: bytes) -> None:
    assert crc32c(data) == bitwise(data)


@pytest.mark.parametrize('size', [63, 64, 65, 1023, 1024, 1025, 1030, 40_000, 65_537])
def test_crc32c_of_every_remainder_of_eight_is_its_bitwise_definition(size: int) -> None:
    data = bytes((i * 37 + i // 251) & 0xFF for i in range(size))
    assert crc32c(data) == bitwise(data)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_extending_a_crc_is_the_crc_of_both(a: bytes, b: bytes) -> None:
    assert crc32c(b, crc32c(a)) == crc32c(a + b)


def test_mask_is_invertible_and_changes_the_crc() -> None:
    masked = masked_crc32c(b'123456789')
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    assert ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF == 0xE3069283


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_records_are_read_as_written(tmp_path_factory: pytest.TempPathFactory, records: list[bytes]) -> None:
    path = tmp_path_factory.mktemp('records') / 'a.tfrecord'
    assert write_records(path, records) == len(records)
    assert list(read_records(path)) == records


def written(path: Path) -> tuple[Path, bytes]:
    target = path / 'push-train.tfrecord-00000-of-00001'
    write_records(target, [b'first' * 20, b'second' * 20])
    return target, target.read_bytes()


def test_a_flipped_bit_names_file_and_offset_of_its_record(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    second = 12 + 100 + 4
    path.write_bytes(data[: second + 30] + bytes([data[second + 30] ^ 1]) + data[second + 31 :])
    records = read_records(path)
    assert next(records) == b'first' * 20
    with pytest.raises(InputError, match=rf'{path.name}: the record at byte {second} fails its checksum'):
        next(records)
    assert len(list(read_records(path, check=False))) == 2


def test_a_damaged_length_names_file_and_offset(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    path.write_bytes(bytes([data[0] ^ 0xFF]) + data[1:])
    with pytest.raises(InputError, match=rf'{path.name}: the length of the record at byte 0 fails'):
        list(read_records(path))


@pytest.mark.parametrize('kept', [3, 11, 12, 50, 114, 117, 130, 239])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path: Path, kept: int) -> None:
    path, data = written(tmp_path)
    path.write_bytes(data[:kept])
    with pytest.raises(InputError, match=rf'{path.name}: truncated.*byte (0|116)'):
        list(read_records(path))


def test_a_file_cut_between_records_ends_early_without_damage(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    path.write_bytes(data[:116])
    assert len(list(read_records(path))) == 1
