"""What the numbers would be under other thresholds, same episodes, same registry, same success labels (Table 9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.safety.registry import Registry, load_registry
from robotrials.measure.safety.registry_file import Row, parse_rows, read_rows
from robotrials.measure.safety.result import EpisodeSafety
from robotrials.measure.safety.score import Scoring, active_specs, blank_score, measure, score_measured
from robotrials.measure.safety.spec import Spec, Tier
from robotrials.measure.safety.summary import mean_safety, summarize_safety
from robotrials.record import Episode, Trajectory
from robotrials.record.rows import Packed
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Another threshold for a scored family, with the severe anchor that goes with it (None for a hard stop)."""

    family: str
    threshold: float
    severe: float | None


@dataclass(frozen=True, slots=True)
class Variant:
    """A named set of changes, one row of a sensitivity table."""

    id: str
    title: str
    changes: tuple[Change, ...]


def load_variants(path: Path | str | None = None, *, registry: Registry | None = None) -> tuple[Variant, ...]:
    """The variants of a file; without one, those of Table 9.

    A change is { family, threshold, severe }, or { spec } to take another tier with its own anchor from the registry.
    """
    known = registry or load_registry()
    if path is not None:
        rows = read_rows(path, kinds={'variant'})
    else:
        text = (resources.files('robotrials.measure.safety') / 'data' / 'variants.toml').read_text(encoding='utf-8')
        rows = list(parse_rows(text, 'variants.toml', kinds={'variant'}))
    variants = tuple(_variant(row, known) for row in rows)
    for number, row in enumerate(rows):
        if variants[number].id in {v.id for v in variants[:number]}:
            raise row.error(f'duplicate variant id {variants[number].id!r}', key='id')
    return variants


def _variant(row: Row, registry: Registry) -> Variant:
    row.check_keys({'id', 'title', 'changes'}, {'id', 'changes'})
    changes = row.values['changes']
    if not isinstance(changes, list) or not changes:
        raise row.error('changes is empty, wanted a list of {family, threshold, severe} or {spec}', key='changes')
    made = tuple(_change(row, change, registry) for change in changes)
    return Variant(row.text('id'), row.text('title') or row.text('id'), made)


def _change(row: Row, change: object, registry: Registry) -> Change:
    if isinstance(change, dict) and change.keys() == {'spec'}:
        try:
            spec = registry.spec(str(change['spec']))
        except UnknownName as error:
            raise row.error(str(error), key='changes') from error
        return Change(spec.family, spec.threshold, spec.severe)
    if not isinstance(change, dict) or not {'family', 'threshold'} <= change.keys():
        raise row.error(f'change {change!r}: wanted family, threshold and severe, or spec', key='changes')
    unknown = change.keys() - {'family', 'threshold', 'severe'}
    if unknown:
        raise row.error(f'change of {change["family"]!r}: no field {sorted(unknown)[0]!r}', key='changes')
    for name in ('threshold', 'severe'):
        value = change.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise row.error(f'change of {change["family"]!r}: {name} is {value!r}, wanted a number', key='changes')
    severe = change.get('severe')
    return Change(str(change['family']), float(change['threshold']), None if severe is None else float(severe))


def apply_variant(registry: Registry, variant: Variant) -> Registry:
    """The registry with the safe specs of the changed families at their new thresholds."""
    changes = {change.family: change for change in variant.changes}
    families = {spec.family for spec in registry.specs if spec.tier is Tier.SAFE}
    for family in changes:
        if family not in families:
            raise UnknownName(f'scored family in variant {variant.id!r}', family, families)
    return registry.with_specs(
        _changed(spec, changes[spec.family]) if spec.tier is Tier.SAFE and spec.family in changes else spec
        for spec in registry.specs
    )


def _changed(spec: Spec, change: Change) -> Spec:
    if not spec.is_binary and change.severe is None:
        raise InputError(
            f'variant of {spec.family}: the threshold {change.threshold:g} {spec.unit} states no severe anchor'
        )
    renamed = f'{spec.family}@{change.threshold:g}{spec.unit}'
    return dataclasses.replace(spec.with_threshold(change.threshold, severe=change.severe), id=renamed, aliases=())


def score_variants(
    pairs: Iterable[tuple[Episode, Trajectory | None]], variants: Sequence[Variant], *, scoring: Scoring | None = None
) -> Mapping[str, Sequence[EpisodeSafety]]:
    """Scores of every variant, and of 'default', by variant id; signals are derived once per episode."""
    base = scoring or Scoring()
    rules = {'default': base}
    for variant in variants:
        rules[variant.id] = dataclasses.replace(base, registry=apply_variant(base.registry, variant))
    scores: dict[str, Packed[EpisodeSafety]] = {name: Packed() for name in rules}
    for episode, trajectory in pairs:
        if not episode.is_valid:
            continue
        blank = blank_score(episode, scoring=base)
        for name, score in _under_all(episode, trajectory, blank, rules).items():
            scores[name].append(score)
    return scores


def _under_all(
    episode: Episode, trajectory: Trajectory | None, blank: EpisodeSafety, rules: Mapping[str, Scoring]
) -> dict[str, EpisodeSafety]:
    """One episode under every rule; where it cannot be scored, the reason under each."""
    if trajectory is None:
        return dict.fromkeys(rules, dataclasses.replace(blank, reason='no trajectory was recorded'))
    try:
        measured = measure(episode, trajectory, scoring=rules['default'])
        specs = {name: active_specs(episode, measured.signals, scoring=rule) for name, rule in rules.items()}
    except InputError as error:
        return dict.fromkeys(rules, dataclasses.replace(blank, reason=str(error)))
    return {name: score_measured(blank, measured, specs=specs[name], scoring=rule) for name, rule in rules.items()}


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """Means over all main cells of a group of benchmarks, under one variant."""

    variant: str
    title: str
    group: str
    n_cells: int
    n_unscored: int
    safety: float
    sbu: float
    unsafe_given_success: float | None
    vsi: float


def sensitivity_rows(
    scores: Mapping[str, Sequence[EpisodeSafety]], variants: Sequence[Variant], *, registry: Registry
) -> tuple[SensitivityRow, ...]:
    """One row per variant and group of benchmarks, the default first; auxiliary cells stay out."""
    titles = {'default': 'Default', **{variant.id: variant.title for variant in variants}}
    rows = []
    for name, title in titles.items():
        # Means need no interval, so one resample is drawn and thrown away.
        summary = summarize_safety(scores[name], rng=np.random.default_rng(0), registry=registry, n_resamples=1)
        cells = [dataclasses.replace(cell, policy='') for cell in summary.cells]
        rows += [
            SensitivityRow(
                variant=name,
                title=title,
                group=mean.group,
                n_cells=len(mean.benchmarks),
                n_unscored=summary.n_unscored,
                safety=mean.safety,
                sbu=mean.sbu,
                unsafe_given_success=mean.unsafe_given_success,
                vsi=mean.vsi,
            )
            for mean in mean_safety(cells)
        ]
    return tuple(rows)


def with_body_frame_tilt(registry: Registry) -> Registry:
    """The tilt family scored by the full rotation since the start: the clause that the world-frame tilt replaced."""
    tilt = 'held_object_tilt_deg'
    return registry.with_specs(
        dataclasses.replace(spec, stl=spec.stl.replace(tilt, 'held_object_rotation_deg'))
        if spec.tier is Tier.SAFE
        else spec
        for spec in registry.specs
    )
