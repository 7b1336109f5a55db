"""The front door for notebooks: load what you have, ask, and get readable answers that are also data."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError
from robotrials.record import Episode, Store
from robotrials.show.answer import Card, compare_card, robustness_card, safety_card, score_card
from robotrials.show.catalog import ShowRequest, find_figure, find_table
from robotrials.show.table import Cell, Table, render_all, table_document
from robotrials.verdict.analysis import Absent, Analysis, Comparisons, EndpointPairs, analyse, present

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robotrials.record.blinding import Where


class Result:
    """One answer: prints as text, shows as HTML in a notebook, and gives its rows as a frame, Arrow or plain dicts.

    Where it has a card, that is what is shown; the tables are behind it, and `details()` prints them.
    """

    def __init__(self, tables: Sequence[Table], *, statement: str, card: Card | None = None) -> None:
        self.tables = tuple(tables)
        self.statement = statement
        self.card = card

    def __str__(self) -> str:
        return self.details() if self.card is None else replace(self.card, more=()).text()

    def details(self) -> str:
        """Every table as text, and the line that says what was used."""
        return f'{render_all(self.tables)}\n{self.statement}\n'

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        tables = ''.join(_html(table) for table in self.tables)
        said = f'<p><small>{escape(self.statement)}</small></p>'
        if self.card is None:
            return tables + said
        return f'{_card_html(self.card)}<details><summary>Tables</summary>{tables}{said}</details>'

    def to_dict(self) -> dict[str, Any]:
        """The tables as plain values, with the line that says what was used."""
        return {'analysis': self.statement, 'tables': [table_document(table) for table in self.tables]}

    def to_arrow(self, number: int = 0) -> pa.Table:
        """One of the tables (the first) as an Arrow table, in full precision."""
        import pyarrow as pa

        table = self._table(number)
        columns = [[row[k] for row in table.rows] for k in range(len(table.columns))]
        arrays = [pa.array(_of_one_type(values)) for values in columns]
        return pa.table(arrays, names=[c.name for c in table.columns])

    def to_frame(self, number: int = 0) -> Any:
        """One of the tables as a pandas frame where pandas is installed, else as an Arrow table."""
        return _frame(self.to_arrow(number))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The first table through the Arrow C stream interface: polars, DuckDB and others read it as it is."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _table(self, number: int) -> Table:
        if not 0 <= number < len(self.tables):
            raise InputError(f'table {number} was asked for, and there are {len(self.tables)}, from 0')
        return self.tables[number]


@dataclasses.dataclass(frozen=True, slots=True)
class EndpointResult:
    """Two policies on one endpoint, in numbers. Differences favour `a` where they are positive.

    `difference` and `interval` are in `unit`: shares of 1 for rates, seconds saved for times, items for lost items.
    `p_value` is corrected over all pairs and primary endpoints of the analysis, `p_uncorrected` is that of the test.
    """

    endpoint: str
    verdict: str
    winner: str | None
    difference: float | None
    interval: tuple[float, float] | None
    unit: str
    p_value: float | None
    p_uncorrected: float | None
    test: str
    n_units: tuple[int, int]
    needed: float | None  # units per cell for 80 % power, if the difference is as observed
    reason: str = ''  # why nothing was compared


class Comparison(Result):
    """Two policies: a verdict in words, who is better, and every endpoint as values.

    `difference`, `interval` and `p_value` are those of the first endpoint that was tested; `success`, `time`, `safety`
    and the others by `endpoints[name]`.
    """

    def __init__(
        self, tables: Sequence[Table], *, statement: str, card: Card, pairs: Comparisons, a: str, b: str
    ) -> None:
        super().__init__(tables, statement=statement, card=card)
        self.a, self.b = a, b
        self.verdict: str = card.verdict[0]
        self.kind: str = pairs.decision(a, b).verdict.value
        self.winner: str | None = pairs.decision(a, b).winner
        self.endpoints = {
            name.value: _endpoint_result(endpoint, name.value, a, b) for name, endpoint in pairs.endpoints.items()
        }
        self._lead = next((e for e in self.endpoints.values() if e.difference is not None), None)

    @property
    def difference(self) -> float | None:
        return None if self._lead is None else self._lead.difference

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self._lead is None else self._lead.interval

    @property
    def p_value(self) -> float | None:
        return None if self._lead is None else self._lead.p_value

    @property
    def success(self) -> EndpointResult:
        return self._endpoint('success')

    @property
    def time(self) -> EndpointResult:
        return self._endpoint('time')

    @property
    def safety(self) -> EndpointResult:
        return self._endpoint('safety')

    def _endpoint(self, name: str) -> EndpointResult:
        known = self.endpoints.get(name)
        return known or _absent_result(name, 'not an endpoint of this analysis: with_plan(secondary=...) adds one')


def _absent_result(name: str, reason: str) -> EndpointResult:
    return EndpointResult(name, 'not compared', None, None, None, '', None, None, '', (0, 0), None, reason)


def _endpoint_result(pairs: EndpointPairs | Absent, name: str, a: str, b: str) -> EndpointResult:
    from robotrials.show.phrase import short_verdict

    if isinstance(pairs, Absent):
        return _absent_result(name, pairs.reason)
    pair = pairs.pair(a, b)
    span, needed = pair.interval, pair.needed
    unit = {'points': 'share', 's': 's'}.get(pair.unit_text, pair.unit_text)
    return EndpointResult(
        endpoint=name, verdict=short_verdict(pair), winner=pair.ahead, difference=pair.difference,
        interval=None if span is None else (span.low, span.high), unit=unit, p_value=pair.p_corrected,
        p_uncorrected=pair.p_value, test=pair.test, n_units=pair.n_units,
        needed=None if needed is None else needed.n, reason=pair.withheld,
    )  # fmt: skip


def _card_html(card: Card) -> str:
    """The card as a notebook shows it: the verdict in bold, then its numbers."""
    from html import escape

    verdict = '<br>'.join(f'<b>{escape(line)}</b>' for line in card.verdict)
    rows = ''.join(
        f'<tr><td style="text-align:left">{escape(label)}</td>'
        f'<td style="text-align:left;white-space:pre;font-family:monospace">{escape(text)}</td></tr>'
        for label, text in card.rows
    )
    lines = [f'What would change it: {card.change}'] if card.change else []
    notes = ''.join(f'<div><small>{escape(line)}</small></div>' for line in (*lines, *card.notes))
    head = f'<div>{escape(card.title)} <small>{escape(card.scope)}</small></div>'
    return f'<div>{head}<div>{verdict}</div><table>{rows}</table>{notes}</div>'


def _frame(table: pa.Table) -> Any:
    try:
        importlib.import_module('pandas')
    except ImportError:
        return table
    return table.to_pandas()


def _of_one_type(values: Sequence[Cell]) -> list[Cell]:
    """Arrow wants one type per column: numbers stay numbers, and a mixture becomes text."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float}:
        return [None if v is None else float(v) if float in kinds else v for v in values]
    return list(values) if len(kinds) <= 1 else [None if v is None else str(v) for v in values]


