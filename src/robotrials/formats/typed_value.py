"""A table's cell as people type it: `85%`, `83,5`, `1:23`, `12 s`, `yes`, `N/A`."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from typing import Any

from robotrials.errors import RecordError
from robotrials.record.episode import FALSE_WORDS, TRUE_WORDS, Outcome, parse_field
from robotrials.value import dataclass, pattern

# A cell as people type it: `85%`, `83,5`, `1:23`, `12 s`, `yes`, `N/A`.

MISSING_WORDS = frozenset({'', 'n/a', 'na', 'n.a.', 'nan', 'null', 'none', '-', '--', '–', '—', '#n/a', '?', 'nil'})
YES = TRUE_WORDS | {
    'ja', 'oui', 'si', 'sí', 'ok', '✓', '✔', '✅', '☑', '√', '✔️', '👍', 'true.', 'yes.', 'worked', '是', '成功', 'はい',
    'erfolg', 'erfolgreich', 'succès', 'réussi', 'éxito', '◯', '○',
}  # fmt: skip
NO = FALSE_WORDS | {
    'nein', 'non', 'nope', '✗', '✘', '❌', '☒', '✖', '✖️', '×', '👎', 'not successful', 'unsuccessful', '否', '失败',
    '失敗', 'いいえ', 'fehlgeschlagen', 'misserfolg', 'échec', 'fallo',
}  # fmt: skip
UNITS: Mapping[str, float] = {
    's': 1.0, 'sec': 1.0, 'secs': 1.0, 'seconds': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9,
    'min': 60.0, 'mins': 60.0, 'minutes': 60.0, 'm': 60.0, 'h': 3600.0,
}  # fmt: skip
LONGEST_SHOWN = 60
_NUMBER = pattern(r'^([-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d{1,4})?)\s*(%|[a-zA-Z]*)$')
_SPREAD = pattern(r'(?<=[\d%])\s*(?:±|\+/-|\+-)\s*[\d.,]+\s*%?$')
_CLOCK = pattern(r'^(\d+):([0-5]?\d)(?::([0-5]?\d))?(?:[.,](\d+))?$')
_MINUTES_SECONDS = pattern(r'^(\d+)\s*(?:m|min)\s*(\d+(?:[.,]\d+)?)\s*s(?:ec)?$')
_GROUPED = pattern(r'^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$')
_COMMA_DECIMAL = pattern(r'^[-+]?\d*,\d+\s*%?$')


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as typed, and what stood behind it: '', '%', 'clock' (m:ss), or a unit of time."""

    value: float
    unit: str = ''


class UnknownWordError(RecordError):
    """A result in a word that means neither success nor any other outcome."""

    def __init__(self, message: str, word: str) -> None:
        self.word = word
        super().__init__(message)


def short(value: Any) -> str:
    """A value as a message shows it: never longer than a line."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f'{text[:LONGEST_SHOWN]}... ({len(text):,} characters)'


def is_missing(value: Any) -> bool:
    """Whether a cell of numbers or truth says nothing."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING_WORDS
    return isinstance(value, float) and math.isnan(value)


def without_spread(text: str) -> str:
    """A cell without what is printed behind its number: `85.0 ± 3.2` is 85.0."""
    return _SPREAD.sub('', text.strip())


def has_decimal_comma(values: Iterable[str], *, separator: str) -> bool | None:
    """Whether commas in these cells are decimal points; None where `1,234` could be either."""
    commas = [v.strip() for v in values if ',' in v]
    decimal = [v for v in commas if _COMMA_DECIMAL.match(v)]
    if not decimal:
        return False
    if any(not _GROUPED.match(v.rstrip(' %')) for v in decimal):
        return True
    return True if separator in (';', '\t') else None


def parse_quantity(value: Any, *, decimal_comma: bool) -> Quantity:
    """The number in a cell; ValueError where there is none."""
    if isinstance(value, bool):
        raise ValueError(value)
    if isinstance(value, int | float):
        return Quantity(float(value))
    if isinstance(value, dt.timedelta):
        return Quantity(value.total_seconds(), 's')
    if isinstance(value, dt.time):
        return Quantity(value.hour * 3600.0 + value.minute * 60 + value.second + value.microsecond * 1e-6, 'time')
    text = without_spread(str(value))
    clock = _clock(text)
    if clock is not None:
        return Quantity(clock, 'clock')
    matched = _NUMBER.match(text)
    if matched is None:
        raise ValueError(value)
    digits, unit = matched.groups()
    if decimal_comma:
        digits = digits.replace('.', '').replace(',', '.') if ',' in digits else digits
    elif _GROUPED.match(digits):
        digits = digits.replace(',', '')
    return Quantity(float(digits), unit.lower())


