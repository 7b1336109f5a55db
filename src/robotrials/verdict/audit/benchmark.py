"""Published benchmarks as presets: a suite and protocol, with the numbers that a top-line reading needs."""

from __future__ import annotations

from dataclasses import dataclass

from robotrials.errors import UnknownName
from robotrials.verdict.audit.topline import Protocol


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A suite under one protocol: how it counts, how it prints its score, and where a vla-eval leaderboard has it."""

    name: str
    title: str
    protocol: Protocol
    unit: str = 'percent'
    family: str = ''  # the leaderboard's benchmark key
    suite: str = ''  # the leaderboard's suite key; 'overall' for overall_score
    training: str = ''  # the training protocol or split that scores must share to be compared
    aliases: tuple[str, ...] = ()

    @property
    def score_suffix(self) -> str:
        """What follows a printed score: '%', or ' of 5'."""
        return '%' if self.unit == 'percent' else f' of {self.protocol.max_score}'


def _libero(suite: str, title: str, *aliases: str) -> Benchmark:
    name = suite.replace('_', '-')
    return Benchmark(name, title, Protocol(10, 50), family='libero', suite=suite, aliases=aliases)


def _calvin(split: str) -> Benchmark:
    name = f'calvin-{split.lower().replace("->", "-")}'
    aliases = ('calvin',) if split == 'ABC->D' else ()
    return Benchmark(
        name, f'CALVIN {split}', Protocol(1, 1000, 5), unit='score', family='calvin', suite='overall', training=split,
        aliases=aliases,
    )  # fmt: skip


def _robotwin(suite: str, scene: str, training: str, *aliases: str) -> Benchmark:
    """Protocol A trains on 50 clean demonstrations a task, B on 50 clean and 500 randomized ones."""
    return Benchmark(
        f'robotwin2-{scene}-{training.lower()}', f'RoboTwin 2.0 {scene}, protocol {training}',
        Protocol(50, 100), family='robotwin_v2', suite=suite, training=training, aliases=aliases,
    )  # fmt: skip


BENCHMARKS: tuple[Benchmark, ...] = (
    _libero('libero_spatial', 'LIBERO-Spatial'),
    _libero('libero_object', 'LIBERO-Object'),
    _libero('libero_goal', 'LIBERO-Goal'),
    _libero('libero_10', 'LIBERO-10 (Long)', 'libero-long'),
    Benchmark(
        'libero-average', 'LIBERO, mean of four suites', Protocol(40, 50), family='libero', suite='overall',
        aliases=('libero', 'libero-avg'),
    ),
    _calvin('D->D'),
    _calvin('ABC->D'),
    _calvin('ABCD->D'),
    Benchmark(
        'simpler-widowx', 'SimplerEnv WidowX, visual matching', Protocol(4, 24), family='simpler_env',
        suite='widowx_vm', aliases=('simplerenv-widowx', 'simpler', 'simplerenv'),
    ),
    Benchmark(
        'robocasa-panda', 'RoboCasa, 24 atomic tasks, Panda', Protocol(24, 50), family='robocasa', suite='panda',
        aliases=('robocasa', 'robocasa-24'),
    ),
    _robotwin('easy', 'clean', 'A', 'robotwin2', 'robotwin', 'robotwin-2.0'),
    _robotwin('hard', 'randomized', 'A'),
    _robotwin('easy', 'clean', 'B'),
    _robotwin('hard', 'randomized', 'B'),
)  # fmt: skip


def find_benchmark(name: str) -> Benchmark:
    """The preset of this name or alias; an unknown name suggests the near one."""
    wanted = name.strip().lower().replace('_', '-')
    for benchmark in BENCHMARKS:
        if wanted == benchmark.name or wanted in benchmark.aliases:
            return benchmark
    raise UnknownName('benchmark', name, [n for b in BENCHMARKS for n in (b.name, *b.aliases)])
