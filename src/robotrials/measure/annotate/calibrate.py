"""Thresholds from labelled episodes, chosen on some and reported on others; and how far two annotators agree."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable, RobotrialsError, UnknownName
from robotrials.measure.annotate.detector import (
    DetectorOptions,
    FloatArray,
    JudgedRelease,
    ReleaseCandidate,
    ReleaseKind,
    ReleaseVerdict,
    RuleOptions,
    Telemetry,
    Zone,
    Zones,
    detect_releases,
    judge,
    read_telemetry,
    read_zones,
)
from robotrials.record import Annotation, Episode, Event, EventKind, EventSource
from robotrials.stats import Interval, clustered_wilson, wilson
from robotrials.value import read_table

if TYPE_CHECKING:
    from robotrials.record import Trajectory


# A small trained classifier: logistic regression of "an item was placed" on a candidate's features.

FEATURES = (
    'slump', 'over_target', 'over_source', 'zone_depth_m', 'from_target', 'hold_s', 'displacement_m', 'height_m',
    'grip', 'plateau', 'empty', 'ledger',
)  # fmt: skip
FEWEST = 10  # of either answer
LARGEST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedClassifier:
    """Weights on standardised features; between the two chances a person has to look."""

    weights: tuple[float, ...]
    bias: float
    center: tuple[float, ...]
    scale: tuple[float, ...]
    success_above: float = 0.8
    other_below: float = 0.2
    n_candidates: int = 0

    def __post_init__(self) -> None:
        for name in ('weights', 'center', 'scale'):
            given = getattr(self, name)
            values = () if isinstance(given, str) else tuple(float(v) for v in given)
            if len(values) != len(FEATURES) or not all(abs(v) <= LARGEST for v in values):
                raise InputError(f'{name} has {len(values)} numbers, wanted {len(FEATURES)} of at most {LARGEST:g}')
            object.__setattr__(self, name, values)
        if not min(self.scale) > 0:
            raise InputError(f'scale holds {min(self.scale)}, wanted numbers > 0')
        if isinstance(self.bias, str | bool) or not abs(self.bias) <= LARGEST:
            raise InputError(f'bias is {self.bias!r}, wanted a number of at most {LARGEST:g}')
        if not 0 <= self.other_below < self.success_above <= 1:
            raise InputError('wanted 0 <= other_below < success_above <= 1')

    def chance(self, candidates: Sequence[ReleaseCandidate]) -> FloatArray:
        """(n,) the chance that each candidate placed an item."""
        standard = (features_of(candidates) - np.array(self.center)) / np.array(self.scale)
        return _logistic(standard @ np.array(self.weights) + self.bias)

    def judge(self, candidates: Sequence[ReleaseCandidate], options: RuleOptions | None = None) -> list[JudgedRelease]:
        """Verdicts: sure successes, sure others (failure or neutral by the rules), and the rest unknown."""
        verdicts = []
        for ruled, chance in zip(judge(candidates, options), self.chance(candidates), strict=True):
            why = f'chance of a placement {chance:.2f}'
            if chance >= self.success_above:
                verdict = ReleaseVerdict.SUCCESS
            elif chance <= self.other_below:
                is_other = ruled.verdict not in (ReleaseVerdict.SUCCESS, ReleaseVerdict.UNKNOWN)
                verdict = ruled.verdict if is_other else ReleaseVerdict.NEUTRAL
            else:
                verdict = ReleaseVerdict.UNKNOWN
            verdicts.append(JudgedRelease(ruled.candidate, verdict, why))
        return verdicts

    def as_json(self) -> str:
        return json.dumps({'features': FEATURES, **asdict(self)}, indent=1)


def classifier_from_json(text: str, *, where: str) -> LearnedClassifier:
    """A classifier that was kept; one of other features is refused."""
    try:
        values = json.loads(text)
        if tuple(values.pop('features')) != FEATURES:
            raise InputError('it was trained on other features; train it again')
        return LearnedClassifier(**values)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f'{where}: no classifier ({error})') from error


def features_of(candidates: Sequence[ReleaseCandidate]) -> FloatArray:
    """(n, F) the features, in the order of their names."""
    rows = [
        (
            c.kind is ReleaseKind.SLUMP, c.zone == 'target', c.zone == 'source', c.zone_depth_m,
            c.grasp_zone == 'target', min(c.hold_s, 10.0), c.displacement_m, c.height_m, c.grip, c.has_plateau,
            c.is_empty, min(c.ledger, 10),
        )
        for c in candidates
    ]  # fmt: skip
    return np.array(rows, dtype=np.float64).reshape(len(candidates), len(FEATURES))


def train_classifier(
    candidates: Sequence[ReleaseCandidate], is_placement: Sequence[bool], *, ridge: float = 1.0
) -> LearnedClassifier:
    """Fit by penalised maximum likelihood; refused where either answer is rare."""
    from scipy.optimize import minimize

    truth = np.asarray(is_placement, dtype=np.float64)
    if len(truth) != len(candidates):
        raise InputError(f'{len(candidates)} candidates and {len(truth)} labels')
    if min(truth.sum(), (1 - truth).sum()) < FEWEST:
        counted = f'{int(truth.sum())} placements and {int((1 - truth).sum())} others'
        raise InputError(f'a classifier wants at least {FEWEST} of either; found {counted}; use the rules')
    values = features_of(candidates)
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    standard = (values - center) / scale

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        score = standard @ point[:-1] + point[-1]
        slope = _logistic(score) - truth
        cost = float(np.sum(np.logaddexp(0.0, score) - truth * score) + ridge / 2 * np.sum(point[:-1] ** 2))
        return cost, np.append(standard.T @ slope + ridge * point[:-1], slope.sum())

    fitted = minimize(loss, np.zeros(len(FEATURES) + 1), jac=True, method='L-BFGS-B')
    return LearnedClassifier(
        weights=tuple(fitted.x[:-1]), bias=float(fitted.x[-1]), center=tuple(center), scale=tuple(scale),
        n_candidates=len(candidates),
    )  # fmt: skip


def _logistic(score: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * score)))


# How well detected placements agree with known ones: precision, recall, timing, and how often the counts agree.

TOLERANCE_S = 1.0  # further apart, two marks are of different placements


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """The marks of one episode set against each other, one to one."""

    n_true: int
    n_found: int
    errors_s: FloatArray  # (m,) found minus true, of the pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Over episodes. A share of nothing is None; intervals take episodes, not marks, as independent."""

    n_episodes: int
    n_true: int
    n_found: int
    n_matched: int
    n_counts_agree: int
    bias_s: float | None  # median of found minus true
    error_s: float | None  # median of its size
    error_90_s: float | None  # which nine in ten do not pass
    precision: Interval | None
    recall: Interval | None

    @property
    def agreement(self) -> Interval | None:
        return wilson(self.n_counts_agree, self.n_episodes) if self.n_episodes else None

    @property
    def f1(self) -> float:
        total = self.n_true + self.n_found
        return 2 * self.n_matched / total if total else 1.0


