"""Inspect's `.eval` logs: a ZIP with a header, and one summary per sample; an unfinished run has its journal.

Current releases pack members with zstd (ZIP method 93), which the standard library unpacks from Python 3.14 on.
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, SetupError, UnknownName, install_hint
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    given_up,
    placed,
    refuse_unused,
)
from robotrials.formats.spreadsheet import check_archive
from robotrials.record.episode import Episode, Outcome

WORDS: Mapping[Any, float] = {'C': 1.0, 'I': 0.0, 'P': 0.5, 'N': 0.0}
ZSTD = 93  # the ZIP method
CUTS = ('time', 'working', 'message', 'token', 'custom', 'operator')


class InspectLogFormat:
    """One sample per episode."""

    name = 'inspect'
    summary = "Inspect's .eval logs: one sample per episode, unfinished runs by their journal"

    def recognise(self, path: Path) -> float | None:
        if not path.is_file() or path.suffix != '.eval':
            return None
        try:
            with zipfile.ZipFile(path) as archive:
                return CERTAIN if {'header.json', '_journal/start.json'} & set(archive.namelist()) else None
        except (zipfile.BadZipFile, OSError):
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='.eval logs', takes=('answers',))
        check_settable(options, '.eval logs', ('policy', 'task'))
        check_archive(path)
        ledger = Ledger()
        header, samples = _contents(path, ledger)
        spec = _mapping(header.get('eval'))
        policy = options.defaults.get('policy') or str(spec.get('model') or '')
        task = options.defaults.get('task') or str(spec.get('task') or '')
        scorer = _scorer(path, samples, options)
        source = options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for number, sample in enumerate(samples):
                try:
                    episode = _episode(sample, policy, task, scorer, source, options)
                except (RecordError, TypeError, ValueError) as error:
                    raise RecordError(f'{path} summaries[{number}]: {error}; nothing was imported') from error
                ledger.keep(f'episodes: {episode.outcome.value}')
                yield Recording(episode)
            ledger.drop(
                'total_time', None, why="the model's wall clock; metadata.duration_s is read where there is one"
            )

        guesses = (
            FieldGuess('policy', 'eval.model', policy),
            FieldGuess('task', 'metadata.task, else eval.task', task),
            FieldGuess('success', f'score {scorer!r}', 'C or 1 is a success'),
        )
        return Imported(
            format=self.name,
            sources=(path,),
            recordings=recordings,
            ledger=ledger,
            guesses=guesses,
            faults=FAULTS.answer(options),
        )


INSPECT_LOG = InspectLogFormat()


def _contents(path: Path, ledger: Ledger) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    module, broken = _unpacking(path)
    try:
        with module.ZipFile(path) as archive:
            names = archive.namelist()
            if 'header.json' in names:
                header = _member(path, archive, 'header.json')
                samples = _member(path, archive, 'summaries.json') if 'summaries.json' in names else []
            else:
                header = _member(path, archive, '_journal/start.json')
                parts = [n for n in dict.fromkeys(names) if n.startswith('_journal/summaries/')]
                parts.sort(key=lambda n: int(''.join(filter(str.isdigit, n)) or 0))
                samples = [s for name in parts for s in _member(path, archive, name)]
                ledger.note('the run was not finished (no header.json); what its journal holds is read')
    except broken as error:
        raise InputError(f'{path}: not a readable .eval log ({error})') from error
    if not isinstance(header, dict) or not isinstance(samples, list):
        raise InputError(f'{path}: its header or summaries are not what Inspect writes')
    status = header.get('status')
    if status not in (None, 'success'):
        ledger.note(f'the run ended with status {status!r}')
    if header.get('invalidated'):
        ledger.note('the log is marked as invalidated')
    return header, samples


def _unpacking(path: Path) -> tuple[Any, tuple[type[Exception], ...]]:
    """The module that unpacks this log, which is a later version of the standard one for zstd, and what it raises."""
    with zipfile.ZipFile(path) as archive:
        is_zstd = any(info.compress_type == ZSTD for info in archive.infolist())
    if not is_zstd:
        return zipfile, (zipfile.BadZipFile, OSError, NotImplementedError)
    try:
        zstd = importlib.import_module('compression.zstd' if hasattr(zipfile, 'ZIP_ZSTANDARD') else 'backports.zstd')
        module = zipfile if hasattr(zipfile, 'ZIP_ZSTANDARD') else importlib.import_module('backports.zstd.zipfile')
    except ModuleNotFoundError as error:
        raise SetupError(f'{path}: packed with zstd, which needs backports.zstd: {install_hint("inspect")}') from error
    return module, (module.BadZipFile, zstd.ZstdError, OSError, NotImplementedError)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except (ValueError, RecursionError, KeyError) as error:
        raise InputError(f'{path} {name}: not JSON ({error})') from error
    except NotImplementedError as error:
        raise InputError(
            f'{path} {name}: packed in a way that this Python cannot unpack ({error}); convert the log'
        ) from error


def _scorer(path: Path, samples: list[dict[str, Any]], options: ImportOptions) -> str:
    if not samples:
        raise InputError(f'{path}: no samples in it')
    names = list(dict.fromkeys(n for s in samples for n in (s.get('scores') or {})))
    told = options.answers.get('scorer')
    if told is not None and told not in names:
        raise UnknownName('scorer', told, names)
    if told is None and len(names) != 1:
        raise InputError(
            f'{path}: scores {", ".join(names) or "none"}; say which is the success with --answer scorer=NAME'
        )
    return told or names[0]


def _episode(
    sample: Mapping[str, Any], policy: str, task: str, scorer: str, source: str, options: ImportOptions
) -> Episode:
    metadata = _mapping(sample.get('metadata'))
    score = _score(sample, scorer)
    outcome, reason = _outcome(sample, score, options)
    number = sample.get('id')
    instance = int(str(number)) if str(number).isdigit() else None
    lasted = metadata.get('duration_s')
    episode = Episode(
        policy=policy, task=str(metadata.get('task') or task), outcome=outcome, trial_id=f'import:{source}',
        condition=str(metadata.get('condition') or 'nominal'), seed=metadata.get('seed'), instance=instance,
        repeat=int(sample.get('epoch') or 1) - 1, score=score, max_score=None if score is None else 1.0, reason=reason,
        success=None if outcome is Outcome.INVALID else outcome is Outcome.SUCCESS,
        duration_s=float(lasted) if isinstance(lasted, int | float) else None, labels={'sample': str(number)},
    )  # fmt: skip
    return episode if instance is not None or episode.seed is not None else placed(episode, str(number))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _score(sample: Mapping[str, Any], scorer: str) -> float | None:
    found = (sample.get('scores') or {}).get(scorer)
    value = found.get('value') if isinstance(found, dict) else found
    if value is None:
        return None
    number = WORDS[value] if isinstance(value, str) and value in WORDS else float(value)
    if not 0 <= number <= 1:
        raise RecordError(f'score {scorer!r} is {value!r}, wanted C, I, P or a number from 0 to 1')
    return number


def _outcome(sample: Mapping[str, Any], score: float | None, options: ImportOptions) -> tuple[Outcome, str]:
    if sample.get('invalidation'):
        return Outcome.INVALID, 'invalidated'
    if sample.get('error'):
        error = sample['error']
        return given_up(options, str(error.get('message') if isinstance(error, dict) else error)[:300])
    if score is None:
        return given_up(options, 'not scored')
    if score == 1.0:
        return Outcome.SUCCESS, ''
    limit = sample.get('limit')
    kind = str(limit.get('type') if isinstance(limit, dict) else limit or '')
    return (Outcome.TIMEOUT, f'limit: {kind}') if kind in CUTS else (Outcome.FAILURE, '')
