"""What a probe is and how it is trained."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.policies.probe.demonstration import plain_words
from robotrials.value import read_table

# Far beyond what is useful: a typing error is caught before it fills the memory or takes a week.
MOST = {
    'chunk_length': 1_000, 'execute': 1_000, 'batch': 65_536, 'steps': 10**8, 'task_width': 16_384, 'threads': 1_024,
}  # fmt: skip


class EncoderKind(enum.StrEnum):
    CONV = 'conv'  # a few convolutions and a spatial softmax, trained from scratch
    DINOV2_S14 = 'dinov2-s14'  # 22 M parameters; from local weights
    DINOV2_B14 = 'dinov2-b14'  # 86 M parameters; from local weights


class TaskInput(enum.StrEnum):
    ID = 'id'  # a learned embedding, looked up by index
    TEXT = 'text'  # a frozen embedding of the instruction, where instructions are open
    NONE = 'none'  # it is not told


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """A probe and its training. Lengths of chunks are in control steps, `steps` and `checkpoints` in updates.

    `cameras`: all of the demonstrations' unless given. `crops`: camera -> (top, bottom, left, right) of what is
    looked at, as shares of the picture; all of it unless given. `image_size`: (height, width) that it is then resized
    to, as it is unless given. `augmentation` is the strength of random shifts and of changes of brightness and
    contrast: 0 none, 1 shifts by up to 1/16 of a side. `validation` is the share of demonstrations held out for the
    validation loss. `text_embeddings`: an ``.npz`` file with ``texts`` and ``vectors`` for task_input text; words are
    hashed without one. `task_noise`: the share of the training steps at which the probe is told another task. It then
    leans on its task where the task says more than the pictures do, and not where it is only there as well.
    """

    encoder: EncoderKind = EncoderKind.CONV
    weights: str = ''
    cameras: tuple[str, ...] = ()
    crops: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    image_size: tuple[int, ...] = ()
    uses_images: bool = True
    uses_state: bool = True
    task_input: TaskInput = TaskInput.ID
    text_embeddings: str = ''
    task_noise: float = 0.0
    per_task: bool = False  # one model for each task
    chunk_length: int = 16
    execute: int = 4
    hidden: tuple[int, ...] = (256, 256)
    channels: tuple[int, ...] = (16, 32, 32)  # of the conv encoder
    task_width: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 64
    steps: int = 2000
    augmentation: float = 0.25
    average_decay: float = 0.995  # of the running average of weights that checkpoints keep
    validation: float = 0.05
    checkpoints: tuple[int, ...] = ()  # besides the last step
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f'{name} is {getattr(self, name)}, wanted 1 to {most}')
        if self.seed < 0:
            raise InputError(f'seed is {self.seed}, wanted >= 0')
        if self.execute > self.chunk_length:
            raise InputError(f'execute is {self.execute}, wanted at most chunk_length, {self.chunk_length}')
        for name in ('augmentation', 'weight_decay'):
            if getattr(self, name) < 0:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 0')
        if not self.learning_rate > 0:
            raise InputError(f'learning_rate is {self.learning_rate}, wanted > 0')
        for name in ('average_decay', 'validation', 'task_noise'):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted 0 up to below 1')
        if self.image_size and (len(self.image_size) != 2 or min(self.image_size) < 16):
            raise InputError(f'image_size is {list(self.image_size)}, wanted [height, width] of at least 16')
        for camera, crop in self.crops.items():
            is_fine = len(crop) == 4 and 0 <= crop[0] < crop[1] <= 1 and 0 <= crop[2] < crop[3] <= 1
            if not is_fine:
                raise InputError(f'crops: {camera} has {list(crop)}, wanted [top, bottom, left, right] in 0..1')
        sizes = (*self.hidden, *self.channels)
        if not self.hidden or len(self.channels) != 3 or not all(1 <= size <= MOST['task_width'] for size in sizes):
            raise InputError(
                f'hidden wants at least one layer, and channels three, of 1 to {MOST["task_width"]} units; '
                f'found {list(self.hidden)} and {list(self.channels)}'
            )
        if any(not 1 <= step <= self.steps for step in self.checkpoints):
            raise InputError(f'checkpoints is {list(self.checkpoints)}, wanted steps from 1 to {self.steps}')
        if not self.uses_images and not self.uses_state and self.task_input is TaskInput.NONE:
            raise InputError('the probe has no input: wanted images, the state or the task')
        if self.encoder is not EncoderKind.CONV and self.uses_images and not self.weights:
            raise InputError(
                f'encoder {self.encoder} wants weights, a local file (.safetensors or .pth); nothing is downloaded. '
                "Without one, encoder = 'conv' is trained from scratch"
            )

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """The steps at which a checkpoint is kept."""
        return tuple(sorted({*self.checkpoints, self.steps}))

    @property
    def digest(self) -> str:
        """What identifies the options, and the weights that they start from."""
        from robotrials.policies.probe.demonstration import file_digest

        files = [file_digest(Path(name)) for name in (self.weights, self.text_embeddings) if name]
        return hashlib.sha256(json.dumps([dataclasses.asdict(self), files]).encode()).hexdigest()


def read_options(source: Mapping[str, object] | Path | str, *, where: str = 'probe') -> ProbeOptions:
    """Options from a table, or from the ``[probe]`` table of a TOML file."""
    if isinstance(source, str | Path):
        try:
            content = tomllib.loads(Path(source).read_text(encoding='utf-8'))
        except (OSError, ValueError) as error:
            raise InputError(f'{source}: cannot be read as TOML ({error})') from error
        if 'probe' not in content:
            raise InputError(f'{source}: no table [probe]')
        return read_table(ProbeOptions, content['probe'], where=f'{source} [probe]')
    return read_table(ProbeOptions, dict(source), where=where)


def variants(options: ProbeOptions | None = None) -> dict[str, ProbeOptions]:
    """The probe and what is taken from it, by name.

    ``full`` has images, proprioception and the task's number. ``blind`` has no images. ``proprioception`` has neither
    images nor the task: the arm's own state alone. ``no_task`` has images and proprioception. ``shuffled`` is trained
    as ``full`` is, and told another task than it runs when it is evaluated (`ProbePolicy(shuffle_tasks=...)`).
    """
    full = options or ProbeOptions()
    return {
        'full': full,
        'blind': dataclasses.replace(full, uses_images=False),
        'proprioception': dataclasses.replace(full, uses_images=False, task_input=TaskInput.NONE),
        'no_task': dataclasses.replace(full, task_input=TaskInput.NONE),
        'shuffled': full,
    }


# How a probe is told its task: a number looked up by name or by words, or a frozen embedding of the words.

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
