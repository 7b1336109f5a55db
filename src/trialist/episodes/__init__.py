"""The record: what happened, kept once, scored for ever."""

from trialist.episodes.annotation import Annotation
from trialist.episodes.edit import Edit, EditOperation, Edits
from trialist.episodes.episode import Episode, Outcome
from trialist.episodes.event import Event, EventKind, EventSource
from trialist.episodes.provenance import PolicyCard, Provenance, collect_provenance
from trialist.episodes.store import Store, TrialInfo, read_store
from trialist.episodes.trajectory import Camera, Contacts, Scene, Trajectory, trajectories_equal
from trialist.episodes.unblinding import Unblinding

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
