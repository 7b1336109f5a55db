"""Which column of a stranger's table is which field of an episode: by usual names, and by what the cells hold.

A table's cell as people type it: `85%`, `83,5`, `1:23`, `12 s`, `yes`, `N/A`.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from robotrials.errors import RecordError, UnknownName
from robotrials.formats.imported import FixableError, ImportOptions, Question
from robotrials.record.episode import FALSE_WORDS, PARSERS, TRUE_WORDS, EventKind, Outcome, parse_field
from robotrials.value import dataclass, pattern

# A cell as people type it: `85%`, `83,5`, `1:23`, `12 s`, `yes`, `N/A`.

MISSING_WORDS = frozenset({'', 'n/a', 'na', 'n.a.', 'nan', 'null', 'none', '-', '--', '–', '—', '#n/a', '?', 'nil'})
YES = TRUE_WORDS | {
    'ja', 'oui', 'si', 'sí', 'ok', '✓', '✔', '✅', '☑', '√', '✔️', '👍', 'true.', 'yes.', 'worked', '是', '成功', 'はい',
    'erfolg', 'erfolgreich', 'succès', 'réussi', 'éxito', '◯', '○',
}  # fmt: skip
NO = FALSE_WORDS | {
    'nein', 'non', 'nope', '✗', '✘', '❌', '☒', '✖', '✖️', '×', '👎', 'not successful', 'unsuccessful', '否', '失败',
    '失敗', 'いいえ', 'fehlgeschlagen', 'misserfolg', 'échec', 'fallo',
}  # fmt: skip
UNITS: Mapping[str, float] = {
    's': 1.0, 'sec': 1.0, 'secs': 1.0, 'seconds': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9,
    'min': 60.0, 'mins': 60.0, 'minutes': 60.0, 'm': 60.0, 'h': 3600.0,
}  # fmt: skip
LONGEST_SHOWN = 60
_NUMBER = pattern(r'^([-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d{1,4})?)\s*(%|[a-zA-Z]*)$')
_SPREAD = pattern(r'(?<=[\d%])\s*(?:±|\+/-|\+-)\s*[\d.,]+\s*%?$')
_CLOCK = pattern(r'^(\d+):([0-5]?\d)(?::([0-5]?\d))?(?:[.,](\d+))?$')
_MINUTES_SECONDS = pattern(r'^(\d+)\s*(?:m|min)\s*(\d+(?:[.,]\d+)?)\s*s(?:ec)?$')
_GROUPED = pattern(r'^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$')
_COMMA_DECIMAL = pattern(r'^[-+]?\d*,\d+\s*%?$')


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as typed, and what stood behind it: '', '%', 'clock' (m:ss), or a unit of time."""

    value: float
    unit: str = ''


class UnknownWordError(RecordError):
    """A result in a word that means neither success nor any other outcome."""

    def __init__(self, message: str, word: str) -> None:
        self.word = word
        super().__init__(message)


def short(value: Any) -> str:
    """A value as a message shows it: never longer than a line."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f'{text[:LONGEST_SHOWN]}... ({len(text):,} characters)'


def is_missing(value: Any) -> bool:
    """Whether a cell of numbers or truth says nothing."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING_WORDS
    return isinstance(value, float) and math.isnan(value)


def without_spread(text: str) -> str:
    """A cell without what is printed behind its number: `85.0 ± 3.2` is 85.0."""
    return _SPREAD.sub('', text.strip())


def has_decimal_comma(values: Iterable[str], *, separator: str) -> bool | None:
    """Whether commas in these cells are decimal points; None where `1,234` could be either."""
    commas = [v.strip() for v in values if ',' in v]
    decimal = [v for v in commas if _COMMA_DECIMAL.match(v)]
    if not decimal:
        return False
    if any(not _GROUPED.match(v.rstrip(' %')) for v in decimal):
        return True
    return True if separator in (';', '\t') else None


