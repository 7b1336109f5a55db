"""positronic's dataset folders, such as PhAIL's releases: facts, signals and films of each episode, edits applied."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    FixableError,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    listed,
    placed,
    refuse_unused,
)
from robotrials.formats.positronic_signal import Signals, read_signals
from robotrials.formats.rollout import asked, camera_question
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Event, EventKind, EventSource, Outcome, parse_field

NUMBERED = re.compile(r'^\d{12}$')
EDITS = 'edits.jsonl'
DEEPEST = 5  # folders between a release and its datasets, such as v1.0/dataset/rollouts
MOST_FOLDERS = 2000  # looked into for datasets
LABELS = ('eval.tote_placement', 'eval.external_camera', 'eval.trial_index', 'eval.trial_count', 'eval.universe',
          'eval.embodiment', 'eval.charge_inference_time', 'eval.control_mode', 'eval.ended_by', 'eval.policy_end',
          'inference.policy.label')  # fmt: skip
# Where the name of a policy stands: given by an analysis or a release, then as its server or the policy said it.
NAMES = ('policy', 'eval.policy', 'model', 'inference.policy.server.type', 'inference.policy.type', 'inference.policy',
         'inference.policy_fqn', 'inference.model_id')  # fmt: skip
SERVER = 'inference.policy.server.'
CHECKPOINTS = (f'{SERVER}checkpoint_id', f'{SERVER}checkpoint_path', 'inference.policy.checkpoint_path')
TELEOPERATED = ('teleop', 'teleoperation', 'teleoperated by human', 'robot teleoperated by human')
BY_HAND = ('human',)
# positronic's own list, and Stalled of PhAIL's first release. Nobody scored an UNSCORED one: `--blank` says what it is.
OUTCOMES = {
    'success': Outcome.SUCCESS, 'fail': Outcome.FAILURE, 'stalled': Outcome.FAILURE,
    'ran out of time': Outcome.TIMEOUT, 'safety': Outcome.SAFETY_STOP, 'system': Outcome.INVALID,
    'discarded': Outcome.INVALID,
}  # fmt: skip
UNSCORED = 'unscored'
EARLIER_TIMEOUTS = ('timeout', 'time_limit')  # `eval.ended_by` of older recordings


class PositronicFormat:
    """One positronic dataset, or a folder with several of them, such as a release."""

    name = 'positronic'
    summary = 'positronic dataset folders, such as PhAIL releases: facts, signals, films; edits.jsonl applied'

    def recognise(self, path: Path) -> float | None:
        return CERTAIN if path.is_dir() and next(_folders(path), None) is not None else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='positronic datasets', takes=('values', 'blank', 'answers'))
        check_settable(options, 'positronic datasets', ('policy', 'task'))
        ledger = Ledger()
        source = _Source(path, options, ledger)
        return Imported(
            format=self.name, sources=source.files(), recordings=source.recordings, ledger=ledger,
            questions=asked(options, camera_question()), resolved=options,
            guesses=(
                FieldGuess('policy', 'static policy, model and variant, or inference.policy.*'),
                FieldGuess('outcome', 'static eval.outcome, eval.success or eval.terminated'),
                FieldGuess('duration_s', 'static eval.duration, or the times of the signals'),
                FieldGuess('time_cap_s', 'static eval.timeout, or eval.cap_per_item for every item'),
                FieldGuess('is_reference', 'model teleop, or human where nothing was teleoperated'),
                FieldGuess('stratum', 'static eval.object'),
                FieldGuess('seed', 'static eval.seed'),
            ),
        )  # fmt: skip


POSITRONIC = PositronicFormat()


def _folders(root: Path) -> Iterator[Path]:
    """The episodes of a dataset, or of every dataset in a tree, as positronic's own loader finds them."""
    waiting, seen = [(root, 0)], 0
    while waiting and seen < MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        seen += 1
        for entry in listed(folder):
            if NUMBERED.match(entry.name):
                yield from (
                    episode
                    for episode in listed(entry)
                    if NUMBERED.match(episode.name)
                    and any((episode / name).is_file() for name in ('static.json', 'meta.json'))
                )
            elif depth < DEEPEST and entry.is_dir() and not entry.is_symlink():
                waiting.append((entry, depth + 1))


@dataclass(slots=True)
class _Facts:
    """What is known of an episode without its signals."""

    folder: Path
    static: Mapping[str, Any]
    meta: Mapping[str, Any]
    uid: str


