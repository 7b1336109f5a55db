"""Deterministic episode ids: the same rollout of the same plan has the same id wherever and whenever it is run."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from robotrials.errors import RecordError

if TYPE_CHECKING:
    from robotrials.record.episode import Episode

ID_HEX_DIGITS = 24


def episode_id_of(episode: Episode) -> str:
    """The id of (trial, policy, benchmark, task, stratum, condition, seed, instance, repeat): 24 hex digits.

    `trial_id` is the plan's hash or the import source. The attempt is not part of it: an INVALID episode and its
    rerun share an id, so that they can never both count.
    """
    identity = [
        episode.trial_id, episode.policy, episode.benchmark, episode.task, episode.stratum, episode.condition,
        dict(episode.condition_parameters), episode.seed, episode.instance, episode.repeat,
    ]  # fmt: skip
    return digest(identity)


def digest(value: object) -> str:
    """24 hex digits over the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False, allow_nan=False)
    try:
        return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]
    except UnicodeEncodeError as error:
        found = text[error.start : error.end]
        raise RecordError(f'a name holds {found!r}, half of a character; wanted whole Unicode text') from error