def parse_quantity(value: Any, *, decimal_comma: bool) -> Quantity:
    """The number in a cell; ValueError where there is none."""
    if isinstance(value, bool):
        raise ValueError(value)
    if isinstance(value, int | float):
        return Quantity(float(value))
    if isinstance(value, dt.timedelta):
        return Quantity(value.total_seconds(), 's')
    if isinstance(value, dt.time):
        return Quantity(value.hour * 3600.0 + value.minute * 60 + value.second + value.microsecond * 1e-6, 'time')
    text = without_spread(str(value))
    clock = _clock(text)
    if clock is not None:
        return Quantity(clock, 'clock')
    matched = _NUMBER.match(text)
    if matched is None:
        raise ValueError(value)
    digits, unit = matched.groups()
    if decimal_comma:
        digits = digits.replace('.', '').replace(',', '.') if ',' in digits else digits
    elif _GROUPED.match(digits):
        digits = digits.replace(',', '')
    return Quantity(float(digits), unit.lower())


def _clock(text: str) -> float | None:
    matched = _CLOCK.match(text)
    if matched is not None:
        first, second, third, fraction = matched.groups()
        whole = int(first) * 60 + int(second) if third is None else int(first) * 3600 + int(second) * 60 + int(third)
        return whole + (float(f'0.{fraction}') if fraction else 0.0)
    spelled = _MINUTES_SECONDS.match(text.lower())
    return None if spelled is None else int(spelled[1]) * 60 + float(spelled[2].replace(',', '.'))


def parse_seconds(name: str, value: Any, *, scale: float, decimal_comma: bool, clock: float = 1.0) -> float:
    """A cell of time in seconds; a unit in the cell wins over the unit of the column (`scale`).

    `clock` scales times of day, which is what a spreadsheet makes of `1:23`.
    """
    quantity = _quantity(name, value, decimal_comma, 'seconds, such as 83.5 or 1:23')
    if quantity.unit in ('', 'clock', 'time'):
        return quantity.value * {'': scale, 'clock': 1.0, 'time': clock}[quantity.unit]
    if quantity.unit not in UNITS:
        raise RecordError(f'{name} is {short(value)}, wanted seconds, such as 83.5, 12 s or 1:23')
    return quantity.value * UNITS[quantity.unit]


def parse_plain(name: str, value: Any, *, decimal_comma: bool) -> float:
    """A cell that holds a bare number."""
    quantity = _quantity(name, value, decimal_comma, 'a number')
    if quantity.unit:
        raise RecordError(f'{name} is {short(value)}, wanted a number without a unit')
    return quantity.value


def parse_share(name: str, value: Any, *, scale: float, decimal_comma: bool) -> float:
    """A cell that holds a share: `85%` is 0.85, and so is 85 in a column of percentages (`scale` 0.01)."""
    quantity = _quantity(name, value, decimal_comma, 'a number or a percentage')
    if quantity.unit not in ('', '%'):
        raise RecordError(f'{name} is {short(value)}, wanted a number or a percentage')
    return quantity.value * (0.01 if quantity.unit == '%' else scale)


def parse_whole(name: str, value: Any, *, decimal_comma: bool) -> int:
    """A cell that holds a whole number."""
    if type(value) is int:
        return value
    if isinstance(value, str) and value.strip().lstrip('+-').isdigit() and len(value) < 4000:
        return int(value)
    number = parse_plain(name, value, decimal_comma=decimal_comma)
    if not number.is_integer():
        raise RecordError(f'{name} is {short(value)}, wanted a whole number')
    return int(number)


def parse_truth(name: str, value: Any) -> bool:
    """A cell that says yes or no; `100%` and `0%` do, `85%` does not."""
    word = str(value).strip().lower()
    if word in YES or word in ('100%', '100 %', '100.0%', '100,0%'):
        return True
    if word in NO or word in ('0%', '0 %', '0.0%', '0,0%'):
        return False
    message = (
        f'{name} is {short(value)}, wanted true or false (or yes/no, 1/0, success/failure); a degree of success is a '
        'score (--map score=COLUMN), successes out of trials are counts (--map successes=COLUMN trials=COLUMN)'
    )
    raise RecordError(message) if word[:1].isdigit() else UnknownWordError(message, str(value).strip())


