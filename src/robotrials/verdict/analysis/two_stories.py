"""Where operations done by tau and episode success tell different stories of the same policies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.stats import Estimate, Interval

if TYPE_CHECKING:
    from robotrials.verdict.analysis.ranking import Ranking
    from robotrials.verdict.analysis.success import Rates


@dataclass(frozen=True, slots=True)
class TwoStories:
    """Policies of which F(tau) and the episode success rate say different things; both empty: they agree.

    `apart` are policies whose two shares lie beyond each other's intervals. It is asked only where an episode is one
    operation: with several, an episode succeeds less often than an operation by definition. `reversed` are pairs that
    the two put in opposite orders, at least one of them beyond an interval.
    """

    done: Mapping[str, Estimate]  # macro F(tau): operations done by tau
    success: Mapping[str, Estimate]  # macro episode success
    apart: tuple[str, ...] = ()
    reversed: tuple[tuple[str, str], ...] = ()  # (ahead by F(tau), ahead by episode success)

    @property
    def is_divided(self) -> bool:
        return bool(self.apart or self.reversed)


def two_stories(ranking: Ranking, rates: Rates, *, single: Sequence[str]) -> TwoStories:
    """Compare the two shares of every ranked policy; `single` names those whose episodes are one operation each."""
    done = {p: _done(ranking.scores[p].macro['missing_at_tau']) for p in ranking.order}
    success = {p: rates.macro[p] for p in ranking.order}
    apart = tuple(p for p in ranking.order if p in single and _is_beyond(done[p], success[p]))
    return TwoStories(done, success, apart, tuple(_reversed(done, success, ranking.order)))


def _done(missing: Estimate) -> Estimate:
    """F(tau) from 1 - F(tau)."""
    if missing.value is None:
        return missing
    interval = None
    if missing.interval is not None:
        interval = Interval(1.0 - missing.interval.high, 1.0 - missing.interval.low)
    return Estimate(1.0 - missing.value, interval, missing.note, n=missing.n)


def _is_beyond(a: Estimate, b: Estimate) -> bool:
    """Whether each value lies outside the other's interval; without intervals nothing is said."""
    return _is_outside(a, b) and _is_outside(b, a)


def _is_outside(value: Estimate, other: Estimate) -> bool:
    if value.value is None or other.interval is None:
        return False
    return not other.interval.low <= value.value <= other.interval.high


def _reversed(
    done: Mapping[str, Estimate], success: Mapping[str, Estimate], policies: Sequence[str]
) -> list[tuple[str, str]]:
    found = []
    for a, b in itertools.combinations(policies, 2):
        gaps = [_gap(shares[a], shares[b]) for shares in (done, success)]
        is_clear = any(_is_beyond(shares[a], shares[b]) for shares in (done, success))
        if gaps[0] * gaps[1] < 0 and is_clear:
            found.append((a, b) if gaps[0] > 0 else (b, a))
    return found


def _gap(a: Estimate, b: Estimate) -> float:
    return 0.0 if a.value is None or b.value is None else a.value - b.value
