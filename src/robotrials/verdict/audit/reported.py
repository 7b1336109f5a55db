"""Scores that others reported on a protocol, from a CSV file: what a probe's score is set beside."""

from __future__ import annotations

import csv
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from robotrials.errors import InputError, NotEstimable, near_miss
from robotrials.verdict.audit.realize import UNITS
from robotrials.verdict.audit.threshold import exact

COLUMNS = ('policy', 'score', 'unit', 'kind', 'parameters', 'protocol', 'source', 'tasks', 'samples')
NEEDED = ('policy', 'score', 'unit', 'kind')
MOST_DIGITS = 6  # of a count of tasks or samples


class ScoreKind(enum.StrEnum):
    """Who reports: a foundation policy to be compared with, any other, or one whose training saw rewards."""

    FOUNDATION = 'foundation'
    OTHER = 'other'
    RL_FINETUNED = 'rl-finetuned'  # listed, never compared with: the probe only imitates


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedScore:
    """A published score as it was printed. `tasks` and `samples` are those behind it, None where nobody said."""

    policy: str
    score: str
    unit: str
    kind: ScoreKind
    parameters: str = ''
    protocol: str = ''
    source: str = ''
    tasks: int | None = None
    samples: int | None = None
    where: str = ''  # file and line, for messages

    def __post_init__(self) -> None:
        place = f'{self.where}: ' if self.where else ''
        if not self.policy:
            raise InputError(f'{place}policy is empty, wanted the name of who reported the score')
        if self.unit not in UNITS or self.unit == 'count':
            raise InputError(f'{place}unit is {self.unit!r}, wanted percent, fraction or score')
        value = exact(self.score, f'{place}score')
        most = {'percent': 100, 'fraction': 1}.get(self.unit)
        if value < 0 or (most is not None and value > most):
            raise InputError(f'{place}score is {self.score}, wanted 0 to {most or "the full score"} in {self.unit}')

    def mean(self, max_score: int) -> Fraction:
        """The score as a mean in 0..max_score, exactly as its digits say."""
        value = exact(self.score, 'score')
        scale = {'percent': Fraction(max_score, 100), 'fraction': Fraction(max_score), 'score': Fraction(1)}[self.unit]
        if value * scale > max_score:
            raise InputError(f'{self.where}: score is {self.score}, more than the full score of {max_score}')
        return value * scale


def read_reported(path: Path | str) -> tuple[ReportedScore, ...]:
    """The rows of a CSV with columns policy, score, unit, kind, and maybe parameters, protocol, source, tasks, samples.

    Every mistake names the line. A policy stands once for each protocol.
    """
    source = Path(path)
    try:
        with source.open(newline='', encoding='utf-8-sig') as file:
            reader = csv.DictReader(file, strict=True)
            names = _checked_header(source, [n.strip().lower() for n in reader.fieldnames or []])
            rows = [_row(row, names, f'{source} line {reader.line_num}') for row in reader]
    except OSError as error:
        raise InputError(f'{source}: cannot be read ({error.strerror}); wanted a CSV of reported scores') from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'{source}: not a CSV in UTF-8 ({error})') from error
    if not rows:
        raise NotEstimable(f'{source}: no rows below the header; wanted one for each reported score')
    _check_unique(rows)
    return tuple(rows)


def _checked_header(source: Path, names: Sequence[str]) -> Sequence[str]:
    missing = [name for name in NEEDED if name not in names]
    if missing and len(names) == 1 and (sign := next((s for s in ';\t' if s in names[0]), '')):
        raise InputError(f'{source} line 1: cells are parted by {sign!r}; wanted commas, and points in numbers')
    if missing:
        raise InputError(f'{source} line 1: no column {missing[0]!r}; wanted {", ".join(NEEDED)}, found {list(names)}')
    for name in names:
        if name not in COLUMNS:
            raise InputError(f'{source} line 1: no column is called {name!r}: {near_miss(name, COLUMNS)}')
        if names.count(name) > 1:
            raise InputError(f'{source} line 1: column {name!r} stands twice')
    return names


def _row(row: Mapping[str | None, str | list[str] | None], names: Sequence[str], where: str) -> ReportedScore:
    cells = list(row.values())
    if len(cells) != len(names) or None in cells:
        raise InputError(f'{where}: the number of cells is not that of the {len(names)} columns')
    given = {name: str(cell).strip() for name, cell in zip(names, cells, strict=True)}
    kinds = [k.value for k in ScoreKind]
    if given['kind'] not in kinds:
        raise InputError(f'{where}: kind is {given["kind"]!r}: {near_miss(given["kind"], kinds)}')
    counts = {name: _count(given.pop(name, ''), f'{where}, {name}') for name in ('tasks', 'samples')}
    if None in counts.values() and any(counts.values()):
        raise InputError(f'{where}: tasks is {counts["tasks"]}, samples is {counts["samples"]}; wanted both or neither')
    kind = ScoreKind(given.pop('kind'))
    return ReportedScore(kind=kind, where=where, tasks=counts['tasks'], samples=counts['samples'], **given)


def _count(text: str, where: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise InputError(f'{where}: {text[:40]!r}, wanted a whole number from 1 to a million, or nothing')
    return int(text)


def _check_unique(rows: Iterable[ReportedScore]) -> None:
    seen: dict[tuple[str, str], ReportedScore] = {}
    for row in rows:
        first = seen.setdefault((row.policy.casefold(), row.protocol), row)
        if first is not row:
            raise InputError(
                f'{row.where}: {row.policy} on {row.protocol or "the protocol"} stands in {first.where} too'
            )


def of_protocol(scores: Sequence[ReportedScore], protocol: str) -> tuple[ReportedScore, ...]:
    """The scores on one protocol. A file that names no protocols is about the one asked for."""
    named = sorted({s.protocol for s in scores if s.protocol})
    if not named:
        return tuple(scores)
    if not protocol and len(named) > 1:
        raise InputError(f'{scores[0].where}: scores on several protocols ({", ".join(named)}); say which to compare')
    unnamed = next((s for s in scores if not s.protocol), None)
    if unnamed is not None:  # left out, it could be the best
        raise InputError(f'{unnamed.where}: {unnamed.policy} names no protocol, and other rows do; name it')
    wanted = protocol or named[0]
    chosen = tuple(s for s in scores if s.protocol == wanted)
    if not chosen:
        raise InputError(f'{scores[0].where}: no score on protocol {wanted!r}: {near_miss(wanted, named)}')
    return chosen


def foundation_score(scores: Sequence[ReportedScore]) -> ReportedScore | None:
    """The foundation policy to be compared with, if the file marks one; to mark two is an error."""
    marked = [s for s in scores if s.kind is ScoreKind.FOUNDATION]
    if len(marked) > 1:
        raise InputError(
            f'{marked[1].where}: {marked[1].policy} is marked foundation, as {marked[0].policy} is; mark the most '
            'cited one, the rest are other'
        )
    return marked[0] if marked else None


def best_score(scores: Sequence[ReportedScore], max_score: int) -> ReportedScore | None:
    """The highest score that needed no reinforcement learning; of equal ones the first."""
    imitating = [s for s in scores if s.kind is not ScoreKind.RL_FINETUNED]
    return max(imitating, key=lambda s: s.mean(max_score), default=None)
