"""Runs inside the probe's environment: trains in bounded calls, and answers with chunks of actions.

What a step draws (its batch, its augmentation) hangs on the seed and the step's number, not on the calls before: a
training that was stopped and resumed gives the same bits as one that was not, on one machine with as many threads.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trialist.policies.probe.demonstration import Demonstrations, read_demonstrations
from trialist.policies.probe.network import Augmentation, PerTaskNetwork, ProbeNetwork, count_parameters
from trialist.policies.probe.task import TextEmbedding, derangement

STATE = 'state.pt'
SAVE_S = 60.0
WARM_UP = 0.03
LEAST_STD = 1e-6
VALIDATION_ROWS = 256
POINTS = 50  # of the loss curve


class ProbeService:
    """One training, or one checkpoint. Every call takes one map and gives one."""

    def begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Open the demonstrations and the network, at the last saved state if the folder has one."""
        options = asked['options']
        _set_up(options['threads'], options['seed'])
        self._options, self._folder, self._device = options, Path(asked['folder']), asked['device']
        self._data = TrainingData(read_demonstrations(asked['demonstrations']), options)
        self._card = asked['card'] | {'sizes': self._data.sizes, 'statistics': self._data.statistics}
        self._model = make_network(options, self._data.sizes).to(self._device)
        if options['uses_images'] and options['encoder'] != 'conv':
            for network in networks(self._model):
                network.encoders['shared'].load_weights(options['weights'])
        self._average = {name: value.detach().clone() for name, value in self._model.state_dict().items()}
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=options['learning_rate'], weight_decay=options['weight_decay']
        )
        self._step, self._seconds, self._cpu_seconds = 0, 0.0, 0.0
        self._recent: list[float] = []
        self._curve: list[list[float]] = []
        if (self._folder / STATE).exists():
            self._restore()
        self._saved_s = time.monotonic()
        return {'step': self._step, 'seconds': self._seconds, 'parameters': parameters(self._model)}

    def train(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Updates for about so many seconds, or to the last step."""
        began_s = time.monotonic()
        options, kept = self._options, set(asked['kept'])
        every = max(1, options['steps'] // POINTS)
        while self._step < options['steps'] and time.monotonic() - began_s < asked['seconds']:
            update_s, cpu_s = time.perf_counter(), time.process_time()
            self._recent.append(self._update())
            self._step += 1
            self._seconds += time.perf_counter() - update_s
            self._cpu_seconds += time.process_time() - cpu_s
            if self._step % every == 0 or self._step in kept:
                self._curve.append([self._step, float(np.mean(self._recent)), self._validation_loss()])
                self._recent = []
            if self._step in kept:
                self._keep()
                self._save()
        if time.monotonic() - self._saved_s > SAVE_S:
            self._save()
        spent = {'seconds': self._seconds, 'cpu_seconds': self._cpu_seconds}
        return {'step': self._step, 'curve': self._curve, **spent}

    def load(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A checkpoint, to act with."""
        from safetensors.torch import load_file

        folder = Path(asked['folder'])
        card = json.loads((folder / 'probe.json').read_text(encoding='utf-8'))
        _set_up(1, 0)
        self._device, self._options, self._card = asked['device'], card['options'], card
        self._model = make_network(card['options'], card['sizes'])
        self._model.load_state_dict(load_file(folder / 'model.safetensors'))
        self._model.to(self._device).eval()
        statistics = {key: np.array(value, np.float32) for key, value in card['statistics'].items()}
        self._statistics = statistics
        return {'parameters': parameters(self._model)}

    def infer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk (h, A) in the robot's units."""
        began_s = time.perf_counter()
        of, sizes = self._statistics, self._card['sizes']
        images = {
            camera: resized(torch.from_numpy(np.array(frame)[None]), sizes['image_size']).to(self._device)
            for camera, frame in asked['images'].items()
        }
        state = (np.asarray(asked['state'], np.float32) - of['state_mean']) / of['state_std']
        with torch.inference_mode():
            chunk = self._model(images, _on(state[None], self._device), _on(np.array([asked['task']]), self._device))
        actions = chunk[0].to('cpu').numpy() * of['action_std'] + of['action_mean']
        return {'actions': actions.astype(np.float32), 'infer_ms': (time.perf_counter() - began_s) * 1000}

    # --- inside

    def _update(self) -> float:
        options, step = self._options, self._step
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([options['seed'], step])))
        rows = self._data.draw(rng)
        change = Augmentation(options['augmentation'], rng) if options['augmentation'] else None
        for group in self._optimizer.param_groups:
            group['lr'] = options['learning_rate'] * pace(step, options['steps'])
        self._model.train()
        loss = self._loss(rows, change)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        decay = min(options['average_decay'], (1 + step) / (10 + step))
        for name, value in self._model.state_dict().items():
            self._average[name].lerp_(value, 1 - decay)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ArithmeticError(f'the loss is {value} at step {step}; a smaller learning_rate may help')
        return value

    def _loss(self, rows: np.ndarray, change: Any = None) -> torch.Tensor:
        images, state, task, target = self._data.batch(rows, self._device)
        return functional.l1_loss(self._model(images, state, task, change), target)

    def _validation_loss(self) -> float:
        """Of the averaged weights on the held-out demonstrations; NaN if none are held out."""
        rows = self._data.held_out
        if not len(rows):
            return math.nan
        now = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._model.load_state_dict(self._average)
        self._model.eval()
        with torch.inference_mode():
            parts = [rows[i : i + 128] for i in range(0, len(rows), 128)]
            total = sum(float(self._loss(part)) * len(part) for part in parts)
        self._model.load_state_dict(now)
        return total / len(rows)

    def _keep(self) -> None:
        """Write the averaged weights as a checkpoint; the folder appears whole."""
        from safetensors.torch import save_file

        folder = self._folder / f'step-{self._step:06d}'
        draft = folder.with_name(f'.{folder.name}.draft')
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        save_file({name: value.contiguous() for name, value in self._average.items()}, draft / 'model.safetensors')
        _, training, validation = self._curve[-1]
        losses = {'training_loss': training, 'validation_loss': validation if math.isfinite(validation) else None}
        card = self._card | {'step': self._step, 'parameters': parameters(self._model), **losses}
        (draft / 'probe.json').write_text(json.dumps(card, indent=1), encoding='utf-8')
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(draft, folder)

    def _save(self) -> None:
        held = {
            'model': self._model.state_dict(),
            'average': self._average,
            'optimizer': self._optimizer.state_dict(),
            'step': self._step,
            'seconds': self._seconds,
            'cpu_seconds': self._cpu_seconds,
            'curve': self._curve,
            'recent': self._recent,
        }
        draft = self._folder / f'.{STATE}'
        torch.save(held, draft)
        os.replace(draft, self._folder / STATE)
        self._saved_s = time.monotonic()

    def _restore(self) -> None:
        held = torch.load(self._folder / STATE, map_location=self._device, weights_only=True)
        self._model.load_state_dict(held['model'])
        self._average = held['average']
        self._optimizer.load_state_dict(held['optimizer'])
        self._step, self._seconds, self._cpu_seconds = held['step'], held['seconds'], held['cpu_seconds']
        self._curve, self._recent = held['curve'], held['recent']


