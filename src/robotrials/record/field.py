"""Parsing the fields of an episode from text or loose JSON values, for tables and edits."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from robotrials.errors import RecordError
from robotrials.record.episode import Outcome
from robotrials.record.event import Event, enum_member

TRUE_WORDS = frozenset({'true', 't', 'yes', 'y', '1', '1.0', 'success', 'succeeded', 'pass', 'passed'})
FALSE_WORDS = frozenset({'false', 'f', 'no', 'n', '0', '0.0', 'failure', 'failed', 'fail'})
OUTCOME_WORDS: Mapping[str, str] = {
    'succeeded': 'success', 'successful': 'success', 'pass': 'success', 'passed': 'success', 'done': 'success',
    'fail': 'failure', 'failed': 'failure', 'error': 'invalid', 'crash': 'invalid', 'crashed': 'invalid',
    'time_out': 'timeout', 'timed_out': 'timeout', 'timedout': 'timeout', 'ran_out_of_time': 'timeout',
    'truncated': 'timeout', 'safety': 'safety_stop', 'estop': 'safety_stop', 'e_stop': 'safety_stop',
    'safety_stopped': 'safety_stop', 'void': 'invalid', 'aborted': 'invalid',
}  # fmt: skip


def parse_field(name: str, value: Any) -> Any:
    """The value of one field from text or JSON; empty text is absence. RecordError says what was wanted."""
    if (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    ):
        return None
    try:
        return PARSERS[name](value)
    except RecordError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise RecordError(f'{name} is {value!r}, wanted {WANTED[PARSERS[name]]}') from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _whole(value: Any) -> int:
    number = float(value)
    if isinstance(value, bool) or not number.is_integer():
        raise ValueError(value)
    return (
        int(value)
        if not isinstance(value, str)
        else int(float(value))
        if '.' in value or 'e' in value.lower()
        else int(value)
    )


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _truth(value: Any) -> bool:
    word = str(value).strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError(value)


def _outcome(value: Any) -> Outcome:
    word = str(value).strip().lower().replace(' ', '_').replace('-', '_')
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return Outcome.SUCCESS if word in TRUE_WORDS else Outcome.FAILURE
    return enum_member(Outcome, OUTCOME_WORDS.get(word, word), 'outcome')


def _time(value: Any) -> dt.datetime:
    if isinstance(value, int | float):
        return dt.datetime.fromtimestamp(value, dt.UTC)
    parsed = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    if parsed.tzinfo is None:
        raise RecordError(f'started_at is {value!r} without a time zone, wanted one, such as 2026-01-31T14:00:00+00:00')
    return parsed


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and not value.lstrip().startswith('{'):
        pairs = [pair.partition('=') for pair in value.split(';') if pair.strip()]
        if not all(separator for _, separator, _ in pairs):
            raise ValueError(value)
        return {key.strip(): text.strip() for key, _, text in pairs}
    return dict(json.loads(value) if isinstance(value, str) else value)


def _labels(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in _mapping(value).items()}


def _events(value: Any) -> tuple[Event, ...]:
    rows = json.loads(value) if isinstance(value, str) else value
    events = []
    for number, row in enumerate(rows):
        try:
            events.append(Event(**{**dict(row), 't_s': float(row['t_s'])}))
        except RecordError as error:
            raise RecordError(f'events[{number}]: {error}') from error
    return tuple(events)


WANTED: Mapping[Callable[[Any], Any], str] = {
    _text: 'text',
    _whole: 'a whole number',
    _number: 'a number',
    _truth: 'true or false (or yes/no, 1/0, success/failure)',
    _outcome: 'an outcome',
    _time: 'a time in ISO 8601, or seconds since 1970',
    _mapping: 'key=value;key=value, or a JSON object',
    _labels: 'key=value;key=value, or a JSON object',
    _events: 'a list of events such as [{"t_s": 1.5, "kind": "placement"}]',
}

TEXT_FIELDS = (
    'policy', 'task', 'trial_id', 'episode_id', 'benchmark', 'stratum', 'condition', 'block', 'session', 'operator',
    'reason', 'instruction', 'provenance_id',
)  # fmt: skip
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(TEXT_FIELDS, _text),
    **dict.fromkeys(('attempt', 'seed', 'instance', 'repeat', 'steps', 'items', 'items_placed', 'items_lost'), _whole),
    **dict.fromkeys(('duration_s', 'time_cap_s', 'score', 'max_score'), _number),
    **dict.fromkeys(('is_reference', 'success', 'is_unrecoverable'), _truth),
    'outcome': _outcome,
    'started_at': _time,
    'condition_parameters': _mapping,
    'labels': _labels,
    'events': _events,
}
