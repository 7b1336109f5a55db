"""What a row amounts to: its outcome, its items and their times, or many episodes from counts.

What can be seen of episodes before any analysis: caps, shared starts, successes at once, numbers that cannot be.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from decimal import Decimal, InvalidOperation
from typing import Any

from robotrials.errors import RecordError
from robotrials.formats.guess import ALIKE, TIME_LISTS, groups_alike, parse_share, short, without_spread
from robotrials.record.episode import Episode, Event, EventKind, Outcome
from robotrials.value import dataclass

# The outcome of a row that does not name one: from its success, its items, its drops, its score and its caps.

FEWEST_AT_A_CAP = 3
SLACK_S = 1e-9


@dataclass(slots=True)
class Caps:
    """Where failures end, to notice a cap that nobody declared."""

    seconds: Counter[float] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0  # of any episode
    longest_steps: int = 0
    at_once: int = 0  # successes after no step or no time

    def see(self, values: Mapping[str, Any], *, is_failure: bool, is_success: bool = False) -> None:
        lasted, steps = values.get('duration_s'), values.get('steps')
        self.at_once += is_success and 0 in (lasted, steps)
        if lasted is not None:
            self.longest_s = max(self.longest_s, lasted)
        if steps is not None:
            self.longest_steps = max(self.longest_steps, steps)
        if is_failure and lasted is not None and lasted >= self.longest_s:
            self.seconds[lasted] += 1
        if is_failure and steps is not None and steps >= self.longest_steps:
            self.steps[steps] += 1

    def see_many(self, lasted: Any, steps: Any, *, is_failure: Any, is_success: Any) -> None:
        """The same for whole columns: arrays with NaN for what is missing, or None."""
        import numpy as np

        zero = [values == 0 for values in (lasted, steps) if values is not None]
        if zero:
            self.at_once += int(np.sum(is_success & np.logical_or.reduce(zero)))
        if lasted is not None:
            self.longest_s = max(self.longest_s, float(np.nanmax(lasted, initial=0.0)))
            self.seconds[self.longest_s] += int(np.sum(is_failure & (lasted == self.longest_s)))
        if steps is not None:
            self.longest_steps = max(self.longest_steps, int(np.nanmax(steps, initial=0)))
            self.steps[self.longest_steps] += int(np.sum(is_failure & (steps == self.longest_steps)))

    def hints(self) -> Iterator[str]:
        """A line where successes take no time, and where several failures end at exactly the longest time of all."""
        if self.at_once:
            yield (
                f'{self.at_once} successes take no time at all: was success already true at the reset? Such episodes '
                'say nothing of the policy'
            )
        at_steps, at_s = self.steps[self.longest_steps], self.seconds[self.longest_s]
        if at_steps >= FEWEST_AT_A_CAP:
            yield (
                f'{at_steps} failures end at exactly {self.longest_steps} steps: a cap? '
                f'--set step_cap={self.longest_steps} makes them time-outs'
            )
        elif at_s >= FEWEST_AT_A_CAP:
            yield (
                f'{at_s} failures end at exactly {self.longest_s:g} s: a time cap? '
                f'--set time_cap_s={self.longest_s:g} makes them time-outs'
            )


def derive_outcome(values: dict[str, Any], caps: Caps) -> Outcome:
    """The outcome of a row; RecordError where nothing tells it."""
    stated = values.get('outcome')
    if stated is not None:
        is_failure = stated == 'failure' and not _at_cap(values, known_only=True)
        caps.see(values, is_failure=is_failure, is_success=stated == 'success')
        return Outcome(stated)
    succeeded = _succeeded(values)
    if succeeded is None:
        raise RecordError('neither outcome nor success is given')
    if succeeded:
        caps.see(values, is_failure=False, is_success=True)
        return Outcome.SUCCESS
    if _at_cap(values):
        caps.see(values, is_failure=False)
        return Outcome.TIMEOUT
    caps.see(values, is_failure='step_cap' not in values and 'time_cap_s' not in values)
    return Outcome.FAILURE


def _succeeded(values: Mapping[str, Any]) -> bool | None:
    if 'success' in values:
        return bool(values['success'])
    items = values.get('items')
    placed = values.get('items_placed')
    if placed is None and any(e.kind == 'placement' for e in values.get('events', ())):
        placed = sum(e.count for e in values['events'] if e.kind == 'placement')
    if items is not None and (placed is not None or values.get('events')):
        return int(placed or 0) >= int(items)
    if 'score' in values and 'max_score' in values:
        return bool(values['score'] >= values['max_score'] - 1e-9)
    return None


def _at_cap(values: Mapping[str, Any], *, known_only: bool = False) -> bool:
    cap_s, lasted = values.get('time_cap_s'), values.get('duration_s')
    cap, steps = values.get('step_cap'), values.get('steps')
    if known_only:
        return cap_s is not None or cap is not None
    in_time = cap_s is not None and lasted is not None and lasted >= cap_s - SLACK_S
    return in_time or (cap is not None and steps is not None and steps >= cap)


# Rows that are items, and lists of times: from them the items, events and durations of an episode.

Values = dict[str, Any]
Parsed = tuple[int, Values, RecordError | None]
MOST_ITEMS = 100_000


def group_rows(rows: Iterable[tuple[Parsed, tuple[str, ...]]], group_by: Sequence[str]) -> Iterator[Parsed]:
    """One set of values per group of rows, in the order in which groups begin; a bad row makes its group bad."""
    groups: dict[tuple[str, ...], list[Parsed]] = {}
    for parsed, key in rows:
        groups.setdefault(key, []).append(parsed)
    for members in groups.values():
        number = members[0][0]
        bad = next(((n, error) for n, _, error in members if error is not None), None)
        if bad is not None:
            yield bad[0], {}, bad[1]
            continue
        try:
            yield number, join_items([(n, values) for n, values, _ in members], group_by), None
        except RecordError as error:
            yield number, {}, error


def join_items(members: Sequence[tuple[int, Values]], group_by: Sequence[str]) -> Values:
    """The values of one episode from the rows of its items."""
    if len(members) > MOST_ITEMS:
        raise RecordError(
            f'{len(members):,} rows in one group of {", ".join(group_by)}; wanted the items of an episode'
        )
    joined: Values = {'items': len(members)}
    placed = [values.get('items_placed') for _, values in members]
    lost = [values.get('items_lost') for _, values in members]
    if any(p is not None for p in placed):
        joined['items_placed'] = sum(p or 0 for p in placed)
    if any(x is not None for x in lost):
        joined['items_lost'] = sum(x or 0 for x in lost)
    joined.update(_times(members))
    special = {'items', 'items_placed', 'items_lost', 'duration_s', 'labels'}
    for name in dict.fromkeys(name for _, values in members for name in values if name not in special):
        joined[name] = _agreed(name, members, group_by)
    labels = [values.get('labels', {}) for _, values in members]
    joined['labels'] = {
        key: value for key, value in labels[0].items() if all(other.get(key) == value for other in labels)
    }
    return joined


def _agreed(name: str, members: Sequence[tuple[int, Values]], group_by: Sequence[str]) -> Any:
    first = next((n, values[name]) for n, values in members if name in values)
    for number, values in members:
        if name in values and values[name] != first[1]:
            raise RecordError(
                f'{name} is {short(first[1])} in row {first[0]} and {short(values[name])} in row {number} of one '
                f'episode; the rows of a group agree in it, or --group-by {",".join(group_by)} is too coarse'
            )
    return first[1]


def _times(members: Sequence[tuple[int, Values]]) -> Values:
    """A time that rises with the items is the moment of each; one that is equal in all is the episode's."""
    times = [values.get('duration_s') for _, values in members]
    known = [t for t in times if t is not None]
    if not known:
        return {}
    if len(set(known)) == 1 and len(members) > 1:
        return {'duration_s': known[0]}
    rising = all(a <= b for a, b in itertools.pairwise(known))
    if not rising:
        raise RecordError(
            'the times of the items do not rise, so they are not moments since the start; give the moments, or leave '
            'the column out (--map duration_s=-)'
        )
    events = []
    for (_, values), moment in zip(members, times, strict=True):
        if moment is None:
            continue
        if values.get('items_placed'):
            events.append(Event(moment, EventKind.PLACEMENT))
        elif values.get('items_lost'):
            events.append(Event(moment, EventKind.DROP_OUTSIDE))
    return {'duration_s': known[-1], 'events': tuple(events)}


