"""The probe's network. Imported inside the environment, where torch is.

Pictures come as bytes (B, H, W, 3) of each camera; the answer is a chunk (B, h, A) in units of the normalised actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from robotrials.policies.probe.demonstration import Demonstrations
from robotrials.policies.probe.option import TextEmbedding

DINOV2 = {'dinov2-s14': 'vit_small_patch14_dinov2.lvd142m', 'dinov2-b14': 'vit_base_patch14_dinov2.lvd142m'}
IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class SpatialSoftmax(nn.Module):
    """Where each channel looks: the mean place (x, y in -1..1) under its softmax (Levine et al. 2016), and its peak.

    Maps are brought to mean 0 and variance 1 first: flat ones would all point to the middle, and teach nothing.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.full((channels, 1), 0.5))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        b, c, h, w = maps.shape
        flat = maps.flatten(2)
        flat = (flat - flat.mean(2, keepdim=True)) / (flat.std(2, keepdim=True) + 1e-3)
        weights = torch.softmax(flat * self.log_temperature.exp(), dim=2).view(b, c, h, w)
        xs = torch.linspace(-1, 1, w, device=maps.device)
        ys = torch.linspace(-1, 1, h, device=maps.device)
        x, y = (weights.sum(2) * xs).sum(2), (weights.sum(3) * ys).sum(2)
        return torch.cat([2 * x, 2 * y, flat.amax(2) / 4], dim=1)


class ConvEncoder(nn.Module):
    """Three convolutions at half and a quarter of the picture's resolution, and a spatial softmax.

    The task's vector scales and shifts the channels before the last one (FiLM, Perez et al. 2018): what to look for is
    decided where things are looked for. It begins without effect.
    """

    def __init__(self, channels: Sequence[int], task_width: int) -> None:
        super().__init__()
        a, b, c = channels
        self.first = nn.Conv2d(3, a, 5, stride=2, padding=2)
        self.second = nn.Conv2d(a, b, 3, stride=2, padding=1)
        self.third = nn.Conv2d(b, c, 3, padding=1)
        self.where = SpatialSoftmax(c)
        self.width = 3 * c
        self.task = nn.Linear(task_width, 2 * b) if task_width else None
        if self.task is not None:
            nn.init.zeros_(self.task.weight)
            nn.init.zeros_(self.task.bias)

    def forward(self, pictures: torch.Tensor, task: torch.Tensor | None = None) -> torch.Tensor:
        seen = functional.relu(self.second(functional.relu(self.first(pictures))))
        if self.task is not None:
            scale, shift = self.task(task)[:, :, None, None].chunk(2, dim=1)
            seen = functional.relu(seen * (1 + scale) + shift)
        return self.where(self.third(seen))


class DinoEncoder(nn.Module):
    """DINOv2 through timm, shared by the cameras: the class token. It looks the same way whatever the task."""

    def __init__(self, name: str, image_size: tuple[int, int]) -> None:
        super().__init__()
        from robotrials.policies.lerobot_worker import load_torchvision

        load_torchvision()  # which timm imports
        import timm

        sides = tuple(max(14, round(side / 14) * 14) for side in image_size)
        self.sides = sides
        self.model = timm.create_model(DINOV2[name], pretrained=False, num_classes=0, img_size=sides)
        self.width = int(self.model.num_features)

    def load_weights(self, path: str) -> None:
        """Weights from a local file, the place embeddings resampled to this picture's size."""
        if path.endswith('.safetensors'):
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location='cpu', weights_only=True)
        from timm.models.vision_transformer import checkpoint_filter_fn

        missing, unknown = self.model.load_state_dict(checkpoint_filter_fn(state, self.model), strict=False)
        if missing or [name for name in unknown if not name.startswith('head')]:
            raise ValueError(
                f'{path} does not fit {type(self.model).__name__}: missing {missing[:3]}, unknown {unknown[:3]}'
            )

    def forward(self, pictures: torch.Tensor, task: torch.Tensor | None = None) -> torch.Tensor:
        if tuple(pictures.shape[-2:]) != self.sides:
            pictures = functional.interpolate(pictures, self.sides, mode='bicubic', antialias=True, align_corners=False)
        return self.model(pictures)


