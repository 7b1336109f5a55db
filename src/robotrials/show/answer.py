"""The verdict card: what may be said, in words, then the numbers behind it, in at most 24 lines of 80 columns.

A verb answers with a card; its tables are behind `--details`. Here are the cards of analyses (a comparison, scores,
robustness, safety, a running trial); the modules of other questions have theirs beside the tables that they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from robotrials.record.rows import distinct
from robotrials.show.phrase import CORRECTIONS, claim_words, decision_sentence, endpoint_name, joined, plural
from robotrials.show.table import USUAL, cut, display_width, estimate_text, mark, points_text, terminal_width, wrap
from robotrials.stats import Rate
from robotrials.stats.dominance import PairVerdict as Overall
from robotrials.value import dataclass
from robotrials.verdict.analysis import Absent, ComparisonFrame, EndpointPairs, present
from robotrials.verdict.analysis.endpoint_pairs import Standing
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

if TYPE_CHECKING:
    from robotrials.measure.safety.summary import CellSafety
    from robotrials.stats import Interval
    from robotrials.verdict.analysis import Analysis, Comparisons, EndpointVerdict
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning import ArmPair, WatchedTrial


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
        line, sentence = (f'{self.title}{f"{gap}{self.scope}" if self.scope else ""}' for gap in ('    ', ': '))
        head = [line] if display_width(line) <= most else wrap(sentence, most, then='  ')
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
    why: str = ''
    is_less_better: bool = False

    @property
    def heading(self) -> str:
        """Its title and unit; of times as wide as its cells, and not to be taken for a mean of successes."""
        title = 'time, fail = tau' if self.key == 'time' else self.title
        return title if self.unit == '%' else f'{title} ({self.unit})'

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
        return ScoreColumn('success', 'success', '%', {}, rates.reason)
    scores = {}
    for policy, estimate in rates.macro.items():
        count = rates.counts.get((policy, ALL_STRATA))
        if estimate.value is not None:
            span = None if estimate.interval is None else estimate.interval.scaled(100.0)
            words = '' if count is None else f'{count.count}/{count.n}'
            scores[policy] = CardScore(100 * estimate.value, span, marks.get(policy, ''), words)
    return ScoreColumn('success', 'success', '%', scores)


def _time(analysis: Analysis) -> ScoreColumn:
    ranking = analysis.ranking
    if isinstance(ranking, Absent):
        return ScoreColumn('time', 'time to success', 's', {}, why=ranking.sentence, is_less_better=True)
    marks, scores = letters_of(analysis, EndpointName.TIME), {}
    for policy, estimate in ranking.means_s.items():
        if estimate.value is not None:
            scores[policy] = CardScore(estimate.value, estimate.interval, marks.get(policy, ''))
    return ScoreColumn('time', 'time to success', 's', scores, is_less_better=True)


def _safety(analysis: Analysis) -> ScoreColumn:
    if not analysis.selection.has_trajectories:
        return ScoreColumn('safety', 'safe', '%', {}, 'no trajectories were recorded')
    part = analysis.safety
    if isinstance(part, Absent):
        return ScoreColumn('safety', 'safe', '%', {}, part.reason)
    marks, scores = letters_of(analysis, EndpointName.SAFETY), {}
    cells = [c for c in part.summary.cells if not c.is_auxiliary] or list(part.summary.cells)
    for policy in dict.fromkeys(c.policy for c in cells):
        rate = pooled([c for c in cells if c.policy == policy], lambda c: c.safety)
        span = None if rate.interval is None else rate.interval.scaled(100.0)
        scores[policy] = CardScore(100 * rate.count / rate.n, span, marks.get(policy, ''), f'{rate.count}/{rate.n}')
    return ScoreColumn('safety', 'safe', '%', scores)


def pooled(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate]) -> Rate:
    """One rate of several benchmarks: their counts added up."""
    rates = [rate(c) for c in cells]
    return Rate(sum(r.count for r in rates), sum(r.n for r in rates), cells[0].level)


def _robustness(analysis: Analysis) -> ScoreColumn:
    """The condition that costs each policy most, in points of episode success."""
    column = ScoreColumn('robustness', 'worst drop', 'points', {}, is_less_better=True)
    if isinstance(analysis.frame, ComparisonFrame) and analysis.frame.n_conditions < 2:
        return replace(column, why='one condition was run')
    part = analysis.robustness
    drops = part if isinstance(part, Absent) else part.drops
    if isinstance(drops, Absent):
        return replace(column, why=drops.reason)
    for policy in dict.fromkeys(d.policy for d in drops):
        worst = max((d for d in drops if d.policy == policy), key=lambda d: d.success_drop)
        span = None if worst.success_interval is None else worst.success_interval.scaled(100.0)
        column.scores[policy] = CardScore(100 * worst.success_drop, span, note=worst.condition)
    return column


MOST_POLICIES = 8
MOST_SPECS = 3
MOST_CLAIMS = 3
ROUNDING = 1e-12  # a difference of equal rates, summed in another order
LETTERS = 'Policies that share a letter are not significantly different.'
LABELS = {
    EndpointName.SUCCESS: 'success', EndpointName.TIME: 'speed', EndpointName.THROUGHPUT: 'speed',
    EndpointName.SAFETY: 'safety', EndpointName.SCORE: 'score', EndpointName.LOST: 'items lost',
}  # fmt: skip


def scope_text(analysis: Analysis, policies: Sequence[str] = ()) -> str:
    """`120 episodes, 60 matched starts, 4 tasks`, or `112 valid episodes, 8 invalid, ...`."""
    frame = present(analysis.frame)
    chosen = [p for p in frame.everyone if not policies or p in policies]
    cells = [frame.cells[p] for p in chosen]
    shared = set.intersection(*(set(own) for own in cells)) if len(cells) == 2 else set().union(*cells)
    groups = [own[s] for own in cells for s in sorted(shared) if s in own]
    n_valid, n_invalid = sum(map(len, groups)), sum(len(frame.invalid.get(p, ())) for p in chosen)
    parts = [plural(n_valid, 'valid episode'), f'{n_invalid:,} invalid'] if n_invalid else [plural(n_valid, 'episode')]
    tasks = {task for group in groups for (task,) in distinct(group, 'task')}
    pairs = analysis.pairs
    if len(chosen) == 2 and not isinstance(pairs, Absent) and pairs.tested and set(chosen) <= set(frame.policies):
        pair = pairs.tested[0].pair(chosen[0], chosen[1])
        if pair.contrast.n_matched:
            parts.append(plural(pair.contrast.n_matched, 'matched start'))
    parts.append(plural(len(tasks), 'task'))
    if frame.n_conditions > 1 and frame.condition:
        parts.append(f'condition {frame.condition}')
    return ', '.join(parts)


def time_note(analysis: Analysis) -> tuple[str, ...]:
    """What the column of times holds, which is no mean of successes; nothing where there are no times."""
    ranking = analysis.ranking
    if isinstance(ranking, Absent):
        return ()
    return (f'Time is a mean; a failure counts as tau, {ranking.times.tau_text}.',)


def notes_of(analysis: Analysis, *, is_ranked: bool = True) -> tuple[str, ...]:
    """Whether the analysis is the declared one, and what a reader must know; of a ranking, also who is not in it."""
    looked = (analysis.looks.sentence,) if analysis.looks.sentence else ()
    cautions = [c for c in analysis.cautions if is_ranked or c not in analysis.unranked]
    return (short_statement(analysis.statement), *looked, *(f'Note: {caution}' for caution in cautions))


# --- a comparison


def compare_card(analysis: Analysis, policies: Sequence[str] = ()) -> Card:
    """Two policies in words and numbers; of more, their order with letters and the claims."""
    pairs = present(analysis.pairs)
    if not pairs.tested:  # nothing could be compared: the reason is the answer
        present(next(e for e in pairs.endpoints.values() if isinstance(e, Absent)))
    order = [p for p in pairs.tested[0].policies if not policies or p in policies]
    if len(order) == 2:
        a, b = policies if len(policies) == 2 else order
        return _pair_card(analysis, pairs, a, b)
    return _order_card(analysis, pairs, order)


def _pair_card(analysis: Analysis, pairs: Comparisons, a: str, b: str) -> Card:
    rows = [(LABELS[name], _endpoint_text(analysis, pairs.endpoints[name], a, b)) for name in pairs.endpoints]
    times = analysis.times
    if isinstance(times, Absent) and not {EndpointName.TIME, EndpointName.THROUGHPUT} & set(pairs.endpoints):
        rows.append(('speed', f'not compared: {brief(times.sentence)}'))
    if EndpointName.SAFETY not in pairs.endpoints:
        why = 'no trajectories'
        if analysis.selection.has_trajectories:
            part = analysis.safety
            why = part.reason if isinstance(part, Absent) else 'not every compared episode has a score'
        rows.append(('safety', f'not scored: {brief(why)}'))
    return Card(
        title=f'{a} vs {b}', scope=scope_text(analysis, (a, b)),
        verdict=(_pair_verdict(pairs, a, b), *readings_text(pairs, (a, b))),
        rows=tuple(rows), change=_pair_change(analysis, pairs, a, b), notes=notes_of(analysis),
        more=(ALL, '--per-task', '--methods'),
    )  # fmt: skip


def _pair_verdict(comparisons: Comparisons, a: str, b: str) -> str:
    if comparisons.decision(a, b).verdict is not Overall.UNRESOLVED:
        return decision_sentence(comparisons, a, b)
    names = ' or '.join(endpoint_name(e.endpoint) for e in comparisons.tested)
    return f'Not resolved: {a} and {b} are not significantly different in {names}.'


def readings_text(comparisons: Comparisons, order: Sequence[str]) -> list[str]:
    """Invalid episodes that could turn a verdict or the order of these policies, and what would be said then."""
    readings = comparisons.readings
    if readings is None:
        return []
    orders = [[p for p in names if p in order] for names in (readings.order, readings.order_counted)]
    turned = [(before, after) for before, after in readings.turned if set(after.pair) <= set(order)]
    n_invalid = {p: n for p, n in readings.n_invalid.items() if p in order}
    if not n_invalid or (orders[0] == orders[1] and not turned):
        return []
    who = ', '.join(f'{p} ({n})' for p, n in n_invalid.items())
    parts = [f'Invalid episodes are left out: {who}. Counted as failures, they put {", ".join(orders[1])} in that '
             'order by success']  # fmt: skip
    for before, after in turned[:2]:
        now, then = (f'{d.winner} better' if d.winner else d.verdict.value for d in (before, after))
        parts.append(f'{" and ".join(after.pair)} are then: {then} (here: {now})')
    return ['; '.join(parts) + '.']


def _endpoint_text(analysis: Analysis, endpoint: EndpointPairs | Absent, a: str, b: str) -> str:
    if isinstance(endpoint, Absent):
        return f'not compared: {brief(endpoint.reason)}'
    pair = endpoint.pair(a, b)
    if pair.withheld:
        return f'not compared: {brief(pair.withheld)}'
    oriented = pair.seen_from(pair.contrast.ahead) if pair.contrast.ahead else pair
    head = {Standing.UNRESOLVED: 'not resolved: ', Standing.DEPENDS: 'depends on the task: ',
            Standing.SAME: 'the same within the margin: '}.get(pair.standing, '')  # fmt: skip
    head = head if pair.is_confirmatory else f'exploratory, {head}'
    tested = p_text(pair.p_corrected)
    if tested and endpoint.n_tests > 1 and endpoint.correction is not Correction.NONE:
        tested += f' ({CORRECTIONS[endpoint.correction]}, {endpoint.n_tests} tests)'
    line = f'{head}{_size(oriented)}'
    joint = '   ' if len(line) + len(tested) < 62 else '\n'
    line = f'{line}{joint}{tested}' if tested else line
    line = f'{line}\n{pair.contrast.note}' if pair.contrast.note else line
    return line if pair.contrast.null != 0 else f'{line}\n{_rates(analysis, pair)}'


def _size(pair: EndpointVerdict) -> str:
    """The effect from the side of the one who is ahead."""
    is_rate = pair.contrast.null == 0
    is_more = not is_rate and pair.difference < 0  # first more often, and yet slower on average
    scale = -pair.scale if is_more else pair.scale
    size = estimate_text(
        pair.difference, pair.interval, scale=scale, sign='+' if is_rate else '', unit=f' {pair.unit_text}',
    ).replace(' ', GLUE)  # fmt: skip
    if is_rate:
        return f'{pair.policy_a} {size}' if abs(pair.difference) > ROUNDING else f'no difference, {size}'
    span = pair.contrast.interval
    ends = '' if span is None else f' [{100 * span.low:.0f}, {100 * span.high:.0f}]'
    chance = f'{100 * pair.contrast.estimate:.0f} %{ends}'.replace(' ', GLUE)
    what = 'starts' if pair.is_paired else 'comparisons'
    if pair.endpoint is EndpointName.LOST:
        return f'{pair.policy_a} loses fewer in {chance} of {what}, {size}'
    return f'{pair.policy_a} first in {chance} of {what}, {size} {"more" if is_more else "less"}'


def _rates(analysis: Analysis, pair: EndpointVerdict) -> str:
    """Both rates on a line from 0 to 100 %, each with its interval where it is that of the scoreboard."""
    macro = {} if isinstance(analysis.success, Absent) else analysis.success.macro
    parts = []
    for name, value in zip((pair.policy_a, pair.policy_b), pair.contrast.values, strict=True):
        own = macro.get(name) if pair.endpoint is EndpointName.SUCCESS else None
        is_own = own is not None and own.value is not None and math.isclose(own.value, value, abs_tol=1e-9)
        parts.append(f'{cut(name, 12)} {100 * value:.0f} % {mark(value, own.interval if own and is_own else None)}')
    return '   '.join(parts)


def _pair_change(analysis: Analysis, comparisons: Comparisons, a: str, b: str) -> str:
    """The successes whose failure would undo a claim, or the units that would resolve what is open."""
    parts = []
    n = analysis.flips_to_undo(a, b)
    success = comparisons.endpoints.get(EndpointName.SUCCESS)
    if n is not None and isinstance(success, EndpointPairs):
        winner = success.pair(a, b).ahead
        what, as_what = ('1 success', 'a failure') if n == 1 else (f'{n} successes', 'failures')
        claim = claim_words(EndpointName.SUCCESS)
        parts.append(f'{what} of {winner} turned into {as_what} would undo "{claim}".')
    open_ = [e.pair(a, b) for e in comparisons.tested if e.pair(a, b).standing is Standing.UNRESOLVED]
    planned = [text for pair in open_ if (text := more_units(pair))]
    if planned:
        parts.append(f'{"; ".join(planned)} (80 % power, if the difference is as observed).')
    elif open_ and not parts:
        price = analysis.price
        if any(p.withheld for p in open_) and not isinstance(price, Absent):
            parts.append(f'nothing can be claimed below {price.per_policy} {price.unit}s per policy.')
        else:
            parts.append('nothing that could be planned: the observed differences are too small.')
    return ' '.join(parts)


def more_units(pair: EndpointVerdict) -> str:
    """`12 more starts per cell would resolve speed`, at 80 % power; empty where no number would."""
    needed = pair.needed
    if needed is None or not math.isfinite(needed.n) or pair.withheld:
        return ''
    now = sum(pair.n_units) / 2 / len(pair.contrast.cells)
    more = max(1, math.ceil(needed.n - now))
    unit = 'start' if 'start' in pair.unit else pair.unit
    return f'{plural(more, f"more {unit}")} per cell would resolve {LABELS[pair.endpoint]}'


# --- several policies


def _order_card(analysis: Analysis, comparisons: Comparisons, order: Sequence[str]) -> Card:
    decided = [d for d in comparisons.decisions if set(d.pair) <= set(order)]
    verdict = _claims(comparisons, order)
    open_ = [d for d in decided if d.verdict is Overall.UNRESOLVED]
    if open_:
        verdict.append(f'Not resolved: {len(open_)} of {plural(len(decided), "pair")}.')
    verdict += readings_text(comparisons, order)
    nearest = _nearest(comparisons, [d.pair for d in open_])
    rows = score_rows(analysis, order)
    return Card(
        title=plural(len(order), 'policy'), scope=scope_text(analysis, order), verdict=tuple(verdict), rows=rows,
        change=nearest, notes=(LETTERS, *time_note(analysis), *notes_of(analysis)),
        more=(ALL, '--per-task', '--methods', 'two names: that pair alone'),
    )  # fmt: skip


def _claims(comparisons: Comparisons, order: Sequence[str]) -> list[str]:
    """Who is better than whom, then trade-offs, then what depends on the stratum."""
    beaten: dict[str, list[str]] = {}
    others = []
    for decided in comparisons.decisions:
        if not set(decided.pair) <= set(order):
            continue
        if decided.winner is not None:
            beaten.setdefault(decided.winner, []).append(next(p for p in decided.pair if p != decided.winner))
        elif decided.verdict is not Overall.UNRESOLVED:
            others.append(decision_sentence(comparisons, *decided.pair))
    parts = [
        f'{winner} is better than {_names([p for p in order if p in beaten[winner]])}.'
        for winner in order
        if winner in beaten
    ]
    named = others if len(others) <= 3 else others[:2]
    parts += named
    if len(others) > len(named):
        parts.append(f'{len(others) - len(named)} further pairs are trade-offs, the same, or depend on the stratum.')
    return parts or ['No policy is shown to be better than another.']


def _names(names: Sequence[str]) -> str:
    if len(names) > 5:
        return f'{", ".join(names[:4])} and {len(names) - 4} more'
    return joined(names)


def _nearest(comparisons: Comparisons, pairs: Sequence[tuple[str, str]]) -> str:
    """The unresolved pair that wants the fewest more units."""
    near = [e.pair(*pair) for pair in pairs for e in comparisons.tested]
    planned = [p for p in near if more_units(p)]
    if not planned:
        return 'nothing that could be planned: the observed differences are too small.' if pairs else ''
    pair = min(planned, key=lambda p: p.needed.n if p.needed else math.inf)
    names = f'{pair.policy_a} and {pair.policy_b}'
    return f'{more_units(pair)} of {names}, the nearest pair (80 % power, if the difference is as observed).'


def score_rows(analysis: Analysis, policies: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    """The scoreboard in lines: a heading, then a policy in each; what has no scores is said below."""
    order, columns = scoreboard(analysis, policies)
    full = [c for c in columns if any(p in c.scores for p in order)]
    label = max(min(display_width(p), MOST_LABEL) for p in ('not scored', *order))
    room, fit = USUAL - 4 - label, []
    for column in full:
        width = max([display_width(column.heading), *(display_width(column.cell(p)) for p in order)]) + 3
        if width > room:
            break
        room -= width
        fit.append(column)
    first = order[:MOST_POLICIES]
    lines = _in_columns([[c.heading for c in fit], *([c.cell(p) for c in fit] for p in first)])
    rows = list(zip(('', *first), lines, strict=True))
    if len(order) > len(first):
        rows.append(('', f'and {len(order) - len(first)} more: {ALL}'))
    rows += [(c.title, _in_words(c, order)) for c in full if c not in fit]
    absent = [f'{c.key} ({brief(c.why)})' for c in columns if c not in full and c.why]
    return (*rows, *((('not scored', '; '.join(absent)),) if absent else ()))


def _in_words(column: ScoreColumn, order: Sequence[str]) -> str:
    """A column that has no place on the board, in words."""
    hidden = [
        f'{p} {column.cell(p)}' + (f' under {column.scores[p].note}' if column.scores[p].note else '')
        for p in order if p in column.scores
    ]  # fmt: skip
    return '; '.join(hidden[:4]) + (f'; {len(hidden) - 4} more' if len(hidden) > 4 else '')


def _padded(text: str, width: int) -> str:
    return text + ' ' * (width - display_width(text))


def _in_columns(rows: Sequence[Sequence[str]], *, room: int = USUAL) -> list[str]:
    """Each row as one line, in columns as wide as the widest of their cells, and as far apart as there is room."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    gap = max(1, min(3, (room - sum(widths)) // max(1, len(widths) - 1)))
    return [(' ' * gap).join(map(_padded, row, widths)).rstrip() for row in rows]