def parse_outcome(value: Any) -> Any:
    """An outcome by its name, or in the words for yes and no."""
    word = str(value).strip().lower()
    if word in YES or word in NO:
        return Outcome.SUCCESS if word in YES else Outcome.FAILURE
    try:
        return parse_other('outcome', value)
    except RecordError as error:
        raise UnknownWordError(str(error), str(value).strip()) from error


def parse_other(name: str, value: Any) -> Any:
    """Fields that need no tolerance, as the record parses them; long values are cut in the message."""
    try:
        return parse_field(name, value)
    except RecordError as error:
        text = str(error)
        raise RecordError(text if len(text) < 400 else f'{text[:400]}...') from error


def _quantity(name: str, value: Any, decimal_comma: bool, wanted: str) -> Quantity:
    try:
        quantity = parse_quantity(value, decimal_comma=decimal_comma)
    except (ValueError, OverflowError) as error:
        raise RecordError(f'{name} is {short(value)}, wanted {wanted}') from error
    if not math.isfinite(quantity.value):
        raise RecordError(f'{name} is {short(value)}, wanted a finite number')
    return quantity


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    'policy': ('policy', 'model', 'method', 'arm', 'agent', 'checkpoint', 'policy_name', 'model_name', 'algorithm',
               'ckpt', 'modell', 'policy_id', 'model_id', 'robot_policy', 'policy_type', 'policy_checkpoint',
               'policy_path', 'checkpoint_name', 'vla', 'strategie', 'methode', 'verfahren', 'ansatz', 'modele',
               'politique', 'politica', 'modelo', 'metodo', '策略', '模型', '方法', '方策', 'モデル', 'approach',
               'policy_variant', 'job_name'),
    'task': ('task', 'task_name', 'env', 'environment', 'env_name', 'task_id', 'task_suite', 'skill', 'aufgabe',
             'arena_env', 'environment_name', 'scenario', 'tache', 'tarea', '任务', 'タスク', 'task_suite_name',
             'scene'),
    'outcome': ('outcome', 'status', 'result', 'verdict', 'eval_outcome', 'ergebnis', 'resultat', 'resultado',
                '结果'),
    'success': ('success', 'is_success', 'succeeded', 'success_flag', 'task_success', 'successful', 'done_success',
                'erfolg', 'solved', 'worked', 'did_it_work', 'ok', 'passed', 'task_completed', 'completed',
                'erfolgreich', 'succes', 'reussite',
                'reussi', 'exito', '成功', '是否成功'),
    'duration_s': (
        'duration_s', 'duration', 'time_s', 'time', 'elapsed', 'elapsed_s', 'seconds', 'episode_time', 'wall_time',
        'completion_time', 'time_to_success', 'duration_sec', 'duration_seconds', 'episode_duration', 'rollout_time',
        'elapsed_sec', 'time_taken', 'zeit', 'dauer', 'duree', 'temps', 'duracion', 'tiempo', '时间', '耗时', '時間',
    ),
    'steps': ('steps', 'n_steps', 'num_steps', 'episode_length', 'episode_steps', 'control_steps', 'ep_len', 'length',
              'episode_len', 'step_count', 'timesteps', 'schritte', '步数'),
    'time_cap_s': ('time_cap_s', 'time_cap', 'timeout', 'timeout_s', 'max_time', 'time_limit', 'time_limit_s', 'cap_s'),
    'step_cap': ('step_cap', 'max_steps', 'step_limit', 'horizon', 'max_episode_steps'),
    'stratum': ('stratum', 'object', 'object_type', 'object_name', 'suite', 'category', 'task_group', 'objekt'),
    'benchmark': ('benchmark', 'benchmark_name'),
    'condition': ('condition', 'perturbation', 'disturbance', 'variant'),
    'seed': ('seed', 'random_seed', 'rng_seed', 'env_seed'),
    'instance': ('instance', 'init_state', 'init_state_id', 'initial_state', 'initial_state_id', 'init_id',
                 'start_state'),
    'repeat': ('repeat', 'repetition', 'rep'),
    'attempt': ('attempt', 'retry'),
    'items': ('items', 'n_items', 'total_items', 'num_items', 'items_total'),
    'items_placed': ('items_placed', 'placed', 'successful_items', 'n_placed', 'num_placed'),
    'items_lost': ('items_lost', 'lost', 'items_outside', 'dropped_outside', 'n_lost'),
    'score': ('score', 'return', 'progress', 'task_score', 'completed_subtasks', 'partial_success', 'task_progress'),
    'max_score': ('max_score', 'score_max'),
    'is_reference': ('is_reference', 'reference', 'is_human', 'human'),
    'session': ('session', 'session_id', 'day'),
    'operator': ('operator', 'evaluator', 'annotator', 'user'),
    'block': ('block', 'block_id'),
    'started_at': ('started_at', 'start_time', 'timestamp', 'started', 'datetime', 'date'),
    'reason': ('reason', 'failure_reason', 'notes', 'note', 'comment', 'comments', 'bemerkung'),
    'instruction': ('instruction', 'language', 'prompt', 'language_instruction', 'task_description'),
    'placement_times_s': ('placement_times_s', 'placement_times', 'success_times', 'place_times', 'place_timestamps'),
    'drop_times_s': ('drop_times_s', 'drop_times', 'drops', 'drop_timestamps'),
    'successes': ('successes', 'n_success', 'num_success', 'n_successes', 'num_successes', 'success_count', 'wins',
                  'success', 'succeeded', 'solved'),
    'success_rate': ('success_rate', 'sr', 'rate', 'success_percentage', 'pc_success', 'mean_success', 'success_pct',
                     'success', 'erfolgsrate', 'erfolgsquote', 'taux_de_succes', 'taux_de_reussite', 'tasa_de_exito',
                     '成功率'),
    'trials': ('trials', 'n_trials', 'num_trials', 'n_episodes', 'num_episodes', 'n_rollouts', 'num_rollouts',
               'rollouts', 'episodes', 'evaluations', 'total', 'n', 'attempts', 'out_of', 'eval_episodes',
               'n_eval_episodes', 'num_eval_episodes', 'num_evals', 'n_evals', 'n_runs', 'versuche', 'durchlaufe',
               'essais', 'intentos', 'ensayos', '次数', '试验次数', '試行回数'),
}  # fmt: skip
RESULTS = {word for name in ('success', 'outcome', 'successes', 'success_rate', 'score') for word in SYNONYMS[name]}
TIME_LISTS: Mapping[str, EventKind] = {
    'placement_times_s': EventKind.PLACEMENT,
    'drop_times_s': EventKind.DROP_OUTSIDE,
}
COUNTS = ('successes', 'success_rate', 'trials')
DURATIONS = ('duration_s', 'time_cap_s')
FIELDS = (*PARSERS, *TIME_LISTS, 'step_cap', *COUNTS)
# Columns that number rollouts: an initial state only if someone says so.
NUMBERINGS = ('episode', 'episode_index', 'episode_idx', 'trial', 'trial_index', 'trial_id', 'sample', 'sample_id',
              'rollout', 'rollout_id', 'run', 'ep', 'attempt', 'episode_ix', 'episode_number', 'index',
              'idx', 'versuch', 'durchlauf', 'essai', 'intento', 'ensayo', 'run_id', 'trial_no',
              'no', 'nr')  # fmt: skip
