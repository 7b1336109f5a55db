"""Runs inside the probe's environment: trains in bounded calls, and answers with chunks of actions.

What a step draws (its batch, its augmentation) hangs on the seed and the step's number, not on the calls before: a
training that was stopped and resumed gives the same bits as one that was not, on one machine with as many threads.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from robotrials.policies.probe.demonstration import read_demonstrations
from robotrials.policies.probe.network import (
    Augmentation,
    PerTaskNetwork,
    ProbeNetwork,
    TrainingData,
    count_parameters,
    cropped,
    resized,
    tensor_on,
)
from robotrials.record.folder import put_durably

STATE = 'state.pt'
SAVE_S = 60.0
WARM_UP = 0.03
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
        h = torch.arange(1, options['chunk_length'] + 1, device=self._device).sqrt().view(1, -1, 1)
        self._reach = h  # how far steps that know nothing of each other would add up to
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
        """Updates for about this many seconds, or until the last step."""
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
        of, sizes, crops = self._statistics, self._card['sizes'], self._options['crops']
        images = {
            camera: resized(torch.from_numpy(np.array(cropped(frame[None], crops.get(camera)))), size).to(self._device)
            for camera, frame in asked['images'].items()
            for size in [sizes['image_size'][camera]]
        }
        state = (np.asarray(asked['state'], np.float32) - of['state_mean']) / of['state_std']
        with torch.inference_mode():
            task = tensor_on(np.array([asked['task']]), self._device)
            chunk = self._model(images, tensor_on(state[None], self._device), task)
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
        loss = self._loss(rows, self._data.draw_told(rows, rng), change)
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

    def _loss(self, rows: np.ndarray, task_rows: np.ndarray, change: Any = None) -> torch.Tensor:
        images, state, task, target = self._data.batch(rows, task_rows, self._device)
        answer = self._model(images, state, task, change)
        loss = functional.l1_loss(answer, target)
        moves = self._data.n_moves
        if not moves:
            return loss
        # Where the arm gets to, besides how it moves at each step: small errors of one sign would add up.
        way = (answer - target)[..., :moves].cumsum(1) / self._reach
        return loss + way.abs().mean()

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
            total = sum(float(self._loss(part, part)) * len(part) for part in parts)
        self._model.load_state_dict(now)
        return total / len(rows)

    def _keep(self) -> None:
        """Write the averaged weights as a checkpoint; the folder appears whole."""
        from safetensors.torch import save_file

        folder = self._folder / f'step-{self._step:06d}'
        _, training, validation = self._curve[-1]
        losses = {'training_loss': training, 'validation_loss': validation if math.isfinite(validation) else None}
        card = self._card | {'step': self._step, 'parameters': parameters(self._model), **losses}
        with put_durably(folder) as draft:
            draft.mkdir()
            save_file({name: value.contiguous() for name, value in self._average.items()}, draft / 'model.safetensors')
            (draft / 'probe.json').write_text(json.dumps(card, indent=1), encoding='utf-8')
            shutil.rmtree(folder, ignore_errors=True)

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
        with put_durably(self._folder / STATE) as draft:
            torch.save(held, draft)
        self._saved_s = time.monotonic()

    def _restore(self) -> None:
        held = torch.load(self._folder / STATE, map_location=self._device, weights_only=True)
        self._model.load_state_dict(held['model'])
        self._average = held['average']
        self._optimizer.load_state_dict(held['optimizer'])
        self._step, self._seconds, self._cpu_seconds = held['step'], held['seconds'], held['cpu_seconds']
        self._curve, self._recent = held['curve'], held['recent']


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


def _set_up(threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
