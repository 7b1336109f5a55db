"""Writes a data set and a checkpoint as robomimic does, with its own classes, into the folder of the first argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import numpy as np
import torch

from robotrials.worlds.simulator import RobomimicEnv

folder = Path(sys.argv[1])
env = RobomimicEnv(task='Lift')
own = env._own
declared = own.serialize()
with h5py.File(folder / 'lift.hdf5', 'w') as file:
    data = file.create_group('data')
    data.attrs['env_args'] = json.dumps(declared)
    for number in range(2):
        env.reset(seed=number)
        start = own.get_state()
        demo = data.create_group(f'demo_{number}')
        demo.attrs['model_file'] = start['model']
        demo.create_dataset('states', data=np.array([start['states']]))
torch.save({'env_metadata': declared, 'model': {'weight': torch.zeros(2)}, 'algo_name': 'bc'}, folder / 'lift.pth')
torch.save({'env_metadata': declared, 'harm': Path('x')}, folder / 'harmful.pth')  # a class to be built on reading
