"""Documents that hold tables: Markdown, LaTeX, YAML, and objects nested by policy and task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, SetupError
from robotrials.formats.guess import NUMBERINGS, SYNONYMS, normal
from robotrials.formats.reshape import FRACTION, OUTCOMES

LARGEST_BYTES = 32 << 20
DEEPEST = 8
_RULE = re.compile(r'^\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?$')
_TABULAR = re.compile(
    r'\\begin\{(?:tabular[xy*]?|longtable|tblr)\}(.*?)\\end\{(?:tabular[xy*]?|longtable|tblr)\}', re.DOTALL
)
_LATEX_RULE = re.compile(
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
