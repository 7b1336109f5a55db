"""The probe: an image encoder and a small MLP, trained on demonstrations, that is told its task by a number.

It has no language encoder, no robot pretraining, no diffusion and no tokenizer: what it reaches on a benchmark, the
benchmark grants without them. Names are found when asked for, because torch lives in an environment of its own and the
process there has numpy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.policies.probe.collect import *
    from robotrials.policies.probe.demonstration import *
    from robotrials.policies.probe.option import *
    from robotrials.policies.probe.policy import *
    from robotrials.policies.probe.source import *
    from robotrials.policies.probe.train import *

_PLACES = {
    '.collect': 'DemonstrationWriter collect_demonstrations',
    '.demonstration': 'Demonstrations EpisodeFacts read_demonstrations',
    '.option': 'ProbeOptions read_options variants',
    '.policy': 'ProbePolicy',
    '.source': 'demonstrations_from_hdf5 demonstrations_from_lerobot demonstrations_from_store',
    '.train': 'TrainedProbe read_trained sweep_probe train_probe',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
