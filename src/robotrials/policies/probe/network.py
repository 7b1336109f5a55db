"""The probe's network. Imported inside the environment, where torch is.

Pictures come as bytes (B, H, W, 3) of each camera; the answer is a chunk (B, h, A) in units of the normalised actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

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
        told = self.task(task) if self.task_input != 'none' else None
        for camera in self.cameras:
            pictures = images[camera].permute(0, 3, 1, 2).float() / 255
            if change is not None:
                pictures = change(pictures)
            parts.append(self._encoder(camera)((pictures - self.mean) / self.std, told))
        if self.uses_state:
            parts.append(state)
        if told is not None:
            parts.append(told)
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
