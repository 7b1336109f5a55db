"""Episodes from counts: successes out of trials, or a printed rate that fits exactly one count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from robotrials.errors import RecordError
from robotrials.formats.cell import parse_share, short, without_spread
from robotrials.record.episode import Outcome

MOST_TRIALS = 1_000_000
MOST_GUESSED = 1_000
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


def count_of_rate(cell: Any, scale: float, comma: bool, half: float = 0.5, *, trials: int) -> int:
    """The one count out of `trials` that a printed rate can stand for; RecordError where none or several fit.

    `half` is half a digit of the finest cell of its column: programs write 0.60 as 0.6.
    """
    share = parse_share('success_rate', cell, scale=scale, decimal_comma=comma)
    is_percent = scale != 1.0 or (isinstance(cell, str) and '%' in cell)
    if not is_percent and share > 1:
        raise RecordError(f'success_rate is {short(cell)}, wanted a share from 0 to 1, or a percentage such as 85%')
    half = min(half, half_digit(cell)) * (0.01 if is_percent else 1.0)
    fitting = [k for k in range(trials + 1) if abs(k / trials - share) <= half + 1e-12] if trials else [0]
    if len(fitting) != 1:
        many = f'{len(fitting)} counts fit' if fitting else 'no count fits'
        raise RecordError(f'success_rate is {short(cell)} of {trials} trials: {many}; give successes as counts')
    return fitting[0]


def half_digit(cell: Any) -> float:
    """Half a unit of the last printed digit."""
    text = without_spread(str(cell)).rstrip('% ').replace(',', '.')
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:
        return 0.5
    return 0.5 * 10.0 ** min(int(exponent), 0)


def fewest_trials(cells: Sequence[Any], *, is_percent: bool) -> int | None:
    """The smallest number of trials of which every printed rate is a count; None where none up to 1000 is."""
    try:
        shares = [parse_share('success_rate', c, scale=0.01 if is_percent else 1.0, decimal_comma=True) for c in cells]
    except RecordError:
        return None
    signs = [is_percent or (isinstance(c, str) and '%' in c) for c in cells]
    if not shares or not all(0 <= share <= 1 for share in shares):
        return None
    finest = min(map(half_digit, cells))
    halves = [finest * (0.01 if sign else 1.0) for sign in signs]

    def is_one(share: float, half: float, trials: int) -> bool:
        return sum(abs(k / trials - share) <= half + 1e-12 for k in range(trials + 1)) == 1

    printed = list(dict.fromkeys(zip(shares, halves, strict=True)))[:200]
    fitting = [n for n in range(2, MOST_GUESSED + 1) if all(is_one(s, h, n) for s, h in printed)]
    exact = (n for n in fitting if all(abs(s * n - round(s * n)) < 1e-9 for s, _ in printed))
    return next(exact, fitting[0] if fitting else None)