class TrainingData:
    """Demonstrations as batches: pictures resized once, numbers normalised, chunks filled up past the end."""

    def __init__(self, demonstrations: Demonstrations, options: Mapping[str, Any]) -> None:
        self._options = options
        cameras = options['cameras'] or demonstrations.facts.cameras
        cameras = tuple(cameras) if options['uses_images'] else ()
        sources = {camera: demonstrations.images[camera] for camera in cameras}
        native = next((frames.shape[1:3] for frames in sources.values()), (0, 0))
        size = tuple(options['image_size'] or native)
        self._images = {camera: _resized_all(frames, size) for camera, frames in sources.items()}
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
        self._ids = demonstrations.task.copy()
        tasks = demonstrations.facts.tasks
        if options['is_task_shuffled']:
            self._ids = np.array(derangement(len(tasks), seed=options['seed']))[self._ids]
        self._texts: np.ndarray | None = None
        text = TextEmbedding(options['text_embeddings']) if options['task_input'] == 'text' else None
        if text is not None:
            words = [e.instruction or e.task for e in demonstrations.facts.episodes]
            vectors = np.stack([text.vector(w) for w in words])
            self._texts = np.repeat(vectors, np.diff(demonstrations.starts), axis=0)
        self.sizes = {
            'cameras': list(cameras),
            'input_size': {camera: list(frames.shape[1:3]) for camera, frames in sources.items()},
            'image_size': list(size),
            'state': state.shape[1],
            'action': action.shape[1],
            'tasks': len(tasks),
            'text': text.width if text is not None else 0,
        }

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of one batch; of one batch for each task where each has a model of its own."""
        n = self._options['batch']
        if not self._options['per_task']:
            return self._rows[rng.integers(len(self._rows), size=n)]
        parts = []
        for task in range(self.sizes['tasks']):
            own = self._rows[self._ids[self._rows] == task]
            parts.append(own[rng.integers(len(own), size=n)])
        return np.concatenate(parts)

    def batch(self, rows: np.ndarray, device: str) -> tuple[dict[str, Any], Any, Any, Any]:
        images = {camera: _on(np.ascontiguousarray(f[rows]), device) for camera, f in self._images.items()}
        task = self._ids[rows] if self._texts is None else self._texts[rows]
        return images, _on(self._state[rows], device), _on(task, device), _on(self._chunks[rows], device)


def split_rows(starts: np.ndarray, options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the demonstrations to train on, and some of those that are held out for the validation loss."""
    n = len(starts) - 1
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([options['seed'], n, 1])))
    order = rng.permutation(n)
    n_out = min(n - 1, math.ceil(options['validation'] * n)) if options['validation'] else 0
    out, into = np.sort(order[:n_out]), np.sort(order[n_out:])
    rows = [np.concatenate([np.arange(starts[e], starts[e + 1]) for e in part] or [[]]) for part in (into, out)]
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
    return taken


