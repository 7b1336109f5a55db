"""Benchmarks: each measures robotrials and a peer side by side in one run, as a ratio."""
