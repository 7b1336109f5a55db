"""What is usual: rollouts per cell in recent papers, and where a plan stands among them."""

from __future__ import annotations

import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from robotrials.stats.argument import check_count


@dataclass(frozen=True, slots=True)
class SurveyedPaper:
    """One paper's rollouts per (policy, task) cell; the bounds are None where it gives no number."""

    name: str
    reported: str
    n_low: int | None
    n_high: int | None
    statistics: str
    intervals: bool


@dataclass(frozen=True, slots=True)
class FieldPosition:
    """A plan's rollouts per cell among the surveyed papers that give a number."""

    n: int
    papers_counted: int
    papers_without_number: int
    fewer: tuple[str, ...]
    as_many: tuple[str, ...]
    more: tuple[str, ...]
    median: float

    def __str__(self) -> str:
        return (
            f'{self.n} rollouts a cell: more than {len(self.fewer)} of the {self.papers_counted} surveyed papers that '
            f'give a number, as many as {len(self.as_many)}, fewer than {len(self.more)} (median {self.median:g}; '
            f'{self.papers_without_number} more papers give none)'
        )


@cache
def read_survey() -> tuple[SurveyedPaper, ...]:
    """The survey of PhAIL's Table 5, in its order."""
    text = resources.files('robotrials.verdict.planning').joinpath('data', 'survey.toml').read_text(encoding='utf-8')
    return tuple(
        SurveyedPaper(
            name=str(row['name']),
            reported=str(row['reported']),
            n_low=row.get('n_low'),
            n_high=row.get('n_high'),
            statistics=str(row['statistics']),
            intervals=bool(row['intervals']),
        )
        for row in tomllib.loads(text)['paper']
    )


def field_position(n: int) -> FieldPosition:
    """Where n rollouts a cell stand: fewer than a paper whose lower bound is above n, more if its upper is below."""
    n = check_count('n', n, least=1)
    bounds = [(p.name, p.n_low, p.n_high) for p in read_survey() if p.n_low is not None and p.n_high is not None]
    return FieldPosition(
        n=n,
        papers_counted=len(bounds),
        papers_without_number=len(read_survey()) - len(bounds),
        fewer=tuple(name for name, _, high in bounds if high < n),
        as_many=tuple(name for name, low, high in bounds if low <= n <= high),
        more=tuple(name for name, low, _ in bounds if low > n),
        median=statistics.median((low + high) / 2 for _, low, high in bounds),
    )
