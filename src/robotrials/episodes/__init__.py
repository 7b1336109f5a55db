"""The record: what happened, kept once, scored for ever.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.episodes.annotation import Annotation
    from robotrials.episodes.edit import Edit, EditOperation, Edits
    from robotrials.episodes.episode import Episode, Outcome
    from robotrials.episodes.event import Event, EventKind, EventSource
    from robotrials.episodes.provenance import PolicyCard, Provenance, collect_provenance
    from robotrials.episodes.store import Store, TrialInfo, read_store
    from robotrials.episodes.trajectory import Camera, Contacts, Scene, Trajectory, trajectories_equal
    from robotrials.episodes.unblinding import Unblinding

__all__ = [
    'Annotation',
    'Camera',
    'Contacts',
    'Edit',
    'EditOperation',
    'Edits',
    'Episode',
    'Event',
    'EventKind',
    'EventSource',
    'Outcome',
    'PolicyCard',
    'Provenance',
    'Scene',
    'Store',
    'Trajectory',
    'TrialInfo',
    'Unblinding',
    'collect_provenance',
    'read_store',
    'trajectories_equal',
]

_PLACES = {
    '.annotation': 'Annotation',
    '.edit': 'Edit EditOperation Edits',
    '.episode': 'Episode Outcome',
    '.event': 'Event EventKind EventSource',
    '.provenance': 'PolicyCard Provenance collect_provenance',
    '.store': 'Store TrialInfo read_store',
    '.trajectory': 'Camera Contacts Scene Trajectory trajectories_equal',
    '.unblinding': 'Unblinding',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
