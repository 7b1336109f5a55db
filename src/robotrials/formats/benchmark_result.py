"""Result files of single benchmarks: CALVIN, SimplerEnv, RoboChallenge, openpi's DROID tables.

Score matrices as rliable takes them: for each algorithm an array (runs, tasks), in .npz or JSON.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError
from robotrials.formats.guess import SYNONYMS, normal, parse_plain, parse_whole
from robotrials.formats.imported import (
    CERTAIN,
    LIKELY,
    MOST_FILES,
    RATES_HZ,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Question,
    Recording,
    head_of,
    placed,
    refuse_unused,
    whole_option,
)
from robotrials.formats.row_outcome import LABEL, Caps
from robotrials.formats.rows import Row, Rows, check_archive, flat, load_json, open_rows
from robotrials.formats.table import read_rows
from robotrials.record.episode import Episode, Outcome, digest
from robotrials.value import pattern

# CALVIN's `results.json`: chains of five subtasks, kept as rates of chains of at least 1, 2, ... 5.

CHAIN = 5
SEQUENCES = 1000


class CalvinFormat:
    """The counts of one or more checkpoints."""

    name = 'calvin'
    summary = "CALVIN's results.json (avg_seq_len, chain_sr, task_info), expanded to 1,000 sequences per checkpoint"

    def recognise(self, path: Path) -> float | None:
        if not path.is_file() or path.suffix != '.json':
            return None
        head = head_of(path)
        return LIKELY if b'"chain_sr"' in head and b'"avg_seq_len"' in head else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='CALVIN results', takes=(), sets=('policy', 'trials'))
        document = load_json(path)
        if not isinstance(document, dict) or not document:
            raise InputError(f'{path}: wanted an object with an entry per checkpoint')
        trials = whole_option(options, 'trials') or SEQUENCES
        policy = options.defaults.get('policy') or path.resolve().parent.name
        names = {epoch: policy if len(document) == 1 else f'{policy}@{epoch}' for epoch in document}
        counts = {epoch: completed_counts(path, epoch, values, trials) for epoch, values in document.items()}
        ledger, source = ImportAccount(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for epoch, counted in counts.items():
                for place, done in enumerate(d for d, n in enumerate(counted) for _ in range(n)):
                    ledger.keep(f'sequences with {done} of {CHAIN} subtasks')
                    yield Recording(placed(_episode(names[epoch], done, source), epoch, place))
            ledger.note('expanded from rates: no sequence, seed or time is recorded, so nothing is paired or timed')
            ledger.drop('task_info', None, why='successes per subtask of the same sequences; they would count twice')

        guesses = [FieldGuess('policy', f'checkpoint {epoch!r}', name) for epoch, name in names.items()]
        guesses.append(FieldGuess('(episodes)', f'{trials} sequences each (--set trials=N)', 'labelled from=counts'))
        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=tuple(guesses))


CALVIN = CalvinFormat()


def completed_counts(path: Path, epoch: str, values: Any, trials: int) -> list[int]:
    """How many sequences completed exactly 0, 1, ... 5 subtasks: differences of the rates, which must be whole."""
    where = f'{path} {epoch!r}'
    chain = values.get('chain_sr') if isinstance(values, Mapping) else None
    if not isinstance(chain, dict) or set(chain) != {str(k) for k in range(1, CHAIN + 1)}:
        raise InputError(f'{where}: chain_sr wants the keys "1" to "{CHAIN}"')
    shares = [1.0, *(chain[str(k)] for k in range(1, CHAIN + 1)), 0.0]
    if not all(isinstance(s, int | float) and math.isfinite(s) and 0 <= s <= 1 for s in shares):
        raise InputError(f'{where}: chain_sr holds {list(chain.values())}, wanted shares from 0 to 1 (not percentages)')
    if any(a < b for a, b in zip(shares, shares[1:], strict=False)):  # noqa: RUF007 - shares and those after them
        raise InputError(f'{where}: chain_sr rises; a chain of k + 1 subtasks holds one of k')
    at_least = [s * trials for s in shares]
    if any(abs(n - round(n)) > 1e-6 * trials for n in at_least):
        raise InputError(
            f'{where}: chain_sr are not counts out of {trials} sequences; say how many with --set trials=N'
        )
    mean = values.get('avg_seq_len')
    if isinstance(mean, int | float) and abs(mean - sum(shares[1:-1])) > 0.01:
        raise InputError(f'{where}: avg_seq_len is {mean}, chain_sr adds up to {sum(shares[1:-1]):.3f}')
    whole = [round(n) for n in at_least]
    return [a - b for a, b in zip(whole, whole[1:], strict=False)]  # noqa: RUF007


def _episode(policy: str, done: int, source: str) -> Episode:
    is_success = done == CHAIN
    return Episode(
        policy=policy, task='chain of five', benchmark='calvin', trial_id=f'import:{source}', success=is_success,
        outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, score=float(done), max_score=float(CHAIN),
        labels=LABEL,
    )  # fmt: skip


# SimplerEnv's file trees: one video per episode, whose path is the only record.
# <checkpoint>/<scene>/<control mode>/<env>[_<key>_<value>...]/rob_<x>_<y>_rot_<r>_<p>_<y>_rgb_overlay_<name|None>/
# <success|failure>_obj_<x>_<y>[_<stat>_<value>...].mp4 or ..._obj_episode_<id>...

_X = r'-?\d+(?:\.\d+)?(?:e-?\d+)?'
FOLDER = pattern(rf'^rob_(?P<robot>{_X}_{_X})_rot_(?P<turn>{_X}_{_X}_{_X})_rgb_overlay_(?P<overlay>.+)$')
VIDEO = pattern(
    rf'^(?P<verdict>success|failure)_obj_(?:episode_(?P<id>\d+)|(?P<object>{_X}_{_X}))(?P<stats>_.*)?\.mp4$'
)
ENV = pattern(r'^(?P<task>.+?-v\d+)(?:_(?P<variant>.+))?$')
DEEPEST = 12


class SimplerEnvFormat:
    """A folder of SimplerEnv videos."""

    name = 'simpler-env'
    summary = 'SimplerEnv result trees: success_obj_*.mp4 and failure_obj_*.mp4 under rob_*_rgb_overlay_* folders'

    def recognise(self, path: Path) -> float | None:
        if not path.is_dir():
            return None
        return CERTAIN if next(_videos(path, most=20_000), None) is not None else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='SimplerEnv trees', takes=(), sets=('policy',))
        if next(_videos(path), None) is None:
            raise InputError(f'{path}: no success_obj_*.mp4 or failure_obj_*.mp4 under a rob_*_rgb_overlay_* folder')
        ledger, source = ImportAccount(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for video in _videos(path):
                episode = _simpler_env_episode(video, path, options, source)
                ledger.keep(f'episodes: {episode.outcome.value} ({episode.condition})')
                yield Recording(episode)
            ledger.note('a path holds no steps and no times, so nothing is timed')
            ledger.drop('videos', None, why='only their paths are read; they stay where they are')

        guesses = (
            FieldGuess('policy', 'the folder of the checkpoint'),
            FieldGuess('task', 'the folder of the environment, up to its version'),
            FieldGuess('condition', 'rgb_overlay', 'None: variant-aggregation; a name: visual-matching'),
            FieldGuess('instance', 'pose of robot and object, or the episode id', 'equal numbers are equal starts'),
        )
        # The record is the tree itself: its paths are hashed, not a hundred gigabytes of video.
        paths = digest([str(video.relative_to(path)) for video in _videos(path)])
        return Imported(
            format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=guesses, sha256=paths
        )


SIMPLER_ENV = SimplerEnvFormat()


def _videos(root: Path, *, most: int = MOST_FILES * 10) -> Iterator[Path]:
    """Videos of episodes, in order of their paths."""
    looked = 0
    for folder, names, files in os.walk(root):
        names.sort()
        here = Path(folder)
        if len(here.relative_to(root).parts) >= DEEPEST:
            names.clear()
        looked += len(files)
        if looked > most:
            return
        if FOLDER.match(here.name):
            yield from (here / name for name in sorted(files) if VIDEO.match(name))


def _simpler_env_episode(video: Path, root: Path, options: ImportOptions, source: str) -> Episode:
    parts = video.resolve().parts
    if len(parts) < 6:
        raise InputError(f'{video}: wanted <checkpoint>/<scene>/<control mode>/<env>/rob_.../ above it')
    checkpoint, scene, mode, env, place, name = parts[-6:]
    setting, verdict, task = FOLDER.match(place), VIDEO.match(name), ENV.match(env)
    if setting is None or verdict is None:
        raise InputError(f'{video}: not named as SimplerEnv names its videos')
    overlay = setting['overlay']
    start = [setting['robot'], setting['turn'], verdict['object'] or '']
    number = int(verdict['id']) if verdict['id'] else int(digest(start)[:13], 16)
    parameters = {'scene': scene, 'robot': setting['robot'], 'turn': setting['turn'], 'overlay': overlay}
    variant = task['variant'] if task and task['variant'] else ''
    is_success = verdict['verdict'] == 'success'
    labels = {'control_mode': mode, **_stats(verdict['stats'] or '')}
    return Episode(
        policy=options.defaults.get('policy', checkpoint), task=task['task'] if task else env, benchmark='simpler-env',
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, success=is_success,
        condition='variant-aggregation' if overlay == 'None' else 'visual-matching', instance=number, labels=labels,
        condition_parameters={**parameters, **({'variant': variant} if variant else {})},
    )  # fmt: skip


def _stats(text: str) -> dict[str, str]:
    """`_moved_correct_True_n_lift_3` as pairs; a value is True, False or a number."""
    return {m[1]: m[2] for m in re.finditer(rf'_([A-Za-z][A-Za-z_]*?)_(True|False|{_X})(?=_|$)', text)}


# RoboChallenge recordings: a folder an episode with `meta/episode_meta.json`, below folders of policies and tasks.
# The recording itself has times and no result. Keys that someone added (`success`, `score`, `policy`, `task_name`) are
# taken as a table's columns would be; where policy and task are not named, the folders above the episode do.

META = 'episode_meta.json'
MOST_EPISODES = 200_000


class RoboChallengeFormat:
    """What RoboChallenge's client records of its episodes."""

    name = 'robochallenge'
    summary = 'RoboChallenge recordings: folders of episode_<n>/meta/episode_meta.json, by policy and task'

    def recognise(self, path: Path) -> float | None:
        try:
            return CERTAIN if path.is_dir() and next(_metas(path), None) is not None else None
        except OSError:
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='RoboChallenge recordings', takes=('columns', 'values', 'blank', 'answers'))
        metas = sorted(itertools.islice(_metas(path), MOST_EPISODES))
        table = [_row(path, meta) for meta in metas]
        header = tuple(dict.fromkeys(name for row in table for name in row))

        def read() -> Iterator[tuple[int, Row]]:
            for number, row in enumerate(table, start=1):
                yield number, [row.get(name) for name in header]

        return read_rows(Rows(path, header, read), options, name=self.name, sources=tuple(metas))


