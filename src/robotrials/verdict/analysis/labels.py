"""Does the ranking rest on who timed the placements? The headline on each stream of labels, and under jitter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable, RobotrialsError
from robotrials.measure.annotate import LabelStanding, statuses, with_marks
from robotrials.record import EventKind
from robotrials.verdict.analysis.analysis import Analysis
from robotrials.verdict.analysis.selection import Absent, select_episodes
from robotrials.verdict.planning.analysis_plan import declared_analysis

if TYPE_CHECKING:
    from robotrials.measure.annotate import LabelStatus
    from robotrials.record import Episode, Store
    from robotrials.record.blinding import Where
    from robotrials.stats import Estimate
    from robotrials.verdict.planning.analysis_plan import DeclaredAnalysis

ALL = 'all episodes'
MOST_TRIALS = 10_000
LARGEST_JITTER_S = 3600.0
EASY = (
    'auto-validated episodes are the easy ones: detector and operator agreed because little went wrong, so this '
    'compares streams of different difficulty and does not measure the bias of a reviewer'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRanking:
    """The headline on one stream of labels, or why there is none."""

    stream: str
    n_episodes: int
    order: tuple[str, ...] = ()
    means_s: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)  # macro RMST
    relative: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)  # HRT, where there is a reference
    why_absent: str = ''
    is_same: bool | None = None  # as on all episodes, over the policies that both rank


@dataclass(frozen=True, slots=True, kw_only=True)
class JitterRow:
    """How often the order stayed the same when every placement was moved by so much, at random."""

    jitter_s: float
    n_trials: int
    n_same: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRobustness:
    """The whole account; `statement` is the sentence for a paper."""

    streams: tuple[StreamRanking, ...]
    jitters: tuple[JitterRow, ...]
    n_waiting: int
    statement: str


def label_robustness(
    store: Store, *, where: Where | None = None, jitters_s: Sequence[float] = (0.1, 0.5, 1.0), n_trials: int = 20,
    seed: int = 0,
) -> LabelRobustness:  # fmt: skip
    """The ranking on auto-validated, on reviewed and on all episodes, and how it bears inexact times."""
    if not 1 <= n_trials <= MOST_TRIALS or any(not 0 < j <= LARGEST_JITTER_S for j in jitters_s):
        raise InputError(
            f'{n_trials} trials with jitters of {list(jitters_s)} s, wanted 1 to {MOST_TRIALS} trials, and jitters '
            f'above 0 and at most {LARGEST_JITTER_S:g} s'
        )
    if store.is_blinded:
        raise NotEstimable(f'{store.path}: the trial is blinded and open, so there is no ranking yet; close it first')
    annotations = store.annotations()
    known = statuses(store.episodes(where=where), annotations)
    if not known:
        raise NotEstimable(f'{store.path}: no valid episode')
    marked = {s.episode.key: with_marks(s.episode, annotations.get(s.episode.key, ())) for s in known}
    declared = declared_analysis(store.trial.plan, store.path)
    whole = _rank(ALL, [marked[s.episode.key] for s in known if _is_timed(s)], declared)
    streams = [whole]
    for standing in (LabelStanding.TIMED, LabelStanding.VALIDATED, LabelStanding.REVIEWED):
        part = [marked[s.episode.key] for s in known if s.standing is standing]
        if part and len(part) < whole.n_episodes:
            streams.append(_compared(_rank(standing.value, part, declared), whole))
    rng = np.random.default_rng(seed)
    timed = [marked[s.episode.key] for s in known if _is_timed(s)]
    rows = tuple(_jitter(timed, jitter_s, whole, declared, n_trials, rng) for jitter_s in jitters_s if whole.order)
    n_waiting = sum(not _is_timed(s) for s in known)
    return LabelRobustness(
        streams=tuple(streams), jitters=rows, n_waiting=n_waiting, statement=_statement(streams, rows, n_waiting)
    )


def _is_timed(status: LabelStatus) -> bool:
    """Whether its times are known; without a placement there is none to know, whatever a detector says."""
    if status.episode.items_placed == 0:
        return True
    return status.standing not in (LabelStanding.WAITING, LabelStanding.NOT_SCANNED)


def _rank(name: str, episodes: Sequence[Episode], declared: DeclaredAnalysis) -> StreamRanking:
    n = len(episodes)
    if not episodes:
        return StreamRanking(stream=name, n_episodes=0, why_absent='no episode is timed')
    try:
        ranking = Analysis(select_episodes(episodes, source=name), declared).ranking
    except RobotrialsError as error:
        return StreamRanking(stream=name, n_episodes=n, why_absent=str(error))
    if isinstance(ranking, Absent):
        return StreamRanking(stream=name, n_episodes=n, why_absent=ranking.reason)
    means = {p: ranking.scores[p].macro['rmst_s'] for p in ranking.policies if p in ranking.scores}
    relative = {p: r.macro for p, r in ranking.relative.items()}
    return StreamRanking(stream=name, n_episodes=n, order=ranking.order, means_s=means, relative=relative)


def _compared(part: StreamRanking, whole: StreamRanking) -> StreamRanking:
    if not part.order or not whole.order:
        return part
    return dataclasses.replace(part, is_same=_common(part.order, whole.order) == _common(whole.order, part.order))


def _common(order: Sequence[str], other: Sequence[str]) -> list[str]:
    return [p for p in order if p in other]


def _jitter(
    episodes: Sequence[Episode], jitter_s: float, whole: StreamRanking, declared: DeclaredAnalysis, n_trials: int,
    rng: np.random.Generator,
) -> JitterRow:  # fmt: skip
    """Move every placement by a normal draw, within the episode; counts never change."""
    quick = declared.changed_by(resamples=1)
    same = 0
    for _ in range(n_trials):
        moved = _rank('', [_moved(e, jitter_s, rng) for e in episodes], quick)
        same += moved.order == whole.order
    return JitterRow(jitter_s=jitter_s, n_trials=n_trials, n_same=same)


def _moved(episode: Episode, jitter_s: float, rng: np.random.Generator) -> Episode:
    end_s = episode.known_duration_s
    events = [
        dataclasses.replace(e, t_s=float(np.clip(e.t_s + rng.normal(0.0, jitter_s), 0.0, end_s)))
        if e.kind is EventKind.PLACEMENT
        else e
        for e in episode.events
    ]
    return episode.replace(events=tuple(sorted(events, key=lambda e: e.t_s)))


def _statement(streams: Sequence[StreamRanking], jitters: Sequence[JitterRow], n_waiting: int) -> str:
    whole, parts = streams[0], [s for s in streams[1:] if s.is_same is not None]
    if not whole.order:
        return f'there is no ranking to question: {whole.why_absent}'
    said = []
    if not parts:
        said.append('all timed episodes have one stream of labels, so there is nothing to compare')
    for part in parts:
        kept = 'is the same' if part.is_same else f'changes to {" < ".join(part.order)}'
        said.append(f'on the {part.n_episodes} {part.stream} episodes the order {kept}')
    worst = min(jitters, key=lambda j: j.n_same / j.n_trials, default=None)
    if worst is not None:
        said.append(
            f'with times moved by {worst.jitter_s:g} s at random it stayed in {worst.n_same} of {worst.n_trials} trials'
        )
    if n_waiting:
        said.append(f'{n_waiting} episodes still wait for review and are in none of these')
    return '; '.join([f'the order by mean time is {" < ".join(whole.order)}', *said])
