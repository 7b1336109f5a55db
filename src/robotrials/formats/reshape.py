"""Tables as people lay them out, with one row an episode or a cell: wide ones, `17/20`, a row per metric, counts.

A table that names its policies, tasks and results in columns is left as it is; this is for the others, and what was
made of them is a note. Whole tables are held in memory here, so that only those of a readable size are looked at.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, SetupError
from robotrials.formats.guess import (
    NUMBERINGS,
    RESULTS,
    SYNONYMS,
    guess_columns,
    is_missing,
    missing_fields,
    normal,
    parse_quantity,
    parse_truth,
    split_unit,
)
from robotrials.formats.imported import ImportOptions
from robotrials.formats.rows import Row, Rows
from robotrials.record.episode import OUTCOME_WORDS
from robotrials.value import pattern

MOST_ROWS = 20_000
FRACTION = pattern(r'^\s*(\d{1,6})\s*(?:/|of|out of)\s*(\d{1,6})\s*$')
NUMBERED = pattern(r'^(seed|run|trial|episode|ep|rollout|attempt|try|rep|repeat|versuch|test|no|nr|t|r|e|s)?_?\d+$')
MEANS = ('avg', 'average', 'mean', 'overall', 'total', 'sum', 'avg_success', 'mean_success', 'average_success',
         'avg_sr', 'mean_sr', 'average_sr', 'durchschnitt', 'mittelwert', 'mittel', 'summe', 'gesamt', 'moyenne',
         'media', 'promedio', '平均', '合计')  # fmt: skip
# What policies are called, to tell a table with a row per policy from one with a column per policy.
POLICIES = pattern(
    r'π|(?<![a-z])(act|bc|dp3?|ours?|baselines?|octo|rt[-_ ]?[12]x?|rdt|hpt|diffusion|policy|oft|pi[-_ ]?0\S*|ckpt'
    r'|human|checkpoint|scratch|fine-?tuned?|teleop|step[-_ ]?\d+|\d+k)(?![a-z])|vla|gr00t|groot|cogact|policy'
)
METRICS = ('metric', 'metric_name', 'measure', 'variable', 'measurement')
VALUES = ('value', 'metric_value', 'val')
SPOKEN = ('success', 'outcome', 'successes', 'success_rate', 'trials', 'duration_s', 'steps', 'score')
NAMED = {word for name in SPOKEN for word in (*SYNONYMS[name], name)}
OUTCOMES: Mapping[str, str] = {
    'success': 'success', 'successes': 'success', 'wins': 'success', 'failure': 'failure', 'failures': 'failure',
    'fails': 'failure', 'losses': 'failure', 'timeout': 'timeout', 'timeouts': 'timeout', 'time_outs': 'timeout',
    'crashes': 'invalid', 'invalid': 'invalid', 'aborts': 'invalid', 'safety_stops': 'safety_stop', **OUTCOME_WORDS,
}  # fmt: skip
Table = tuple[tuple[str, ...], list[tuple[int, Row]], str]  # header, numbered rows, what was done


def reshaped(rows: Rows, options: ImportOptions) -> Rows:
    """The table with a row an episode or a cell, where it can be had of one that is laid out otherwise."""
    head = list(itertools.islice(rows.read(), MOST_ROWS + 1))
    if not head or len(head) > MOST_ROWS:
        return rows
    done: Table = (rows.header, head, '')
    notes: list[str] = []
    for change in (_metrics, _outcome_counts, _prefixed, _wide, _fractions):
        changed = change(done[0], done[1], {*options.defaults}, options.columns)
        if changed is not None:
            done = changed
            notes.append(changed[2])
    if not notes:
        return rows
    header, table, _ = done
    return replace(rows, header=header, read=lambda: iter(table), notes=(*rows.notes, *notes), batches=None)


def _column(table: Sequence[tuple[int, Row]], place: int) -> list[Any]:
    return [row[place] for _, row in table if not is_missing(row[place])]


def _metrics(
    header: tuple[str, ...], table: list[tuple[int, Row]], given: set[str], columns: Mapping[str, str]
) -> Table | None:
    """A row per metric (`metric`, `value`): the rows that agree in all else are one."""
    names = [normal(c) for c in header]
    metric = next((i for i, name in enumerate(names) if name in METRICS), None)
    value = next((i for i, name in enumerate(names) if name in VALUES), None)
    if metric is None or value is None or 'result' not in missing_fields(header, given, columns):
        return None
    kinds = list(dict.fromkeys(str(row[metric]) for _, row in table))
    if not any(normal(kind) in RESULTS for kind in kinds):
        return None
    kept = [i for i in range(len(header)) if i not in (metric, value)]
    joined: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
    for number, row in table:
        key = tuple(row[i] for i in kept)
        cells = joined.setdefault(key, (number, {}))[1]
        if str(row[metric]) in cells:
            return None  # several of one metric: what makes an episode cannot be told
        cells[str(row[metric])] = row[value]
    made: list[tuple[int, Row]] = [
        (number, [*key, *(cells.get(kind) for kind in kinds)]) for key, (number, cells) in joined.items()
    ]
    done = f'{len(kinds)} rows of {header[metric]!r} and {header[value]!r} make an episode: {", ".join(kinds)}'
    return (*(header[i] for i in kept), *kinds), made, done


def _outcome_counts(
    header: tuple[str, ...], table: list[tuple[int, Row]], given: set[str], columns: Mapping[str, str]
) -> Table | None:
    """How often each outcome occurred, in a column each: so many episodes of it."""
    places = {i: OUTCOMES[normal(c)] for i, c in enumerate(header) if normal(c) in OUTCOMES}
    if {'success', 'failure'} - set(places.values()) or columns:
        return None  # a column `timeout` beside `success` is a time cap
    cells = [cell for place in places for cell in _column(table, place)]
    sure = [cell for place, kind in places.items() if kind in ('success', 'failure') for cell in _column(table, place)]
    if not all(str(cell).strip().isdigit() and len(str(cell)) < 6 for cell in cells):
        return None
    if max(map(int, sure), default=0) < 2:
        return None
    kept = [i for i in range(len(header)) if i not in places]
    made: list[tuple[int, Row]] = [
        (number, [*(row[i] for i in kept), outcome, 'counts'])
        for number, row in table for place, outcome in places.items()
        for _ in range(0 if is_missing(row[place]) else int(row[place]))
    ]  # fmt: skip
    meaning = ', '.join(f'{header[place]} is {outcome}' for place, outcome in places.items())
    return (*(header[i] for i in kept), 'outcome', 'from'), made, f'columns count episodes by outcome: {meaning}'


def _prefixed(
    header: tuple[str, ...], table: list[tuple[int, Row]], given: set[str], columns: Mapping[str, str]
) -> Table | None:
    """Columns such as `pi0 success`, `pi0 time (s)`, `act success`: a row for each of pi0 and act."""
    lacks = [name for name in ('policy', 'task') if name in missing_fields(header, given, columns)]
    parts = {i: split for i, c in enumerate(header) if c not in columns.values() and (split := _prefix(c)) is not None}
    groups = list(dict.fromkeys(prefix for prefix, _ in parts.values()))
    fields = list(dict.fromkeys(field for _, field in parts.values()))
    if not lacks or len(groups) < 2 or not any(normal(field) in RESULTS for field in fields):
        return None
    if any((group, field) not in parts.values() for group in groups for field in fields if normal(field) in RESULTS):
        return None
    kept = [i for i in range(len(header)) if i not in parts]
    place = {split: i for i, split in parts.items()}
    made: list[tuple[int, Row]] = [
        (number, [*(row[i] for i in kept), group,
                  *(row[place[group, f]] if (group, f) in place else None for f in fields)])
        for group in groups for number, row in table
    ]  # fmt: skip
    done = f'columns are read as the {", ".join(fields)} of each {lacks[0]}: {", ".join(groups)}'
    return (*(header[i] for i in kept), lacks[0], *fields), made, done


def _prefix(column: str) -> tuple[str, str] | None:
    for mark in re.finditer(r'[ _/.:-]+', column):
        prefix, field = column[: mark.start()], column[mark.end() :]
        if prefix and (normal(field) in NAMED or split_unit(field)[0] in NAMED) and normal(column) not in NAMED:
            # `mean_success` and `episode_length` are names of their own, and `n_success` counts.
            return None if normal(prefix) in ('n', 'num', 'is', 'task', 'mean', 'max', 'total') else (prefix, field)
    return None


def _wide(
    header: tuple[str, ...], table: list[tuple[int, Row]], given: set[str], columns: Mapping[str, str]
) -> Table | None:
    """A column per policy, task or seed, whose cells are results."""
    lacks = missing_fields(header, given, columns)
    if not lacks:
        return None
    chosen = set(guess_columns(header, columns={}).columns.values()) | set(columns.values())
    cells = {
        i: column for i, c in enumerate(header)
        if c not in chosen and (column := _column(table, i)) and _kind(column) and not _is_numbering(column)
    }  # fmt: skip
    means = [i for i in cells if normal(header[i]) in MEANS]
    places = [i for i in cells if i not in means]
    missing: list[str] = [name for name in ('policy', 'task') if name in lacks]
    names = [header[i] for i in places]
    if len(missing) == 2 and (axis := _unnamed_axis(header, table, cells, names)) is not None:
        place, field = axis
        header = (*header[:place], field, *header[place + 1 :])
        missing.remove(field)
    is_numbered = len(places) > 1 and all(NUMBERED.match(normal(name)) for name in names)
    if len(places) < 2 or (not is_numbered and len(missing) != 1) or (is_numbered and 'result' not in lacks):
        return None
    kind = _kind([cell for i in places for cell in cells[i]])
    if kind is None:
        return None
    variable = ('seed' if normal(names[0]).startswith('seed') else 'trial') if is_numbered else missing[0]
    kept = [i for i in range(len(header)) if i not in cells]
    made: list[tuple[int, Row]] = [
        (number, [*(row[i] for i in kept), re.sub(r'^\D+', '', header[i]) if is_numbered else header[i], row[i]])
        for i in places for number, row in table if is_numbered or not is_missing(row[i]) or kind == 'success'
    ]  # fmt: skip
    left = f'; left out: {", ".join(header[i] for i in means)}' if means else ''
    done = f'a column per {variable}: {", ".join(names[:6])}{", ..." if len(names) > 6 else ""}{left}'
    return (*(header[i] for i in kept), variable, kind), made, done


def _unnamed_axis(
    header: Sequence[str], table: Sequence[tuple[int, Row]], cells: Mapping[int, Any], names: Sequence[str]
) -> tuple[int, str] | None:
    """The one column of names beside columns of results, and whether it names policies or tasks; None if unclear."""
    texts = [i for i in range(len(header)) if i not in cells and (column := _column(table, i)) and not _kind(column)]
    if len(texts) != 1:
        return None
    down = any(POLICIES.search(str(cell).lower()) for cell in _column(table, texts[0]))
    across = any(POLICIES.search(name.lower()) for name in names)
    return (texts[0], 'policy' if down else 'task') if down != across else None


def _kind(cells: Sequence[Any]) -> str | None:
    """What the cells of a result are called: 'success', 'success_rate', or counts; None where they are no results."""
    if all(FRACTION.match(str(cell)) for cell in cells):
        return 'counts'
    if _all(cells, lambda cell: parse_truth('success', cell)):
        return 'success'
    if not _all(cells, lambda cell: parse_quantity(cell, decimal_comma=True)):
        return None
    numbers = [parse_quantity(cell, decimal_comma=True) for cell in cells]
    if not all(n.unit in ('', '%') and 0 <= n.value <= 100 for n in numbers):
        return None
    has_sign = any(n.unit == '%' for n in numbers)
    if not has_sign and max(n.value for n in numbers) > 1 and all(n.value.is_integer() for n in numbers):
        return 'success_rate (%)' if all(n.value % 5 == 0 for n in numbers) else None  # 14 may be anything
    return 'success_rate' if has_sign or max(n.value for n in numbers) <= 1 else 'success_rate (%)'


def _all(cells: Sequence[Any], parse: Callable[[Any], object]) -> bool:
    try:
        for cell in cells:
            parse(cell)
    except (RecordError, ValueError):
        return False
    return True


def _is_numbering(cells: Sequence[Any]) -> bool:
    """Whether cells count up from 0 or 1, again and again."""
    if not all(str(cell).strip().isdigit() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return max(numbers) > 1 and set(numbers) == set(range(min(numbers), max(numbers) + 1)) and min(numbers) < 2


def _fractions(
    header: tuple[str, ...], table: list[tuple[int, Row]], given: set[str], columns: Mapping[str, str]
) -> Table | None:
    """A column of `17/20`: successes out of trials."""
    named = {normal(c) for c in header}
    if named & set(SYNONYMS['trials']) or 'trials' in given:
        return None
    filled = [(i, _column(table, i)) for i in range(len(header))]
    fractions = [i for i, cells in filled if cells and all(FRACTION.match(str(c)) for c in cells)]
    if len(fractions) != 1:
        return None
    place = fractions[0]
    kept = [i for i in range(len(header)) if i != place]

    def read() -> Iterator[tuple[int, Row]]:
        for number, row in table:
            matched = FRACTION.match(str(row[place]))
            yield number, [*(row[i] for i in kept), *((matched[1], matched[2]) if matched else (None, None))]

    done = f'cells such as {_column(table, place)[0]} are successes out of trials'
    return (*(header[i] for i in kept), 'successes', 'trials'), list(read()), done


# Documents that hold tables: Markdown, LaTeX, YAML, and objects nested by policy and task.

LARGEST_BYTES = 32 << 20
DEEPEST = 8
_RULE = pattern(r'^\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?$')
_TABULAR = pattern(
    r'\\begin\{(?:tabular[xy*]?|longtable|tblr)\}(.*?)\\end\{(?:tabular[xy*]?|longtable|tblr)\}', re.DOTALL
)
_LATEX_RULE = pattern(
    r'\\(?:top|mid|bottom)rule(?:\[[^\]]*\])?|\\(?:c|cmid|X)(?:line|rule)(?:\([^)]*\))?\{[^{}]*\}|\\hline'
    r'|^\s*(?:\[[^\]]*\])?(?:\{(?:[^{}]|\{[^{}]*\})*\}){1,2}'
)
_FIELDS = {word for words in SYNONYMS.values() for word in words} | set(NUMBERINGS) | set(SYNONYMS)
# What stands between a file and its names: {policies: {pi0: ...}}.
_LEVELS = {
    'policy': ('policies', 'models', 'methods', 'agents', 'policy', 'checkpoints'),
    'task': ('tasks', 'envs', 'environments', 'task', 'skills'),
    '': ('results', 'eval', 'evaluation', 'data', 'scores', 'metrics', 'summary'),
}  # fmt: skip


def markdown_tables(path: Path, text: str) -> list[list[list[str]]]:
    """Every table of a Markdown text, header first, without emphasis."""
    lines = [line.strip() for line in text.splitlines()]
    tables: list[list[list[str]]] = []
    for at, line in enumerate(lines):
        if not (at and '|' in line and _RULE.match(line) and '|' in lines[at - 1]):
            continue
        table = [_cells(lines[at - 1])]
        for below in lines[at + 1 :]:
            if '|' not in below:
                break
            cells = _cells(below)
            table.append((cells + [''] * len(table[0]))[: max(len(table[0]), len(cells))])
        tables.append(table)
    if not tables:
        raise InputError(f'{path}: no table in it; wanted one with a header and a line of dashes below')
    return tables


def _cells(line: str) -> list[str]:
    inner = line.removeprefix('|').removesuffix('|')
    return [re.sub(r'^([*_`~]+)(.*?)\1$', r'\2', cell.strip()).strip() for cell in re.split(r'(?<!\\)\|', inner)]


def latex_tables(path: Path, text: str) -> list[list[list[str]]]:
    """Every `tabular` of a LaTeX text, header first, without rules, emphasis, citations and spreads."""
    tables = []
    for body in _TABULAR.findall(re.sub(r'(?<!\\)%.*', '', text)):
        lines = re.split(r'\\\\(?:\s*\[[^\]]*\])?', _LATEX_RULE.sub('', body))
        rows = [[cell for part in re.split(r'(?<!\\)&', line) for cell in _latex_cells(part)] for line in lines]
        rows = [row for row in rows if any(row)]
        width = max(map(len, rows), default=0)
        if len(rows) > 1:
            tables.append([row + [''] * (width - len(row)) for row in rows])
    if not tables:
        raise InputError(f'{path}: no table in it; wanted a tabular environment with a header and rows')
    return tables


def _latex_cells(part: str) -> list[str]:
    """The text of a cell, and empty cells for those that it spans."""
    spanning = re.search(r'\\multicolumn\s*\{\s*(\d{1,3})\s*\}\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}', part)
    if spanning:
        part = part[: spanning.start()] + part[spanning.end() :]
    part = re.sub(r'\\multirow\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}', '', part)
    part = re.sub(
        r'~?\\(?:cite[a-z]*|ref|label|footnote|cellcolor|rowcolor|textcolor|color)\*?(?:\[[^\]]*\])*\{[^{}]*\}',
        '',
        part,
    )
    part = re.sub(r'(?:\\pm|±)\s*[\d.,]+', '', part.replace('~', ' ').replace('$', ''))
    part = re.sub(r'\\(?:checkmark|cmark)\b', '✓', re.sub(r'\\(?:xmark|times)\b', '✗', part))
    part = re.sub(r'\\pi(?![a-zA-Z])', 'π', re.sub(r'(?<!\\)_(?:\{(\w+)\}|(\w))', r'\1\2', part))
    text = ' '.join(re.sub(r'\\[a-zA-Z]+\*?|[{}]', ' ', re.sub(r'\\([%&_#])', r'\1', part)).split())
    return [text, *([''] * (int(spanning[1]) - 1 if spanning else 0))]


def load_yaml(path: Path) -> Any:
    """One YAML document of plain values; aliases are refused, since a few of them can stand for gigabytes."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise SetupError(f'{path}: YAML needs the package pyyaml; pip install pyyaml') from error

    class Plain(yaml.SafeLoader):  # type: ignore[misc]  # pyyaml has no types
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise InputError(f'{path}: has aliases (*name); wanted every value written out')
            return super().compose_node(parent, index)

    if path.stat().st_size > LARGEST_BYTES:
        raise InputError(f'{path}: {path.stat().st_size >> 20} MiB of YAML, wanted at most {LARGEST_BYTES >> 20}')
    try:
        return yaml.load(path.read_text(encoding='utf-8-sig'), Plain)
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8 text (byte {error.start}); save it as UTF-8') from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'{path}: not YAML ({" ".join(str(error).split())[:200]})') from error