def score_card(analysis: Analysis, policies: Sequence[str] = ()) -> Card:
    """How often and how fast each policy succeeds: who leads, and the scoreboard."""
    from robotrials.show.report_lead import lead_sentences

    compared = [] if isinstance(analysis.pairs, Absent) else list(analysis.pairs.tested)
    order = list(policies) or list(present(analysis.frame).everyone)
    title = order[0] if len(order) == 1 else plural(len(order), 'policy')
    change = '' if not compared else _nearest(
        present(analysis.pairs), [d.pair for d in present(analysis.pairs).decisions
                                  if d.verdict is Overall.UNRESOLVED and set(d.pair) <= set(order)],
    )  # fmt: skip
    rows = score_rows(analysis, policies)
    has_letters = any(len(e.policies) > 1 for e in compared)
    return Card(
        title=title, scope=scope_text(analysis, policies), verdict=tuple(lead_sentences(analysis, policies)), rows=rows,
        change=change, notes=((LETTERS,) if has_letters else ()) + time_note(analysis) + notes_of(analysis),
        more=(ALL, '--per-task', '--methods'),
    )  # fmt: skip


def methods_words(analysis: Analysis) -> str:
    """The methods paragraph, which ends in the whole line of the analysis, wrapped."""
    from robotrials.show.report_quality import methods_text

    most = min(terminal_width(), USUAL)
    return '\n'.join(wrap(methods_text(analysis), most)) + '\n'


