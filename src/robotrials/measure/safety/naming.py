"""Episodes that name no benchmark: said once, with the names that their tasks could mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from robotrials.errors import UnknownName
from robotrials.measure.safety.registry import Registry

MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class UnnamedBenchmark:
    """Tasks of episodes (or of a plan) without a benchmark, and the benchmarks that have all of them."""

    tasks: tuple[str, ...]
    candidates: tuple[str, ...]

    def __str__(self) -> str:
        told = ', '.join(self.tasks[:MOST_TOLD]) + (', ...' if len(self.tasks) > MOST_TOLD else '')
        head = f'no benchmark is named for {told}, so that safety cannot be scored'
        if not self.candidates:
            return (
                f'{head}; no benchmark of the registry has these tasks: describe them in a registry file (--registry)'
            )
        return f'{head}; it could be {" or ".join(self.candidates)}: say which, as benchmark = NAME'


def unnamed_benchmark(named: Iterable[tuple[str, str, str]], registry: Registry) -> UnnamedBenchmark | None:
    """The gap that valid episodes leave, given as their different (benchmark, stratum, task).

    None where every one names its benchmark, or a suite as its stratum.
    """
    lacking = [task for benchmark, stratum, task in named if not benchmark and not _is_suite(stratum, registry)]
    return unnamed_tasks(lacking, registry) if lacking else None


def unnamed_tasks(tasks: Iterable[str], registry: Registry) -> UnnamedBenchmark:
    """The gap of tasks whose benchmark is not named, as in a plan."""
    distinct = tuple(dict.fromkeys(tasks))
    holders = [set(registry.holders(task)) for task in distinct]
    shared = set.intersection(*holders) if holders else set()
    return UnnamedBenchmark(distinct, tuple(name for name in registry.benchmarks if name in shared))


def _is_suite(stratum: str, registry: Registry) -> bool:
    try:
        return bool(stratum) and bool(registry.benchmark(stratum))
    except UnknownName:
        return False
