"""What a process of our own may leave out, because nobody else's code runs in it."""

from __future__ import annotations

import sys
from typing import Any

_is_own = False


def run_command() -> None:
    """The command `robotrials` as a process: the same as `main`, which notebooks and tests call in theirs."""
    global _is_own  # of the process, as its name says
    _is_own = True
    from robotrials.cli.app import main

    main()


def spare_pandas() -> None:
    """Have pyarrow look for pandas now, and not find it.

    It looks at its first list, or first column of texts, to tell pandas' missing values from others: importing pandas
    takes longer than a verb's answer, and no verb of ours has any. `from_pandas` and `to_pandas` look again.
    """
    if not _is_own or 'pandas' in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([''])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == 'pandas':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
