"""The record: what happened, kept once, scored for ever.

Names are found when asked for, so that a host inside another environment needs numpy and nothing else of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.record.blinding import Unblinding
    from robotrials.record.episode import (
        Episode,
        Event,
        EventKind,
        EventSource,
        Outcome,
        PolicyCard,
        Provenance,
        collect_provenance,
    )
    from robotrials.record.ledger import Annotation, Edit, EditOperation, Edits
    from robotrials.record.store import Store, TrialInfo, read_store
    from robotrials.record.trajectory import Camera, Contacts, Scene, Trajectory, trajectories_equal

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
    '.blinding': 'Unblinding',
    '.episode': 'Episode Event EventKind EventSource Outcome PolicyCard Provenance collect_provenance',
    '.ledger': 'Annotation Edit EditOperation Edits',
    '.store': 'Store TrialInfo read_store',
    '.trajectory': 'Camera Contacts Scene Trajectory trajectories_equal',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
