"""The verdict of a report: who is better, what trades off, who leads on what, was it safe, what is not resolved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from robotrials.show.answer import pooled
from robotrials.show.document import Paragraph, Words, paragraph
from robotrials.show.phrase import (
    claim_words,
    decision_words,
    endpoint_name,
    joined,
    listed,
    number,
    percent,
    plural,
    policy_name,
    with_interval,
)
from robotrials.stats import Estimate
from robotrials.stats.dominance import PairDecision
from robotrials.stats.dominance import PairVerdict as Overall
from robotrials.verdict.analysis import Absent, RobustnessPart
from robotrials.verdict.analysis.endpoint_pairs import Standing
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.safety.summary import CellSafety
    from robotrials.stats import Rate
    from robotrials.verdict.analysis import (
        Analysis,
        ComparisonFrame,
        Comparisons,
        EndpointPairs,
        EndpointVerdict,
        SafetyPart,
    )
    from robotrials.verdict.analysis.ranking import TwoStories

MOST_NAMED = 3
MOST_DECISIONS = 4
MOST_TRADE_OFFS = 2
TIMED = (EndpointName.TIME, EndpointName.THROUGHPUT)
SAID_OF_PAIRS = {  # of one pair, and of several
    Overall.BETTER: ('has a winner', 'have a winner'), Overall.TRADE_OFF: ('is a trade-off', 'are trade-offs'),
    Overall.DEPENDS: ('depends on the stratum', 'depend on the stratum'),
    Overall.SAME: ('is the same within the declared margins', 'are the same within the declared margins'),
}  # fmt: skip


def lead(analysis: Analysis) -> tuple[Paragraph, ...]:
    """The verdict in a few sentences, the primary endpoint first."""
    paragraphs: list[Paragraph] = []
    if analysis.quality.is_open:
        codes = 'policies stand under codes, and ' if analysis.quality.is_blinded else ''
        paragraphs.append(paragraph(f'This trial is not closed: {codes}what follows is an interim look.'))
    frame = analysis.frame
    if isinstance(frame, Absent):
        return (*paragraphs, paragraph(f'Nothing can be ranked: {frame.reason}.'), _cost_sentence(analysis))
    paragraphs += [*_trade_offs(analysis), *_winners(analysis)]
    paragraphs += [_first_sentence(analysis, frame), *_readings(analysis), *_other_endpoints(analysis, frame)]
    paragraphs += [*_decisions(analysis, Overall.DEPENDS), *_decisions(analysis, Overall.SAME)]
    if not isinstance(analysis.stories, Absent):
        paragraphs += story_paragraphs(analysis.stories, analysis)
    paragraphs.append(_cost_sentence(analysis))
    if not isinstance(analysis.pairs, Absent):
        paragraphs.append(_resolution_sentence(analysis, len(frame.strata)))
    return tuple(paragraphs)


def lead_sentences(analysis: Analysis, policies: Sequence[str] = ()) -> list[str]:
    """Who leads on each endpoint, for a card; of some policies only what is said of the single one."""
    frame = analysis.frame
    if isinstance(frame, Absent):
        return [f'Nothing can be ranked: {frame.reason}.']
    if len(policies) == 1:
        return [_single_sentence(analysis, policies[0]).text] if not isinstance(analysis.success, Absent) else []
    if policies:
        return []
    return [_first_sentence(analysis, frame).text, *(p.text for p in _other_endpoints(analysis, frame))]


def _first_sentence(analysis: Analysis, frame: ComparisonFrame) -> Paragraph:
    """Who is ahead on the primary endpoint, or why nobody is."""
    n = sum(len(group) for p in frame.everyone for group in frame.cells[p].values())
    if len(frame.everyone) == 1 or (len(frame.policies) == 1 and not frame.apart):
        return _single_sentence(analysis, (frame.policies or frame.everyone)[0])
    among = f'{plural(len(frame.policies) + len(frame.apart), "policy")}{" and a reference" if frame.reference else ""}'
    if isinstance(analysis.pairs, Absent):
        return paragraph(f'The {among} in ', _episodes(n), f' are not ranked: {analysis.pairs.reason}.')
    leading, endpoint = analysis.pairs.lead, analysis.primary[0]
    if isinstance(leading, Absent):
        return paragraph(
            f'The primary endpoint of {among} in ', _episodes(n),
            f', {endpoint_name(endpoint)}, cannot be judged: {leading.reason}.',
        )  # fmt: skip
    if not any(_successes(analysis, policy) for policy in leading.policies):
        return paragraph(f'Of {among} in ', _episodes(n), ', no policy succeeded once: there is nothing to rank by.')
    best = leading.policies[0]
    values = {p: _endpoint_value(analysis, endpoint, p) for p in leading.policies}
    equal = [p for p in leading.policies if _is_equal(values[best].value, values[p].value)]
    return paragraph(
        Words(f'Of {among} in '), _episodes(n), Words(', '), *listed(_shortened([policy_name(p) for p in equal])),
        *_standing(analysis, endpoint, values[best], several=len(equal) > 1),
        *_relations(best, leading, subject='it' if len(equal) == 1 else best), Words('.'),
    )  # fmt: skip


def _standing(analysis: Analysis, endpoint: EndpointName, value: Estimate, *, several: bool) -> list[Words]:
    """What the best policy has, in the words of the endpoint."""
    has = ' have the same, ' if several else ' has the '
    if endpoint in TIMED:
        assert not isinstance(analysis.times, Absent)
        return [
            Words(f'{has}shortest '), Words('restricted mean time to success', 'rmst'), Words(', '),
            *with_interval(value.value, value.interval, '.1f', 'rmst', unit=' s'),
            Words(f', with times capped at {analysis.times.tau_text}'),
        ]  # fmt: skip
    if endpoint is EndpointName.LOST:
        return [Words(' lose the same, fewest items' if several else ' loses the fewest items')]
    keys = {EndpointName.SUCCESS: 'success', EndpointName.SAFETY: 'safety', EndpointName.SCORE: 'score'}
    names = {EndpointName.SUCCESS: 'episode success', EndpointName.SAFETY: 'share of safe episodes'}
    return [
        Words(f'{has}highest '), Words(names.get(endpoint, 'mean score'), keys[endpoint]),
        *([Words(', '), *with_interval(value.value, value.interval, '.1f', keys[endpoint], unit=' %', scale=100)]
          if value.value is not None else []),
    ]  # fmt: skip


def _endpoint_value(analysis: Analysis, endpoint: EndpointName, policy: str) -> Estimate:
    """The number that a policy is ranked by; without a value where the analysis gives only pairs."""
    if endpoint in TIMED and not isinstance(analysis.ranking, Absent):
        return analysis.ranking.means_s[policy]
    if endpoint is EndpointName.SUCCESS and not isinstance(analysis.success, Absent):
        return analysis.success.macro[policy]
    if endpoint is EndpointName.SAFETY and not isinstance(analysis.safety, Absent):
        own = [c for c in analysis.safety.summary.cells if c.policy == policy and not c.is_auxiliary]
        if own:
            rate = pooled(own, lambda c: c.safety)
            return Estimate(rate.value, rate.interval)
    return Estimate(None, note=policy)


def _successes(analysis: Analysis, policy: str) -> int:
    return 0 if isinstance(analysis.success, Absent) else analysis.success.counts[policy, ALL_STRATA].count


def _is_equal(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _episodes(n: int) -> Words:
    return Words(plural(n, 'valid episode'), 'episode', None, n)


def _single_sentence(analysis: Analysis, policy: str) -> Paragraph:
    assert not isinstance(analysis.success, Absent)
    count = analysis.success.counts[policy, ALL_STRATA]
    pieces = [
        policy_name(policy), Words(' succeeded in '),
        Words(f'{count.count} of {count.n}', 'success', {'policy': (policy,)}, count.value),
        Words(f' valid episode{"" if count.n == 1 else "s"}, '),
        *with_interval(count.value, count.interval, '.1f', 'success', unit=' %', scale=100),
    ]  # fmt: skip
    if isinstance(analysis.ranking, Absent):
        return paragraph(*pieces, f'; there are no times: {analysis.ranking.reason}.')
    rmst = analysis.ranking.means_s[policy]
    return paragraph(
        *pieces, Words('; its '), Words('restricted mean time to success', 'rmst'), Words(' is '),
        *with_interval(rmst.value, rmst.interval, '.1f', 'rmst', unit=' s'),
        Words(f', with times capped at {analysis.ranking.times.tau_text}.'),
    )  # fmt: skip


def _relations(best: str, endpoint: EndpointPairs, *, subject: str) -> list[Words]:
    """What the policy that leads on an endpoint is to each of the others on it."""
    groups: dict[str, list[Words]] = {}
    for other in endpoint.policies:
        if other != best:
            groups.setdefault(_relation(best, endpoint.pair(best, other)), []).append(policy_name(other))
    pieces: list[Words] = []
    for phrase, names in groups.items():
        pieces += [Words(f'; {subject} '), Words(phrase, 'verdict'), Words(' '), *listed(_shortened(names))]
    return pieces


def _relation(best: str, pair: EndpointVerdict) -> str:
    if pair.withheld:
        return 'cannot be compared yet with'
    if pair.standing is Standing.AHEAD:
        average = ' on average' if pair.reversed else ''
        return f'{claim_words(pair.endpoint)}{average} than' if pair.ahead == best else _turned(pair.endpoint, average)
    return {
        Standing.DEPENDS: 'is, depending on the stratum, ahead of or behind',
        Standing.SAME: 'is the same, within the margin, as',
        Standing.UNRESOLVED: 'is not significantly different from',
    }[pair.standing]


def _turned(endpoint: EndpointName, average: str) -> str:
    words = {
        EndpointName.SUCCESS: 'succeeds less often', EndpointName.SAFETY: 'is less safe',
        EndpointName.SCORE: 'scores lower', EndpointName.LOST: 'loses more items',
    }  # fmt: skip
    return f'{words.get(endpoint, "is slower")}{average} than'


def _decisions(analysis: Analysis, kind: Overall) -> list[Paragraph]:
    """Pairs over all primary endpoints of which one kind of thing is said."""
    pairs = analysis.pairs
    if isinstance(pairs, Absent) or len(pairs.tested) < 2:
        return []
    own = [d for d in pairs.decisions if d.verdict is kind and not (kind is Overall.DEPENDS and _is_told(pairs, d))]
    said = [paragraph(*decision_words(pairs, *d.pair)) for d in own[:MOST_DECISIONS]]
    if len(own) > MOST_DECISIONS:
        rest = plural(len(own) - MOST_DECISIONS, 'further pair')
        said.append(paragraph(f'{rest}: {kind.value}; the table has each.'))
    return said


def _is_told(pairs: Comparisons, decided: PairDecision) -> bool:
    """Whether each endpoint on which a pair depends on the stratum is led by one of the two, whose sentence says so."""
    turned = [e for e in pairs.tested if e.pair(*decided.pair).standing is Standing.DEPENDS]
    return all(e.policies[0] in decided.pair for e in turned)


def _trade_offs(analysis: Analysis) -> list[Paragraph]:
    """Pairs of which each side is ahead on something, in one paragraph; those with a leading policy come first."""
    pairs = analysis.pairs
    if isinstance(pairs, Absent) or len(pairs.tested) < 2:
        return []
    own = [d for d in pairs.decisions if d.verdict is Overall.TRADE_OFF]
    best = pairs.tested[0].policies[0]
    own.sort(key=lambda d: best not in d.pair)
    pieces: list[Words] = []
    for place, decided in enumerate(own[:MOST_TRADE_OFFS]):
        pieces += [Words(' ' if place else ''), *decision_words(pairs, *decided.pair)]
    if len(own) > MOST_TRADE_OFFS:
        more = len(own) - MOST_TRADE_OFFS
        pieces.append(Words(f' So {"is" if more == 1 else "are"} {plural(more, "further pair")}.'))
    return [paragraph(*pieces)] if pieces else []


def _winners(analysis: Analysis) -> list[Paragraph]:
    """Who is better than whom over all primary endpoints, in one sentence; equal winners stand together."""
    pairs = analysis.pairs
    if isinstance(pairs, Absent) or len(pairs.tested) < 2:
        return []
    beaten: dict[str, list[str]] = {}
    for decided in pairs.decisions:
        if decided.winner is not None:
            beaten.setdefault(decided.winner, []).append(next(p for p in decided.pair if p != decided.winner))
    if not beaten:
        return []
    if len(beaten) == 1 and len(next(iter(beaten.values()))) == 1:
        (winner, (loser,)) = next(iter(beaten.items()))
        return [paragraph(*decision_words(pairs, winner, loser))]
    together: dict[tuple[str, ...], list[str]] = {}
    for winner, losers in beaten.items():
        together.setdefault(tuple(losers), []).append(winner)
    pieces: list[Words] = [Words(f'Over {joined([endpoint_name(e.endpoint) for e in pairs.tested])} together, ')]
    for place, (others, winners) in enumerate(together.items()):
        pieces += [Words('; ' if place else ''), *listed(_shortened([policy_name(name) for name in winners]))]
        pieces.append(Words(' is better than ' if len(winners) == 1 else ' are each better than '))
        pieces += listed(_shortened([policy_name(name) for name in others]))
    return [paragraph(*pieces, Words('.'))]


def _readings(analysis: Analysis) -> list[Paragraph]:
    """Both readings of invalid episodes, where counting them as failures would change a verdict or an order."""
    readings = None if isinstance(analysis.pairs, Absent) else analysis.pairs.readings
    if readings is None or not readings.matters:
        return []
    assert not isinstance(analysis.pairs, Absent)
    pieces: list[Words] = []
    for place, (policy, n) in enumerate(readings.n_invalid.items()):
        pieces += [Words('; ' if place else ''), policy_name(policy), Words(f' has {plural(n, "invalid episode")}')]
        low, high = readings.bounds[policy]
        pieces.append(
            Words(f' (success between {100 * low:.1f} and {100 * high:.1f} %, whichever way they would have ended)')
        )
    why = f', recorded as: {", ".join(readings.reasons[:MOST_NAMED])}' if readings.reasons else ''
    them = 'it' if sum(readings.n_invalid.values()) == 1 else 'them'
    order = ', '.join(readings.order)
    pieces.append(Words(f'{why}. Leaving {them} out, as here, puts {order} in that order by episode success'))
    if readings.order != readings.order_counted:
        pieces.append(Words(f'; counting {them} as failures, {", ".join(readings.order_counted)}'))
    pieces.append(Words('.'))
    said = [paragraph(*pieces)]
    for before, after in readings.turned[:MOST_DECISIONS]:
        words = (
            f'The verdict on {after.pair[0]} and {after.pair[1]} hangs on this choice: {_verdict_words(before)} with '
        )
        said.append(paragraph(f'{words}{them} left out, {_verdict_words(after)} with {them} counted as failures.'))
    return said


def _verdict_words(decided: PairDecision) -> str:
    return f'{decided.winner} is better' if decided.winner else decided.verdict.value


def _shortened(names: list[Words]) -> list[Words]:
    if len(names) <= MOST_NAMED + 1:
        return names
    return [*names[:MOST_NAMED], Words(f'{len(names) - MOST_NAMED} more')]


def _other_endpoints(analysis: Analysis, frame: ComparisonFrame) -> list[Paragraph]:
    """Who leads on each further primary endpoint, and success where another one leads and it is no primary one."""
    pairs = analysis.pairs
    if isinstance(pairs, Absent):
        return []
    parts = []
    for endpoint in pairs.tested:
        if endpoint.endpoint is pairs.primary[0]:
            continue
        best = endpoint.policies[0]
        values = {p: _endpoint_value(analysis, endpoint.endpoint, p) for p in endpoint.policies}
        equal = [p for p in endpoint.policies if _is_equal(values[best].value, values[p].value)]
        if values[best].value is None:
            equal = [best]
        parts.append(
            paragraph(
                *listed(_shortened([policy_name(p) for p in equal])),
                *_standing(analysis, endpoint.endpoint, values[best], several=len(equal) > 1),
                *_relations(best, endpoint, subject='it' if len(equal) == 1 else best), Words('.'),
            )
        )  # fmt: skip
    rates = analysis.success
    if EndpointName.SUCCESS in analysis.primary or isinstance(rates, Absent):
        return parts
    order = sorted(frame.policies, key=lambda p: (-(rates.macro[p].value or 0.0), p))
    top = rates.macro[order[0]]
    if not top.value:
        return parts
    equal = [p for p in order if _is_equal(top.value, rates.macro[p].value)]
    return [
        *parts,
        paragraph(
            Words('Episode success', 'success'), Words(' is highest with '),
            *listed(_shortened([policy_name(p) for p in equal])), Words(', '),
            *with_interval(top.value, top.interval, '.1f', 'success', unit=' %', scale=100), Words('.'),
        ),
    ]  # fmt: skip


def _cost_sentence(analysis: Analysis) -> Paragraph:
    pairs = analysis.pairs
    is_led = not isinstance(pairs, Absent) and any(e.endpoint is EndpointName.SAFETY for e in pairs.tested)
    pieces = _safety_pieces(analysis.safety, is_led=is_led)
    if isinstance(analysis.robustness, RobustnessPart) and not isinstance(analysis.robustness.drops, Absent):
        pieces += [Words('; '), *_drop_pieces(analysis.robustness, analysis.plan.alpha)]
    return paragraph(*pieces, Words('.'))


def _safety_pieces(safety: SafetyPart | Absent, *, is_led: bool) -> list[Words]:
    """Who was safe, and who succeeded unsafely; only the latter where a sentence on safety as an endpoint stands."""
    if isinstance(safety, Absent):
        return [Words('Safety was not scored: '), Words(safety.reason)]
    cells = [c for c in safety.summary.cells if not c.is_auxiliary] or list(safety.summary.cells)
    several = len({c.benchmark for c in cells}) > 1
    worst = _most(cells, lambda c: c.sbu)
    parts = [] if is_led else [*_safest_pieces(cells, several=several), Words('; ' if worst[0].sbu.count else ', and ')]
    if not worst[0].sbu.count:
        return [*parts, Words('No success was unsafe' if is_led else 'no success was unsafe')]
    if len(cells) == 1:
        return [*parts, Words('successes were unsafe', 'sbu'), Words(' in '), *_counted(worst, lambda c: c.sbu, 'sbu')]
    return [
        *parts, Words('Unsafe success' if is_led else 'unsafe success', 'sbu'), Words(' was most frequent with '),
        *_named(worst, several), Words(', '), *_counted(worst, lambda c: c.sbu, 'sbu'),
    ]  # fmt: skip


def _safest_pieces(cells: Sequence[CellSafety], *, several: bool) -> list[Words]:
    safest = _most(cells, lambda c: c.safety)
    pieces = [Words('By the '), Words('safety specifications', 'safety'), Words(' ')]
    if len({c.policy for c in cells}) == 1 and not several:
        pieces += [*_named(safest, several), Words(' was safe')]
    elif len(safest) == len(cells):
        pieces.append(Words('all policies were equally often safe'))
    else:
        pieces += [*_named(safest, several), Words(' were' if len(safest) > 1 else ' was'), Words(' safe most often')]
    return [*pieces, Words(', in '), *_counted(safest, lambda c: c.safety, 'safety')]


def _most(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate]) -> list[CellSafety]:
    """Those with the highest rate, which several may share."""
    top = max(rate(c).count / c.n for c in cells)
    return [c for c in cells if rate(c).count / c.n == top]


def _named(cells: Sequence[CellSafety], several: bool) -> list[Words]:
    texts = [f'{c.policy} ({c.benchmark})' if several else c.policy for c in cells]
    names = [Words(text, episodes={'policy': (c.policy,)}) for text, c in zip(texts, cells, strict=True)]
    return listed(_shortened(names))


def _counted(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate], definition: str) -> list[Words]:
    """`3 of 12 episodes`, of all these cells if their counts are the same, else the common share."""
    first = cells[0]
    value = rate(first)
    if len({c.n for c in cells}) > 1:
        return [Words(f'{100 * value.count / first.n:.0f} %', definition, None, value.value), Words(' of episodes')]
    each = ' each' if len(cells) > 1 else ''
    filter_ = {'policy': tuple(dict.fromkeys(c.policy for c in cells))}
    return [
        Words(f'{value.count} of {first.n}', definition, filter_, value.value),
        Words(f' episode{"" if first.n == 1 else "s"}{each}'),
    ]


def _drop_pieces(part: RobustnessPart, alpha: float) -> list[Words]:
    assert not isinstance(part.drops, Absent)
    resolved = [d for d in part.drops if d.is_resolved(alpha) and d.success_drop > 0]
    total = plural(len(part.drops), 'comparison')
    if not resolved:
        return [Words(f'no changed condition cost episode success beyond chance in {total} after Holm')]
    worst = max(resolved, key=lambda d: d.success_drop)
    return [
        Words(f'changed conditions cost episode success in {len(resolved)} of {total}, most of all '),
        policy_name(worst.policy), Words(f' under {worst.condition}: '),
        *with_interval(worst.success_drop, worst.success_interval, '.0f', 'drop', unit=' points', scale=100),
    ]  # fmt: skip


def _resolution_sentence(analysis: Analysis, n_strata: int) -> Paragraph:
    """Which pairs are not resolved on any primary endpoint, and what a claim would take."""
    assert not isinstance(analysis.pairs, Absent)
    pairs = analysis.pairs
    if not pairs.tested:
        first = next(e for e in pairs.endpoints.values() if isinstance(e, Absent))
        return paragraph(f'No policies are compared: {first.reason}.')
    total = plural(len(pairs.decisions), 'pair')
    open_ = [d for d in pairs.decisions if d.verdict is Overall.UNRESOLVED]
    if not open_:
        return paragraph(_tally(pairs.decisions))
    pieces = [Words(f'{len(open_)} of {total} {"is" if len(open_) == 1 else "are"} not resolved: ')]
    if len(pairs.decisions) == 1:
        pieces = [Words('The only pair is not resolved: ')]

    def n_needed(pair: EndpointVerdict) -> float:
        return math.inf if pair.needed is None else pair.needed.n

    # Of each pair, the endpoint on which it is nearest to a claim.
    asked = sorted((min((e.pair(*d.pair) for e in pairs.tested), key=n_needed) for d in open_), key=n_needed)
    for place, pair in enumerate(asked[:MOST_NAMED]):
        joint = '' if place == 0 else '; '
        pieces += [Words(joint), policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
        pieces += _needed(pair, n_strata)
    if len(asked) > MOST_NAMED:
        pieces.append(Words(f'; and {len(asked) - MOST_NAMED} more'))
    fewest = ''
    if not isinstance(analysis.price, Absent):
        fewest = f' Nothing can be claimed below {analysis.price.per_policy} {analysis.price.unit}s per policy.'
    return paragraph(*pieces, Words(f'.{fewest}'))


def _tally(decisions: Sequence[PairDecision]) -> str:
    """What became of the pairs where none is left open: only a winner makes a pair resolved."""
    kinds = Counter(d.verdict for d in decisions)
    if set(kinds) == {Overall.BETTER}:
        return (
            'The only pair is resolved: one policy is better.' if len(decisions) == 1
            else f'All {len(decisions)} pairs are resolved: in each, one policy is better.'
        )  # fmt: skip
    parts = [f'{kinds[kind]} {words[kinds[kind] > 1]}' for kind, words in SAID_OF_PAIRS.items() if kind in kinds]
    if len(parts) == 1:
        every = 'The only pair' if len(decisions) == 1 else f'All {len(decisions)} pairs'
        return f'{every} {parts[0].partition(" ")[2]}.'
    return f'Of {len(decisions)} pairs, {joined(parts)}.'


def _needed(pair: EndpointVerdict, n_strata: int) -> list[Words]:
    if pair.withheld:
        return [Words(f' ({pair.withheld})')]
    if pair.needed is None or math.isinf(pair.needed.n):
        return [Words(' (the observed difference is too small for any number of episodes to be planned)')]
    now = round(sum(pair.n_units) / (2 * n_strata))
    return [
        Words(' (about '), number(pair.needed.n, '.0f', 'needed'),
        Words(
            f' {pair.unit}s per cell for {100 * pair.needed.power:.0f} % power in {endpoint_name(pair.endpoint)}; '
            f'now {now:,})'
        ),
    ]  # fmt: skip


def story_paragraphs(stories: TwoStories, analysis: Analysis) -> list[Paragraph]:
    """A warning where operations done by tau and episode success tell different stories; nothing where they agree."""
    if not stories.is_divided or isinstance(analysis.times, Absent):
        return []
    tau = analysis.times.tau_text
    parts = []
    if stories.apart:
        pieces: list[Words] = [Words('Warning: operations done by tau and episode success tell different stories: ')]
        for place, policy in enumerate(stories.apart):
            pieces += [Words('; ') if place else Words(''), *_shares(policy, stories, tau)]
        parts.append(paragraph(*pieces, '.'))
    if stories.reversed:
        pairs = [f'{a} is ahead of {b} by operations done by tau, and behind by episode success'
                 for a, b in stories.reversed[:3]]  # fmt: skip
        more = f'; and {len(stories.reversed) - 3} more pairs' if len(stories.reversed) > 3 else ''
        parts.append(paragraph(f'Warning: the two orders disagree: {"; ".join(pairs)}{more}.'))
    return parts


def _shares(policy: str, stories: TwoStories, tau: str) -> list[Words]:
    done, success = stories.done[policy], stories.success[policy]
    return [
        *listed([policy_name(policy)]), Words(' has '),
        number(percent(done.value), '.0f', 'curve', unit=' %'),
        Words(f' of operations done by {tau} and '),
        number(percent(success.value), '.0f', 'success', unit=' %'),
        Words(' of episodes successful'),
    ]  # fmt: skip
