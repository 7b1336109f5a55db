"""Tables of the record itself: episodes, counts, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.measure.annotate import Agreement, Assessment, LabelStatus
from robotrials.record import Episode, Outcome
from robotrials.show.answer import Card
from robotrials.show.phrase import capital, ends, plural
from robotrials.show.table import Cell, Column, Table, estimate_text, mark, table, without_empty
from robotrials.stats import Interval
from robotrials.verdict.analysis.labels import EASY, LabelRobustness

if TYPE_CHECKING:
    from robotrials.formats.attach import AttachmentPlan
    from robotrials.record.log import Finding


def episode_table(episodes: Sequence[Episode], *, title: str, note: str = '') -> Table:
    """One line per episode; columns that are empty throughout are left out."""
    columns: list[str | Column] = [
        'episode_id', 'attempt', 'policy', 'task', 'stratum', 'condition', 'seed', 'instance', 'outcome',
        Column('duration_s', '.2f'), 'items', 'items_placed', 'reason',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [e.episode_id, e.attempt, e.policy, e.task, e.stratum or None, e.condition, e.seed, e.instance, e.outcome.value,
         e.duration_s, e.items, e.items_placed, e.reason or None]
        for e in episodes
    ]  # fmt: skip
    return without_empty(table(title, columns, rows, note=note))


def count_tables(episodes: Iterable[Episode], *, n_dropped: int) -> list[Table]:
    """Outcomes by policy and stratum, then the totals; INVALID episodes are counted apart."""
    cells: dict[tuple[str, str], Counter[Outcome]] = {}
    events: Counter[str] = Counter()
    references: set[str] = set()
    for episode in episodes:
        cells.setdefault((episode.policy, episode.stratum or episode.task), Counter())[episode.outcome] += 1
        events.update(e.kind.value for e in episode.events)
        if episode.is_reference:
            references.add(episode.policy)
    header = ['policy', 'stratum', 'episodes', *(o.value for o in Outcome)]
    rows: list[list[Cell]] = []
    for (policy, stratum), counts in sorted(cells.items()):
        valid = sum(n for outcome, n in counts.items() if outcome is not Outcome.INVALID)
        name = f'{policy} (reference)' if policy in references else policy
        rows.append([name, stratum, valid, *(counts[o] for o in Outcome)])
    note = f'episodes counts the valid ones; {n_dropped} dropped by edits are in none of the columns'
    tables = [table('Episodes by policy and stratum', header, rows, note=note)]
    if events:
        tables.append(table('Events', ['kind', 'count'], sorted(events.items())))
    return tables


def attachment_table(plan: AttachmentPlan) -> Table:
    """How each source's clock meets the store's, and what an operator's marks say of it."""
    rows: list[list[Cell]] = [
        [s.path.name, len(s.spans), sum(map(len, s.held.values())), s.join.offset_s, s.join.drift * 1e6,
         s.join.start_gap_s, s.join.spread_s, s.join.how]
        for s in (*plan.telemetry, *plan.films)
    ]  # fmt: skip
    columns: list[str | Column] = [
        'source', 'recordings', 'episodes', Column('offset (s)', '+.3f'), Column('drift (ppm)', '+.0f'),
        Column('begins after (s)', '+.2f'), Column('scatter (s)', '.2f'), 'how',
    ]  # fmt: skip
    lags = sorted(plan.lags_s)
    note = f'{len(plan.keys)} of {len(plan.episodes)} episodes get a trajectory. offset: what their clock is ahead by'
    if lags:
        quarter = len(lags) // 4
        note += (
            f'. The operator marked {len(lags)} placements, {lags[len(lags) // 2]:.2f} s after the nearest release in '
            f'the telemetry (half of them from {lags[quarter]:.2f} to {lags[-1 - quarter]:.2f} s)'
        )
    return table('Joined by their clocks', columns, rows, note=note)


def finding_table(findings: Sequence[Finding], *, root: Path) -> Table:
    """What a check of a store found, damage first."""
    ordered = sorted(findings, key=lambda f: (not f.is_damage, f.path))
    rows = [[f.kind.value, _relative(f.path, root), f.detail] for f in ordered]
    return table(
        'Findings', ['kind', 'file', 'detail'], rows, note='leftovers are harmless; compaction removes old ones'
    )


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


# Tables of annotation: where episodes stand, how well a detector does, how far reviewers agree.


MARKS = 'a mark within 1 s of a known placement is right; 95 % intervals take episodes, not marks, as independent'


def queue_card(standings: Sequence[LabelStatus], waiting: Sequence[LabelStatus]) -> Card:
    """How many episodes wait for a reviewer, and why; no policy is named."""
    counts = Counter(s.standing.value for s in standings)
    rows = [(name, f'{mark(n / len(standings))} {n}') for name, n in counts.most_common()]
    reasons = Counter(s.why for s in waiting if s.why)
    rows += [('why they wait', f'{why} ({n})') for why, n in reasons.most_common(3)]
    verdict = f'{plural(len(waiting), "episode")} of {len(standings):,} wait for a reviewer.'
    return Card(
        title='Who timed the placements', scope=plural(len(standings), 'episode'), verdict=(verdict,), rows=tuple(rows)
    )


