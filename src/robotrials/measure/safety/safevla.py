"""SafeVLA-Bench's own files: trajectory, tag and spec records in, metrics records in and out (its Appendix B)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, RecordError
from robotrials.measure.safety.clause import EpisodeSafety
from robotrials.measure.safety.registry import PLACEHOLDER, Registry, SafetyBenchmark, Spec, TaskTags, Tier
from robotrials.measure.safety.safevla_steps import (
    array_steps,
    scalar,
    shown,
    trajectory_from_arrays,
    trajectory_from_steps,
)
from robotrials.measure.safety.score import METRICS_ONLY, RECORD_ID, stated_labels
from robotrials.measure.safety.signal import SIGNAL_UNITS
from robotrials.record import Episode, Outcome, Trajectory

# The paper's names of signals, and those of older archives, for ours.
SIGNAL_ALIASES: Mapping[str, str] = {
    'non_target_disp_max': 'non_target_disp_m',
    'arm_furniture_force': 'arm_furniture_force_n',
    'target_furniture_force': 'target_furniture_force_n',
    'max_contact_force': 'max_contact_force_n',
    'held_object_tilt_world': 'held_object_tilt_deg',
    'wrist_tilt_world': 'held_object_tilt_deg',
    'target_height': 'target_height_m',
    'joint_torque': 'joint_torque_ratio',
}
LONGEST_STEP_S = 0.5  # a record at less than 2 Hz is none of a controlled arm; 20 or 50 are milliseconds
RECORD_FIELDS = ('episode_id', 'benchmark', 'task_id', 'success', 'dt')
METRICS_FIELDS = ('episode_id', 'success', 'robustness')
SPEC_FIELDS = ('spec_id', 'canonical_family', 'tier', 'threshold', 'unit', 'stl', 'requires_all', 'invalid_if_any')


def read_safevla(
    path: Path | str, *, policy: str = '', source: str | None = None
) -> Iterator[tuple[Episode, Trajectory | None]]:
    """Episodes and trajectories of a .json, .jsonl or .npz file, or of every such file of a folder.

    Metrics records (`METRICS_FIELDS`) have margins and no trajectory; they are scored by what they state.

    The record names no policy, so `policy` does, unless the file carries a `policy` field of its own. A record whose
    identity or outcome cannot be read is refused; a reading that cannot is named in the trajectory's `broken`. What the
    record says of its own safety is kept in labels, to be compared with the score.

    Records are told apart by source (the name of the file or folder, or `source`), policy, own id and attempt, since
    archives of several models repeat ids. One that is there twice is refused with both places, unless the records
    number their attempts. The episode has an id of its own; the record's is the label RECORD_ID.
    """
    identities = _Identities(source if source is not None else Path(path).resolve().name)
    for where, record in _records(Path(path)):
        try:
            pair = (
                (identities.placed(_metrics_episode(record, where, policy), where), None)
                if _is_metrics(record)
                else (identities.placed(_episode(record, where, policy), where), _trajectory(record, where))
            )
        except InputError as error:
            raise error if where in str(error) else RecordError(f'{where}: {error}') from error
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise RecordError(f'{where}: not a trajectory record ({error}); see Appendix B of SafeVLA-Bench') from error
        yield pair


class _Identities:
    """Which records of a source were read already, and where."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._places: dict[tuple[str, str, int], str] = {}
        self._starts: dict[tuple[object, ...], dict[str, int]] = {}

    def placed(self, episode: Episode, where: str) -> Episode:
        """The episode under an id that no other record of the source has."""
        record_id = episode.labels[RECORD_ID]
        other = self._places.setdefault((episode.policy, record_id, episode.attempt), where)
        if other != where:
            raise RecordError(
                f'{where}: {record_id!r} of policy {episode.policy!r} is in {other} too, attempt {episode.attempt}; '
                'wanted one record per policy, id and attempt: name the policy in each, or number a rerun by "attempt"'
            )
        start = (episode.policy, episode.benchmark, episode.task, episode.seed, episode.instance)
        repeats = self._starts.setdefault(start, {})
        repeat = repeats.setdefault(record_id, len(repeats))
        return episode.replace(trial_id=self.source, repeat=repeat, episode_id='')


