"""Runs inside the LeRobot environment: loads a checkpoint with its processors, and answers with chunks of actions."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

CHUNKED = ('act', 'pi0', 'pi05', 'pi0_fast', 'smolvla', 'groot', 'xvla')


class LeRobotService:
    """One checkpoint. Every call takes one map and gives one."""

    def __init__(self) -> None:
        load_torchvision()
        self._policy: Any = None
        self._is_chunked = False

    def load(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Load the folder; what the checkpoint takes and gives."""
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        folder, device = asked['folder'], asked['device']
        config = PreTrainedConfig.from_pretrained(folder, local_files_only=True)
        config.device = device
        if hasattr(config, 'pretrained_backbone_weights'):
            config.pretrained_backbone_weights = None  # they are in the checkpoint; nothing is downloaded
        self._policy = get_policy_class(config.type).from_pretrained(folder, config=config, local_files_only=True)
        self._policy.to(device).eval()
        overrides = {'device_processor': {'device': device}}
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=folder, preprocessor_overrides=overrides
        )
        self._device = device
        mode = asked['mode']
        self._is_chunked = mode == 'chunk' or (mode == 'auto' and config.type in CHUNKED)
        self._inputs = {key: list(feature.shape) for key, feature in config.input_features.items()}
        steps = getattr(config, 'chunk_size', None) or getattr(config, 'horizon', None) or 1
        return {
            'type': config.type,
            'inputs': self._inputs,
            'action_width': int(config.output_features['action'].shape[0]),
            'steps': int(steps) if self._is_chunked else 1,
            'mode': 'chunk' if self._is_chunked else 'step',
            'versions': _versions(),
        }

    def reset(self, asked: Mapping[str, Any]) -> None:
        """A new episode: queues empty, generators at the seed."""
        import torch

        torch.manual_seed(asked['seed'])
        self._policy.reset()
        for pipeline in (self._before, self._after):
            if hasattr(pipeline, 'reset'):
                pipeline.reset()

    def infer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Actions (batch, steps, numbers) in the robot's units."""
        import torch

        began_s = time.perf_counter()
        with torch.inference_mode():
            batch = self._before(self._batch(asked['questions']))
            if self._is_chunked:
                chunk = self._policy.predict_action_chunk(batch)
            else:
                chunk = self._policy.select_action(batch)[:, None]
            n, steps, width = chunk.shape
            actions = self._after(chunk.reshape(n * steps, width)).reshape(n, steps, width)
            found = actions.to('cpu', torch.float32).numpy()
        return {'actions': found, 'infer_ms': (time.perf_counter() - began_s) * 1000}

    def _batch(self, questions: list[Mapping[str, Any]]) -> dict[str, Any]:
        """As lerobot's own prepare_observation_for_inference: pictures channel first in 0..1, a batch axis, a task."""
        import torch

        batch: dict[str, Any] = {}
        for key in self._inputs:
            values = np.stack([question[key] for question in questions])
            tensor = torch.from_numpy(np.array(values))
            if values.ndim == 4:
                tensor = (tensor.type(torch.float32) / 255).permute(0, 3, 1, 2).contiguous()
            batch[key] = tensor.to(self._device)
        batch['task'] = [str(question.get('task', '')) for question in questions]
        batch['robot_type'] = ''
        return batch


def load_torchvision() -> None:
    """Import torchvision, also where its compiled operators do not fit the torch that is there (a CPU build).

    It registers shapes for operators that such a build lacks, and fails; policies use none of them, so each missing one
    is declared by name, and fails only if it is called.
    """
    import torch

    for _ in range(20):
        try:
            import torchvision  # noqa: F401
        except RuntimeError as error:
            missing = re.search(r'operator torchvision::(\w+) does not exist', str(error))
            if missing is None:
                raise
            library = torch.library.Library('torchvision', 'FRAGMENT')
            library.define(f'{missing[1]}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
            _DECLARED.append(library)
            for name in [name for name in sys.modules if name.partition('.')[0] == 'torchvision']:
                del sys.modules[name]
        else:
            return
    raise RuntimeError('torchvision lacks more operators than can be declared')


_DECLARED: list[Any] = []  # torch forgets a library that nobody holds


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ('lerobot', 'torch', 'torchvision', 'numpy')}
