"""A small ACT of LeRobot's own classes, fitted to demonstrations and saved: DEMONSTRATIONS.npz FOLDER.

The file has LeRobot's keys: one row for each demonstration's first observation (states (N, S) as float32, pictures (N,
H, W, 3) as bytes) and ``action`` (N, T, A), the T actions from there on, which are one chunk. Random features and a
last layer by least squares repeat them exactly (N * T below 256) and do something else elsewhere: some episodes succeed
and some fail, which is what a comparison of two evaluators wants.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

from robotrials.policies.lerobot_worker import load_torchvision

load_torchvision()
from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors  # noqa: E402

FILE, FOLDER = sys.argv[1:]
KINDS = {'observation.state': FeatureType.STATE, 'observation.environment_state': FeatureType.ENV}
SPREAD, SMALL = 3.0, {'dim_model': 256, 'n_heads': 8, 'dim_feedforward': 1024, 'n_encoder_layers': 1}

torch.manual_seed(0)
rows = dict(np.load(FILE))
actions = torch.from_numpy(rows.pop('action')).float()
inputs, batch, statistics = {}, {}, {}
for key, values in rows.items():
    tensor = torch.from_numpy(values).float()
    if key in KINDS:
        inputs[key] = PolicyFeature(KINDS[key], tensor.shape[1:])
        statistics[key] = {'mean': tensor.mean(0), 'std': tensor.std(0, unbiased=False) + 1.0}
    else:
        tensor = tensor.permute(0, 3, 1, 2).contiguous() / 255
        inputs[key] = PolicyFeature(FeatureType.VISUAL, tensor.shape[1:])
        statistics[key] = {'mean': torch.full((3, 1, 1), 0.5), 'std': torch.full((3, 1, 1), 0.25)}
    batch[key] = tensor
flat = actions.reshape(-1, actions.shape[-1])
statistics['action'] = {'mean': flat.mean(0), 'std': flat.std(0) + 1e-3}
config = make_policy_config(
    'act', input_features=inputs, output_features={'action': PolicyFeature(FeatureType.ACTION, actions.shape[2:])},
    device='cpu', chunk_size=actions.shape[1], n_action_steps=actions.shape[1], use_vae=False, dropout=0.0,
    pretrained_backbone_weights=None, **SMALL,
)  # fmt: skip
policy = get_policy_class('act')(config).eval()
before, after = make_pre_post_processors(config, dataset_stats=statistics)
ready = before({**batch, 'action': actions, 'task': [''] * len(actions)})
features = []
with torch.no_grad():
    policy.model.decoder_pos_embed.weight.mul_(SPREAD)  # the features of one step differ from those of the next
policy.model.action_head.register_forward_hook(lambda layer, given, answer: features.append(given[0]))
with torch.inference_mode():
    policy.predict_action_chunk(ready)
flat = features[0].reshape(-1, SMALL['dim_model']).double()
shift, wanted = flat.mean(0), ready['action'].reshape(len(flat), -1).double()
solved = torch.linalg.lstsq(flat - shift, wanted - wanted.mean(0), driver='gelsd', rcond=1e-5).solution
with torch.no_grad():
    policy.model.action_head.weight.copy_(solved.T)
    policy.model.action_head.bias.copy_(wanted.mean(0) - shift @ solved)
for part in (policy, before, after):
    part.save_pretrained(FOLDER)
with torch.inference_mode():
    error = (after(policy.predict_action_chunk(ready)) - actions).abs()
print('RESULT' + json.dumps({'largest_error': float(error.max())}))