def is_safevla(path: Path) -> bool:
    """Whether this is trajectory records and not a table: by the first record, or as .npz or a folder."""
    if path.is_dir():
        return True
    if path.suffix not in ('.json', '.jsonl', '.npz'):
        return False
    try:
        first = next(_records(path), None)
    except InputError:
        return False
    return first is not None and (_is_metrics(first[1]) or all(name in first[1] for name in RECORD_FIELDS))


def _is_metrics(record: Mapping[str, Any]) -> bool:
    return 'steps' not in record and 'dt' not in record and all(name in record for name in METRICS_FIELDS)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir():
        files = sorted(p for p in path.rglob('*') if p.suffix in ('.json', '.jsonl', '.npz'))
        if not files:
            raise InputError(f'{path}: no .json, .jsonl or .npz file in it')
        for file in files:
            yield from _records(file)
    elif path.suffix == '.npz':
        archive = _npz(path)
        is_table = np.ndim(archive.get('episode_id', 0)) == 1
        yield from _metrics_from_npz(archive, str(path)) if is_table else [(str(path), archive)]
    elif path.suffix == '.jsonl':
        for number, line in enumerate(_text(path).split('\n'), start=1):
            if line.strip():
                yield f'{path}, line {number}', _object(_json(line, f'{path}, line {number}'), f'{path}, line {number}')
    else:
        document = _json(_text(path), str(path))
        if isinstance(document, dict) and isinstance(document.get('episodes'), list) and 'episode_id' not in document:
            document = document['episodes']  # a metrics document
        rows = document if isinstance(document, list) else [document]
        for number, row in enumerate(rows):
            where = f'{path}, record {number}' if isinstance(document, list) else str(path)
            yield where, _object(row, where)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'{path}: cannot be read ({error})') from error


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'{where}: not JSON: {error}') from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f'{where}: wanted a JSON object, found {type(value).__name__}')
    return value


def _npz(path: Path) -> dict[str, Any]:
    """An archive of plain arrays; objects that would have to be unpickled are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: not an .npz archive of plain arrays ({error})') from error


def _episode(record: Mapping[str, Any], where: str, policy: str) -> Episode:
    for name in RECORD_FIELDS:
        if name not in record:
            raise RecordError(f'{where}: no field {name!r}; wanted {", ".join(RECORD_FIELDS)}')
    named = _policy(record, policy, where)
    success = _truth(record['success'], f'{where}: success')
    steps = _length(record, where)
    episode_id = _name(record, 'episode_id', where)
    return Episode(
        policy=named, task=_name(record, 'task_id', where), benchmark=_name(record, 'benchmark', where),
        attempt=_attempt(record, where),
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE, success=success,
        duration_s=steps * _step_s(record, where), instance=_instance(episode_id),
        seed=int(record['seed']) if record.get('seed') is not None else None,
        instruction=str(record.get('instruction', '')), labels={**stated_labels(record), RECORD_ID: episode_id},
    )  # fmt: skip


def _metrics_episode(record: Mapping[str, Any], where: str, policy: str) -> Episode:
    """An episode whose labels hold the metrics; benchmark and task are its own fields, or the first parts of its id."""
    named = _policy(record, policy, where)
    success, episode_id = _truth(record['success'], f'{where}: success'), _name(record, 'episode_id', where)
    parts = episode_id.split('/')
    benchmark = str(record.get('benchmark') or (parts[0] if len(parts) > 2 else ''))
    task = str(record.get('task_id') or (parts[1] if len(parts) > 2 else ''))
    if not benchmark or not task:
        raise RecordError(
            f'{where}: episode_id is {episode_id!r}, wanted BENCHMARK/TASK/NAME, or benchmark and task_id'
        )
    if not isinstance(record['robustness'], dict):
        raise RecordError(f'{where}: robustness is {record["robustness"]!r}, wanted margins by spec')
    return Episode(
        policy=named, task=task, benchmark=benchmark, attempt=_attempt(record, where), success=success,
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE, duration_s=None,
        instance=_instance(parts[-1]),
        labels={**stated_labels(record), RECORD_ID: episode_id, METRICS_ONLY: 'true'},
    )  # fmt: skip


def _policy(record: Mapping[str, Any], policy: str, where: str) -> str:
    """Who ran it: the record's own word, or what the reader was told."""
    named = str(record.get('policy', '') or policy)
    if not named:
        raise InputError(f'{where}: the record names no policy; say which one it is')
    return named


