"""The verdict of a report in three sentences: who is ahead, was it safe and robust, what is not resolved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trialist.analysis import Absent, Ranking, RobustnessPart, SafetyPart, TrialReport
from trialist.analysis.pairs import FEWEST_FOR_PLANNING, AllPairs, TimingComparison
from trialist.safety.summary import CellSafety, Rate
from trialist.show.document import Paragraph, Words, paragraph
from trialist.show.phrase import listed, number, plural, policy_name, with_interval
from trialist.timing import Estimate, Verdict

MOST_NAMED = 3


def lead(report: TrialReport) -> tuple[Paragraph, ...]:
    """Three sentences; where a trial is still blinded, a fourth that says so comes first."""
    told = []
    if report.quality.is_open:
        codes = 'policies stand under codes, and ' if report.quality.is_blinded else ''
        told.append(paragraph(f'This trial is not closed: {codes}what follows is an interim look.'))
    if isinstance(report.ranking, Absent):
        told.append(paragraph(f'Nothing can be ranked: {report.ranking.reason}.'))
    else:
        told.append(_ranking_sentence(report.ranking))
        if report.ranking.cautions and not _is_unranked(report.ranking):
            told.append(paragraph(f'Read this with care: {"; ".join(report.ranking.cautions)}.'))
    told.append(_cost_sentence(report))
    if isinstance(report.ranking, Ranking) and not _is_unranked(report.ranking):
        told.append(_resolution_sentence(report.ranking))
    return tuple(told)


def _is_unranked(ranking: Ranking) -> bool:
    """Several policies, and no two that can be compared."""
    return isinstance(ranking.pairs, Absent) and len(ranking.order) > 1


def _ranking_sentence(ranking: Ranking) -> Paragraph:
    n = sum(score.n_episodes for score in ranking.scores.values())
    if len(ranking.policies) == 1 or len(ranking.order) == 1:
        return _single_sentence(ranking, (ranking.order or ranking.policies)[0])
    among = f'{len(ranking.order)} policies{" and a reference" if ranking.reference else ""}'
    if isinstance(ranking.pairs, Absent):
        return paragraph(f'The {among} in ', _episodes(n), f' are not ranked: {ranking.pairs.reason}.')
    if not any(ranking.successes[name, ''].successes for name in ranking.order):
        return paragraph(f'Of {among} in ', _episodes(n), ', no policy succeeded once: there is nothing to rank by.')
    best, *rest = [name for name in ranking.order if name not in ranking.apart]
    rmst = ranking.scores[best].macro['rmst_s']
    equal = [best, *(name for name in rest if _is_equal(rmst.value, ranking.scores[name].macro['rmst_s'].value))]
    has = 'has the shortest ' if len(equal) == 1 else 'have the same, shortest '
    pieces = [
        Words(f'Of {among} in '), _episodes(n),
        Words(', '), *listed(_shortened([policy_name(name) for name in equal])), Words(f' {has}'),
        Words('restricted mean time to success', 'rmst'), Words(', '), *_time(rmst),
        Words(f' with times capped at {ranking.tau_s:g} s'),
        *_relations(best, ranking.pairs, subject='it' if len(equal) == 1 else best), Words('.'),
    ]  # fmt: skip
    return paragraph(*pieces)


def _is_equal(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _time(rmst: Estimate) -> list[Words]:
    """A mean time and its interval; resampling what does not vary gives an interval of no width, which is none."""
    interval = rmst.percentile if rmst.percentile is not None and rmst.percentile.width > 0 else None
    return with_interval(rmst.value, interval, '.1f', 'rmst', unit=' s')


def _episodes(n: int) -> Words:
    return Words(plural(n, 'valid episode'), 'episode', None, n)


def _single_sentence(ranking: Ranking, policy: str) -> Paragraph:
    count, rmst = ranking.successes[policy, ''], ranking.scores[policy].macro['rmst_s']
    return paragraph(
        policy_name(policy), Words(' succeeded in '),
        Words(f'{count.successes} of {count.n}', 'success', {'policy': (policy,)}, count.rate),
        Words(f' valid episode{"" if count.n == 1 else "s"}, '),
        *with_interval(count.rate, count.interval, '.1f', 'success', unit=' %', scale=100), Words('; its '),
        Words('restricted mean time to success', 'rmst'), Words(' is '), *_time(rmst),
        Words(f' with times capped at {ranking.tau_s:g} s.'),
    )  # fmt: skip


def _relations(best: str, pairs: AllPairs, *, subject: str) -> list[Words]:
    """What the best-ranked policy is to each of the others."""
    groups: dict[str, list[Words]] = {}
    for c in pairs.comparisons:
        if best in (c.policy_a, c.policy_b):
            other = c.policy_b if c.policy_a == best else c.policy_a
            groups.setdefault(_relation(best, c), []).append(policy_name(other))
    pieces: list[Words] = []
    for phrase, names in groups.items():
        pieces += [Words(f'; {subject} '), Words(phrase, 'verdict'), Words(' '), *listed(_shortened(names))]
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
        pieces += [Words('; '), *_drop_pieces(report.robustness, report.options.alpha)]
    return paragraph(*pieces, Words('.'))


def _safety_pieces(safety: SafetyPart | Absent) -> list[Words]:
    if isinstance(safety, Absent):
        return [Words('Safety was not scored: '), Words(safety.reason)]
    cells = [c for c in safety.summary.cells if not c.is_auxiliary] or list(safety.summary.cells)
    several = len({c.benchmark for c in cells}) > 1
    safest = _most(cells, lambda c: c.safety)
    pieces = [Words('By the '), Words('safety specifications', 'safety'), Words(' ')]
    if len({c.policy for c in cells}) == 1 and not several:
        pieces += [*_named(safest, several), Words(' was safe')]
    elif len(safest) == len(cells):
        pieces.append(Words('all policies were equally often safe'))
    else:
        pieces += [*_named(safest, several), Words(' were' if len(safest) > 1 else ' was'), Words(' safe most often')]
    pieces += [Words(', in '), *_counted(safest, lambda c: c.safety, 'safety')]
    worst = _most(cells, lambda c: c.sbu)
    if not worst[0].sbu.count:
        return [*pieces, Words(', and no success was unsafe')]
    if len(cells) == 1:
        return [*pieces, Words('; '), Words('successes were unsafe', 'sbu'), Words(' in '),
                *_counted(worst, lambda c: c.sbu, 'sbu')]  # fmt: skip
    return [
        *pieces, Words('; '), Words('unsafe success', 'sbu'), Words(' was most frequent with '),
        *_named(worst, several), Words(', '), *_counted(worst, lambda c: c.sbu, 'sbu'),
    ]  # fmt: skip


def _most(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate]) -> list[CellSafety]:
    """Those with the highest rate, which several may share."""
    top = max(rate(c).count / c.n for c in cells)
    return [c for c in cells if rate(c).count / c.n == top]


def _named(cells: Sequence[CellSafety], several: bool) -> list[Words]:
    return listed(_shortened([_with_benchmark(c, several) for c in cells]))


def _with_benchmark(cell: CellSafety, several: bool) -> Words:
    shown = f'{cell.policy} ({cell.benchmark})' if several else cell.policy
    return Words(shown, episodes={'policy': (cell.policy,)})


def _counted(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate], definition: str) -> list[Words]:
    """`3 of 12 episodes`, of all these cells if their counts are the same, else the common share."""
    first = cells[0]
    found = rate(first)
    if len({c.n for c in cells}) > 1:
        return [Words(f'{100 * found.count / first.n:.0f} %', definition, None, found.value), Words(' of episodes')]
    each = ' each' if len(cells) > 1 else ''
    filter_ = {'policy': tuple(dict.fromkeys(c.policy for c in cells))}
    return [
        Words(f'{found.count} of {first.n}', definition, filter_, found.value),
        Words(f' episode{"" if first.n == 1 else "s"}{each}'),
    ]


def _drop_pieces(part: RobustnessPart, alpha: float) -> list[Words]:
    assert not isinstance(part.drops, Absent)
    resolved = [d for d in part.drops if d.is_resolved(alpha) and d.success_drop > 0]
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
    if open_ and not ranking.pairs.is_resolvable:
        return _coarse_sentence(ranking.pairs)
    if not open_:
        won = sum(c.verdict is Verdict.BETTER for c in comparisons)
        tail = f'{won} with a winner: different is not yet better'
        if won == len(comparisons):
            tail = 'with a winner' if won == 1 else 'each with a winner'
        all_ = 'the only pair' if len(comparisons) == 1 else f'all {total}'
        return paragraph(f'The data resolve {all_} after ', Words("Holm's correction", 'holm'), f', {tail}.')
    pieces = [Words(f'The data do not resolve {len(open_)} of {total} at this number of episodes: ')]
    if all(c.needed is None for c in open_):
        return paragraph(f'The data do not resolve {len(open_)} of {total}, and {_unplanned(open_)}.')
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


def _coarse_sentence(pairs: AllPairs) -> Paragraph:
    """Too few permutations for any pair: the resolution of the test, not that of the data."""
    total, finest = plural(len(pairs.comparisons), 'pair'), 1 / (pairs.n_resamples + 1)
    return paragraph(
        f'{plural(pairs.n_resamples, "permutation")} can not resolve any of {total}: no p-value is below {finest:.2g}, '
        'and ', Words("Holm's correction", 'holm'), f' wants one up to {pairs.alpha / len(pairs.comparisons):.2g}; '
        f'ask for more with --resamples {pairs.fewest_resamples}.',
    )  # fmt: skip


def _unplanned(open_: Sequence[TimingComparison]) -> str:
    least = min(min(c.ks.n_episodes) // max(1, len(c.ks.per_stratum)) for c in open_)
    if least < FEWEST_FOR_PLANNING:
        return f'{plural(least, "episode")} a cell {"is" if least == 1 else "are"} too few to plan from'
    return 'they do not say how many episodes would'


def _count_a_cell(c: TimingComparison) -> int:
    return round(max(c.ks.n_episodes) / max(1, len(c.ks.per_stratum)))


def _episodes_a_cell(c: TimingComparison) -> str:
    return f'{plural(_count_a_cell(c), "episode")} a cell'
