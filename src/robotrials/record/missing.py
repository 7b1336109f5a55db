"""What a store lacks, told from the log and the names and sizes of its files; `verify` reads every byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.record.ledger import Ledger, read_ledger
from robotrials.record.log import LOG

if TYPE_CHECKING:
    from robotrials.record.finding import Finding
    from robotrials.record.store import TrialInfo


def glance(root: Path, trial: TrialInfo) -> tuple[Finding, ...]:
    """Files that are gone or cut, entries of the log that are gone or damaged, and what repairs have set aside."""
    from robotrials.record.finding import Finding, FindingKind

    ledger = read_ledger(root)
    if not ledger.is_logged:
        if trial.is_logged:
            return (Finding(FindingKind.MISSING, root / LOG, 'the commit log is gone: anything may be missing'),)
        return ()
    return (*ledger.damage, *_absent(root, ledger), *known_losses(root, ledger))


def _absent(root: Path, ledger: Ledger) -> Iterator[Finding]:
    from robotrials.record.finding import Finding, FindingKind

    for name in sorted(ledger.wanted()):
        path = root / name
        try:
            n_bytes = path.stat().st_size
        except OSError:
            yield Finding(FindingKind.MISSING, path, what_it_held(ledger, name))
            continue
        if n_bytes != ledger.files[name].n_bytes:
            held = what_it_held(ledger, name)
            yield Finding(FindingKind.DAMAGED, path, f'{n_bytes} bytes of {ledger.files[name].n_bytes}; {held}')


def known_losses(root: Path, ledger: Ledger) -> Iterator[Finding]:
    """What repairs have set aside, as they said it."""
    from robotrials.record.finding import Finding, FindingKind

    for name, detail in sorted(ledger.lost.items()):
        yield Finding(FindingKind.LOST, root / name, detail)


def what_it_held(ledger: Ledger, name: str) -> str:
    """What the log knows of a file, for whoever has to do without it."""
    folder, _, file = name.partition('/')
    for part in ledger.parts:
        if folder == 'episodes' and part.path.name == file:
            return f'it held {part.n_rows} episodes'
        if folder == 'events' and part.events == file:
            return f'it held the {part.n_events} events of {part.n_rows} episodes, which are lost with them'
        if folder == 'trajectories' and file in part.trajectories:
            return f'it held trajectories of episodes in {part.path.name}'
    return 'the log names it'
