"""The verdict card: what may be said, in words, then the numbers behind it, in at most 24 lines of 80 columns.

A verb answers with a card; its tables are behind `--details`. `show.answer` has the cards of analyses, and the modules
of other questions have theirs beside the tables that they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robotrials.show.terminal import USUAL, cut, display_width, terminal_width, wrap

MOST_LINES = 24
MOST_LABEL = 26
MOST_REASON = 110
LEAST_ROWS = 6  # lines that notes leave to the numbers
LEAST_P = 0.0001  # smaller ones are told as such
ALL = '--details'
GLUE = '\u00a0'  # keeps a number and its unit on one line


@dataclass(frozen=True, slots=True)
class Card:
    """One answer: who it is about, the verdict, the numbers behind it, what would change it, where more is."""

    title: str
    scope: str = ''
    verdict: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()  # a label, and what is said under it
    change: str = ''
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = (ALL,)

    def text(self, width: int | None = None) -> str:
        """At most 24 lines of at most 80 columns, whatever the terminal has; rows that do not fit are counted."""
        most = min(width or terminal_width(), USUAL)
        head = wrap(f'{self.title}    {self.scope}' if self.scope else self.title, most, then='  ')
        if self.scope and len(head) == 1:
            head = [f'{self.title}    {self.scope}']
        for sentence in self.verdict:
            head += wrap(sentence, most, first='  ', then='  ')
        tail = wrap(f'What would change it: {self.change}', most, first='  ', then='    ') if self.change else []
        notes = [line for note in self.notes for line in wrap(note, most, first='  ', then='    ')]
        end = wrap(f'More: {"   ".join(self.more)}', most, then='      ') if self.more else []
        if len(self.more) and display_width(f'More: {"   ".join(self.more)}') <= most:
            end = [f'More: {"   ".join(self.more)}']
        room = MOST_LINES - len(head) - len(tail) - len(end)
        drawn = [line for row in self._drawn(most) for line in row]
        most_notes = max(1, room - min(len(drawn), LEAST_ROWS))
        if len(notes) > most_notes:  # a note that is left out is said to be
            notes = [*notes[: most_notes - 1], f'  … more notes: {ALL}']
        lines = [*head, *_fitting(self._drawn(most), room - len(notes)), *tail, *notes, *end]
        return '\n'.join(lines).replace(GLUE, ' ') + '\n'

    def _drawn(self, most: int) -> list[list[str]]:
        label = max((min(display_width(name), MOST_LABEL) for name, _ in self.rows), default=0)
        rows = []
        for name, text in self.rows:
            shown = cut(name, MOST_LABEL)
            first = f'    {shown}{" " * (label - display_width(shown))}   '
            rows.append([line for k, part in enumerate(text.split('\n')) for line in _line(
                part, most, first if k == 0 else ' ' * display_width(first))])  # fmt: skip
        return rows


def _line(text: str, most: int, first: str) -> list[str]:
    """A line as it is where it fits, so that marks keep their places; else wrapped."""
    whole = f'{first}{text}'
    return [whole] if display_width(whole) <= most else wrap(text, most, first=first, then=' ' * display_width(first))


def _fitting(rows: Sequence[Sequence[str]], room: int) -> list[str]:
    lines: list[str] = []
    for place, row in enumerate(rows):
        left = len(rows) - place
        if len(lines) + len(row) + (left > 1) > room:
            return [*lines[: max(0, room - 1)], f'    … {left} more: {ALL}']
        lines += row
    return lines


# --- words that several cards use


def p_text(value: float | None) -> str:
    """`p 0.004`, or nothing where nothing was tested."""
    if value is None:
        return ''
    return (f'p {value:.2g}' if value >= LEAST_P else f'p < {LEAST_P:.4f}').replace(' ', GLUE)


def brief(reason: str) -> str:
    """A reason in at most two lines; the tables have all of it."""
    if len(reason) <= MOST_REASON:
        return reason
    return f'{reason[:MOST_REASON].rsplit(" ", 1)[0].rstrip(",;:(")} …'


def short_statement(statement: str) -> str:
    """The part of an analysis's line that says whether it is the declared one."""
    return f'{statement.partition(". Used:")[0].rstrip(".")}.'
