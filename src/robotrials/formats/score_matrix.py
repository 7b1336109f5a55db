"""Score matrices as rliable takes them: for each algorithm an array (runs, tasks), in .npz or JSON."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.imported import (
    LIKELY,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    head_of,
    placed,
    refuse_unused,
)
from robotrials.formats.rows import check_archive, load_json
from robotrials.record.episode import Episode, Outcome

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
        refuse_unused(options, name='score matrices', takes=())
        check_settable(options, 'score matrices', ('max_score', 'benchmark'))
        matrices = _load(path)
        most = _most(path, matrices, options)
        ledger, source = Ledger(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for policy, matrix in matrices.items():
                for run, scores in enumerate(matrix.tolist()):
                    for task, score in enumerate(scores):
                        ledger.keep('scores')
                        yield Recording(_episode(policy, task, run, score, most, options, source))
            ledger.note(f'a score counts as a success where it is {most:g}; no success, seed or time is recorded')

        guesses = [
            FieldGuess('policy', f'array {name!r}', f'{m.shape[0]} runs, {m.shape[1]} tasks')
            for name, m in matrices.items()
        ]
        guesses.append(FieldGuess('score', 'each entry', f'from 0 to {most:g} (--set max_score=N)'))
        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=tuple(guesses))


SCORE_MATRIX = ScoreMatrixFormat()


def _has_matrices(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as loaded:
            small = sum(i.file_size for i in archive.infolist()) <= MOST_SCORES * 8
            return small and all(loaded[name].ndim == 2 for name in loaded.files) and bool(loaded.files)
    except (ValueError, OSError, zipfile.BadZipFile, KeyError):
        return False


def _load(path: Path) -> dict[str, NDArray[np.float64]]:
    if path.suffix == '.npz':
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
    told = options.defaults.get('max_score')
    try:
        most = float(told) if told is not None else 1.0
    except ValueError as error:
        raise InputError(f'--set max_score={told}, wanted a number') from error
    if lowest < 0 or highest > most:
        raise InputError(
            f'{path}: scores from {lowest:g} to {highest:g}, wanted 0 to {most:g}; say the largest score there can be '
            'with --set max_score=N (percentages: 100)'
        )
    return most


def _episode(
    policy: str, task: int, run: int, score: float, most: float, options: ImportOptions, source: str
) -> Episode:
    is_success = score >= most
    episode = Episode(
        policy=policy, task=f'task_{task}', benchmark=options.defaults.get('benchmark', ''),
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, score=score,
        max_score=most, labels={'from': 'scores', 'run': str(run)},
    )  # fmt: skip
    return placed(episode, run)
