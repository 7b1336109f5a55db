"""A package of someone else: it teaches `robotrials import` the format of the (made-up) Pebble rig."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robotrials.formats.imported import CERTAIN, ImportAccount, Imported, ImportOptions, Recording, placed
from robotrials.record import Episode, Outcome


class PebbleFormat:
    """Lines such as `act pick + 12.5` after a first line `#pebble`."""

    name = 'pebble'
    summary = 'logs of the Pebble rig (.pebble)'

    def recognise(self, path: Path) -> float | None:
        return CERTAIN if path.is_file() and path.read_bytes()[:7] == b'#pebble' else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        ledger = ImportAccount()

        def recordings() -> Iterator[Recording]:
            for number, line in enumerate(path.read_text().splitlines()[1:]):
                policy, task, mark, lasted = line.split()
                outcome = Outcome.SUCCESS if mark == '+' else Outcome.FAILURE
                ledger.keep('episodes')
                episode = Episode(
                    policy=policy, task=task, outcome=outcome, duration_s=float(lasted),
                    trial_id=f'import:{options.source_name(path)}',
                )  # fmt: skip
                yield Recording(placed(episode, number))

        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger)


PEBBLE = PebbleFormat()
