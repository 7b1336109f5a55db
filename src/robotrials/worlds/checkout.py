"""Benchmarks from the user's own checkout: LIBERO-Plus, LIBERO-PRO, RoboCasa, CALVIN and SimplerEnv.

No package index has them. What each needs and where that comes from is data (checkout.toml). The hosts are those of
LIBERO, of robosuite and of Gymnasium; what is here puts a checkout in front of them. None was ever run with the real
benchmark: they are tested with stand-ins of its interface, and say so in every record.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.run.host import Host, HostLike, HostWrapper
from robotrials.run.seam import HostReport, Observation, ProtocolFacts
from robotrials.value import read_table
from robotrials.worlds.isolated import IsolatedHost
from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.suite import SUITES, Suite
from robotrials.worlds.simulator import Simulator, Stepped, padded

GIT_S = 20.0
UNTRIED = 'this host was tested with a stand-in of the benchmark, never with the benchmark itself'


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A file or folder of a checkout, and where it comes from."""

    path: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutBenchmark:
    """One benchmark of checkout.toml."""

    repository: str
    environment: str
    paths: tuple[str, ...]
    needs: tuple[Need, ...]
    mapping: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_benchmarks() -> dict[str, CheckoutBenchmark]:
    """What a checkout can be of, by name."""
    text = files('robotrials.worlds').joinpath('checkout.toml').read_text(encoding='utf-8')
    return {
        name: read_table(CheckoutBenchmark, table, where=f'checkout.toml {name}')
        for name, table in tomllib.loads(text).items()
    }


def find_benchmark(name: str) -> CheckoutBenchmark:
    known = read_benchmarks()
    if name not in known:
        raise UnknownName('benchmark of a checkout', name, known)
    return known[name]


def check_checkout(name: str, checkout: Path, **names: str) -> None:
    """SetupError lists everything that is missing and where each comes from. names: such as the suite."""
    benchmark = find_benchmark(name)
    if not checkout.is_dir():
        raise SetupError(f'{checkout}: no such folder; wanted a checkout: git clone {benchmark.repository}')
    filled = {need.path.format(**names): need.origin for need in benchmark.needs if _is_known(need.path, names)}
    missing = [f'{path} (from: {origin})' for path, origin in filled.items() if not (checkout / path).exists()]
    if missing:
        raise SetupError(f'{checkout}: not all of {name} is there; missing: {"; ".join(missing)}')


def _is_known(path: str, names: Mapping[str, str]) -> bool:
    try:
        path.format(**names)
    except KeyError:
        return False
    return True


def checkout_host(
    *,
    benchmark: str,
    checkout: str,
    environment: str | None = None,
    start_timeout_s: float = 600.0,
    timeout_s: float | None = None,
    **options: Any,
) -> Host:
    """A benchmark from a checkout of yours.

    benchmark: libero-plus, libero-pro, robocasa, calvin, simpler-google or simpler-widowx. environment: the recipe to
    run it in, with what the benchmark imports; '' for this process. options: of the host of LIBERO (suite, cameras,
    ...), of robosuite (cameras, options, ...), or keys of the mapping; for calvin also dataset.
    """
    entry, folder = find_benchmark(benchmark), Path(checkout).expanduser()
    named = {key: str(options[key]) for key in ('dataset',) if key in options}
    if benchmark == 'libero-pro':
        named['suite'] = pro_suite(str(options.get('suite', 'libero-goal-swap'))).name
    if benchmark == 'calvin' and 'dataset' not in named:
        raise InputError('calvin wants the option dataset: the folder with training and validation, for its scene')
    check_checkout(benchmark, folder, **named)
    recipe = entry.environment if environment is None else environment
    given: dict[str, Any] = {'benchmark': benchmark, 'checkout': str(folder.resolve()), 'options': options}
    if not recipe:
        if environment is None:
            raise InputError(
                f'{benchmark} wants the option environment: a recipe file that locks what {entry.repository} requires '
                '(requirements = ["numpy==2.3.5", "msgpack==1.2.4", ...]), or "" for this process'
            )
        return open_checkout(**given)
    from robotrials.run.environment.gl import drawing_variables

    draws = bool(options.get('cameras') or entry.mapping.get('images'))
    return IsolatedHost(
        environment=recipe,
        host='robotrials.worlds.checkout:open_checkout',
        options=given,
        variables=drawing_variables(recipe) if draws else {},
        start_timeout_s=start_timeout_s,
        timeout_s=timeout_s,
    )


