"""Demonstrations on disk: what a policy would have seen and what the expert did, step by step, as plain arrays.

A folder holds ``images_CAMERA.npy`` (N, H, W, 3) in bytes, ``state.npy`` (N, S), ``action.npy`` (N, A), ``task.npy``
(N,), ``starts.npy`` (E + 1,), perhaps ``start_state.npy`` (E, K), and ``facts.json``. It appears whole or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trialist.declaration import read_table
from trialist.errors import InputError, near_miss
from trialist.run.convention import ActionConvention

FORMAT = 'trialist-demonstrations'
FACTS = 'facts.json'
READ_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFacts:
    """One demonstration: which task, how it was asked for, where it began, how it ended."""

    task: str
    instruction: str = ''
    success: bool | None = None  # None: the source does not say
    seed: int | None = None
    instance: int | None = None
    layout: str = ''  # what tells start states apart where seeds do not
    begins_in_motion: bool = False
    id: str = ''  # in the source


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationFacts:
    """What holds for all of them. `phrasings` maps words, as `plain_words` writes them, to a task."""

    action: ActionConvention
    control_rate_hz: float
    source: Mapping[str, Any]
    tasks: tuple[str, ...] = ()
    phrasings: Mapping[str, str] = field(default_factory=dict)
    cameras: tuple[str, ...] = ()
    state_layout: tuple[str, ...] = ()
    episodes: tuple[EpisodeFacts, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # file -> SHA-256

    @property
    def digest(self) -> str:
        """What identifies the arrays."""
        return hashlib.sha256(json.dumps(dict(sorted(self.digests.items()))).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Demonstrations:
    """Arrays over N steps of E demonstrations; images are mapped from disk."""

    folder: Path
    facts: DemonstrationFacts
    images: Mapping[str, NDArray[np.uint8]]  # camera -> (N, H, W, 3)
    state: NDArray[np.float32]  # (N, S)
    action: NDArray[np.float32]  # (N, A)
    task: NDArray[np.int64]  # (N,), an index into facts.tasks
    starts: NDArray[np.int64]  # (E + 1,): episode e has the steps starts[e] to starts[e + 1]
    start_state: NDArray[np.float64] | None  # (E, K)

    @property
    def n_episodes(self) -> int:
        return len(self.starts) - 1

    @property
    def n_steps(self) -> int:
        return len(self.action)

    @property
    def digest(self) -> str:
        return self.facts.digest

    def verify(self) -> None:
        """Read every file and compare it with the digest it was finished with."""
        for name, digest in self.facts.digests.items():
            found = file_digest(self.folder / name)
            if found != digest:
                raise InputError(f'{self.folder / name}: SHA-256 {found[:12]}, wanted {digest[:12]}; it was changed')


def plain_words(instruction: str) -> str:
    """An instruction as it is looked up: lower case, single spaces, no full stop at the end."""
    return ' '.join(instruction.lower().split()).rstrip(' .')


class DemonstrationWriter:
    """Appends episode by episode to a draft beside `folder`; `finish` puts it in place. As a context it cleans up.

    Tasks are numbered in the order of `tasks`, then as they come.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        action: ActionConvention,
        control_rate_hz: float,
        source: Mapping[str, Any],
        state_layout: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> None:
        self._folder = Path(folder)
        if self._folder.exists():
            raise InputError(f'{self._folder} is there already; name a new folder for the demonstrations')
        self._draft = self._folder.with_name(f'.{self._folder.name}.{os.getpid()}.draft')
        self._draft.mkdir(parents=True)
        self._files: dict[str, _GrowingArray] = {}
        self._tasks, self._phrasings = list(tasks), dict[str, str]()
        self._episodes: list[EpisodeFacts] = []
        self._starts, self._start_states = [0], list[NDArray[np.float64]]()
        self._cameras: tuple[str, ...] | None = None
        self._facts = DemonstrationFacts(
            action=action, control_rate_hz=control_rate_hz, source=dict(source), state_layout=tuple(state_layout)
        )

    def __enter__(self) -> DemonstrationWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    @property
    def n_episodes(self) -> int:
        return len(self._episodes)

    def append(
        self,
        facts: EpisodeFacts,
        *,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[Any],
        action: NDArray[Any],
        start_state: Sequence[float] | None = None,
        phrasings: Sequence[str] = (),
    ) -> None:
        """One episode of T steps: images (T, H, W, 3) of each camera, state (T, S), action (T, A)."""
        arrays = self._checked(facts, images, state, action, start_state)
        for words in (facts.instruction, *phrasings):
            known = self._phrasings.setdefault(plain_words(words), facts.task) if words else facts.task
            if known != facts.task:
                raise InputError(f'{words!r} asks for task {known!r} and for {facts.task!r}; wanted one task for it')
        if facts.task not in self._tasks:
            self._tasks.append(facts.task)
        arrays['task'] = np.full(len(action), self._tasks.index(facts.task), np.int64)
        for name, array in arrays.items():
            if name not in self._files:
                self._files[name] = _GrowingArray(self._draft / f'{name}.npy', array.dtype, array.shape[1:])
            self._files[name].append(array)
        if start_state is not None:
            self._start_states.append(np.asarray(start_state, dtype=float))
        self._episodes.append(facts)
        self._starts.append(self._starts[-1] + len(action))

    def finish(self) -> Demonstrations:
        """Put the folder in place, whole."""
        if not self._episodes:
            raise InputError(f'{self._folder}: not one demonstration was kept; there is nothing to train on')
        for file in self._files.values():
            file.finish()
        np.save(self._draft / 'starts.npy', np.array(self._starts, np.int64))
        if self._start_states:
            # Scenes with fewer things are filled up with zeros: distances are taken within a task.
            widest = max(len(row) for row in self._start_states)
            rows = [np.pad(row, (0, widest - len(row))) for row in self._start_states]
            np.save(self._draft / 'start_state.npy', np.stack(rows))
        digests = {path.name: file_digest(path) for path in sorted(self._draft.glob('*.npy'))}
        facts = dataclasses.replace(
            self._facts,
            tasks=tuple(self._tasks),
            phrasings=self._phrasings,
            cameras=self._cameras or (),
            episodes=tuple(self._episodes),
            digests=digests,
        )
        content = {'format': FORMAT, 'version': 1, **dataclasses.asdict(facts)}
        (self._draft / FACTS).write_text(json.dumps(content, indent=1), encoding='utf-8')
        os.rename(self._draft, self._folder)
        return read_demonstrations(self._folder)

    def _checked(
        self,
        facts: EpisodeFacts,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[Any],
        action: NDArray[Any],
        start_state: Sequence[float] | None,
    ) -> dict[str, NDArray[Any]]:
        where = f'demonstration {len(self._episodes)} ({facts.id or facts.task})'
        if self._cameras is None:
            self._cameras = tuple(images)
        if tuple(images) != self._cameras:
            raise InputError(f'{where}: cameras {list(images)}, wanted {list(self._cameras)} as in those before')
        width = self._facts.action.width
        if action.ndim != 2 or not len(action) or action.shape[1] != width:
            raise InputError(f'{where}: actions of shape {action.shape}, wanted (steps, {width})')
        arrays: dict[str, NDArray[Any]] = {'state': np.asarray(state, np.float32)}
        arrays['action'] = np.asarray(action, np.float32)
        for camera, frames in images.items():
            if not re.fullmatch(r'[A-Za-z0-9_.-]+', camera):
                raise InputError(f'{where}: a camera is named {camera!r}, wanted letters, digits, . _ and -')
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
                raise InputError(
                    f'{where}: images of {camera} are {frames.dtype} {frames.shape}, wanted uint8 (T, H, W, 3)'
                )
            arrays[f'images_{camera}'] = frames
        for name, array in arrays.items():
            if len(array) != len(action) or array.ndim < 2:
                raise InputError(f'{where}: {name} has shape {array.shape}, wanted {len(action)} steps')
            if array.dtype != np.uint8 and not np.isfinite(array).all():
                raise InputError(f'{where}: {name} holds numbers that are not finite')
            if name in self._files and self._files[name].shape != array.shape[1:]:
                raise InputError(
                    f'{where}: {name} is {array.shape[1:]} per step, {self._files[name].shape} in those before'
                )
        if self._episodes and (start_state is None) != (not self._start_states):
            raise InputError(f'{where}: a start state is given for some demonstrations and not for others')
        return arrays