class ProbeNetwork(nn.Module):
    """Encoders, the state, the task; one MLP; a chunk. `sizes` has what the data decide."""

    def __init__(self, options: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.cameras = tuple(sizes['cameras']) if options['uses_images'] else ()
        self.uses_state, self.task_input = options['uses_state'], options['task_input']
        self.chunk, self.n_actions = options['chunk_length'], sizes['action']
        width = sizes['state'] if self.uses_state else 0
        task_width = options['task_width'] if self.task_input != 'none' else 0
        self.encoders = nn.ModuleDict()
        if self.cameras and options['encoder'] != 'conv':
            self.encoders['shared'] = DinoEncoder(options['encoder'], tuple(sizes['image_size'][self.cameras[0]]))
        for camera in self.cameras if options['encoder'] == 'conv' else ():
            self.encoders[_key(camera)] = ConvEncoder(options['channels'], task_width)
        width += sum(self._encoder(camera).width for camera in self.cameras)
        if self.task_input == 'id':
            self.task = nn.Embedding(sizes['tasks'], options['task_width'])
        elif self.task_input == 'text':
            self.task = nn.Linear(sizes['text'], options['task_width'])
        width += task_width
        layers: list[nn.Module] = []
        for hidden in options['hidden']:
            layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU()]
            width = hidden
        self.head = nn.Sequential(*layers, nn.Linear(width, self.chunk * self.n_actions))
        self.register_buffer('mean', torch.tensor(IMAGE_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer('std', torch.tensor(IMAGE_STD).view(1, 3, 1, 1), persistent=False)

    def _encoder(self, camera: str) -> Any:
        return self.encoders['shared' if 'shared' in self.encoders else _key(camera)]

    def forward(
        self, images: Mapping[str, torch.Tensor], state: torch.Tensor, task: torch.Tensor, change: Any = None
    ) -> torch.Tensor:
        parts = []
        task_code = self.task(task) if self.task_input != 'none' else None
        for camera in self.cameras:
            pictures = images[camera].permute(0, 3, 1, 2).float() / 255
            if change is not None:
                pictures = change(pictures)
            parts.append(self._encoder(camera)((pictures - self.mean) / self.std, task_code))
        if self.uses_state:
            parts.append(state)
        if task_code is not None:
            parts.append(task_code)
        return self.head(torch.cat(parts, dim=1)).view(len(state), self.chunk, self.n_actions)


class PerTaskNetwork(nn.Module):
    """One network for each task, none of which is told its task."""

    def __init__(self, options: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        super().__init__()
        own = {**options, 'task_input': 'none'}
        self.models = nn.ModuleList([ProbeNetwork(own, sizes) for _ in range(sizes['tasks'])])
        self.shape = (options['chunk_length'], sizes['action'])

    def forward(
        self, images: Mapping[str, torch.Tensor], state: torch.Tensor, task: torch.Tensor, change: Any = None
    ) -> torch.Tensor:
        answers = state.new_empty((len(state), *self.shape))
        for number, model in enumerate(self.models):
            rows = (task == number).nonzero()[:, 0]
            if len(rows):
                own = {camera: frames[rows] for camera, frames in images.items()}
                answers[rows] = model(own, state[rows], task[rows], change)
        return answers


class Augmentation:
    """Random shifts and changes of brightness and contrast, one draw per picture, from a generator of its own."""

    def __init__(self, strength: float, rng: np.random.Generator) -> None:
        self._strength, self._rng = strength, rng

    def __call__(self, pictures: torch.Tensor) -> torch.Tensor:
        """Pictures (B, 3, H, W) in 0..1. Shifts are by whole pixels: others would blur what is to be located."""
        b, _, h, w = pictures.shape
        rows, columns = (self._places(b, side).to(pictures.device) for side in (h, w))
        moved = pictures.gather(2, rows[:, None, :, None].expand(pictures.shape))
        moved = moved.gather(3, columns[:, None, None, :].expand(pictures.shape))
        gain, bias = (self._factor(b).to(pictures.device) for _ in range(2))
        return ((moved - 0.5) * (1 + gain) + 0.5 + bias).clamp(0, 1)

    def _places(self, n: int, side: int) -> torch.Tensor:
        """Where each row of n shifted pictures comes from (n, side); past the edge the last one is repeated."""
        most = round(self._strength * side / 16)
        shifts = self._rng.integers(-most, most, size=(n, 1), endpoint=True)
        return torch.from_numpy(np.clip(np.arange(side) + shifts, 0, side - 1))

    def _factor(self, n: int) -> torch.Tensor:
        return torch.from_numpy((0.1 * self._strength * self._rng.uniform(-1, 1, (n, 1, 1, 1))).astype(np.float32))


def _key(camera: str) -> str:
    """A camera's name as a module's, which may hold no dot."""
    return camera.replace('.', '|')


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# Demonstrations as batches of tensors. Imported inside the environment, where torch is.

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

    def batch(self, rows: np.ndarray, task_rows: np.ndarray, device: str) -> tuple[dict[str, Any], Any, Any, Any]:
        """Pictures, state, task and chunks of these rows; `task_rows` has the rows that the task is taken from."""
        images = {camera: tensor_on(np.ascontiguousarray(f[rows]), device) for camera, f in self._images.items()}
        arrays = (self._state[rows], self._told[task_rows], self._chunks[rows])
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
