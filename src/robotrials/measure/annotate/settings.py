"""Settings in a file: zones, thresholds, and where a trained classifier lies."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

from robotrials.declaration import read_table
from robotrials.errors import InputError, UnknownName
from robotrials.measure.annotate.calibrate import Settings
from robotrials.measure.annotate.detector import DetectorOptions
from robotrials.measure.annotate.learned import classifier_from_json
from robotrials.measure.annotate.verdict import RuleOptions
from robotrials.measure.annotate.zone import Zone, Zones, read_zones

TABLES = ('zones', 'detector', 'rules', 'classifier')


def read_settings(path: Path) -> tuple[Zones | None, Settings]:
    """Zones (if the file names any) and settings from TOML; a classifier's path is relative to the file."""
    try:
        values = tomllib.loads(path.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f'{path}: cannot be read as TOML ({error})') from error
    for name in values:
        if name not in TABLES:
            raise UnknownName(f'table of {path.name}', name, TABLES)
    zones = read_zones(values['zones'], where=str(path)) if 'zones' in values else None
    classifier = None
    if 'classifier' in values:
        if not isinstance(values['classifier'], str):
            raise InputError(f'{path}: classifier is {values["classifier"]!r}, wanted the name of a file')
        named = path.parent / values['classifier']
        try:
            text = named.read_text(encoding='utf-8')
        except (OSError, ValueError) as error:  # also a name or a content that is no text
            raise InputError(f'{named}: cannot be read ({error})') from error
        classifier = classifier_from_json(text, where=str(named))
    return zones, Settings(
        detector=read_table(DetectorOptions, values.get('detector', {}), where=f'{path}: detector'),
        rules=read_table(RuleOptions, values.get('rules', {}), where=f'{path}: rules'),
        classifier=classifier,
    )


def settings_text(zones: Zones, settings: Settings, *, classifier: str = '') -> str:
    """The file for these settings."""
    lines = [f"classifier = '{classifier}'", ''] if classifier else []
    if zones.swapped_when is not None:
        name, value = (json.dumps(text) for text in zones.swapped_when)
        lines += ['[zones]', f'swapped_when = {{ {name} = {value} }}', '']
    for name in ('source', 'target'):
        zone: Zone = getattr(zones, name)
        lines += [f'[zones.{name}]', f'center_m = {list(zone.center_m)}', f'size_m = {list(zone.size_m)}', '']
    for name, options in (('detector', settings.detector), ('rules', settings.rules)):
        lines += [f'[{name}]', *(f'{key} = {value!r}' for key, value in dataclasses.asdict(options).items()), '']
    return '\n'.join(lines)