def nested_rows(value: Any) -> list[dict[str, Any]]:
    """Rows of objects nested by names, such as {policy: {task: [true, false]}}; none where it is nothing like that."""
    rows = list(_walk(value, {}, '', 0))
    names = [key for key in ('outer', 'inner') if any(key in row for row in rows)]
    if not rows or not names:
        return []
    taken = {'policy', 'task'} & {key for row in rows for key in row}
    free = [name for name in ('policy', 'task') if name not in taken]
    called = dict(zip(names, free, strict=False))
    if len(called) < len(names):
        return []
    return [{called.get(key, key): cell for key, cell in row.items()} for row in rows]


def _walk(value: Any, above: Mapping[str, Any], level: str, depth: int) -> Iterator[dict[str, Any]]:
    if depth > DEEPEST:
        return
    if isinstance(value, dict) and value:
        yield from _walk_object(value, above, level, depth)
    elif isinstance(value, list) and value:
        for cell in value:
            if isinstance(cell, dict):
                yield {**above, **cell}
            elif isinstance(cell, bool | str) or cell in (0, 1):
                yield {**above, 'success': cell}
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield {**above, 'success_rate' if value <= 1 else 'success_rate (%)': value}
    elif isinstance(value, str) and FRACTION.match(value):
        matched = FRACTION.match(value)
        assert matched is not None
        yield {**above, 'successes': matched[1], 'trials': matched[2]}
    elif isinstance(value, bool | str) and depth:
        yield {**above, 'success': value}


def _walk_object(
    value: Mapping[str, Any], above: Mapping[str, Any], level: str, depth: int
) -> Iterator[dict[str, Any]]:
    plain = {k: v for k, v in value.items() if not isinstance(v, dict | list)}
    if plain and {normal(str(k)) for k in plain} & (_FIELDS | OUTCOMES.keys()) and depth:
        yield {**above, **plain}  # a row: its keys are fields
        return
    wrappers = {k: name for k in value for name, words in _LEVELS.items() if normal(str(k)) in words}
    if wrappers:
        around = {**above, **{k: v for k, v in plain.items() if k not in wrappers}}
        for key, name in wrappers.items():
            yield from _walk(value[key], around, name, depth + 1)
        return
    free = level or ('outer' if 'outer' not in above else 'inner')
    if free in above:
        return
    for key, inner in value.items():
        yield from _walk(inner, {**above, free: str(key)}, '', depth + 1)
