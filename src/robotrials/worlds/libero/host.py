"""LIBERO inside its environment: one task at a time, by the benchmark's own protocol, with safety signals."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import importlib
import importlib.util
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.record.folder import write_durably
from robotrials.record.footage import KnownScene, View
from robotrials.run.seam import HostReport, Observation, ProtocolFacts, Setup, openblas_kernels, source_hash
from robotrials.worlds.arm.host import ArmHost, render_flags
from robotrials.worlds.arm.signal import REST, SENSORS, Cast, FrameCheck, Monitor, arm_signals, mend_rendering, unseen
from robotrials.worlds.arm.watch import Watch, check_watchers
from robotrials.worlds.libero.goal import LiberoPlan
from robotrials.worlds.libero.lean import HalfSteps, Workshop, read_only
from robotrials.worlds.libero.start import (
    CAMERA,
    CONDITIONS,
    Start,
    changed_state,
    init_states_hash,
    move_camera,
    read_cast,
)
from robotrials.worlds.libero.suite import (
    CAMERAS,
    CONTROL_RATE_HZ,
    LAYOUTS,
    SETTLING_STEPS,
    Privileged,
    assets_hash,
    assets_note,
    find_assets,
    find_suite,
    task_number,
)

PACKAGES = ('hf-libero', 'robosuite', 'mujoco', 'numpy', 'torch')


class LiberoHost(ArmHost):
    """One suite. Actions are those of LIBERO: six numbers in -1 to 1 for OSC_POSE, and the gripper.

    See `robotrials.worlds.libero.libero_host`, which runs it in its environment, for the options.
    """

    def __init__(
        self,
        *,
        suite: str = 'libero-spatial',
        cameras: Sequence[str] = (),
        image_size: Sequence[int] = (256, 256),
        assets: str = '',
        state: str = 'proprioception',
        seed: int = 0,
        step_cap: int | None = None,
        instrumented: bool = True,
        watchers: Sequence[str] = (),
        oracle_masks: bool = False,
    ) -> None:
        self._watchers = check_watchers(watchers, has_oracle_masks=oracle_masks)
        self._has_oracle_masks = bool(oracle_masks)
        self._watch: Watch | None = None
        self._plan: LiberoPlan | None = None
        self._suite = find_suite(suite)
        if state not in LAYOUTS:
            raise UnknownName('state', state, LAYOUTS)
        self._is_privileged, self._seed, self._is_instrumented = state == 'privileged', int(seed), bool(instrumented)
        self._cap = self._suite.step_cap if step_cap is None else int(step_cap)
        if self._cap < 1:
            raise InputError(f'step_cap is {self._cap}, wanted >= 1')
        self._assets = find_assets(assets)
        self._benchmark = open_benchmark(self._suite.name, self._assets)
        gc.collect()
        gc.freeze()  # robosuite collects garbage at every reset: what was imported need not be looked through
        self._workshop: Workshop | None = None
        self._number = -1
        self._start: Start | None = None
        super().__init__(
            name='libero', control_rate_hz=CONTROL_RATE_HZ, layout=LAYOUTS[state],
            cameras={name: CAMERAS[name] for name in cameras}, image_size=image_size, tasks=self._suite.tasks,
            conditions=[c for c in CONDITIONS if c != CAMERA or 'agentview' in cameras], shows_upside_down=True,
        )  # fmt: skip

    def prepare(self, setup: Setup) -> None:
        """Take instance and condition for the next reset."""
        task_number(self._suite, setup.task)
        self._start = Start.of(setup)

    def reset(self, task: str, *, seed: int) -> Observation:
        """Seed, reset, set the start state, let it settle; without `prepare` it is the first start state."""
        number = task_number(self._suite, task)
        start = self._start if self._start is not None and self._start.seed == seed else Start(seed=seed)
        self._start = None
        own_seed = seed % 2**32 if start.is_fresh else self._seed
        workshop = self._open(number, seed=own_seed)
        env = self._env
        env.seed(own_seed)
        with workshop.open(), unseen():  # the start state is set afterwards, and drawn once it has settled
            self._reset_native()
            move_camera(env.env, start)
            state = env.get_sim_state() if start.is_fresh else self._init_state(number, start.instance)
            observed = env.set_init_state(changed_state(env.env, state, start))
        HalfSteps(env.env)
        self._cast = read_cast(env.env)
        self._privileged = Privileged(env.env, self._cast)
        self._home = env.env.sim.data._data.qpos[np.array(env.env.robots[0]._ref_joint_pos_indexes)].copy()
        self._open_shutter(env.env)
        for step in range(SETTLING_STEPS):
            self.expect_look(step == SETTLING_STEPS - 1)
            observed, *_ = env.step(REST)
        if self._shutter is not None and self.checks_frames:
            self._frames.at_reset(self._images(observed), moment=self._shutter.kept)
        self._monitor = Monitor(env.env, self._cast) if self._is_instrumented else None
        self._plan = LiberoPlan(env.env) if self._watchers else None
        return self._begin(observed, is_done=bool(env.check_success()))

    def instruction(self) -> str:
        self._begun()
        return str(self._benchmark.get_task(self._number).language)

    def report(self) -> HostReport:
        report = super().report()
        name = str(self._benchmark.get_task(self._number).name)
        return dataclasses.replace(report, labels={'libero_task': name, **report.labels})

    def signals(self) -> Mapping[str, Any]:
        """The last control step: peaks of torque and contact force over its substeps, poses at its end."""
        env = self._begun().env
        robot = env.robots[0]
        known = arm_signals(
            env, self._cast, self._monitor, site=robot.eef_site_id, fingers=robot._ref_gripper_joint_pos_indexes
        )
        return {**known, 'simulator_state': self._env.get_sim_state()}

    @property
    def has_views(self) -> bool:
        return bool(self._watchers)

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D of the watching cameras, from a copy; when all is over the arm is drawn where it began."""
        env = self._begun().env
        if self._plan is None:
            return {}
        model, qpos = env.sim.model._model, env.sim.data._data.qpos.copy()
        if is_over:
            qpos[np.array(env.robots[0]._ref_joint_pos_indexes)] = self._home
        if self._watch is None or self._watch.model is not model:
            self._close_watch()
            self._watch = Watch(model, self._watchers, middle_m=self._plan.middle_m)
        things = self._plan.things if self._has_oracle_masks else None
        return self._watch.take(qpos, t_s=self._steps / CONTROL_RATE_HZ, things=things)

    def known_scene(self) -> KnownScene:
        """What the task's BDDL and meshes say, and where the start state puts things."""
        self._begun()
        return super().known_scene() if self._plan is None else self._plan.known_scene()

    def protocol(self) -> ProtocolFacts:
        from importlib.metadata import version

        from libero.libero.envs import bddl_base_domain, predicates

        packages = {name: version(name) for name in PACKAGES} | openblas_kernels()
        folder = Path(init_states_folder(), self._suite.name)
        files = [folder / task.init_states_file for task in self._benchmark.tasks]
        digest = assets_hash(self._assets)
        return ProtocolFacts(
            benchmark=self._suite.id,
            control_rate_hz=CONTROL_RATE_HZ,
            step_cap=self._cap,
            settling_steps=SETTLING_STEPS,
            initial_states=f'fixed, by instance: {init_states_hash(files)}; fixtures from seed {self._seed}',
            success_predicate='libero _check_success: the goal of the BDDL',
            success_source=source_hash(predicates, predicates.base_predicates, bddl_base_domain.BDDLBaseDomain.step),
            success_at_reset='labelled success_at_reset; counts from the first step on',
            assets=digest,
            assets_note=assets_note(self._assets, digest),
            simulator=f'mujoco {packages["mujoco"]}, robosuite {packages["robosuite"]}',
            packages=packages,
            render_flags=render_flags(),
        )

    def close(self) -> None:
        self._close_watch()
        if self._env is not None:
            self._env.close()
            self._env = self._workshop = self._shutter = self._monitor = None
            for name in ('_frames', '_privileged'):
                self.__dict__.pop(name, None)
            self._is_begun = False
            gc.collect()  # an environment refers to itself, and its model takes 70 MB

    # --- inside

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _advance(self, action: NDArray[np.float64]) -> tuple[Any, bool]:
        observed, _, done, _ = self._env.step(action)
        return observed, bool(done)

    def _step_cap(self) -> int:
        return self._cap

    def _state(self, proprioception: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([proprioception, self._privileged.read()]) if self._is_privileged else proprioception

    def _open(self, number: int, *, seed: int) -> Workshop:
        """Make the environment of a task; only ever one, because two would share robosuite's rendering.

        seed: of the reset that follows: what is made for it here already serves it.
        """
        if number == self._number and self._env is not None and self._workshop is not None:
            return self._workshop
        self.close()
        from libero.libero.envs.env_wrapper import ControlEnv

        mend_rendering()
        has_cameras = bool(self._cameras)
        self._workshop = workshop = Workshop()
        np.random.seed(seed)  # noqa: NPY002 - LIBERO draws from the global generator
        with workshop.open(), unseen():
            self._env = ControlEnv(
                bddl_file_name=self._benchmark.get_task_bddl_file_path(number),
                has_offscreen_renderer=has_cameras,
                use_camera_obs=has_cameras,
                camera_names=list(self._cameras.values()) or ['agentview'],
                camera_heights=self._height,
                camera_widths=self._width,
                control_freq=int(CONTROL_RATE_HZ),
                horizon=self._cap + SETTLING_STEPS + 1,
            )
        self._number = number
        self._n_initializers = len(self._env.env.object_property_initializers)
        self._init_states: Any = self._benchmark.get_task_init_states(number)
        read_only(self._env.env, (*SENSORS, *(f'{camera}_image' for camera in self._cameras.values())))
        self._frames = FrameCheck(self._env.env, self._cameras, height_px=self._height, width_px=self._width)
        return workshop

    def _reset_once(self) -> Any:
        """As a new environment does it.

        LIBERO adds the initializers of drawers and knobs again at every reset; each draws from the generator, so that
        fixtures would stand elsewhere at every episode.
        """
        del self._env.env.object_property_initializers[self._n_initializers :]
        return self._env.env.reset()

    def _init_state(self, number: int, instance: int) -> NDArray[np.float64]:
        if not 0 <= instance < len(self._init_states):
            raise InputError(
                f'instance is {instance}: {self._suite.id} task_{number} has {len(self._init_states)} start states; '
                'take fewer instances, or the condition fresh_start'
            )
        return np.asarray(self._init_states[instance], dtype=float)

    @property
    def cast(self) -> Cast:
        """The roles of the episode at hand."""
        return self._cast


def init_states_folder() -> str:
    from libero.libero import get_libero_path

    return str(get_libero_path('init_states'))


def open_benchmark(name: str, assets: Path) -> Any:
    """LIBERO's own list of tasks, imported without its question on stdin and with the assets where they are."""
    spec = importlib.util.find_spec('libero')
    if spec is None or not spec.submodule_search_locations:
        raise SetupError('LIBERO is not installed here; run `robotrials env create libero`')
    root = Path(next(iter(spec.submodule_search_locations)), 'libero')
    places = {
        'benchmark_root': root, 'bddl_files': root / 'bddl_files', 'init_states': root / 'init_files',
        'datasets': root / 'datasets', 'assets': assets,
    }  # fmt: skip
    os.environ['LIBERO_CONFIG_PATH'] = str(_written(''.join(f'{key}: {str(path)!r}\n' for key, path in places.items())))
    import libero.libero as package

    package._assets_path_cache = str(assets)
    from libero.libero import benchmark

    # What follows is loaded here, so that no episode waits for it: robosuite, and what numba needs for its functions.
    importlib.import_module('libero.libero.envs.env_wrapper')
    compiler = importlib.import_module('numba.core.registry').cpu_target
    for context in (compiler.typing_context, compiler.target_context):
        context.refresh()
    return benchmark.get_benchmark(name)()


def _written(config: str) -> Path:
    """A folder with this config.yaml; equal ones share it, so that workers leave nothing behind.

    Its name can be guessed: one that somebody else made, or can write to, is not used.
    """
    digest = hashlib.sha256(config.encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f'robotrials-libero-{os.getuid()}-{digest}')
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        folder = Path(tempfile.mkdtemp(prefix='robotrials-libero-'))
    write_durably(folder / 'config.yaml', config)
    return folder
