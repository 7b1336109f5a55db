"""The mapping file: how one source was read, so that the next one of its kind is read alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.formats.imported import Imported, ImportOptions
from robotrials.record.folder import write_durably

KEYS = ('format', 'map', 'set', 'answers', 'group_by', 'rate_hz', 'values', 'blank')


def mapping_beside(path: Path) -> Path:
    """Where the mapping of a source lies that every verb takes: `results.csv.map.json` beside `results.csv`."""
    whole = path if path.name not in ('', '..') else path.resolve()
    return whole.with_name(f'{whole.name or "root"}.map.json')


def as_mapped(path: Path, options: ImportOptions, *, kind: str = '') -> tuple[str, ImportOptions]:
    """The format and the options of a source, with those of the mapping file beside it where there is one."""
    beside = mapping_beside(path)
    return read_mapping(beside, kind=kind, options=options) if beside.is_file() else (kind, options)


def write_mapping(path: Path, imported: Imported) -> None:
    """Write how `imported` was read: its guesses and what the user said."""
    options = imported.resolved
    if options is None:
        raise InputError(f'--save-map: a source of format {imported.format} has no mapping to save')
    values = {
        'format': imported.format,
        'map': dict(options.columns),
        'set': dict(options.defaults),
        'answers': dict(options.answers),
        'group_by': list(options.group_by),
        'rate_hz': options.rate_hz,
        'values': dict(options.values),
        'blank': options.blank,
    }
    write_durably(path, json.dumps(values, indent=1, ensure_ascii=False) + '\n')


def read_mapping(path: Path, *, kind: str, options: ImportOptions) -> tuple[str, ImportOptions]:
    """The format and options that a file holds; what the user says besides wins."""
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError as error:
        raise InputError(f'{path}: no such file; --save-map writes one') from error
    except (ValueError, RecursionError) as error:
        raise InputError(f'{path}: not a mapping file ({error}); --save-map writes one') from error
    if not isinstance(values, dict):
        raise InputError(f'{path}: not a mapping file, wanted a JSON object; --save-map writes one')
    for key in values:
        if key not in KEYS:
            raise UnknownName(f'entry of the mapping file {path}', key, KEYS)
    rate = values.get('rate_hz')
    if rate is not None and not isinstance(rate, int | float):
        raise InputError(f'{path}: rate_hz is {rate!r}, wanted a number or null')
    joined = ImportOptions(
        columns={**_texts(path, values, 'map'), **options.columns},
        defaults={**_texts(path, values, 'set'), **options.defaults},
        answers={**_texts(path, values, 'answers'), **options.answers},
        group_by=options.group_by or tuple(map(str, values.get('group_by') or ())),
        rate_hz=options.rate_hz if options.rate_hz is not None else rate,
        source=options.source,
        values={**_texts(path, values, 'values'), **options.values},
        blank=options.blank or str(values.get('blank') or ''),
    )
    return kind or str(values.get('format', '')), joined


def _texts(path: Path, values: dict[str, Any], key: str) -> dict[str, str]:
    found = values.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise InputError(f'{path}: {key} wants a JSON object of texts, found {found!r}')
    return found
