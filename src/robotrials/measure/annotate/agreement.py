"""Two people mark the same episodes: how far they agree."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable, RobotrialsError
from robotrials.measure.annotate.calibrate import Matched, Settings, match_marks
from robotrials.measure.annotate.detector import JudgedRelease, ReleaseVerdict, Zones, read_telemetry
from robotrials.record import Annotation, Event, EventKind, EventSource

if TYPE_CHECKING:
    from robotrials.record import Episode, Trajectory


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
    matched: list[Matched] = [match_marks(_times(a), _times(b)) for a, b in pairs]
    gaps_s = np.abs(np.concatenate([np.empty(0), *(m.errors_s for m in matched)]))
    counts = [(len(_times(a)), len(_times(b))) for a, b in pairs]
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


def _times(annotation: Annotation) -> list[float]:
    return [e.t_s for e in annotation.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]


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
