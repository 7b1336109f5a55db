"""The record: what happened, kept once, scored for ever."""

from trialist.episodes.episode import Episode, Outcome
from trialist.episodes.event import Event, EventKind, EventSource
from trialist.episodes.trajectory import Camera, Contacts, Scene, Trajectory

__all__ = ['Camera', 'Contacts', 'Episode', 'Event', 'EventKind', 'EventSource', 'Outcome', 'Scene', 'Trajectory']
