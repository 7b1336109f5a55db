"""Tables 1, 2 and 3 of arXiv 2606.04233 as data: their printed arithmetic holds."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest

from robotrials.verdict.audit.envelope import exact
from robotrials.verdict.audit.reported import AVERAGES, LIBERO_MEANS, TABLE_1, TABLE_3, PaperRow, ProbeStanding


def rounded(value: Fraction, like: str) -> Decimal:
    """Half up, to the digits that `like` has."""
    digits = Decimal(like)
    return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(digits, rounding=ROUND_HALF_UP)


@pytest.mark.parametrize('row', TABLE_1, ids=lambda r: r.preset)
def test_printed_deltas_of_table_1_are_reported_minus_probe(row: PaperRow) -> None:
    assert rounded(row.delta(row.foundation[2]), row.delta_f) == Decimal(row.delta_f)
    assert rounded(row.delta(row.best[2]), row.delta_b) == Decimal(row.delta_b)


def test_libero_means_of_table_2_are_97_6_and_95_1() -> None:
    libero = [row for row in TABLE_1 if row.preset.startswith('libero')]
    best = sum((exact(row.probe) for row in libero), Fraction(0)) / 4
    final = sum((exact(row.final or 'none') for row in libero), Fraction(0)) / 4
    assert (rounded(best, '0.1'), rounded(final, '0.1')) == tuple(Decimal(m) for m in LIBERO_MEANS)


def test_best_and_final_differ_as_the_text_says() -> None:
    """A.1: 0.6 to 4.4 points on LIBERO, at most 0.09 tasks on CALVIN."""
    gaps = {row.preset: exact(row.probe) - exact(row.final) for row in TABLE_1 if row.final is not None}
    libero = [gap for name, gap in gaps.items() if name.startswith('libero')]
    assert (min(libero), max(libero)) == (Fraction('0.6'), Fraction('4.4'))
    assert rounded(max(gap for name, gap in gaps.items() if name.startswith('calvin')), '0.01') == Decimal('0.09')


def test_table_3_has_fifty_tasks_and_its_printed_averages() -> None:
    assert len({row.task for row in TABLE_3}) == 50
    for column, printed in zip(('clean', 'randomized'), AVERAGES, strict=True):
        mean = Fraction(sum(getattr(row, column) for row in TABLE_3), 50)
        assert rounded(mean, '0.1') == Decimal(printed)


def test_only_three_libero_suites_leave_the_best_reported_score_unproved() -> None:
    """Section 3: within one point of the best on three of four suites; everywhere else the probe is behind."""
    open_rows = [row.preset for row in TABLE_1 if row.standing('best') is ProbeStanding.NOT_PROVABLE]
    assert open_rows == ['libero-spatial', 'libero-object', 'libero-goal']
    assert all(row.standing('foundation') is ProbeStanding.ABOVE for row in TABLE_1 if 'libero' in row.preset)