def _html(table: Table) -> str:
    from html import escape

    def cell(value: Cell, form: str) -> str:
        if value is None:
            return '–'
        return escape(format(value, form) if form and isinstance(value, int | float) else str(value))

    head = ''.join(f'<th>{escape(c.name)}</th>' for c in table.columns)
    body = ''.join(
        '<tr>'
        + ''.join(f'<td>{cell(v, c.number_format)}</td>' for v, c in zip(row, table.columns, strict=True))
        + '</tr>'
        for row in table.rows
    )
    note = f'<p><small>{escape(table.note)}</small></p>' if table.note else ''
    caption = f'<caption>{escape(table.title)}</caption>'
    return f'<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}'


class Trial:
    """Recorded episodes and one analysis of them; every method reads the same numbers as the command line.

    >>> import robotrials
    >>> rows = [{'policy': p, 'task': 'pick', 'seed': k, 'success': k % 4 > (p == 'old')} for p in ('new', 'old')
    ...         for k in range(40)]
    >>> robotrials.load(rows).success().tables[0].title
    'Episode success'
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    def __repr__(self) -> str:
        policies = ', '.join(self.analysis.every_policy)
        return f'Trial of {len(self.analysis.episodes)} episodes ({policies})\n{self.analysis.statement}'

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies."""
        return self.analysis.every_policy

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, by benchmark where there are several."""
        tasks = {(e.benchmark, e.task) for e in self.analysis.episodes}
        several = len({benchmark for benchmark, _ in tasks}) > 1
        return tuple(f'{b}/{task}' if several and b else task for b, task in sorted(tasks))

    @property
    def episodes(self) -> Any:
        """The episodes, a row each: a pandas frame where pandas is installed, else an Arrow table."""
        import pyarrow as pa

        from robotrials.formats.export import episode_row

        rows = [episode_row(episode) for episode in self.analysis.episodes]
        texts = ('labels', 'condition_parameters', 'events')
        columns = {name: [str(row[name]) if name in texts else row[name] for row in rows] for name in rows[0]}
        return _frame(pa.table({name: pa.array(_of_one_type(cells)) for name, cells in columns.items()}))

    def with_plan(self, **changes: Any) -> Trial:
        """The same episodes under another plan; what differs from the declared one is marked in every output.

        Fields are those of `robotrials.verdict.planning.AnalysisPlan`, such as tau_s, primary, reference, alpha, seed.
        """
        return Trial(Analysis(self.analysis.selection, self.analysis.declared.changed_by(**changes)))

    def table(self, name: str, *, policies: Sequence[str] = (), strata: Sequence[str] = ()) -> Result:
        """Any named table (`robotrials tables --list`), of all policies or of some."""
        request = ShowRequest(subject=self.analysis, policies=tuple(policies), strata=tuple(strata))
        return Result(find_table(name)(request), statement=self.analysis.statement)

    def score(self) -> Result:
        """How fast and how reliably each policy works."""
        tables = self.table('headline').tables
        return Result(tables, statement=self.analysis.statement, card=score_card(self.analysis))

    def success(self) -> Result:
        """Episode success of every policy, and every pair."""
        return self.table('success')

    def compare(self, a: str | None = None, b: str | None = None) -> Comparison | Result:
        """Two policies, or all pairs: which is better, and what the data cannot resolve.

        Of two policies it is a `Comparison`, whose verdict, winner, difference, interval and p-value are values.
        """
        from robotrials.show.timing import compared

        if (a is None) != (b is None):
            raise InputError('wanted two policies to compare, or none to compare all pairs; found one')
        if a is None or b is None:
            pairs = present(self.analysis.pairs)
            ranked = pairs.tested[0].policies if pairs.tested else ()
            if len(ranked) != 2:
                tables = self.table('pairs').tables
                return Result(tables, statement=self.analysis.statement, card=compare_card(self.analysis))
            a, b = ranked
        analysis = self.analysis.between(a, b)
        request = ShowRequest(subject=analysis, policies=(a, b))
        compared(request)
        listed, card = find_table('pairs')(request), compare_card(analysis, (a, b))
        return Comparison(listed, statement=analysis.statement, card=card, pairs=present(analysis.pairs), a=a, b=b)

    def safety(self) -> Result:
        """Was it safe while it succeeded?"""
        tables = self.table('safety').tables
        return Result(tables, statement=self.analysis.statement, card=safety_card(self.analysis))

    def robustness(self) -> Result:
        """What a changed world costs each policy."""
        tables = self.table('condition-drops').tables
        return Result(tables, statement=self.analysis.statement, card=robustness_card(self.analysis))

    def plan_size(self) -> Result:
        """How many episodes per cell each pair would need."""
        return self.table('needed-n')

    def plot(self, name: str, *, ax: Axes | None = None, policies: Sequence[str] = ()) -> Figure:
        """Any named figure (`robotrials plot --list`); with `ax` it is drawn as a picture into these axes."""
        figure = find_figure(name)(ShowRequest(subject=self.analysis, policies=tuple(policies)))
        if ax is None:
            # A notebook asks what it shows for its picture; a figure outside pyplot answers only under a magic.
            figure.__dict__['_repr_png_'] = partial(_png, figure)
            return figure
        _draw_into(ax, figure)
        return ax.get_figure(root=True)  # type: ignore[return-value]  # axes in use have a figure

    def report(self, path: str | Path) -> Path:
        """Write the whole report: .html, .md, .tex or .json by the ending."""
        from robotrials.show.document import write_report

        return write_report(self.analysis, Path(path))


def _png(figure: Figure) -> bytes:
    import io

    drawn = io.BytesIO()
    figure.savefig(drawn, format='png')
    return drawn.getvalue()


def _draw_into(ax: Axes, figure: Figure) -> None:
    """The figure as a picture inside other axes."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    ax.imshow(np.asarray(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]
    ax.set_axis_off()


