"""The datasets of MultiNet v0.1, as far as its tables can be read."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from robotrials.errors import UnknownName
from robotrials.formats.space import ActionSpace, parse_action_type

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
