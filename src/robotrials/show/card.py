"""The verdict card: what may be said, in words, then the numbers behind it, in at most 24 lines of 80 columns.

A verb answers with a card; its tables are behind `--details`. `show.answer` has the cards of analyses, and the modules
of other questions have theirs beside the tables that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from robotrials.show.terminal import USUAL, cut, display_width, estimate_text, mark, terminal_width, wrap
from robotrials.stats import Rate
from robotrials.value import dataclass
from robotrials.verdict.analysis import Absent, ComparisonFrame, EndpointPairs
from robotrials.verdict.analysis.success import ALL_STRATA
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.safety.summary import CellSafety
    from robotrials.stats import Interval
    from robotrials.verdict.analysis import Analysis


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
            short_name = cut(name, MOST_LABEL)
            first = f'    {short_name}{" " * (label - display_width(short_name))}   '
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


# The scoreboard: policies down, endpoints across, each with its interval and its letters.


@dataclass(frozen=True, slots=True)
class CardScore:
    """One policy on one endpoint, in the unit of its column."""

    value: float
    interval: Interval | None
    letters: str = ''
    count: str = ''  # such as 47/60
    note: str = ''  # of a cell: the condition that costs most

    @property
    def text(self) -> str:
        return estimate_text(self.value, self.interval)


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """One endpoint of every policy; `why` it has no scores, where it has none."""

    key: str
    title: str
    unit: str
    scores: dict[str, CardScore]
    highest: float | None = None  # the end of the scale that marks are drawn on
    why: str = ''
    is_less_better: bool = False

    def cell(self, policy: str) -> str:
        """`75 % ───━━●━── ab` for a share, `19.4 s [14.8, 24.2] a` for seconds."""
        score = self.scores.get(policy)
        if score is None:
            return '—'
        letters = f' {score.letters}' if score.letters else ''
        if self.unit == '%' and not self.is_less_better:
            inside = None if score.interval is None else score.interval.scaled(0.01)
            return f'{score.value:3.0f} % {mark(score.value / 100, inside)}{letters}'
        return f'{estimate_text(score.value, score.interval)}{letters}'


def scoreboard(analysis: Analysis, policies: Sequence[str] = ()) -> tuple[tuple[str, ...], list[ScoreColumn]]:
    """Policies in the order of the leading endpoint, then success, time, safety and robustness of each."""
    frame = analysis.frame
    if isinstance(frame, Absent):
        return (), []
    order = [p for p in _order(analysis, frame) if not policies or p in policies]
    columns = [_success(analysis), _time(analysis), _safety(analysis), _robustness(analysis)]
    return tuple(order), columns


def _order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    pairs = analysis.pairs
    lead = None if isinstance(pairs, Absent) else pairs.lead
    ranked = lead.policies if isinstance(lead, EndpointPairs) else frame.policies
    return tuple(dict.fromkeys((*((frame.reference,) if frame.reference else ()), *ranked, *frame.everyone)))


def letters_of(analysis: Analysis, endpoint: EndpointName) -> dict[str, str]:
    """Policies that share one are not significantly different on the endpoint; empty where nothing was compared."""
    pairs = analysis.pairs
    tested = None if isinstance(pairs, Absent) else pairs.endpoints.get(endpoint)
    return dict(tested.letters) if isinstance(tested, EndpointPairs) else {}


def _success(analysis: Analysis) -> ScoreColumn:
    rates, marks = analysis.success, letters_of(analysis, EndpointName.SUCCESS)
    if isinstance(rates, Absent):
        return ScoreColumn('success', 'success', '%', {}, 100.0, rates.reason)
    scores = {}
    for policy, estimate in rates.macro.items():
        count = rates.counts.get((policy, ALL_STRATA))
        if estimate.value is not None:
            span = None if estimate.interval is None else estimate.interval.scaled(100.0)
            words = '' if count is None else f'{count.count}/{count.n}'
            scores[policy] = CardScore(100 * estimate.value, span, marks.get(policy, ''), words)
    return ScoreColumn('success', 'success', '%', scores, 100.0)


def _time(analysis: Analysis) -> ScoreColumn:
    ranking = analysis.ranking
    if isinstance(ranking, Absent):
        return ScoreColumn('time', 'time to success', 's', {}, why=ranking.sentence, is_less_better=True)
    marks, scores = letters_of(analysis, EndpointName.TIME), {}
    for policy, estimate in ranking.means_s.items():
        if estimate.value is not None:
            scores[policy] = CardScore(estimate.value, estimate.interval, marks.get(policy, ''))
    top = max((s.interval.high if s.interval else s.value for s in scores.values()), default=None)
    return ScoreColumn('time', 'time to success', 's', scores, top, is_less_better=True)


def _safety(analysis: Analysis) -> ScoreColumn:
    if not analysis.selection.has_trajectories:
        return ScoreColumn('safety', 'safe', '%', {}, 100.0, 'no trajectories were recorded')
    part = analysis.safety
    if isinstance(part, Absent):
        return ScoreColumn('safety', 'safe', '%', {}, 100.0, part.reason)
    marks, scores = letters_of(analysis, EndpointName.SAFETY), {}
    cells = [c for c in part.summary.cells if not c.is_auxiliary] or list(part.summary.cells)
    for policy in dict.fromkeys(c.policy for c in cells):
        rate = pooled([c for c in cells if c.policy == policy], lambda c: c.safety)
        span = None if rate.interval is None else rate.interval.scaled(100.0)
        scores[policy] = CardScore(100 * rate.count / rate.n, span, marks.get(policy, ''), f'{rate.count}/{rate.n}')
    return ScoreColumn('safety', 'safe', '%', scores, 100.0)


def pooled(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate]) -> Rate:
    """One rate of several benchmarks: their counts added up."""
    rates = [rate(c) for c in cells]
    return Rate(sum(r.count for r in rates), sum(r.n for r in rates), cells[0].level)


def _robustness(analysis: Analysis) -> ScoreColumn:
    """The condition that costs each policy most, in points of episode success."""
    column = ScoreColumn('robustness', 'worst drop', 'points', {}, 100.0, is_less_better=True)
    if isinstance(analysis.frame, ComparisonFrame) and analysis.frame.n_conditions < 2:
        return ScoreColumn(column.key, column.title, column.unit, {}, why='one condition was run', is_less_better=True)
    part = analysis.robustness
    drops = part if isinstance(part, Absent) else part.drops
    if isinstance(drops, Absent):
        return ScoreColumn(column.key, column.title, column.unit, {}, why=drops.reason, is_less_better=True)
    for policy in dict.fromkeys(d.policy for d in drops):
        worst = max((d for d in drops if d.policy == policy), key=lambda d: d.success_drop)
        span = None if worst.success_interval is None else worst.success_interval.scaled(100.0)
        column.scores[policy] = CardScore(100 * worst.success_drop, span, note=worst.condition)
    return column
