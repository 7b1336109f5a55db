"""What is wrong with the rows of a table: a line per distinct problem, and the options that would settle them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from robotrials.errors import RecordError
from robotrials.formats.cell import UnknownWordError
from robotrials.formats.imported import FixableError, ImportOptions

MOST_PROBLEMS = 10
MOST_ROWS = 5


class BlankError(RecordError):
    """A row without a result, and what it may be taken for."""

    def __init__(self, message: str, meanings: Sequence[str]) -> None:
        self.meanings = tuple(meanings)
        super().__init__(message)


@dataclass(slots=True)
class Problems:
    """The bad rows of one table."""

    path: Path
    options: ImportOptions
    rows: dict[str, list[int]] = field(default_factory=dict)  # problem -> the first rows that have it
    counts: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    blank: str = ''
    is_fixable: bool = True

    def add(self, number: int, problem: RecordError) -> None:
        """A row and what is wrong with it."""
        text = str(problem)
        if isinstance(problem, UnknownWordError):
            self.words[problem.word] = 'invalid'
            text += f'; --value {problem.word!r}=OUTCOME says what it means'
        elif isinstance(problem, BlankError):
            self.blank = problem.meanings[0]
            text += f'; --blank {"|".join(problem.meanings)} says what such rows are'
        else:
            self.is_fixable = False
        self.counts[text] = self.counts.get(text, 0) + 1
        if len(self.rows.setdefault(text, [])) < MOST_ROWS:
            self.rows[text].append(number)

    def refuse(self) -> None:
        """Raise RecordError where there was any: a line each, and the command that settles them where one does."""
        if not self.rows:
            return
        lines = [f'{self.path} {self._where(text)}: {text}' for text in list(self.rows)[:MOST_PROBLEMS]]
        more = len(self.rows) - MOST_PROBLEMS
        told = '\n'.join([*lines, *([f'... and {more} more problems'] if more > 0 else []), 'nothing was imported'])
        if not self.is_fixable:
            raise RecordError(told)
        fixed = replace(
            self.options, values={**self.options.values, **self.words}, blank=self.blank or self.options.blank
        )
        raise FixableError(told, self.path, fixed)

    def _where(self, text: str) -> str:
        numbers, count = self.rows[text], self.counts[text]
        if count == 1:
            return f'row {numbers[0]}'
        return f'rows {", ".join(map(str, numbers))}{f", ... ({count:,} rows)" if count > len(numbers) else ""}'
