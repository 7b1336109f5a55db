"""Inspect's `.eval` logs, and inspect-robots' result logs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, install_hint, load_optional
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Question,
    Recording,
    chosen_scorer,
    given_up,
    head_of,
    listed,
    mapping_of,
    placed,
    refuse_unused,
)
from robotrials.formats.rows import check_archive, load_json
from robotrials.record.episode import Episode, Outcome, digest

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
        refuse_unused(options, name='.eval logs', takes=('answers',), sets=('policy', 'task'))
        check_archive(path)
        ledger = ImportAccount()
        header, samples = _contents(path, ledger)
        spec = mapping_of(header.get('eval'))
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


def _contents(path: Path, ledger: ImportAccount) -> tuple[dict[str, Any], list[dict[str, Any]]]:
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
    lack = f'{path}: packed with zstd, which needs backports.zstd: {install_hint("inspect")}'
    is_standard = hasattr(zipfile, 'ZIP_ZSTANDARD')
    zstd = load_optional('compression.zstd' if is_standard else 'backports.zstd', lack)
    module = zipfile if is_standard else load_optional('backports.zstd.zipfile', lack)
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
    return chosen_scorer(path, names, options)


def _episode(
    sample: Mapping[str, Any], policy: str, task: str, scorer: str, source: str, options: ImportOptions
) -> Episode:
    metadata = mapping_of(sample.get('metadata'))
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


def _score(sample: Mapping[str, Any], scorer: str) -> float | None:
    score = (sample.get('scores') or {}).get(scorer)
    value = score.get('value') if isinstance(score, dict) else score
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


# inspect-robots' result logs: one JSON file per run, one trial per scene and epoch (schema 1, as of 0.60.0).
# A log has neither a step count nor a time per trial: steps are counted in the trial's action file, and become seconds
# by the control rate that the log states.

VERSION = 1
USUAL_SCORER = 'success_at_end'
TRIAL_CUTS = ('max_steps', 'truncated')  # stopped while it was working
POLICYS_OWN = ('PolicyError', 'policy.on_trial_start failed')
POLICY_ERRORS = Question(
    'policy-errors',
    'Trials that broke off with a PolicyError have no score. Did the policy fail in them, or was the set-up broken?',
    ('failure', 'invalid'),
    'failure',
)


class InspectRobotsFormat:
    """A log, or the folder that `--log-dir` named."""

    name = 'inspect-robots'
    summary = "inspect-robots' logs (JSON, or the --log-dir): one trial per episode, steps from its action file"

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            return CERTAIN if any(map(_is_log, listed(path))) else None
        return CERTAIN if _is_log(path) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='inspect-robots logs', takes=('answers', 'rate_hz'), sets=('policy', 'task'))
        files = [file for file in listed(path) if _is_log(file)] if path.is_dir() else [path]
        if not files:
            raise InputError(f'{path}: no log of inspect-robots in it')
        ledger = ImportAccount()
        logs = [_Log.of(file, options, ledger) for file in files]

        def recordings() -> Iterator[Recording]:
            for log in logs:
                for episode in log.episodes(options, ledger):
                    ledger.keep(f'episodes: {episode.outcome.value}')
                    yield Recording(episode)
            ledger.drop('actions, frames and transcripts', None, why='steps are counted; the files stay where they are')

        errors = [str(scene.get('error') or '') for log in logs for scene in log.scenes]
        asked = any(error.startswith(POLICYS_OWN) for error in errors)
        return Imported(
            format=self.name,
            sources=tuple(files),
            recordings=recordings,
            ledger=ledger,
            faults=FAULTS.answer(options),
            guesses=(
                FieldGuess('policy', 'eval.policy', ', '.join(sorted({log.policy for log in logs}))),
                FieldGuess('task', 'eval.task', ', '.join(sorted({log.task for log in logs}))),
                FieldGuess('instance', 'scene_id', 'equal names are equal scenes; the epoch is the repeat'),
                FieldGuess('success', f'score {logs[0].scorer!r}', '1 is a success'),
                FieldGuess('steps', "the trial's action file", 'seconds by eval.embodiment_info.control_hz'),
            ),
            questions=(POLICY_ERRORS,) if asked else (),
        )


INSPECT_ROBOTS = InspectRobotsFormat()


def _is_log(path: Path) -> bool:
    if path.suffix != '.json' or not path.is_file():
        return False
    head = head_of(path)
    return b'"inspect_robots_version"' in head and b'"embodiment_info"' in head


@dataclass(frozen=True, slots=True)
class _Log:
    """One run, opened."""

    file: Path
    spec: Mapping[str, Any]
    scenes: tuple[Mapping[str, Any], ...]
    policy: str
    task: str
    scorer: str
    source: str
    rate_hz: float | None

    @classmethod
    def of(cls, file: Path, options: ImportOptions, ledger: ImportAccount) -> _Log:
        document = load_json(file)
        spec = document.get('eval') if isinstance(document, dict) else None
        scenes = document.get('samples') if isinstance(document, dict) else None
        if not isinstance(spec, dict) or not isinstance(scenes, list) or not all(isinstance(s, dict) for s in scenes):
            raise InputError(f'{file}: wanted "eval" and "samples", as inspect-robots writes them')
        if document.get('version') != VERSION:
            raise InputError(f'{file}: a log of version {document.get("version")!r}; wanted {VERSION}')
        if document.get('status') != 'success':
            ledger.note(f'{file.name}: the run ended with status {document.get("status")!r} ({document.get("error")})')
        info = spec.get('embodiment_info')
        rate_hz = info.get('control_hz') if isinstance(info, dict) else None
        rate = options.rate_hz or (float(rate_hz) if isinstance(rate_hz, int | float) and rate_hz > 0 else None)
        if rate is None:
            ledger.hint(
                f'{file.name}: no control rate is recorded; an import with --rate-hz N turns steps into seconds'
            )
        return cls(
            file=file, spec=spec, scenes=tuple(scenes), scorer=_trial_scorer(file, scenes, options), rate_hz=rate,
            policy=options.defaults.get('policy') or str(spec.get('policy') or ''),
            task=options.defaults.get('task') or str(spec.get('task') or ''),
            source=options.source if options.source is not None else file.resolve().name,
        )  # fmt: skip

    def episodes(self, options: ImportOptions, ledger: ImportAccount) -> Iterator[Episode]:
        for number, scene in enumerate(self.scenes):
            for epoch, scores in enumerate(scene.get('epochs') or ()):
                try:
                    yield self._episode(scene, epoch, scores, options, ledger)
                except (RecordError, TypeError, ValueError) as error:
                    where = f'{self.file} samples[{number}] epoch {epoch}'
                    raise RecordError(f'{where}: {error}; nothing was imported') from error

    def _episode(
        self, scene: Mapping[str, Any], epoch: int, scores: Any, options: ImportOptions, ledger: ImportAccount
    ) -> Episode:
        name = str(scene['scene_id'])
        score = scores.get(self.scorer) if isinstance(scores, dict) else None
        if score is not None and not 0 <= float(score) <= 1:
            raise RecordError(f'score {self.scorer!r} is {score!r}, wanted 0 to 1; another: --answer scorer=NAME')
        ended = str(_at(scene, 'termination_reasons', epoch) or '')
        outcome, reason = _trial_outcome(scene, score, ended, options)
        steps = self._steps(scene, epoch, ledger)
        cap, rate = self.spec.get('max_steps'), self.rate_hz
        labels = {'scene': name, 'ended': ended, 'judged_by': str(_at(scene, 'judgement_sources', epoch) or '')}
        others = {k: str(v) for k, v in scores.items() if k != self.scorer} if isinstance(scores, dict) else {}
        return Episode(
            policy=self.policy, task=self.task, benchmark='inspect-robots', outcome=outcome, reason=reason,
            trial_id=f'import:{self.source}', seed=self.spec.get('seed'), instance=int(digest([name])[:13], 16),
            repeat=epoch, steps=steps, duration_s=steps / rate if steps is not None and rate else None,
            time_cap_s=cap / rate if isinstance(cap, int) and cap > 0 and rate else None,
            success=None if score is None else float(score) == 1.0, score=None if score is None else float(score),
            max_score=None if score is None else 1.0, instruction=str(scene.get('instruction') or ''),
            labels={k: v for k, v in {**others, **labels}.items() if v},
        )  # fmt: skip

    def _steps(self, scene: Mapping[str, Any], epoch: int, ledger: ImportAccount) -> int | None:
        metadata = _at(scene, 'trial_metadata', epoch)
        actions = metadata.get('actions') if isinstance(metadata, dict) else None
        place = Path(str(actions)) if actions else None
        if place is None or place.is_absolute() or '..' in place.parts:
            ledger.drop('step counts', why='the log names no action file beside it')
            return None
        try:
            with (self.file.parent / place).open(encoding='utf-8') as stream:
                return sum(1 for line in stream if line.strip()) - 1  # the first line is the header
        except (OSError, UnicodeDecodeError):
            ledger.drop('step counts', why='the action file is gone: keep the folder actions/ beside the log')
            return None


def _at(scene: Mapping[str, Any], name: str, epoch: int) -> Any:
    """An entry of a list that runs parallel to the epochs; older logs lack some lists."""
    values = scene.get(name)
    return values[epoch] if isinstance(values, list) and epoch < len(values) else None


def _trial_outcome(scene: Mapping[str, Any], score: Any, ended: str, options: ImportOptions) -> tuple[Outcome, str]:
    if score is None:
        error = str(scene.get('error') or 'not scored')
        if error.startswith(POLICYS_OWN) and POLICY_ERRORS.answer(options) == 'failure':
            return Outcome.FAILURE, error[:300]
        return given_up(options, error[:300])
    if float(score) == 1.0:
        return Outcome.SUCCESS, ''
    return (Outcome.TIMEOUT, ended) if ended in TRIAL_CUTS else (Outcome.FAILURE, '' if ended == 'failure' else ended)


def _trial_scorer(file: Path, scenes: list[Any], options: ImportOptions) -> str:
    epochs = [scores for scene in scenes for scores in scene.get('epochs') or () if isinstance(scores, dict)]
    return chosen_scorer(file, list(dict.fromkeys(n for scores in epochs for n in scores)), options, usual=USUAL_SCORER)
