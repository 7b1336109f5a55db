"""Episodes from counts: successes out of trials, or a printed rate that fits exactly one count."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from robotrials.errors import RecordError
from robotrials.formats.cell import parse_share, short
from robotrials.record.episode import Outcome

MOST_TRIALS = 1_000_000
TIMED = ('duration_s', 'steps', 'seed', 'instance', 'time_cap_s', 'step_cap', 'success', 'outcome', 'events')
LABEL = {'from': 'counts'}


def expand_counts(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The values of one episode per trial, labelled from=counts; a count holds no seed, no instance and no time."""
    trials = values.get('trials')
    if trials is None:
        raise RecordError('trials is empty, wanted how many episodes there were')
    if not 0 <= trials <= MOST_TRIALS:
        raise RecordError(f'trials is {trials}, wanted 0 to {MOST_TRIALS:,}')
    successes = _successes(values, trials)
    shared = {k: v for k, v in values.items() if k not in (*TIMED, 'trials', 'successes', 'success_rate', 'labels')}
    for name in ('policy', 'task'):
        if name not in shared:
            raise RecordError(f'{name} is empty, wanted a value')
    labels = {**values.get('labels', {}), **LABEL}
    for number in range(trials):
        is_success = number < successes
        outcome = Outcome.SUCCESS if is_success else Outcome.FAILURE
        yield {**shared, 'outcome': outcome, 'success': is_success, 'labels': labels}


def _successes(values: dict[str, Any], trials: int) -> int:
    told = values.get('successes')
    if told is None and 'success_rate' not in values:
        raise RecordError('successes is empty, wanted how many of the trials succeeded')
    successes = int(told) if told is not None else count_of_rate(*values['success_rate'], trials=trials)
    if not 0 <= successes <= trials:
        raise RecordError(f'successes is {successes}, wanted 0 to trials = {trials}')
    return successes


def count_of_rate(cell: Any, scale: float, comma: bool, *, trials: int) -> int:
    """The one count out of `trials` that a printed rate can stand for; RecordError where none or several fit."""
    share = parse_share('success_rate', cell, scale=scale, decimal_comma=comma)
    is_percent = scale != 1.0 or (isinstance(cell, str) and '%' in cell)
    if not is_percent and share > 1:
        raise RecordError(f'success_rate is {short(cell)}, wanted a share from 0 to 1, or a percentage such as 85%')
    half = _half_digit(cell) * (0.01 if is_percent else 1.0)
    fitting = [k for k in range(trials + 1) if abs(k / trials - share) <= half + 1e-12] if trials else [0]
    if len(fitting) != 1:
        many = f'{len(fitting)} counts fit' if fitting else 'no count fits'
        raise RecordError(f'success_rate is {short(cell)} of {trials} trials: {many}; give successes as counts')
    return fitting[0]


def _half_digit(cell: Any) -> float:
    """Half a unit of the last printed digit."""
    text = str(cell).strip().rstrip('% ').replace(',', '.')
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:
        return 0.5
    return 0.5 * 10.0 ** min(int(exponent), 0)
