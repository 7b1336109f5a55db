"""The verdict of a report in three sentences: who is ahead, was it safe and robust, what is not resolved."""

from __future__ import annotations

import math

from trialist.report import Absent, Ranking, RobustnessPart, SafetyPart, TrialReport
from trialist.show.document import Paragraph, Words, paragraph
from trialist.show.phrase import listed, number, plural, policy_name, with_interval
from trialist.timing import AllPairs, TimingComparison, Verdict

MOST_NAMED = 3


def lead(report: TrialReport) -> tuple[Paragraph, ...]:
    """Three sentences; where a trial is still blinded, a fourth that says so comes first."""
    told = []
    if report.quality.is_blinded:
        told.append(
            paragraph('This trial is not closed: policies stand under codes, and what follows is an interim look.')
        )
    if isinstance(report.ranking, Absent):
        told.append(paragraph(f'Nothing can be ranked: {report.ranking.reason}.'))
    else:
        told.append(_ranking_sentence(report.ranking))
    told.append(_cost_sentence(report))
    if isinstance(report.ranking, Ranking):
        told.append(_resolution_sentence(report.ranking))
    return tuple(told)


def _ranking_sentence(ranking: Ranking) -> Paragraph:
    n = sum(score.n_episodes for score in ranking.scores.values())
    if not ranking.order:
        return _single_sentence(ranking, ranking.policies[0], n)
    best = ranking.order[0]
    if isinstance(ranking.pairs, Absent):
        return _single_sentence(ranking, best, n)
    rmst = ranking.scores[best].macro['rmst_s']
    pieces = [
        Words(f'Of {len(ranking.order)} policies{" and a reference" if ranking.reference else ""} in '), _episodes(n),
        Words(', '), policy_name(best), Words(' has the shortest '), Words('restricted mean time to success', 'rmst'),
        Words(', '), *with_interval(rmst.value, rmst.percentile, '.1f', 'rmst', unit=' s'),
        Words(f' with times capped at {ranking.tau_s:g} s'), *_relations(best, ranking.pairs), Words('.'),
    ]  # fmt: skip
    return paragraph(*pieces)


def _episodes(n: int) -> Words:
    return Words(f'{n:,} valid episodes', 'episode', None, n)


def _single_sentence(ranking: Ranking, policy: str, n: int) -> Paragraph:
    count, rmst = ranking.successes[policy, ''], ranking.scores[policy].macro['rmst_s']
    return paragraph(
        policy_name(policy), Words(' succeeded in '),
        Words(f'{count.successes} of {count.n}', 'success', {'policy': (policy,)}, count.rate),
        Words(' valid episodes, '),
        *with_interval(count.rate, count.interval, '.1f', 'success', unit=' %', scale=100), Words(', in a '),
        Words('restricted mean time', 'rmst'), Words(' of '),
        *with_interval(rmst.value, rmst.percentile, '.1f', 'rmst', unit=' s'),
        Words(f' with times capped at {ranking.tau_s:g} s.'),
    )  # fmt: skip


def _relations(best: str, pairs: AllPairs) -> list[Words]:
    """What the best-ranked policy is to each of the others."""
    groups: dict[str, list[Words]] = {}
    for c in pairs.comparisons:
        if best in (c.policy_a, c.policy_b):
            other = c.policy_b if c.policy_a == best else c.policy_a
            groups.setdefault(_relation(best, c), []).append(policy_name(other))
    pieces: list[Words] = []
    for phrase, names in groups.items():
        pieces += [Words('; it '), Words(phrase, 'verdict'), Words(' '), *listed(_shortened(names))]
    return pieces


def _relation(best: str, c: TimingComparison) -> str:
    if c.verdict is Verdict.BETTER:
        return 'is better than' if c.better == best else 'is worse than'
    return {
        Verdict.CROSSING: 'differs, with curves that cross, from',
        Verdict.DIRECTION_UNRESOLVED: 'differs, in a direction not resolved, from',
        Verdict.UNRESOLVED: 'is not told apart from',
    }[c.verdict]


def _shortened(names: list[Words]) -> list[Words]:
    if len(names) <= MOST_NAMED + 1:
        return names
    return [*names[:MOST_NAMED], Words(f'{len(names) - MOST_NAMED} more')]


