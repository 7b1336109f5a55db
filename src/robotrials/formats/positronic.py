"""positronic's dataset folders: the static facts of each episode, with the corrections of `edits.jsonl` applied."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    placed,
    refuse_unused,
)
from robotrials.formats.peek import listed
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome
from robotrials.record.field import parse_field

NUMBERED = re.compile(r'^\d{12}$')
POLICY_KEYS = ('policy', 'eval.policy', 'inference.policy', 'inference.policy_fqn', 'model', 'inference.model_id')
LABELS = ('eval.tote_placement', 'eval.external_camera', 'eval.trial_index', 'eval.trial_count', 'eval.universe',
          'eval.embodiment', 'eval.charge_inference_time', 'eval.control_mode')  # fmt: skip


class PositronicFormat:
    """A positronic dataset root: blocks of numbered episodes."""

    name = 'positronic'
    summary = 'positronic dataset folders (<block>/<episode>/static.json), edits.jsonl applied'

    def recognise(self, path: Path) -> float | None:
        return CERTAIN if path.is_dir() and next(_folders(path), None) is not None else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='positronic datasets', takes=())
        check_settable(options, 'positronic datasets', ('policy', 'task'))
        edits = _read_edits(path / 'edits.jsonl')
        ledger, source = Ledger(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for folder in _folders(path):
                episode = _read_episode(folder, edits, options, ledger, source)
                if episode is not None:
                    ledger.keep(f'episodes: {episode.outcome.value}')
                    yield Recording(episode)
            ledger.drop('signals', None, why='only the static facts are read; positronic may lose samples of a signal')

        files = [f / 'static.json' for f in _folders(path)] + [path / 'edits.jsonl']
        guesses = (
            FieldGuess('outcome', 'static eval.outcome, eval.success or eval.ended_by'),
            FieldGuess('duration_s', 'static eval.duration'),
            FieldGuess('stratum', 'static eval.object'),
            FieldGuess('seed', 'static eval.seed'),
        )
        return Imported(
            format=self.name, sources=tuple(f for f in files if f.is_file()), recordings=recordings, ledger=ledger,
            guesses=guesses,
        )  # fmt: skip


POSITRONIC = PositronicFormat()


def _folders(root: Path) -> Iterator[Path]:
    for block in listed(root):
        if NUMBERED.match(block.name) and block.is_dir():
            for episode in listed(block):
                if NUMBERED.match(episode.name) and (
                    (episode / 'static.json').is_file() or (episode / 'meta.json').is_file()
                ):
                    yield episode


def _read_edits(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    """The edits of each episode, in order: an importer that ignores them reads withdrawn verdicts."""
    edits: dict[str, list[Mapping[str, Any]]] = {}
    if not path.is_file():
        return edits
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
        if not line.strip():
            continue
        try:
            edit = json.loads(line)
            operation, uid, version = edit['op'], str(edit['ep']), edit.get('v', 1)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f'{path} line {number}: not an edit ({error}); nothing was imported') from error
        if operation not in ('set_static', 'drop', 'undrop') or version != 1:
            raise InputError(
                f'{path} line {number}: op {operation!r}, v {version!r} is not known; nothing was imported'
            )
        edits.setdefault(uid, []).append(edit)
    return edits


def _read_episode(
    folder: Path, edits: Mapping[str, list[Mapping[str, Any]]], options: ImportOptions, ledger: Ledger, source: str
) -> Episode | None:
    if (folder / '.unfinished').exists():
        ledger.drop('episodes', why='recording was not finished (.unfinished)')
        return None
    static = _object(folder / 'static.json') if (folder / 'static.json').is_file() else {}
    meta = _object(folder / 'meta.json') if (folder / 'meta.json').is_file() else {}
    uid = str(meta.get('uid') or f'ts-{meta.get("created_ts_ns", folder.parent.name + folder.name)}')
    is_dropped = False
    for edit in edits.get(uid, ()):
        if edit['op'] == 'set_static':
            static = {**static, **dict(edit.get('data') or {})}
            ledger.note('facts were corrected by edits.jsonl; the corrected ones are read')
        else:
            is_dropped = edit['op'] == 'drop'
    if is_dropped:
        ledger.drop('episodes', why='withdrawn by edits.jsonl')
        return None
    try:
        return placed(_episode(static, meta, uid, options, source), uid)
    except RecordError as error:
        raise RecordError(f'{folder / "static.json"}: {error}; nothing was imported') from error


def _object(path: Path) -> dict[str, Any]:
    value = load_json(path)
    if not isinstance(value, dict):
        raise InputError(f'{path}: wanted a JSON object; nothing was imported')
    return value


def _episode(
    static: Mapping[str, Any], meta: Mapping[str, Any], uid: str, options: ImportOptions, source: str
) -> Episode:
    policy = options.defaults.get('policy') or next((str(static[k]) for k in POLICY_KEYS if static.get(k)), '')
    if not policy:
        raise RecordError('no policy is recorded; give it with --set policy=NAME')
    task = options.defaults.get('task') or static.get('eval.task_id') or static.get('task')
    created = meta.get('created_ts_ns')
    placed_items, items = static.get('eval.successful_items'), static.get('eval.total_items')
    outcome = _outcome(static)
    labels = {k.removeprefix('eval.'): str(static[k]) for k in LABELS if static.get(k) is not None}
    return Episode(
        policy=policy, task=str(task or ''), outcome=outcome, trial_id=f'import:{source}',
        benchmark=str(static.get('eval.suite') or ''), stratum=str(static.get('eval.object') or ''),
        seed=_field(static, 'seed', 'eval.seed'), duration_s=_field(static, 'duration_s', 'eval.duration'),
        items=None if items is None else parse_field('items', items), instruction=str(static.get('task') or ''),
        items_placed=None if placed_items is None else parse_field('items_placed', placed_items),
        success=static.get('eval.success') if isinstance(static.get('eval.success'), bool) else None,
        started_at=None if not isinstance(created, int) else dt.datetime.fromtimestamp(created / 1e9, dt.UTC),
        reason=str(static.get('eval.notes') or static.get('eval.ended_by') or ''),
        labels={**labels, 'positronic_uid': uid},
    )  # fmt: skip


def _field(static: Mapping[str, Any], name: str, key: str) -> Any:
    value = static.get(key)
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else parse_field(name, value)


def _outcome(static: Mapping[str, Any]) -> Outcome:
    told = static.get('eval.outcome')
    if told is not None:
        parsed: Outcome = parse_field('outcome', told)
        return parsed
    success = static.get('eval.success')
    if not isinstance(success, bool):
        raise RecordError('neither eval.outcome nor eval.success is recorded')
    if success:
        return Outcome.SUCCESS
    cut = static.get('eval.timeout') is True or str(static.get('eval.ended_by', '')).lower() in (
        'timeout',
        'time_limit',
    )
    return Outcome.TIMEOUT if cut else Outcome.FAILURE