ROBOCHALLENGE = RoboChallengeFormat()


def _metas(path: Path) -> Iterator[Path]:
    """The descriptions of episodes at the depths where they lie."""
    for depth in ('', '*/', '*/*/', '*/*/*/'):
        yield from path.glob(f'{depth}episode_*/meta/{META}')


def _row(root: Path, meta: Path) -> dict[str, Any]:
    values = load_json(meta)
    if not isinstance(values, dict):
        raise InputError(f'{meta}: wanted a JSON object that describes an episode')
    row = flat(values, meta)
    start, end = row.pop('start_time', None), row.pop('end_time', None)
    if isinstance(start, int | float) and isinstance(end, int | float):
        row['started_at'], row['duration_s'] = start, end - start
    named = {normal(key) for key in row}
    above = [root.resolve().name, *meta.parent.parent.parent.relative_to(root).parts]
    for field, places in (('task', above[-1:]), ('policy', above[-2:-1])):
        if not named & set(SYNONYMS[field]) and places:
            row[field] = places[0]
    return row


# openpi's DROID results: `results/eval_<time>.csv` with success, duration (steps at 15 Hz) and video_filename.

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
        refuse_unused(options, name='DROID results', takes=('rate_hz', 'answers'), sets=('policy', 'task', 'step_cap'))
        for name in ('policy', 'task'):
            if name not in options.defaults:
                raise InputError(f'{path}: no {name} is recorded; give it with --set {name}=NAME')
        rows = open_rows(path)
        places = {name: rows.header.index(name) for name in COLUMNS}
        is_asked = any(_success(row[places['success']]) == 0.01 for _, row in rows.read())
        ledger, rate = ImportAccount(), options.rate_hz or RATES_HZ['droid']
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
    rows: Rows, places: dict[str, int], options: ImportOptions, ledger: ImportAccount, *, rate: float
) -> Iterator[Recording]:
    hundredth = HUNDREDTH.answer(options)
    source, caps = options.source_name(rows.path), Caps()
    for number, row in rows.read():
        try:
            episode = _droid_csv_episode(
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


def _droid_csv_episode(
    cells: list[Any], options: ImportOptions, *, rate: float, source: str, hundredth: str | None
) -> Episode:
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


MOST_SCORES = 10_000_000


class ScoreMatrixFormat:
    """Bounded scores without anything else."""

    name = 'score-matrix'
    summary = 'rliable-style score matrices: {algorithm: array (runs, tasks)} as .npz or .json'

    def recognise(self, path: Path) -> float | None:
        if not path.is_file():
            return None
        if path.suffix == '.npz':
            return LIKELY if _has_matrices(path) else None
        if path.suffix != '.json':
            return None
        head = b''.join(head_of(path)[:4096].split())
        # {"name":[[number: an object of nested lists of numbers
        _, bracket, rest = head.partition(b':[[')
        return (
            LIKELY
            if head.startswith(b'{"') and bracket and rest[:1] in b'-0123456789' and b'{' not in head[1:]
            else None
        )

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='score matrices', takes=(), sets=('max_score', 'benchmark'))
        matrices = _load(path)
        most = _most(path, matrices, options)
        ledger, source = ImportAccount(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for policy, matrix in matrices.items():
                for run, scores in enumerate(matrix.tolist()):
                    for task, score in enumerate(scores):
                        ledger.keep('scores')
                        yield Recording(_score_matrix_episode(policy, task, run, score, most, options, source))
            ledger.note(f'a score counts as a success where it is {most:g}; no success, seed or time is recorded')

        guesses = [
            FieldGuess('policy', f'array {name!r}', f'{m.shape[0]} runs, {m.shape[1]} tasks')
            for name, m in matrices.items()
        ]
        guesses.append(FieldGuess('score', 'each entry', f'from 0 to {most:g} (--set max_score=N)'))
        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=tuple(guesses))