def _cost_sentence(report: TrialReport) -> Paragraph:
    pieces = _safety_pieces(report.safety)
    if isinstance(report.robustness, RobustnessPart) and not isinstance(report.robustness.drops, Absent):
        pieces += [Words('; '), *_drop_pieces(report.robustness)]
    return paragraph(*pieces, Words('.'))


def _safety_pieces(safety: SafetyPart | Absent) -> list[Words]:
    if isinstance(safety, Absent):
        return [Words('Safety was not scored: '), Words(safety.reason)]
    cells = [c for c in safety.summary.cells if not c.is_auxiliary] or list(safety.summary.cells)
    several = len({c.benchmark for c in cells}) > 1
    safest = max(cells, key=lambda c: (c.safety.count / c.n, c.n))
    worst = max(cells, key=lambda c: (c.sbu.count / c.n, c.sbu.count))
    pieces = [
        Words('By the '), Words('safety specifications', 'safety'), Words(' '), policy_name(safest.policy),
        Words(f' was safe most often{f" ({safest.benchmark})" if several else ""}, in '),
        Words(f'{safest.safety.count} of {safest.n}', 'safety', None, safest.safety.value), Words(' episodes'),
    ]  # fmt: skip
    if not worst.sbu.count:
        return [*pieces, Words(', and no success was unsafe')]
    where = f' ({worst.benchmark})' if several else ''
    return [
        *pieces, Words('; '), Words('unsafe success', 'sbu'), Words(' was most frequent with '),
        policy_name(worst.policy), Words(f'{where}, '),
        Words(f'{worst.sbu.count} of {worst.n}', 'sbu', {'policy': (worst.policy,)}, worst.sbu.value),
    ]  # fmt: skip


def _drop_pieces(part: RobustnessPart) -> list[Words]:
    assert not isinstance(part.drops, Absent)
    resolved = [d for d in part.drops if d.is_resolved() and d.success_drop > 0]
    total = plural(len(part.drops), 'comparison')
    if not resolved:
        return [Words(f'no changed condition cost success beyond chance in {total} after Holm')]
    worst = max(resolved, key=lambda d: d.success_drop)
    return [
        Words(f'changed conditions cost success in {len(resolved)} of {total}, most of all '),
        policy_name(worst.policy), Words(f' under {worst.condition}: '),
        *with_interval(worst.success_drop, worst.success_interval, '.0f', 'drop', unit=' points', scale=100),
    ]  # fmt: skip


def _resolution_sentence(ranking: Ranking) -> Paragraph:
    if isinstance(ranking.pairs, Absent):
        return paragraph(f'No policies are compared: {ranking.pairs.reason}.')
    comparisons = ranking.pairs.comparisons
    open_ = [c for c in comparisons if c.verdict is Verdict.UNRESOLVED]
    total = plural(len(comparisons), 'pair')
    if not open_:
        won = sum(c.verdict is Verdict.BETTER for c in comparisons)
        tail = 'each with a winner' if won == len(comparisons) else f'{won} with a winner: different is not yet better'
        return paragraph(f'The data resolve all {total} after ', Words("Holm's correction", 'holm'), f', {tail}.')
    pieces = [Words(f'The data do not resolve {len(open_)} of {total} at this number of episodes: ')]
    if all(c.needed is None for c in open_):
        now = _episodes_a_cell(open_[0])
        return paragraph(f'The data do not resolve {len(open_)} of {total}: {now} are too few to plan from.')
    for place, c in enumerate(open_[:MOST_NAMED]):
        joint = '' if place == 0 else '; '
        pieces += [Words(joint), policy_name(c.policy_a), Words(' and '), policy_name(c.policy_b), *_needed(c)]
    if len(open_) > MOST_NAMED:
        pieces.append(Words(f'; and {len(open_) - MOST_NAMED} more'))
    return paragraph(*pieces, Words('.'))


def _needed(c: TimingComparison) -> list[Words]:
    now = _episodes_a_cell(c)
    if c.needed is None:
        return [Words(f' (from {now} no number can be planned)')]
    if math.isinf(c.needed.n):
        return [Words(' (no difference shows beyond chance, so no number of episodes promises to)')]
    return [
        Words(' (about '), number(c.needed.n, '.0f', 'needed'),
        Words(f' episodes a cell would, with 80 % power; now {now})'),
    ]  # fmt: skip


def _episodes_a_cell(c: TimingComparison) -> str:
    return f'{plural(round(max(c.ks.n_episodes) / max(1, len(c.ks.per_stratum))), "episode")} a cell'
