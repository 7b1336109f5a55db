"""inspect-robots' result logs: one JSON file per run, one trial per scene and epoch (schema 1, as of 0.60.0).

A log has neither a step count nor a time per trial: steps are counted in the trial's action file, and become seconds by
the control rate that the log states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Question,
    Recording,
    check_settable,
    given_up,
    refuse_unused,
)
from robotrials.formats.peek import head_of, listed
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome
from robotrials.record.identity import digest

VERSION = 1
USUAL_SCORER = 'success_at_end'
CUTS = ('max_steps', 'truncated')  # stopped while it was working
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
        refuse_unused(options, name='inspect-robots logs', takes=('answers', 'rate_hz'))
        check_settable(options, 'inspect-robots logs', ('policy', 'task'))
        files = [file for file in listed(path) if _is_log(file)] if path.is_dir() else [path]
        if not files:
            raise InputError(f'{path}: no log of inspect-robots in it')
        ledger = Ledger()
        logs = [_Log.of(file, options, ledger) for file in files]

        def recordings() -> Iterator[Recording]:
            for log in logs:
                for episode in log.episodes(options, ledger):
                    ledger.keep(f'episodes: {episode.outcome.value}')
                    yield Recording(episode)
            ledger.drop('actions, frames and transcripts', None, why='steps are counted; the files stay where they are')

        asked = any(log.is_policys_own for log in logs)
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
    def of(cls, file: Path, options: ImportOptions, ledger: Ledger) -> _Log:
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
        told = info.get('control_hz') if isinstance(info, dict) else None
        rate = options.rate_hz or (float(told) if isinstance(told, int | float) and told > 0 else None)
        if rate is None:
            ledger.hint(f'{file.name}: no control rate is recorded; --rate-hz N turns steps into seconds')
        return cls(
            file=file, spec=spec, scenes=tuple(scenes), scorer=_scorer(file, scenes, options), rate_hz=rate,
            policy=options.defaults.get('policy') or str(spec.get('policy') or ''),
            task=options.defaults.get('task') or str(spec.get('task') or ''),
            source=options.source if options.source is not None else file.resolve().name,
        )  # fmt: skip

    @property
    def is_policys_own(self) -> bool:
        return any(str(scene.get('error') or '').startswith(POLICYS_OWN) for scene in self.scenes)

    def episodes(self, options: ImportOptions, ledger: Ledger) -> Iterator[Episode]:
        for number, scene in enumerate(self.scenes):
            for epoch, scores in enumerate(scene.get('epochs') or ()):
                try:
                    yield self._episode(scene, epoch, scores, options, ledger)
                except (RecordError, TypeError, ValueError) as error:
                    where = f'{self.file} samples[{number}] epoch {epoch}'
                    raise RecordError(f'{where}: {error}; nothing was imported') from error

    def _episode(
        self, scene: Mapping[str, Any], epoch: int, scores: Any, options: ImportOptions, ledger: Ledger
    ) -> Episode:
        name = str(scene['scene_id'])
        score = scores.get(self.scorer) if isinstance(scores, dict) else None
        if score is not None and not 0 <= float(score) <= 1:
            raise RecordError(f'score {self.scorer!r} is {score!r}, wanted 0 to 1; another: --answer scorer=NAME')
        ended = str(_at(scene, 'termination_reasons', epoch) or '')
        outcome, reason = _outcome(scene, score, ended, options)
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

    def _steps(self, scene: Mapping[str, Any], epoch: int, ledger: Ledger) -> int | None:
        metadata = _at(scene, 'trial_metadata', epoch)
        told = metadata.get('actions') if isinstance(metadata, dict) else None
        place = Path(str(told)) if told else None
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


def _outcome(scene: Mapping[str, Any], score: Any, ended: str, options: ImportOptions) -> tuple[Outcome, str]:
    if score is None:
        error = str(scene.get('error') or 'not scored')
        if error.startswith(POLICYS_OWN) and POLICY_ERRORS.answer(options) == 'failure':
            return Outcome.FAILURE, error[:300]
        return given_up(options, error[:300])
    if float(score) == 1.0:
        return Outcome.SUCCESS, ''
    return (Outcome.TIMEOUT, ended) if ended in CUTS else (Outcome.FAILURE, '' if ended == 'failure' else ended)


def _scorer(file: Path, scenes: list[Any], options: ImportOptions) -> str:
    epochs = [scores for scene in scenes for scores in scene.get('epochs') or () if isinstance(scores, dict)]
    names = list(dict.fromkeys(name for scores in epochs for name in scores))
    told = options.answers.get('scorer')
    if told is not None and told not in names:
        raise UnknownName('scorer', told, names)
    if told is not None:
        return told
    if USUAL_SCORER in names or not names:
        return USUAL_SCORER
    if len(names) > 1:
        raise InputError(f'{file}: scores {", ".join(names)}; say which is the success with --answer scorer=NAME')
    return str(names[0])