def open_checkout(*, benchmark: str, checkout: str, options: Mapping[str, Any]) -> CheckoutHost:
    """The host, in the process that has what the benchmark imports."""
    entry, folder, given = find_benchmark(benchmark), Path(checkout), dict(options)
    for path in reversed(entry.paths):
        sys.path.insert(0, str((folder / path).resolve()))
    try:
        if benchmark.startswith('libero-'):
            own: Host = CheckoutLiberoHost(benchmark=benchmark, checkout=folder, **given)
        elif benchmark == 'robocasa':
            from robotrials.worlds.robosuite.host import RobosuiteHost

            own = RobosuiteHost(benchmark='robocasa', **given)
        else:
            own = _mapped(entry, folder, given)
    except ModuleNotFoundError as error:
        raise SetupError(
            f'{benchmark} imports {error.name!r}, which is not in its environment; add it to a recipe of yours, and '
            'name that recipe as environment'
        ) from error
    return CheckoutHost(own, benchmark=benchmark, checkout=folder)


def _mapped(entry: CheckoutBenchmark, folder: Path, given: dict[str, Any]) -> Host:
    from robotrials.worlds.gymnasium import GymnasiumHost

    arguments = {**entry.mapping['arguments'], **given.pop('arguments', {})}
    if 'dataset' in given:
        arguments.update(checkout=str(folder), dataset=str((folder / given.pop('dataset')).resolve()))
    return GymnasiumHost(mapping={**entry.mapping, 'arguments': arguments, **given})


class CheckoutHost(HostWrapper):
    """A host from a checkout: its rules say which commit it is of, and that the real thing was never run."""

    def __init__(self, host: HostLike, *, benchmark: str, checkout: Path) -> None:
        super().__init__(host)
        self._name, self._checkout = benchmark, checkout
        self._commit = _commit(checkout)

    def protocol(self) -> ProtocolFacts | None:
        facts = self._host.protocol()
        if facts is None:
            return None
        note = '; '.join(filter(None, [f'{self._name} at {self._commit or "an unknown commit"}', facts.assets_note]))
        packages = {**facts.packages, self._name: self._commit or 'unknown'}
        return dataclasses.replace(facts, assets_note=f'{note}; {UNTRIED}', packages=packages)


def _commit(checkout: Path) -> str:
    """The commit of a checkout, with -dirty behind it if files were changed; empty where git cannot tell."""
    command = ['git', '-C', str(checkout), 'describe', '--always', '--dirty', '--abbrev=12', '--exclude=*']
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return ran.stdout.strip() if ran.returncode == 0 else ''


# LIBERO-Plus and LIBERO-PRO replace LIBERO's own package, under the same name.

BASES = {'spatial': 220, 'object': 280, 'goal': 300, '10': 520}  # both keep LIBERO's step caps
PRO_CHANGES = {
    'object': 'Object', 'swap': 'Position', 'lan': 'Semantic', 'task': 'Task', 'env': 'Environment', 'temp': 'combined',
}  # fmt: skip
PLUS_CATEGORIES = (
    'Objects Layout', 'Camera Viewpoints', 'Robot Initial States', 'Language Instructions', 'Light Conditions',
    'Background Textures', 'Sensor Noise',
)  # fmt: skip


def pro_suite(name: str) -> Suite:
    """A suite of LIBERO-PRO, such as ``libero-goal-swap``: a suite of LIBERO's and what is changed in it."""
    base, _, change = name.removeprefix('libero-').removeprefix('libero_').replace('-', '_').partition('_')
    if base not in BASES or change not in PRO_CHANGES:
        known = [f'libero-{b}-{c}' for b in BASES for c in PRO_CHANGES]
        raise UnknownName('suite of LIBERO-PRO', name, known)
    return Suite(f'libero-{base}-{change}', f'libero_{base}_{change}', 10, BASES[base])


def plus_tasks(checkout: Path | str, suite: str, *, categories: Sequence[str] = ()) -> dict[str, Mapping[str, Any]]:
    """Tasks of LIBERO-Plus by their names here (``task_0``, ...), each with name, category and difficulty level.

    categories: only those; all seven by default.
    """
    base = suite.removeprefix('libero-').removeprefix('libero_')
    if base not in BASES:
        raise UnknownName('suite of LIBERO-Plus', suite, [f'libero-{b}' for b in BASES])
    for category in categories:
        if category not in PLUS_CATEGORIES:
            raise UnknownName('category of LIBERO-Plus', category, PLUS_CATEGORIES)
    path = Path(checkout).expanduser() / 'libero' / 'libero' / 'benchmark' / 'task_classification.json'
    try:
        entries = json.loads(path.read_text(encoding='utf-8'))[f'libero_{base}']
        listed = {f'task_{int(entry["id"]) - 1}': entry for entry in entries}
        chosen = {t: e for t, e in listed.items() if not categories or e['category'] in categories}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not the classification of LIBERO-Plus ({type(error).__name__}: {error})') from error
    return chosen


