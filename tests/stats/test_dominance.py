"""One list of claims, and what it lets one say of every pair."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.stats import Claim, PairFlags, PairVerdict, holm, judge

AB = ('a', 'b')


def _claim(endpoint: str, p: float | None, favours: str | None, pair=AB) -> Claim:
    """One-sided p-values are half of the two-sided one on the favoured side."""
    worse = {'a': (1 - (p or 0) / 2, (p or 0) / 2), 'b': ((p or 0) / 2, 1 - (p or 0) / 2), None: (0.5, 0.5)}[favours]
    return Claim(pair, endpoint, p, favours, *worse)


def _verdict(*claims: Claim, **flags: bool):
    return judge(claims, flags={AB: PairFlags(**flags)}).of(AB)


def test_a_claim_without_one_against_it_is_better() -> None:
    found = _verdict(_claim('time', 0.001, 'b'), _claim('success', 0.9, 'b'))
    assert (found.verdict, found.winner, found.claims_for_b) == (PairVerdict.BETTER, 'b', ('time',))


def test_claims_on_both_sides_are_a_trade_off() -> None:
    found = _verdict(_claim('time', 0.001, 'a'), _claim('success', 0.002, 'b'))
    assert (found.verdict, found.winner) == (PairVerdict.TRADE_OFF, None)
    assert (found.claims_for_a, found.claims_for_b) == (('time',), ('success',))


@pytest.mark.parametrize(('p', 'verdict'), [(0.19, PairVerdict.TRADE_OFF), (0.21, PairVerdict.BETTER)])
def test_an_endpoint_that_looks_worse_vetoes(p: float, verdict: PairVerdict) -> None:
    """One-sided 0.10 is two-sided 0.20."""
    found = _verdict(_claim('time', 0.001, 'a'), _claim('success', p, 'b'))
    assert found.verdict is verdict
    assert found.vetoed_by == (('success',) if verdict is PairVerdict.TRADE_OFF else ())


def test_a_reversal_between_strata_goes_first_and_a_contradiction_names_no_winner() -> None:
    claims = _claim('time', 0.001, 'a'), _claim('success', 0.9, 'a')
    assert _verdict(*claims, reverses=True).verdict is PairVerdict.DEPENDS
    assert _verdict(*claims, contradicts=True).winner is None
    assert _verdict(*claims, contradicts=True).verdict is PairVerdict.TRADE_OFF


def test_the_same_is_said_only_without_a_claim() -> None:
    quiet = _claim('time', 0.6, 'a'), _claim('success', 0.9, 'a')
    assert _verdict(*quiet, is_same=True).verdict is PairVerdict.SAME
    assert _verdict(*quiet).verdict is PairVerdict.UNRESOLVED
    assert _verdict(_claim('time', 0.001, 'a'), is_same=True).verdict is PairVerdict.BETTER


def test_one_list_is_corrected_over_pairs_and_endpoints() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(6) * 0.05
    pairs = [('a', 'b'), ('a', 'c'), ('b', 'c')]
    claims = [
        _claim(e, float(p[2 * k + j]), 'a', pair)
        for k, pair in enumerate(pairs)
        for j, e in enumerate(('time', 'success'))
    ]
    found = judge(claims, alpha=0.05)
    assert [j.p_adjusted for j in found.claims] == pytest.approx(holm(p).tolist())
    assert [j.is_made for j in found.claims] == (holm(p) <= 0.05).tolist()
    assert judge(claims, correction='bonferroni').claims[0].p_adjusted == pytest.approx(min(1, 6 * p[0]))
    assert judge(claims, correction='none').claims[0].p_adjusted == pytest.approx(p[0])


def test_a_withheld_hypothesis_counts_but_claims_nothing() -> None:
    found = judge([_claim('time', None, 'a'), _claim('success', 0.03, 'a')])
    assert [j.p_adjusted for j in found.claims] == [None, pytest.approx(0.06)]
    assert found.of(AB).verdict is PairVerdict.UNRESOLVED


def test_what_is_not_a_list_of_hypotheses_is_refused() -> None:
    with pytest.raises(InputError, match='once'):
        judge([_claim('time', 0.1, 'a'), _claim('time', 0.2, 'a')])
    with pytest.raises(InputError, match='correction'):
        judge([_claim('time', 0.1, 'a')], correction='shaffer')
    with pytest.raises(InputError, match='favours'):
        Claim(AB, 'time', 0.1, 'left')
