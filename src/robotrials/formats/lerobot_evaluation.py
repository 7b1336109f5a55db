"""Recordings of `lerobot-eval`: an episode is saved only when its environment says that it ended.

LIBERO's environment never says so of a failure (read in LeRobot 0.6.1), so its recordings hold successes alone, and a
success rate from them would always be 100 %. What eval_info.json counted decides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.imported import ImportOptions, Question

FOLDER = 'recordings'
WHY = (
    'lerobot-eval saves an episode only when its environment reports the end, and LIBERO reports none for a failure: '
    'a rate from these would be too high'
)


def rollouts_question() -> Question:
    """Whether failed rollouts are among those recorded."""
    return Question('rollouts', 'Every recorded episode succeeded. Are all rollouts recorded?', ('all',), None)


def check_rollouts(path: Path, outcomes: Sequence[bool | None], options: ImportOptions) -> None:
    """Raise InputError where the recorded episodes are fewer than those evaluated, or may be successes alone."""
    counted = counted_rollouts(path)
    if counted is not None:
        info, expected, found = counted
        if expected != found:
            raise InputError(
                f'{path}: {found} recorded episodes ({sum(map(bool, outcomes))} of {len(outcomes)} here succeeded), '
                f'{info} counts {expected} rollouts. {WHY}. Import {info.name} for the rate; nothing was imported'
            )
        return
    if outcomes and all(outcomes) and rollouts_question().answer(options) != 'all':
        raise InputError(
            f'{path}: all {len(outcomes)} recorded episodes succeeded, and no eval_info.json says how many there were. '
            f'{WHY}. If no rollout is missing, say --answer rollouts=all; nothing was imported'
        )


def counted_rollouts(path: Path) -> tuple[Path, int, int] | None:
    """The evaluation's own count of this task's rollouts, and how many are recorded; None where it left none."""
    root = path.resolve()
    if FOLDER not in root.parts:
        return None
    at = len(root.parts) - 1 - root.parts[::-1].index(FOLDER)
    top = Path(*root.parts[: at + 1])
    info = top.parent / 'eval_info.json'
    if not info.exists() or at + 1 >= len(root.parts):
        return None
    name = root.parts[at + 1]
    expected = _expected(info, name)
    if expected is None:
        return None
    found = sum(_total(meta) for meta in sorted((top / name).rglob('meta/info.json')))
    return info, expected, found


def _expected(info: Path, name: str) -> int | None:
    try:
        values = json.loads(info.read_text(encoding='utf-8'))  # bare NaN, as LeRobot writes it, is taken
    except (OSError, ValueError) as error:
        raise InputError(f'{info}: not readable as JSON ({error})') from error
    entries = values.get('per_task') if isinstance(values, dict) else None
    if not isinstance(entries, list):
        rows = values.get('per_episode') if isinstance(values, dict) else None
        return len(rows) if isinstance(rows, list) else None
    for entry in entries:
        if f'{entry.get("task_group")}_{entry.get("task_id")}' == name:
            successes = entry.get('metrics', {}).get('successes')
            return len(successes) if isinstance(successes, list) else None
    return None


def _total(meta: Path) -> int:
    try:
        return int(json.loads(meta.read_text(encoding='utf-8'))['total_episodes'])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f'{meta}: no total_episodes in it ({error})') from error
