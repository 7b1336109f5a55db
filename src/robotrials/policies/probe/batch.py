"""Demonstrations as batches of tensors. Imported inside the environment, where torch is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from robotrials.policies.probe.demonstration import Demonstrations
from robotrials.policies.probe.task import TextEmbedding

LEAST_STD = 1e-6
VALIDATION_ROWS = 256
OTHERS = 32  # rows drawn to find one of another task


class TrainingData:
    """Demonstrations as batches: pictures resized once, numbers normalised, chunks filled up past the end."""

    def __init__(self, demonstrations: Demonstrations, options: Mapping[str, Any]) -> None:
        self._options = options
        cameras = options['cameras'] or demonstrations.facts.cameras
        cameras = tuple(cameras) if options['uses_images'] else ()
        sources = {camera: demonstrations.images[camera] for camera in cameras}
        self._images = {camera: _looked_at(frames, camera, options) for camera, frames in sources.items()}
        training, self.held_out = split_rows(demonstrations.starts, options)
        self._rows = training
        state, action = demonstrations.state, demonstrations.action
        self.statistics = {
            'state_mean': state[training].mean(0).tolist(),
            'state_std': _std(state[training]).tolist(),
            'action_mean': action[training].mean(0).tolist(),
            'action_std': _std(action[training]).tolist(),
        }
        of = {key: np.array(value, np.float32) for key, value in self.statistics.items()}
        self._state = (state - of['state_mean']) / of['state_std']
        self._chunks = (chunks(demonstrations, options['chunk_length']) - of['action_mean']) / of['action_std']
        convention = demonstrations.facts.action
        self.n_moves = convention.motion_width if convention.target == 'delta' else 0
        self._ids = demonstrations.task
        tasks = demonstrations.facts.tasks
        self._told: np.ndarray = self._ids
        text = TextEmbedding(options['text_embeddings']) if options['task_input'] == 'text' else None
        if text is not None:
            words = [e.instruction or e.task for e in demonstrations.facts.episodes]
            vectors = np.stack([text.vector(w) for w in words])
            self._told = np.repeat(vectors, np.diff(demonstrations.starts), axis=0)
        self.sizes = {
            'cameras': list(cameras),
            'input_size': {camera: list(frames.shape[1:3]) for camera, frames in sources.items()},
            'image_size': {camera: list(frames.shape[1:3]) for camera, frames in self._images.items()},
            'state': state.shape[1],
            'action': action.shape[1],
            'tasks': len(tasks),
            'text': text.width if text is not None else 0,
        }

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of one batch; of one batch for each task where each has a model of its own."""
        n = self._options['batch']
        if not self._options['per_task']:
            return np.asarray(self._rows[rng.integers(len(self._rows), size=n)])
        parts = []
        for task in range(self.sizes['tasks']):
            own = self._rows[self._ids[self._rows] == task]
            parts.append(own[rng.integers(len(own), size=n)])
        return np.concatenate(parts)

    def draw_told(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows whose task each of these is told: its own, or at `task_noise` of them one of another task."""
        noise = self._options['task_noise']
        if not noise or self._options['per_task'] or self.sizes['tasks'] < 2:
            return rows
        others = self._rows[rng.integers(len(self._rows), size=(len(rows), OTHERS))]
        is_other = self._ids[others] != self._ids[rows][:, None]
        first = others[np.arange(len(rows)), is_other.argmax(1)]
        return np.where((rng.random(len(rows)) < noise) & is_other.any(1), first, rows)

    def batch(self, rows: np.ndarray, told: np.ndarray, device: str) -> tuple[dict[str, Any], Any, Any, Any]:
        """Pictures, state, task and chunks of these rows; `told` has the rows that the task is taken from."""
        images = {camera: tensor_on(np.ascontiguousarray(f[rows]), device) for camera, f in self._images.items()}
        arrays = (self._state[rows], self._told[told], self._chunks[rows])
        state, task, target = (tensor_on(a, device) for a in arrays)
        return images, state, task, target


def split_rows(starts: np.ndarray, options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the demonstrations to train on, and some of those that are held out for the validation loss."""
    n = len(starts) - 1
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([options['seed'], n, 1])))
    order = rng.permutation(n)
    n_out = min(n - 1, math.ceil(options['validation'] * n)) if options['validation'] else 0
    out, into = np.sort(order[:n_out]), np.sort(order[n_out:])
    rows = [
        np.concatenate([np.arange(starts[e], starts[e + 1]) for e in part] or [np.empty(0)]) for part in (into, out)
    ]
    training, held_out = (part.astype(np.int64) for part in rows)
    every = max(1, len(held_out) // VALIDATION_ROWS)
    return training, held_out[::every]


def chunks(demonstrations: Demonstrations, length: int) -> np.ndarray:
    """For each step the next `length` actions (N, h, A); past the end the arm stands still, the gripper as it was."""
    starts, action = demonstrations.starts, demonstrations.action
    ends = np.repeat(starts[1:], np.diff(starts))
    places = np.arange(len(action))[:, None] + np.arange(length)
    taken = action[np.minimum(places, ends[:, None] - 1)]
    convention = demonstrations.facts.action
    if convention.target == 'delta' or convention.control_mode == 'joint_velocity':
        taken[..., : convention.motion_width][places >= ends[:, None]] = 0.0
    return np.asarray(taken)


def resized(frames: torch.Tensor, size: Any) -> torch.Tensor:
    """Bytes (n, H, W, 3) at another size, each pixel the mean of what it covers."""
    if tuple(frames.shape[1:3]) == tuple(size):
        return frames
    small = functional.interpolate(frames.permute(0, 3, 1, 2).float(), tuple(size), mode='area')
    return small.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()


def cropped(frames: Any, crop: Any) -> Any:
    """The part (top, bottom, left, right in 0..1) of pictures (n, H, W, 3); all of it without a crop."""
    if crop is None:
        return frames
    h, w = frames.shape[1:3]
    top, bottom, left, right = (round(share * side) for share, side in zip(crop, (h, h, w, w), strict=True))
    return frames[:, top:bottom, left:right]


def _looked_at(frames: np.ndarray, camera: str, options: Mapping[str, Any]) -> np.ndarray:
    part = cropped(frames, options['crops'].get(camera))
    size = options['image_size'] or part.shape[1:3]
    if part.shape == frames.shape and tuple(size) == frames.shape[1:3]:
        return frames  # stays on disk
    parts = [resized(torch.from_numpy(np.array(part[i : i + 256])), size).numpy() for i in range(0, len(part), 256)]
    return np.concatenate(parts)


def _std(values: np.ndarray) -> np.ndarray:
    spread = values.std(0)
    return np.where(spread < LEAST_STD, 1.0, spread)


def tensor_on(array: np.ndarray, device: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