# Fields whose usual column names also mean other things: a guess whose values do not parse is taken back.
LOOSE_FIELDS = (
    'seed',
    'instance',
    'repeat',
    'attempt',
    'started_at',
    'is_reference',
    'items',
    'items_placed',
    'items_lost',
)
NO_COLUMN = '-'  # --map FIELD=- : no column feeds this field
_PERCENT_HEADER = re.compile(r'%|\bpercent|\bpct\b|_pct$', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Which column feeds which field, in what unit; columns that feed none become labels."""

    columns: Mapping[str, str]  # field -> column
    scale: Mapping[str, float] = field(default_factory=dict)  # field -> seconds, or share, per unit
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_share: bool = False  # scores are shares of 1

    def without(self, names: Iterable[str]) -> ColumnMap:
        """The map with the columns of these fields as labels."""
        gone = set(names)
        kept = {name: column for name, column in self.columns.items() if name not in gone}
        freed = tuple(column for name, column in self.columns.items() if name in gone)
        return replace(self, columns=kept, labels=(*self.labels, *freed))


def check_field(name: str) -> str:
    """The name, if episodes have such a field."""
    if name not in FIELDS:
        raise UnknownName('field of an episode', name, FIELDS, most=len(FIELDS))  # the help lists them nowhere
    return name


@functools.lru_cache(4096)  # each column is held against every synonym of every field
def normal(name: str) -> str:
    """A column's name without case, accents, punctuation and camel humps."""
    split = re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name)
    if not split.isascii():
        split = ''.join(c for c in unicodedata.normalize('NFKD', split) if not unicodedata.combining(c))
    return re.sub(r'[\W_]+', '_', split.lower()).strip('_')