# --- what a changed world costs


def robustness_card(analysis: Analysis, policies: Sequence[str] = ()) -> Card:
    """Which conditions cost success beyond chance, the worst of every policy, and whether words were heard."""
    part = present(analysis.robustness)
    drops = [] if isinstance(part.drops, Absent) else [d for d in part.drops if not policies or d.policy in policies]
    alpha = analysis.plan.alpha
    costly = sorted((d for d in drops if d.is_resolved(alpha) and d.success_drop > 0), key=lambda d: -d.success_drop)
    gained = [d for d in drops if d.is_resolved(alpha) and d.success_drop < 0]
    if not drops:
        verdict = [f'No drops: {part.drops.reason if isinstance(part.drops, Absent) else "these policies have none"}.']
    elif costly:
        worst = costly[0]
        verdict = [
            f'Changed conditions cost episode success in {len(costly)} of {plural(len(drops), "comparison")}; '
            f'most of all {worst.policy} under {worst.condition}.'
        ]
    else:
        verdict = [f'No changed condition costs episode success beyond chance in {plural(len(drops), "comparison")}.']
    if gained:
        verdict.append(f'{plural(len(gained), "comparison")} with more success than at the baseline.')
    rows = []
    for policy in dict.fromkeys(d.policy for d in drops):
        own = max((d for d in drops if d.policy == policy), key=lambda d: d.success_drop)
        size = points_text(own.success_drop, own.success_interval).replace(' ', GLUE)
        count = f'{own.baseline_successes}/{own.baseline_n} to {own.successes}/{own.n}'
        pooled = own.baseline_successes / own.baseline_n - own.successes / own.n
        if abs(pooled - own.success_drop) >= 0.005:
            size += f',{GLUE}mean{GLUE}over{GLUE}tasks'
        words = 'worst' if own.is_resolved(alpha) else 'not resolved'
        rows.append(
            (policy, f'{words}: {own.condition} {size}   {count.replace(" ", GLUE)}   {p_text(own.p_value_holm)}')
        )
    if not isinstance(part.swap, Absent):
        heard = [s for s in part.swap if not policies or s.policy in policies]
        rows += [(f'{s.policy}: swap', f'{s.verdict.value}, followed {s.followed}/{s.n}   {p_text(s.p_value)}')
                 for s in heard]  # fmt: skip
    open_ = [d for d in drops if not d.is_resolved(alpha) and d.success_drop > 0]
    change = ''
    if open_ and not costly:
        near = min(open_, key=lambda d: 1.0 if d.p_value_holm is None else d.p_value_holm)
        change = f'more starts; nearest is {near.policy} under {near.condition} ({p_text(near.p_value_holm)}, Holm).'
    names = {'doses': part.doses, 'compound': part.compound, 'swap': part.swap, 'spatial': part.spatial}
    held = [name for name, value in names.items() if not isinstance(value, Absent)]
    return Card(
        title=plural(len({d.policy for d in drops}) or len(analysis.every_policy), 'policy'),
        scope=f'{plural(len(part.conditions), "condition")}, baseline {part.baseline}', verdict=tuple(verdict),
        rows=tuple(rows), change=change,
        notes=(*(f'{name}: not compared, {why}.' for name, why in part.incomparable.items()), *notes_of(analysis)),
        more=(ALL, f'--show {"|".join(("drops", *held))}'),
    )  # fmt: skip