@dataclass(slots=True)
class _Source:
    path: Path
    options: ImportOptions
    ledger: Ledger
    _logs: dict[Path, dict[str, list[Mapping[str, Any]]]] = field(default_factory=dict)

    def files(self) -> tuple[Path, ...]:
        """The files whose hash says what was read: facts and edits; signals and films are hashed in the store."""
        found: dict[Path, None] = {}
        for folder in _folders(self.path):
            for log in self._log_files(folder):
                found[log] = None
            found[folder / 'static.json'] = None
        return tuple(f for f in found if f.is_file())

    def recordings(self) -> Iterator[Recording]:
        variants, has_teleoperation = self._survey()
        keeps_cameras = camera_question().answer(self.options) == 'keep'
        for folder in _folders(self.path):
            facts = self._facts(folder, self.ledger)
            if facts is None:
                continue
            stem = f'positronic-{file_stem(facts.uid)}'
            signals = read_signals(folder, self.ledger, keeps_cameras=keeps_cameras, media_stem=stem)
            try:
                episode = self._episode(facts, signals, variants, has_teleoperation=has_teleoperation)
            except FixableError:
                raise
            except RecordError as error:
                raise RecordError(f'{folder / "static.json"}: {error}; nothing was imported') from error
            if episode is None:
                continue
            self.ledger.keep(f'episodes: {episode.outcome.value}')
            yield Recording(placed(episode, facts.uid), signals.trajectory, signals.media)

    def _survey(self) -> tuple[dict[str, set[str]], bool]:
        """The variants of every model, and whether anything was teleoperated: what one name means hangs on the rest."""
        variants: dict[str, set[str]] = {}
        for folder in _folders(self.path):
            facts = self._facts(folder, Ledger())
            if facts is not None:
                name, variant = self._named(facts)
                variants.setdefault(name, set()).add(variant)
        return variants, any(name.lower() in TELEOPERATED for name in variants)

    def _log_files(self, folder: Path) -> list[Path]:
        """Edit logs in the order in which they apply: the dataset's, those of folders around it, the episode's own."""
        around = [folder.parent.parent, *folder.parent.parent.parents]
        inside = [f for f in around if f == self.path or self.path in f.parents]
        return [f / EDITS for f in (*inside, folder)]

    def _facts(self, folder: Path, ledger: Ledger) -> _Facts | None:
        if (folder / '.unfinished').exists():
            ledger.drop('episodes', why='recording was not finished (.unfinished)')
            return None
        static = _object(folder / 'static.json') if (folder / 'static.json').is_file() else {}
        meta = _object(folder / 'meta.json') if (folder / 'meta.json').is_file() else {}
        uid = str(meta.get('uid') or f'ts-{meta.get("created_ts_ns", folder.parent.name + folder.name)}')
        is_dropped = False
        for path in self._log_files(folder):
            if path not in self._logs:
                self._logs[path] = _read_edits(path)
            for edit in self._logs[path].get(uid, ()):
                if edit['op'] == 'set_static':
                    static = {**static, **dict(edit.get('data') or {})}
                    ledger.note(f'facts were corrected by {EDITS}; the corrected ones are read')
                else:
                    is_dropped = edit['op'] == 'drop'
        if is_dropped:
            ledger.drop('episodes', why=f'withdrawn by {EDITS}')
            return None
        return _Facts(folder, static, meta, uid)

    def _named(self, facts: _Facts) -> tuple[str, str]:
        """The policy's name and its variant: a checkpoint, or what a release calls so."""
        static = facts.static
        given = self.options.defaults.get('policy')
        if given:
            return given, ''
        names = [text for key in NAMES if isinstance(text := static.get(key), str) and text and text != 'remote']
        if not names:
            parents = [part.lower() for part in facts.folder.relative_to(self.path).parts[:-2]]
            folders = [self.path.name.lower(), *parents]
            names = [f for f in reversed(folders) if f in (*TELEOPERATED, *BY_HAND)]
        if not names:
            return '', ''
        experiment, checkpoint = static.get(f'{SERVER}experiment_name'), _checkpoint(static)
        told = ':'.join(str(part) for part in (experiment, checkpoint) if part)
        return names[0], str(static.get('variant') or told)

    def _episode(
        self, facts: _Facts, signals: Signals, variants: Mapping[str, set[str]], *, has_teleoperation: bool
    ) -> Episode | None:
        static, meta = facts.static, facts.meta
        name, variant = self._named(facts)
        if not name:
            raise RecordError('no policy is recorded; give it with --set policy=NAME')
        outcome, word = self._outcome(facts)
        if outcome is None:
            self.ledger.drop('episodes', why='nobody scored them (--blank drop)')
            return None
        if len(variants[name]) > 1 and variant:
            self.ledger.note(f'{name} was run in {len(variants[name])} variants: each is a policy of its own')
        is_hand = name.lower() in BY_HAND
        task = self.options.defaults.get('task') or static.get('eval.task') or static.get('eval.task_id')
        items = _field(static, 'items', 'eval.total_items')
        labels = {k.rpartition('.')[2]: str(static[k]) for k in LABELS if static.get(k) is not None}
        duration_s = _field(static, 'duration_s', 'eval.duration')
        if duration_s is None and signals.duration_s is not None:
            duration_s = signals.duration_s
            self.ledger.note('duration_s: from the first sample of the last sensor to the last sample of any signal')
        is_broken = outcome is Outcome.INVALID
        return Episode(
            policy=f'{name} {variant}' if variant and len(variants[name]) > 1 else name,
            is_reference=name.lower() in TELEOPERATED or (is_hand and not has_teleoperation),
            task=str(task or static.get('task') or ''), outcome=outcome,
            trial_id=f'import:{self.options.source_name(self.path)}', benchmark=str(static.get('eval.suite') or ''),
            stratum=str(static.get('eval.object') or ''), seed=_field(static, 'seed', 'eval.seed'),
            duration_s=duration_s, time_cap_s=_time_cap(static, items, duration_s),
            items=items, items_placed=None if is_broken else _field(static, 'items_placed', 'eval.successful_items'),
            instruction=str(static.get('task') or ''),
            success=static.get('eval.success') if isinstance(static.get('eval.success'), bool) else None,
            started_at=_started_at(signals.starts_at_ns, meta.get('created_ts_ns')),
            reason=': '.join(part for part in (word, str(static.get('eval.notes') or '')) if part),
            events=tuple(
                Event(t_s, EventKind.PHASE, EventSource.OPERATOR, name=code)
                for t_s, code in signals.stages
                if duration_s is None or t_s <= duration_s
            ),
            labels={**labels, **({'variant': variant} if variant else {}), 'positronic_uid': facts.uid},
        )  # fmt: skip

    def _outcome(self, facts: _Facts) -> tuple[Outcome | None, str]:
        """The outcome, and the word for it where ours says less; None for an episode that is to be left out."""
        static = facts.static
        word = str(static.get('eval.outcome') or '').strip()
        if word in self.options.values:
            return Outcome(self.options.values[word]), word
        if word and word.lower() != UNSCORED:
            if word.lower() in OUTCOMES:
                outcome = OUTCOMES[word.lower()]
                return outcome, word if word.lower() in ('stalled', 'system', 'discarded') else ''
            return parse_field('outcome', word), ''
        success = static.get('eval.success')
        if success is True:
            return Outcome.SUCCESS, ''
        is_cut = static.get('eval.terminated') is False or static.get('eval.timeout') is True
        if is_cut or str(static.get('eval.ended_by', '')).lower() in EARLIER_TIMEOUTS:
            return Outcome.TIMEOUT, ''
        if success is False:
            return Outcome.FAILURE, ''
        if not self.options.blank:
            raise FixableError(
                f'{facts.folder / "static.json"}: neither eval.outcome nor eval.success is recorded: nobody scored '
                'this episode; nothing was imported. --blank invalid|failure|drop says what such episodes are',
                self.path, dataclasses.replace(self.options, blank='invalid'),
            )  # fmt: skip
        return (None if self.options.blank == 'drop' else Outcome(self.options.blank)), 'nobody scored it'


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


