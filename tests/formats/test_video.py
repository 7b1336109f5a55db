from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from robotrials.errors import InputError
from robotrials.formats import video as module
from robotrials.formats.video import EncodedImage, decode_pixels


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format='jpeg', **options)
    return buffer.getvalue()


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize('options', [{'quality': 95}, {'quality': 40}, {'progressive': True}, {'subsampling': 0}])
def test_the_fast_decoder_gives_the_bits_of_pillow(options: dict[str, object]) -> None:
    pytest.importorskip('simplejpeg')
    for seed, shape in enumerate([(48, 64, 3), (33, 47, 3), (1, 1, 3)]):
        data = jpeg(noise(seed, *shape), **options)
        fast = module._decode_jpeg(data)
        assert fast is not None
        np.testing.assert_array_equal(fast, np.asarray(Image.open(io.BytesIO(data)).convert('RGB')))


def test_a_grey_jpeg_becomes_three_channels_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(noise(0, 20, 30))
    fast = decode_pixels(data, channels=3, dtype='uint8', where='x')
    monkeypatch.setattr(module, '_jpeg_decoder', lambda: None)
    np.testing.assert_array_equal(fast, decode_pixels(data, channels=3, dtype='uint8', where='x'))


def test_a_damaged_jpeg_is_named_by_its_place() -> None:
    data = jpeg(noise(0, 64, 64, 3))
    with pytest.raises(InputError, match=r'shard 3: the image does not decode'):
        EncodedImage(data[: len(data) // 2], (64, 64, 3), 'uint8', 'shard 3').array()
    with pytest.raises(InputError, match=r'image of shape \(64, 64, 3\), the features declare'):
        EncodedImage(data, (32, 64, 3), 'uint8', 'x').array()
