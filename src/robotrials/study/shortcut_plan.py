"""What a shortcut diagnosis is declared by: a host, its demonstrations, a probe, an evaluation, reported scores."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.declaration import read_table
from robotrials.errors import InputError, UnknownName
from robotrials.run.plan import HostEntry
from robotrials.study.evaluate import EvaluationOptions
from robotrials.verdict.audit.shortcut import REMOVED

MOST_BYTES = 4 << 20
MOST_EPISODES = 1_000_000  # of each task, as in a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertOptions:
    """Who demonstrates, on the same host, when there are no demonstrations yet.

    `host` are options of the host for the expert alone, such as a privileged state that the probe never sees.
    """

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    episodes_per_task: int = 50
    seed: int = 1
    time_cap_s: float = 60.0
    condition: str = 'nominal'
    task_key: str = 'task'  # or 'instruction': a task number for every wording
    padding_steps: int = 0  # held still after the success
    noise: tuple[float, ...] | float = 0.0  # pushes the executed action aside; the expert's own action is recorded

    def __post_init__(self) -> None:
        if self.episodes_per_task < 1:
            raise InputError(f'episodes_per_task is {self.episodes_per_task}, wanted >= 1')
        if self.episodes_per_task > MOST_EPISODES:
            raise InputError(f'episodes_per_task is {self.episodes_per_task}, wanted at most {MOST_EPISODES}')
        if not self.time_cap_s > 0:
            raise InputError(f'time_cap_s is {self.time_cap_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Training settings to try in every combination; a list that is empty leaves [probe] as it is.

    The full probe is trained with each, and the one with the smallest validation loss at its last step is evaluated.
    Variants are trained with its settings.
    """

    learning_rates: tuple[float, ...] = ()
    augmentations: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        lists = dataclasses.asdict(self)
        for name, values in lists.items():
            if len(set(values)) < len(values):
                raise InputError(f'[sweep] {name} is {list(values)}, wanted each value once')
        if all(len(values) < 2 for values in lists.values()):
            raise InputError(
                '[sweep] has one setting, wanted several to choose among; say a single one in [probe] instead'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutPlan:
    """A declared diagnosis. Either `demonstrations` names a folder or files, or `expert` makes them."""

    host: HostEntry
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    probe: Mapping[str, Any] = field(default_factory=dict)  # fields of ProbeOptions
    sweep: SweepOptions | None = None
    expert: ExpertOptions | None = None
    demonstrations: tuple[str, ...] = ()
    variants: tuple[str, ...] = ('blind', 'proprioception', 'shuffled')
    reported: str = ''  # a CSV of reported scores
    protocol: str = ''  # which of its protocols; the host's own benchmark unless given
    margin: float = 0.05
    seed: int = 0  # of resampling
    title: str = ''

    def __post_init__(self) -> None:
        if bool(self.demonstrations) == (self.expert is not None):
            raise InputError('wanted either demonstrations = [...] or an [expert], found both or neither')
        for name in self.variants:
            if name not in REMOVED:
                raise UnknownName('variant of the probe', name, REMOVED)
        if len(set(self.variants)) != len(self.variants):
            raise InputError(f'variants are {list(self.variants)}, wanted each once')
        if not 0 < self.margin < 1:
            raise InputError(f'margin is {self.margin}, wanted a share of the full score between 0 and 1')
        for name, seed in (('seed', self.seed), ('[expert] seed', self.expert.seed if self.expert else 0)):
            if seed < 0:
                raise InputError(f'{name} is {seed}, wanted >= 0')
        if self.expert is not None and self.expert.seed == self.evaluation.seed:
            raise InputError(
                f'expert and evaluation both have seed {self.expert.seed}: the probe would be tested on the starts it '
                'was shown; give them different seeds'
            )

    def as_json(self) -> str:
        """All of it, defaults filled in, as canonical JSON; what a work folder is held to."""
        values = dataclasses.asdict(self)
        for name in ('reported', 'protocol', 'margin', 'seed', 'title'):
            del values[name]  # change nothing that was trained or run, only how it is read
        if self.sweep is None:
            del values['sweep']
        return json.dumps(values, sort_keys=True, indent=1, allow_nan=False) + '\n'


def read_shortcut_plan(path: Path | str) -> ShortcutPlan:
    """The plan in a TOML file; paths in it are relative to the file."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f'{file}: {file.stat().st_size} bytes, wanted a plan of at most {MOST_BYTES}')
        values = tomllib.loads(file.read_text(encoding='utf-8'))
    except OSError as error:
        raise InputError(f'{file}: cannot be read ({error.strerror}); wanted a TOML file with [host]') from error
    except ValueError as error:
        raise InputError(f'{file}: not TOML ({error})') from error
    if isinstance(values.get('demonstrations'), str):
        values['demonstrations'] = [values['demonstrations']]
    plan = read_table(ShortcutPlan, values, where=str(file))
    base = file.resolve().parent
    return dataclasses.replace(
        plan,
        demonstrations=tuple(str(base / given) for given in plan.demonstrations),
        reported=str(base / plan.reported) if plan.reported else '',
    )
