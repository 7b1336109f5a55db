"""Runs inside a LeRobot environment: makes tiny checkpoints of each kind with random weights, and tries them.

A check saves a checkpoint with LeRobot's own classes, lets LeRobot answer, loads it as our policy does, and compares:
an environment that lacks what a kind needs, or a release that loads it differently, fails here. As a program, ``KIND
FOLDER [N_STATE N_ACTION [CAMERA ...]]`` keeps the checkpoint and prints LeRobot's own answers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.policies.lerobot_worker import LeRobotService, load_torchvision

SIDE_PX = 64
N_STATE, N_ACTION, CAMERAS = 4, 3, ('top',)
CLOSE = 1e-5
SEED = 7


def check_act() -> None:
    _check('act')


def check_diffusion() -> None:
    _check('diffusion')


def check_smolvla() -> None:
    _check('smolvla')


def save_sample(
    kind: str, folder: Path, *, n_state: int = N_STATE, n_action: int = N_ACTION, cameras: Sequence[str] = CAMERAS
) -> Any:
    """Save a tiny checkpoint; the policy and its processors as they were saved."""
    load_torchvision()
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    torch.manual_seed(0)
    pictures = [f'observation.images.{camera}' for camera in cameras]
    settings: dict[str, Any] = {
        'input_features': {
            'observation.state': PolicyFeature(FeatureType.STATE, (n_state,)),
            **dict.fromkeys(pictures, PolicyFeature(FeatureType.VISUAL, (3, SIDE_PX, SIDE_PX))),
        },
        'output_features': {'action': PolicyFeature(FeatureType.ACTION, (n_action,))},
        'device': 'cpu',
    }
    if kind == 'smolvla':
        settings['vlm_model_name'] = str(_save_backbone(folder / 'backbone'))
    config = make_policy_config(kind, **settings, **SMALL[kind])
    policy = get_policy_class(kind)(config).eval()
    stats = {
        'observation.state': _statistics(n_state, 0.1, 2.0),
        'action': _statistics(n_action, 0.2, 0.02),
        **{key: {'mean': torch.full((3, 1, 1), 0.5), 'std': torch.full((3, 1, 1), 0.25)} for key in pictures},
    }
    before, after = make_pre_post_processors(config, dataset_stats=stats)
    for part in (policy, before, after):
        part.save_pretrained(folder)
    return policy, before, after


SMALL: dict[str, dict[str, Any]] = {
    'act': {
        'chunk_size': 8, 'n_action_steps': 8, 'dim_model': 32, 'n_heads': 2, 'dim_feedforward': 64,
        'n_encoder_layers': 1, 'n_vae_encoder_layers': 1, 'latent_dim': 8, 'pretrained_backbone_weights': None,
    },
    'diffusion': {
        'horizon': 8, 'n_action_steps': 4, 'n_obs_steps': 2, 'down_dims': (16, 32), 'n_groups': 4,
        'diffusion_step_embed_dim': 16, 'num_train_timesteps': 4, 'spatial_softmax_num_keypoints': 4,
        'pretrained_backbone_weights': None,
    },
    'smolvla': {
        'chunk_size': 8, 'n_action_steps': 8, 'max_state_dim': 16, 'max_action_dim': 16, 'num_vlm_layers': 2,
        'num_steps': 3, 'resize_imgs_with_padding': (SIDE_PX, SIDE_PX), 'load_vlm_weights': False,
    },
}  # fmt: skip


def seen_by_sample(n_state: int = N_STATE, cameras: Sequence[str] = CAMERAS) -> dict[str, Any]:
    """One observation, as a robot of LeRobot's gives it."""
    image = (np.arange(SIDE_PX * SIDE_PX * 3) % 251).astype(np.uint8).reshape(SIDE_PX, SIDE_PX, 3)
    pictures = {f'observation.images.{camera}': image for camera in cameras}
    return {'observation.state': np.linspace(0.0, 0.3, n_state, dtype=np.float32), **pictures}


def own_answers(policy: Any, before: Any, after: Any, *, seen: Mapping[str, Any], n: int = 8) -> list[list[float]]:
    """What LeRobot's own loop for robots answers, one step after the other."""
    import torch

    try:
        from lerobot.utils.control_utils import predict_action
    except ImportError:
        from lerobot.common.control_utils import predict_action  # where 0.6 has it
    torch.manual_seed(SEED)
    policy.reset()
    answers = []
    for _ in range(n):
        answer = predict_action(dict(seen), policy, torch.device('cpu'), before, after, False, task='go')
        answers.append(answer.reshape(-1).tolist())
    return answers


def _check(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = np.array(own_answers(*save_sample(kind, Path(folder)), seen=seen_by_sample()))
        service = LeRobotService()
        asked = {'folder': folder, 'device': 'cpu', 'mode': 'auto', 'overrides': {}}
        answer = service.load(asked)
        if 'missing' in answer:
            raise RuntimeError(f'{kind}: {answer["missing"]}')
        service.reset({'seed': SEED})
        n_asked = 1 if answer['mode'] == 'chunk' else len(expected)
        questions = [{**seen_by_sample(), 'task': 'go'}]
        given = np.concatenate([service.infer({'questions': questions})['actions'][0] for _ in range(n_asked)])
        if given.shape != expected.shape or np.abs(given - expected).max() > CLOSE:
            raise RuntimeError(f'{kind}: loaded again, it answers {given[0]}, and LeRobot itself {expected[0]}')


def _statistics(n: int, mean: float, std: float) -> dict[str, Any]:
    import torch

    low, high = torch.full((n,), mean - 2 * std), torch.full((n,), mean + 2 * std)
    return {'mean': torch.full((n,), mean), 'std': torch.full((n,), std), 'min': low, 'max': high}


def _save_backbone(folder: Path) -> Path:
    """A vision-language model of half a million numbers, with a tokenizer of single characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
    from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig
    from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

    extra = {'fake_image_token': '<fake>', 'image_token': '<image>', 'global_image_token': '<global>'}
    special = ['<unk>', '<pad>', '<end_of_utterance>', *extra.values()]
    words = {word: i for i, word in enumerate([*special, *map(chr, range(32, 127)), '\n'])}
    spelled = Tokenizer(models.WordLevel(words, unk_token='<unk>'))
    spelled.pre_tokenizer = pre_tokenizers.Split('', 'isolated')
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=spelled, unk_token='<unk>', pad_token='<pad>', eos_token='<end_of_utterance>',
        extra_special_tokens=extra, model_max_length=512,
    )  # fmt: skip
    text = {
        'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2,
        'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'vocab_size': 300, 'pad_token_id': 1,
    }  # fmt: skip
    vision = SmolVLMVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE_PX,
        patch_size=16,
    )  # fmt: skip
    config = SmolVLMConfig(
        text_config=text, vision_config=vision.to_dict(), scale_factor=2, image_token_id=words['<image>'],
        pad_token_id=1,
    )  # fmt: skip
    size = {'longest_edge': SIDE_PX}
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size=size, max_image_size=size), tokenizer, SmolVLMVideoProcessor(size=size)
    )
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


if __name__ == '__main__':
    kind, folder, *rest = sys.argv[1:]
    n_state, n_action = map(int, rest[:2] or (N_STATE, N_ACTION))
    cameras = rest[2:] or CAMERAS
    made = save_sample(kind, Path(folder), n_state=n_state, n_action=n_action, cameras=cameras)
    print(json.dumps(own_answers(*made, seen=seen_by_sample(n_state, cameras))))
