"""openpi's DROID results: `results/eval_<time>.csv` with success, duration (steps at 15 Hz) and video_filename."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError
from robotrials.formats.cell import parse_plain, parse_whole
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Question,
    Recording,
    check_settable,
    placed,
    refuse_unused,
    whole_option,
)
from robotrials.formats.outcome import Caps
from robotrials.formats.peek import head_of
from robotrials.formats.rows import Rows, open_rows
from robotrials.record.episode import Episode, Outcome

COLUMNS = ('success', 'duration', 'video_filename')
HUNDREDTH = Question(
    'droid-0.01',
    "A success of 0.01 is what openpi's script stores for the answer 'y' (it divides by 100), and for 1 percent.",
    ('success', 'partial'),
    None,
)


class DroidCsvFormat:
    """One row per rollout, written by openpi's examples/droid/main.py."""

    name = 'openpi-droid'
    summary = "openpi's DROID results (eval_<time>.csv: success, duration, video_filename)"

    def recognise(self, path: Path) -> float | None:
        if not path.is_file() or path.suffix != '.csv':
            return None
        header = head_of(path).decode('utf-8-sig', 'replace').split('\n', 1)[0].strip().split(',')
        return CERTAIN if tuple(name for name in header if name) == COLUMNS else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        from robotrials.formats.control_rate import RATES_HZ

        refuse_unused(options, name='DROID results', takes=('rate_hz', 'answers'))
        check_settable(options, 'DROID results', ('policy', 'task', 'step_cap'))
        for name in ('policy', 'task'):
            if name not in options.defaults:
                raise InputError(f'{path}: no {name} is recorded; give it with --set {name}=NAME')
        rows = open_rows(path)
        places = {name: rows.header.index(name) for name in COLUMNS}
        is_asked = any(_success(row[places['success']]) == 0.01 for _, row in rows.read())
        ledger, rate = Ledger(), options.rate_hz or RATES_HZ['droid']
        return Imported(
            format=self.name,
            sources=(path,),
            recordings=lambda: _recordings(rows, places, options, ledger, rate=rate),
            ledger=ledger,
            guesses=(
                FieldGuess('policy', repr(options.defaults['policy'])),
                FieldGuess('task', repr(options.defaults['task'])),
                FieldGuess('steps', "column 'duration'", f'{rate:g} steps per second'),
                FieldGuess('score', "column 'success'", 'a success where it is 1'),
            ),
            questions=(HUNDREDTH,) if is_asked else (),
        )


DROID_CSV = DroidCsvFormat()


def _success(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _recordings(
    rows: Rows, places: dict[str, int], options: ImportOptions, ledger: Ledger, *, rate: float
) -> Iterator[Recording]:
    hundredth = HUNDREDTH.answer(options)
    source, caps = options.source_name(rows.path), Caps()
    for number, row in rows.read():
        try:
            episode = _episode(
                [row[places[c]] for c in COLUMNS], options, rate=rate, source=source, hundredth=hundredth
            )
        except RecordError as error:
            raise RecordError(f'{rows.path} row {number}: {error}; nothing was imported') from error
        caps.see({'steps': episode.steps}, is_failure=episode.outcome is Outcome.FAILURE)
        ledger.keep(f'episodes: {episode.outcome.value}')
        yield Recording(placed(episode, number))
    for hint in caps.hints():
        ledger.hint(hint)
    ledger.note('duration holds control steps, not seconds')


def _episode(cells: list[Any], options: ImportOptions, *, rate: float, source: str, hundredth: str | None) -> Episode:
    score = parse_plain('success', cells[0], decimal_comma=False)
    if not 0 <= score <= 1:
        raise RecordError(f'success is {cells[0]}, wanted 0 to 1 (the script divides what was typed by 100)')
    if score == 0.01 and hundredth == 'success':
        score = 1.0
    steps = parse_whole('duration', cells[1], decimal_comma=False)
    cap = whole_option(options, 'step_cap')
    success = score == 1.0
    failed = Outcome.TIMEOUT if cap is not None and steps >= cap else Outcome.FAILURE
    return Episode(
        policy=options.defaults['policy'], task=options.defaults['task'], benchmark='droid', score=score, max_score=1.0,
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if success else failed, success=success, steps=steps,
        duration_s=steps / rate, time_cap_s=cap / rate if cap else None, labels={'video_filename': str(cells[2])},
    )  # fmt: skip
