"""Tables of annotation: where episodes stand, how well a detector does, how far reviewers agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from robotrials.measure.annotate import Agreement, Assessment, LabelStatus
from robotrials.show.phrase import ends
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis.labels import EASY, LabelRobustness

MARKS = 'a mark within 1 s of a known placement is right; 95 % intervals take episodes, not marks, as independent'


def standing_table(told: Sequence[LabelStatus]) -> Table:
    """How many episodes are timed, validated, reviewed, waiting."""
    counts = Counter(s.standing.value for s in told)
    rows: list[list[Cell]] = [[name, n, n / len(told)] for name, n in counts.most_common()]
    return table('Who timed the placements', ['standing', 'episodes', Column('share', '.3f')], rows)


def queue_table(waiting: Sequence[LabelStatus]) -> Table:
    """The episodes that wait for a reviewer, and why; no policy is named."""
    rows: list[list[Cell]] = [
        [s.episode.episode_id, s.episode.attempt, s.episode.stratum or s.episode.task, s.why] for s in waiting
    ]
    return table('Waiting for review', ['episode', 'attempt', 'object', 'why'], rows)


def assessment_table(found: Mapping[str, Assessment], *, title: str = 'Detected placements', by: str = '') -> Table:
    """Precision, recall, timing and agreement of counts, a line each."""
    columns: list[str | Column] = [
        by or 'episodes of', 'episodes', 'placements', 'marks', Column('precision', '.3f'), 'its interval',
        Column('recall', '.3f'), 'its interval ', Column('bias s', '.2f'), Column('median error s', '.2f'),
        Column('90 % within s', '.2f'), Column('counts agree', '.3f'),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, a in found.items():
        precision, recall = a.precision, a.recall
        rows.append(
            [
                name, a.n_episodes, a.n_true, a.n_found,
                a.n_matched / a.n_found if a.n_found else None,
                None if precision is None else f'{precision.low:.3f} to {precision.high:.3f}',
                a.n_matched / a.n_true if a.n_true else None,
                None if recall is None else f'{recall.low:.3f} to {recall.high:.3f}',
                a.bias_s, a.error_s, a.error_90_s, a.n_counts_agree / a.n_episodes if a.n_episodes else None,
            ]
        )  # fmt: skip
    return table(title, columns, rows, note=MARKS)


def agreement_table(found: Sequence[Agreement]) -> Table:
    """Every pair of reviewers."""
    columns: list[str | Column] = [
        'reviewer', 'and', 'episodes', 'same count', Column('kappa', '.3f'), 'marks', 'matched',
        Column('median apart s', '.2f'), Column('90 % within s', '.2f'),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [a.first, a.second, a.n_episodes, f'{a.n_counts_agree}/{a.n_episodes}', a.kappa,
         f'{a.n_marks[0]} and {a.n_marks[1]}', a.n_matched, a.apart_s, a.apart_90_s]
        for a in found
    ]  # fmt: skip
    return table('Agreement of reviewers', columns, rows, note='kappa: of the counts, by Cohen')


def label_tables(found: LabelRobustness) -> list[Table]:
    """The headline on each stream of labels, and under jitter."""
    rows: list[list[Cell]] = []
    for stream in found.streams:
        same = '' if stream.is_same is None else ('same order' if stream.is_same else 'other order')
        if stream.why_absent:
            rows.append([stream.stream, stream.n_episodes, *[None] * 8, stream.why_absent])
        for place, policy in enumerate((*stream.order, *(p for p in stream.means_s if p not in stream.order)), 1):
            mean = stream.means_s[policy]
            ranked = place if policy in stream.order else None
            hrt = stream.relative.get(policy)
            against = (None, None, None) if hrt is None or hrt.value is None else (
                100 * hrt.value, *ends(hrt.interval, 100.0)
            )  # fmt: skip
            rows.append([
                stream.stream, stream.n_episodes, ranked, policy, mean.value, *ends(mean.interval), *against, same
            ])  # fmt: skip
    columns: list[str | Column] = [
        'stream', 'episodes', 'place', 'policy', Column('mean time s', '.2f'), Column('low', '.2f'),
        Column('high', '.2f'), Column('HRT (%)', '.1f'), Column('HRT low', '.1f'), Column('HRT high', '.1f'),
        'against all',
    ]  # fmt: skip
    first = table('The ranking on each stream of labels', columns, rows, note=EASY)
    if not found.jitters:
        return [first]
    moved: list[list[Cell]] = [[j.jitter_s, j.n_trials, j.n_same] for j in found.jitters]
    return [first, table('With times moved at random', [Column('by s (sd)', 'g'), 'trials', 'same order'], moved)]
