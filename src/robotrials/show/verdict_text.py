"""Verdicts in sentences, written once: a pair of policies on one endpoint, its design, letters, and what is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.show.document import Words
from robotrials.show.phrase import number, plural, policy_name
from robotrials.show.table import cell_text
from robotrials.stats import Interval, Verdict
from robotrials.verdict.analysis import Absent, EndpointPairs, PairVerdict, TimeComparison
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

ENDPOINT_NAMES = {
    EndpointName.TIME: 'time to success', EndpointName.SUCCESS: 'episode success',
    EndpointName.THROUGHPUT: 'items per hour', EndpointName.SCORE: 'score', EndpointName.SAFETY: 'safety',
}  # fmt: skip
LEAST_P = 0.0001  # smaller ones are told as such
CORRECTIONS = {Correction.HOLM: 'Holm', Correction.BONFERRONI: 'Bonferroni'}


def endpoint_name(endpoint: EndpointName) -> str:
    """What an endpoint is called in sentences and headings."""
    return ENDPOINT_NAMES[endpoint]


def pair_words(
    pair: PairVerdict, found: EndpointPairs, *, n_strata: int, time: TimeComparison | None = None
) -> list[Words]:
    """One verdict as a sentence, ending in a full stop; `time` is the whole comparison of times of the same pair.

    A winner is told from its own side; anything else from the side of `pair.policy_a`.
    """
    told = pair.seen_from(pair.better) if pair.better else pair
    kept = time if pair.endpoint in (EndpointName.TIME, EndpointName.THROUGHPUT) else None
    before = [] if pair.is_confirmatory else [Words('Exploratory: ')]
    if told.withheld:
        return [*before, *_withheld(told)]
    say = {
        Verdict.BETTER: _better, Verdict.DEPENDS: _depends, Verdict.SAME: _same, Verdict.CROSSING: _crossing,
        Verdict.DIRECTION_UNRESOLVED: _direction, Verdict.UNRESOLVED: _unresolved,
    }[told.verdict]  # fmt: skip
    return [*before, *say(told, found, n_strata, kept), Words('.')]


def pair_sentence(pair: PairVerdict, found: EndpointPairs, *, n_strata: int, time: TimeComparison | None = None) -> str:
    """`pair_words` as plain text."""
    return ''.join(w.text for w in pair_words(pair, found, n_strata=n_strata, time=time))


def short_verdict(pair: PairVerdict) -> str:
    """The verdict in a cell of a table: `a better`, `depends on the stratum`, `not significantly different`."""
    if pair.withheld:
        return 'withheld'
    if pair.better:
        return f'{pair.better} better'
    return 'not significantly different' if pair.verdict is Verdict.UNRESOLVED else pair.verdict.value


def design_sentence(pair: PairVerdict) -> str:
    """Whether the pair was compared paired or as independent arms, by which test, and what was left out."""
    a, b = pair.n_units
    if not pair.is_paired:
        each = plural(a, pair.unit) + ' each' if a == b else f'{a:,} and {b:,} {pair.unit}s'
        return f'Independent arms ({each}); {pair.test}.'
    left = ''
    if any(pair.n_left_out):
        left = f'; {pair.n_left_out[0]} and {pair.n_left_out[1]} episodes without a partner were left out'
    return f'Paired by {pair.unit} ({plural(a, f"matched {pair.unit}")}); {pair.test}{left}.'


def design_text(pairs: Sequence[PairVerdict]) -> str:
    """The design of all pairs in one sentence; where they differ, how many are paired."""
    if not pairs:
        return ''
    tests = ', '.join(dict.fromkeys(p.test for p in pairs))
    n_paired = sum(p.is_paired for p in pairs)
    if n_paired == len(pairs):
        return f'Paired by {pairs[0].unit}; {tests}.'
    if n_paired == 0:
        return f'Independent arms; {tests}.'
    return f'{n_paired} of {plural(len(pairs), "pair")} are paired by start state, the others independent; {tests}.'


def letters_sentence(found: EndpointPairs, policies: Sequence[str] | None = None) -> str:
    """Who shares a letter with whom, of the policies shown."""
    shown = [p for p in found.policies if policies is None or p in policies]
    letters = ', '.join(f'{p} {found.letters[p]}' for p in shown)
    return (
        f'Policies sharing a letter are not significantly different in {endpoint_name(found.endpoint)} '
        f'(alpha = {found.alpha:g}{_correction_text(found, lead=", ")}): {letters}.'
    )


def needed_words(pair: PairVerdict) -> list[Words]:
    """What the observed difference would need; empty where nothing was worked out."""
    needed = pair.needed
    if needed is None:
        return []
    power, unit = f'{100 * needed.power:.0f} % power', f'{pair.unit}s per cell'
    if math.isinf(needed.n):
        least = '' if not math.isfinite(needed.low) else f', and at least {needed.low:.0f} {unit} would be needed'
        return [Words(f'no number of {pair.unit}s gives {power} for the difference that was observed{least}')]
    told = [Words('about '), Words(f'{needed.n:.0f}', 'needed', value=needed.n), Words(f' {unit} for {power} if ')]
    told.append(Words('the difference is what was observed'))
    if needed.low > 0 and math.isfinite(needed.low):
        told += [Words(', at least '), Words(f'{needed.low:.0f}', 'needed', value=needed.low)]
    return told


def needed_sentence(pair: PairVerdict) -> str:
    """`needed_words` as plain text."""
    return ''.join(w.text for w in needed_words(pair))


# --- the verdicts


def _better(
    pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None
) -> list[Words]:  # fmt: skip
    told = [policy_name(pair.policy_a), Words(' is better than '), policy_name(pair.policy_b)]
    told += [Words(f'{_aspect(pair)}{_over(n_strata)} (difference '), *_difference(pair), *_p_values(pair, found)]
    told.append(Words(')'))
    return [*told, *_reversed_words(pair)]


def _depends(pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None) -> list[Words]:
    told = [Words('Which of '), policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    told += [Words(f' is better{_aspect(pair)} depends on the stratum (difference ')]
    told += [*_difference(pair), Words(_over(n_strata))]
    if time is not None and time.p_reversal is not None:
        over = f' corrected over {time.n_pairs} pairs' if time.n_pairs > 1 else ''
        told += [Words('; reversal p '), _p(time.p_reversal), Words(over)]
    told.append(Words(')'))
    return [*told, *_reversed_words(pair)]


def _same(pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None) -> list[Words]:
    margin = '' if time is None or time.margin is None else f' within {plain(time.margin)} s'
    told = [policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    told += [Words(f' are the same{margin} (difference '), *_difference(pair), Words(_over(n_strata))]
    if time is not None and time.p_same is not None:
        told += [Words(', equivalence p '), _p(time.p_same), Words(_after(found))]
    return [*told, Words(')')]


def _crossing(pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None) -> list[Words]:
    told = _different(pair, found, time)
    if time is None:
        return told
    ahead, behind = time.crossing_text
    first, second = policy_name(time.policy_a), policy_name(time.policy_b)
    return [*told, Words(', and they cross: '), first, Words(f' is ahead by {ahead}, '), second, Words(f' by {behind}')]


def _direction(pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None) -> list[Words]:
    told = _different(pair, found, time)
    told += [Words('; which is better is unresolved (difference '), *_difference(pair)]
    return [*told, Words(_over(n_strata)), *_p_values(pair, found), Words(')')]


def _different(pair: PairVerdict, found: EndpointPairs, time: TimeComparison | None) -> list[Words]:
    told = [Words('The times of '), policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    told.append(Words(' differ'))
    if time is None or isinstance(time.ks, Absent):
        return told
    told += [Words(' (macro KS '), number(time.ks.statistic, '.3f', 'macro-ks'), Words(', p '), _p(time.ks.p_value)]
    if time.p_different is not None and time.n_pairs > 1:
        told += [Words(', '), _bare(time.p_different), Words(_after(found))]
    return [*told, Words(')')]


def _unresolved(pair: PairVerdict, found: EndpointPairs, n_strata: int, time: TimeComparison | None) -> list[Words]:
    told = [policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    told += [Words(f' are not significantly different{_aspect(pair)} at this N (difference ')]
    told += [*_difference(pair), Words(_over(n_strata)), *_p_values(pair, found), Words(')')]
    needed = needed_words(pair)
    return [*told, Words('; '), *needed] if needed else told


def _withheld(pair: PairVerdict) -> list[Words]:
    told = [policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    told.append(Words(f' cannot be compared in {endpoint_name(pair.endpoint)}: {pair.withheld} (observed difference '))
    return [*told, *_difference(pair), Words(').')]


# --- pieces


def plain(value: float) -> str:
    """Three significant digits, and never an exponent for a large number."""
    return f'{value:.0f}' if abs(value) >= 1000 else f'{value + 0.0:.3g}'


def _difference(pair: PairVerdict) -> list[Words]:
    return _span(pair.difference, pair.interval, pair)


def _span(value: float, interval: Interval | None, pair: PairVerdict) -> list[Words]:
    scale = 1.0 if pair.unit_text == 's' else 100.0
    told = [Words(f'{plain(scale * value)} {pair.unit_text}', 'advantage', value=scale * value)]
    if interval is not None:
        low, high = (Words(plain(scale * end), 'interval', value=scale * end) for end in interval)
        told += [Words(' ['), low, Words(', '), high, Words(']')]
    return told


def _p_values(pair: PairVerdict, found: EndpointPairs) -> list[Words]:
    if pair.p_value is None:
        return []
    told = [Words(', p '), _p(pair.p_value)]
    if pair.p_corrected is not None and found.n_tests > 1 and found.correction is not Correction.NONE:
        told += [Words(', '), _bare(pair.p_corrected), Words(_after(found))]
    return told


def _p(value: float) -> Words:
    return Words(f'= {cell_text(value, ".2g")}' if value >= LEAST_P else f'< {LEAST_P:.4f}', value=value)


def _bare(value: float) -> Words:
    """The corrected value behind `p = 0.004,`."""
    return Words(cell_text(value, '.2g') if value >= LEAST_P else f'< {LEAST_P:.4f}', 'holm', value=value)


def _after(found: EndpointPairs) -> str:
    return _correction_text(found, lead=' after ')


def _correction_text(found: EndpointPairs, *, lead: str) -> str:
    if found.n_tests < 2 or found.correction is Correction.NONE:
        return ''
    n_pairs = len(found.policies) * (len(found.policies) - 1) // 2
    over = plural(n_pairs, 'pair') if n_pairs == found.n_tests else plural(found.n_tests, 'test')
    return f'{lead}{CORRECTIONS[found.correction]} over {over}'


def _aspect(pair: PairVerdict) -> str:
    return '' if pair.endpoint is EndpointName.TIME else f' in {endpoint_name(pair.endpoint)}'


def _over(n_strata: int) -> str:
    return '' if n_strata < 2 else f' on average over these {n_strata} strata'


def _reversed_words(pair: PairVerdict) -> list[Words]:
    if not pair.reversed:
        return []
    told: list[Words] = []
    for place, stratum in enumerate(pair.reversed):
        joint = '; in ' if place == 0 else ', in '
        told += [
            Words(f'{joint}{stratum.stratum} the order is reversed (' if place == 0 else f'{joint}{stratum.stratum} (')
        ]
        told += [*_span(stratum.difference, stratum.interval, pair), Words(')')]
    return told
