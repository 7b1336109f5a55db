"""Benchmarks: each measures trialist and a peer side by side in one run, as a ratio."""