def _instance(name: str) -> int | None:
    """The number that a record's name ends in."""
    number = re.search(r'(?<!\d)(\d{1,18})$', name)
    return int(number.group(1)) if number else None


def _attempt(record: Mapping[str, Any], where: str) -> int:
    plain = scalar(record.get('attempt', 0))
    if isinstance(plain, bool) or not isinstance(plain, int) or plain < 0:
        raise RecordError(f'{where}: attempt is {plain!r}, wanted 0 for the first, 1 for its rerun, and so on')
    return plain


def _truth(value: Any, what: str) -> bool:
    plain = scalar(value)
    if isinstance(plain, bool) or (isinstance(plain, int | float) and plain in (0, 1)):
        return bool(plain)
    raise RecordError(f'{what} is {plain!r}, wanted true or false')


def _name(record: Mapping[str, Any], field: str, where: str) -> str:
    plain = scalar(record[field])
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise RecordError(f'{where}: {field} is {plain!r}, wanted a name')
    return str(plain)


def _step_s(record: Mapping[str, Any], where: str) -> float:
    plain = scalar(record['dt'])
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 < plain <= LONGEST_STEP_S:
        hint = '; if it is in milliseconds, divide it by 1000' if isinstance(plain, int | float) and plain > 1 else ''
        raise RecordError(f'{where}: dt is {shown(plain)}, wanted seconds > 0, at most {LONGEST_STEP_S:g}{hint}')
    return float(plain)


def _length(record: Mapping[str, Any], where: str) -> int:
    if 'steps' not in record:
        return array_steps(record, where)
    if not isinstance(record['steps'], list):
        raise RecordError(f'{where}: steps is {type(record["steps"]).__name__}, wanted a list')
    return len(record['steps'])


def _trajectory(record: Mapping[str, Any], where: str) -> Trajectory:
    dt_s = _step_s(record, where)
    if 'steps' in record:
        return trajectory_from_steps(record, dt_s, where=where)
    return trajectory_from_arrays(record, dt_s, where=where)


def read_safevla_registry(specs: Path | str, tags: Path | str) -> Registry:
    """A registry from spec rows and task-tag records, each a JSON object, a list of them, or JSONL."""
    spec_rows = [(where, row) for where, row in _records(Path(specs))]
    tag_rows = [(where, row) for where, row in _records(Path(tags))]
    return safevla_registry(spec_rows, tag_rows)


def safevla_registry(
    specs: Iterable[tuple[str, Mapping[str, Any]]], tags: Iterable[tuple[str, Mapping[str, Any]]]
) -> Registry:
    """As `read_safevla_registry`, from (place, record) pairs."""
    made: dict[str, Spec] = {}
    for where, row in specs:
        spec = _spec(row, where)
        if spec.id in made:
            raise InputError(f'{where}: duplicate spec id {spec.id!r}')
        made[spec.id] = spec
    benchmarks: dict[str, SafetyBenchmark] = {}
    entries = []
    for where, row in tags:
        for name in ('benchmark', 'task_id', 'task_tags'):
            if name not in row:
                raise InputError(f'{where}: no field {name!r} in the task-tag record')
        benchmark = str(row['benchmark'])
        benchmarks.setdefault(benchmark, SafetyBenchmark(benchmark, frozenset()))
        # A record states its own capabilities, so they stay with the task.
        own = frozenset(map(str, [*row['task_tags'], *row.get('benchmark_signal_tags', ())]))
        entries.append(
            TaskTags(benchmark, str(row['task_id']), (), own, frozenset(map(str, row.get('object_tags', ()))))
        )
    return Registry(tuple(made.values()), benchmarks, {}, tuple(entries), (), {}, dict(SIGNAL_UNITS))


def _spec(row: Mapping[str, Any], where: str) -> Spec:
    for name in SPEC_FIELDS:
        if name not in row:
            raise InputError(f'{where}: no field {name!r} in the spec record')
    threshold = float(row['threshold'])
    tier = Tier.SAFE if row['tier'] == 'safe' else Tier.REPORT
    severe = row.get('vsi_severe')
    try:
        return Spec(
            id=str(row['spec_id']), family=str(row['canonical_family']), tier=tier,
            stl=_with_placeholder(str(row['stl']), threshold), threshold=threshold, unit=str(row['unit']),
            severe=None if severe is None else float(severe), is_binary=severe is None,
            requires_all=frozenset(map(str, row['requires_all'])),
            invalid_if_any=frozenset(map(str, row['invalid_if_any'])),
        )  # fmt: skip
    except InputError as error:
        raise InputError(f'{where}: {error}') from error


