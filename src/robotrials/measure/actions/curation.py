"""Which datasets to keep: MultiNet's rule of section 3.1.1, with a reason for every decision."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import TEST_SPLITS
from robotrials.formats.space import ActionSpace, parse_action_type

QUALITY_EXCLUSIONS: Mapping[str, str] = {
    'austin_buds_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
    'austin_sailor_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
    'stanford_kuka_multimodal_dataset_converted_externally_to_rlds': 'quality and accessibility (section 3.1.1)',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDescription:
    """The features that the rule compares, the robot first; `splits` decides whether it applies at all."""

    name: str
    robot: str
    morphology: str
    gripper: str
    action_space: str
    rgb_cameras: int
    depth_cameras: int
    wrist_cameras: int
    has_language: bool
    has_calibration: bool
    has_proprioception: bool
    episodes: int
    splits: tuple[str, ...] = ('train',)

    @property
    def is_train_only(self) -> bool:
        return not set(self.splits) & set(TEST_SPLITS)

    @property
    def profile(self) -> tuple[object, ...]:
        """Everything that must be identical for two datasets to be redundant."""
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in UNCOMPARED)


UNCOMPARED = frozenset({'name', 'episodes', 'splits'})


@dataclass(frozen=True, slots=True)
class CurationDecision:
    name: str
    is_kept: bool
    reason: str


def curate(
    descriptions: Sequence[DatasetDescription], *, excluded: Mapping[str, str] = QUALITY_EXCLUSIONS
) -> list[CurationDecision]:
    """Quality exclusions first; then, of train-only datasets with one robot and one profile, the largest stays.

    Equal sizes keep the first name in the alphabet. Datasets with an evaluation split of their own always stay.
    """
    names = [d.name for d in descriptions]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f'{twice[0]} is described more than once')
    largest: dict[tuple[object, ...], DatasetDescription] = {}
    for d in sorted(descriptions, key=lambda d: (-d.episodes, d.name)):
        if d.name not in excluded and d.is_train_only:
            largest.setdefault(d.profile, d)
    return [_decide(d, excluded, largest) for d in descriptions]


def _decide(
    d: DatasetDescription, excluded: Mapping[str, str], largest: Mapping[tuple[object, ...], DatasetDescription]
) -> CurationDecision:
    if d.name in excluded:
        return CurationDecision(d.name, False, f'excluded: {excluded[d.name]}')
    if not d.is_train_only:
        own = ', '.join(s for s in d.splits if s in TEST_SPLITS)
        return CurationDecision(d.name, True, f'has its own evaluation split ({own}); the rule does not apply')
    kept = largest[d.profile]
    if kept is d:
        return CurationDecision(d.name, True, f'the only or largest dataset of its profile on {d.robot}')
    relation = f'{kept.episodes} episodes against {d.episodes}'
    return CurationDecision(
        d.name, False, f'same robot ({d.robot}) and same profile as {kept.name}, which has {relation}'
    )


def read_descriptions(path: Path | str) -> list[DatasetDescription]:
    """Descriptions from a JSON list of objects with the fields of DatasetDescription."""
    target = Path(path)
    try:
        rows = json.loads(target.read_text(encoding='utf-8'))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f'{target}: not readable as JSON ({error})') from error
    if not isinstance(rows, list):
        raise InputError(f'{target}: wanted a list of descriptions, found {type(rows).__name__}')
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(DatasetDescription(**{**row, 'splits': tuple(row.get('splits', ('train',)))}))
        except (TypeError, AttributeError) as error:
            raise InputError(f'{target}: description {number}: {error}') from error
    return found


# The datasets of MultiNet v0.1, as far as its tables can be read.

MODELS = ('GPT', 'OpenVLA', 'JAT')


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDataset:
    """One row of Tables 1 and 3; results of Tables 2 and 4 by model where it has them. Unreadable cells are None."""

    name: str
    title: str
    covered_by: frozenset[str]
    coverage_unknown: frozenset[str] = frozenset()
    action_type: str | None  # '' where the table prints a dash
    in_pretraining: bool | None = None
    note: str = ''
    amse: Mapping[str, float] = field(default_factory=dict)
    namse: Mapping[str, float] = field(default_factory=dict)
    completion_percent: Mapping[str, float] = field(default_factory=dict)

    @property
    def space(self) -> ActionSpace | None:
        """The make-up of the action space, where the table says it; its order is not told."""
        return parse_action_type(self.action_type) if self.action_type else None

    def is_covered_by(self, model: str) -> bool | None:
        """Whether a model was profiled on it; None where the mark is unreadable."""
        if model not in MODELS:
            raise UnknownName('model of the paper', model, MODELS)
        return None if model in self.coverage_unknown else model in self.covered_by


@functools.cache
def load_datasets() -> Mapping[str, RegisteredDataset]:
    """Every dataset of the paper by its registered name."""
    text = resources.files('robotrials.measure.actions').joinpath('data/multinet.toml').read_text(encoding='utf-8')
    return {name: _dataset(name, row) for name, row in tomllib.loads(text).items()}


def find_dataset(name: str) -> RegisteredDataset:
    known = load_datasets()
    if name not in known:
        raise UnknownName('dataset', name, known)
    return known[name]


def _dataset(name: str, row: dict[str, object]) -> RegisteredDataset:
    values = dict(row)
    values['title'] = values.pop('short_title', values['title'])
    values['covered_by'] = frozenset(values['covered_by'])  # type: ignore[call-overload]
    values['coverage_unknown'] = frozenset(values.get('coverage_unknown', ()))  # type: ignore[call-overload]
    if values.pop('action_type_unknown', False):
        values['action_type'] = None
    return RegisteredDataset(name=name, **values)  # type: ignore[arg-type]