def placement_times(episode: Episode | Annotation) -> FloatArray:
    """The times of an episode's placements (or those that an account marks), one per item."""
    times = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
    return np.array(times, dtype=np.float64)


def match_marks(true_s: Sequence[float] | FloatArray, found_s: Sequence[float] | FloatArray, *,
                tolerance_s: float = TOLERANCE_S) -> Matched:  # fmt: skip
    """Pair marks so that as many as possible lie within the tolerance, and then as near as possible."""
    from scipy.optimize import linear_sum_assignment

    if tolerance_s <= 0:
        raise InputError(f'tolerance_s is {tolerance_s}, wanted > 0')
    true, detected = np.asarray(true_s, dtype=np.float64), np.asarray(found_s, dtype=np.float64)
    if not len(true) or not len(detected):
        return Matched(len(true), len(detected), np.empty(0))
    gaps_s = np.abs(true[:, None] - detected[None, :])
    # A pair beyond the tolerance costs more than all pairs within it together.
    rows, columns = linear_sum_assignment(np.where(gaps_s <= tolerance_s, gaps_s, tolerance_s * (gaps_s.size + 1)))
    is_pair = gaps_s[rows, columns] <= tolerance_s
    return Matched(len(true), len(detected), (detected[columns] - true[rows])[is_pair])