class CheckoutLiberoHost(LiberoHost):
    """A suite of LIBERO-Plus or LIBERO-PRO. What was changed in a task is a label of its episodes, `perturbation`.

    categories: of LIBERO-Plus, to know only their tasks. The others are the options of LIBERO's host.
    """

    def __init__(
        self, *, benchmark: str, checkout: Path, suite: str = '', categories: Sequence[str] = (), **options: Any
    ) -> None:
        self._is_plus = benchmark == 'libero-plus'
        if self._is_plus:
            known = plus_tasks(checkout, suite or 'libero-spatial')
            base = (suite or 'libero-spatial').removeprefix('libero-').removeprefix('libero_')
            own = Suite(f'libero-plus-{base}', f'libero_{base}', len(known), BASES[base])
            self._changes = {task: entry['category'] for task, entry in known.items()}
            self._levels = {task: entry.get('difficulty_level') for task, entry in known.items()}
            self.checks_frames = False  # its wrapper adds noise to pictures: one that is drawn again is another one
        else:
            own = pro_suite(suite or 'libero-goal-swap')
            change = PRO_CHANGES[own.name.rpartition('_')[2]]
            self._changes, self._levels = dict.fromkeys(own.tasks, change), dict[str, Any]()
        cast('dict[str, Suite]', SUITES)[own.id] = own
        take_package('libero', checkout / 'libero')
        _let_torch_read_arrays()
        assets = options.pop('assets', '') or _assets_of(checkout)
        super().__init__(suite=own.id, assets=assets, **options)
        tasks = tuple(plus_tasks(checkout, own.name, categories=categories)) if self._is_plus else own.tasks
        self._spec = dataclasses.replace(self._spec, name=benchmark, tasks=tasks)

    def report(self) -> HostReport:
        report, task = super().report(), f'task_{self._number}'
        labels = {**report.labels, 'perturbation': self._changes[task]}
        if self._levels.get(task) is not None:
            labels['difficulty'] = str(self._levels[task])
        return dataclasses.replace(report, labels=labels)

    def expect_look(self, is_looked_at: bool) -> None:
        super().expect_look(is_looked_at or self._is_plus)

    def look(self) -> Observation:
        if not self._is_plus:
            return super().look()
        self._begun()
        return self._shown(self._observed, self._images(self._observed))

    def _reset_once(self) -> Any:
        """By the wrapper's own reset where it may change more than LIBERO's does."""
        if not self._is_plus:
            return super()._reset_once()
        del self._env.env.object_property_initializers[self._n_initializers :]
        return self._env.reset()

    def protocol(self) -> ProtocolFacts:
        try:
            return super().protocol()
        except FileNotFoundError:  # start states of LIBERO-Plus are files of other names, which its own code finds
            facts_of = self._benchmark.tasks
            self._benchmark.tasks = []
            try:
                return dataclasses.replace(
                    super().protocol(), initial_states=f"the benchmark's own; fixtures from seed {self._seed}"
                )
            finally:
                self._benchmark.tasks = facts_of


def _assets_of(checkout: Path) -> str:
    inside = checkout / 'libero' / 'libero' / 'assets'
    return str(inside) if inside.is_dir() else ''


def take_package(name: str, folder: Path) -> None:
    """Have `import name` take this folder, whether or not one of that name is installed."""
    for known in [m for m in sys.modules if m == name or m.startswith(f'{name}.')]:
        del sys.modules[known]
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    package.__spec__ = spec
    sys.modules[name] = package


def _let_torch_read_arrays() -> None:
    """Start states are pickled arrays, which torch refuses by default since 2.6: allow arrays, and nothing else."""
    import torch

    multiarray = importlib.import_module('numpy._core.multiarray')
    rebuilt = multiarray._reconstruct
    kinds = [type(np.dtype(kind)) for kind in ('f8', 'f4', 'i8', 'i4', 'b1')]
    old: Any = (rebuilt, 'numpy.core.multiarray._reconstruct')
    torch.serialization.add_safe_globals([old, rebuilt, np.ndarray, np.dtype, *kinds])


# CALVIN and SimplerEnv, as Gymnasium environments.


