"""LeRobot's `eval_info.json`, every layout: success counts in order, without seeds (from 0.4 on), steps or times."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    check_settable,
    given_up,
    head_of,
    placed,
    refuse_unused,
)
from robotrials.formats.row_outcome import LABEL
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome

NAME = 'eval_info.json'


class LeRobotEvalFormat:
    """What `lerobot-eval` writes."""

    name = 'lerobot-eval'
    summary = 'LeRobot eval_info.json, all layouts, or the output folder that holds it'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            return CERTAIN if (path / NAME).is_file() else None
        if path.suffix != '.json':
            return None
        head = head_of(path)
        old = b'"per_episode"' in head and b'"sum_reward"' in head
        return CERTAIN if old or (b'"per_task"' in head and b'"successes"' in head) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='eval_info.json', takes=('answers',))
        check_settable(options, 'eval_info.json', ('policy', 'task', 'benchmark'))
        file = path / NAME if path.is_dir() else path
        document = load_json(file)
        if not isinstance(document, dict) or not {'per_episode', 'per_task'} & document.keys():
            raise InputError(f'{file}: neither "per_episode" nor "per_task" in it, so not an eval_info.json')
        policy = options.defaults.get('policy') or file.resolve().parent.name
        ledger = ImportAccount()
        _note_recordings(file, document, ledger)

        def recordings() -> Iterator[Recording]:
            episodes = _per_episode if 'per_episode' in document else _per_task
            for values in episodes(file, document, ledger):
                episode = _episode(values, policy, options, source=options.source_name(path), file=file)
                ledger.keep(f'episodes: {episode.outcome.value}')
                yield Recording(episode)
            ledger.note('counts and their order only: no steps and no times are recorded, so nothing is timed')
            ledger.drop('rewards', None, why='kept as labels; they are neither a success nor a bounded score')

        return Imported(
            format=self.name,
            sources=(file,),
            recordings=recordings,
            ledger=ledger,
            faults=FAULTS.answer(options),
            guesses=(FieldGuess('policy', 'the folder, since no policy is recorded (--set policy=NAME)', policy),)
            if 'policy' not in options.defaults
            else (),
        )


LEROBOT_EVAL = LeRobotEvalFormat()


def _per_episode(file: Path, document: Mapping[str, Any], ledger: ImportAccount) -> Iterator[dict[str, Any]]:
    """0.1 to 0.3: one object per episode, with its seed."""
    for number, values in enumerate(document['per_episode']):
        where = f'{file} per_episode[{number}]'
        if not isinstance(values, dict) or 'success' not in values:
            raise InputError(f'{where}: no success in it; nothing was imported')
        labels = {k: str(values[k]) for k in ('sum_reward', 'max_reward') if k in values}
        yield {
            'where': where,
            'success': values['success'],
            'seed': values.get('seed'),
            'labels': labels,
            'place': number,
        }
    _check_rate(ledger, document.get('aggregated'), document['per_episode'], lambda v: v.get('success'))


def _per_task(file: Path, document: Mapping[str, Any], ledger: ImportAccount) -> Iterator[dict[str, Any]]:
    """0.4 on: parallel lists per task."""
    everything: list[Any] = []
    for place, task in enumerate(document['per_task']):
        where = f'{file} per_task[{place}]'
        metrics = task.get('metrics') if isinstance(task, dict) else None
        successes = metrics.get('successes') if isinstance(metrics, dict) else None
        if not isinstance(metrics, dict) or not isinstance(successes, list):
            raise InputError(f'{where}: no list "successes" in its metrics; nothing was imported')
        declared = task.get('n_episodes')
        if declared is not None and declared != len(successes):
            raise InputError(f'{where}: n_episodes is {declared} and {len(successes)} successes are listed')
        everything += successes
        rewards = {k: metrics.get(f'{k}s') for k in ('sum_reward', 'max_reward')}
        for number, success in enumerate(successes):
            labels = {k: str(v[number]) for k, v in rewards.items() if isinstance(v, list) and number < len(v)}
            group, task_id = str(task.get('task_group', '')), task.get('task_id')
            yield {
                'where': f'{where}.successes[{number}]', 'success': success, 'labels': {**labels, **LABEL},
                'stratum': group, 'task': f'{group} {task_id}'.strip(), 'place': number,
            }  # fmt: skip
    ledger.note(
        'no seed and no initial state are recorded (LIBERO moves to its next one at every reset, automatic ones too), '
        'so nothing is paired'
    )
    _check_rate(ledger, document.get('overall'), everything, lambda v: v)


def _check_rate(ledger: ImportAccount, total: Any, listed: list[Any], success: Any) -> None:
    stated = total.get('pc_success') if isinstance(total, dict) else None
    known = [float(success(v)) for v in listed if success(v) is not None and not math.isnan(float(success(v)))]
    if stated is None or not known or math.isnan(stated):
        return
    counted = 100 * sum(known) / len(known)
    if abs(counted - stated) > 0.1:
        ledger.note(f'pc_success says {stated:g} %, the episodes say {counted:.1f} %; the episodes count')


def _episode(values: Mapping[str, Any], policy: str, options: ImportOptions, *, source: str, file: Path) -> Episode:
    outcome, reason = _outcome(values, options)
    seed = values.get('seed')
    task = options.defaults.get('task') or values.get('task') or ''
    if not task:
        raise InputError(f'{file}: no task is recorded; give it with --set task=NAME')
    try:
        episode = Episode(
            policy=policy, task=task, outcome=outcome, trial_id=f'import:{source}', stratum=values.get('stratum', ''),
            benchmark=options.defaults.get('benchmark', ''), seed=seed, reason=reason, labels=values['labels'],
            success=None if outcome is Outcome.INVALID else outcome is Outcome.SUCCESS,
        )  # fmt: skip
    except (RecordError, TypeError) as error:
        raise RecordError(f'{values["where"]}: {error}; nothing was imported') from error
    return episode if seed is not None else placed(episode, values['place'])


def _outcome(values: Mapping[str, Any], options: ImportOptions) -> tuple[Outcome, str]:
    success = values['success']
    if isinstance(success, float) and math.isnan(success):
        return given_up(options, 'success is NaN')
    if isinstance(success, bool) or success in (0, 1):
        return (Outcome.SUCCESS if success else Outcome.FAILURE), ''
    raise RecordError(f'{values["where"]}: success is {success!r}, wanted true or false; nothing was imported')


def _note_recordings(file: Path, document: Mapping[str, Any], ledger: ImportAccount) -> None:
    for text in incomplete_recordings(file.parent, document):
        ledger.note(text)
    if (file.parent / 'videos').is_dir():
        ledger.drop('folder videos', None, why='at most ten per task, and not said which outcome each has')


def incomplete_recordings(folder: Path, document: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with taking the recordings beside an eval_info.json for its episodes; nothing where they are whole.

    LeRobot 0.6 saves an episode only when the environment ends it, which LIBERO does on success alone: its recordings
    hold successes only, and a rate of them would be 100 %.
    """
    root = folder / 'recordings'
    if not root.is_dir():
        return []
    if document is None:
        loaded = load_json(folder / NAME) if (folder / NAME).is_file() else {}
        document = loaded if isinstance(loaded, dict) else {}
    recorded = 0
    for info in sorted(root.glob('**/meta/info.json')):
        try:
            recorded += int(json.loads(info.read_text(encoding='utf-8'))['total_episodes'])
        except (ValueError, KeyError, TypeError, OSError):
            return [f'{info}: not readable, so the recordings are not checked against eval_info.json']
    tasks = document.get('per_task') or []
    run = sum(len(t.get('metrics', {}).get('successes', ())) for t in tasks if isinstance(t, dict))
    if recorded >= run:
        return []
    return [
        f'recordings hold {recorded} of {run} episodes: only those that the environment ended (on LIBERO the successes '
        'alone), so no rate may be taken from them; the episodes of eval_info.json are imported instead'
    ]
