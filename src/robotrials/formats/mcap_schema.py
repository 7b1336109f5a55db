"""JSON schemas of the messages that are written into MCAP files; Foxglove knows its own by their names."""

from __future__ import annotations

from typing import Any

from robotrials.old_name import MCAP_CONTACTS, MCAP_SIGNAL

NUMBER = {'type': ['number', 'integer', 'boolean', 'null']}


def _object(**properties: Any) -> dict[str, Any]:
    return {'type': 'object', 'properties': properties}


TIME = _object(sec={'type': 'integer'}, nsec={'type': 'integer'})
VECTOR = _object(x={'type': 'number'}, y={'type': 'number'}, z={'type': 'number'})
QUATERNION = _object(x={'type': 'number'}, y={'type': 'number'}, z={'type': 'number'}, w={'type': 'number'})
TEXT = {'type': 'string'}

SCHEMAS: dict[str, dict[str, Any]] = {
    'foxglove.FrameTransform': _object(
        timestamp=TIME, parent_frame_id=TEXT, child_frame_id=TEXT, translation=VECTOR, rotation=QUATERNION
    ),
    'foxglove.CompressedVideo': _object(
        timestamp=TIME, frame_id=TEXT, data={'type': 'string', 'contentEncoding': 'base64'}, format=TEXT
    ),
    'foxglove.Log': _object(
        timestamp=TIME, level={'type': 'integer'}, message=TEXT, name=TEXT, file=TEXT, line={'type': 'integer'}
    ),
    MCAP_SIGNAL: _object(value=NUMBER, values={'type': 'array', 'items': NUMBER}),
    MCAP_CONTACTS: _object(
        contacts={
            'type': 'array',
            'items': _object(
                body=TEXT, other=TEXT, force_n={'type': 'number'}, point_m={'type': 'array', 'items': NUMBER}
            ),
        }
    ),
}