SCORE_MATRIX = ScoreMatrixFormat()


def _has_matrices(path: Path) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as loaded:
            small = sum(i.file_size for i in archive.infolist()) <= MOST_SCORES * 8
            return small and all(loaded[name].ndim == 2 for name in loaded.files) and bool(loaded.files)
    except (ValueError, OSError, zipfile.BadZipFile, KeyError):
        return False


def _load(path: Path) -> dict[str, NDArray[np.float64]]:
    if path.suffix == '.npz':
        import zipfile

        check_archive(path)
        try:
            with np.load(path, allow_pickle=False) as loaded:
                arrays = {name: loaded[name] for name in loaded.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise InputError(f'{path}: not readable without pickle ({error}); save plain arrays') from error
    else:
        document = load_json(path)
        if not isinstance(document, dict) or not document:
            raise InputError(f'{path}: wanted an object with a matrix per algorithm')
        arrays = {}
        for name, rows in document.items():
            try:
                arrays[name] = np.asarray(rows, dtype=float)
            except (ValueError, TypeError) as error:
                raise InputError(f'{path} {name!r}: wanted rows of numbers, all of one length ({error})') from error
    for name, array in arrays.items():
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in 'fiub':
            raise InputError(f'{path} {name!r}: shape {array.shape} of {array.dtype}, wanted numbers (runs, tasks)')
        if not np.isfinite(array.astype(float)).all():
            run, task = np.argwhere(~np.isfinite(array.astype(float)))[0]
            raise InputError(f'{path} {name!r}: run {run}, task {task} is {array[run, task]}, wanted a finite score')
    return {name: array.astype(float) for name, array in arrays.items()}


def _most(path: Path, matrices: dict[str, NDArray[np.float64]], options: ImportOptions) -> float:
    lowest, highest = min(m.min() for m in matrices.values()), max(m.max() for m in matrices.values())
    stated = options.defaults.get('max_score')
    try:
        most = float(stated) if stated is not None else 1.0
    except ValueError as error:
        raise InputError(f'--set max_score={stated}, wanted a number') from error
    if lowest < 0 or highest > most:
        raise InputError(
            f'{path}: scores from {lowest:g} to {highest:g}, wanted 0 to {most:g}; say the largest score there can be '
            'with --set max_score=N (percentages: 100)'
        )
    return most


def _score_matrix_episode(
    policy: str, task: int, run: int, score: float, most: float, options: ImportOptions, source: str
) -> Episode:
    is_success = score >= most
    episode = Episode(
        policy=policy, task=f'task_{task}', benchmark=options.defaults.get('benchmark', ''),
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, score=score,
        max_score=most, labels={'from': 'scores', 'run': str(run)},
    )  # fmt: skip
    return placed(episode, run)