def _clock(text: str) -> float | None:
    matched = _CLOCK.match(text)
    if matched is not None:
        first, second, third, fraction = matched.groups()
        whole = int(first) * 60 + int(second) if third is None else int(first) * 3600 + int(second) * 60 + int(third)
        return whole + (float(f'0.{fraction}') if fraction else 0.0)
    spelled = _MINUTES_SECONDS.match(text.lower())
    return None if spelled is None else int(spelled[1]) * 60 + float(spelled[2].replace(',', '.'))


def parse_seconds(name: str, value: Any, *, scale: float, decimal_comma: bool, clock: float = 1.0) -> float:
    """A cell of time in seconds; a unit in the cell wins over the unit of the column (`scale`).

    `clock` scales times of day, which is what a spreadsheet makes of `1:23`.
    """
    found = _quantity(name, value, decimal_comma, 'seconds, such as 83.5 or 1:23')
    if found.unit in ('', 'clock', 'time'):
        return found.value * {'': scale, 'clock': 1.0, 'time': clock}[found.unit]
    if found.unit not in UNITS:
        raise RecordError(f'{name} is {short(value)}, wanted seconds, such as 83.5, 12 s or 1:23')
    return found.value * UNITS[found.unit]


def parse_plain(name: str, value: Any, *, decimal_comma: bool) -> float:
    """A cell that holds a bare number."""
    found = _quantity(name, value, decimal_comma, 'a number')
    if found.unit:
        raise RecordError(f'{name} is {short(value)}, wanted a number without a unit')
    return found.value


def parse_share(name: str, value: Any, *, scale: float, decimal_comma: bool) -> float:
    """A cell that holds a share: `85%` is 0.85, and so is 85 in a column of percentages (`scale` 0.01)."""
    found = _quantity(name, value, decimal_comma, 'a number or a percentage')
    if found.unit not in ('', '%'):
        raise RecordError(f'{name} is {short(value)}, wanted a number or a percentage')
    return found.value * (0.01 if found.unit == '%' else scale)


def parse_whole(name: str, value: Any, *, decimal_comma: bool) -> int:
    """A cell that holds a whole number."""
    if type(value) is int:
        return value
    if isinstance(value, str) and value.strip().lstrip('+-').isdigit() and len(value) < 4000:
        return int(value)
    number = parse_plain(name, value, decimal_comma=decimal_comma)
    if not number.is_integer():
        raise RecordError(f'{name} is {short(value)}, wanted a whole number')
    return int(number)


def parse_truth(name: str, value: Any) -> bool:
    """A cell that says yes or no; `100%` and `0%` do, `85%` does not."""
    word = str(value).strip().lower()
    if word in YES or word in ('100%', '100 %', '100.0%', '100,0%'):
        return True
    if word in NO or word in ('0%', '0 %', '0.0%', '0,0%'):
        return False
    message = (
        f'{name} is {short(value)}, wanted true or false (or yes/no, 1/0, success/failure); a degree of success is a '
        'score (--map score=COLUMN), successes out of trials are counts (--map successes=COLUMN trials=COLUMN)'
    )
    raise RecordError(message) if word[:1].isdigit() else UnknownWordError(message, str(value).strip())


def parse_outcome(value: Any) -> Any:
    """An outcome by its name, or in the words for yes and no."""
    word = str(value).strip().lower()
    if word in YES or word in NO:
        return Outcome.SUCCESS if word in YES else Outcome.FAILURE
    try:
        return parse_other('outcome', value)
    except RecordError as error:
        raise UnknownWordError(str(error), str(value).strip()) from error


def parse_other(name: str, value: Any) -> Any:
    """Fields that need no tolerance, as the record parses them; long values are cut in the message."""
    try:
        return parse_field(name, value)
    except RecordError as error:
        text = str(error)
        raise RecordError(text if len(text) < 400 else f'{text[:400]}...') from error


def _quantity(name: str, value: Any, decimal_comma: bool, wanted: str) -> Quantity:
    try:
        found = parse_quantity(value, decimal_comma=decimal_comma)
    except (ValueError, OverflowError) as error:
        raise RecordError(f'{name} is {short(value)}, wanted {wanted}') from error
    if not math.isfinite(found.value):
        raise RecordError(f'{name} is {short(value)}, wanted a finite number')
    return found
