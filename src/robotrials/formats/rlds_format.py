"""`robotrials import` of RLDS datasets in TFDS folders: every record is one rollout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.imported import CERTAIN, FieldGuess, Imported, ImportOptions, Ledger, Recording, refuse_unused
from robotrials.formats.rlds import RldsDataset, find_tfds_folder, language, leaves_of, observation_leaves
from robotrials.formats.rollout import (
    Assignment,
    CameraClip,
    Recorder,
    Rollout,
    account_signals,
    asked,
    assign,
    camera_question,
    nan_question,
    spelled_out,
    take_signals,
)
from robotrials.formats.space import flatten_action
from robotrials.formats.video import FrameClip
from robotrials.record import Provenance

SCALARS = {'reward': 'reward', 'is_terminal': 'extra/is_terminal', 'discount': 'extra/discount'}


class RldsFormat:
    """RLDS episodes, read without TensorFlow."""

    name = 'rlds'
    summary = 'an RLDS dataset in a TFDS folder (dataset_info.json, features.json, TFRecord shards)'

    def recognise(self, path: Path) -> float | None:
        try:
            return CERTAIN if path.is_dir() and find_tfds_folder(path) is not None else None
        except InputError:
            return CERTAIN  # several datasets in one folder: reading says so

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='an RLDS dataset', takes=('columns', 'answers', 'rate_hz'))
        folder = find_tfds_folder(path)
        if folder is None:
            raise InputError(f'{path}: no RLDS dataset in it; wanted dataset_info.json and features.json')
        if options.rate_hz is None:
            raise InputError(f'{path}: RLDS does not state how long a step took; wanted --rate-hz, such as 5')
        dataset = RldsDataset.open(folder)
        ledger = Ledger()
        source = _Source(dataset, options, ledger, options.rate_hz)
        assignments = source.assignments()
        account_signals(assignments, {}, ledger)
        shards = [shard.path for split in dataset.shards.values() for shard in split]
        return Imported(
            format=self.name,
            sources=(folder / 'dataset_info.json', folder / 'features.json', *shards),
            recordings=source.recordings,
            ledger=ledger,
            guesses=tuple(FieldGuess(a.signal, str(a.place), a.change) for a in assignments),
            resolved=spelled_out(assignments, options),
            questions=asked(options, nan_question(), camera_question()),
            origin=Provenance(
                environment_id=f'{dataset.name} {dataset.version}'.strip(),
                success_parsing='episode_metadata/success, or a reward of 1 or more at any step',
            ),
        )


@dataclass(frozen=True, slots=True)
class _Source:
    dataset: RldsDataset
    options: ImportOptions
    ledger: Ledger
    rate_hz: float

    def assignments(self) -> tuple[Assignment, ...]:
        """By the first episode of the dataset: all of them share its features."""
        for split in self.dataset.shards:
            for _, example in self.dataset.examples(split, only=range(1)):
                columns = _columns(example)
                self._account(example, columns)
                names = {key: tuple(map(str, range(v.reshape(len(v), -1).shape[1]))) for key, v in columns.items()}
                known = {'action_raw': 'action', 'reward': 'reward'}
                return assign(names, mapped=self.options.columns, known=known)
        raise InputError(f'{self.dataset.path}: no episode in it')

    def _account(self, example: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        steps = example['steps']
        images = observation_leaves(steps).images
        flags = ('observation', 'action', 'is_first', 'is_last')
        for name, value in {**dict(leaves_of(steps.get('observation', {}))), **steps}.items():
            if name in flags or name in columns or name in images or 'instruction' in name:
                continue
            kind = 'text' if isinstance(value, list) else 'an embedding, or of no fixed size'
            self.ledger.drop(f'steps/{name}', None, why=f'{kind}: no place in a trajectory')

    def recordings(self) -> Iterator[Recording]:
        recorder = Recorder(kind='an RLDS dataset', options=self.options, source=self.dataset.path, ledger=self.ledger)
        assignments = self.assignments()
        succeeded = by_reward = 0
        for split in self.dataset.shards:
            for index, example in self.dataset.examples(split):
                rollout = self._rollout(split, index, example, assignments)
                recording = recorder.record(rollout)
                succeeded += bool(recording.episode.is_success)
                by_reward += 'success' not in _metadata(example)
                yield recording
        if by_reward and not succeeded and not {'outcome', 'success'} & self.options.defaults.keys():
            raise InputError(
                f'{self.dataset.path}: no step of any of the {by_reward} episodes has a reward of 1, so rewards do not '
                'tell success here; for demonstrations say --set outcome=success. Nothing was imported'
            )

    def _rollout(
        self, split: str, index: int, example: Mapping[str, Any], assignments: tuple[Assignment, ...]
    ) -> Rollout:
        where = f'{self.dataset.path}: {split} episode {index}'
        columns = _columns(example)
        steps = len(columns['action'])
        texts = language(example['steps'])
        metadata = _metadata(example)
        success, when = _success(columns, metadata)
        terminal = columns.get('is_terminal')
        return Rollout(
            where=where, number=index, time_s=np.arange(steps) / self.rate_hz, duration_s=steps / self.rate_hz,
            signals=take_signals(assignments, columns, where=where),
            task=texts[0] if texts else self.dataset.name, instruction=texts[0] if texts else '',
            success=success, success_t_s=None if when is None else (when + 1) / self.rate_hz,
            is_cut=terminal is not None and not bool(terminal[-1]) and bool(terminal.any()),
            labels={'split': split, 'index': str(index), **_labels(metadata)}, control_rate_hz=self.rate_hz,
            cameras=self._cameras(example),
        )  # fmt: skip

    def _cameras(self, example: Mapping[str, Any]) -> dict[str, CameraClip]:
        cameras = {}
        for name, leaf in observation_leaves(example['steps']).images.items():
            shape = leaf[0].shape
            height, width = (int(n or 0) for n in shape[:2])
            if shape[-1] not in (1, 3) or str(leaf[0].dtype) != 'uint8':
                self.ledger.drop(f'camera {name}', why='depth is kept as lossless files; a video would round it')
                continue
            cameras[name] = CameraClip(FrameClip(leaf, self.rate_hz), width, height)
        return cameras


def _columns(example: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    steps = example['steps']
    columns = {'action': flatten_action(steps['action'])[0]}
    columns |= observation_leaves(steps).numbers
    for name in ('reward', 'discount', 'is_terminal'):
        if isinstance(steps.get(name), np.ndarray):
            columns[name] = steps[name]
    return columns


def _metadata(example: Mapping[str, Any]) -> dict[str, Any]:
    metadata = example.get('episode_metadata', {})
    return dict(metadata) if isinstance(metadata, Mapping) else {}


def _labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if isinstance(value, str) and value}


def _success(columns: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> tuple[bool | None, int | None]:
    reward = columns.get('reward')
    rewarded = np.flatnonzero(reward.reshape(-1) >= 1) if reward is not None else np.empty(0, dtype=np.int64)
    when = int(rewarded[0]) if len(rewarded) else None
    if 'success' in metadata:
        return bool(np.all(metadata['success'])), when if np.all(metadata['success']) else None
    return (None, None) if reward is None else (when is not None, when)


RLDS = RldsFormat()