def _with_placeholder(stl: str, threshold: float) -> str:
    """The paper's formula under our signal names, its number that equals the threshold made replaceable."""
    for theirs, ours in SIGNAL_ALIASES.items():
        stl = re.sub(rf'\b{theirs}\b', ours, stl)
    bounds = [m.span() for m in re.finditer(r'\[[^\]]*\]', stl)]
    for match in re.finditer(r'(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?', stl):
        inside = any(low <= match.start() < high for low, high in bounds)
        if not inside and math.isclose(float(match.group()), threshold, rel_tol=1e-12):
            return stl[: match.start()] + PLACEHOLDER + stl[match.end() :]
    raise InputError(f'the formula {stl!r} does not contain the threshold {threshold:g}')


def metrics_document(scores: Iterable[EpisodeSafety], *, registry: Registry) -> dict[str, Any]:
    """Appendix B's metrics output. An inactive or unavailable spec is null; a clause never put to the test is 'inf'.

    The paper's document is of one policy. Of several, each row names its own, because their ids repeat.
    """
    rows = list(scores)
    names = [spec.id for spec in registry.specs if spec.tier is Tier.SAFE]
    is_of_one = len({score.policy for score in rows}) < 2
    episodes = [({} if is_of_one else {'policy': s.policy}) | _metrics_row(s, names) for s in rows]
    return {'episodes': episodes, 'aggregate': _aggregate(rows)}


def _metrics_row(score: EpisodeSafety, names: list[str]) -> dict[str, Any]:
    scored = {name: _json_number(rho) for name, rho in score.robustness.items()}
    said = score.name.startswith(f'{score.benchmark}/{score.task}/')
    row: dict[str, Any] = {
        'episode_id': score.name,
        **({} if said else {'benchmark': score.benchmark, 'task_id': score.task}),
        'success': score.success,
        'active_specs': [spec.id for spec in score.active],
        'robustness': {**dict.fromkeys(names), **scored},
        'safe': score.safe,
        'sbu': score.sbu,
        'vsi': score.vsi,
    }
    if not score.is_scored:
        row['unscored'] = score.reason or dict(score.unscored)
    return row


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else ('inf' if value > 0 else '-inf')


def _aggregate(scores: list[EpisodeSafety]) -> dict[str, Any]:
    scored = [s for s in scores if s.is_scored]
    n = len(scored)
    missing = {'n_unscored': len(scores) - n} if len(scores) > n else {}
    if n == 0:
        empty = dict.fromkeys(('sr', 'safety', 'sbu', 'p_unsafe_given_success', 'vsi'))
        return {'n': 0, **empty, **missing}
    successes = sum(s.success for s in scored)
    unsafe_successes = sum(bool(s.sbu) for s in scored)
    return {
        'n': n,
        'sr': successes / n,
        'safety': sum(s.safe is True for s in scored) / n,
        'sbu': unsafe_successes / n,
        'p_unsafe_given_success': unsafe_successes / successes if successes else None,
        'vsi': math.fsum(s.vsi or 0.0 for s in scored) / n,
        **missing,
    }


def _metrics_from_npz(archive: Mapping[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ('episode_id', 'success'):
        if name not in archive:
            raise InputError(f'{where}: no array {name!r}')
    own = ('episode_id', 'success', 'safe', 'sbu', 'vsi', 'policy', 'benchmark', 'task_id', 'attempt')
    columns = {name: column for name, column in archive.items() if name not in own}
    for name, column in columns.items():
        if column.dtype.kind not in 'iuf' or column.shape != archive['episode_id'].shape:
            raise InputError(f'{where}: {name} has {column.dtype} {column.shape}, wanted a margin for every episode_id')
    for i, episode_id in enumerate(archive['episode_id']):
        # An archive has no null: NaN stands for it.
        rho = {n: None if math.isnan(column[i]) else float(column[i]) for n, column in columns.items()}
        said = {n: archive[n][i].item() for n in own[1:] if n in archive}
        yield f'{where}, row {i}', {'episode_id': str(episode_id), **said, 'robustness': rho}
