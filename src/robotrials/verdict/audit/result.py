"""A diagnostic's value as a JSON file that says what it is, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from robotrials.declaration import read_table, without_nulls
from robotrials.errors import InputError
from robotrials.record.folder import write_durably

T = TypeVar('T')


def write_result(form: str, found: Any, path: Path) -> Path:
    """A diagnostic's value as JSON that says what it is. Infinite numbers are refused: JSON has none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(path, sealed_json({'format': form, 'version': 1, **asdict(found)}))


def sealed_json(content: Mapping[str, Any]) -> str:
    """JSON with a digest of the rest, so that a number which was changed by hand shows. It is no signature."""
    return json.dumps({**content, 'sha256': _digest(content)}, indent=1, allow_nan=False) + '\n'


def read_sealed(path: Path, marks: Mapping[str, Any], *, wanted: str) -> dict[str, Any]:
    """What `sealed_json` wrote, without its digest; InputError if it has other `marks`, or was changed."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f'{path}: cannot be read ({error}); {wanted}') from error
    found = {key: content.get(key) for key in marks} if isinstance(content, dict) else type(content).__name__
    if not isinstance(content, dict) or found != marks:
        raise InputError(f'{path}: {found!r} is there; {wanted}')
    if 'sha256' in content and content.pop('sha256') != _digest(content):
        raise InputError(f'{path}: was changed after it was written; the same audit in its folder writes it anew')
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_whole(path: Path, text: str) -> Path:
    """A file that appears whole or not at all."""
    write_durably(path, text)
    return path


def read_result(form: str, kind: type[T], path: Path) -> T:
    """A diagnostic's value from its JSON; another file is an error that says what was found."""
    content = read_sealed(path, {'format': form, 'version': 1}, wanted=f'wanted {form} of version 1')
    return read_table(
        kind, without_nulls({k: v for k, v in content.items() if k not in ('format', 'version')}), where=str(path)
    )
