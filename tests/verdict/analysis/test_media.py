"""Which films of a store are there to be looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robotrials.record import Episode, Outcome, Store
from robotrials.testing.showcase import handled, write_frames
from robotrials.verdict.analysis import analyse


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """One episode, whose film is a folder of images."""
    episode = Episode(policy='a', task='t', seed=0, duration_s=4.0, outcome=Outcome.SUCCESS)
    trajectory = handled(0.2, good=True, video='front-0', rng=np.random.default_rng(0))
    Store.create(tmp_path / 's').append([episode], trajectories={episode.key: trajectory})
    write_frames(tmp_path / 's' / 'media' / 'front-0', trajectory, every=20)
    return tmp_path / 's'


def test_a_folder_of_images_is_a_film(store: Path) -> None:
    (film,) = analyse(store).films
    assert (film.name, film.path) == ('front-0', store / 'media' / 'front-0')


def test_a_folder_with_a_link_among_its_images_is_none(store: Path, tmp_path: Path) -> None:
    (tmp_path / 'secret.png').write_bytes(b'of somebody else')
    (store / 'media' / 'front-0' / '9999.png').symlink_to(tmp_path / 'secret.png')
    assert analyse(store).films == ()


def test_an_empty_folder_is_none(store: Path) -> None:
    for image in (store / 'media' / 'front-0').iterdir():
        image.unlink()
    assert analyse(store).films == ()