def is_usual(name: str) -> bool:
    """Whether a text is a column name that episodes' tables often have."""
    plain = normal(name)
    return bool(plain) and (plain in _USUAL or split_unit(plain)[0] in _USUAL)


@functools.lru_cache(4096)
def split_unit(name: str) -> tuple[str, float]:
    """The name without its unit of time, and the seconds in that unit."""
    stem, _, unit = normal(name).rpartition('_')
    return (stem, UNITS[unit]) if stem and unit in UNITS and unit not in ('m', 'h') else (normal(name), 1.0)


def guess_columns(
    header: Sequence[str], *, columns: Mapping[str, str] | None = None, given: Collection[str] = ()
) -> ColumnMap:
    """A column for each field by its usual names and units (`duration_ms`); what `columns` says goes first.

    `given` are fields with one value for all rows: where that is the number of trials, rows hold counts.
    """
    asked = {check_field(name): column for name, column in (columns or {}).items()}
    chosen = {name: column for name, column in asked.items() if column != NO_COLUMN}
    for name, column in chosen.items():
        if column not in header:
            raise UnknownName(f'column (for {name})', column, header)
    refused = {name for name, column in asked.items() if column == NO_COLUMN}
    has_counts = _has_counts(header, chosen, given)
    skip = {*asked, *(() if has_counts else COUNTS), *refused}
    if has_counts:
        skip |= {'success', 'items_placed', 'outcome'} - set(chosen)
        order = [*COUNTS, *(name for name in FIELDS if name not in COUNTS)]
    else:
        order = list(FIELDS)
    for name in (n for n in order if n not in skip):
        fitting = _first_fit(header, name, taken=set(chosen.values()))
        if fitting is not None and not (name == 'success_rate' and 'successes' in chosen):
            chosen[name] = fitting
    scale = {name: _scale(name, column) for name, column in chosen.items()}
    labels = tuple(c for c in header if c not in chosen.values())
    return ColumnMap(chosen, {n: s for n, s in scale.items() if s != 1.0}, labels)


def _has_counts(header: Sequence[str], chosen: Mapping[str, str], given: Collection[str]) -> bool:
    """Whether the table has one row per cell: successes, or their rate, out of trials."""
    trials = chosen.get('trials') or _first_fit(header, 'trials', taken=set())
    if trials is None and 'trials' not in given:
        return False
    if 'successes' in chosen or 'success_rate' in chosen:
        return True
    return any(_first_fit(header, name, taken={trials or ''}) is not None for name in ('successes', 'success_rate'))


def _first_fit(header: Sequence[str], name: str, *, taken: set[str]) -> str | None:
    free = [c for c in header if c not in taken]
    for synonym in SYNONYMS.get(name, (name,)):
        fitting = [c for c in free if _fits(normal(c), synonym, name)]
        # A nested key by its last part, the shortest path first.
        fitting += sorted((c for c in free if any(_fits(t, synonym, name) for t in _tails(c))), key=len)
        if fitting:
            return fitting[0]
    return None


def _tails(column: str) -> list[str]:
    """The last two parts of a path (`run.seed`, `eval/success_rate`) joined, and the last alone."""
    parts = re.split(r'[./]', column)
    return [normal('_'.join(parts[-2:])), normal(parts[-1])] if len(parts) > 1 else []


def _fits(plain: str, synonym: str, name: str) -> bool:
    if plain == synonym:
        return True
    stem = split_unit(plain)[0]
    return name in DURATIONS and stem != plain and stem in (synonym, synonym.removesuffix('_s'))


