"""Writing demonstrations, episode by episode."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.policies.probe.demonstration import (
    FACTS,
    FORMAT,
    DemonstrationFacts,
    Demonstrations,
    EpisodeFacts,
    file_digest,
    plain_words,
    read_demonstrations,
)
from robotrials.record.folder import move_durably, naming_trouble
from robotrials.run.convention import ActionConvention


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
            with contextlib.suppress(OSError):  # of a full disk, which was told already
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
        start_state: ArrayLike | None = None,
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
            with naming_trouble(self._draft / f'{name}.npy'):
                self._files[name].append(array)
        if start_state is not None:
            self._start_states.append(np.asarray(start_state, dtype=float))
        self._episodes.append(facts)
        self._starts.append(self._starts[-1] + len(action))

    def finish(self) -> Demonstrations:
        """Put the folder in place, whole."""
        if not self._episodes:
            raise InputError(f'{self._folder}: not one demonstration was kept; there is nothing to train on')
        with naming_trouble(self._draft):
            self._put_in_place()
        return read_demonstrations(self._folder)

    def _put_in_place(self) -> None:
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
        move_durably(self._draft, self._folder)

    def _checked(
        self,
        facts: EpisodeFacts,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[Any],
        action: NDArray[Any],
        start_state: ArrayLike | None,
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
