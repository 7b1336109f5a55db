"""Runs inside the LeRobot environment: loads a checkpoint with its processors, and answers with chunks of actions."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

# What is in the checkpoint is not fetched first.
FROM_CHECKPOINT = {'pretrained_backbone_weights': None, 'load_vlm_weights': False}
CHUNKED = ('act', 'pi0', 'pi05', 'pi0_fast', 'smolvla', 'groot', 'xvla')


class LeRobotService:
    """One checkpoint. Every call takes one map and gives one."""

    def __init__(self) -> None:
        load_torchvision()
        self._policy: Any = None
        self._is_chunked = False

    def fetch(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A checkpoint's files from the Hub or its cache: the folder they lie in, or why they are missing."""
        from huggingface_hub import snapshot_download

        name, _, revision = asked['name'].partition('@')
        try:
            folder = snapshot_download(name, revision=revision or None, allow_patterns=['*.json', '*.safetensors'])
        except _unreachable() as error:
            return {'missing': _last_line(error)}
        return {'folder': str(folder)}

    def load(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Load the folder; what the checkpoint takes and gives, or what of the Hub it lacks."""
        config = _read_config(asked['folder'])
        config.device = asked['device']
        for name, value in asked['overrides'].items():
            if not hasattr(config, name):
                known = ', '.join(sorted(vars(config)))
                raise ValueError(f'overrides: {config.type} has no {name}; it has {known}')
            setattr(config, name, value)
        for name, value in FROM_CHECKPOINT.items():
            if hasattr(config, name):
                setattr(config, name, value)
        backbone = getattr(config, 'vlm_model_name', None)
        try:
            self._build(asked['folder'], config, backbone if 'vlm_model_name' in asked['overrides'] else None)
        except _unreachable() as error:
            if backbone is None:
                raise
            return {'missing': _last_line(error), 'name': backbone}
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

    def _build(self, folder: str, config: Any, backbone: str | None) -> None:
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        kind = get_policy_class(config.type)
        self._policy = kind.from_pretrained(folder, config=config, local_files_only=True)
        _check_whole(self._policy, kind, folder)
        self._policy.to(config.device).eval()
        overrides = {'device_processor': {'device': config.device}}
        if backbone is not None:  # the tokenizer is the backbone's
            overrides['tokenizer_processor'] = {'tokenizer_name': backbone}
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=folder, preprocessor_overrides=overrides
        )
        self._device = config.device

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
            values = actions.to('cpu', torch.float32).numpy()
        return {'actions': values, 'infer_ms': (time.perf_counter() - began_s) * 1000}

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


def _read_config(folder: str) -> Any:
    import lerobot.policies.factory  # noqa: F401 - it registers the kinds of policy
    from draccus.utils import DecodingError
    from lerobot.configs.policies import PreTrainedConfig

    try:
        return PreTrainedConfig.from_pretrained(folder, local_files_only=True)
    except DecodingError as error:
        raise ValueError(
            f'{folder}/config.json is not of LeRobot {_versions()["lerobot"]}, which runs here ({str(error)[:300]}); '
            'name the environment of the release that saved it, such as environment = "lerobot-0.6"'
        ) from error


def _check_whole(policy: Any, kind: Any, folder: str) -> None:
    """Refuse weights that the checkpoint lacks: LeRobot leaves them random, and says so in a log.

    Kinds that load in a way of their own rename weights, and are left to it.
    """
    from lerobot.policies.pretrained import PreTrainedPolicy
    from safetensors.torch import load_model

    if kind.from_pretrained.__func__ is not PreTrainedPolicy.from_pretrained.__func__:
        return
    missing, _ = load_model(policy, f'{folder}/model.safetensors', strict=False)
    if missing:
        some = ', '.join(sorted(missing)[:5])
        raise ValueError(
            f'model.safetensors lacks {len(missing)} weights of this policy, which would be random: {some}'
        )


def _unreachable() -> tuple[type[Exception], ...]:
    """What the Hub's client raises where a file is neither in its cache nor to be had."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    return (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError)


def _last_line(error: Exception) -> str:
    return f'{type(error).__name__}: {(str(error).strip().splitlines() or [""])[0][:200]}'


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


_DECLARED: list[Any] = []  # torch drops a library without a reference


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ('lerobot', 'torch', 'torchvision', 'numpy')}