def _scale(name: str, column: str) -> float:
    if name in DURATIONS:
        return split_unit(column.rpartition('.')[2] if '.' in column else column)[1]
    return 0.01 if name in ('score', 'success_rate') and _PERCENT_HEADER.search(column) else 1.0


def fit_to_cells(guessed: ColumnMap, cells: Mapping[str, Sequence[Any]], *, sure: Mapping[str, str]) -> ColumnMap:
    """Take back guesses that the cells contradict (`episode` with `ep_003` is no number); they become labels.

    `cells` holds, for each column, the first of its cells that say something.
    """
    has_other = 'success' in guessed.columns or any(normal(c) in SYNONYMS['success_rate'] for c in guessed.labels)
    doubtful = [*LOOSE_FIELDS, 'score', *(['outcome'] if has_other else [])]  # `status: FINISHED` is of a run
    misfits = [
        name for name in doubtful
        if name in guessed.columns and name not in sure and not _all_parse(name, cells[guessed.columns[name]])
    ]  # fmt: skip
    if 'attempt' in guessed.columns and not {*sure, *guessed.columns} & {'seed', 'instance', 'episode_id'}:
        misfits += ['attempt'] if 'attempt' not in sure and 'attempt' not in misfits else []  # it numbers rollouts
    fitted = guessed.without(misfits)
    if 'success' in fitted.columns and 'success' not in sure:
        fitted = _success_as_score(fitted, cells[fitted.columns['success']])
    if 'score' in fitted.columns and not fitted.is_share:
        fitted = _score_as_share(fitted, cells[fitted.columns['score']])
    if 'success_rate' in fitted.columns and _above_one(cells[fitted.columns['success_rate']]):
        fitted = replace(fitted, scale={**fitted.scale, 'success_rate': 0.01})
    return fitted


def _above_one(values: Sequence[Any]) -> bool:
    """Whether rates are percentages although nothing calls them so: some exceed 1, none exceeds 100."""
    try:
        numbers = [parse_quantity(value, decimal_comma=True) for value in values]
    except ValueError:
        return False
    return bool(numbers) and 1 < max(n.value for n in numbers) <= 100 and not any(n.unit for n in numbers)


def _score_as_share(guessed: ColumnMap, values: Sequence[Any]) -> ColumnMap:
    """Percentages are shares of 1; so are the cells of a column that is headed as percentages and never exceeds 1."""
    numbers = [parse_quantity(value, decimal_comma=True) for value in values]
    has_sign, is_headed = any(n.unit == '%' for n in numbers), guessed.scale.get('score') == 0.01
    if is_headed and not has_sign and numbers and max(n.value for n in numbers) <= 1:
        column = guessed.columns['score']
        note = f'column {column!r} is headed as percentages and never exceeds 1, so its cells are read as shares of 1'
        scale = {name: s for name, s in guessed.scale.items() if name != 'score'}
        return replace(guessed, scale=scale, notes=(*guessed.notes, note), is_share=True)
    return replace(guessed, is_share=has_sign or is_headed)


def _all_parse(name: str, values: Sequence[Any]) -> bool:
    try:
        for value in dict.fromkeys(values) if _is_text(values) else values:
            if name == 'score':
                parse_quantity(value, decimal_comma=True)
            elif name in ('items_placed', 'items_lost') and not str(value).isdigit():
                parse_truth(name, value)
            else:
                parse_field(name, value)
    except (RecordError, ValueError):
        return False
    return True


def _success_as_score(guessed: ColumnMap, values: Sequence[Any]) -> ColumnMap:
    """A success column of shares or percentages is a score: none of it says yes or no."""
    try:
        for value in dict.fromkeys(values) if _is_text(values) else values:
            parse_truth('success', value)
        return guessed
    except RecordError:
        pass
    try:
        numbers = [parse_quantity(value, decimal_comma=True) for value in values]
    except ValueError:
        return guessed
    if 'score' in guessed.columns or not all(n.unit in ('', '%') and 0 <= n.value <= 100 for n in numbers):
        return guessed
    column = guessed.columns['success']
    is_percent = any(n.unit == '%' for n in numbers) or max(n.value for n in numbers) > 1
    note = f'column {column!r} holds degrees of success, so it is read as a score from 0 to 1'
    scale = {**guessed.scale, **({'score': 0.01} if is_percent else {})}
    columns = {('score' if name == 'success' else name): c for name, c in guessed.columns.items()}
    return replace(guessed, columns=columns, scale=scale, notes=(*guessed.notes, note), is_share=True)