class CalvinEnv(Simulator):
    """The first task of CALVIN's sequences, from their own start states: what it counts as "1 in a row".

    Further tasks of a sequence have further instructions, and an episode here has one. The sequences that begin with a
    task are numbered; the episode's seed picks one. (mees/calvin: calvin_agent/evaluation/evaluate_policy.py.)
    """

    def __init__(self, *, task: str, checkout: str, dataset: str) -> None:
        import hydra
        from calvin_agent.evaluation.multistep_sequences import get_sequences
        from calvin_agent.evaluation.utils import get_env_state_for_initial_condition
        from calvin_env.envs.play_table_env import get_env
        from omegaconf import OmegaConf

        folder = Path(checkout, 'calvin_models', 'conf')
        self._task = task
        self._own: Any = get_env(Path(dataset, 'validation'), show_gui=False)
        self._oracle: Any = hydra.utils.instantiate(
            OmegaConf.load(folder / 'callbacks' / 'rollout' / 'tasks' / 'new_playtable_tasks.yaml')
        )
        annotations = OmegaConf.load(folder / 'annotations' / 'new_playtable_validation.yaml')
        self.instruction = str(annotations[task][0])
        self._starts = [start for start, sequence in get_sequences(1000, num_workers=1) if sequence[0] == task]
        self._state_of = get_env_state_for_initial_condition
        self.judge = type(self._oracle)
        super().__init__(low=-np.ones(7), high=np.ones(7), width=15)

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self._starts:
            raise InputError(f'none of the 1,000 sequences of CALVIN begins with {self._task}; take another task')
        robot, scene = self._state_of(self._starts[(seed or 0) % len(self._starts)])
        seen = self._own.reset(robot_obs=robot, scene_obs=scene)
        self._first = self._own.get_info()
        return self._read(seen), {}

    def step(self, action: Any) -> Stepped:
        own = np.array(action, dtype=float)  # a copy: CALVIN scales what it is given in place
        own[-1] = 1.0 if own[-1] > 0 else -1.0
        seen, _, _, info = self._own.step(own)
        is_done = len(self._oracle.get_task_info_for_set(self._first, info, {self._task})) > 0
        return self._read(seen), 0.0, False, False, {'success': is_done}

    def close(self) -> None:
        self._own.close()

    @staticmethod
    def _read(seen: Mapping[str, Any]) -> dict[str, Any]:
        return {'robot_obs': np.array(seen['robot_obs']), **{n: np.array(v) for n, v in seen['rgb_obs'].items()}}


# max_episode_steps of ManiSkill2_real2sim's registration, by the beginning of SimplerEnv's names.
SIMPLER_CAPS = {
    'google_robot_pick': 80, 'google_robot_move_near': 80, 'google_robot_open': 113, 'google_robot_close': 113,
    'widowx_put_eggplant': 120, 'widowx': 60,
}  # fmt: skip
WIDOWX_LAYOUTS = 24  # the layouts of its published evaluation


class SimplerEnv(Simulator):
    """A prepackaged task of SimplerEnv (simpler_env/__init__.py), with its own camera and instruction.

    The state is the joints and the tool's pose, with zeros behind them. WidowX starts from one of the benchmark's 24
    layouts, the episode's seed modulo 24; the Google robot from what the seed draws.
    """

    def __init__(self, *, task: str, width: int = 20) -> None:
        import simpler_env
        from simpler_env.utils.env.observation_utils import get_image_from_maniskill2_obs_dict

        self._own: Any = simpler_env.make(task)
        self._view, self._width, self._task = get_image_from_maniskill2_obs_dict, width, task
        cap = next(cap for start, cap in SIMPLER_CAPS.items() if task.startswith(start))
        self.judge = type(self._own.unwrapped)
        super().__init__(low=self._own.action_space.low, high=self._own.action_space.high, width=width, step_cap=cap)

    @property
    def instruction(self) -> str:
        return str(self._own.unwrapped.get_language_instruction())

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        chosen = {'obj_init_options': {'episode_id': (seed or 0) % WIDOWX_LAYOUTS}}
        seen, _ = self._own.reset(seed=seed, options=chosen if self._task.startswith('widowx') else {})
        return self._read(seen), {}

    def step(self, action: Any) -> Stepped:
        seen, reward, is_done, truncated, _ = self._own.step(np.asarray(action, dtype=float))
        return self._read(seen), float(reward), False, bool(truncated), {'success': bool(is_done)}

    def close(self) -> None:
        self._own.close()

    def _read(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        state = np.concatenate([np.ravel(seen['agent']['qpos']), np.ravel(seen['extra']['tcp_pose'])])
        return {'state': padded(state, self._width), 'view': np.array(self._view(self._own, seen))}
