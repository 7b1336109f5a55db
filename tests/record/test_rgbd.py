"""Kept RGB-D: bit for bit, the same bytes for the same views, and nothing unpacked that is not what it says."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, StoreError
from robotrials.record.footage import (
    KnownBox,
    KnownObject,
    KnownScene,
    RegionGoal,
    View,
    pack_views,
    read_known,
    unpack_views,
)
from robotrials.record.trajectory import Camera


def view(seed: int, height: int = 5, width: int = 7) -> View:
    rng = np.random.default_rng(seed)
    depth = rng.integers(0, 2**32, (height, width), dtype=np.uint32).view(np.float32)  # every bit pattern, NaNs too
    pose = np.eye(4)
    pose[:3, 3] = rng.normal(size=3)
    camera = Camera('front', np.array([[300.0, 0, 3], [0, 300, 2], [0, 0, 1]]), pose, width, height)
    return View(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), depth, camera, 1.25)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_views_come_back_bit_for_bit(seed: int, height: int, width: int) -> None:
    kept = view(seed, height, width)
    read = unpack_views(pack_views({'front': kept}), where='here')['front']
    assert read.depth_m.tobytes() == kept.depth_m.tobytes()
    assert np.array_equal(read.rgb, kept.rgb)
    assert np.array_equal(read.camera.world_from_camera, kept.camera.world_from_camera)
    assert np.array_equal(read.camera.intrinsics_px, kept.camera.intrinsics_px)
    assert read.t_s == kept.t_s


def test_the_same_views_are_the_same_bytes() -> None:
    assert pack_views({'a': view(1), 'b': view(2)}) == pack_views({'a': view(1), 'b': view(2)})


@given(st.data())
def test_a_damaged_file_is_refused_or_reads_the_same(data: st.DataObject) -> None:
    whole = pack_views({'front': view(3)})
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    try:
        read = unpack_views(damaged, where='here')
    except StoreError:
        return
    for name, kept in read.items():  # a byte of no meaning to the reader, such as a date
        assert kept.depth_m.tobytes() == view(3).depth_m.tobytes(), name


def test_a_cut_file_is_refused() -> None:
    whole = pack_views({'front': view(3)})
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        with pytest.raises(StoreError, match='not a moment'):
            unpack_views(whole[:end], where='here')


def test_a_member_longer_than_it_says_is_not_unpacked() -> None:
    contents = {
        'front': {'number': 0, 'height_px': 2, 'width_px': 2, 't_s': 0.0, 'intrinsics_px': [1.0] * 9,
                  'world_from_camera': [1.0] * 16}
    }  # fmt: skip
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('views.json', json.dumps(contents))
        archive.writestr('0.depth', bytes(50_000_000))
        archive.writestr('0.rgb', bytes(12))
    with pytest.raises(StoreError, match='wanted 16'):
        unpack_views(packed.getvalue(), where='here')


def test_a_view_without_calibration_is_not_kept() -> None:
    kept = view(1)
    bare = View(kept.rgb, kept.depth_m, Camera('front', None, None, 7, 5), 0.0)
    with pytest.raises(InputError, match='calibration'):
        pack_views({'front': bare})


def test_a_known_scene_comes_back_and_a_strange_key_is_refused() -> None:
    box = KnownBox(name='cube', center_m=(0.5, 0.0, 0.02), size_m=(0.04, 0.04, 0.04))
    scene = KnownScene(
        objects=(KnownObject(name='cube', color_rgb=(200, 30, 30), start=box),), fixed=(box,), floor_z_m=-0.7,
        region=RegionGoal(objects=('cube',), low_m=(0.0, 0.0, 0.0), high_m=(1.0, 1.0, 1.0)),
    )  # fmt: skip
    text = scene.as_json().encode()
    assert read_known(text, where='here') == scene
    with pytest.raises(StoreError, match='no key'):
        read_known(text.replace(b'"floor_z_m"', b'"flor_z_m"'), where='here')
    with pytest.raises(StoreError, match='not JSON'):
        read_known(text[:-3], where='here')


@pytest.mark.parametrize('packing', [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_moments_packed_otherwise_are_refused(packing: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w', packing) as archive:
        archive.writestr('views.json', '{}')
    with pytest.raises(StoreError, match='packed in another way'):
        unpack_views(packed.getvalue(), where='x.zip')


def test_texts_nested_too_deeply_and_cameras_without_a_lens_are_refused() -> None:
    entry = {'number': 0, 'height_px': 1, 'width_px': 1, 't_s': 0.0, 'intrinsics_px': [0.0] * 9,
             'world_from_camera': [0.0] * 16}  # fmt: skip
    for text, match in ((100_000 * '[', 'recursion'), (json.dumps({'a': entry}), 'a focal length of 0 px')):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, 'w') as archive:
            archive.writestr('views.json', text)
            archive.writestr('0.depth', 4 * b'0')
            archive.writestr('0.rgb', 3 * b'0')
        with pytest.raises(StoreError, match=match):
            unpack_views(packed.getvalue(), where='x.zip')
    with pytest.raises(StoreError, match='not JSON'):
        read_known(100_000 * b'[', where='known.json')