def sample_cells(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """For each column, those cells of the given rows, of which there is at least one, that say something."""
    columns = zip(header, zip(*rows, strict=True), strict=True)
    return {name: _saying(column) for name, column in columns}


def _saying(column: Sequence[Any]) -> list[Any]:
    if not _is_text(column):
        return [value for value in column if not is_missing(value)]
    missing = set(filter(is_missing, set(column)))  # each text is looked at once
    return [value for value in column if value not in missing] if missing else list(column)


def _is_text(values: Sequence[Any]) -> bool:
    return all(type(value) is str for value in values)


_USUAL = (
    frozenset(synonym for names in SYNONYMS.values() for synonym in names) | frozenset(NUMBERINGS) | frozenset(FIELDS)
)


# Names that may be one: `Towel Folding`, `towel folding ` and `towel_folding`.

ALIKE = ('policy', 'task', 'stratum', 'condition')
MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class AlikeNames:
    """The question whether such names are one, and the spelling of each if they are."""

    question: Question
    spelling: Callable[[str], str]


def plain_name(name: str) -> str:
    """A name without case, and with one kind of space."""
    return re.sub(r'[\s_-]+', ' ', name).strip().casefold()


def groups_alike(names: Iterable[str]) -> list[list[str]]:
    """Names that differ only in case, spaces, underscores and dashes; of each group the most frequent first.

    `names` has every occurrence, or is a Counter of them.
    """
    groups: dict[str, Counter[str]] = {}
    for name, count in Counter(names).items():
        groups.setdefault(plain_name(name), Counter())[name] = count
    return [[name for name, _ in group.most_common()] for group in groups.values() if len(group) > 1]


def alike_names(cells: Mapping[str, Sequence[Any]]) -> AlikeNames | None:
    """What to ask about the names of these fields; None where all are clearly apart."""
    alike = {name: groups_alike(map(str, values)) for name, values in cells.items()}
    pairs = [f'{name} {" = ".join(map(repr, group))}' for name, groups in alike.items() for group in groups]
    if not pairs:
        return None
    more = f' and {len(pairs) - MOST_TOLD} more' if len(pairs) > MOST_TOLD else ''
    first = {plain_name(group[0]): group[0] for groups in alike.values() for group in groups}
    return AlikeNames(
        Question('names', f'Names that look alike: {"; ".join(pairs[:MOST_TOLD])}{more}?', ('apart', 'join'), 'apart'),
        lambda name: first.get(plain_name(name), name),
    )


# What is wrong with the rows of a table: a line per distinct problem, and the options that would settle them all.

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
        message = '\n'.join([*lines, *([f'... and {more} more problems'] if more > 0 else []), 'nothing was imported'])
        if not self.is_fixable:
            raise RecordError(message)
        fixed = replace(
            self.options, values={**self.options.values, **self.words}, blank=self.blank or self.options.blank
        )
        raise FixableError(message, self.path, fixed)

    def _where(self, text: str) -> str:
        numbers, count = self.rows[text], self.counts[text]
        if count == 1:
            return f'row {numbers[0]}'
        return f'rows {", ".join(map(str, numbers))}{f", ... ({count:,} rows)" if count > len(numbers) else ""}'


def missing_fields(header: Sequence[str], given: set[str], columns: Mapping[str, str]) -> set[str]:
    """Which of policy, task and a result no column is named for."""
    known = {column: name for name, column in columns.items()}
    asked = {name: column for name, column in columns.items() if column in header}
    has = {*guess_columns([c for c in header if c not in known], columns={}).columns, *asked, *given}
    named = {normal(column) for column in header}
    has_result = bool(has & {'outcome', 'success', 'score', 'items_placed', 'placement_times_s'} or named & RESULTS)
    return {name for name in ('policy', 'task') if name not in has} | (set() if has_result else {'result'})