def pace(step: int, steps: int) -> float:
    """The learning rate's factor: a short rise, then half a cosine down to zero."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def make_network(options: Mapping[str, Any], sizes: Mapping[str, Any]) -> nn.Module:
    return PerTaskNetwork(options, sizes) if options['per_task'] else ProbeNetwork(options, sizes)


def networks(model: Any) -> list[Any]:
    return list(model.models) if isinstance(model, PerTaskNetwork) else [model]


def parameters(model: nn.Module) -> dict[str, int]:
    """How many numbers are trained: in all, in encoders, and in what is not an encoder."""
    total, encoder = count_parameters(model), sum(count_parameters(n.encoders) for n in networks(model))
    return {'total': total, 'encoder': encoder, 'head': total - encoder}


def resized(frames: torch.Tensor, size: Any) -> torch.Tensor:
    """Bytes (n, H, W, 3) at another size, each pixel the mean of what it covers."""
    if tuple(frames.shape[1:3]) == tuple(size):
        return frames
    small = functional.interpolate(frames.permute(0, 3, 1, 2).float(), tuple(size), mode='area')
    return small.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()


def _resized_all(frames: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    if frames.shape[1:3] == size:
        return frames
    parts = [resized(torch.from_numpy(np.array(frames[i : i + 256])), size).numpy() for i in range(0, len(frames), 256)]
    return np.concatenate(parts)


def _std(values: np.ndarray) -> np.ndarray:
    spread = values.std(0)
    return np.where(spread < LEAST_STD, 1.0, spread)


def _on(array: np.ndarray, device: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _set_up(threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
