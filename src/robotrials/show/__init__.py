"""Tables and figures: formats what the scoring rooms computed, and computes nothing itself."""
