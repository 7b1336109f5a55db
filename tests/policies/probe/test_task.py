from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.policies.probe.option import TextEmbedding, derangement, find_task_id

TASKS = ('open drawer', 'close drawer')
PHRASINGS = {'pull the drawer': 'open drawer', 'push the drawer': 'close drawer'}


@given(st.integers(2, 12), st.integers(0, 1000))
def test_no_task_stays_where_it_was(n: int, seed: int) -> None:
    order = derangement(n, seed=seed)
    assert sorted(order) == list(range(n))
    assert all(place != task for place, task in enumerate(order))
    assert order == derangement(n, seed=seed)


def test_the_seed_changes_the_shuffle() -> None:
    assert len({derangement(6, seed=seed) for seed in range(20)}) > 10


def test_one_task_cannot_be_shuffled() -> None:
    with pytest.raises(InputError, match='at least two tasks'):
        derangement(1, seed=0)


@pytest.mark.parametrize(
    ('task', 'words', 'number'),
    [
        ('close drawer', '', 1),
        ('', 'Pull  the drawer.', 0),
        ('elsewhere', 'push the drawer', 1),
        ('elsewhere', 'Close drawer', 1),
    ],
)
def test_a_task_is_found_by_name_or_by_words(task: str, words: str, number: int) -> None:
    assert find_task_id(task, words, tasks=TASKS, phrasings=PHRASINGS) == number


def test_an_unknown_task_lists_the_known() -> None:
    with pytest.raises(InputError, match=r'not trained on.*pull the drawer') as error:
        find_task_id('x', 'pull the draw', tasks=TASKS, phrasings=PHRASINGS)
    assert 'close drawer' in str(error.value)


def test_hashed_words_are_fixed_and_near_where_words_are_shared() -> None:
    text = TextEmbedding()
    red, red_again, blue, other = (
        text.vector(w) for w in ('put the red block', 'Put the red block.', 'put the blue block', 'open a drawer')
    )
    np.testing.assert_array_equal(red, red_again)
    assert np.linalg.norm(red) == pytest.approx(1, abs=1e-6)
    assert red @ blue > red @ other + 0.1


def test_vectors_come_from_a_file_and_unknown_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'vectors.npz'
    np.savez(path, texts=np.array(['go left', 'go right']), vectors=np.eye(2, 5))
    text = TextEmbedding(str(path))
    assert text.width == 5
    np.testing.assert_array_equal(text.vector('Go right.'), np.eye(2, 5)[1])
    with pytest.raises(InputError, match="no vector for 'go up'"):
        text.vector('go up')
    np.savez(path, texts=np.array(['a']), vectors=np.zeros((2, 5)))
    with pytest.raises(InputError, match='1 texts and vectors of shape'):
        TextEmbedding(str(path))