def assess(episodes: Sequence[Matched]) -> Assessment:
    """Sum the matches of episodes."""
    matched = [len(m.errors_s) for m in episodes]
    true, n_detected = [m.n_true for m in episodes], [m.n_found for m in episodes]
    errors = np.concatenate([np.empty(0), *(m.errors_s for m in episodes)])
    size = np.abs(errors)
    return Assessment(
        n_episodes=len(episodes),
        n_true=sum(true),
        n_found=sum(n_detected),
        n_matched=len(errors),
        n_counts_agree=sum(m.n_true == m.n_found for m in episodes),
        bias_s=float(np.median(errors)) if len(errors) else None,
        error_s=float(np.median(size)) if len(errors) else None,
        error_90_s=float(np.quantile(size, 0.9)) if len(errors) else None,
        precision=clustered_wilson(matched, n_detected) if sum(n_detected) else None,
        recall=clustered_wilson(matched, true) if sum(true) else None,
    )


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
    first = start or Settings()
    if len(labelled) < 2 * FOLDS:
        raise InputError(f'{len(labelled)} labelled episodes, wanted at least {2 * FOLDS}')
    matched: list[Matched] = []
    for fold in range(FOLDS):
        chosen = _choose([e for n, e in enumerate(labelled) if n % FOLDS != fold], first, learn=learn)
        matched += assess_settings(chosen, [e for n, e in enumerate(labelled) if n % FOLDS == fold])
    return DetectorCalibration(
        settings=_choose(labelled, first, learn=learn),
        held_out=assess(matched),
        before=assess(assess_settings(first, labelled)),
    )


def _choose(labelled: Sequence[Labelled], start: Settings, *, learn: bool) -> Settings:
    best, best_worth = start, _worth(start, labelled)
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
    assessment = assess(assess_settings(settings, labelled))
    return assessment.f1, assessment.n_counts_agree


def _learn(settings: Settings, labelled: Sequence[Labelled]) -> LearnedClassifier:
    releases = [detect_releases(e.telemetry, e.zones, settings.detector) for e in labelled]
    truths = [is_placement(own, e.truth_s) for own, e in zip(releases, labelled, strict=True)]
    return train_classifier(list(itertools.chain(*releases)), list(itertools.chain(*truths)))


def is_placement(
    candidates: Sequence[ReleaseCandidate], truth_s: FloatArray, *, tolerance_s: float = 1.0
) -> list[bool]:
    """Whether each candidate is the moment of a known placement, at most one candidate per placement."""
    free = sorted(float(t) for t in truth_s)
    chances = []
    for candidate in candidates:
        near = [t for t in free if abs(t - candidate.t_s) <= tolerance_s]
        chances.append(bool(near))
        if near:
            free.remove(min(near, key=lambda t: abs(t - candidate.t_s)))
    return chances


# Settings in a file: zones, thresholds, and where a trained classifier lies.

TABLES = ('zones', 'detector', 'rules', 'classifier')


def read_settings(path: Path) -> tuple[Zones | None, Settings]:
    """Zones (if the file names any) and settings from TOML; a classifier's path is relative to the file."""
    try:
        values = tomllib.loads(path.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f'{path}: cannot be read as TOML ({error})') from error
    for name in values:
        if name not in TABLES:
            raise UnknownName(f'table of {path.name}', name, TABLES)
    zones = read_zones(values['zones'], where=str(path)) if 'zones' in values else None
    classifier = None
    if 'classifier' in values:
        if not isinstance(values['classifier'], str):
            raise InputError(f'{path}: classifier is {values["classifier"]!r}, wanted the name of a file')
        named = path.parent / values['classifier']
        try:
            text = named.read_text(encoding='utf-8')
        except (OSError, ValueError) as error:  # also a name or a content that is no text
            raise InputError(f'{named}: cannot be read ({error})') from error
        classifier = classifier_from_json(text, where=str(named))
    return zones, Settings(
        detector=read_table(DetectorOptions, values.get('detector', {}), where=f'{path}: detector'),
        rules=read_table(RuleOptions, values.get('rules', {}), where=f'{path}: rules'),
        classifier=classifier,
    )