class _GrowingArray:
    """An ``.npy`` file that grows along its first axis: numpy leaves room in the header for that."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.shape, self._dtype, self._length = shape, dtype, 0
        self._file: BinaryIO = path.open('w+b')
        self._write_header()
        self._data_at = self._file.tell()

    def append(self, array: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).tobytes())
        self._length += len(array)

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._data_at:
            raise RuntimeError('the header of an .npy file changed its length')
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write_header(self) -> None:
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {'descr': descr, 'fortran_order': False, 'shape': (self._length, *self.shape)}
        np.lib.format.write_array_header_1_0(self._file, header)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def read_demonstrations(folder: Path | str) -> Demonstrations:
    """Open a folder of demonstrations; images stay on disk. InputError says which file does not fit."""
    folder = Path(folder)
    facts = _read_facts(folder / FACTS)
    state, action, task, starts = (_array(folder, name, kind) for name, kind in _ARRAYS)
    images = {camera: _array(folder, f'images_{camera}', 'u1', mapped=True) for camera in facts.cameras}
    has_start = 'start_state.npy' in facts.digests
    start_state = _array(folder, 'start_state', 'f8') if has_start else None
    n, e = len(action), len(facts.episodes)
    problems = list(_problems(facts, {'state': state, 'task': task, **images}, n))
    if starts.shape != (e + 1,) or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 1).any():
        problems.append(f'starts.npy does not part {n} steps into {e} episodes')
    if action.ndim != 2 or action.shape[1] != facts.action.width:
        problems.append(f'action.npy has shape {action.shape}, wanted ({n}, {facts.action.width})')
    if task.size and not (task.min() >= 0 and task.max() < len(facts.tasks)):
        problems.append(f'task.npy holds {task.min()} to {task.max()}, wanted 0 to {len(facts.tasks) - 1}')
    if start_state is not None and (start_state.ndim != 2 or len(start_state) != e):
        problems.append(f'start_state.npy has shape {start_state.shape}, wanted {e} rows')
    for name, array in (('state', state), ('action', action), ('start_state', start_state)):
        if array is not None and not np.isfinite(array).all():
            problems.append(f'{name}.npy holds numbers that are not finite')
    if problems:
        raise InputError(f'{folder}: {"; ".join(problems)}')
    return Demonstrations(folder, facts, images, state, action, task, starts, start_state)


_ARRAYS = (('state', 'f4'), ('action', 'f4'), ('task', 'i8'), ('starts', 'i8'))


def _problems(facts: DemonstrationFacts, arrays: Mapping[str, NDArray[Any]], n: int) -> Iterator[str]:
    for name, array in arrays.items():
        if len(array) != n:
            yield f'{name} has {len(array)} steps, action.npy {n}'
    for episode in facts.episodes:
        if episode.task not in facts.tasks:
            yield f'an episode of task {episode.task!r}: {near_miss(episode.task, facts.tasks)}'


def _array(folder: Path, name: str, kind: str, *, mapped: bool = False) -> NDArray[Any]:
    path = folder / f'{name}.npy'
    try:
        array: NDArray[Any] = np.load(path, mmap_mode='r' if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f'{path}: cannot be read as an array ({error})') from error
    if array.dtype != np.dtype(kind) or array.ndim < 1:
        raise InputError(f'{path}: {array.dtype} {array.shape}, wanted {np.dtype(kind)}')
    return array


def _read_facts(path: Path) -> DemonstrationFacts:
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: cannot be read ({error}); wanted a folder of demonstrations') from error
    if not isinstance(content, dict) or content.get('format') != FORMAT or content.get('version') != 1:
        raise InputError(f'{path}: not {FORMAT} of version 1')
    given = {key: value for key, value in content.items() if key not in ('format', 'version')}
    episodes = given.get('episodes', [])
    for table in [given, *(episodes if isinstance(episodes, list) else [])]:
        for key in [key for key, value in table.items() if value is None]:
            del table[key]
    return read_table(DemonstrationFacts, given, where=str(path))