def file_stem(uid: str) -> str:
    """A uid as the name of a folder in media/."""
    return ''.join(c if c.isalnum() or c in '-_' else '_' for c in uid)[:64]


def _object(path: Path) -> dict[str, Any]:
    value = load_json(path)
    if not isinstance(value, dict):
        raise InputError(f'{path}: wanted a JSON object; nothing was imported')
    return value


def _checkpoint(static: Mapping[str, Any]) -> str:
    """The checkpoint by its id, or by the last folders of its path that say which it is."""
    told = next((str(static[key]) for key in CHECKPOINTS if static.get(key)), '')
    parts = [p for p in told.strip('/').split('/') if p not in ('', 'pretrained_model')]
    return parts[-1].removeprefix('checkpoint-') if parts else ''


def _started_at(wall_ns: int | None, created_ns: Any) -> dt.datetime | None:
    stamp = wall_ns if wall_ns is not None else created_ns
    return dt.datetime.fromtimestamp(stamp / 1e9, dt.UTC) if isinstance(stamp, int) and stamp > 0 else None


def _time_cap(static: Mapping[str, Any], items: int | None, duration_s: float | None) -> float | None:
    """The budget of the trial: as recorded, or so much for every item. One that the episode outlasted is none."""
    budget = static.get('eval.timeout')
    per_item = static.get('eval.cap_per_item')
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        cap_s = float(budget)
    elif isinstance(per_item, int | float) and not isinstance(per_item, bool) and items:
        cap_s = float(per_item) * items
    else:
        return None
    if not (math.isfinite(cap_s) and cap_s > 0) or (duration_s is not None and duration_s > cap_s + 1.0):
        return None
    return cap_s


def _field(static: Mapping[str, Any], name: str, key: str) -> Any:
    value = static.get(key)
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else parse_field(name, value)
