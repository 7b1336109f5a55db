"""What a whole trial amounts to: every scoring room's results on one store, joined; no formatting."""