def assessment_card(score: Assessment, *, n_objects: int) -> Card:
    """How well a detector finds placements, over all objects."""

    def share(count: int, n: int, interval: Interval | None) -> str:
        if not n:
            return 'nothing to count'
        return f'{count}/{n}   {estimate_text(count / n, interval)}'

    verdict = (
        f'The detector finds {score.n_matched} of {plural(score.n_true, "placement")}, with {score.n_found} marks.'
    )
    times = [f'{value:.2f} s {what}' for value, what in
             ((score.error_s, 'median error'), (score.error_90_s, 'in 90 %')) if value is not None]  # fmt: skip
    rows = [('precision', share(score.n_matched, score.n_found, score.precision)),
            ('recall', share(score.n_matched, score.n_true, score.recall)),
            ('counts agree', f'{score.n_counts_agree}/{score.n_episodes} episodes'),
            *((('timing', ', '.join(times)),) if times else ())]  # fmt: skip
    return Card(
        title='Detected placements', scope=f'{plural(score.n_episodes, "episode")}, {plural(n_objects, "object")}',
        verdict=(verdict,), rows=tuple(rows), notes=(f'{capital(MARKS)}.',),
    )  # fmt: skip


def label_card(labels: LabelRobustness) -> Card:
    """Whether the order of policies rests on who timed the placements."""
    moved = [s for s in labels.streams if s.is_same is False]
    worst = min((j.n_same / j.n_trials for j in labels.jitters if j.n_trials), default=1.0)
    verdict = ('The order of policies rests on who timed the placements.' if moved else
               'The order of policies is the same on every stream of labels that could be compared.'
               if any(s.is_same for s in labels.streams) else 'One stream of labels: nothing to compare.')  # fmt: skip
    rows = [(s.stream, s.why_absent or ' < '.join(s.order)) for s in labels.streams]
    rows += [(f'times moved by {j.jitter_s:g} s', f'same order in {j.n_same} of {j.n_trials}') for j in labels.jitters]
    second = '' if worst == 1.0 else 'With inexact times the order changes.'
    return Card(
        title='Who timed the placements', scope='mean time to success, shortest first',
        verdict=tuple(filter(None, (verdict, second))), rows=tuple(rows),
    )  # fmt: skip


def standing_table(standings: Sequence[LabelStatus]) -> Table:
    """How many episodes are timed, validated, reviewed, waiting."""
    counts = Counter(s.standing.value for s in standings)
    rows: list[list[Cell]] = [[name, n, n / len(standings)] for name, n in counts.most_common()]
    return table('Who timed the placements', ['standing', 'episodes', Column('share', '.3f')], rows)


def queue_table(waiting: Sequence[LabelStatus]) -> Table:
    """The episodes that wait for a reviewer, and why; no policy is named."""
    rows: list[list[Cell]] = [
        [s.episode.episode_id, s.episode.attempt, s.episode.stratum or s.episode.task, s.why] for s in waiting
    ]
    return table('Waiting for review', ['episode', 'attempt', 'object', 'why'], rows)


def assessment_table(scores: Mapping[str, Assessment], *, by: str) -> Table:
    """Precision, recall, timing and agreement of counts, a line each; `by` is what the lines are of."""
    columns: list[str | Column] = [
        by, 'episodes', 'placements', 'marks', Column('precision', '.3f'), 'its interval',
        Column('recall', '.3f'), 'its interval ', Column('bias s', '.2f'), Column('median error s', '.2f'),
        Column('90 % within s', '.2f'), Column('counts agree', '.3f'),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, a in scores.items():
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
    return table('Detected placements', columns, rows, note=MARKS)


def agreement_table(agreements: Sequence[Agreement]) -> Table:
    """Every pair of reviewers."""
    columns: list[str | Column] = [
        'reviewer', 'and', 'episodes', 'same count', Column('kappa', '.3f'), 'marks', 'matched',
        Column('median apart s', '.2f'), Column('90 % within s', '.2f'),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [a.first, a.second, a.n_episodes, f'{a.n_counts_agree}/{a.n_episodes}', a.kappa,
         f'{a.n_marks[0]} and {a.n_marks[1]}', a.n_matched, a.apart_s, a.apart_90_s]
        for a in agreements
    ]  # fmt: skip
    return table('Agreement of reviewers', columns, rows, note='kappa: of the counts, by Cohen')


def label_tables(labels: LabelRobustness) -> list[Table]:
    """The headline on each stream of labels, and under jitter."""
    rows: list[list[Cell]] = []
    for stream in labels.streams:
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
    if not labels.jitters:
        return [first]
    moved: list[list[Cell]] = [[j.jitter_s, j.n_trials, j.n_same] for j in labels.jitters]
    return [first, table('With times moved at random', [Column('by s (sd)', 'g'), 'trials', 'same order'], moved)]
