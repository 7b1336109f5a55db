"""Two-arm trials for robot arms.

`robotrials.load(...)` opens recorded episodes for a notebook. The rooms are behind it: `record` holds what happened,
`measure` turns an episode into numbers, and `verdict` turns numbers into decisions under one declared plan. This top
level stays light on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robotrials.trial import Comparison, Result, Trial

__all__ = ['Comparison', 'Result', 'Trial', '__version__', 'load']
__version__ = '0.1.0'


def load(
    source: object, *, where: Mapping[str, Any] | None = None, columns: Mapping[str, str] | None = None, **given: str
) -> Trial:
    """Open recorded episodes: a store, a file or folder of a known format, a table, or a list of rows or episodes.

    A table may be pandas, polars, Arrow, or anything else with an Arrow C stream. Columns are guessed by name;
    `columns` says which field is which column, and further keywords give one value for every row
    (`load(frame, columns={'policy': 'ckpt'}, task='pick')`). `where` selects from a store.

    >>> import robotrials
    >>> rows = [{'policy': 'a', 'task': 'pick', 'success': True}, {'policy': 'a', 'task': 'pick', 'success': False}]
    >>> robotrials.load(rows).analysis.success.counts['a', ''].value
    0.5
    """
    from robotrials.trial import load_trial

    return load_trial(source, where=where, columns=columns, **given)


def __dir__() -> list[str]:
    """The public door, and nothing of what it is made of."""
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name in ('Comparison', 'Result', 'Trial'):
        from robotrials import trial

        return getattr(trial, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
