"""Thresholds from labelled episodes: chosen on some, reported on others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from robotrials.errors import InputError
from robotrials.measure.annotate.assess import Assessment, Matched, assess, match_marks, placement_times
from robotrials.measure.annotate.detector import DetectorOptions, ReleaseCandidate, detect_releases
from robotrials.measure.annotate.learned import LearnedClassifier, train_classifier
from robotrials.measure.annotate.telemetry import FloatArray, Telemetry
from robotrials.measure.annotate.verdict import JudgedRelease, ReleaseVerdict, RuleOptions, judge
from robotrials.measure.annotate.zone import Zones
from robotrials.record import Episode

# What is tried for each threshold, one after the other; the starting values are among them.
GRID: Mapping[str, tuple[float, ...]] = {
    'closed_band': (0.02, 0.05, 0.08, 0.12),
    'hold_s': (0.1, 0.3, 0.6, 1.0),
    'plateau_band': (0.015, 0.03, 0.06, 0.12),
    'plateau_s': (0.1, 0.2, 0.4),
    'edge_m': (0.0, 0.02, 0.04),
    'least_displacement_m': (0.02, 0.05, 0.1),
}
PASSES = 2
FOLDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that turns telemetry into marks."""

    detector: DetectorOptions = field(default_factory=DetectorOptions)
    rules: RuleOptions = field(default_factory=RuleOptions)
    classifier: LearnedClassifier | None = None

    def changed(self, name: str, value: float) -> Settings:
        if name in {f.name for f in dataclasses.fields(DetectorOptions)}:
            return dataclasses.replace(self, detector=dataclasses.replace(self.detector, **{name: value}))
        return dataclasses.replace(self, rules=dataclasses.replace(self.rules, **{name: value}))

    def apply(self, telemetry: Telemetry, zones: Zones) -> list[JudgedRelease]:
        """The judged candidates of an episode."""
        candidates = detect_releases(telemetry, zones, self.detector)
        if self.classifier is not None:
            return self.classifier.judge(candidates, self.rules)
        return judge(candidates, self.rules)


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """An episode whose placements are known, with its telemetry."""

    episode: Episode
    telemetry: Telemetry
    zones: Zones

    @property
    def truth_s(self) -> FloatArray:
        return placement_times(self.episode)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorCalibration:
    """Settings chosen on all episodes, and what such settings did on episodes they were not chosen on."""

    settings: Settings
    held_out: Assessment
    before: Assessment  # the settings that the search began with, on the same episodes


def success_marks(judged: Sequence[JudgedRelease]) -> list[float]:
    """The times at which something was placed, by these verdicts."""
    return [j.candidate.t_s for j in judged if j.verdict is ReleaseVerdict.SUCCESS]


def assess_settings(settings: Settings, labelled: Sequence[Labelled]) -> list[Matched]:
    """The marks of each episode by these settings against the known ones."""
    return [match_marks(e.truth_s, success_marks(settings.apply(e.telemetry, e.zones))) for e in labelled]


def calibrate(
    labelled: Sequence[Labelled], *, start: Settings | None = None, learn: bool = False
) -> DetectorCalibration:
    """Choose thresholds (or, with `learn`, train the classifier) by cross-validation over whole episodes."""
    begun = start or Settings()
    if len(labelled) < 2 * FOLDS:
        raise InputError(f'{len(labelled)} labelled episodes, wanted at least {2 * FOLDS}')
    matched: list[Matched] = []
    for fold in range(FOLDS):
        chosen = _choose([e for n, e in enumerate(labelled) if n % FOLDS != fold], begun, learn=learn)
        matched += assess_settings(chosen, [e for n, e in enumerate(labelled) if n % FOLDS == fold])
    return DetectorCalibration(
        settings=_choose(labelled, begun, learn=learn),
        held_out=assess(matched),
        before=assess(assess_settings(begun, labelled)),
    )


def _choose(labelled: Sequence[Labelled], begun: Settings, *, learn: bool) -> Settings:
    best, best_worth = begun, _worth(begun, labelled)
    for _ in range(PASSES):
        before = best_worth
        for name, values in GRID.items():
            for value in values:
                tried = best.changed(name, value)
                worth = _worth(tried, labelled)
                if worth > best_worth:
                    best, best_worth = tried, worth
        if best_worth == before:
            break
    return dataclasses.replace(best, classifier=_learn(best, labelled)) if learn else best


def _worth(settings: Settings, labelled: Sequence[Labelled]) -> tuple[float, float]:
    found = assess(assess_settings(settings, labelled))
    return found.f1, found.n_counts_agree


def _learn(settings: Settings, labelled: Sequence[Labelled]) -> LearnedClassifier:
    candidates: list[ReleaseCandidate] = []
    truths: list[bool] = []
    for each in labelled:
        found = detect_releases(each.telemetry, each.zones, settings.detector)
        candidates += found
        truths += is_placement(found, each.truth_s)
    return train_classifier(candidates, truths)


def is_placement(
    candidates: Sequence[ReleaseCandidate], truth_s: FloatArray, *, tolerance_s: float = 1.0
) -> list[bool]:
    """Whether each candidate is the moment of a known placement, at most one candidate per placement."""
    free = sorted(float(t) for t in truth_s)
    told = []
    for candidate in candidates:
        near = [t for t in free if abs(t - candidate.t_s) <= tolerance_s]
        told.append(bool(near))
        if near:
            free.remove(min(near, key=lambda t: abs(t - candidate.t_s)))
    return told