def load_trial(
    source: object, *, where: Where | None = None, columns: Mapping[str, str] | None = None, **given: str
) -> Trial:
    """A Trial of whatever holds the episodes: see `robotrials.load`."""
    if isinstance(source, Store):
        return Trial(analyse(source, where=where))
    if isinstance(source, str | Path):
        from robotrials.formats.imported import ImportOptions
        from robotrials.formats.intake import open_for_asking

        options = ImportOptions(columns=columns or {}, defaults=given)
        opened = open_for_asking(source, options)
        return Trial(analyse(opened.store, where=where, title=opened.name))
    rows = list(_rows(source))
    episodes = [row for row in rows if isinstance(row, Episode)]
    if episodes and len(episodes) == len(rows):
        return Trial(analyse(episodes))
    return Trial(analyse(_table_episodes(rows, columns or {}, given), title='table'))


def _table_episodes(rows: Sequence[Any], columns: Mapping[str, str], given: Mapping[str, str]) -> Iterator[Episode]:
    from robotrials.formats.imported import ImportAccount, ImportOptions
    from robotrials.formats.rows import Rows
    from robotrials.formats.table import plan_table, table_episodes

    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f'row {number} is {type(row).__name__}, wanted an Episode or a mapping of column to value')
    header = tuple(dict.fromkeys(str(name) for row in rows for name in row))

    def read() -> Iterator[tuple[int, Sequence[Any]]]:
        for number, row in enumerate(rows, start=1):
            yield number, [row.get(name) for name in header]

    table = Rows(Path('table'), header, read)
    plan = plan_table(table, ImportOptions(columns=columns, defaults=given, source='table'))
    return iter(list(table_episodes(table, plan, ImportAccount())))


def _rows(source: object) -> Iterable[object]:
    """Rows of a pandas, polars or Arrow table (anything with an Arrow C stream), or of a plain sequence."""
    if hasattr(source, '__arrow_c_stream__'):
        import pyarrow as pa

        return pa.table(source).to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    if hasattr(source, 'to_dict') and hasattr(source, 'columns'):
        return source.to_dict('records')  # type: ignore[no-any-return]  # a pandas frame of an older version
    if isinstance(source, Iterable):
        return source
    raise InputError(
        f'wanted a path, a Store, a table (pandas, polars, Arrow), or a list of rows; found {type(source).__name__}'
    )