def settings_text(zones: Zones, settings: Settings, *, classifier: str = '') -> str:
    """The file for these settings."""
    lines = [f"classifier = '{classifier}'", ''] if classifier else []
    if zones.swapped_when is not None:
        name, value = (json.dumps(text) for text in zones.swapped_when)
        lines += ['[zones]', f'swapped_when = {{ {name} = {value} }}', '']
    for name in ('source', 'target'):
        zone: Zone = getattr(zones, name)
        lines += [f'[zones.{name}]', f'center_m = {list(zone.center_m)}', f'size_m = {list(zone.size_m)}', '']
    for name, options in (('detector', settings.detector), ('rules', settings.rules)):
        lines += [f'[{name}]', *(f'{key} = {value!r}' for key, value in dataclasses.asdict(options).items()), '']
    return '\n'.join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two reviewers, over the episodes that both marked."""

    first: str
    second: str
    n_episodes: int
    n_counts_agree: int
    kappa: float | None  # of the counts, by Cohen; None where both gave one and the same answer throughout
    n_marks: tuple[int, int]
    n_matched: int
    apart_s: float | None  # median time between matched marks
    apart_90_s: float | None


def agreements(annotations: Mapping[tuple[str, int], Sequence[Annotation]]) -> tuple[Agreement, ...]:
    """Every pair of reviewers with an episode in common; the last account of each counts."""
    marked: dict[str, dict[tuple[str, int], Annotation]] = {}
    for key, rows in annotations.items():
        for row in rows:
            if row.source is EventSource.REVIEWER:
                marked.setdefault(row.by, {})[key] = row
    compared = []
    for first, second in itertools.combinations(sorted(marked), 2):
        shared = sorted(marked[first].keys() & marked[second].keys())
        if shared:
            compared.append(_compare(first, second, [(marked[first][k], marked[second][k]) for k in shared]))
    if not compared:
        raise NotEstimable('no two reviewers have marked the same episode')
    return tuple(compared)


def _compare(first: str, second: str, pairs: Sequence[tuple[Annotation, Annotation]]) -> Agreement:
    matched = [match_marks(placement_times(a), placement_times(b)) for a, b in pairs]
    gaps_s = np.abs(np.concatenate([np.empty(0), *(m.errors_s for m in matched)]))
    counts = [(m.n_true, m.n_found) for m in matched]
    return Agreement(
        first=first, second=second, n_episodes=len(pairs), n_counts_agree=sum(a == b for a, b in counts),
        kappa=cohen_kappa(counts), n_marks=(sum(a for a, _ in counts), sum(b for _, b in counts)),
        n_matched=len(gaps_s), apart_s=float(np.median(gaps_s)) if len(gaps_s) else None,
        apart_90_s=float(np.quantile(gaps_s, 0.9)) if len(gaps_s) else None,
    )  # fmt: skip


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement beyond chance: (p_o - p_e) / (1 - p_e)."""
    n = len(pairs)
    values = sorted({v for pair in pairs for v in pair})
    seen = sum(a == b for a, b in pairs) / n
    expected = sum(sum(a == v for a, _ in pairs) * sum(b == v for _, b in pairs) for v in values) / n**2
    return None if expected >= 1 else (seen - expected) / (1 - expected)


# Where detector and operator agree an episode is validated by itself; the rest waits for a reviewer.

TOOL = 'release detector'
TIME_SLACK_S = 1e-6
KINDS = {ReleaseVerdict.SUCCESS: EventKind.PLACEMENT, ReleaseVerdict.FAILURE: EventKind.DROP_OUTSIDE}


class LabelStanding(enum.StrEnum):
    TIMED = 'timed when recorded'  # by the host, a sensor or the operator: nothing to annotate
    VALIDATED = 'auto-validated'
    REVIEWED = 'reviewed'
    WAITING = 'waiting for review'
    NOT_SCANNED = 'not looked at yet'


@dataclass(frozen=True, slots=True)
class LabelStatus:
    """Where an episode stands, and why."""

    episode: Episode
    standing: LabelStanding
    why: str
    annotation: Annotation | None = None  # the account that is believed, if one is


def scan(
    episodes: Iterable[tuple[Episode, Trajectory | None]], zones: Zones, settings: Settings | None = None
) -> list[Annotation]:
    """The detector's account of every valid episode; one that it cannot read is an account without a count."""
    chosen = settings or Settings()
    return [_account(e, t, zones, chosen) for e, t in episodes if e.is_valid]


def _account(episode: Episode, trajectory: Trajectory | None, zones: Zones, settings: Settings) -> Annotation:
    try:
        if trajectory is None:
            raise NotEstimable('no telemetry was recorded')
        judged = settings.apply(read_telemetry(trajectory), zones.of(episode.labels))
    except RobotrialsError as error:  # one recording that is odd does not keep the others from being looked at
        return Annotation(
            episode_id=episode.episode_id, attempt=episode.attempt, source=EventSource.DETECTOR, by=TOOL,
            note=str(error),
        )  # fmt: skip
    end_s = episode.duration_s
    return Annotation(
        episode_id=episode.episode_id,
        attempt=episode.attempt,
        source=EventSource.DETECTOR,
        by=TOOL,
        events=tuple(
            Event(j.candidate.t_s if end_s is None else min(j.candidate.t_s, end_s), KINDS[j.verdict],
                  EventSource.DETECTOR)
            for j in judged
            if j.verdict in KINDS
        ),
        count=sum(j.verdict is ReleaseVerdict.SUCCESS for j in judged),
        details={'candidates': [_candidate_details(j) for j in judged], 'settings': _settings(settings)},
    )  # fmt: skip


