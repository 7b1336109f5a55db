"""Logs as JSON, one object a line. A request is logged by its route, never by who asked for what.

Ids of submissions beside ids of workers would tell whoever reads the log which policy runs where.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import TextIO

NAME = 'robotrials.service.platform'


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec='milliseconds')
        values = {'at': at, 'level': record.levelname.lower(), 'event': record.getMessage()}
        values |= getattr(record, 'fields', {})
        if record.exc_info:
            values['error'] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=True)


def log_to(stream: TextIO | None = None, *, level: int = logging.INFO) -> logging.Logger:
    """Send the platform's and uvicorn's logs to a stream (stderr unless given), one JSON object a line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (NAME, 'uvicorn.error'):
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = [handler], False
        logger.setLevel(level)
    logging.getLogger('uvicorn.access').handlers[:] = []
    logging.getLogger('uvicorn.access').propagate = False
    return logging.getLogger(NAME)