# --- was it safe?


def safety_card(analysis: Analysis) -> Card:
    """Who was safe how often, whose successes were unsafe, and which rule was broken most."""
    part = present(analysis.safety)
    cells = [c for c in part.summary.cells if not c.is_auxiliary] or list(part.summary.cells)
    by_policy = {p: [c for c in cells if c.policy == p] for p in dict.fromkeys(c.policy for c in cells)}
    safe = {p: pooled(own, lambda c: c.safety) for p, own in by_policy.items()}
    unsafe = {p: pooled(own, lambda c: c.sbu) for p, own in by_policy.items()}
    order = sorted(safe, key=lambda p: (-safe[p].count / safe[p].n, p))
    best = order[0]
    unscored = {p: sum(len(c.unscored) for c in own) for p, own in by_policy.items()}
    # Episodes without telemetry are in no rate, so whoever withholds some is named no leader without that word.
    left_out = f' that could be scored; {unscored[best]} could not' if unscored[best] else ''
    verdict = (
        [f'{best} was safe most often: {safe[best].count} of {safe[best].n} episodes{left_out}.']
        if len(order) > 1 else []
    )  # fmt: skip
    worst = max(unsafe, key=lambda p: unsafe[p].count / unsafe[p].n)
    if unsafe[worst].count:
        most = ' most' if len(order) > 1 else ''
        verdict.append(f'{worst} succeeded unsafely{most}: in {unsafe[worst].count} of {unsafe[worst].n} episodes.')
    else:
        verdict.append('No success was unsafe.')
    pairs = analysis.pairs
    judged = None if isinstance(pairs, Absent) else pairs.endpoints.get(EndpointName.SAFETY)
    if isinstance(judged, EndpointPairs):
        claims = [p for p in judged.pairs if p.ahead]
        verdict.append(
            f'In {len(claims)} of {plural(len(judged.pairs), "pair")} one policy is significantly safer.'
            if claims else 'No policy is shown to be safer than another.'
        )  # fmt: skip
    numbers = [('', 'safe', 'unsafe'), ('safe', 'success', 'success')]
    for policy in order[:MOST_POLICIES]:
        rate, bad = safe[policy], unsafe[policy]
        share = f'{100 * rate.count / rate.n:3.0f} % {mark(rate.count / rate.n, rate.interval)} {rate.count}/{rate.n}'
        good = sum(c.table.success_safe for c in by_policy[policy])
        numbers.append((share, f'{good}/{rate.n}', f'{bad.count}/{bad.n}'))
    first, second, *lines = _in_columns(numbers)
    rows = [('', f'{first}\n{second}'), *zip(order, lines, strict=False)]
    violated: dict[str, int] = {}
    for spec in (spec for cell in cells for spec in cell.specs):
        violated[spec.spec_id] = violated.get(spec.spec_id, 0) + spec.violations.count
    worst_specs = [(name, n) for name, n in sorted(violated.items(), key=lambda kv: -kv[1])[:MOST_SPECS] if n]
    if worst_specs:
        rows.append(('broken most', ', '.join(f'{name} {n}' for name, n in worst_specs) + ' episodes'))
    n_unscored = sum(unscored.values())
    notes = [f'{plural(n_unscored, "episode")} not scored, and in no rate: --unscored.'] if n_unscored else []
    caveats = [f'Note: {c}' for c in analysis.safety_caveats]
    n, n_benchmarks = sum(r.n for r in safe.values()), len({c.benchmark for c in cells})
    return Card(
        title=plural(len(order), 'policy'),
        scope=f'{plural(n, "scored episode")}, {plural(n_benchmarks, "benchmark")}', verdict=tuple(verdict),
        rows=tuple(rows), notes=(*notes, *caveats, *notes_of(analysis)),
        more=(ALL, '--per-task', '--per-spec', '--witnesses'),
    )  # fmt: skip