def timed_events(values: Mapping[str, Any]) -> Iterator[Event]:
    """The events of columns that hold lists of times, such as `3.2;7.9` or `[3.2, 7.9]`."""
    for name, kind in TIME_LISTS.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            times: Iterable[Any] = re.split(r'[;,\s]+', value.strip('[](){} '))
        else:
            times = value if isinstance(value, list | tuple) else [value]
        for text in times:
            try:
                if text != '':
                    yield Event(float(text), kind)
            except (TypeError, ValueError) as error:
                raise RecordError(f'{name} has {short(text)}, wanted seconds such as 3.2;7.9') from error


# Episodes from counts: successes out of trials, or a printed rate that fits exactly one count.

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
    stated = values.get('successes')
    if stated is None and 'success_rate' not in values:
        raise RecordError('successes is empty, wanted how many of the trials succeeded')
    successes = int(stated) if stated is not None else count_of_rate(*values['success_rate'], trials=trials)
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


MOST_NAMED = 6
LATE = 0.02  # the share of a cap by which the last step may end after it


@dataclass(slots=True)
class Checkup:
    """Counts of one source, taken episode by episode in bounded memory."""

    n: int = 0
    policies: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    names: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in ALIKE})
    cap_s: Counter[float] = field(default_factory=Counter)
    caps: Caps = field(default_factory=Caps)
    at_once: int = 0
    impossible: Counter[str] = field(default_factory=Counter)
    starts: dict[tuple[object, ...], set[str]] = field(default_factory=lambda: defaultdict(set))

    def see(self, episode: Episode) -> None:
        """Take one episode into account."""
        self.n += 1
        self.policies[episode.policy] += 1
        self.tasks[episode.task] += 1
        self.outcomes[episode.outcome.value] += 1
        for name in ALIKE:
            self.names[name][str(getattr(episode, name))] += 1
        if episode.time_cap_s is not None:
            self.cap_s[episode.time_cap_s] += 1
        values = {'duration_s': episode.duration_s, 'steps': episode.steps}
        is_open = episode.time_cap_s is None and episode.outcome is Outcome.FAILURE
        self.caps.see(values, is_failure=is_open, is_success=False)
        self.at_once += episode.is_success and (episode.duration_s == 0 or episode.steps in (0, 1))
        self.impossible.update(impossibilities(episode))
        if episode.is_valid and not (episode.seed is None and episode.instance is None):
            place = (episode.benchmark, episode.task, episode.stratum, episode.condition)
            self.starts[*place, episode.seed, episode.instance].add(episode.policy)

    def alike(self) -> list[str]:
        """Names that may be one."""
        groups_by_name = ((name, groups_alike(counts)) for name, counts in self.names.items())
        return [f'{name} {" = ".join(map(repr, group))}' for name, groups in groups_by_name for group in groups]

    def pairing(self) -> str:
        """Which starts the policies share."""
        if not self.starts:
            return 'none: no seed and no instance is recorded, so no start is known to be shared'
        shared = sum(len(policies) == len(self.policies) for policies in self.starts.values())
        if len(self.policies) < 2:
            return f'{len(self.starts):,} starts of one policy: nothing to pair with'
        some = sum(len(policies) > 1 for policies in self.starts.values())
        others = f', {some - shared:,} more by some of them' if some > shared else ''
        return f'{shared:,} of {len(self.starts):,} starts were run by all {len(self.policies)} policies{others}'

    def capped(self) -> str:
        """The caps on record, and those that the failures suggest."""
        caps = ', '.join(f'{cap:g} s ({count:,})' for cap, count in sorted(self.cap_s.items())[:MOST_NAMED])
        return '; '.join([caps or 'none recorded', *self.caps.hints()])


def checkup(episodes: Iterable[Episode]) -> Checkup:
    """What these episodes show."""
    findings = Checkup()
    for episode in episodes:
        findings.see(episode)
    return findings


def impossibilities(episode: Episode) -> list[str]:
    """Numbers of one episode that cannot all be true, and that the record's own rules let pass."""
    problems = []
    lasted, cap = episode.duration_s, episode.time_cap_s
    if lasted is not None and cap is not None and lasted > cap + max(SLACK_S, LATE * cap):
        problems.append('last longer than their time cap')
    if episode.items and episode.items_placed is not None:
        if episode.is_success and episode.items_placed < episode.items:
            problems.append('succeed without all items placed')
        if episode.outcome is Outcome.FAILURE and episode.items_placed == episode.items:
            problems.append('fail with all items placed')
    return problems


def counted_names(counts: Counter[str]) -> str:
    """`2: act (48), pi0 (48)`, the first few."""
    listed = ', '.join(f'{name} ({count:,})' for name, count in counts.most_common(MOST_NAMED))
    return f'{len(counts):,}: {listed}{", ..." if len(counts) > MOST_NAMED else ""}'
