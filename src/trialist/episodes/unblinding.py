"""Unblinding records: which policy each code stood for, who opened that and when. Written once, when a trial closes.

While a trial is open its episodes carry codes. Readers apply these records, so that closing rewrites nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trialist.episodes.episode import Episode
from trialist.episodes.part import sync_folder
from trialist.errors import StoreError

FOLDER = 'unblinding'


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblinding:
    """One trial's opening."""

    trial_id: str
    by: str
    at: str
    policies: Mapping[str, str]  # code -> policy
    reference: str = ''  # the reference's code
    why: str = ''
    plan: str = ''  # the whole plan, as declared
    key: str = ''  # opens what was sealed while the trial was open, in hex


@dataclass(frozen=True, slots=True)
class Unblindings:
    """All openings of a store, by trial."""

    by_trial: Mapping[str, Unblinding] = field(default_factory=dict)

    def apply(self, episode: Episode) -> Episode:
        """The episode under its policy's name, if its trial has been closed."""
        found = self.by_trial.get(episode.trial_id)
        if found is None or episode.policy not in found.policies:
            return episode
        return episode.replace(policy=found.policies[episode.policy], is_reference=episode.policy == found.reference)

    def codes(self, names: Collection[object]) -> list[str]:
        """Every code that stood for one of these policies."""
        return [code for u in self.by_trial.values() for code, policy in u.policies.items() if policy in names]


def read_unblindings(root: Path) -> Unblindings:
    """The openings of a store; a file that is not one is named."""
    folder = root / FOLDER
    if not folder.is_dir():
        return Unblindings()
    found = [_read(path) for path in sorted(folder.glob('*.json'))]
    return Unblindings({u.trial_id: u for u in found})


def write_unblinding(root: Path, unblinding: Unblinding) -> None:
    """Keep an opening durably; a trial that is already open is refused, with who opened it and when."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f'{unblinding.trial_id}.json'
    draft = folder / f'.{uuid.uuid4().hex}'
    try:
        with draft.open('w', encoding='utf-8') as stream:
            json.dump(dataclasses.asdict(unblinding), stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(draft, path)
    except FileExistsError as error:
        earlier = _read(path)
        raise StoreError(f'{root}: this trial was closed by {earlier.by} at {earlier.at}; it closes once') from error
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(folder)


def _read(path: Path) -> Unblinding:
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
        return Unblinding(**values)
    except (json.JSONDecodeError, TypeError) as error:
        raise StoreError(f'{path}: not an unblinding record ({error}); run: trialist store verify') from error