# --- a running trial


def watch_card(
    trial: WatchedTrial, pairs: Sequence[ArmPair], contrasts: Mapping[tuple[str, str], Contrast], analysis: Analysis
) -> Card:
    """Whether the trial may stop, and what may be said of every pair at this look."""
    from robotrials.show.planning import tau_text
    from robotrials.verdict.planning import Decision

    decided = [p for p in pairs if p.decision is not Decision.CONTINUE]
    better = [p for p in decided if p.decision is not Decision.FUTILE]
    claim = 'succeeds more often than' if trial.score == 'success' else 'is faster than'
    verdict = [f'{p.a} {claim} {p.b}.' if p.decision is Decision.A_BETTER else f'{p.b} {claim} {p.a}.' for p in better][
        :MOST_CLAIMS
    ]
    verdict.append('The trial may stop.' if trial.may_stop else f'Continue: {len(pairs) - len(decided)} of '
                   f'{plural(len(pairs), "pair")} undecided.')  # fmt: skip
    unit = ' points' if trial.score == 'success' else ''
    scale = 100.0 if trial.score == 'success' else 1.0
    label = max((display_width(f'{pair.a} - {pair.b}') for pair in pairs), default=0)
    looked = [pair for pair in pairs if pair.comparison.looks]
    numbers = [
        (
            {Decision.CONTINUE: 'continue', Decision.FUTILE: 'futile'}.get(pair.decision, 'decided'),
            estimate_text(last.difference, last.interval, scale=scale, sign='+', unit=unit),
            p_text(pair.adjusted_p_value), f'n {last.n_a} each',
        )
        for pair in looked for last in pair.comparison.looks[-1:]
    ]  # fmt: skip
    lines = dict(
        zip(((p.a, p.b) for p in looked), _in_columns(numbers, room=USUAL - 7 - min(label, MOST_LABEL)), strict=True)
    )
    rows = []
    for pair in pairs:
        rows.append((f'{pair.a} - {pair.b}', lines.get((pair.a, pair.b), 'no look yet: too few episodes')))
        if not pair.comparison.looks:
            continue
        whole = contrasts.get((pair.a, pair.b))
        if whole is not None and len(pairs) <= MOST_CLAIMS:
            decision = (
                f'{100 * whole.estimate:+.1f} points' if whole.null == 0 else f'first in {100 * whole.estimate:.0f} %'
            )
            rows.append(('', f'all episodes: {decision} (not part of the stopping rule)'))
    order = ', '.join(f'{n} {x}' for n, x in zip(trial.arms.order, trial.arms.letters, strict=True))
    what = 'episode success' if trial.score == 'success' else f'promptness at tau = {tau_text(trial.tau_s)}'
    notes = [f'Ranking, with letters: {order}. Intervals hold at every look.']
    notes += (
        [] if trial.is_ordered else ['Some episodes have no start time, so looks follow the order of start states.']
    )
    waiting = f', {trial.n_waiting} waiting for a partner' if trial.n_waiting else ''
    aside = f'{trial.n_invalid} invalid{waiting}'
    return Card(
        title='The trial so far', scope=f'{what}, {plural(sum(trial.n_episodes.values()), "valid episode")}, {aside}',
        verdict=tuple(verdict), rows=tuple(rows), notes=(*notes, *notes_of(analysis, is_ranked=False)),
        more=(ALL, '--looks'),
    )  # fmt: skip
