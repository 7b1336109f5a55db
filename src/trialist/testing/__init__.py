"""Public helpers for tests and benchmarks: strategies, fakes and simulated cohorts. No other room imports them."""