def _candidate_details(judged: JudgedRelease) -> dict[str, object]:
    values = dataclasses.asdict(judged.candidate)
    return {**values, 'kind': judged.candidate.kind.value, 'verdict': judged.verdict.value, 'why': judged.why}


def _settings(settings: Settings) -> dict[str, object]:
    return {
        'detector': dataclasses.asdict(settings.detector),
        'rules': dataclasses.asdict(settings.rules),
        'classifier': 'trained' if settings.classifier is not None else 'rules',
    }


def status_of(episode: Episode, annotations: Sequence[Annotation]) -> LabelStatus:
    """Where one episode stands. The operator's count is the truth: an account that differs from it is not believed."""
    counted = episode.items_placed
    timed = sum(e.count for e in episode.events if e.kind is EventKind.PLACEMENT)
    if timed and (counted is None or timed == counted):
        return LabelStatus(episode, LabelStanding.TIMED, f'{timed} placements were timed when it was recorded')
    by_source = {source: [a for a in annotations if a.source is source] for source in EventSource}
    if counted is None and not annotations and episode.items in (None, 1) and episode.duration_s is not None:
        return LabelStatus(episode, LabelStanding.TIMED, 'one operation, which ends with the episode')
    if counted is None:
        return LabelStatus(episode, LabelStanding.WAITING, 'the operator left no count: correct items_placed first')
    for source, standing in (
        (EventSource.REVIEWER, LabelStanding.REVIEWED), (EventSource.SENSOR, LabelStanding.VALIDATED),
        (EventSource.DETECTOR, LabelStanding.VALIDATED),
    ):  # fmt: skip
        last = by_source[source][-1] if by_source[source] else None
        if last is not None and last.count == counted:
            if odd := _oddity(episode, last):
                return LabelStatus(episode, LabelStanding.WAITING, odd)
            return LabelStatus(episode, standing, f'{last.by} and the operator count {counted}', last)
        if last is not None and source is EventSource.REVIEWER:
            why = f'the reviewer {last.by} counts {last.count}, the operator {counted}: settle items_placed'
            return LabelStatus(episode, LabelStanding.WAITING, why)
    detected = by_source[EventSource.DETECTOR]
    if counted == 0 and (not detected or detected[-1].count is None):
        return LabelStatus(episode, LabelStanding.TIMED, 'nothing was placed, so there is nothing to time')
    if not detected:
        return LabelStatus(episode, LabelStanding.NOT_SCANNED, 'run `robotrials annotate detect`')
    why = detected[-1].note or f'the detector counts {detected[-1].count}, the operator {counted}'
    return LabelStatus(episode, LabelStanding.WAITING, why)


def _oddity(episode: Episode, account: Annotation) -> str:
    """Why an account is not believed although its count is the operator's: its marks are not what it counts."""
    marked = sum(e.count for e in account.events if e.kind is EventKind.PLACEMENT)
    if marked != account.count:
        return f'{account.by} counts {account.count} and marks {marked}: it has to be marked again'
    end_s = episode.duration_s
    if end_s is not None and account.events and account.events[-1].t_s > end_s + TIME_SLACK_S:
        return f'{account.by} has a mark at {account.events[-1].t_s:g} s, and the episode ended at {end_s:g} s'
    return ''


def statuses(
    episodes: Iterable[Episode], annotations: Mapping[tuple[str, int], Sequence[Annotation]]
) -> list[LabelStatus]:
    """Where every valid episode stands, in the order given."""
    return [status_of(e, annotations.get(e.key, ())) for e in episodes if e.is_valid]


def with_marks(episode: Episode, annotations: Sequence[Annotation]) -> Episode:
    """The episode with the placements of the account that is believed, where the recording timed none.

    What else was recorded stays. Its drops are taken from the account only where the recording has none.
    """
    status = status_of(episode, annotations)
    if status.annotation is None:
        return episode
    drops = (EventKind.DROP_OUTSIDE, EventKind.DROP_UNCOLLECTED)
    has_drops = any(e.kind in drops for e in episode.events)
    kept = [e for e in episode.events if e.kind is not EventKind.PLACEMENT]
    lost = episode.items_lost or 0
    marks = [e for e in status.annotation.events if e.kind is EventKind.PLACEMENT]
    if not has_drops and sum(e.count for e in status.annotation.events if e.kind in drops) == lost:
        marks += [e for e in status.annotation.events if e.kind in drops]
    return episode.replace(events=tuple(sorted([*kept, *marks], key=lambda e: e.t_s)))
