"""Demonstrations on disk: what a policy would have seen and what the expert did, step by step, as plain arrays.

A folder holds ``images_CAMERA.npy`` (N, H, W, 3) in bytes, ``state.npy`` (N, S), ``action.npy`` (N, A), ``task.npy``
(N,), ``starts.npy`` (E + 1,), perhaps ``start_state.npy`` (E, K), and ``facts.json``. It appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.old_name import DEMONSTRATIONS_FORMAT
from robotrials.run.seam import ActionConvention
from robotrials.value import read_table

FORMAT = DEMONSTRATIONS_FORMAT
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
    layout: str = ''  # what distinguishes start states that share a seed
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
        for name in ('state', 'action', 'task', 'starts', *(f'images_{c}' for c in self.facts.cameras)):
            if f'{name}.npy' not in self.facts.digests:
                raise InputError(f'{self.folder / FACTS}: no digest of {name}.npy; collect the demonstrations again')
        for name, digest in self.facts.digests.items():
            actual = file_digest(self.folder / name)
            if actual != digest:
                raise InputError(f'{self.folder / name}: SHA-256 {actual[:12]}, wanted {digest[:12]}; it was changed')


def plain_words(instruction: str) -> str:
    """An instruction as it is looked up: lower case, single spaces, no full stop at the end."""
    return ' '.join(instruction.lower().split()).rstrip(' .')


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open('rb') as file:
            return hashlib.file_digest(file, 'sha256').hexdigest()
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error


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
    if not e:
        problems.append('no demonstration is in it')
    if state.ndim != 2 or task.ndim != 1:
        problems.append(f'state.npy and task.npy have shapes {state.shape} and {task.shape}, wanted (N, S) and (N,)')
    for camera, frames in images.items():
        if frames.ndim != 4 or frames.shape[3] != 3 or min(frames.shape[1:3]) < 1:
            problems.append(f'images_{camera}.npy has shape {frames.shape}, wanted (N, H, W, 3)')
    if facts.state_layout and state.ndim == 2 and len(facts.state_layout) != state.shape[1]:
        problems.append(
            f'state.npy has {state.shape[1]} numbers per step, state_layout names {len(facts.state_layout)}'
        )
    if starts.shape != (e + 1,) or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 1).any():
        problems.append(f'starts.npy does not part {n} steps into {e} episodes')
    if action.ndim != 2 or action.shape[1] != facts.action.width:
        problems.append(f'action.npy has shape {action.shape}, wanted ({n}, {facts.action.width})')
    if task.size and not (task.min() >= 0 and task.max() < len(facts.tasks)):
        problems.append(f'task.npy holds {task.min()} to {task.max()}, wanted 0 to {len(facts.tasks) - 1}')
    if not problems and not np.array_equal(
        task, np.repeat([facts.tasks.index(e.task) for e in facts.episodes], np.diff(starts))
    ):
        problems.append('task.npy gives a step another task than its episode has')
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
    for name in dict.fromkeys((*(e.task for e in facts.episodes), *facts.phrasings.values())):
        if name not in facts.tasks:
            yield f'an episode or a phrasing of task {name!r}: {near_miss(name, facts.tasks)}'
    for what, names in (('tasks', facts.tasks), ('cameras', facts.cameras)):
        if len(set(names)) < len(names):
            yield f'{what} are {list(names)}, wanted each once'
    if facts.control_rate_hz <= 0:
        yield f'control_rate_hz is {facts.control_rate_hz}, wanted > 0'


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
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f'{path}: cannot be read ({error}); wanted a folder of demonstrations') from error
    if not isinstance(content, dict) or content.get('format') != FORMAT or content.get('version') != 1:
        raise InputError(f'{path}: not {FORMAT} of version 1')
    given = {key: value for key, value in content.items() if key not in ('format', 'version')}
    episodes = given.get('episodes', [])
    for table in [given, *(episodes if isinstance(episodes, list) else [])]:
        for key in [key for key, value in table.items() if value is None] if isinstance(table, dict) else ():
            del table[key]
    return read_table(DemonstrationFacts, given, where=str(path))
