"""One episode to numbers: timing, safety, geometry, actions, and events found afterwards."""
