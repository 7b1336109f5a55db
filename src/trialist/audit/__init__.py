"""Does the benchmark score mean anything? Significance, creeping overfitting, reproducibility, citations."""

from trialist.audit.benchmark import BENCHMARKS, Benchmark, find_benchmark
from trialist.audit.topline import Classification, Protocol, Topline, cutoffs, topline

__all__ = ['BENCHMARKS', 'Benchmark', 'Classification', 'Protocol', 'Topline', 'cutoffs', 'find_benchmark', 'topline']
