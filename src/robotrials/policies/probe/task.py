"""How a probe is told its task: a number looked up by name or by words, or a frozen embedding of the words."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.policies.probe.demonstration import plain_words

HASHED_WIDTH = 64


def find_task_id(
    task: str, instruction: str, *, tasks: Sequence[str], phrasings: Mapping[str, str]
) -> int:  # fmt: skip
    """The number of a task, by its name or by the words that ask for it; InputError lists the known ones."""
    if task in tasks:
        return tasks.index(task)
    words = plain_words(instruction)
    name = phrasings.get(words, words)
    if name in tasks:
        return tasks.index(name)
    known = sorted({*tasks, *phrasings})
    asked = f'task {task!r}' + (f' asked for as {instruction!r}' if instruction else '')
    raise InputError(f'the probe was not trained on {asked}: {near_miss(words or task, known)}')


def derangement(n: int, *, seed: int) -> tuple[int, ...]:
    """A fixed order of n numbers in which none is at its own place."""
    if n < 2:
        raise InputError(f'{n} task cannot be shuffled; wanted demonstrations of at least two tasks')
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, n])))
    while True:
        order = rng.permutation(n)
        if not (order == np.arange(n)).any():
            return tuple(int(i) for i in order)


class TextEmbedding:
    """Frozen vectors for instructions: from an ``.npz`` file with ``texts`` and ``vectors``, or hashed words.

    Hashed words know no meaning: instructions that share words are near each other, and that is all.
    """

    def __init__(self, path: str = '') -> None:
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._path = path
        if path:
            texts, vectors = _read_vectors(Path(path))
            self._vectors = {plain_words(text): vector for text, vector in zip(texts, vectors, strict=True)}
            self.width = int(vectors.shape[1])
        else:
            self.width = HASHED_WIDTH

    def vector(self, instruction: str) -> NDArray[np.float32]:
        """The vector (width,) of an instruction; an unknown one is an InputError where vectors come from a file."""
        words = plain_words(instruction)
        if not words:
            raise InputError('the instruction is empty, and the probe is told its task in words')
        if not self._path:
            return _hashed(words)
        if words not in self._vectors:
            raise InputError(f'{self._path} has no vector for {instruction!r}: {near_miss(words, self._vectors)}')
        return self._vectors[words]


def _read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    try:
        with np.load(path, allow_pickle=False) as held:
            texts = [str(text) for text in held['texts']]
            vectors: NDArray[Any] = np.asarray(held['vectors'], np.float32)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: wanted an .npz file with texts (n,) and vectors (n, width) ({error})') from error
    if vectors.ndim != 2 or len(texts) != len(vectors) or not np.isfinite(vectors).all():
        raise InputError(f'{path}: {len(texts)} texts and vectors of shape {vectors.shape}, wanted finite (n, width)')
    return texts, vectors


def _hashed(words: str) -> NDArray[np.float32]:
    """The sum of one random unit vector per word and pair of words, scaled to length 1 (feature hashing)."""
    parts = words.split()
    total = np.zeros(HASHED_WIDTH)
    for part in (*parts, *(' '.join(pair) for pair in itertools.pairwise(parts))):
        seed = int.from_bytes(hashlib.sha256(part.encode()).digest()[:8], 'big')
        total += np.random.Generator(np.random.PCG64(seed)).standard_normal(HASHED_WIDTH)
    return np.asarray(total / np.linalg.norm(total), np.float32)
